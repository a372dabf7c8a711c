"""The crash harness finds what it looks for: half files, contents that are not what their name says, lines that were not written to their end."""

from __future__ import annotations

import json
import random
from pathlib import Path

from benchmarks.crashes import Clock, Row, damaged, ended, files_of, page, started, together, whole_lines
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
    assert not ended(child, 0.0) and child.returncode == -9


def test_the_page_counts_points_and_faults() -> None:
    text = page({"learn": Row(3, 1, faults=["learn: x.json: half"])}, [("full disk", "exit code 1", True)])
    assert "3 points, 0 kills, 1 faults" in text and "| full disk | exit code 1 | yes |" in text


def test_shares_of_several_processes_are_one_row_a_command() -> None:
    first, second = Row(points=3, finished=1, faults=["tune: lost"]), Row(points=2)
    first.counts["killed"], second.counts["killed"] = 2, 4
    whole = together([{"tune": first}, {"tune": second, "learn": Row(points=1)}])
    assert whole["tune"].points == 5 and whole["tune"].counts["killed"] == 6 and whole["tune"].faults == ["tune: lost"] and whole["learn"].points == 1
    assert "6 points, 6 kills, 1 faults." in page(whole, (), 2)
