"""Integer expressions of a thread's number, evaluated for every thread of a CTA at once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from kir.ir import nodes as n
from kir.ir.types import DType

WARP = 32
"""Threads of a warp; the threads asked about are whole warps."""
Values = tuple[int, ...]
"""A value for each thread; a single one is that of all."""
_SIMPLE: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "min": min, "max": max, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
    "floordiv": operator.floordiv, "mod": operator.mod, "shl": operator.lshift, "shr": operator.rshift,
    "tdiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "trem": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
}  # fmt: skip


def over_threads(e: n.Expr, known: Mapping[str, Values]) -> Values | None:
    """The value of an integer or condition for each thread; `known` gives those of names. None where it depends on anything else."""
    if not isinstance(e.type, DType) or not (e.type.is_integer or e.type.is_bool):
        return None
    found = _value(e, known)
    if found is None or e.type.is_bool:
        return found
    low, high = int(e.type.range[0]), int(e.type.range[1])
    return tuple((x - low) % (high - low + 1) + low for x in found)


def same(a: Values, b: Values) -> bool:
    """Whether two values are equal for every thread."""
    return all(x == y for x, y in _pairs(a, b))


def of_each(a: Values, count: int) -> Values:
    """A value for each of so many threads."""
    return a * count if len(a) == 1 else a


def _pairs(a: Values, b: Values) -> list[tuple[int, int]]:
    count = max(len(a), len(b))
    return list(zip(of_each(a, count), of_each(b, count), strict=True))


def _value(e: n.Expr, known: Mapping[str, Values]) -> Values | None:
    match e:
        case n.Const():
            return (int(e.value),) if e.dtype.bits < 64 else None
        case n.Var():
            return known.get(e.name)
        case n.Cast(rounding="rn" | "bits"):
            return over_threads(e.x, known)
        case n.Unary():
            x = over_threads(e.x, known)
            logical = isinstance(e.type, DType) and e.type.is_bool
            return None if x is None else tuple(-each if e.op == "neg" else 1 - each if logical else ~each for each in x)
        case n.Call(fn="shfl_idx", args=(n.Expr() as x, n.Expr() as lane)) if e.of is None and not dict(e.attrs).get("width"):
            each, lanes = over_threads(x, known), over_threads(lane, known)
            if each is None or lanes is None or len(lanes) != 1 or (len(each) != 1 and len(each) % WARP):
                return None
            return each if len(each) == 1 else tuple(each[k // WARP * WARP + lanes[0] % WARP] for k in range(len(each)))
        case n.Select():
            cond, a, b = (over_threads(x, known) for x in (e.cond, e.a, e.b))
            if cond is None or a is None or b is None:
                return None
            count = max(map(len, (cond, a, b)))
            return tuple(x if c else y for c, x, y in zip(*(of_each(v, count) for v in (cond, a, b)), strict=True))
        case n.Binary():
            a, b = over_threads(e.a, known), over_threads(e.b, known)
            return None if a is None or b is None else _binary(e.op, a, b)
        case _:
            return None


def _binary(op: str, a: Values, b: Values) -> Values | None:
    if op not in _SIMPLE or (op in ("floordiv", "mod", "tdiv", "trem") and 0 in b) or (op in ("shl", "shr") and not all(0 <= x < 32 for x in b)):
        return None
    return tuple(int(_SIMPLE[op](x, y)) for x, y in _pairs(a, b))
