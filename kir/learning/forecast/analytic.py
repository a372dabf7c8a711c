"""The analytic forecaster: the gate's cost model asked for both programs, with the spread that its errors have shown."""
from __future__ import annotations

import math
from collections.abc import Mapping

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
        return of_seconds(seconds, parts[0], parts[1])


def of_seconds(seconds: tuple[float, float], before: Mapping[str, float], after: Mapping[str, float]) -> Forecast:
    """The forecast from what the cost model says of both programs: seconds, and those of each resource."""
    middle = math.log(seconds[0] / seconds[1])
    reasons = [Reason(k, before.get(k, 0.0), after.get(k, 0.0)) for k in dict.fromkeys([*before, *after])]
    reasons.sort(key=lambda r: -abs(r.after - r.before))
    return Forecast(LEVELS, tuple(middle + SPREAD * z for z in NORMAL), reasons=tuple(reasons), seconds=seconds)
