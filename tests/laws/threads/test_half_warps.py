"""Every operation of a warp in the experts written in CUDA, made by half of its lanes: what `kir run --check` runs finds the lanes that stay away."""
from __future__ import annotations

import pytest

from benchmarks.checks.mutants import SOURCES, outcome, source
from benchmarks.checks.weakened import halved

EXPERTS = tuple(name for name in SOURCES if any(halved(source(name).read_text(encoding="utf-8"))))


def test_the_experts_have_such_operations() -> None:
    assert len(EXPERTS) >= 3


@pytest.mark.parametrize("name", EXPERTS)
def test_an_operation_that_half_of_its_lanes_make_is_found(name: str) -> None:
    for m in halved(source(name).read_text(encoding="utf-8")):
        row = outcome(name, m)
        assert row.finding.startswith("KIR-I019"), f"{m.line}: {m.place}: {row.finding}"
        assert len(row.sides) == 2 and all(f":{m.line}" in side for side in row.sides), row.sides
