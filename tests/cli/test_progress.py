"""What is told of a command that takes its time: on a terminal a line, to programs lines of JSON, elsewhere nothing."""
from __future__ import annotations

import json

import pytest

from kir.base.working import doing
from kir.faces.cli._progress import bar, said, shown


def test_where_nobody_looks_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with shown("gate"), bar("states", 3) as advance:
        advance("one")
    assert capsys.readouterr() == ("", "")


def test_a_program_is_told_by_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIR_PROGRESS", "lines")
    with shown("gate"), bar("states", 2) as advance:
        advance("one")
        doing("compiling")
    rows = [json.loads(row) for row in capsys.readouterr().err.splitlines()]
    assert rows == [{"progress": 0, "total": 2, "doing": "states"}, {"progress": 1, "total": 2, "doing": "states: one"},
                    {"progress": None, "total": None, "doing": "compiling"}]


def test_the_line_says_what_is_done_for_how_long_and_how_long_still() -> None:
    assert said(("gate: compiling", None, None), 3.2, 3.2, 0) == "gate: compiling, 3 s"
    assert said(("states", 2, 6), 11.0, 10.0, 0) == "states, 2 of 6, 11 s, about 20 s left"
    assert said(("states", 0, 6), 11.0, 10.0, 0) == "states, 0 of 6, 11 s" and said(("walk[1]", 4, None), 5.0, 5.0, 0) == "walk\\[1], 4, 5 s"


def test_a_terminal_shows_it_after_a_moment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import time

    from kir.faces.cli import _progress

    monkeypatch.setattr(_progress, "A_MOMENT", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    shown_lines: list[str] = []

    def kept(now: tuple[str, int | None, int | None], *rest: object) -> str:
        shown_lines.append(now[0])
        return now[0]
    monkeypatch.setattr(_progress, "said", kept)
    with shown("gate"):
        doing("compiling")
        for _ in range(200):
            if "compiling" in shown_lines:
                break
            time.sleep(0.01)
    assert "compiling" in shown_lines
    before = len(shown_lines)
    with shown("explore"):
        doing("serving")
    assert len(shown_lines) == before
