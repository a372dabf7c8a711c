"""Scans of tiles: each thread over a run of its own, then over what the runs before it come to.

Runs lie side by side over the threads in order: by shuffles within a warp, through shared memory between warps.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kir.analysis.tiles.fragments import STILL, Digit, Spread
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import add, const, mul
from kir.ir.types import I32
from kir.surface.lowering.registers.element_demand import of_spread, without_axis
from kir.surface.lowering.registers.elements import element
from kir.surface.lowering.registers.folding import WARP, Folding, Parts, folding, is_power, updated, warp_digits
from kir.surface.lowering.registers.state import Held, State, flat, guarded, looped, place, refuse, register, shape_known, slot_variables
from kir.surface.lowering.tiles.binding import named


def scan(state: State, names: tuple[str, ...], c: n.Call) -> None:
    """Along an axis: each thread over a run of its own, then over the totals of the runs before it."""
    attrs = dict(c.attrs)
    axis, reverse = int(attrs.get("axis", 0)), bool(attrs.get("reverse"))
    args = [a for a in c.args if isinstance(a, n.Expr)]
    fold = folding(state, c)
    if str(attrs.get("op", "")) in ("argmax", "argmin"):
        raise refuse("a scan of positions")
    shape = shape_known(args[0])
    s = _runs(state, shape, axis)
    args = [named(state, a) for a in args]
    variables, values = slot_variables(state, s)
    dims = [d for d in reversed(s.slots) if d.extent > 1]
    along = [(v, d.extent) for v, d in zip(variables, dims, strict=True) if d.axis == axis]
    others = [(v, d.extent) for v, d in zip(variables, dims, strict=True) if d.axis != axis]
    need = of_spread(s, state.lane, values)
    parts = tuple(element(state, a, need.fitted(shape_known(a))) for a in args)
    buffers = [register(name, d, s) for name, d in zip(names, fold.dtypes, strict=True)]
    into = [place(b, list(variables)) for b in buffers]
    body: n.Block = tuple(n.Store(r, e) for r, e in zip(into, parts, strict=True))
    state.put(*(n.Alloc(b) for b in buffers), *looped(body, list(zip(variables, [d.extent for d in dims], strict=True))))
    run = along[0][1] if along else 1
    position = {v.name: k for k, v in enumerate(variables)}

    def at(buffer: n.Buffer, i: n.Expr) -> n.Region:
        index: list[n.Expr] = list(variables)
        if along:
            index[position[along[0][0].name]] = i
        return place(buffer, index)
    if run > 1:
        q = n.Var(state.fresh("i"), I32)
        here = build.sub(const(run - 1), q) if reverse else q
        before = add(here, 1) if reverse else build.sub(here, 1)
        update = updated(state, [at(b, here) for b in buffers], fold.combine(
            tuple(build.load(at(b, before)) for b in buffers), tuple(build.load(at(b, here)) for b in buffers)))
        state.put(*looped((n.For(q, const(1), const(run), const(1), update, "unroll", n.attrs(factor=run - 1)),), others))
    far = [(below, d) for below, d in warp_digits(s) if d.axis == axis and d.extent > 1]
    last = const(0) if reverse else const(run - 1)
    for below, d in far:
        _carried(state, fold, s, axis, buffers, at, last, below, d, reverse, along, others, run)
    for name, b in zip(names, buffers, strict=True):
        state.held[name] = Held(b, s)


def _runs(state: State, shape: tuple[int, ...], axis: int) -> Spread:
    """Runs along an axis, one a thread, side by side over threads in order; then the other axes."""
    team = state.team
    across = math.gcd(team, shape[axis])
    rest = team // across
    run = shape[axis] // across
    if not is_power(across):
        raise refuse("a scan over a number of threads that is no power of two")
    slots = [Digit(run, axis, 1)] if run > 1 else []
    threads = [Digit(across, axis, run)] if across > 1 else []
    for a in reversed(range(len(shape))):
        if a == axis:
            continue
        here = math.gcd(rest, shape[a])
        if here > 1:
            threads.append(Digit(here, a, 1))
            rest //= here
        if shape[a] // here > 1:
            slots.append(Digit(shape[a] // here, a, here))
    if rest > 1:
        threads.append(Digit(rest, STILL, 0))
    return Spread(shape, tuple(threads), tuple(slots))


def _carried(state: State, fold: Folding, s: Spread, axis: int, buffers: Sequence[n.Buffer], at: Callable[[n.Buffer, n.Expr], n.Region],
             last: n.Expr, below: int, d: Digit, reverse: bool, along: Sequence[tuple[n.Var, int]], others: Sequence[tuple[n.Var, int]],
             run: int) -> None:
    """What the threads before bring to each thread's run: by shuffles within a warp, by shared memory between warps."""
    lane = state.lane if below == 1 else build.floordiv(state.lane, below)
    rank = lane if below * d.extent >= s.team else build.mod(lane, d.extent)
    place_in = build.sub(const(d.extent - 1), rank) if reverse else rank
    carry = [n.Buffer(state.fresh("carry"), b.dtype, (), "register") for b in buffers]
    into = [n.Region(b) for b in carry]
    total = tuple(build.load(at(b, last)) for b in buffers)
    if below < WARP:
        body: list[n.Stmt] = [n.Alloc(b, e) for b, e in zip(carry, total, strict=True)]
        fn = "shfl_down" if reverse else "shfl_up"
        step = n.Var(state.fresh("s"), I32)
        rounds = d.extent.bit_length() - 1
        offset = build.binary("shl", const(1), step)
        names = [state.fresh("other") for _ in into]
        lets = tuple(n.Let((name,), build.call(fn, build.load(r), mul(offset, below))) for name, r in zip(names, into, strict=True))
        shuffled = tuple(n.Var(name, b.dtype) for name, b in zip(names, buffers, strict=True))
        update = updated(state, into, fold.combine(shuffled, tuple(build.load(r) for r in into)))
        body += looped((*lets, n.If(build.compare("ge", place_in, offset), update)), [(step, rounds)])
        names = [state.fresh("before") for _ in into]
        body += [n.Let((name,), build.call(fn, build.load(r), const(below))) for name, r in zip(names, into, strict=True)]
        before = tuple(n.Var(name, b.dtype) for name, b in zip(names, buffers, strict=True))
        body.append(n.If(build.compare("gt", place_in, 0), _onto(state, fold, buffers, at, before, along, run)))
        state.put(*looped(tuple(body), others))
        return
    kept = without_axis(s, axis)
    size, count = math.prod(kept.shape), d.extent
    memory = [state.scratch_for(b.dtype, count * size * (state.threads // state.team)) for b in buffers]
    part = const(0) if state.team == state.threads else mul(build.floordiv(state.thread, state.team), count * size)
    variables = {v.name: v for v, _ in others}
    dims = [x for x in reversed(kept.slots) if x.extent > 1]
    values: list[n.Expr] = []
    names_left = [v for v, _ in others]
    for x in kept.slots:
        values.append(const(0) if x.extent == 1 else names_left[len(dims) - 1 - len([v for v in values if isinstance(v, n.Var)])])
    del variables
    where = add(flat(of_spread(kept, state.lane, values).coordinates, kept.shape), part)
    inner = [(b, x) for b, x in warp_digits(s) if x.axis == axis and b < below and x.extent > 1]
    guard: n.Expr | None = None
    for b, x in [*inner, *((b, x) for b, x in warp_digits(s) if x.axis == STILL and x.extent > 1)]:
        value = state.lane if b == 1 else build.floordiv(state.lane, b)
        value = value if b * x.extent >= s.team else build.mod(value, x.extent)
        wanted = 0 if x.axis == STILL or reverse else x.extent - 1
        this = build.compare("eq", value, wanted)
        guard = this if guard is None else build.logical_and(guard, this)
    stores = tuple(n.Store(build.region(m, add(where, mul(rank, size))), e) for m, e in zip(memory, total, strict=True))
    for m in memory:
        state.touch(n.Region(m), "write")
    state.put(*guarded(guard, looped(stores, others)))
    for m in memory:
        state.touch(n.Region(m), "read")
    w = n.Var(state.fresh("w"), I32)
    origin = const(count - 1) if reverse else const(0)
    start = tuple(n.Alloc(b, build.load(build.region(m, add(where, mul(origin, size))))) for m, b in zip(memory, carry, strict=True))
    other = build.sub(const(count - 1), w) if reverse else w
    parts = tuple(build.load(build.region(m, add(where, mul(other, size)))) for m in memory)
    update = updated(state, into, fold.combine(tuple(build.load(r) for r in into), parts))
    walk_ = n.For(w, const(1), place_in, const(1), update)
    final = n.If(build.compare("gt", place_in, 0), (
        *start, walk_, *_onto(state, fold, buffers, at, tuple(build.load(r) for r in into), along, run)))
    state.put(*looped((final,), others))


def _onto(state: State, fold: Folding, buffers: Sequence[n.Buffer], at: Callable[[n.Buffer, n.Expr], n.Region], before: Parts,
          along: Sequence[tuple[n.Var, int]], run: int) -> n.Block:
    """What came before combined into every element of a thread's run."""
    if run == 1:
        return updated(state, [at(b, const(0)) for b in buffers], fold.combine(before, tuple(build.load(at(b, const(0))) for b in buffers)))
    v = n.Var(state.fresh("i"), I32)
    into = [at(b, v) for b in buffers]
    return looped(updated(state, into, fold.combine(before, tuple(build.load(r) for r in into))), [(v, run)])
