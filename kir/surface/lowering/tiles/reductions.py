"""Reductions of tiles: each thread over its own elements, then the lanes of a warp by shuffles, then the warps through shared memory.

Afterwards every thread that holds a copy of the result has it. Steps that have nothing to do are left out.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from kir.analysis.tiles.fragments import STILL, Digit, Spread, digits_of
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import add, const, mul
from kir.ir.types import I32, TileType, TupleType, shape_of
from kir.ir.visit import substitute
from kir.surface.lowering.registers.choice import suggested
from kir.surface.lowering.registers.element_demand import of_spread, without_axis
from kir.surface.lowering.registers.elements import element
from kir.surface.lowering.registers.folding import WARP, Folding, Parts, folding, is_power, updated, warp_digits
from kir.surface.lowering.registers.state import Held, State, flat, guarded, looped, place, refuse, register, shape_known, slot_variables


def reduce(state: State, names: tuple[str, ...], c: n.Call) -> None:
    """Lowers `let names = reduce(..)` of tiles: each thread folds what it holds, then lanes, then warps through shared memory."""
    attrs = dict(c.attrs)
    axis, keep, op = int(attrs["axis"]), bool(attrs.get("keep")), str(attrs.get("op", ""))
    args = [a for a in c.args if isinstance(a, n.Expr)]
    fold = folding(state, c)
    s = suggested(state, args[0])
    if s.threads and any(d.axis == axis and not is_power(d.extent) for d in s.threads):
        raise refuse("a reduction over a number of threads that is no power of two", "a tile whose extents are powers of two")
    kept = without_axis(s, axis)
    arg = op in ("argmax", "argmin")
    if isinstance(c.type, TileType) or (isinstance(c.type, TupleType) and any(isinstance(t, TileType) for t in c.type.elements)):
        buffers = [register(names[k] if k < len(names) else state.fresh("part"), d, kept) for k, d in enumerate(fold.dtypes)]
        if arg:
            buffers = [register(state.fresh("best"), fold.dtypes[0], kept), register(names[0], I32, kept)]
    else:
        buffers = [n.Buffer(state.fresh(f"{name}_part"), d, (), "register") for name, d in zip(
            (*names, *(f"{names[0]}_value",))[:len(fold.dtypes)], fold.dtypes, strict=True)]
    _over_own(state, args, arg, fold, s, axis, buffers)
    _over_lanes(state, fold, s, axis, kept, buffers)
    _over_warps(state, fold, s, axis, kept, buffers)
    results = buffers[1:] if arg else buffers
    for name, b in zip(names, results, strict=True):
        if shape_of(c.type if not isinstance(c.type, TupleType) else c.type.elements[0]):
            state.held[name] = Held(b, without_axis(s, axis, keep))
        else:
            state.put(n.Let((name,), build.load(n.Region(b))))


def _over_own(state: State, args: Sequence[n.Expr], arg: bool, fold: Folding, s: Spread, axis: int,
              buffers: Sequence[n.Buffer]) -> None:
    """Each thread over the elements that it holds."""
    variables, values = slot_variables(state, s)
    dims = [d for d in reversed(s.slots) if d.extent > 1]
    along = [(v, d.extent) for v, d in zip(variables, dims, strict=True) if d.axis == axis]
    others = [(v, d.extent) for v, d in zip(variables, dims, strict=True) if d.axis != axis]
    into = [place(b, [v for v, _ in others]) for b in buffers]

    def here(slot: list[n.Expr]) -> Parts:
        need = of_spread(s, state.lane, slot)
        parts = tuple(element(state, a, need.fitted(shape_known(a))) if isinstance(a.type, TileType) else a for a in args)
        return (*parts, need.coordinates[axis]) if arg else parts
    if fold.start is not None:
        update = updated(state, into, fold.combine(tuple(build.load(r) for r in into), here(values)))
        allocs = tuple(n.Alloc(b, fold.start[k]) for k, b in enumerate(buffers))
        state.put(*allocs, *looped(looped(update, along), others))
        return
    first = [const(0) if any(v is w for w, _ in along) else v for v in values]
    starting: n.Block = tuple(n.Store(r, e) for r, e in zip(into, here(first), strict=True))
    total = math.prod(extent for _, extent in along)
    body = starting
    if total > 1:
        q = n.Var(state.fresh("i"), I32)
        digits = [Digit(extent, STILL, 0) for _, extent in reversed(along)]
        by_name = {v.name: e for (v, _), e in zip(reversed(along), digits_of(q, digits), strict=True)}
        update = updated(state, into, fold.combine(tuple(build.load(r) for r in into), here(values)))
        inner = tuple(substitute(x, by_name) for x in update)
        body = (*starting, n.For(q, const(1), const(total), const(1), inner, "unroll", n.attrs(factor=total - 1)))
    state.put(*(n.Alloc(b) for b in buffers), *looped(body, others))


def _over_lanes(state: State, fold: Folding, s: Spread, axis: int, kept: Spread, buffers: Sequence[n.Buffer]) -> None:
    for below, d in warp_digits(s):
        if d.axis != axis or below >= WARP or d.extent == 1:
            continue
        variables, _ = slot_variables(state, kept)
        extents = [x.extent for x in reversed(kept.slots) if x.extent > 1]
        into = [place(b, list(variables)) for b in buffers]
        step = n.Var(state.fresh("s"), I32)
        rounds = d.extent.bit_length() - 1
        distance = build.binary("shr", const(below * d.extent // 2), step) if rounds > 1 else const(below * d.extent // 2)
        names = [state.fresh("other") for _ in into]
        lets = tuple(n.Let((name,), build.call("shfl_xor", build.load(r), distance)) for name, r in zip(names, into, strict=True))
        others = tuple(n.Var(name, b.dtype) for name, b in zip(names, buffers, strict=True))
        body = (*lets, *updated(state, into, fold.combine(tuple(build.load(r) for r in into), others)))
        block = looped(body, list(zip(variables, extents, strict=True)))
        state.put(*(looped(block, [(step, rounds)]) if rounds > 1 else block))


def _over_warps(state: State, fold: Folding, s: Spread, axis: int, kept: Spread, buffers: Sequence[n.Buffer]) -> None:
    far = [(below, d) for below, d in warp_digits(s) if d.axis == axis and below >= WARP and d.extent > 1]
    if not far:
        return
    count = math.prod(d.extent for _, d in far)
    size = math.prod(kept.shape)
    number: n.Expr = const(0)
    row = 1
    for below, d in far:
        number = add(number, mul(build.mod(build.floordiv(state.lane, below), d.extent) if below * d.extent < s.team else build.floordiv(
            state.lane, below), row))
        row *= d.extent
    first: n.Expr | None = None
    for below, d in warp_digits(s):
        if (d.axis == STILL or (d.axis == axis and below < WARP)) and d.extent > 1:
            value = state.lane if below == 1 else build.floordiv(state.lane, below)
            this = build.compare("eq", value if below * d.extent >= s.team else build.mod(value, d.extent), 0)
            first = this if first is None else build.logical_and(first, this)
    memory = [state.scratch_for(b.dtype, count * size * (state.threads // state.team)) for b in buffers]
    part = const(0) if state.team == state.threads else mul(build.floordiv(state.thread, state.team), count * size)
    variables, values = slot_variables(state, kept)
    extents = [d.extent for d in reversed(kept.slots) if d.extent > 1]
    loops = list(zip(variables, extents, strict=True))
    at = add(flat(of_spread(kept, state.lane, values).coordinates, kept.shape), part)
    into = [place(b, list(variables)) for b in buffers]
    stores = tuple(n.Store(build.region(m, add(at, mul(number, size))), build.load(r)) for m, r in zip(memory, into, strict=True))
    for m in memory:
        state.touch(n.Region(m), "write")
    state.put(*guarded(first, looped(stores, loops)))
    for m in memory:
        state.touch(n.Region(m), "read")
    w = n.Var(state.fresh("w"), I32)
    start: n.Block = tuple(n.Store(r, build.load(build.region(m, at))) for m, r in zip(memory, into, strict=True))
    parts = tuple(build.load(build.region(m, add(at, mul(w, size)))) for m in memory)
    update = updated(state, into, fold.combine(tuple(build.load(r) for r in into), parts))
    rest = n.For(w, const(1), const(count), const(1), update, "unroll", n.attrs(factor=count - 1))
    state.put(*looped((*start, rest), loops))
