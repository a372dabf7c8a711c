"""Cases of whole packages: one that takes its process down, one that the time is over for and those that never begin are told apart."""
from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.packages import __main__ as packages
from benchmarks.packages.states import known

HANGS = "import sys, time; open(sys.argv[1], 'a').write('{}\\n'); time.sleep(60)".format('{"case": "a", "state": "begun"}')
DIES = "import sys; open(sys.argv[1], 'a').write('{}\\n'); sys.exit(7)".format('{"case": "a", "state": "begun"}')


def stand_in(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    begin = subprocess.Popen
    monkeypatch.setattr(packages, "GRACE", 1.0)
    monkeypatch.setattr(packages, "GENERATED", str(folder))
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: begin([sys.executable, "-c", script, str(folder / "run0.jsonl")], **options))


@pytest.mark.parametrize(("script", "state", "reason"), [(HANGS, "stopped", "the time of the run was over while it ran"),
                                                         (DIES, "crashed", "it took its process down (exit 7)")])
def test_what_a_case_did_not_end_with_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, state: str, reason: str) -> None:
    stand_in(monkeypatch, tmp_path, script)
    (tmp_path / "run0.jsonl").write_text('{"case": "a", "state": "waiting"}\n{"case": "b", "state": "waiting"}\n')
    packages.attempt("fla", tmp_path, "run0", "gpu", "0/1", 0.5, [], "", "")
    found = packages.outcomes(tmp_path, "run")
    assert found["a"]["state"] == state and found["a"]["reason"] == reason
    assert found["b"]["state"] == "waiting" and "before it began" in found["b"]["reason"]
    row: dict[str, Any] = {"package": "fla", "kernel": "k", "file": "f.py", "launches": 0, "equal_in": [], "reasons": [], "generated": False, "measured": []}
    text = packages.page([row], {"fla": found}, "gpu", "the command", "")
    assert f"| fla | a | {state} | {reason} |" in text and "| fla | b | waiting |" in text and "| fla | 2 | 0 |" in text


@pytest.mark.torch
def test_cases_wait_begin_and_end_and_are_not_run_twice(tmp_path: Path) -> None:
    from benchmarks.packages.case import At, Case
    from benchmarks.packages.drive import drive

    ran: list[str] = []

    def case(name: str) -> Case:
        def run(at: At) -> Iterator[tuple[str, Any, Any]]:
            ran.append(name)
            yield "it", 1, 1
        return Case(name, run)
    results = tmp_path / "run0.jsonl"
    results.write_text('{"case": "c", "state": "crashed", "reason": "it took its process down (exit 1)"}\n')
    cases = [case(x) for x in "abc"]
    drive(cases, At("cpu"), results, "", None, (0, 1), -1.0)
    assert ran == [] and [known(results)[x]["state"] for x in "abc"] == ["waiting", "waiting", "crashed"]
    drive(cases, At("cpu"), results, "", None, (0, 1), math.inf)
    drive(cases, At("cpu"), results, "", None, (0, 1), math.inf)
    assert ran == ["a", "b"] and known(results)["a"]["state"] == "equal"
    assert [json.loads(line)["state"] for line in results.read_text().splitlines() if '"a"' in line] == ["waiting", "begun", "equal"]
