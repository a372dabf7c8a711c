"""How good forecasts were: proper scores and what is read beside them.

A score is proper when nobody does better by saying anything but what they believe (Gneiting & Raftery, JASA 2007).
"""
from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from kir.learning.forecast.distribution import BINS, Forecast

PLAIN = 0.03
"""Effects smaller than this are taken for none: their sign is not asked for."""


def bin_of(speedup: float) -> int:
    """The number of the bin, 0 to 7, that a speedup falls into."""
    return bisect_right(BINS, speedup)


def ranked_probability(bins: Sequence[float], speedup: float) -> float:
    """The ranked probability score (Epstein, 1969) of probabilities of the eight bins: 0 the best, 1 the worst. Proper."""
    held = bin_of(speedup)
    below = list(accumulate(bins))[:-1]
    return sum((p - (held <= i)) ** 2 for i, p in enumerate(below)) / len(below)


def brier(probability: float, outcome: bool) -> float:
    """The Brier score of one probability: 0 the best, 1 the worst. Proper."""
    return (probability - outcome) ** 2


def pinball(quantile: float, level: float, value: float) -> float:
    """The loss of a quantile (Koenker & Bassett, 1978), least in the mean at the true one. Proper."""
    return max(level * (value - quantile), (level - 1.0) * (value - quantile))


def calibration_error(confidence: Sequence[float], right: Sequence[bool], bins: int = 10) -> float:
    """The expected calibration error (Guo et al., ICML 2017): confidence against how often it was right, over bins of as many cases each, weighted
    by their number."""
    order = sorted(range(len(confidence)), key=lambda i: confidence[i])
    total, count = 0.0, len(order)
    for k in range(bins):
        held = order[k * count // bins:(k + 1) * count // bins]
        if held:
            total += abs(sum(confidence[i] for i in held) - sum(right[i] for i in held))
    return total / count if count else math.nan


def top_bin(found: Forecast) -> tuple[int, float]:
    """The likeliest bin and its probability."""
    bins = found.bins
    best = max(range(len(bins)), key=lambda i: bins[i])
    return best, bins[best]


def area(scores: Sequence[float], outcomes: Sequence[bool]) -> float:
    """The area under the ROC curve: how often what happened was given a higher score than what did not; ties count half. NaN where one of both is missing."""
    positives = sum(outcomes)
    negatives = len(outcomes) - positives
    if not positives or not negatives:
        return math.nan
    order = sorted(range(len(scores)), key=lambda i: scores[i])
    ranks, i = [0.0] * len(scores), 0
    while i < len(order):
        j = i
        while j < len(order) and scores[order[j]] == scores[order[i]]:
            j += 1
        for k in order[i:j]:
            ranks[k] = (i + j + 1) / 2
        i = j
    return (sum(r for r, h in zip(ranks, outcomes, strict=True) if h) - positives * (positives + 1) / 2) / (positives * negatives)


def same_sign(forecast: float, measured: float, plain: float = PLAIN) -> bool:
    """Whether a forecast speedup is on the side of 1 that the measured one is on, beyond `plain` (which a forecast of "no effect" is not)."""
    return (forecast > 1.0 + plain) == (measured > 1.0) if abs(forecast - 1.0) > plain else False
