"""What this machine has: wrapper scripts are followed, absent things are absent, nothing optional is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kir.hardware import machine


def executable(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def test_wrapper_scripts_and_links_are_followed_to_the_toolkit(tmp_path: Path) -> None:
    real = executable(tmp_path / "cuda-99.1" / "bin" / "nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 99.1, V99.1.42'\n")
    inner = executable(tmp_path / "inner" / "nvcc", f'#!/bin/sh\nexec {real} "$@"\n')
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "nvcc").symlink_to(inner)
    found = machine.toolkit(str(tmp_path / "path"))
    assert found is not None
    assert found.root == tmp_path / "cuda-99.1"
    assert (found.nvcc.path, found.nvcc.version) == (real, "99.1.42")


def test_an_nvcc_that_fails_is_no_toolkit(tmp_path: Path) -> None:
    executable(tmp_path / "nvcc", "#!/bin/sh\nexit 1\n")
    assert machine.toolkit(str(tmp_path)) is None
    assert machine.toolkit(str(tmp_path / "nowhere")) is None


def test_packages_are_asked_about_without_being_imported() -> None:
    script = (
        "import sys; from kir.hardware import machine;"
        "print(machine.package_version('lark') is not None, machine.package_version('no-such-distribution'),"
        "machine.package_folder('no_such_package'), bool(machine.package_folder('lark')), 'lark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert done.stdout.strip() == "True None None True False"


def test_isolation_and_summary_answer_everywhere() -> None:
    granted = machine.isolation()
    assert granted.landlock >= 0
    about = machine.summary()
    assert set(about) == {"python", "system", "cores", "memory"} and int(about["cores"]) >= 1


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_memory_that_threads_have_freed_is_given_back() -> None:
    """A walk that gates one program after another keeps no more than one gate needs: what was freed between blocks that stay goes back."""
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def work(_: int) -> list[bytearray]:
        every = [bytearray(60_000 if i % 2 else 600) for i in range(1000)]
        return every[::2]
    with ThreadPoolExecutor(4) as pool:
        kept = list(pool.map(work, range(8)))
    before = resident()
    machine.give_back()
    assert kept and before - resident() > 50e6


def test_every_gate_of_a_walk_gives_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from kir.ir.parser import parse_program
    from kir.lineage.judge import CpuJudge

    times = []
    monkeypatch.setattr(machine, "give_back", lambda: times.append(1))
    program = parse_program("kir 1\nprogram p\n  out X: f32[4]\nkernel main grid (i: 4) threads 1\n  X[i] = 1.0\n")
    judge = CpuJudge("kir", (), None, program)
    assert [judge.gate(program).accepted for _ in range(3)] == [True] * 3 and len(times) == 3
