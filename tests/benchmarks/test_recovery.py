"""Recovery: tries of one problem share what the gate said and nothing else, and rows say which code made them."""
from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.optimize import recovery
from benchmarks.optimize.running import Known, Remembered
from kir.learning.optimize.judge import CpuJudge
from kir.learning.tune.search import Measured
from kir.problem import load_problem


def test_what_the_gate_said_of_a_program_it_says_again_and_each_has_its_own_word() -> None:
    asked: list[str] = []

    def judge(program: Any, surface: str) -> Measured:
        asked.append(surface)
        return Measured(1e-5)
    gate, known = cast(CpuJudge, SimpleNamespace(name="cpu", measures=True, judge=judge)), Known()
    naive = load_problem("softmax").naive
    first, second = (Remembered(gate, known).judge(naive, "cuda") for _ in range(2))
    Remembered(gate, known).judge(naive, "triton")
    assert asked == ["cuda", "triton"] and first == second and first is not second
    Remembered(gate, Known()).judge(naive, "cuda")
    assert len(asked) == 3, "another problem's searches ask themselves"


def test_rows_of_other_code_are_made_again_and_those_of_a_folder_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, Sequence[str]]] = []

    def made(name: str, surface: str, arms: Sequence[str], folder: str) -> dict[str, Any]:
        asked.append((name, surface, arms))
        return {arm: {"seconds": 1e-3} for arm in arms}
    monkeypatch.setattr(recovery, "several", made)
    monkeypatch.setattr(recovery, "experts", lambda surface: {"gemm": 1e-3})
    monkeypatch.setattr(recovery, "code", lambda: "this")
    monkeypatch.setattr(recovery, "ORDER", recovery.TRIES)
    monkeypatch.setattr(recovery, "PROBLEMS", ("gemm",))
    monkeypatch.setattr(recovery, "WORKLOADS", ("gemm",))
    file = tmp_path / "a" / "optimize-recovery.json"
    file.parent.mkdir()
    old = [{"problem": "gemm", "surface": "cuda", "arm": f"try {k}", "seconds": 2e-3, **({"code": "this"} if k else {})} for k in range(5)]
    file.write_text(json.dumps({"rows": old}))
    assert recovery.recovery(tmp_path / "a", "", 60.0) == 0
    assert [(s, list(arms)) for _, s, arms in asked] == [("cuda", ["try 0"]), ("triton", list(recovery.TRIES)), ("tilelang", list(recovery.TRIES))]
    page = (tmp_path / "a" / "optimize-recovery.md").read_text()
    assert "- tries: 11 of 15 at 95% or more" in page and "11 of this, 2" in page and "4 of this, undated" in page
    other = tmp_path / "b"
    other.mkdir()
    (other / file.name).write_text(json.dumps({"rows": [{**old[1], "seconds": 1e-3}]}))
    asked.clear()
    assert recovery.recovery(tmp_path / "a", "", -1.0, given=str(other)) == 0 and not asked
    assert "- tries: 12 of 15 at 95% or more" in (tmp_path / "a" / "optimize-recovery.md").read_text()
