"""How a tile is distributed over threads when the program does not say: after its largest operand in registers, else for coalesced vectors.

Default: neighboring threads take neighboring vectors of the axis that is contiguous in memory, the widest vectors (up to 16 bytes) that
are proved aligned and leave every thread one; threads that are left over hold copies.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kir.analysis.tiles.fragments import STILL, Digit, Spread
from kir.ir import nodes as n
from kir.ir.build import int_value, is_const, mul
from kir.ir.types import TileType, dtype_of
from kir.ir.visit import children, walk
from kir.surface.lowering.registers import element_demand as needs
from kir.surface.lowering.registers.state import MOST_SLOTS, State, refuse, shape_known

MOST_OF_ONE = 1 << 15
"""Elements of one tile that the only thread of a CTA may hold: in loops that are not unrolled, in its local memory (512 KiB a thread, CUDA C++
programming guide, compute capabilities)."""


def distributed(shape: Sequence[int], threads: int, order: Sequence[int], width: int = 1) -> Spread:
    """The default: vectors of `width` along `order[0]`, then threads along the axes in order (fastest first), then what is left."""
    left, step = list(shape), [1] * len(shape)
    slots: list[Digit] = []
    if width > 1:
        slots.append(Digit(width, order[0], 1))
        left[order[0]] //= width
        step[order[0]] = width
    rest, dealt_out = threads, []
    for axis in order:
        here = math.gcd(rest, left[axis])
        if here > 1:
            dealt_out.append(Digit(here, axis, step[axis]))
            rest //= here
            left[axis] //= here
            step[axis] *= here
    if rest > 1:
        dealt_out.append(Digit(rest, STILL, 0))
    slots += [Digit(left[axis], axis, step[axis]) for axis in order if left[axis] > 1]
    made = Spread(tuple(shape), tuple(dealt_out), tuple(slots))
    most = MOST_OF_ONE if threads == 1 else MOST_SLOTS
    if made.size > most:
        raise refuse(f"a tile of {' x '.join(map(str, shape))} over {threads} threads is {made.size} elements a thread",
                     f"at most {most}: smaller tiles, more threads, or extents that share factors with the threads")
    return made


def suggested(state: State, e: n.Expr, *also: n.Region) -> Spread:
    """How to distribute the tile `e` (which is stored to the regions `also`)."""
    shape = shape_known(e)
    for firm in (True, False):
        for candidate in matching(state, e, shape, firm):
            return candidate
    return for_memory(state, shape, [*accesses(state, e, list(range(len(shape)))), *((r, own_axes(r), clip) for r, clip in (
        (r, False) for r in also))])


def matching(state: State, value: n.Expr, shape: tuple[int, ...], firm: bool = False) -> list[Spread]:
    """What operands in registers suggest for a store of that shape; with `firm` only those whose own distribution is more than a default."""
    if not isinstance(value.type, TileType):
        return []
    return [c for c in held_by(state, value, firm) if c.shape == shape and c.team == state.team]


def rows_of_a_product(state: State, extent: int) -> Spread | None:
    """How a value for each row of an accumulator is distributed: as the accumulator's rows are, with a copy in each thread of a row."""
    uses = [x for x in walk(state.kernel) if isinstance(x, n.Stmt)]
    products_of = {x.acc.buffer.name for x in uses if isinstance(x, n.Mma)}
    held = [(name, h) for name, h in state.held.items() if len(h.spread.shape) == 2 and h.spread.shape[0] == extent and h.spread.team == state.team]
    found = next((h for name, h in held if name in products_of), None) or next((h for name, h in held if added_product(uses, name)), None)
    return needs.without_axis(found.spread, 1) if found else None


def added_product(uses: Sequence[n.Stmt], name: str) -> n.Mma | None:
    """The product whose whole result, or what is computed from it element by element, is added to a fragment of the same extents."""
    made = {x.acc.buffer.name: x for x in uses if isinstance(x, n.Mma) and not x.acc.index}
    for x in uses:
        if not (isinstance(x, n.Store) and x.at == n.Region(to := x.at.buffer) and to.name == name):
            continue
        if isinstance(v := x.value, n.Binary) and v.op == "add" and v.a == n.Load(x.at):
            for y in walk(v.b):
                if isinstance(y, n.Load) and not y.at.index and y.at.buffer.name in made and y.at.buffer.shape == to.shape:
                    return made[y.at.buffer.name]
    return None


def own_axes(r: n.Region) -> list[int]:
    """The axes of a region's tile, one for each of its spans."""
    return list(range(len(shape_known(r))))


Found = tuple[n.Region, list[int], bool]
"""An access to memory: its place, the axis of the statement's tile for each axis of its own (-1: none), and whether it is clipped."""


def for_memory(state: State, shape: tuple[int, ...], found: Sequence[Found]) -> Spread:
    """The default distribution for accesses to memory."""
    order, width = list(reversed(range(len(shape)))), 1
    for r, axes, clip in found:
        if r.buffer.name in state.held or r.buffer.space not in ("global", "shared"):
            continue
        fastest = _contiguous(r, axes)
        if fastest is None or fastest < 0:
            continue
        wide = _width(state, r, shape[fastest], clip)
        if order[0] != fastest and width == 1:
            order = [fastest, *(a for a in order if a != fastest)]
        if order[0] == fastest:
            width = max(width, wide)
    total = math.prod(shape)
    while width > 1 and (total // width < state.team or shape[order[0]] % width):
        width //= 2
    return distributed(shape, state.team, order, width)


def _contiguous(r: n.Region, axes: Sequence[int]) -> int | None:
    """The axis of the statement's tile along which an access is contiguous."""
    b = r.buffer
    if any(isinstance(i, n.Expr) and isinstance(i.type, TileType) for i in r.index):
        return axes[-1] if axes else None
    if b.strides is not None and not is_const(b.strides[-1], 1):
        return None
    if not r.index:
        return axes[-1] if axes else None
    last = r.index[-1]
    return axes[-1] if isinstance(last, n.Span) and last.step == 1 else None


def _width(state: State, r: n.Region, extent: int, clip: bool) -> int:
    """The widest vector of an access, in elements, that is proved aligned and inside or outside as a whole."""
    b, facts = r.buffer, state.facts
    base = b.align or (16 if b.space == "shared" else b.dtype.bytes)
    if b.layout is not None and b.layout.name not in ("swizzle", "strides"):
        return 1
    limit = 16
    if b.layout is not None and b.layout.name == "swizzle":
        limit = min(limit, 1 << int(str(b.layout.args[1])))
    strides: list[n.Expr]
    if b.layout is not None and b.layout.name == "strides":
        numbers = [x for a in b.layout.args for x in (a if isinstance(a, tuple) else (a,)) if isinstance(x, int)]
        strides = [n.Const(x, dtype_of(d.type)) for x, d in zip(numbers, b.shape, strict=True)]
        if numbers[-1] != 1:
            return 1
    elif b.strides is not None:
        strides = list(b.strides)
    else:
        strides = []
        step: n.Expr = n.Const(1, dtype_of(b.shape[-1].type))
        for d in reversed(b.shape):
            strides.insert(0, step)
            step = mul(d, step) if d.type == step.type else step
    index = r.index or tuple(n.Span(n.Const(0, dtype_of(d.type)), d) for d in b.shape)
    for size in (16, 8, 4):
        count = size // b.dtype.bytes
        if size > limit or count < 2 or extent % count or base % size:
            continue
        lows = [i.lo if isinstance(i, n.Span) else i for i in index]
        if any(isinstance(lo.type, TileType) for lo in lows):
            return 1
        fits = all(facts.divides(count, s) or (facts.divides(count, mul(lo, s)) and not isinstance(i, n.Span))
                   for lo, s, i in zip(lows[:-1], strides[:-1], index[:-1], strict=True) if lo.type == s.type)
        whole = not clip or facts.divides(count, b.shape[-1])
        if fits and whole and facts.divides(count, lows[-1]):
            return count
    return 1


def accesses(state: State, e: n.Expr, axes: list[int]) -> Iterator[Found]:
    """The accesses to memory of a tile expression; `axes` are those of the statement's tile for each of `e`'s own."""
    if not isinstance(e.type, TileType):
        return
    match e:
        case n.Load():
            yield e.at, axes, e.clip or e.mask is not None
        case n.Call() if e.fn == "trans" and e.of is None:
            order = [int_value(a) or 0 for a in e.args[1:] if isinstance(a, n.Expr)]
            x = e.args[0]
            assert isinstance(x, n.Expr)
            yield from accesses(state, x, [axes[order.index(a)] for a in range(len(order))])
        case n.Call() if e.fn == "expand" and e.of is None:
            axis, x = int(dict(e.attrs)["axis"]), e.args[0]
            assert isinstance(x, n.Expr)
            yield from accesses(state, x, axes[:axis] + axes[axis + 1:])
        case n.Call() if e.fn in ("reshape", "pick", "reduce", "scan", "gather") and e.of is None:
            return
        case _:
            for part in children(e):
                if isinstance(part, n.Expr) and isinstance(part.type, TileType):
                    rank = len(part.type.shape)
                    yield from accesses(state, part, axes[len(axes) - rank:])


def part_of(whole: Spread, r: n.Region) -> Spread | None:
    """How a region of a fragment is distributed, when every thread holds a part of it: the digits below its extents. None where it is not."""
    if any(not isinstance(i, n.Span) or int_value(i.step) != 1 for i in r.index):
        return None
    shape = shape_known(r)
    if any(d.axis >= 0 and d.step * d.extent > shape[d.axis] for d in whole.threads):
        return None
    slots = []
    for d in whole.slots:
        extent = min(d.extent, max(1, shape[d.axis] // d.step))
        if shape[d.axis] % (d.step * extent):
            return None
        slots.append(Digit(extent, d.axis, d.step))
    made = Spread(shape, whole.threads, tuple(d for d in slots if d.extent > 1))
    return made if made.size * made.team == math.prod(shape) else None


def held_by(state: State, e: n.Expr, firm: bool = False) -> Iterator[Spread]:
    """Spreads that operands in registers suggest for `e`, the best first."""
    match e:
        case n.Var():
            if e.name in state.held and not (firm and e.name in state.weak):
                yield state.held[e.name].spread
        case n.Load():
            if e.at.buffer.name in state.held and not (firm and e.at.buffer.name in state.weak):
                whole = state.held[e.at.buffer.name].spread
                part = whole if not e.at.index else part_of(whole, e.at)
                if part is not None:
                    yield part
        case n.Unary() | n.Cast():
            yield from held_by(state, e.x, firm)
        case n.Binary():
            yield from held_by(state, e.a, firm)
            yield from held_by(state, e.b, firm)
        case n.Select():
            for x in (e.a, e.b, e.cond):
                yield from held_by(state, x, firm)
        case n.Call() if e.of is None:
            yield from _by_call(state, e, firm)
        case _:
            return


def _by_call(state: State, e: n.Call, firm: bool) -> Iterator[Spread]:
    args = [a for a in e.args if isinstance(a, n.Expr)]
    inner = [s for a in args[:1] for s in held_by(state, a, firm)] if args else []
    shape = shape_known(args[0]) if args else ()
    match e.fn:
        case "expand":
            yield from (needs.with_axis(s, int(dict(e.attrs)["axis"])) for s in inner if s.shape == shape)
        case "trans":
            order = [int_value(a) or 0 for a in args[1:]]
            yield from (needs.permuted(s, order) for s in inner if s.shape == shape)
        case "reshape":
            made = [needs.reshaped(s, shape_known(e)) for s in inner if s.shape == shape]
            yield from (s for s in made if s is not None)
        case "join":
            for s in inner:
                if s.shape == shape:
                    yield Spread((*s.shape, len(args)), s.threads, (Digit(len(args), len(s.shape), 1), *s.slots))
        case "reduce" | "scan" | "gather" | "pick" | "iota":
            return
        case _:
            for a in args:
                yield from held_by(state, a, firm)
