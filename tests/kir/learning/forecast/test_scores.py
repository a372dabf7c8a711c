"""Scores are proper: nobody does better than by saying what they believe."""
from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kir.learning.forecast import BINS, Forecast
from kir.learning.forecast.language import of_bins
from kir.learning.forecast.scores import area, bin_of, brier, calibration_error, pinball, ranked_probability, top_bin

SPEEDUPS = (0.1, 0.3, 0.6, 0.9, 1.2, 1.7, 3.0, 9.0)
"""One in each bin."""
belief = st.lists(st.floats(0.0, 1.0), min_size=8, max_size=8).filter(lambda x: sum(x) > 0.01).map(lambda x: [v / sum(x) for v in x])


@given(belief, belief)
def test_the_ranked_probability_score_is_proper(true: list[float], said: list[float]) -> None:
    def expected(bins: list[float]) -> float:
        return sum(p * ranked_probability(bins, s) for p, s in zip(true, SPEEDUPS, strict=True))
    assert expected(true) <= expected(said) + 1e-9


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_brier_score_is_proper(true: float, said: float) -> None:
    def expected(p: float) -> float:
        return true * brier(p, True) + (1 - true) * brier(p, False)
    assert expected(true) <= expected(said) + 1e-9


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40), st.sampled_from([0.1, 0.5, 0.8]), st.floats(-6, 6))
def test_the_pinball_loss_is_least_at_a_quantile(values: list[float], level: float, said: float) -> None:
    at = sorted(values)[max(0, math.ceil(level * len(values)) - 1)]
    assert sum(pinball(at, level, v) for v in values) <= sum(pinball(said, level, v) for v in values) + 1e-9


@given(belief, st.floats(0, 1))
def test_bins_add_up_to_one_and_come_back(bins: list[float], fails: float) -> None:
    found = of_bins(bins, fails)
    assert sum(found.bins) == pytest.approx(1.0)
    assert found.bins == pytest.approx(tuple(bins), abs=1e-9)
    quantiles = [found.quantile(q / 20) for q in range(21)]
    assert quantiles == sorted(quantiles)


def test_each_bin_has_its_speedups() -> None:
    assert [bin_of(s) for s in SPEEDUPS] == list(range(8))
    assert [bin_of(b) for b in BINS] == list(range(1, 8))
    assert ranked_probability([0, 0, 0, 0, 1, 0, 0, 0], 1.2) == 0.0
    assert ranked_probability([1, 0, 0, 0, 0, 0, 0, 0], 9.0) == 1.0


def test_calibration_error_is_how_far_confidence_is_off() -> None:
    assert calibration_error([0.8] * 10, [True] * 8 + [False] * 2, 1) == pytest.approx(0.0)
    assert calibration_error([0.9] * 10, [True] * 5 + [False] * 5, 1) == pytest.approx(0.4)


def test_area_is_how_often_the_right_one_stands_higher() -> None:
    assert area([0.1, 0.2, 0.8, 0.9], [False, False, True, True]) == 1.0
    assert area([0.5, 0.5], [False, True]) == 0.5
    assert area([0.9, 0.1], [False, True]) == 0.0
    assert math.isnan(area([0.5], [True]))


def test_the_likeliest_bin() -> None:
    best, sure = top_bin(Forecast((0.0, 0.9, 1.0), (math.log(1.5), math.log(1.9), math.log(2.5))))
    assert best == 5 and sure == pytest.approx(0.919, abs=0.001)
