"""What an expression is in iterations that lie past the end of memory."""
from __future__ import annotations

import math

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType, dtype_of


def past_end(e: n.Expr, maxima: set[str]) -> float | None:
    """The value of an expression whose clipped loads give their `other`; None when it is not a constant."""
    def value(x: n.Expr) -> float | None:
        return past_end(x, maxima)
    match e:
        case n.Const():
            return float(e.value)
        case n.Load() if e.clip and e.other is not None:
            return value(e.other)
        case n.Cast() if dtype_of(e.type).is_float and dtype_of(e.x.type).is_float:
            return value(e.x)
        case n.Binary(op="sub") if value(e.a) == -math.inf and isinstance(e.b, n.Load) and e.b.at.buffer.name in maxima:
            return -math.inf
        case n.Binary(op="mul" | "add" | "sub" | "max" | "min"):
            a, b = value(e.a), value(e.b)
            if a is None or b is None:
                return None
            result = {"mul": lambda: a * b, "add": lambda: a + b, "sub": lambda: a - b, "max": lambda: max(a, b), "min": lambda: min(a, b)}[e.op]()
            return None if math.isnan(result) else result
        case n.Call(fn="exp" | "exp2", args=(n.Expr() as x,)):
            inner = value(x)
            return 0.0 if inner == -math.inf else 1.0 if inner == 0.0 else None
        case n.Select(cond=n.Binary(op="ne" | "eq" as op) as cond) if (a := value(cond.a)) is not None and (b := value(cond.b)) is not None:
            return value(e.a if (a == b) == (op == "eq") else e.b)
        case _:
            return None


def never_holds(cond: n.Expr, maxima: set[str]) -> bool:
    """Whether a condition is false past the end, whatever the loop has seen: nothing is below the lowest or above the highest value, nor is a NaN."""
    if not isinstance(cond, n.Binary) or cond.op not in ("lt", "gt") or not dtype_of(cond.a.type).is_float:
        return False
    a, b = past_end(cond.a, maxima), past_end(cond.b, maxima)
    return a == (math.inf if cond.op == "lt" else -math.inf) or b == (-math.inf if cond.op == "lt" else math.inf)


def fill_value(fill: str, dtype: DType) -> n.Const:
    """What a masked load gives: zero, or the lowest or highest value of its dtype."""
    if fill == "zero":
        return build.const(0, dtype)
    high = fill == "highest"
    return build.const((math.inf if high else -math.inf) if dtype.is_float else dtype.range[high], dtype)
