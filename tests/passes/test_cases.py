"""Every case file of every pass, executed."""
from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import pytest

from kir.rewrite.conformance.case import Case, read_cases, uncovered
from kir.rewrite.registry import pass_names

FOLDER = Path(__file__).parent / "cases"
FILES = {file.stem.replace("_", "-"): file for file in sorted(FOLDER.glob("*.toml"))}


@cache
def cases(name: str) -> tuple[Case, ...]:
    """The cases of a pass. Their programs are read by the tests that run them, not by each worker that lists the tests."""
    return read_cases(FILES[name])


def names(name: str) -> list[str]:
    """What the cases of a pass are called, in the order in which they are read."""
    data = tomllib.loads(FILES[name].read_text(encoding="utf-8"))
    return [table.get("name", "?") for table in (*data.get("case", ()), *data.get("error", ()))]


@pytest.mark.parametrize(("name", "k"), [pytest.param(name, k, id=f"{name}: {called}") for name in FILES for k, called in enumerate(names(name))])
def test_case(name: str, k: int) -> None:
    cases(name)[k].run()


def test_every_case_file_belongs_to_a_pass() -> None:
    assert set(FILES) <= set(pass_names())


@pytest.mark.parametrize("name", FILES)
def test_each_validity_precondition_has_a_must_fail_section(name: str) -> None:
    assert len(cases(name)) == len(names(name))
    assert uncovered(name, cases(name)) == ()
