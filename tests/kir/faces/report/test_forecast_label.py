"""The label "modelled" of a report's page has an interval beside it."""
from __future__ import annotations

import math
from pathlib import Path

import pytest

from kir.faces.report.page import page
from kir.faces.report.shown import held
from kir.faces.report.surfaces import surfaces
from kir.learning.forecast import Forecast
from kir.lineage.records.folder import opened
from kir.lineage.records.speedup import measured_speedups

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


def test_how_many_measured_steps_the_intervals_hold_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = opened(LINEAGES / "gemm_sm90")
    lineage = folder.read()
    said = Forecast((0.1, 0.5, 0.9), (-0.2, 0.0, 0.2))
    monkeypatch.setattr("kir.faces.report.shown.forecaster", lambda: lambda pair: said)
    measured = [of["NVIDIA H200"][0] for _, step in lineage.transitions() if (of := measured_speedups(step))]
    inside = sum(math.exp(-0.2) <= value <= math.exp(0.2) for value in measured)
    html = page(lineage, folder, lambda a, b: "")
    assert 0 < inside < len(measured) == 27 and f"<dd>{inside} of 27<small>measured steps inside" in html
    assert f"<td>{inside} of 27<small>measured steps inside" in surfaces([(lineage, folder)], lambda a, b: "")
    assert held([]) == (0, 0)
