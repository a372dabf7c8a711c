"""Integer expressions for each thread of a CTA, as lists: there are 1024 threads at most, in whose time NumPy is not even imported."""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from kir.ir import nodes as n
from kir.ir.types import dtype_of

Numbers = int | Sequence[int]
"""One number for all threads, or one for each."""

_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "min": min, "max": max, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "shl": operator.lshift, "shr": operator.rshift, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "eq": operator.eq, "ne": operator.ne, "floordiv": operator.floordiv, "mod": operator.mod,
    "tdiv": operator.floordiv, "trem": operator.mod}


def numbers(e: n.Expr, known: Mapping[str, Numbers]) -> Numbers | None:
    """An integer or boolean expression where some names are known; None where it depends on others, divides by 0, or has another form."""
    match e:
        case n.Const() if not isinstance(e.value, float):
            return int(e.value)
        case n.Var():
            return known.get(e.name)
        case n.Cast() if e.rounding == "rn" and e.dtype.is_integer and not dtype_of(e.x.type).is_float:
            return numbers(e.x, known)
        case n.Unary(op="neg"):
            return _each(lambda x, _: -x, numbers(e.x, known), 0)
        case n.Unary(op="not") if dtype_of(e.type).is_bool:
            return _each(lambda x, _: not x, numbers(e.x, known), 0)
        case n.Binary() if e.op in _OPERATIONS:
            a, b = numbers(e.a, known), numbers(e.b, known)
            if e.op in ("floordiv", "mod", "tdiv", "trem") and not _least(b, 1):
                return None
            if (e.op in ("tdiv", "trem") and not _least(a, 0)) or (e.op in ("shl", "shr") and not _least(b, 0)):
                return None
            return _each(_OPERATIONS[e.op], a, b)
        case _:
            return None


def _least(x: Numbers | None, least: int) -> bool:
    return x is not None and (x >= least if isinstance(x, int) else all(v >= least for v in x))


def _each(f: Callable[[int, int], int], a: Numbers | None, b: Numbers | None) -> Numbers | None:
    if a is None or b is None:
        return None
    if isinstance(a, int):
        return f(a, b) if isinstance(b, int) else [f(a, y) for y in b]
    return [f(x, b) for x in a] if isinstance(b, int) else [f(x, y) for x, y in zip(a, b, strict=True)]
