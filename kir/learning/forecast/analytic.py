"""The analytic forecaster: the gate's cost model asked for both programs, with the spread that its errors have shown."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial

from kir.base.dataclass import dataclass
from kir.gate.cost import Cost, program_cost
from kir.hardware.target import Device, Target
from kir.ir.nodes import Program
from kir.learning.forecast.distribution import Forecast, Kept, Pair, Reason
from kir.learning.forecast.terms import excluded, illegal, numbered, refused, unhidden

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
NORMAL = (-1.645, -1.2816, -0.6745, 0.0, 0.6745, 1.2816, 1.645)
"""Quantiles of the standard normal distribution at `LEVELS`."""
SAME, SHARE, MOST = 0.05, 0.55, 1.4
"""Standard deviation of the logarithm of measured over modelled speedup: of a step that moves nothing, what a modelled effect adds of itself, and at most
(`python -m benchmarks.forecast.analytic_errors`: the errors grow with what is modelled)."""
OTHER_BOUND, UNCOMPILED = 0.15, 0.06
"""What is added where the two are bound by different resources, and where there is no machine code of both."""
REFUSED, SPOILT, UNLIKE, SELDOM = 0.99, 0.97, 0.23, 0.011
"""How likely a program fails that the architecture refuses, that leaves a part of its outputs unwritten, that writes more than once what was written once,
and any other (`python -m benchmarks.forecast failures`: how often they did)."""
STORED_APART, UNWRITTEN = 0.05, 0.5
"""Logarithms of a quotient of bytes from which they are not the same, and from which what is missing is more than a last tile counted whole."""
UNKNOWN = 3.0
"""How many times wider a forecast is that should not be relied on."""


class Analytic:
    """Modelled seconds of both programs, as a log-normal distribution about their quotient. It defers where something was not counted, or the device has no
    constants."""

    name = "analytic"

    def __init__(self) -> None:
        self._known = Kept[_Program]()

    def __call__(self, pair: Pair) -> Forecast:
        """The forecast. Raises KirError KIR-E007 for sizes that are no launch."""
        compiled = None not in pair.compiled
        before, after = (self._known.of(pair, side, partial(_program, pair, side, compiled), compiled) for side in (0, 1))
        seconds = (before.seconds, after.seconds)
        middle = math.log(seconds[0] / seconds[1])
        defer = outside_facts(pair) or _unsure(before.costs, after.costs, pair.target.device)
        wide = spread(middle, bound(before.costs) != bound(after.costs), compiled) * (UNKNOWN if defer else 1.0)
        return Forecast(LEVELS, tuple(middle + wide * z for z in NORMAL), failing(after.refusals > 0, before.stored, after.stored),
                        _reasons(before.parts, after.parts), defer=defer, seconds=seconds)


@dataclass(frozen=True)
class Stored:
    """Bytes of its outputs that a program writes, each `once`, and as often as it does (`often`); and the threads of a CTA of its slowest kernel."""

    once: float
    often: float
    threads: float


@lru_cache(maxsize=64)
def modelled(program: Program, sizes: tuple[tuple[str, int], ...], target: Target, surface: str) -> tuple[Cost, ...]:
    """The cost of a program that was not compiled; the last ones are kept, since many are compared with one."""
    return program_cost(program, dict(sizes), target, None, surface)


@dataclass(frozen=True)
class _Program:
    """What a forecast needs of one program: its costs, seconds, parts by resource, what it stores, and how much of it is refused."""

    costs: tuple[Cost, ...]
    seconds: float
    parts: Mapping[str, float]
    stored: Stored
    refusals: int


def _program(pair: Pair, side: int, compiled: bool) -> _Program:
    program, made = numbered((pair.before, pair.after)[side]), pair.compiled[side]
    costs = (modelled(program, tuple(sorted(pair.sizes.items())), pair.target, pair.surface) if made is None
             else program_cost(program, pair.sizes, pair.target, made, pair.surface))
    rest = unhidden(costs, made if compiled else None)
    refusals = illegal(program, pair.target.architecture) + refused(program, pair.target.architecture, pair.surface, pair.sizes)
    return _Program(costs, math.fsum(c.seconds for c in costs) + rest, {**_parts(costs), "not hidden": rest}, stored(costs), refusals)


def stored(costs: Sequence[Cost]) -> Stored:
    """What the kernels of a program write, as the cost model counts it."""
    slow = max(costs, key=lambda c: c.seconds, default=None)
    threads = slow.work.threads if slow is not None and slow.work is not None else 0
    return Stored(math.fsum(c.tallies.get("stored", 0.0) for c in costs), math.fsum(c.tallies.get("stored in all", 0.0) for c in costs), float(threads))


def failing(refused: bool, before: Stored, after: Stored) -> float:
    """How likely a later program fails. The count of a part of the outputs is believed where both programs write each byte once and the later one has no more
    threads: with more of them, some do other work."""
    def apart(a: float, b: float) -> float:
        return math.log(max(b, 1.0) / max(a, 1.0))
    if refused:
        return REFUSED
    fewer, more = apart(before.once, after.once) < -UNWRITTEN, apart(before.often, after.often) > STORED_APART
    if apart(before.once, before.often) > STORED_APART:
        return SELDOM
    if fewer and apart(after.once, after.often) <= STORED_APART and after.threads <= before.threads:
        return SPOILT
    return UNLIKE if more and abs(apart(before.once, after.once)) <= STORED_APART else SELDOM


def of_seconds(seconds: tuple[float, float], before: Mapping[str, float], after: Mapping[str, float], compiled: bool = True, fails: float = 0.0) -> Forecast:
    """The forecast from what the cost model says of both programs: seconds, and those of each resource."""
    middle = math.log(seconds[0] / seconds[1])
    moved = max(before, key=lambda k: (before[k], k), default="") != max(after, key=lambda k: (after[k], k), default="")
    wide = spread(middle, moved, compiled)
    return Forecast(LEVELS, tuple(middle + wide * z for z in NORMAL), fails, _reasons(before, after), seconds=seconds)


def spread(middle: float, moved: bool, compiled: bool) -> float:
    """The standard deviation of a forecast of this logarithm."""
    return min(MOST, SAME + SHARE * abs(middle) + (OTHER_BOUND if moved else 0.0) + (0.0 if compiled else UNCOMPILED))


def bound(costs: Sequence[Cost]) -> str:
    """What bounds the slowest kernel."""
    return max(costs, key=lambda c: c.seconds).bound_by if costs else ""


def outside_facts(pair: Pair) -> str:
    """That a program's own facts exclude the sizes, where they do."""
    found = ((p.name, excluded(p, pair.sizes)) for p in (pair.before, pair.after))
    return next((f"the fact {fact} of '{name}' does not hold at these sizes" for name, fact in found if fact), "")


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
    return {k: math.fsum(c.parts.get(k, 0.0) for c in costs) for k in dict.fromkeys(k for c in costs for k in c.parts)}


def _reasons(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[Reason, ...]:
    """Resources by how much they move, those that move most first."""
    found = [Reason(k, before.get(k, 0.0), after.get(k, 0.0)) for k in dict.fromkeys([*before, *after])]
    return tuple(sorted(found, key=lambda r: (-abs(r.after - r.before), r.resource)))
