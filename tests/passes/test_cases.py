"""Every case file of every pass, executed."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.rewrite.conformance.case import Case, read_cases, uncovered
from kir.rewrite.registry import pass_names

FOLDER = Path(__file__).parent / "cases"
CASES = {file.stem.replace("_", "-"): read_cases(file) for file in sorted(FOLDER.glob("*.toml"))}


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{name}: {c.name}") for name, cases in CASES.items() for c in cases])
def test_case(case: Case) -> None:
    case.run()


def test_every_case_file_belongs_to_a_pass() -> None:
    assert set(CASES) <= set(pass_names())


@pytest.mark.parametrize("name", CASES)
def test_each_validity_precondition_has_a_must_fail_section(name: str) -> None:
    assert uncovered(name, CASES[name]) == ()
