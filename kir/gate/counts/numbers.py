"""Integer expressions on numbers: a value for each lane of a warp, each thread of a CTA, or each CTA of a grid at once."""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import shape_of

Integers = NDArray[np.int64]
Value = int | Integers
"""A number, or an array whose first axis tells the instances (lanes, threads, CTAs) apart; the rest are axes of a tile."""
Values = Mapping[str, Value | n.Expr]
"""What names stand for: numbers, or expressions of other names."""
_SIMPLE: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "min": np.minimum, "max": np.maximum, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "shl": operator.lshift, "shr": operator.rshift, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne}
_SAME = frozenset({"multiple_of", "max_contiguous", "max_constancy"})


def evaluate(e: n.Expr | int, values: Values, known: dict[str, Value | None] | None = None) -> Value | None:
    """An integer or boolean expression, or None where it depends on what is not known. `known` keeps names already worked out."""
    if isinstance(e, int):
        return e
    known = {} if known is None else known
    match e:
        case n.Const():
            return None if isinstance(e.value, float) else int(e.value)
        case n.Var():
            return _named(e.name, values, known)
        case n.Binary():
            a = evaluate(e.a, values, known)
            b = None if a is None else evaluate(e.b, values, known)
            return None if a is None or b is None else _binary(e.op, *_ranked(a, b))
        case n.Unary():
            x = evaluate(e.x, values, known)
            return None if x is None else -x if e.op == "neg" else _inverted(e, x)
        case n.Select():
            c, a, b = (evaluate(x, values, known) for x in (e.cond, e.a, e.b))
            return None if a is None or b is None or c is None else _chosen(c, a, b)
        case n.Cast():
            return evaluate(e.x, values, known) if e.rounding == "rn" else None
        case n.Call():
            return _called(e, values, known)
        case n.Load() if held(e) is not None:
            return _named(held(e) or "", values, known)
        case _:
            return None


def held(e: n.Expr) -> str | None:
    """The name under which `Values` keep what a scalar in a register holds (a pointer that is counted up); None for other expressions."""
    return f"@{e.at.buffer.name}" if isinstance(e, n.Load) and e.at.buffer.space == "register" and not e.at.index else None


def number(e: n.Expr | int, values: Values) -> int | None:
    """An expression that is one number, or None."""
    found = evaluate(e, values)
    if isinstance(found, np.ndarray):
        return int(found.reshape(-1)[0]) if found.size == 1 else None
    return None if found is None else int(found)


def _named(name: str, values: Values, known: dict[str, Value | None]) -> Value | None:
    if name not in known:
        held = values.get(name)
        known[name] = None  # a name of itself is not known
        known[name] = evaluate(held, values, known) if isinstance(held, n.Expr) else held
    return known[name]


def _ranked(a: Value, b: Value) -> tuple[Value, Value]:
    """Two values with the same number of tile axes, aligned at the right."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.ndim != b.ndim:
        if a.ndim < b.ndim:
            a = a.reshape(a.shape[0], *(1 for _ in range(b.ndim - a.ndim)), *a.shape[1:])
        else:
            b = b.reshape(b.shape[0], *(1 for _ in range(a.ndim - b.ndim)), *b.shape[1:])
    return a, b


def _inverted(e: n.Unary, x: Value) -> Value:
    if getattr(e.type, "is_bool", False):
        return x == 0 if isinstance(x, np.ndarray) else int(not x)
    return ~x


def _chosen(c: Value, a: Value, b: Value) -> Value:
    if not isinstance(c, np.ndarray):
        return a if c else b
    a, b = _ranked(a, b)
    c, a = _ranked(c, a)
    return np.where(c, a, b)


def _binary(op: str, a: Value, b: Value) -> Value | None:
    if op in ("shl", "shr") and not np.all((np.asarray(b) >= 0) & (np.asarray(b) < 64)):
        return None
    if op in _SIMPLE:
        out: Value = _SIMPLE[op](a, b)
        return out
    if op not in ("floordiv", "mod", "ceildiv", "tdiv", "trem") or not np.all(b):
        return None
    if op in ("tdiv", "trem"):
        quotient: Value = np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
        return quotient if op == "tdiv" else a - quotient * b
    whole: Value = -(-a // b) if op == "ceildiv" else a // b if op == "floordiv" else a % b
    return whole


def _called(e: n.Call, values: Values, known: dict[str, Value | None]) -> Value | None:
    first = e.args[0] if e.args else None
    if not isinstance(first, n.Expr) or e.of is not None:
        return None
    if e.fn == "iota":
        extent = number(first, values)
        return None if extent is None else np.arange(extent, dtype=np.int64)[None]
    x = evaluate(first, values, known)
    if x is None or e.fn in _SAME:
        return x
    if e.fn == "cdiv" and len(e.args) > 1 and isinstance(e.args[1], n.Expr):
        b = evaluate(e.args[1], values, known)
        return None if b is None else _binary("ceildiv", x, b)
    if not isinstance(x, np.ndarray):
        return x if e.fn in ("expand", "broadcast", "trans", "reshape") else None
    match e.fn:
        case "expand":
            return np.expand_dims(x, 1 + int(dict(e.attrs)["axis"]))
        case "broadcast":
            shape = [v for d in shape_of(e.type) if (v := int_value(d)) is not None]
            return np.broadcast_to(x.reshape(x.shape[0], *(1 for _ in range(len(shape) + 1 - x.ndim)), *x.shape[1:]), (x.shape[0], *shape))
        case "trans":
            return np.transpose(x, (0, *(1 + (int_value(a) or 0) for a in e.args[1:] if isinstance(a, n.Expr))))
        case _:
            return None


def steps(b: n.Buffer, values: Values) -> list[int] | None:
    """Elements between neighbors along each axis of a buffer."""
    if b.strides is not None:
        out = [number(s, values) for s in b.strides]
        return None if None in out else [s for s in out if s is not None]
    made = [1]
    for d in reversed(b.shape[1:]):
        extent = number(d, values)
        if extent is None:
            return None
        made.insert(0, made[0] * extent)
    return made[:len(b.shape)]


def offsets(r: n.Region, values: Values, instances: int) -> Integers | None:
    """Element offsets [instances, *tile] of a region; None where an index depends on what is not known."""
    by = steps(r.buffer, values)
    if by is None:
        return None
    index = r.index or tuple(n.Span(n.Const(0, d.type), d) for d in r.buffer.shape)  # type: ignore[arg-type]  # extents are integers
    spans = sum(isinstance(i, n.Span) for i in index)
    rank = spans or len(shape_of(r.type))
    known: dict[str, Value | None] = {}
    total: Integers = np.zeros((1, *(1 for _ in range(rank))), np.int64)
    axis = 0
    for i, step in zip(index, by, strict=False):
        if isinstance(i, n.Span):
            lo, extent, stride = evaluate(i.lo, values, known), number(i.extent, values), number(i.step, values)
            if lo is None or extent is None or stride is None:
                return None
            along = (np.arange(extent, dtype=np.int64) * stride * step).reshape(*(extent if a == axis else 1 for a in range(rank)))
            first = lo.reshape(-1, *(1 for _ in range(rank))) if isinstance(lo, np.ndarray) else lo
            total = total + first * step + along[None]
            axis += 1
            continue
        found = evaluate(i, values, known)
        if found is None:
            return None
        if isinstance(found, np.ndarray):
            found = found.reshape(found.shape[0], *(1 for _ in range(rank + 1 - found.ndim)), *found.shape[1:])
        total = total + found * step
    return np.broadcast_to(total, (instances, *total.shape[1:])) if total.shape[0] == 1 else total
