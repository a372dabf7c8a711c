"""The analytic forecaster: the gate's cost model asked for both programs, with the spread that its errors have shown."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kir.gate.cost import Cost, program_cost
from kir.hardware.target import Device
from kir.learning.forecast.distribution import Forecast, Pair, Reason

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
NORMAL = (-1.645, -1.2816, -0.6745, 0.0, 0.6745, 1.2816, 1.645)
"""Quantiles of the standard normal distribution at `LEVELS`."""
SAME, SHARE, MOST = 0.05, 0.55, 1.4
"""Standard deviation of the logarithm of measured over modelled speedup: of a step that moves nothing, what a modelled effect adds of itself, and at most
(`python -m benchmarks.forecast.analytic_errors`: the errors grow with what is modelled)."""
OTHER_BOUND, UNCOMPILED = 0.15, 0.06
"""What is added where the two are bound by different resources, and where there is no machine code of both."""
UNKNOWN = 3.0
"""How many times wider a forecast is that should not be relied on."""


class Analytic:
    """Modelled seconds of both programs, as a log-normal distribution about their quotient. It defers where something was not counted, or the device has no
    constants."""

    name = "analytic"

    def __call__(self, pair: Pair) -> Forecast:
        """The forecast. Raises KirError KIR-E007 for sizes that are no launch."""
        before, after = (program_cost(p, pair.sizes, pair.target, made, pair.surface)
                         for p, made in zip((pair.before, pair.after), pair.compiled, strict=True))
        seconds = (sum(c.seconds for c in before), sum(c.seconds for c in after))
        middle = math.log(seconds[0] / seconds[1])
        defer = _unsure(before, after, pair.target.device)
        wide = spread(middle, bound(before) != bound(after), None not in pair.compiled) * (UNKNOWN if defer else 1.0)
        return Forecast(LEVELS, tuple(middle + wide * z for z in NORMAL), reasons=_reasons(_parts(before), _parts(after)), defer=defer, seconds=seconds)


def of_seconds(seconds: tuple[float, float], before: Mapping[str, float], after: Mapping[str, float], compiled: bool = True) -> Forecast:
    """The forecast from what the cost model says of both programs: seconds, and those of each resource."""
    middle = math.log(seconds[0] / seconds[1])
    moved = max(before, key=lambda k: (before[k], k), default="") != max(after, key=lambda k: (after[k], k), default="")
    wide = spread(middle, moved, compiled)
    return Forecast(LEVELS, tuple(middle + wide * z for z in NORMAL), reasons=_reasons(before, after), seconds=seconds)


def spread(middle: float, moved: bool, compiled: bool) -> float:
    """The standard deviation of a forecast of this logarithm."""
    return min(MOST, SAME + SHARE * abs(middle) + (OTHER_BOUND if moved else 0.0) + (0.0 if compiled else UNCOMPILED))


def bound(costs: Sequence[Cost]) -> str:
    """What bounds the slowest kernel."""
    return max(costs, key=lambda c: c.seconds).bound_by if costs else ""


def _unsure(before: Sequence[Cost], after: Sequence[Cost], device: Device) -> str:
    """Why a forecast should not be relied on: what was not counted, or constants that are missing."""
    missing = sorted({x for c in (*before, *after) for x in c.unknown})
    if missing:
        return f"not counted: {', '.join(missing)}"
    if not before or not after:
        return "a program launches nothing at these sizes"
    if device.bandwidth <= 0 or device.clock <= 0:
        return f"the device '{device.name}' has no constants"
    return ""


def _parts(costs: Sequence[Cost]) -> Mapping[str, float]:
    """Seconds by resource, of all kernels."""
    return {k: sum(c.parts.get(k, 0.0) for c in costs) for k in dict.fromkeys(k for c in costs for k in c.parts)}


def _reasons(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[Reason, ...]:
    """Resources by how much they move, those that move most first."""
    found = [Reason(k, before.get(k, 0.0), after.get(k, 0.0)) for k in dict.fromkeys([*before, *after])]
    return tuple(sorted(found, key=lambda r: (-abs(r.after - r.before), r.resource)))
