"""Samples of time: medians with intervals, ratios of interleaved pairs, and secret schedules."""
from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from typing import Any

from kir.base.dataclass import dataclass

LEVEL = 0.95
"""Confidence of every interval."""
RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A median with its interval, and how many samples it rests on."""

    median: float
    low: float
    high: float
    samples: int

    @property
    def width(self) -> float:
        """Half the interval over the median."""
        return (self.high - self.low) / (2 * self.median) if self.median else math.inf

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"median": self.median, "interval": [self.low, self.high], "samples": self.samples}


def estimate(samples: Sequence[float]) -> Estimate:
    """The median and its 95 % interval from order statistics (binomial, no assumption on the distribution). Raises ValueError for none."""
    if not samples:
        raise ValueError("no samples")
    ordered, n = sorted(samples), len(samples)
    rank, below = 0, 0.0
    for k in range(n // 2):
        below += math.comb(n, k) / 2.0**n
        if below > (1 - LEVEL) / 2:
            break
        rank = k
    return Estimate(statistics.median(ordered), ordered[rank], ordered[n - 1 - rank], n)


def ratio(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """How many times faster `after` is, from samples taken in turns: the median of the pairs' ratios, with a bootstrap interval over
    the pairs. Raises ValueError for unequal numbers or none."""
    if len(before) != len(after) or not before:
        raise ValueError("pairs are needed")
    logs = [math.log(a / b) for a, b in zip(before, after, strict=True)]
    draws = random.Random(len(logs))
    medians = sorted(statistics.median(draws.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
    cut = int(RESAMPLES * (1 - LEVEL) / 2)
    return Estimate(math.exp(statistics.median(logs)), math.exp(medians[cut]), math.exp(medians[-1 - cut]), len(logs))


def schedule(secret: random.Random, samples: int, kernels: int) -> list[list[int]]:
    """The order of each round: every kernel once, in an order that cannot be foreseen."""
    out = []
    for _ in range(samples):
        order = list(range(kernels))
        secret.shuffle(order)
        out.append(order)
    return out
