"""Integer expressions of a thread's number, evaluated for every thread of a CTA at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kir.ir import nodes as n
from kir.ir.types import DType

Values = npt.NDArray[np.int64]
_SIMPLE: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip


def over_threads(e: n.Expr, known: Mapping[str, Values]) -> Values | None:
    """The value of an integer or condition for each thread; `known` gives those of names. None where it depends on anything else."""
    if not isinstance(e.type, DType) or not (e.type.is_integer or e.type.is_bool):
        return None
    found = _value(e, known)
    if found is None or e.type.is_bool:
        return found
    low, high = e.type.range
    return (found - int(low)) % (int(high) - int(low) + 1) + int(low)


def _value(e: n.Expr, known: Mapping[str, Values]) -> Values | None:
    match e:
        case n.Const():
            return np.asarray(int(e.value), dtype=np.int64) if e.dtype.bits < 64 else None
        case n.Var():
            return known.get(e.name)
        case n.Cast(rounding="rn" | "bits"):
            return over_threads(e.x, known)
        case n.Unary():
            x = over_threads(e.x, known)
            return None if x is None else -x if e.op == "neg" else (1 - x if isinstance(e.type, DType) and e.type.is_bool else ~x)
        case n.Select():
            cond, a, b = (over_threads(x, known) for x in (e.cond, e.a, e.b))
            return None if cond is None or a is None or b is None else np.asarray(np.where(cond != 0, a, b), dtype=np.int64)
        case n.Binary():
            a, b = over_threads(e.a, known), over_threads(e.b, known)
            return None if a is None or b is None else _binary(e.op, a, b)
        case _:
            return None


def _binary(op: str, a: Values, b: Values) -> Values | None:
    if op in _SIMPLE:
        return np.asarray(_SIMPLE[op](a, b), dtype=np.int64)
    if op in ("floordiv", "mod", "tdiv", "trem") and np.all(b != 0):
        if op in ("floordiv", "mod"):
            return np.asarray(a // b if op == "floordiv" else a % b)
        quotient = np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b)
        return np.asarray(quotient if op == "tdiv" else a - quotient * b)
    if op in ("shl", "shr") and np.all((b >= 0) & (b < 32)):
        return np.asarray(a << b if op == "shl" else a >> b)
    return None
