"""The figures of a table row: what forecasts of pairs were worth, against what was measured."""
from __future__ import annotations

import math

import numpy as np

from benchmarks.forecast.answers import Answers
from kir.base.dataclass import dataclass
from kir.learning.forecast.distribution import BINS
from kir.learning.forecast.scores import PLAIN, area, calibration_error
from kir.learning.forecast.trees import Array

SAYS = 0.005
"""A forecast within so much of 1x (as a logarithm) says that nothing changes: that is no sign."""


@dataclass(frozen=True)
class Figures:
    """Of one model: shares of right signs with how many were asked (effects beyond 3 %; those of them between 0.5x and 2x), expected calibration error of the
    likeliest bin, ranked probability score, how many measurements the 80 % interval holds, its width (a factor), area under the curve of failures, and the
    share of pairs on which it defers."""

    pairs: int
    sign: tuple[float, int]
    sign_near: tuple[float, int]
    error: float
    score: float
    held: float
    wide: float
    area: float
    deferred: float


def figures(found: Answers, measured: Array, fault: Array) -> Figures:
    """The figures of answers. Pairs on which a model does not answer at all are left out."""
    there = np.isfinite(measured) & np.isfinite(found.logs).all(axis=1)
    y, said = measured[there], signs(found)[there]
    beyond = np.abs(y) > math.log(1.0 + PLAIN)
    near = beyond & (np.abs(y) < math.log(2.0))
    bins, held = found.bins()[there], np.searchsorted(np.log(np.array(BINS)), y, side="right")
    low, high = found.quantile(0.1)[there], found.quantile(0.9)[there]
    top = bins.argmax(axis=1)
    told = np.isfinite(found.fails) if found.fails is not None else np.ones(len(measured), bool)
    return Figures(int(there.sum()), _share(said[beyond] == np.sign(y[beyond])), _share(said[near] == np.sign(y[near])),
                   calibration_error(bins.max(axis=1).tolist(), (top == held).tolist()), float(np.nanmean(ranked(found, measured))) if len(y) else math.nan,
                   float(((y >= low) & (y <= high)).mean()) if len(y) else math.nan, float(np.exp(np.median(high - low))) if len(y) else math.nan,
                   area(found.fails[told].tolist(), fault[told].tolist()) if found.fails is not None else math.nan,
                   float(found.defers.mean()) if found.defers is not None else math.nan)


def signs(found: Answers) -> Array:
    """Of each pair, which side of 1x the middle of its distribution is on: 1, -1, or 0 where it says that nothing changes."""
    return np.where(np.abs(found.median) > SAYS, np.sign(found.median), 0.0)


def ranked(found: Answers, measured: Array) -> Array:
    """The ranked probability score of each pair; NaN where nothing was measured, or the model does not answer."""
    below = np.cumsum(found.bins(), axis=1)[:, :-1]
    stands = np.searchsorted(np.log(np.array(BINS)), measured, side="right")[:, None] <= np.arange(len(BINS))[None, :]
    there = np.isfinite(measured) & np.isfinite(found.logs).all(axis=1)
    return np.where(there, ((below - stands) ** 2).mean(axis=1), math.nan)


def _share(right: Array) -> tuple[float, int]:
    return (float(right.mean()) if len(right) else math.nan), len(right)


def reliability(found: Answers, measured: Array, parts: int = 10) -> list[tuple[float, float, int]]:
    """Confidence in the likeliest bin against how often it was right, over parts of as many pairs each."""
    there = np.isfinite(measured) & np.isfinite(found.logs).all(axis=1)
    bins, held = found.bins()[there], np.searchsorted(np.log(np.array(BINS)), measured[there], side="right")
    sure, right = bins.max(axis=1), bins.argmax(axis=1) == held
    return [(float(sure[p].mean()), float(right[p].mean()), len(p)) for p in np.array_split(np.argsort(sure, kind="stable"), parts) if len(p)]


def coverage(found: Answers, measured: Array) -> list[tuple[float, float]]:
    """Each level against how many measurements lie below its quantile."""
    there = np.isfinite(measured) & np.isfinite(found.logs).all(axis=1)
    return [(level, float((measured[there] <= found.logs[there, i]).mean())) for i, level in enumerate(found.levels)]
