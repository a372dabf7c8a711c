"""In checking mode: which values of a compiled loop are defined, where a load may leave one undefined.

A value that a select drops is not missed. What a store, a place, a mask, a branch, a bound or an assertion would make of an undefined one is for NumPy to
judge: the loop is then undone. `e` is the emitter of the loop (`kir.interp.native.emitter`), which has just worked out the value in question.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kir.interp.native.emitted import Slot
from kir.interp.native.scalars import Value
from kir.ir import nodes as n
from kir.ir.types import BOOL, dtype_of


def may_be(e: Any, x: n.Expr) -> bool:
    """Whether a value may be undefined."""
    if not e.of.checked:
        return False
    if id(x) in e.ready:
        return e.ready[id(x)].defined is not None
    match x:
        case n.Var():
            return e.env[x.name].defined is not None
        case n.Load():
            partial = x.mask is not None or x.clip
            return partial and (may_be(e, x.other) if x.other is not None else e.places[x.at.buffer.name][0].shown is None)
        case _:
            return any(may_be(e, part) for part in e.parts(x))


def defined(e: Any, x: n.Expr, lane: Value) -> Value | None:
    """Whether a value is defined in a lane (None: it always is)."""
    if not may_be(e, x):
        return None
    b, yes = e.b, e.c(1, e.s.ir.IntType(1))
    slot: Slot | None = e.ready.get(id(x)) or (e.env[x.name] if isinstance(x, n.Var) else None)
    if slot is not None:
        return e.get(slot.defined, lane)
    match x:
        case n.Load():
            told = e.told[id(x)]
            other = None if x.other is None else defined(e, x.other, lane)
            return told if told is None or other is None else b.or_(told, other)
        case n.Select():
            first, second = (defined(e, arm, lane) for arm in (x.a, x.b))
            arm = b.select(e.told[id(x)], yes if first is None else first, yes if second is None else second)
            chosen = defined(e, x.cond, lane)
            return arm if chosen is None else b.and_(arm, chosen)
        case _:
            every = yes
            for part in e.parts(x):
                one = defined(e, part, lane)
                every = every if one is None else b.and_(every, one)
            return every


def require(e: Any, lane: Value, *values: n.Expr | None) -> None:
    """The loop is undone where one of these is undefined in a lane."""
    for x in values:
        known = None if x is None else defined(e, x, lane)
        if known is not None:
            e.b.store(e.b.or_(e.b.load(e.bad), e.b.not_(known)), e.bad)


def slot_of(e: Any, x: n.Expr, uniform: bool) -> Slot:
    """Room for a value, and for whether it is defined."""
    made: Slot = e.slot(dtype_of(x.type), uniform)
    if may_be(e, x):
        made.defined = e.slot(BOOL, uniform)
    return made


def put(e: Any, slot: Slot, lane: Value, x: n.Expr) -> None:
    """Works a value out in a lane, and puts it where it is kept."""
    e.put(slot, lane, e.value(x, lane))
    if slot.defined is not None:
        e.put(slot.defined, lane, defined(e, x, lane))


def all_defined(e: Any, slots: Sequence[Slot], lane: Value) -> Value:
    """Whether all values that are kept are defined in a lane."""
    every = e.c(1, e.s.ir.IntType(1))
    for slot in slots:
        every = every if slot.defined is None else e.b.and_(every, e.get(slot.defined, lane))
    return every
