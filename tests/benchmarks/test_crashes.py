"""The crash harness finds what it looks for: half files, contents that are not what their name says, lines that were not written to their end."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.checks.crashes import Clock, Row, damaged, ended, files_of, lines_of, noted, page, started, together, unwell, whole_lines
from kir.base.store import Store


def test_half_files_and_wrong_contents_are_found(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    key = store.put("kir 1\n")
    (tmp_path / "whole.json").write_text(json.dumps({"a": 1}))
    (tmp_path / ".half.json.1-2.partial").write_text('{"a"')
    assert damaged(tmp_path) == []
    (tmp_path / "half.json").write_text('{"a"')
    store.path(key).write_text("kir 1")
    assert len(damaged(tmp_path)) == 2


def test_a_line_without_its_end_is_none(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b'{"a": 1}\n{"b"')
    assert whole_lines(tmp_path / "log") == [b'{"a": 1}'] and whole_lines(tmp_path / "absent") == []


def test_unfinished_files_are_not_kept_ones(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / ".b.json.1-2.partial").write_text("{")
    assert files_of(tmp_path) == {"a.json": b"{}"} and files_of(tmp_path / "absent") == {}


def test_points_are_drawn_while_the_command_works() -> None:
    r = random.Random(1)
    fresh, late = Clock(2.0, 6.0), Clock(2.0, 6.0, spent=9.0)
    assert all(2.0 <= fresh.drawn(r) <= 6.0 and 2.0 <= late.drawn(r) <= 2.4 for _ in range(200))


def test_what_does_not_end_is_killed() -> None:
    child = started(("--help",))
    assert ended(child, 0.0) is None and child.returncode == -9


@pytest.mark.parametrize("code, said, wrong", [(0, "", ""), (1, "error[KIR-C006] full", ""), (2, "", "exit code 2"), (-9, "", "exit code -9"),
                                               (1, "error[KIR-C003] internal error at x.py:1: KeyError", "error[KIR-C003] internal error at x.py:1: KeyError")])
def test_an_error_of_its_own_is_no_good_end(code: int, said: str, wrong: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", f"import os, signal; os.kill(os.getpid(), 9) if {code} < 0 else os._exit({code})"])
    child.wait()
    assert unwell(child, said) == wrong


def test_the_page_counts_points_and_faults() -> None:
    text = page({"learn": Row(3, 1, faults=["learn: x.json: half"])}, {"learn": 1}, [("full disk", "exit code 1", True)])
    assert "3 points, 0 kills, 1 faults" in text and "| full disk | exit code 1 | yes |" in text


def test_lines_of_several_runs_are_one_row_a_command(tmp_path: Path) -> None:
    ended_well = Counter({"came to the end after the last kill": 1})
    lost = Row(3, 1, Counter(killed=2) + ended_well, ["tune: lost"])
    for name, row in (("tune", lost), ("tune", Row(2, 0, Counter(killed=4))), ("learn", Row(1, 0, ended_well))):
        noted(tmp_path / "log", {"command": name, **vars(row)})
    for right in (False, True):
        noted(tmp_path / "log", {"accident": "full disk", "said": "exit code 1", "right": right})
    (tmp_path / "log").open("a").write('{"command": "tu')
    whole, stores, other = together(lines_of(tmp_path / "log"))
    assert whole["tune"].points == 5 and whole["tune"].counts["killed"] == 6 and whole["tune"].faults == ["tune: lost"] and whole["learn"].points == 1
    assert stores == {"tune": 2, "learn": 1} and other == [("full disk", "exit code 1", True)]
    text = page(whole, stores, other)
    assert "6 points, 6 kills, 1 faults." in text and "| `tune` | 5 | 6 | 0 | 1 | no |" in text and "| `learn` | 1 | 0 | 0 | 0 | yes |" in text
