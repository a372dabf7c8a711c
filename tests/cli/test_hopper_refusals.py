"""What issues of Hopper kernels look like on the command line: each is refused with its place, a witness and a way out."""
from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from kir.analysis.target.legalize import legalize
from kir.base.registry import registry
from kir.faces.cli._main import run
from kir.hardware.target import target
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.rewrite.conformance.box import box_of
from tests.programs import EXPERTS

CASES = Path(__file__).parents[1] / "passes" / "cases"


def product() -> str:
    """A producer and a consumer of one warpgroup, on one persistent CTA."""
    return str(tomllib.loads((CASES / "ping_pong.toml").read_text(encoding="utf-8"))["case"][0]["before"])


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a refused command says."""
    assert run(words) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


def written(folder: Path, text: str) -> str:
    file = folder / "kernel.kir"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_a_target_without_the_instruction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, product())
    said = refused(["gate", file, "--against", file, "--target", "sm_80"], capsys)
    assert "KIR-V034] sm_80 has no mbarrier_transaction" in said and "KIR-V032] sm_80 has no wgmma" in said and "needs:   sm_90a" in said
    said = refused(["opt", file, "-p", "ping-pong; redistribute-registers{registers=[40, 232]}@main/roles", "--target", "sm_90"], capsys)
    assert "KIR-P776" in said and "sm_90 has no setmaxnreg" in said and "witness:" in said


def test_too_much_shared_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    box = tomllib.loads((CASES / "multicast_cluster.toml").read_text(encoding="utf-8"))["case"][0]["before"]
    said = refused(["opt", written(tmp_path, box), "-p", "deepen-ring{stages=20}@main/teams"], capsys)
    assert "KIR-P760" in said and "20 stages need 328000 bytes" in said and "sm_90a has 232448 a CTA" in said and "byte 232448 is one too many" in said


def test_registers_that_do_not_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given, total in (("40, 240", 66560), ("32, 240", 65536)):  # an SM has 65536, and a CTA what a multiple of 8 for each thread comes to
        said = refused(["opt", written(tmp_path, product()), "-p", f"ping-pong; redistribute-registers{{registers=[{given}]}}@main/roles"], capsys)
        assert "KIR-P774" in said and f"the roles take {total} registers, and a CTA of 384 threads has 64512" in said and "waits until others" in said
    text = product().replace("warps 0..4", "warps 0..4 registers 152").replace("warps 4..8", "warps 4..8 registers 256").replace("threads 256", "threads 384")
    file = written(tmp_path, text)
    said = refused(["gate", file, "--against", file, "--target", "sm_90a"], capsys)
    assert "KIR-V036" in said and "waits for ever" in said and "kernel.kir:" in said
    expert = parse_program((EXPERTS / "gemm" / "gemm_sm90.kir").read_text(encoding="utf-8").replace("registers 232", "registers 24"))
    (few,) = legalize(expert, target("sm_90a").architecture)
    assert few.message == "'consumer' has 24 registers a thread, and its fragments alone take 128"


def test_a_cluster_that_does_not_divide_the_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    box = tomllib.loads((CASES / "multicast_cluster.toml").read_text(encoding="utf-8"))["error"][1]["before"]
    said = refused(["opt", written(tmp_path, box), "-p", "multicast-cluster{size=2}@main/teams"], capsys)
    assert "KIR-P221" in said and "CTA 2 has no cluster" in said
    said = refused(["opt", written(tmp_path, f"{box.rstrip()}\n  barrier()\n"), "-p", "multicast-cluster{size=2}@main/teams"], capsys)
    assert "something stands behind the roles" in said
    file = written(tmp_path, "kir 1\nprogram p\n  out C: f32[3]\nkernel main grid (i: 3) threads 32 cluster (2)\n  C[i] = 1.0\n")
    assert "KIR-V037" in (said := refused(["gate", file, "--against", file, "--target", "sm_90a"], capsys)) and "CTA 2 has no cluster" in said
    assert "KIR-I029" in refused(["run", file, "--check"], capsys)


def test_a_tensor_that_no_descriptor_may_begin_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = program_text(box_of(registry("kir.passes").entry("tma-load").file.read_text(encoding="utf-8"), "tma-load").before)
    said = refused(["opt", written(tmp_path, text.replace("align 16", "align 2")), "-p", "tma-load"], capsys)
    assert "KIR-P202" in said and "'X' is aligned to 2 bytes" in said and "witness:" in said
