"""Tile expressions as what one thread computes for one slot: elements of operands in its registers, in memory, or on their way there."""
from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from kir.analysis.elements import NotElementwise
from kir.analysis.elements import element as scalar_of
from kir.analysis.tiles.fragments import STILL, Digit, extents_of
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import add, const, int_value, mul
from kir.ir.printer import expr_text
from kir.ir.types import DType, TileType, dtype_of
from kir.ir.visit import substitute
from kir.surface.lowering.registers.choice import suggested
from kir.surface.lowering.registers.element_demand import Need, of_spread, register_index
from kir.surface.lowering.registers.state import Held, Scratch, State, flat, guarded, looped, place, refuse, shape_known, slot_variables

ADVICE = ("multiple_of", "max_contiguous", "max_constancy")

def element(state: State, e: n.Expr, need: Need) -> n.Expr:
    """The element of `e` that a thread needs. Raises KirError KIR-B030 where `e` has no form for one thread."""
    def sub(x: n.Expr) -> n.Expr:
        return element(state, x, need.fitted(shape_known(x)))

    if not isinstance(e.type, TileType):
        return e
    match e:
        case n.Var():
            return _of_value(state, e, need)
        case n.Unary():
            return build.unary(e.op, sub(e.x))
        case n.Binary():
            return build.binary(e.op, sub(e.a), sub(e.b))
        case n.Select():
            return build.select(sub(e.cond), sub(e.a), sub(e.b))
        case n.Cast():
            return build.cast(sub(e.x), e.dtype, e.rounding)
        case n.Load():
            return _of_load(state, e, need)
        case n.Call():
            return _of_call(state, e, need)
        case _:
            raise refuse(f"{expr_text(e)} has no form for one thread")


def _of_value(state: State, e: n.Var, need: Need) -> n.Expr:
    if e.name not in state.held:
        raise refuse(f"'{e.name}' is a tile that was not lowered")
    held = state.held[e.name]
    index = own_registers(state, held, need)
    if index is not None:
        return build.load(place(held.buffer, index))
    return addressed(state, e)(need.coordinates)


def own_registers(state: State, held: Held, need: Need) -> tuple[n.Expr, ...] | None:
    """Where the thread has the needed elements in its own registers."""
    if held.spread.team != state.team and held.spread.team == state.threads:
        need = widened(state, need)
    return register_index(held.spread, need)


def widened(state: State, need: Need) -> Need:
    """A need of a sub-team as one of the whole CTA."""
    digit = Digit(state.threads // state.team, STILL, 0)
    return replace(need, thread=state.thread, threads=(*need.threads, digit), base=tuple(substitute(b, state.warp) for b in need.base))


def _of_load(state: State, e: n.Load, need: Need) -> n.Expr:
    held = state.held.get(e.at.buffer.name)
    if held is not None:
        inner = region_need(e.at, need)
        index = own_registers(state, held, inner) if inner is not None else None
        if index is not None:
            return build.load(place(held.buffer, index))
        whole = build.load(n.Region(e.at.buffer))
        at = element_place(state, e.at, need)
        return addressed(state, whole)([i for i in at.index if isinstance(i, n.Expr)])
    at = element_place(state, e.at, need, "read")
    def sub(x: n.Expr | None) -> n.Expr | None:
        return None if x is None else element(state, x, need.fitted(shape_known(x)))
    return build.load(at, sub(e.mask), sub(e.other), e.clip, e.cache)


def region_need(r: n.Region, need: Need) -> Need | None:
    """What is wanted of a whole fragment, from what is wanted of a region of it; None for steps that are not known."""
    if not r.index:
        return need
    shape = extents_of(r.buffer.shape)
    if shape is None:
        return None
    axes, steps, base = [], [], []
    for axis, i in enumerate(r.index):
        if not isinstance(i, n.Span):
            if isinstance(i.type, TileType):
                return None
            base.append(i)
            continue
        step = int_value(i.step)
        if step is None:
            return None
        axes.append(axis)
        steps.append(step)
        base.append(i.lo)
    return need.shifted(shape, axes, base, steps)


def element_place(state: State, r: n.Region, need: Need, kind: str = "") -> n.Region:
    """The place of a thread's element in a region of memory; with `kind` the touch is noted."""
    if kind:
        gathers = any(isinstance(i, n.Expr) and isinstance(i.type, TileType) for i in r.index)
        state.touch(r, kind, None if gathers else need)
    coordinates = list(need.coordinates)
    if not r.index:
        return viewed(state, r.buffer, *(build.cast(c, _index_dtype(d)) for c, d in zip(coordinates, r.buffer.shape, strict=True)))
    spans = any(isinstance(i, n.Span) for i in r.index)
    out: list[n.Expr] = []
    for i in r.index:
        if isinstance(i, n.Span):
            dtype = _index_dtype(i.lo)
            step = const(i.step, dtype) if isinstance(i.step, int) else i.step
            out.append(add(i.lo, mul(build.cast(coordinates.pop(0), dtype), step)))
        elif spans or not isinstance(i.type, TileType):
            out.append(i)
        else:
            out.append(element(state, i, need.fitted(shape_known(i))))
    return viewed(state, r.buffer, *out)


def viewed(state: State, b: n.Buffer, *index: n.Expr) -> n.Region:
    """A place in a buffer; in what is viewed, where the buffer is a view of shared memory."""
    view = state.views.get(b.name)
    if view is None:
        return build.region(b, *index)
    made = substitute(view.at, dict(zip(view.axes, index, strict=True)))
    assert isinstance(made, n.Region)
    return build.region(made.buffer, *(substitute(i, {}) for i in made.index))


def _index_dtype(e: n.Expr) -> DType:
    return dtype_of(e.type)


def _of_call(state: State, e: n.Call, need: Need) -> n.Expr:
    args = [a for a in e.args if isinstance(a, n.Expr)]
    attrs = dict(e.attrs)
    match e.fn if e.of is None else "":
        case "iota":
            return need.coordinates[0]
        case "expand":
            return element(state, args[0], need.without(int(attrs["axis"])))
        case "broadcast":
            return element(state, args[0], need.fitted(shape_known(args[0])))
        case "trans":
            return element(state, args[0], need.permuted([int_value(a) or 0 for a in args[1:]]))
        case "reshape":
            inner = need.reshaped(shape_known(args[0]))
            if inner is not None:
                return element(state, args[0], inner)
            number = flat(need.coordinates, need.shape)
            return addressed(state, args[0])(unflattened(number, shape_known(args[0])))
        case "join":
            last = need.coordinates[-1]
            parts = [element(state, a, need.without(len(need.shape) - 1).fitted(shape_known(a))) for a in args]
            out = parts[-1]
            for k in reversed(range(len(parts) - 1)):
                out = build.select(build.compare("eq", last, k), parts[k], out)
            return out
        case "pick":
            moved = _picked(e, need)
            if moved is not None:
                return element(state, args[0], moved)
            return addressed(state, args[0])([element(state, i, need.fitted(shape_known(i))) for i in args[1:]])
        case name if name in ADVICE:
            return element(state, args[0], need.fitted(shape_known(args[0])))
        case _:
            pass
    row = instruction(e.fn) if e.of is None else None
    if row is None or row.level != "element" or row.effect or len(args) != len(e.args):
        raise refuse(f"'{e.fn}' of a tile has no form for one thread")
    values = tuple(element(state, a, need.fitted(shape_known(a))) for a in args)
    return build.call_with(e.fn, values, e.attrs)


def _picked(e: n.Call, need: Need) -> Need | None:
    """What is wanted of a tile of which elements are picked at literals, and along axes of this one; None for other indices."""
    x, *index = [a for a in e.args if isinstance(a, n.Expr)]
    axes = [n.Var(f"%{k}", dtype_of(const(0).type)) for k in range(len(need.shape))]
    move, base = [STILL] * len(axes), []
    shape = shape_known(x)
    for dim, i in enumerate(index):
        if int_value(i) is not None:
            base.append(i)
            continue
        try:
            at = scalar_of(i, axes[len(axes) - len(shape_known(i)):]) if isinstance(i.type, TileType) else i
        except NotElementwise:
            return None
        axis = next((k for k, v in enumerate(axes) if v == at), None)
        if axis is None or move[axis] != STILL or need.shape[axis] != shape[dim]:
            return None
        move[axis] = dim
        base.append(need.base[axis])
    return need.moved(shape, move, tuple(base))


def unflattened(number: n.Expr, shape: Sequence[int]) -> list[n.Expr]:
    """The index of a row-major number."""
    out = []
    for axis, extent in enumerate(shape):
        below = math.prod(shape[axis + 1:])
        value = build.floordiv(number, below) if below > 1 else number
        out.append(value if axis == 0 else build.mod(value, extent))
    return out


class addressed:
    """A tile as something that can be read at any index: memory where it lies there, else scratch memory that it is put in first
    (with `spill`, also what lies in other memory)."""

    def __init__(self, state: State, e: n.Expr, spill: bool = False) -> None:
        self.load: n.Load | None = None
        self.state, self.shape = state, shape_known(e)
        if not spill and isinstance(e, n.Load) and e.at.buffer.name not in state.held and e.mask is None and not any(
                isinstance(i, n.Expr) and isinstance(i.type, TileType) for i in e.at.index):
            self.load = e
            state.touch(e.at, "read")
            return
        self.buffer = _spilled(state, e)

    def __call__(self, index: Sequence[n.Expr]) -> n.Expr:
        """The element at an index."""
        if self.load is not None:
            r = self.load.at
            coordinates = list(index)
            whole: tuple[n.Expr | n.Span, ...] = r.index or tuple(n.Span(const(0, dtype_of(d.type)), d) for d in r.buffer.shape)
            at: list[n.Expr] = []
            for i in whole:
                if isinstance(i, n.Span):
                    dtype = dtype_of(i.lo.type)
                    step = const(i.step, dtype) if isinstance(i.step, int) else i.step
                    at.append(add(i.lo, mul(build.cast(coordinates.pop(0), dtype), step)))
                else:
                    at.append(i)
            return build.load(viewed(self.state, r.buffer, *at), None, self.load.other, self.load.clip, self.load.cache)
        number = flat([build.cast(i, dtype_of(const(0).type)) for i in index], self.shape)
        self.state.touch(n.Region(self.buffer), "read")
        return build.load(build.region(self.buffer, add(number, _own_part(self.state, self.shape))))


@contextmanager
def within_reach(state: State, names: Iterable[str]) -> Iterator[None]:
    """Fragments of these names put into scratch memory, which nothing else uses until the end of the block."""
    mine = [name for name in names if name not in state.kept]
    kept: list[tuple[int, Scratch]] = []
    for name in mine:
        buffer = _spilled(state, n.Load(n.Region(state.fragments[name])))
        at = next(i for i, s in enumerate(state.scratch) if s.name == buffer.name)
        kept.append((at, state.scratch.pop(at)))
        state.kept[name] = buffer
    yield
    for name, (at, scratch) in reversed([*zip(mine, kept, strict=True)]):
        del state.kept[name]
        scratch.holds = None
        state.scratch.insert(at, scratch)


def _own_part(state: State, shape: Sequence[int]) -> n.Expr:
    """Where a sub-team's part of scratch memory begins."""
    if state.team == state.threads:
        return const(0)
    return mul(build.floordiv(state.thread, state.team), math.prod(shape))


def _spilled(state: State, e: n.Expr) -> n.Buffer:
    """Scratch memory that holds a tile, put there now if it does not lie there already."""
    if state.alone:
        raise refuse("an element that another thread holds")
    if isinstance(e, n.Load) and not e.at.index and e.at.buffer.name in state.kept:
        return state.kept[e.at.buffer.name]
    found = next((s for s in state.scratch if s.holds is not None and s.holds == e), None)
    if found is not None:
        state.busy.add(found.name)
        return n.Buffer(found.name, found.dtype, (const(0),), "shared")
    shape, dtype = shape_known(e), dtype_of(e.type)
    s = suggested(state, e)
    outer, state.touches = state.touches, set()
    variables, values = slot_variables(state, s)
    need = of_spread(s, state.lane, values)
    value = element(state, e, need)
    held_for_all = state.team == state.threads
    buffer = state.scratch_for(dtype, math.prod(shape) * (state.threads // state.team), e if held_for_all else None)
    at = build.region(buffer, add(flat(need.coordinates, shape), _own_part(state, shape)))
    state.touch(at, "write")
    extents = [d.extent for d in reversed(s.slots) if d.extent > 1]
    body = looped((n.Store(at, value),), list(zip(variables, extents, strict=True)))
    state.put(*guarded(s.first_copy(state.lane), body))
    state.touches = outer
    return buffer
