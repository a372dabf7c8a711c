"""Random passes over kernels as people write them."""
from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.checks import kernels_passed as command
from benchmarks.fuzz.checking import Fault
from kir.ir.parser import parse_program
from kir.ir.types import DType

ROWS = """kir 1
program rows
  size M: i32
  size N: i32
  scalar scale: f32
  fact N % 4 == 0
  in X: f32[M, N]
  out Y: f32[M, N]
kernel main grid (b: M) threads 1
  for j in 0..N
    Y[b, j] = X[b, j] * scale
"""


def test_sizes_and_scalars_become_numbers_that_the_facts_allow() -> None:
    program = parse_program(ROWS)
    for turn in range(4):
        made = command.at_sizes(program, turn)
        assert made is not None and not made.facts and not any(isinstance(p.of, DType) for p in made.params)
        arrays = command.inputs(made, "rows", turn)
        assert arrays is not None and arrays["X"].shape[1] % 4 == 0


def test_every_kind_of_kernel_is_there_and_one_goes_through_all_checks() -> None:
    every = dict(command.kernels())
    assert {"skills/problems/gemm/naive.kir", "skills/experts/softmax/softmax.kir", "plain.cu::halo", "plain_triton.py::cum_kernel"} <= every.keys()
    count = Counter[str]()
    assert command.one("plain.cu::relu", every["plain.cu::relu"], 0, count) == []
    assert count["forward applications"] and count["text and back"] == 1


def test_a_fault_is_kept_shown_and_open_until_it_is_said_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def found(*given: object) -> Iterator[Fault]:
        yield Fault("values after tile", "Y[0] is 1 and 2", "tile{} seed 3", "before", "after")
    monkeypatch.setattr(command, "checks", found)
    monkeypatch.setattr(command, "PAGE", tmp_path / "page.md")
    state = tmp_path / "state.json"
    monkeypatch.setattr("sys.argv", ["kernels_passed", "--only", "problems/scan", "--minutes", "0.002", "--state", str(state), "--write"])
    assert command.main() == 1
    assert "values after tile" in capsys.readouterr().out and "**open**" in (tmp_path / "page.md").read_text(encoding="utf-8")
    before = json.loads(state.read_text(encoding="utf-8"))["turns"]
    monkeypatch.setattr(command, "MENDED", {"values after tile": "no site"})
    assert command.main() == 0
    assert json.loads(state.read_text(encoding="utf-8"))["turns"] > before, "it goes on where it ended"
