"""Held-out instances: candidates some at a time until each instance has its share, the rival beside them, rows as they come. Recovery: tries of one problem
share what the gate said and nothing else, and rows say which code made them."""
from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.optimize import heldout as held
from benchmarks.optimize import recovery, running
from benchmarks.optimize.ahead import Proposed
from benchmarks.optimize.running import Known, Remembered
from kir.learning.optimize.judge import CpuJudge
from kir.learning.optimize.pool.engines import Lost
from kir.learning.tune.search import Measured
from kir.problem import load_problem

PROPOSED = [Proposed(f"c{i}", f"plan {i}", "family", "cuda", "kir 1", 1e-5, 3, 0) for i in range(9)]


class Here:
    """An engine that works where it is asked; a worker that has the second instance is lost."""

    def begin(self, work: Any, task: held.Some) -> Any:
        said: Future[Any] = Future()
        if task.key == "grouped 8":
            said.set_exception(Lost(alone=True))
        else:
            said.set_result(work(task))
        return SimpleNamespace(said=said)

    def result(self, task: Any, seconds: float) -> Any:
        return task.said.result()

    def close(self) -> None:
        pass


def test_instances_are_measured_some_candidates_at_a_time_beside_their_rivals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All proposals of an instance are measured, five at a time; the rival's time comes when it comes; what lost its worker is a row that says so."""
    asked: list[int] = []

    def more(gpu: Any, one: Any, proposed: Any, row: dict[str, Any], until: float, most: int) -> dict[str, Any]:
        asked.append(len(row["tried"]))
        new = [{"candidate": p.key, "accepted": True, "seconds": (20 - int(p.key[1:])) * 1e-6} for p in proposed[len(row["tried"]):][:most]]
        best = min(t["seconds"] for t in [*row["tried"], *new])
        return {**row, "tried": [*row["tried"], *new], "seconds": best, "low": best, "high": best, "plan": "a plan", "surface": "cuda"}

    gpu = SimpleNamespace(about={"name": "a device"}, peaks={"bandwidth": 1e12}, folder=tmp_path, target=SimpleNamespace(device=SimpleNamespace(name="h200")))
    monkeypatch.setattr(held, "Devices", lambda gpus, each: Here())
    monkeypatch.setattr(held, "Gpu", SimpleNamespace(open=lambda: nullcontext(gpu)))
    monkeypatch.setattr(held, "opened", lambda: None)
    monkeypatch.setattr(held, "rivals_compiling", lambda *x: [])
    monkeypatch.setattr(held, "proposals", lambda number, device: PROPOSED)
    monkeypatch.setattr(held, "measured_more", more)
    monkeypatch.setattr(held._Panel, "timed", lambda self, one, secret: {"rival": one.rival, "rival_seconds": 24e-6, "library_seconds": 16e-6})
    assert held.heldout(tmp_path, 60.0, "mm 2048,grouped 8", 2) == 0
    rows = {row["instance"]: row for row in json.loads((tmp_path / "optimize-heldout.json").read_text())["rows"]}
    assert asked == [0, 5] and len(rows["mm 2048"]["tried"]) == len(PROPOSED), "nothing is measured twice, and nothing is left out"
    assert rows["mm 2048"]["times_faster"] == pytest.approx(2.0) and rows["mm 2048"]["rival"] == "flag_gems.mm"
    assert rows["grouped 8"]["remark"] == "it ended its process" and rows["grouped 8"]["rival_seconds"] == 24e-6 and not rows["grouped 8"]["seconds"]
    page = (tmp_path / "optimize-heldout.md").read_text()
    assert "1.00 TB/s" in page and "| 2.000 | 1.500 | 0.95 |" in page, "25 MB take 25 us at that rate"
    assert "is: 1.500 together over 1 rows, at which ours are at 2.000" in page, "what the libraries come to"
    assert "1 of 2 rows have both times: 1 at 1.0 or more, geometric mean 2.000" in page and "it ended its process" in page
    assert "| 9 | 60 | " in page and "seconds N" in page, "each row says how long its run was"
    other, now = tmp_path / "other", {**rows["mm 2048"], "rival_seconds": 36e-6, "times_faster": 3.0, "run": 90.0}
    other.mkdir()
    (other / "optimize-heldout.json").write_text(json.dumps({"about": {"command": "c", "device": "d", "when": "w", "bandwidth": 1e12}, "rows": [now]}))
    assert held.joined(other, tmp_path) == 0
    assert "| 90 | " in (page := (tmp_path / "optimize-heldout.md").read_text()) and "FlagGems took 24.0 us in the other run" in page
    again = held._again({**rows["mm 2048"], "took": 90.0})
    assert not any(t.get("gated", True) for t in again["tried"]) and again["took"] == 0.0, "both sides are of one run"
    assert Proposed(**asdict(PROPOSED[0])) == PROPOSED[0], "a proposal crosses between processes"


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
    monkeypatch.setattr(running, "code", lambda: "this")
    monkeypatch.setattr(recovery, "ORDER", recovery.TRIES)
    monkeypatch.setattr(recovery, "PROBLEMS", ("gemm",))
    monkeypatch.setattr(recovery, "WORKLOADS", ("gemm",))
    file = tmp_path / "a" / "optimize-recovery.json"
    file.parent.mkdir()
    old = [{"problem": "gemm", "surface": "cuda", "arm": f"try {k}", "seconds": 2e-3, **({"code": "this"} if k else {})} for k in range(5)]
    file.write_text(json.dumps({"rows": old}))
    assert recovery.recovery(tmp_path / "a", "", 60.0) == 0
    tries = list(recovery.TRIES)
    assert [(s, list(arms)) for _, s, arms in asked] == [("triton", tries), ("tilelang", tries), ("cuda", ["try 0"])], "what nothing has made comes first"
    page = (tmp_path / "a" / "optimize-recovery.md").read_text()
    assert "- tries: 11 of 15 at 95% or more" in page and "11 of this, 2" in page and "4 of this, undated" in page
    other = tmp_path / "b"
    other.mkdir()
    (other / file.name).write_text(json.dumps({"rows": [{**old[1], "seconds": 1e-3}]}))
    asked.clear()
    assert recovery.recovery(tmp_path / "a", "", -1.0, given=str(other)) == 0 and not asked
    assert "- tries: 12 of 15 at 95% or more" in (tmp_path / "a" / "optimize-recovery.md").read_text()
