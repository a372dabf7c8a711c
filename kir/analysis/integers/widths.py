"""Integers in the width they need: an i64 expression as one of i32, taken not to wrap or proved to fit."""
from __future__ import annotations

from kir.analysis.facts import Facts
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of

LOW, HIGH = -(1 << 31), (1 << 31) - 1
SHAPING = frozenset({"expand", "broadcast", "trans", "reshape"})
RING = frozenset({"add", "sub", "mul"})
EXACT = frozenset({"floordiv", "mod", "ceildiv", "tdiv", "trem", "min", "max"})


def as_i32(e: n.Expr) -> n.Expr | None:
    """An integer expression computed in i32 when all its leaves are i32, taken not to wrap; None otherwise. For addresses and bounds."""
    own = dtype_of(e.type)
    if own.name == "i32":
        return e
    if own.name != "i64":
        return None
    match e:
        case n.Const():
            return build.const(int(e.value)) if LOW <= int(e.value) <= HIGH else None
        case n.Cast():
            return e.x if dtype_of(e.x.type).name == "i32" else None
        case n.Unary(op="neg"):
            x = as_i32(e.x)
            return None if x is None else build.negate(x)
        case n.Binary() if e.op in RING or e.op in EXACT:
            a, b = as_i32(e.a), as_i32(e.b)
            return None if a is None or b is None else build.binary(e.op, a, b)
        case n.Call() if e.fn in SHAPING and isinstance(first := e.args[0], n.Expr):
            x = as_i32(first)
            return None if x is None else build.call_with(e.fn, (x, *e.args[1:]), e.attrs)
        case _:
            return None


def proved_i32(e: n.Expr, known: Facts) -> n.Expr | None:
    """An i64 expression in i32 when the facts prove that every step of it fits; None otherwise."""
    own = dtype_of(e.type)
    if own.name == "i32":
        return e
    if own.name != "i64":
        return None
    found = known.domain(e)
    if isinstance(e, n.Cast):
        return e.x if dtype_of(e.x.type).name == "i32" else None
    if found.lo is None or found.hi is None or found.lo < LOW or found.hi > HIGH:
        return None
    match e:
        case n.Const():
            return build.const(int(e.value))
        case n.Unary(op="neg"):
            x = proved_i32(e.x, known)
            return None if x is None else build.negate(x)
        case n.Binary() if e.op in RING or e.op in EXACT:
            a, b = proved_i32(e.a, known), proved_i32(e.b, known)
            return None if a is None or b is None else build.binary(e.op, a, b)
        case n.Call() if e.fn in SHAPING and isinstance(first := e.args[0], n.Expr):
            x = proved_i32(first, known)
            return None if x is None else build.call_with(e.fn, (x, *e.args[1:]), e.attrs)
        case _:
            return None
