"""What forecasts know beside the gate's cost model: seconds that do not hide behind the bound, and what is known to fail before a compiler is asked."""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from kir.analysis.target.legalize import legalize, shared_bytes
from kir.base.diagnostic import KirError
from kir.gate.cost import Cost
from kir.gate.counts.numbers import Value, evaluate, offsets
from kir.hardware.target import Architecture
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.printer import expr_text
from kir.ir.types import I32, TileType, dtype_of, shape_of
from kir.ir.visit import once, statements, substitute, walk
from kir.surface import Artifact, backend

FETCH, FETCHED = 1e-9, 1000
"""Seconds that an instruction of machine code takes to be fetched for the first time, and up to how many do (*effects*: straight code of 505 instructions
takes 0.3 us longer than the same of 275)."""
WARP = 5e-11
"""Seconds between the warps that a device begins, beyond the first of each CTA (*effects*)."""
ISSUED = 4e-13
"""Seconds of a warp's instruction that latencies do not hide: 0.4 of what it takes to issue (*effects*)."""
LOOP = 2.4e-7
"""Seconds that a wave takes to come into a loop and out of it: nothing of the next loop is under way yet (*effects*)."""
SEEN = 0.1
"""How much of each resource is not hidden behind the one that binds (*effects*)."""
WAITS = ("async_wait", "bulk_wait", "wgmma_wait")
"""Instructions that wait until no more groups than so many are under way."""
BARRIER = 8.0
"""Bytes of an mbarrier (PTX ISA, `mbarrier` objects)."""
APART = ("launch", "spills", "atomics")
"""Parts of a cost that are added up already."""
Known = Mapping[str, Value | n.Expr]
MOST = 1024
"""Threads that are looked at."""


def unhidden(costs: Sequence[Cost], artifact: Artifact | None = None) -> float:
    """Seconds that stand beside what binds a program. The gate's cost model has the busiest resource hide nearly all the rest, which is right for how long a
    program takes, and says nothing of two that are bound alike; measured pairs say that a part of the rest shows (`benchmarks/data/effects`, on which the
    constants were fitted). `artifact` are both programs' or none's: what machine code tells must be told of both."""
    placed = [(c, c.work) for c in costs if c.work is not None]
    if not placed:
        return 0.0
    text = float(sum(artifact.mix.values())) if artifact is not None else 0.0
    code = max(costs, key=lambda c: c.seconds).tallies.get("code", 0.0)
    issued = math.fsum(w.instructions for _, w in placed) * (text / code if text and code else 1.0)
    begun = math.fsum(w.ctas * max(0.0, w.threads / 32 - 1.0) for _, w in placed)
    loops = math.fsum(c.tallies.get("loops", 0.0) * max(1.0, w.ctas / w.together) for c, w in placed)
    parts = math.fsum(seconds for c in costs for name, seconds in c.parts.items() if name not in APART)
    return FETCH * min(text, FETCHED) + WARP * begun + ISSUED * issued + LOOP * loops + SEEN * parts


def numbered(program: n.Program) -> n.Program:
    """A program with the defaults of its numbers: one that is generic in its threads or tiles runs with those."""
    values: dict[str, n.Expr] = {m.name: const(m.default, I32) for m in program.metas if isinstance(m.default, int) and not isinstance(m.default, bool)}
    if not values:
        return program
    made: n.Program = once(program, "_numbered", lambda: replace(substitute(program, values), metas=tuple(m for m in program.metas if m.name not in values)))
    return made


def excluded(program: n.Program, sizes: Mapping[str, int]) -> str:
    """The first fact of a program that does not hold at some sizes, as text; "" where none is known not to."""
    def found() -> str:
        broken = (f for f in program.facts if (held := evaluate(f, sizes)) is not None and not bool(held))
        return next(map(expr_text, broken), "")
    return once(program, f"_excluded {tuple(sizes.items())}", found)


def illegal(program: n.Program, architecture: Architecture) -> int:
    """How much of a program the architecture refuses."""
    return once(program, f"_illegal {architecture.name}", lambda: len(legalize(program, architecture)))


def refused(program: n.Program, architecture: Architecture, surface: str, sizes: Mapping[str, int] | None = None) -> int:
    """How much of a program is known to fail on its surface before a compiler is asked: what its backend cannot say, waits for fewer groups than none, places
    beyond a shared array (at `sizes`, where they are given), shared memory that Triton's pipelines would take beyond a CTA's, and registers that TileLang would
    have to index by lanes."""
    def found() -> int:
        try:
            said = len(backend(surface).accepts(program))
        except KirError:
            said = 0
        waits = [x.args[0] for k in program.kernels for x in walk(k) if isinstance(x, n.Call) and x.fn in WAITS and x.args]
        said += sum(isinstance(x, n.Expr) and (int_value(x) or 0) < 0 for x in waits)
        said += sum(by_lanes(k) for k in program.kernels) if surface == "tilelang" else 0
        return said + (surface == "triton" and staged(program) > architecture.shared_per_cta)
    at = tuple(sorted((sizes or {}).items()))
    return once(program, f"_refused {architecture.name} {surface}", found) + once(program, f"_outside {at}", lambda: outside(program, sizes))


def by_lanes(k: n.Kernel) -> int:
    """Statements of tiles that read registers of a CTA's only thread: TileLang writes them as parallel loops, whose variables may not index such a buffer
    ("Local buffers are thread-private"); of more threads it makes a fragment (all ten programs of `benchmarks/data/effects` that have one)."""
    if (int_value(k.threads) or 1) > 1:
        return 0
    def reads(e: n.Expr) -> bool:
        return any(isinstance(x, n.Load) and x.at.buffer.space == "register" and bool(shape_of(x.type)) for x in walk(e))
    return sum(isinstance(s, n.Store) and s.at.buffer.space == "global" and reads(s.value) for s in statements(k.body))


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


def outside(program: n.Program, sizes: Mapping[str, int] | None = None) -> int:
    """How many statements reach beyond a shared array, found by trying: every thread of CTA 0 at the ends of every loop, at `sizes` where they are given. Each
    is sure, and that there is none proves nothing (`kir check` decides)."""
    return sum(_seen(k, sizes or {}) for k in program.kernels)


def _seen(k: n.Kernel, sizes: Mapping[str, int]) -> int:
    values: dict[str, Value | n.Expr] = {**sizes, **{axis.name: 0 for axis in k.grid}}
    found = {i for last in (False, True) for i in _beyond(k.body, values, 1, last)}
    return len(found)


def _beyond(body: n.Block, values: Known, threads: int, last: bool) -> Iterator[int]:
    here = dict(values)
    for s in body:
        match s:
            case n.For():
                yield from _of_loop(s, here, threads, last)
            case n.If():
                taken = evaluate(s.cond, here)
                if taken is not None and bool(np.all(taken)):
                    yield from _beyond(s.then, here, threads, last)
            case n.Let() if len(s.names) == 1:
                here[s.names[0]] = s.value
            case n.Copy() | n.Store():
                if any(_reaches(r, here, threads) for r in _regions(s)):
                    yield id(s)
            case n.Roles():
                for role in s.roles:
                    yield from _beyond(role.body, here, threads, last)
            case _:
                pass


def _of_loop(s: n.For, values: Known, threads: int, last: bool) -> Iterator[int]:
    lo, hi = evaluate(s.lo, values), evaluate(s.hi, values)
    if not isinstance(lo, int):
        return
    if s.kind in ("thread", "parallel thread", "warp", "warpgroup"):
        if not isinstance(hi, int) or threads > 1 or not 0 < hi - lo <= MOST:
            return
        yield from _beyond(s.body, {**values, s.var.name: np.arange(lo, hi, dtype=np.int64)}, hi - lo, last)
    elif not isinstance(hi, int):
        yield from _beyond(s.body, {**values, s.var.name: lo}, threads, last)
    elif hi > lo:
        yield from _beyond(s.body, {**values, s.var.name: hi - 1 if last else lo}, threads, last)


def _regions(s: n.Copy | n.Store) -> Iterator[n.Region]:
    """Places in shared memory that a statement surely goes to: without a mask, and where nothing is clipped."""
    if s.mask is None and not s.clip:
        yield s.dst if isinstance(s, n.Copy) else s.at
    for x in walk(s.src if isinstance(s, n.Copy) else s.value):
        if isinstance(x, n.Load) and x.mask is None and not x.clip:
            yield x.at


def _reaches(r: n.Region, values: Known, threads: int) -> bool:
    b = r.buffer
    if b.space != "shared" or b.strides is not None or not r.index:
        return False
    extents = [int_value(d) for d in b.shape]
    if None in extents:
        return False
    at = offsets(r, values, threads)
    return at is not None and bool(at.size) and (int(at.max()) >= math.prod(e or 0 for e in extents) or int(at.min()) < 0)


__all__ = ["excluded", "illegal", "numbered", "outside", "refused", "staged", "unhidden"]
