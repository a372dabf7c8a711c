"""Names that are rebound: a new name where that says it, a buffer where control flow needs one."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, dtype_of, shape_of

from ..state import joins
from ..state.naming import named
from ..state.state import State
from ..types.shapes import may_stretch, stretched
from ..values import operators
from ..values.emitter import buffer_read, mentions
from ..values.values import BlockPointer, Choice, Items, NotUnderstood, Pointer, Run, Value, is_number

MOST_ARMS = 12
"""Tiles of other extents that a name may be given in a loop, by static conditions: each is stored under its own."""


def accumulate_in_place(r: State, name: str, old: Value, value: Run) -> bool:
    """`x = x + product` where x owns its buffer: the product goes into it directly."""
    if not (isinstance(old, Run) and joins.is_own(r, old.expr, name)):
        return False
    return retarget(r, old.expr, value)


def retarget(r: State, old: n.Expr, value: Run) -> bool:
    """When the last two statements make a product with an accumulator that starts as some `e`, and `value` is that product: write it to
    the buffer that `old` reads, after storing `e` there unless it is `old` itself."""
    block_ = r.out.block
    made, target = buffer_read(value.expr), buffer_read(old)
    if made is None or target is None or made == target or len(block_) < 2 or (made.dtype, made.shape) != (target.dtype, target.shape):
        return False
    alloc, mma = block_[-2], block_[-1]
    if not (
        isinstance(alloc, n.Alloc) and alloc.buffer == made and isinstance(mma, n.Mma) and mma.acc.buffer == made and alloc.init is not None
    ):
        return False
    if alloc.init != old and (mentions(mma.a, {target.name}) or mentions(mma.b, {target.name})):
        return False
    del block_[-2:]
    if alloc.init != old:
        r.out.emit(n.Store(n.Region(target), alloc.init))
    r.out.emit(n.Mma(n.Region(target), mma.a, mma.b, mma.via, mma.precision, mma.pending, mma.attrs, mma.label, mma.origin))
    return True


def store_cell(r: State, name: str, cell: Value, value: Value) -> Value:
    """Write a value to the buffers of a mutable name. A value of another type asks for another reading of the loop (`retyped`)."""
    match cell:
        case Run():
            if isinstance(value, Choice):
                made = joins.over(r, (value,), lambda v: v)
                if isinstance(made, Choice):
                    return _by_arms(r, name, cell, made)
                value = made
            return store_number(r, name, cell, value)
        case Pointer() if isinstance(value, Pointer) and value.base == cell.base:
            offset = operators.flat(value)
            store_number(r, name, Run(cell.terms[0]), Run(build.cast(offset, dtype_of(cell.terms[0].type))))
            return cell
        case BlockPointer() if isinstance(value, BlockPointer) and value.base == cell.base and value.block == cell.block:
            for a, b in zip(cell.offsets, value.offsets, strict=True):
                if a != b:
                    if buffer_read(a) is None:
                        raise NotUnderstood(f"'{name}' moves along an axis that its loop does not expect")
                    store_number(r, name, Run(a), Run(b))
            return cell
        case Items() if isinstance(value, Items) and len(value.items) == len(cell.items):
            values = [named(r, name, v) for v in value.items]
            return replace(cell, items=tuple(store_cell(r, name, c, v) for c, v in zip(cell.items, values, strict=True)))
        case Choice(static=False, a=Pointer(), b=Pointer()) if _is_mutable(r, cell.cond):
            return _store_between(r, name, cell, value)
        case Choice() if (decided := r.paths.decide(cell.cond)) is not None:
            store_cell(r, name, cell.a if decided else cell.b, value)
            return cell
        case Choice():

            def arm(which: Value, outcome: bool) -> Callable[[], Value]:
                def go() -> Value:
                    return store_cell(
                        r,
                        name,
                        which,
                        joins.over(r, (value,), lambda v: v)
                        if not isinstance(value, Choice)
                        else value.a
                        if value.cond == cell.cond and outcome
                        else value.b
                        if value.cond == cell.cond
                        else value,
                    )

                return go

            with r.paths.under(cell.cond, True), r.out.capture() as block_a:
                arm(cell.a, True)()
            with r.paths.under(cell.cond, False), r.out.capture() as block_b:
                arm(cell.b, False)()
            joins.emit_if(r, cell.cond, block_a, block_b, cell.static)
            return cell
        case _:
            if cell == value:
                return cell
            r.retyped[name] = value
            raise Retyped()


def _is_mutable(r: State, cond: n.Expr) -> bool:
    """Whether a condition is what a buffer holds at the moment."""
    held = buffer_read(cond)
    return held is not None and held.name in r.out.mutable


def _store_between(r: State, name: str, cell: Choice, value: Value) -> Value:
    """Let a pointer that moves between two tensors point where `value` does."""
    if isinstance(value, Choice) and not value.static:
        blocks = []
        for arm, outcome in ((value.a, True), (value.b, False)):
            with r.paths.under(value.cond, outcome), r.out.capture() as block_:
                _store_between(r, name, cell, arm)
            blocks.append(block_)
        joins.emit_if(r, value.cond, blocks[0], blocks[1], static=False)
        return cell
    into = next((p for p in (cell.a, cell.b) if isinstance(p, Pointer) and isinstance(value, Pointer) and p.base == value.base), None)
    if into is None:
        r.retyped[name] = value
        raise Retyped()
    store_cell(r, name, into, value)
    store_number(r, name, Run(cell.cond), Run(build.const(into == cell.a, BOOL)))
    return cell


def _leaves(v: Value) -> int:
    return _leaves(v.a) + _leaves(v.b) if isinstance(v, Choice) else 1


def _by_arms(r: State, name: str, cell: Run, value: Choice) -> Value:
    """Store tiles whose extents a static condition chooses, each under its own."""
    if not value.static or _leaves(value) > MOST_ARMS:
        raise NotUnderstood(f"'{name}' is of several kinds in a loop")
    blocks = []
    for arm, outcome in ((value.a, True), (value.b, False)):
        with r.paths.under(value.cond, outcome), r.out.capture() as block_:
            if isinstance(arm, Choice):
                store_cell(r, name, cell, arm)
            else:
                store_number(r, name, cell, arm)
        blocks.append(block_)
    joins.emit_if(r, value.cond, blocks[0], blocks[1], static=True)
    return cell


class Retyped(NotUnderstood):
    """A mutable name took a value of another type: its loop is read again with that type."""

    def __init__(self) -> None:
        super().__init__("a name changes its type in a loop")


def store_number(r: State, name: str, cell: Run, value: Value) -> Value:
    """Store a number in the buffer that `cell` reads."""
    buffer = buffer_read(cell.expr)
    assert buffer is not None
    if not (isinstance(value, Run) or is_number(value)):
        r.retyped[name] = value
        raise Retyped()
    if isinstance(value, Run) and retarget(r, cell.expr, value):
        return cell
    weak = buffer.name in r.weak
    if is_number(value):
        if joins.is_float(value) and not (buffer.dtype.is_float or buffer.dtype.is_symbolic):
            r.retyped[name] = Run(operators.run(value))
            raise Retyped()
        e = operators.number(value, buffer.dtype)
    else:
        assert isinstance(value, Run)
        e = value.expr
        if dtype_of(e.type) != buffer.dtype:
            if weak:
                r.retyped[name] = value
                raise Retyped()
            if not (buffer.dtype.is_symbolic or dtype_of(e.type).is_symbolic) and dtype_of(e.type).is_float != buffer.dtype.is_float:
                raise NotUnderstood(f"'{name}' is {buffer.dtype} before the loop and {dtype_of(e.type)} in it")
            e = build.cast(e, buffer.dtype)
    if shape_of(e.type) != shape_of(cell.expr.type):
        if shape_of(e.type) and not shape_of(cell.expr.type):
            r.retyped[name] = Run(e)
            raise Retyped()
        if not may_stretch(shape_of(e.type), shape_of(cell.expr.type)):
            r.retyped[name] = Run(e)
            raise Retyped()
        e = stretched(e, shape_of(cell.expr.type))
    if e != cell.expr:
        r.out.emit(n.Store(n.Region(buffer), e))
    return cell
