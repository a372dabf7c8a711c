"""Whether real numbers bring a condition about: what none do, rounding or infinity alone does."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kir.ir import nodes as n
from kir.ir.types import DType, dtype_of

MILLISECONDS = 200
"""How long the solver may take."""
ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "min": lambda a, b: _z3().If(a < b, a, b), "max": lambda a, b: _z3().If(a > b, a, b)}


def _z3() -> Any:
    import z3  # long to load, and seldom asked
    return z3


class _NotSaid(Exception):
    """Something that is no arithmetic of reals."""


def solvable(cond: n.Expr, holds: bool) -> bool:
    """Whether some real numbers in the place of what is loaded make a condition come out so; true where that is not known."""
    try:
        said = _truth(cond)
    except _NotSaid:
        return True
    z3 = _z3()
    solver = z3.Solver()
    solver.set("timeout", MILLISECONDS)
    solver.add(said if holds else z3.Not(said))
    return bool(solver.check() != z3.unsat)


def _truth(e: n.Expr) -> Any:
    z3 = _z3()
    match e:
        case n.Const(value=bool() as value):
            return z3.BoolVal(value)
        case n.Unary(op="not", x=x):
            return z3.Not(_truth(x))
        case n.Binary(op="and" | "or" as op, a=a, b=b) if dtype_of(e.type).is_bool:
            return (z3.And if op == "and" else z3.Or)(_truth(a), _truth(b))
        case n.Binary(op=op, a=a, b=b) if op in n.COMPARISONS and not dtype_of(a.type).is_bool:
            return ARITHMETIC[op](_number(a), _number(b))
        case _:
            raise _NotSaid


def _number(e: n.Expr) -> Any:
    """A number as a real one; a name or a load as any."""
    if not isinstance(e.type, DType) or not dtype_of(e.type).is_float:
        raise _NotSaid
    z3 = _z3()
    match e:
        case n.Const(value=value) if abs(value) < float("inf"):
            return z3.RealVal(float(value).as_integer_ratio()[0]) / z3.RealVal(float(value).as_integer_ratio()[1])
        case n.Var() | n.Load():
            return z3.Real(repr(e))
        case n.Cast(x=x):
            return _number(x)
        case n.Unary(op="neg", x=x):
            return -_number(x)
        case n.Binary(op="add" | "sub" | "mul" | "min" | "max" as op, a=a, b=b):
            return ARITHMETIC[op](_number(a), _number(b))
        case n.Call(fn="abs", args=(n.Expr() as x,)):
            return z3.If(_number(x) < 0, -_number(x), _number(x))
        case _:
            raise _NotSaid


__all__ = ["solvable"]
