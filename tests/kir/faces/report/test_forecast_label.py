"""The label "modelled" of a report's page has an interval beside it."""
from __future__ import annotations

from pathlib import Path

from kir.faces.report.page import page
from kir.lineage.records.folder import opened

LINEAGES = Path(__file__).parents[4] / "skills" / "lineages"


def test_every_transition_of_a_known_problem_is_forecast() -> None:
    folder = opened(LINEAGES / "softmax_triton")
    lineage = folder.read()
    html = page(lineage, folder, lambda a, b: "")
    count = len(dict(lineage.transitions()))
    assert html.count(") forecast") == html.count("x modelled") >= count > 0


def test_without_a_problem_the_modelled_figure_stands_alone() -> None:
    folder = opened(LINEAGES / "transpose_tilelang")
    lineage = folder.read()
    assert not lineage.header.problem and ") forecast" not in page(lineage, folder, lambda a, b: "")
