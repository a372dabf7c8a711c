"""Arithmetic on host and kernel numbers, with TVM's rules for operands of two dtypes.

A literal integer is i32 (i64 where it is too large) and meets the other operand as that, so that narrower integers are widened; only `&`, `|`, `^`
and shifts give it the dtype of the other operand. A literal float is f32. Of two floats the wider wins (f16 beside bf16), a float
beats an integer, integers meet at the wider, unsigned at equal width, and bool counts as i32.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import libcst as cst

from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, F16, F32, F64, I32, I64, DType, dtype_of, promote
from kir.ir.visit import walk

from ..._python.python_operators import added, multiplied, power, remainder, shifted
from .values import NotUnderstood, Num, Value, is_known, is_number

HOST: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": added, "sub": operator.sub, "mul": multiplied, "truediv": operator.truediv, "floordiv": operator.floordiv,
    "mod": remainder, "pow": power, "shl": shifted, "shr": operator.rshift, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
    "min": min, "max": max, "ceildiv": lambda a, b: -(-a // b), "tdiv": lambda a, b: int(a / b), "trem": math.fmod,
}  # fmt: skip
"""What operations give on known numbers."""

BINARY: Mapping[type, str] = {
    cst.Add: "add", cst.Subtract: "sub", cst.Multiply: "mul", cst.Divide: "truediv", cst.FloorDivide: "floordiv", cst.Modulo: "mod",
    cst.Power: "pow", cst.LeftShift: "shl", cst.RightShift: "shr", cst.BitAnd: "and", cst.BitOr: "or", cst.BitXor: "xor",
    cst.AddAssign: "add", cst.SubtractAssign: "sub", cst.MultiplyAssign: "mul", cst.DivideAssign: "truediv",
    cst.FloorDivideAssign: "floordiv", cst.ModuloAssign: "mod", cst.PowerAssign: "pow", cst.LeftShiftAssign: "shl",
    cst.RightShiftAssign: "shr", cst.BitAndAssign: "and", cst.BitOrAssign: "or", cst.BitXorAssign: "xor",
    cst.LessThan: "lt", cst.LessThanEqual: "le", cst.GreaterThan: "gt", cst.GreaterThanEqual: "ge", cst.Equal: "eq", cst.NotEqual: "ne",
}  # fmt: skip


def named(operator: cst.CSTNode) -> str:
    """The name of an operator in the IR. Raises NotUnderstood for one that numbers do not have."""
    found = BINARY.get(type(operator))
    if found is None:
        raise NotUnderstood(f"the operator {type(operator).__name__}")
    return found


def literal(value: int | float | bool) -> n.Expr:
    """A known number by itself."""
    if isinstance(value, bool):
        return build.const(value, BOOL)
    if isinstance(value, int):
        return build.const(value, I32 if -(2**31) <= value < 2**31 else I64)
    return build.const(value, F32)


def convert(e: n.Expr, dtype: DType) -> n.Expr:
    """An expression as a dtype; to bool by comparison with zero."""
    own = dtype_of(e.type)
    if own == dtype:
        return e
    if isinstance(e, n.Cast) and e.rounding == "rn" and dtype_of(e.x.type) == dtype and not own.is_symbolic and (
            dtype.is_bool or (dtype.is_integer and own.is_integer and dtype.bits < own.bits)):
        return e.x
    if dtype.is_bool and not own.is_symbolic:
        return build.binary("ne", e, build.const(0, own))
    if isinstance(e, n.Const) and own == F32 and dtype in (F64,):
        return build.const(e.value, dtype)
    if isinstance(e, n.Const) and dtype.is_integer and own.is_float and math.isfinite(e.value):
        return build.const(int(e.value), dtype)
    if isinstance(e, n.Const) and own.is_integer and dtype.is_float:
        return build.const(float(e.value), dtype)
    return build.cast(e, dtype)


def valued(value: Value, dtype: DType) -> n.Expr | None:
    """A known number as a dtype; None for what is none."""
    if not is_number(value):
        return None
    assert isinstance(value, (bool, int, float))
    if dtype.is_symbolic:
        return build.cast(literal(0 if repr(value) == "0.0" else value), dtype)
    if dtype.is_bool:
        return build.const(bool(value), BOOL)
    if dtype.is_integer:
        if isinstance(value, float) and not math.isfinite(value):
            raise NotUnderstood(f"{value} as {dtype.name}")
        return build.const(int(value), dtype)
    if not dtype.is_float:
        raise NotUnderstood(f"{value} as {dtype.name}")
    return build.const(float(value), dtype)


def common(a: DType, b: DType) -> DType:
    """The dtype in which two operands meet."""
    if a == b:
        return I32 if a.is_bool else a
    if not (a.is_symbolic or b.is_symbolic):
        if a.is_float and b.is_float and a.bits == b.bits:
            if a.bits < 16:
                raise NotUnderstood(f"{a.name} beside {b.name}, which TVM refuses")
            return F16
        if a.is_bool or b.is_bool:
            other = b if a.is_bool else a
            return other
    return promote(a, b)


def paired(a: Value, b: Value, run: Callable[[Value], n.Expr], op: str = "") -> tuple[n.Expr, n.Expr]:
    """Two operands of an operation in their common dtype; `run` gives the expression of what is no literal."""
    if is_number(a) and is_number(b):
        assert isinstance(a, (int, float)) and isinstance(b, (int, float))
        return both(literal(a), literal(b))
    if is_number(a):
        right = run(b)
        to = _literal_dtype(a, dtype_of(right.type), op)
        return _lifted(a, to), convert(right, to)
    if is_number(b):
        left = run(a)
        to = _literal_dtype(b, dtype_of(left.type), op)
        return convert(left, to), _lifted(b, to)
    return both(run(a), run(b))


def both(a: n.Expr, b: n.Expr) -> tuple[n.Expr, n.Expr]:
    """Two expressions in their common dtype; two bools stay bools."""
    da, db = dtype_of(a.type), dtype_of(b.type)
    if da == db:
        return a, b
    to = common(da, db)
    return convert(a, to), convert(b, to)


def _literal_dtype(value: Value, other: DType, op: str) -> DType:
    """The dtype in which a literal meets a dtype. Narrow integers are compared as they are with what they can hold: that says the same."""
    if isinstance(value, bool):
        return other
    if isinstance(value, int):
        if op in _BITWISE and not other.is_bool:
            return other
        if op in n.COMPARISONS and (0 <= value <= 127 if other.is_symbolic else other.is_integer and other.range[0] <= value <= other.range[1]):
            return other
        return promote(I32 if other.is_bool else other, dtype_of(literal(value).type))
    return F64 if other == F64 else promote(other, F32)


_BITWISE = frozenset({"and", "or", "xor", "shl", "shr"})


def _lifted(value: Value, dtype: DType) -> n.Expr:
    made = valued(value, dtype)
    assert made is not None
    return made


def binary(op: str, a: Value, b: Value, run: Callable[[Value], n.Expr]) -> Value:
    """`a op b` on numbers of the host or the kernel. Raises NotUnderstood."""
    if is_known(a) and is_known(b) and op in HOST:
        return host(HOST[op], a, b)
    left, right = paired(a, b, run, op)
    if op == "truediv" and any(_is_unsigned(x, run) for x in (a, b)) and dtype_of(left.type).is_integer:
        op = "tdiv"  # TVM refuses `/` of signed integers only
    return Num(operated(op, left, right))


def _is_unsigned(v: Value, run: Callable[[Value], n.Expr]) -> bool:
    return not is_number(v) and dtype_of(run(v).type).kind in ("uint", "bool")


def host(fn: Callable[..., Any], *args: Any) -> Value:
    """A host operation on known values."""
    try:
        value = fn(*args)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as bad:
        raise NotUnderstood(f"a host expression fails: {bad}") from bad
    if is_known(value):
        return value  # type: ignore[no-any-return]  # checked by is_known
    raise NotUnderstood("a host expression of an unusual type")


def operated(op: str, a: n.Expr, b: n.Expr) -> n.Expr:
    """An operation on expressions of one dtype."""
    dtype = dtype_of(a.type)
    try:
        if dtype.is_bool and op in ("add", "sub", "mul", "min", "max", "floordiv", "mod", "shl", "shr", "truediv"):
            a, b, dtype = convert(a, I32), convert(b, I32), I32
        if op == "truediv":
            if dtype.is_integer:
                if not (is_static(a) and is_static(b)):
                    raise NotUnderstood("a true quotient of two integers")
                a, b = convert(a, F32), convert(b, F32)
            return build.binary("div", a, b)
        if op == "pow":
            return _power(a, b)
        if dtype.is_float:
            if op == "floordiv":
                return build.call("floor", build.binary("div", a, b))
            if op in ("tdiv", "ceildiv"):
                raise NotUnderstood(f"'{op}' of floats")
            if op == "mod":
                raise NotUnderstood("a remainder of floats")
            if op in ("and", "or", "xor", "shl", "shr"):
                raise NotUnderstood(f"'{op}' of {dtype.name}")
        if op == "ne" and isinstance(a, n.Cast) and dtype_of(a.x.type).is_bool and build.is_const(b, 0):
            return a.x
        return build.binary(op, a, b)
    except KirError as bad:
        raise NotUnderstood(bad.diagnostics[0].message) from bad


def _power(a: n.Expr, b: n.Expr) -> n.Expr:
    exponent = int(b.value) if isinstance(b, n.Const) and float(b.value).is_integer() else None
    if exponent is not None and 1 <= exponent <= 4:
        out = a
        for _ in range(exponent - 1):
            out = build.binary("mul", out, a)
        return out
    if build.is_const(a, 2) and dtype_of(b.type).is_integer:
        return build.binary("shl", convert(build.const(1), dtype_of(b.type)), b)
    if dtype_of(a.type).is_float:
        return build.call("pow", a, b)
    raise NotUnderstood("a power of integers")


def is_static(e: n.Node) -> bool:
    """Whether an expression is over metas alone, as far as its form tells: it reads no memory. (Sizes and loop variables are told apart by
    the reader, which knows its metas.)"""
    return not any(isinstance(x, (n.Load, n.Address)) for x in walk(e))
