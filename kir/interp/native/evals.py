"""Statements that are a call, in machine code: what is asserted, and updates of one element whose old value nobody asks for."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kir.interp.native.scalars import Value
from kir.interp.native.undefined import require
from kir.ir import nodes as n
from kir.ir.types import F32, F64, I32, I64, U32, U64, dtype_of
from kir.ir.visit import statements

NOTHING = frozenset({"barrier", "fence", "fence_async", "fence_mbar_init", "warp_sync"})
"""Calls that mean nothing where threads run side by side and nobody checks."""
ASSERTED = frozenset({"assume", "assertion"})
WHOLE, REAL = (I32, U32, I64, U64), (F32, F64)
UPDATES = frozenset({"add", "min", "max", "and", "or", "xor"})


def updated(s: n.Stmt) -> n.Region | None:
    """The element that a statement updates at once, where its code can be written here."""
    if not isinstance(s, n.Eval) or s.call.of is not None or dict(s.call.attrs).get("clip") or len(s.call.args) != 2:
        return None
    op, (at, value) = s.call.fn.removeprefix("atomic_"), s.call.args
    if op == s.call.fn or op not in UPDATES or not isinstance(at, n.Region) or not isinstance(value, n.Expr) or value.type != at.buffer.dtype:
        return None
    return at if at.buffer.dtype in WHOLE or (op == "add" and at.buffer.dtype in REAL) else None


def updates(loop: n.For) -> Iterator[n.Region]:
    """All elements that are updated in a loop."""
    return (at for s in statements((loop,)) if (at := updated(s)) is not None)


def asserted(s: n.Eval) -> n.Expr | None:
    """What a statement takes for true."""
    first = s.call.args[0] if s.call.fn in ASSERTED and s.call.args else None
    return first if isinstance(first, n.Expr) else None


def evaluated(e: Any, s: n.Eval, mask: Value | None) -> None:
    """The statement, for the lanes of a mask; `e` is the emitter of the loop around it (`kir.interp.native.emitter`)."""
    what, at = asserted(s), updated(s)
    if what is not None:
        e.reads(mask, what)
        e.prepare(mask, what)
        with e.each_lane(e.uniform(what), mask) as lane:
            e.b.store(e.b.or_(e.b.load(e.bad), e.b.not_(e.value(what, lane))), e.bad)
            require(e, lane, what)
        e.have_read()
    elif at is not None:
        _updated(e, s.call, at, mask)


def _updated(e: Any, call: n.Call, at: n.Region, mask: Value | None) -> None:
    """Each lane's update after that of the lane before it; what they are made of is read before the first."""
    value, indices = call.args[1], [i for i in at.index if isinstance(i, n.Expr)]
    assert isinstance(value, n.Expr)
    e.reads(mask, *indices, value)
    e.prepare(mask, *indices, value)
    e.keep_read(at, mask, value, *indices)
    e.have_read()
    dtype, size = dtype_of(at.type), e.c(dtype_of(at.type).bytes)
    done = e.variable(e.s.long)
    e.b.store(e.c(0), done)
    with e.each_lane(False, mask) as lane:
        offset, inside = e.wanted(at, None, False, "read", lane)
        new = e.value(value, lane)
        place = e.b.gep(e.places[at.buffer.name][1], [offset if inside is None else e.b.select(inside, offset, e.c(0))])
        old = e.s.load(e.b, dtype, e.b.load(place))
        made = e.s.store(e.b, dtype, e.s.binary(e.b, call.fn.removeprefix("atomic_"), dtype, old, new))
        e.b.store(made if inside is None else e.b.select(inside, made, e.b.load(place)), place)
        e.b.store(e.b.add(e.b.load(done), size), done)
    e.count(f"atomic {e.places[at.buffer.name][0].space}", e.b.load(done))
