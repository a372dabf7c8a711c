"""The analytic forecaster: the gate's cost model asked for both programs, with the spread that its errors have shown."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kir.analysis.target.legalize import legalize, shared_bytes
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.gate.cost import Cost, program_cost
from kir.hardware.target import Architecture, Device
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import TileType, dtype_of, shape_of
from kir.ir.visit import once, statements
from kir.learning.forecast.distribution import Forecast, Pair, Reason
from kir.surface import Artifact, backend

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
NORMAL = (-1.645, -1.2816, -0.6745, 0.0, 0.6745, 1.2816, 1.645)
"""Quantiles of the standard normal distribution at `LEVELS`."""
SAME, SHARE, MOST = 0.05, 0.55, 1.4
"""Standard deviation of the logarithm of measured over modelled speedup: of a step that moves nothing, what a modelled effect adds of itself, and at most
(`python -m benchmarks.forecast.analytic_errors`: the errors grow with what is modelled)."""
OTHER_BOUND, UNCOMPILED = 0.15, 0.06
"""What is added where the two are bound by different resources, and where there is no machine code of both."""
REFUSED, SPOILT, UNLIKE, SELDOM = 0.99, 0.97, 0.23, 0.024
"""How likely a program fails that the architecture refuses, that leaves a part of its outputs unwritten, that writes more than once what was written once,
and any other (`python -m benchmarks.forecast failures`: how often they did)."""
STORED_APART, UNWRITTEN = 0.05, 0.5
"""Logarithms of a quotient of bytes from which they are not the same, and from which what is missing is more than a last tile counted whole."""
UNKNOWN = 3.0
"""How many times wider a forecast is that should not be relied on."""
FETCH, FETCHED = 1e-9, 1000
"""Seconds that an instruction of machine code takes to be fetched for the first time, and up to how many do (*effects*: straight code of 505 instructions
takes 0.3 us longer than the same of 275)."""
WARP = 1e-10
"""Seconds between the warps that a device begins, beyond the first of each CTA (*effects*)."""
ISSUED = 4e-13
"""Seconds of a warp's instruction that latencies do not hide: 0.4 of what it takes to issue (*effects*)."""
LOOP = 2.4e-7
"""Seconds that a wave takes to come into a loop and out of it: nothing of the next loop is under way yet (*effects*)."""
SEEN = 0.1
"""How much of each resource is not hidden behind the one that binds (*effects*)."""
BARRIER = 8.0
"""Bytes of an mbarrier (PTX ISA, `mbarrier` objects)."""
APART = ("launch", "spills", "atomics")
"""Parts of a cost that are added up already."""


class Analytic:
    """Modelled seconds of both programs, as a log-normal distribution about their quotient. It defers where something was not counted, or the device has no
    constants."""

    name = "analytic"

    def __call__(self, pair: Pair) -> Forecast:
        """The forecast. Raises KirError KIR-E007 for sizes that are no launch."""
        before, after = (program_cost(p, pair.sizes, pair.target, made, pair.surface)
                         for p, made in zip((pair.before, pair.after), pair.compiled, strict=True))
        rest = (unhidden(before, pair.compiled[0]), unhidden(after, pair.compiled[1])) if None not in pair.compiled else (unhidden(before), unhidden(after))
        seconds = (sum(c.seconds for c in before) + rest[0], sum(c.seconds for c in after) + rest[1])
        middle = math.log(seconds[0] / seconds[1])
        defer = _unsure(before, after, pair.target.device)
        wide = spread(middle, bound(before) != bound(after), None not in pair.compiled) * (UNKNOWN if defer else 1.0)
        refusals = illegal(pair.after, pair.target.architecture) + refused(pair.after, pair.target.architecture, pair.surface)
        reasons = _reasons({**_parts(before), "not hidden": rest[0]}, {**_parts(after), "not hidden": rest[1]})
        return Forecast(LEVELS, tuple(middle + wide * z for z in NORMAL), failing(refusals > 0, stored(before), stored(after)), reasons, defer=defer,
                        seconds=seconds)


def unhidden(costs: Sequence[Cost], artifact: Artifact | None = None) -> float:
    """Seconds that stand beside what binds a program. The gate's cost model has the busiest resource hide nearly all the rest, which is right for how long a
    program takes, and says nothing of two that are bound alike; measured pairs say that a part of the rest shows (`benchmarks/data/effects`, on which the
    constants were fitted). `artifact` are both programs' or none's: what machine code tells must be told of both."""
    placed = [(c, c.work) for c in costs if c.work is not None]
    if not placed:
        return 0.0
    text = float(sum(artifact.mix.values())) if artifact is not None else 0.0
    code = max(costs, key=lambda c: c.seconds).tallies.get("code", 0.0)
    issued = sum(w.instructions for _, w in placed) * (text / code if text and code else 1.0)
    begun = sum(w.ctas * max(0.0, w.threads / 32 - 1.0) for _, w in placed)
    loops = sum(c.tallies.get("loops", 0.0) * max(1.0, w.ctas / w.together) for c, w in placed)
    parts = sum(seconds for c in costs for name, seconds in c.parts.items() if name not in APART)
    return FETCH * min(text, FETCHED) + WARP * begun + ISSUED * issued + LOOP * loops + SEEN * parts


def illegal(program: n.Program, architecture: Architecture) -> int:
    """How much of a program the architecture refuses."""
    return once(program, f"_illegal {architecture.name}", lambda: len(legalize(program, architecture)))


def refused(program: n.Program, architecture: Architecture, surface: str) -> int:
    """How much of a program is known to fail on its surface before a compiler is asked: what its backend cannot say, and shared memory that Triton's
    pipelines would take beyond a CTA's."""
    def found() -> int:
        try:
            said = len(backend(surface).accepts(program))
        except KirError:
            said = 0
        return said + (surface == "triton" and staged(program) > architecture.shared_per_cta)
    return once(program, f"_refused {architecture.name} {surface}", found)


def staged(program: n.Program) -> float:
    """Bytes of shared memory that Triton takes for a kernel with pipelined matrix products: the operands of each stage, a tile that is written by a
    descriptor, and a barrier a stage (what it compiled: `benchmarks/data/effects`)."""
    return max((_staged(k) for k in program.kernels), default=0.0)


def _staged(k: n.Kernel) -> float:
    loops = [s for s in statements(k.body) if isinstance(s, n.For) and s.kind == "pipelined" and any(isinstance(x, n.Mma) for x in s.body)]
    if not loops:
        return 0.0
    written = [s.src for s in statements(k.body) if isinstance(s, n.Copy) and s.dst.buffer.space == "global"]
    stages = sum(int(dict(loop.attrs).get("stages", 1)) for loop in loops)
    return (shared_bytes(k) or 0) + max(map(_bytes, written), default=0.0) + BARRIER * stages


def _bytes(e: n.Expr) -> float:
    extents = [int_value(d) for d in shape_of(e.type)] if isinstance(e.type, TileType) else []
    return float(math.prod(d or 0 for d in extents)) * dtype_of(e.type).bytes if extents else 0.0


@dataclass(frozen=True)
class Stored:
    """Bytes of its outputs that a program writes, each `once`, and as often as it does (`often`); and the threads of a CTA of its slowest kernel."""

    once: float
    often: float
    threads: float


def stored(costs: Sequence[Cost]) -> Stored:
    """What the kernels of a program write, as the cost model counts it."""
    slow = max(costs, key=lambda c: c.seconds, default=None)
    threads = slow.work.threads if slow is not None and slow.work is not None else 0
    return Stored(sum(c.tallies.get("stored", 0.0) for c in costs), sum(c.tallies.get("stored in all", 0.0) for c in costs), float(threads))


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
