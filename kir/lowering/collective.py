"""What takes several threads: reductions, scans, gathers and atomics of tiles.

A reduction is done in three steps: each thread over its own elements, then the lanes of a warp by shuffles, then the warps through shared
memory; afterwards every thread that holds a copy of the result has it. Steps that have nothing to do are left out.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kir.analysis.fragments import STILL, Digit, Spread, digits_of
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import add, const, mul
from kir.ir.types import BOOL, I32, DType, TileType, TupleType, dtype_of, shape_of
from kir.ir.visit import substitute, walk
from kir.lowering.choice import suggested
from kir.lowering.elements import addressed, element, element_place, shape_known
from kir.lowering.need import Need, of_spread, without_axis
from kir.lowering.state import Held, State, flat, guarded, looped, place, refuse, register, slot_variables

COLLECTIVE = frozenset({"reduce", "scan", "gather", "sort", "cat", "histogram"})
"""Calls that are computed as values of their own before the statement that uses them."""
WARP = 32

Parts = tuple[n.Expr, ...]
Combine = Callable[[Parts, Parts], Parts]


@dataclass(frozen=True)
class Folding:
    """How a reduction or scan combines: `start` is what changes nothing (None: there is no such value), one of each result."""

    dtypes: tuple[DType, ...]
    combine: Combine
    start: Parts | None


def lower(state: State, names: tuple[str, ...], c: n.Call, label: str | None) -> None:
    """A collective call as the value of names."""
    match c.fn:
        case "reduce":
            _reduce(state, names, c)
        case "scan":
            _scan(state, names, c)
        case "gather":
            _gather(state, names[0], c)
        case "cat":
            _cat(state, names[0], c)
        case "histogram":
            _histogram(state, names[0], c)
        case _:
            raise refuse(f"'{c.fn}' of a tile over several threads", "another algorithm: a scan, or a selection")


# ------------------------------------------------------------------------------------------------------------------ combination

def folding(state: State, c: n.Call) -> Folding:
    """What a reduce or scan combines with."""
    attrs = dict(c.attrs)
    args = [a for a in c.args if isinstance(a, n.Expr)]
    dtypes = tuple(dtype_of(a.type) for a in args)
    if "combine" in attrs:
        return Folding(dtypes, _inlined(state, str(attrs["combine"])), None)
    op, dtype = str(attrs.get("op", "sum")), dtypes[0]
    if op in ("argmax", "argmin"):
        return Folding((dtype, I32), _better(op, dtype), None)
    if op in ("max_nan", "min_nan"):
        if not dtype.is_float:
            return Folding(dtypes, lambda a, b: (build.binary(op[:3], a[0], b[0]),), None)
        return Folding(dtypes, lambda a, b: (build.call(op, a[0], b[0]),), None)
    name = {"sum": "add", "prod": "mul"}.get(op, op)
    return Folding(dtypes, lambda a, b: (build.binary(name, a[0], b[0]),), _neutral(op, dtype))


def _neutral(op: str, dtype: DType) -> Parts | None:
    if dtype.is_bool:
        return (n.Const(op == "and", BOOL),)
    if op in ("sum", "xor", "or"):
        return (const(0, dtype),)
    if op == "prod":
        return (const(1, dtype),)
    if op in ("max", "min"):
        if dtype.is_float:
            return (const(-math.inf if op == "max" else math.inf, dtype),) if dtype.name in ("f16", "bf16", "f32", "f64") else None
        low, high = dtype.range
        return (const(low if op == "max" else high, dtype),)
    return (const(-1, dtype),) if op == "and" else None


def _better(op: str, dtype: DType) -> Combine:
    """(value, index) pairs: the greater (or lesser) value, NaN above all, and of equal ones the lower index."""
    sign = "gt" if op == "argmax" else "lt"

    def combine(a: Parts, b: Parts) -> Parts:
        wins = build.compare(sign, b[0], a[0])
        same = build.compare("eq", b[0], a[0])
        if dtype.is_float:
            nan_a, nan_b = build.call("isnan", _wide(a[0])), build.call("isnan", _wide(b[0]))
            wins = build.logical_or(wins, build.logical_and(nan_b, build.invert(nan_a)))
            same = build.logical_or(same, build.logical_and(nan_a, nan_b))
        take = build.logical_or(wins, build.logical_and(same, build.compare("lt", b[1], a[1])))
        return build.select(take, b[0], a[0]), build.select(take, b[1], a[1])
    return combine


def _wide(e: n.Expr) -> n.Expr:
    from kir.ir.types import F32
    return build.cast(e, F32) if dtype_of(e.type).bits < 32 else e


def _inlined(state: State, name: str) -> Combine:
    """The combine function of a program, its result as expressions of its arguments."""
    f = next((x for x in state.program.functions if x.name == name), None)
    if f is None or not all(isinstance(p, n.Var) for p in f.params):
        raise refuse(f"the combine function '{name}' takes more than values")
    params = [p.name for p in f.params if isinstance(p, n.Var)]
    lets: dict[str, n.Expr] = {}
    result: Parts = ()
    for s in f.body:
        if isinstance(s, n.Let) and len(s.names) == 1:
            lets[s.names[0]] = substitute(s.value, lets)
        elif isinstance(s, n.Jump) and s.kind == "return":
            result = tuple(substitute(v, lets) for v in s.values)
        else:
            raise refuse(f"the combine function '{name}' has branches or memory of its own", "values and a return")

    def combine(a: Parts, b: Parts) -> Parts:
        return tuple(substitute(e, dict(zip(params, (*a, *b), strict=True))) for e in result)
    return combine


def _update(state: State, into: Sequence[n.Region], values: Parts) -> n.Block:
    """Registers set to values that are all computed from the old ones."""
    if len(into) == 1:
        return (n.Store(into[0], values[0]),)
    names = [state.fresh("next") for _ in into]
    lets = tuple(n.Let((name,), v) for name, v in zip(names, values, strict=True))
    return (*lets, *(n.Store(r, n.Var(name, v.type)) for r, name, v in zip(into, names, values, strict=True)))


# -------------------------------------------------------------------------------------------------------------------- reductions

def _reduce(state: State, names: tuple[str, ...], c: n.Call) -> None:
    attrs = dict(c.attrs)
    axis, keep, op = int(attrs["axis"]), bool(attrs.get("keep")), str(attrs.get("op", ""))
    args = [a for a in c.args if isinstance(a, n.Expr)]
    from kir.lowering.statements import named
    args = [named(state, a) if any(isinstance(x, n.Load) and x.at.buffer.name not in state.held for x in walk(a)) else a for a in args]
    fold = folding(state, c)
    s = suggested(state, args[0])
    if s.threads and any(d.axis == axis and not _is_power(d.extent) for d in s.threads):
        raise refuse("a reduction over a number of threads that is no power of two", "a tile whose extents are powers of two")
    kept = without_axis(s, axis)
    arg = op in ("argmax", "argmin")
    if isinstance(c.type, TileType) or isinstance(c.type, TupleType) and any(isinstance(t, TileType) for t in c.type.elements):
        buffers = [register(names[k] if k < len(names) else state.fresh("part"), d, kept) for k, d in enumerate(fold.dtypes)]
        if arg:
            buffers = [register(state.fresh("best"), fold.dtypes[0], kept), register(names[0], I32, kept)]
    else:
        buffers = [n.Buffer(state.fresh(f"{name}_part"), d, (), "register") for name, d in zip(
            (*names, *(f"{names[0]}_value",))[:len(fold.dtypes)], fold.dtypes, strict=True)]
    outer, values = _over_own(state, args, arg, fold, s, axis, buffers)
    del outer, values
    _over_lanes(state, fold, s, axis, kept, buffers)
    _over_warps(state, fold, s, axis, kept, buffers)
    results = buffers[1:] if arg else buffers
    for name, b in zip(names, results, strict=True):
        if shape_of(c.type if not isinstance(c.type, TupleType) else c.type.elements[0]):
            state.held[name] = Held(b, without_axis(s, axis, keep))
        else:
            state.put(n.Let((name,), build.load(n.Region(b))))


def _is_power(x: int) -> bool:
    return x & (x - 1) == 0


def _over_own(state: State, args: Sequence[n.Expr], arg: bool, fold: Folding, s: Spread, axis: int,
              buffers: Sequence[n.Buffer]) -> tuple[list[n.Var], list[n.Expr]]:
    """Each thread over the elements that it holds."""
    variables, values = slot_variables(state, s)
    dims = [d for d in reversed(s.slots) if d.extent > 1]
    along = [(v, d.extent) for v, d in zip(variables, dims, strict=True) if d.axis == axis]
    others = [(v, d.extent) for v, d in zip(variables, dims, strict=True) if d.axis != axis]
    into = [place(b, [v for v, _ in others]) for b in buffers]
    shape = shape_known(args[0])

    def here(slot: list[n.Expr]) -> Parts:
        need = of_spread(s, state.lane, slot)
        parts = tuple(element(state, a, need.fitted(shape_known(a))) if isinstance(a.type, TileType) else a for a in args)
        return (*parts, need.coordinates[axis]) if arg else parts
    del shape
    if fold.start is not None:
        body: n.Block = tuple(n.Store(r, e) for r, e in zip(into, fold.start, strict=True))
        update = _update(state, into, fold.combine(tuple(build.load(r) for r in into), here(values)))
        allocs = tuple(n.Alloc(b, fold.start[k]) for k, b in enumerate(buffers))
        del body
        state.put(*allocs, *looped(looped(update, along), others))
        return variables, values
    first = [const(0) if any(v is w for w, _ in along) else v for v in values]
    starting = tuple(n.Store(r, e) for r, e in zip(into, here(first), strict=True))
    total = math.prod(extent for _, extent in along)
    body = starting
    if total > 1:
        q = n.Var(state.fresh("i"), I32)
        digits = [Digit(extent, STILL, 0) for _, extent in reversed(along)]
        by_name = {v.name: e for (v, _), e in zip(reversed(along), digits_of(q, digits), strict=True)}
        update = _update(state, into, fold.combine(tuple(build.load(r) for r in into), here(values)))
        inner = tuple(substitute(x, by_name) for x in update)
        body = (*starting, n.For(q, const(1), const(total), const(1), inner, "unroll", n.attrs(factor=total - 1)))
    state.put(*(n.Alloc(b) for b in buffers), *looped(body, others))
    return variables, values


def _placed(s: Spread) -> list[tuple[int, Digit]]:
    """The digits of the thread with the number of threads below each, split where a warp ends."""
    out, below = [], 1
    for d in s.threads:
        inside = max(1, min(d.extent, WARP // below)) if below < WARP else d.extent
        if below < WARP < below * d.extent:
            if WARP % below or d.extent % inside:
                raise refuse("a layout whose digits do not end where a warp does")
            out.append((below, Digit(inside, d.axis, d.step)))
            out.append((below * inside, Digit(d.extent // inside, d.axis, d.step * inside)))
        else:
            out.append((below, d))
        below *= d.extent
    return out


def _over_lanes(state: State, fold: Folding, s: Spread, axis: int, kept: Spread, buffers: Sequence[n.Buffer]) -> None:
    for below, d in _placed(s):
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
        body = (*lets, *_update(state, into, fold.combine(tuple(build.load(r) for r in into), others)))
        block = looped(body, list(zip(variables, extents, strict=True)))
        state.put(*(looped(block, [(step, rounds)]) if rounds > 1 else block))


def _over_warps(state: State, fold: Folding, s: Spread, axis: int, kept: Spread, buffers: Sequence[n.Buffer]) -> None:
    far = [(below, d) for below, d in _placed(s) if d.axis == axis and below >= WARP and d.extent > 1]
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
    for below, d in _placed(s):
        if (d.axis == STILL or d.axis == axis and below < WARP) and d.extent > 1:
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
    start = tuple(n.Store(r, build.load(build.region(m, at))) for m, r in zip(memory, into, strict=True))
    parts = tuple(build.load(build.region(m, add(at, mul(w, size)))) for m in memory)
    update = _update(state, into, fold.combine(tuple(build.load(r) for r in into), parts))
    rest = n.For(w, const(1), const(count), const(1), update, "unroll", n.attrs(factor=count - 1))
    state.put(*looped((*start, rest), loops))


# ------------------------------------------------------------------------------------------------------------------------- scans

def _scan(state: State, names: tuple[str, ...], c: n.Call) -> None:
    """Along an axis: each thread over a run of its own, then over the totals of the runs before it."""
    attrs = dict(c.attrs)
    axis, reverse = int(attrs.get("axis", 0)), bool(attrs.get("reverse"))
    args = [a for a in c.args if isinstance(a, n.Expr)]
    fold = folding(state, c)
    if str(attrs.get("op", "")) in ("argmax", "argmin"):
        raise refuse("a scan of positions")
    shape = shape_known(args[0])
    s = _runs(state, shape, axis)
    from kir.lowering.statements import named
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
        update = _update(state, [at(b, here) for b in buffers], fold.combine(
            tuple(build.load(at(b, before)) for b in buffers), tuple(build.load(at(b, here)) for b in buffers)))
        state.put(*looped((n.For(q, const(1), const(run), const(1), update, "unroll", n.attrs(factor=run - 1)),), others))
    far = [(below, d) for below, d in _placed(s) if d.axis == axis and d.extent > 1]
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
    if not _is_power(across):
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
        update = _update(state, into, fold.combine(shuffled, tuple(build.load(r) for r in into)))
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
    inner = [(b, x) for b, x in _placed(s) if x.axis == axis and b < below and x.extent > 1]
    guard: n.Expr | None = None
    for b, x in [*inner, *((b, x) for b, x in _placed(s) if x.axis == STILL and x.extent > 1)]:
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
    update = _update(state, into, fold.combine(tuple(build.load(r) for r in into), parts))
    walk_ = n.For(w, const(1), place_in, const(1), update)
    final = n.If(build.compare("gt", place_in, 0), (
        *start, walk_, *_onto(state, fold, buffers, at, tuple(build.load(r) for r in into), along, run)))
    state.put(*looped((final,), others))


def _onto(state: State, fold: Folding, buffers: Sequence[n.Buffer], at: Callable[[n.Buffer, n.Expr], n.Region], before: Parts,
          along: Sequence[tuple[n.Var, int]], run: int) -> n.Block:
    """What came before combined into every element of a thread's run."""
    if run == 1:
        return _update(state, [at(b, const(0)) for b in buffers], fold.combine(before, tuple(build.load(at(b, const(0))) for b in buffers)))
    v = n.Var(state.fresh("i"), I32)
    into = [at(b, v) for b in buffers]
    return looped(_update(state, into, fold.combine(before, tuple(build.load(r) for r in into))), [(v, run)])


# ---------------------------------------------------------------------------------------------------- elements from anywhere

def _gather(state: State, name: str, c: n.Call) -> None:
    """Elements of a tile at indices along an axis."""
    from kir.lowering.statements import bind_elements
    x, indices = (a for a in c.args if isinstance(a, n.Expr))
    axis = int(dict(c.attrs).get("axis", 0))
    read = addressed(state, x)

    def value(need: Need) -> n.Expr:
        at = list(need.coordinates)
        at[axis] = element(state, indices, need)
        return read(at)
    bind_elements(state, name, dtype_of(c.type), suggested(state, indices), value)


def _cat(state: State, name: str, c: n.Call) -> None:
    """Tiles one after the other along an axis."""
    from kir.lowering.choice import for_memory
    from kir.lowering.statements import bind_elements
    args = [a for a in c.args if isinstance(a, n.Expr)]
    axis, shape = int(dict(c.attrs).get("axis", 0)), shape_known(c)
    parts = [(addressed(state, a), shape_known(a)[axis]) for a in args]

    def value(need: Need) -> n.Expr:
        at, out, end = list(need.coordinates), None, shape[axis]
        for read, extent in reversed(parts):
            end -= extent
            own = [*at[:axis], build.sub(at[axis], end), *at[axis + 1:]]
            limit = const(extent - 1)
            own[axis] = build.maximum(build.minimum(own[axis], limit), const(0))
            found = read(own)
            out = found if out is None else build.select(build.compare("ge", at[axis], end + extent), out, found)
        assert out is not None
        return out
    bind_elements(state, name, dtype_of(c.type), for_memory(state, shape, []), value)


def _histogram(state: State, name: str, c: n.Call) -> None:
    """Counts by atomics in shared memory."""
    from kir.lowering.choice import for_memory
    from kir.lowering.statements import bind_elements, named
    x = next(a for a in c.args if isinstance(a, n.Expr))
    x = named(state, x)
    (bins,), dtype = shape_known(c), dtype_of(c.type)
    if state.team != state.threads:
        raise refuse("a histogram of a part of the CTA")
    memory = state.scratch_for(dtype, bins)
    clear = for_memory(state, (bins,), [])
    variables, values = slot_variables(state, clear)
    loops = list(zip(variables, [d.extent for d in reversed(clear.slots) if d.extent > 1], strict=True))
    state.touch(n.Region(memory), "write")
    zero = n.Store(build.region(memory, of_spread(clear, state.lane, values).coordinates[0]), const(0, dtype))
    state.put(*guarded(clear.first_copy(state.lane), looped((zero,), loops)))
    s = suggested(state, x)
    variables, values = slot_variables(state, s)
    loops = list(zip(variables, [d.extent for d in reversed(s.slots) if d.extent > 1], strict=True))
    v = build.cast(element(state, x, of_spread(s, state.lane, values)), I32)
    state.touch(n.Region(memory), "atomic")
    count = n.Eval(build.call("atomic_add", build.region(memory, v), const(1, dtype)))
    inside = build.logical_and(build.compare("ge", v, 0), build.compare("lt", v, bins))
    state.put(*guarded(s.first_copy(state.lane), looped((n.If(inside, (count,)),), loops)))
    state.touch(n.Region(memory), "read")
    bind_elements(state, name, dtype, clear, lambda need: build.load(build.region(memory, need.coordinates[0])))


# ----------------------------------------------------------------------------------------------------------------------- atomics

def atomic(state: State, name: str | None, c: n.Call, label: str | None) -> None:
    """An atomic operation, once for each element; its old values are kept where a name asks for them."""
    r = c.args[0]
    assert isinstance(r, n.Region)
    operands = [a for a in c.args[1:] if isinstance(a, n.Expr)]
    if r.buffer.name in state.held:
        raise refuse("an atomic operation on a fragment", "shared or global memory")
    wanted = 2 if c.fn == "atomic_cas" else 1
    mask = operands[wanted] if len(operands) > wanted else None
    dtype = r.buffer.dtype
    if not isinstance(r.type, TileType) and not any(isinstance(a.type, TileType) for a in operands):
        for a in operands:
            state.touch_all(a)
        state.touch(r, "atomic")
        _alone(state, name, replace(c, args=(r, *operands[:wanted])), mask, dtype, label)
        return
    shape = shape_known(r)
    from kir.lowering.choice import _axes, for_memory
    from kir.lowering.statements import _full
    s = next((x for a in operands for x in _full(state, a, shape)), None) or for_memory(state, shape, [(r, _axes(r), True)])
    buffer = None if name is None else register(name, dtype, s)
    if buffer is not None and s.first_copy(state.lane) is not None:
        raise refuse("an atomic operation whose old values several threads want", "a tile of at least one element a thread")
    variables, values = slot_variables(state, s)
    need = of_spread(s, state.lane, values)

    def own(a: n.Expr) -> n.Expr:
        return element(state, a, need.fitted(shape_known(a))) if isinstance(a.type, TileType) else a
    made = replace(c, args=(element_place(state, r, need, "atomic"), *map(own, operands[:wanted])))
    body: n.Block = (n.Eval(made, label=label),)
    if buffer is not None:
        old = state.fresh("old")
        body = (n.Let((old,), made, label=label), n.Store(place(buffer, list(variables)), n.Var(old, dtype)))
    body = guarded(None if mask is None else own(mask), body)
    loops = list(zip(variables, [d.extent for d in reversed(s.slots) if d.extent > 1], strict=True))
    if buffer is not None:
        state.put(n.Alloc(buffer, None if mask is None else const(0, dtype)), *looped(body, loops))
        assert name is not None
        state.held[name] = Held(buffer, s)
    else:
        state.put(*guarded(s.first_copy(state.lane), looped(body, loops)))
    state.forget(r.buffer.name)


def _alone(state: State, name: str | None, c: n.Call, mask: n.Expr | None, dtype: DType, label: str | None) -> None:
    """An atomic operation that the team does once: by its first thread, which tells the others the old value."""
    first = build.compare("eq", state.lane, 0)
    first = first if mask is None else build.logical_and(first, mask)
    if name is None:
        state.put(n.If(first, (n.Eval(c, label=label),)))
        return
    memory = state.scratch_for(dtype, state.threads // state.team)
    at = build.region(memory, const(0) if state.team == state.threads else build.floordiv(state.thread, state.team))
    old = state.fresh("old")
    state.touch(at, "write")
    state.put(n.If(first, (n.Let((old,), c, label=label), n.Store(at, n.Var(old, dtype)))))
    state.touch(at, "read")
    state.put(n.Let((name,), build.load(at)))
