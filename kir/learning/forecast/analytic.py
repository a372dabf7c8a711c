"""The analytic forecaster: the gate's cost model asked for both programs, with the spread that its errors have shown."""
from __future__ import annotations

import math

from kir.gate.cost import program_cost
from kir.learning.forecast.distribution import Forecast, Pair, Reason

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
NORMAL = (-1.645, -1.2816, -0.6745, 0.0, 0.6745, 1.2816, 1.645)
"""Quantiles of the standard normal distribution at `LEVELS`."""
SPREAD = 0.7
"""Standard deviation of the logarithm of measured over modelled speedup."""


class Analytic:
    """Modelled seconds of both programs, as a log-normal distribution about their quotient."""

    name = "analytic"

    def __call__(self, pair: Pair) -> Forecast:
        before, after = (program_cost(p, pair.sizes, pair.target, made, pair.surface)
                         for p, made in zip((pair.before, pair.after), pair.compiled, strict=True))
        seconds = (sum(c.seconds for c in before), sum(c.seconds for c in after))
        parts = [{k: sum(c.parts.get(k, 0.0) for c in side) for side_parts in side for k in side_parts.parts} for side in (before, after)]
        middle = math.log(seconds[0] / seconds[1])
        reasons = [Reason(k, parts[0].get(k, 0.0), parts[1].get(k, 0.0)) for k in dict.fromkeys([*parts[0], *parts[1]])]
        reasons.sort(key=lambda r: -abs(r.after - r.before))
        return Forecast(LEVELS, tuple(middle + SPREAD * z for z in NORMAL), reasons=tuple(reasons), seconds=seconds)
