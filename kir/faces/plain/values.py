"""Values in plain words: index arithmetic in i32 where it fits, and what is written down although it changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from kir.analysis.facts import Facts
from kir.analysis.simplify import is_true
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import F32, I32, I64, DType
from kir.ir.visit import buffers_named, names_read, substitute, transform, updated, walk

N = TypeVar("N", bound=n.Node)
RING = frozenset({"add", "sub", "mul"})
QUOTIENTS = frozenset({"floordiv", "mod", "ceildiv", "tdiv", "trem", "min", "max"})
EXACT = 1 << 24
"""Whole numbers up to this are f32."""


def narrow(e: n.Expr, known: Facts) -> n.Expr | None:
    """An i32 expression of the same value as one of i64; None where its value is not known to fit, or depends on data."""
    if e.type != I64 or not _fits(e, known):
        return None
    return _modulo(e, known)


def _fits(e: n.Expr, known: Facts) -> bool:
    found = known.domain(e)
    low, high = I32.range
    return known.is_exact(e) and found.lo is not None and found.hi is not None and low <= found.lo and found.hi <= high


def _modulo(e: n.Expr, known: Facts) -> n.Expr | None:
    """An i32 expression that equals `e` modulo 2^32: of sums and products each term may be taken so, of anything else the value must fit."""
    match e:
        case n.Const():
            return build.const(int(e.value), I32)
        case n.Cast() if e.rounding == "rn" and e.x.type == I32:
            return e.x
        case n.Binary() if e.op in RING:
            a, b = _modulo(e.a, known), _modulo(e.b, known)
            return None if a is None or b is None else build.binary(e.op, a, b)
        case n.Binary() if e.op in QUOTIENTS:
            a, b = narrow(e.a, known), narrow(e.b, known)
            return None if a is None or b is None else build.binary(e.op, a, b)
        case n.Unary() if e.op == "neg":
            x = _modulo(e.x, known)
            return None if x is None else build.negate(x)
        case _:
            return None


def in_plain_words(s: n.Stmt, known: Facts) -> n.Stmt:
    """A statement with the values right in it (not in blocks inside it) in plain words."""
    match s:
        case n.For():
            return replace(s, lo=_plain(s.lo, known), hi=_plain(s.hi, known), step=_plain(s.step, known))
        case n.If():
            return replace(s, cond=_plain(s.cond, known))
        case n.While() | n.Roles():
            return s
        case _:
            made = _plain(s, known)
            assert isinstance(made, n.Stmt)
            return made


def counted_in_i32(s: n.For, known: Facts) -> n.For:
    """A loop over i64 numbers that fit i32, counted in i32."""
    lo, hi, step = (narrow(e, known) for e in (s.lo, s.hi, s.step))
    if s.var.type != I64 or lo is None or hi is None or step is None or not isinstance(step, n.Const):
        return s
    var = n.Var(s.var.name, I32)
    return replace(s, var=var, lo=lo, hi=hi, step=step, body=tuple(substitute(x, {var.name: n.Cast(var, I64)}) for x in s.body))


def _plain(item: N, known: Facts) -> N:
    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Region():
                return replace(new, index=tuple(_index(i, known) for i in new.index))
            case n.Binary() if new.op in n.COMPARISONS and new.a.type == I64:
                a, b = narrow(new.a, known), narrow(new.b, known)
                return new if a is None or b is None else build.compare(new.op, a, b)
            case n.Binary(op="mul") if isinstance(new.type, DType) and new.type.is_float:
                return new.b if _is_one(new.a) else new.a if _is_one(new.b) else new
            case n.Binary(op="div") if isinstance(new.type, DType) and new.type.is_float and _is_one(new.b):
                return new.a
            case n.Cast(x=n.Const(value=int() as value), dtype=dtype) if dtype == F32 and not isinstance(value, bool) and abs(value) <= EXACT:
                return build.const(float(value), F32)
            case n.Load() if new.mask is not None and is_true(build.invert(new.mask)) and new.other is not None and isinstance(new.type, DType):
                return new.other
            case _:
                return new
    made: N = transform(item, leave)
    return made


def _index(i: n.Expr | n.Span, known: Facts) -> n.Expr | n.Span:
    if not isinstance(i, n.Expr):
        return i
    return narrow(i, known) or i


def _is_one(e: n.Expr) -> bool:
    return isinstance(e, n.Const) and e.value == 1.0 and e.dtype.is_float


def settled(k: n.Kernel) -> n.Kernel:
    """The kernel in which what is written once, as it is declared or right in the block of it, is a value and no register; and in which a value that is only
    stored, right where it is made, has no name."""
    writes: dict[str, int] = {}
    for x in walk(k):
        if isinstance(x, (n.Call, n.Copy, n.Mma, n.Opaque, n.View, n.Address, n.Hole)):
            for r in walk(x):
                if isinstance(r, n.Region):
                    writes[r.buffer.name] = writes.get(r.buffer.name, 0) + 2
        elif isinstance(x, n.Load) and (x.mask is not None or x.clip):
            writes[x.at.buffer.name] = writes.get(x.at.buffer.name, 0) + 2
        elif isinstance(x, n.Store):
            writes[x.at.buffer.name] = writes.get(x.at.buffer.name, 0) + 1
    return replace(k, body=_settled(k.body, writes))


def _settled(body: n.Block, writes: Mapping[str, int]) -> n.Block:
    out: list[n.Stmt] = []
    left = list(body)
    while left:
        s = left.pop(0)
        if isinstance(s, n.Alloc) and s.buffer.space == "register" and not s.buffer.shape and writes.get(s.buffer.name, 0) <= 1:
            name, count = s.buffer.name, writes.get(s.buffer.name, 0)
            at = next((k for k, x in enumerate(left) if name in buffers_named(x)), None)
            first = left[at] if at is not None else None
            if s.init is not None and count == 0:
                left = [_as_value(x, s.buffer) for x in left]
                out.append(n.Let((name,), s.init, s.label, s.origin))
                continue
            if count == 1 and at is not None and isinstance(first, n.Store) and first.at.buffer.name == name and first.mask is None and (
                    isinstance(s.init, n.Const) or (s.init is None and name not in buffers_named(first.value))):
                value = first.value if s.init is None else _as_value(first, s.buffer, s.init).value  # type: ignore[attr-defined]  # a store still
                left[at:] = [n.Let((name,), value, first.label, first.origin), *(_as_value(x, s.buffer) for x in left[at + 1:])]
                continue
        if isinstance(s, n.Let) and len(s.names) == 1 and left and isinstance(then := left[0], n.Store) and then.value == n.Var(s.names[0], s.value.type) and (
                sum(s.names[0] in names_read(x) for x in (*left, then.at)) == 1 and (then.mask is None or s.names[0] not in names_read(then.mask))):
            left[0] = replace(then, value=s.value)
            continue
        match s:
            case n.For() | n.While():
                s = updated(s, body=_settled(s.body, writes))
            case n.If():
                s = updated(s, then=_settled(s.then, writes), orelse=_settled(s.orelse, writes))
            case _:
                pass
        out.append(s)
    return tuple(out)


def _as_value(s: n.Stmt, buffer: n.Buffer, known: n.Expr | None = None) -> n.Stmt:
    """A statement that reads a value, or one that is known, where it read a register."""
    value = n.Var(buffer.name, buffer.dtype) if known is None else known
    made = transform(s, lambda old, new: value if isinstance(new, n.Load) and new.at.buffer.name == buffer.name else new,
                     lambda x: buffer.name in buffers_named(x))
    assert isinstance(made, n.Stmt)
    return made


def reads_memory(e: n.Node) -> bool:
    """Whether a value is read from memory, or made by a call."""
    return any(isinstance(x, (n.Load, n.Call, n.Region)) for x in walk(e))


__all__ = ["counted_in_i32", "in_plain_words", "narrow", "reads_memory", "settled"]
