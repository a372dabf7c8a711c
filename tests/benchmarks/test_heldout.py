"""Held-out instances: candidates some at a time until each instance has its share, the rival beside them, rows as they come."""
from __future__ import annotations

import json
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.optimize import heldout as held
from benchmarks.optimize.ahead import Proposed
from kir.learning.optimize.pool.engines import Lost

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
    monkeypatch.setattr(held._Panel, "timed", lambda self, one, secret: {"rival": one.rival, "rival_seconds": 24e-6})
    assert held.heldout(tmp_path, 60.0, "mm 2048,grouped 8", 2) == 0
    rows = {row["instance"]: row for row in json.loads((tmp_path / "optimize-heldout.json").read_text())["rows"]}
    assert asked == [0, 5] and len(rows["mm 2048"]["tried"]) == len(PROPOSED), "nothing is measured twice, and nothing is left out"
    assert rows["mm 2048"]["times_faster"] == pytest.approx(2.0) and rows["mm 2048"]["rival"] == "flag_gems.mm"
    assert rows["grouped 8"]["remark"] == "it ended its process" and rows["grouped 8"]["rival_seconds"] == 24e-6 and not rows["grouped 8"]["seconds"]
    page = (tmp_path / "optimize-heldout.md").read_text()
    assert "1.00 TB/s" in page and "| 2.000 | 0.95 |" in page, "25 MB take 25 us at that rate"
    assert "1 of 2 rows have both times: 1 at 1.0 or more, geometric mean 2.000" in page and "it ended its process" in page
    again = held._again({**rows["mm 2048"], "took": 90.0})
    assert not any(t.get("gated", True) for t in again["tried"]) and again["took"] == 0.0, "both sides are of one run"
    assert Proposed(**asdict(PROPOSED[0])) == PROPOSED[0], "a proposal crosses between processes"
