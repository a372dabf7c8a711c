"""Law 5a: what the Triton backend writes, the Triton frontend reads back as the same program, whatever the local names."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.gate import gate_cpu
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.visit import walk
from kir.problem import load_problem
from kir.surface.reading import load_expert
from tests.backends.conftest import program
from tests.round_trips import TRITON

BINDINGS = Path(__file__).parents[3] / "skills" / "bindings"
VARIANTS = {
    "bfloat16": lambda text: text.replace("f16", "bf16"),
    "four stages": lambda text: text.replace("stages=3", "stages=4"),
    "not pipelined": lambda text: text.replace(" pipelined {stages=3}", ""),
    "one tail": lambda text: text.replace("fact K % 16 == 0", "fact K % 32 == 0"),
    "eight warps": lambda text: text.replace("threads 128", "threads 256"),
    "tall tiles": lambda text: text.replace("by * 128", "by * 64").replace("128, k", "64, k").replace("M, 128", "M, 64")
    .replace("128, bx", "64, bx").replace("f32[128, 128]", "f32[64, 128]"),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["gemm_tile", "softmax_tile", "rmsnorm_tile"])
def test_tile_programs_are_read_back(tmp_path: Path, name: str, seed: int) -> None:
    TRITON.holds(program(name), tmp_path, seed)


@pytest.mark.parametrize("name", ["gemm", "softmax", "rmsnorm", "topk", "conv2d"])
def test_naive_programs_are_read_back(tmp_path: Path, name: str) -> None:
    TRITON.holds(load_problem(name).naive, tmp_path)


@pytest.mark.parametrize("what", VARIANTS)
def test_variants_of_the_gemm_are_read_back(tmp_path: Path, what: str) -> None:
    source = program_text(program("gemm_tile"))
    text = VARIANTS[what](source)
    assert text != source
    TRITON.holds(parse_program(text, "p.kir"), tmp_path)


EXPERTS = {
    "flag_gems_mm": "flag_gems:ops/mm.py::mm_kernel_general",
    "liger_softmax": "liger_kernel:ops/softmax.py::_softmax_single_block_forward_kernel",
    "liger_rms_norm": "liger_kernel:ops/rms_norm.py::_rms_norm_forward_kernel",
    "triton_gemm": f"{Path(__file__).parents[3]}/skills/experts/gemm/triton.py::gemm_persistent",
}


@pytest.mark.zoo
@pytest.mark.parametrize("name", EXPERTS)
def test_kernels_that_others_wrote_are_read_back(tmp_path: Path, name: str) -> None:
    expert = load_expert(EXPERTS[name], BINDINGS / f"{name}.toml")
    TRITON.is_read_back(expert.program, tmp_path, 1)


@pytest.mark.zoo
@pytest.mark.triton
@pytest.mark.parametrize("name", EXPERTS)
def test_kernels_that_others_wrote_pass_the_gate(name: str) -> None:
    binding = BINDINGS / f"{name}.toml"
    expert = load_expert(EXPERTS[name], binding)
    verdict = gate_cpu(expert.program, load_problem(Binding.read(binding).problem), "triton", [target("sm_90a")])
    assert verdict.accepted, verdict.reason
    if "gemm" in name or "mm" in name.split("_"):
        copies = "UTMALDG" if any(isinstance(s, n.Copy) and s.via == "tma" for s in walk(expert.program)) else "LDGSTS"
        assert verdict.artifacts[0].mix["HGMMA"] > 0 and verdict.artifacts[0].mix[copies] > 0
        assert (copies == "UTMALDG") == (name == "triton_gemm"), "descriptors are read and written as descriptors"
