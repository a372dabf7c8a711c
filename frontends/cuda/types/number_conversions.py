"""Conversions of numbers, written so that integer arithmetic stays one polynomial: a change of sign or a narrowing goes through sums and
products, which is exact, since both wrap.
"""

from __future__ import annotations

from math import gcd

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BF16, BOOL, F16, F32, F64, I32, I64, DType, TileType, dtype_of, rounded

from .errors import NotUnderstood


def converted(e: n.Expr, to: DType) -> n.Expr:
    """`e` as C++ converts it to a dtype: integers wrap, floats truncate to integers and round to nearest between floats."""
    own = dtype_of(e.type)
    if own == to:
        return e
    if to.is_bool:
        if own.is_symbolic:
            raise NotUnderstood(f"a {own} as a condition")
        if own.is_integer and isinstance(e, n.Cast) and e.rounding == "rn" and dtype_of(e.x.type).is_bool:
            return e.x
        return build.compare("ne", e, zero(e)) if not isinstance(e.type, TileType) else build.cast(e, BOOL)
    if isinstance(e, n.Const):
        return literal(e, to)
    if own.is_integer and to.is_integer and not isinstance(e.type, TileType) and to.bits <= own.bits:
        return _wrapped(e, to) if to.kind == "int" or to.bits < own.bits else _atom(e, to)
    if own.is_integer and to.is_integer and isinstance(e, n.Cast) and e.rounding == "rn" and dtype_of(e.x.type).is_integer:
        inner = dtype_of(e.x.type)
        if (inner.kind == own.kind and inner.bits <= own.bits) or (inner.kind == "uint" and inner.bits < own.bits):
            return converted(e.x, to)
    return build.cast(e, to)


def _wrapped(e: n.Expr, to: DType) -> n.Expr:
    """An integer reduced to a width that is not wider, through the ring operations."""
    terms = build.polynomial(e)
    if list(terms) == [(e,)]:
        return _atom(e, to)
    out: n.Expr = build.const(0, to)
    for monomial, c in terms.items():
        product: n.Expr = build.const(c, to)
        for atom in monomial:
            product = build.mul(product, _atom(atom, to))
        out = build.add(out, product)
    return out


def _atom(e: n.Expr, to: DType) -> n.Expr:
    if isinstance(e, n.Cast) and e.rounding == "rn" and dtype_of(e.x.type).is_integer:
        inner = dtype_of(e.x.type)
        if inner == to:
            return e.x
        if to.bits <= inner.bits:
            return converted(e.x, to)
        if inner.kind == "uint" or e.dtype.kind == "int":
            return converted(e.x, to)
    return build.cast(e, to)


def literal(c: n.Const, to: DType) -> n.Const:
    """A literal of another dtype."""
    own = c.dtype
    if own == to:
        return c
    if to.is_integer:
        value = c.value
        if isinstance(value, float):
            low, high = to.range
            value = 0 if value != value else int(max(low, min(high, value)))
        return build.const(int(value), to)
    if to.is_bool:
        return build.const(bool(c.value), BOOL)
    return build.const(_rounded(float(c.value), to, to.bits < 32 and own.bits <= 32), to)


def _rounded(value: float, to: DType, by_f32: bool) -> float:
    """A number as a float dtype holds it, on the way through f32 where C++ takes that way."""
    if to == F64:
        return value
    if to in (F16, BF16, F32) and abs(value) <= 65000.0:
        return rounded(rounded(value, F32) if by_f32 else value, to)
    import numpy as np

    from kir.interp.numerics.number import storage
    with np.errstate(over="ignore"):
        return float(np.asarray(np.float32(value) if by_f32 else value).astype(storage(to)))


def zero(e: n.Expr) -> n.Const:
    """0 in the dtype of `e`."""
    return build.const(0, dtype_of(e.type))


def index32(e: n.Expr) -> n.Expr:
    """An integer as an i32 index of thread or shared memory, which has fewer elements."""
    return converted(e, I32)


def index64(e: n.Expr) -> n.Expr:
    """An integer as the 64-bit offset that C++ makes of it. Signed arithmetic does not overflow in C++, so sums widen term by term; but sums with products of
    what is not known stay as wide as they are computed: whether they fit is asked of the text as it was written."""
    if e.type != I32 or isinstance(e, (n.Const, n.Var, n.Cast)):
        return converted(e, I64)
    terms = build.polynomial(e)
    if any(len(monomial) > 1 for monomial in terms):
        return converted(e, I64)
    out: n.Expr = build.const(0, I64)
    for monomial, c in terms.items():
        product: n.Expr = build.const(c, I64)
        for atom in monomial:
            product = build.mul(product, converted(atom, I64))
        out = build.add(out, product)
    return out


def divided(e: n.Expr, c: int) -> n.Expr | None:
    """`e / c` where every term of the polynomial is a multiple of c; None elsewhere."""
    if c == 1:
        return e
    dtype = dtype_of(e.type)
    out: n.Expr = build.const(0, dtype)
    for monomial, k in build.polynomial(e).items():
        atom = monomial[0] if len(monomial) == 1 else None
        if k % c == 0:
            term = build.from_polynomial({monomial: k // c}, dtype)
        elif k == 1 and isinstance(atom, n.Select):
            a, b = divided(atom.a, c), divided(atom.b, c)
            if a is None or b is None:
                return None
            term = build.select(atom.cond, a, b)
        elif isinstance(atom, n.Cast) and atom.dtype == I64 and atom.x.type == I32 and (part := divided(atom.x, c // gcd(k, c))) is not None:
            term = build.mul(converted(part, I64), build.const(k // gcd(k, c), I64))
        else:
            return None
        out = build.add(out, term)
    return out


def shares(e: n.Expr, c: int) -> tuple[n.Expr, n.Expr]:
    """`e` as what of its sum is a multiple of c, divided by it, and the rest."""
    dtype = dtype_of(e.type)
    whole: n.Expr = build.const(0, dtype)
    rest: n.Expr = build.const(0, dtype)
    for monomial, k in build.polynomial(e).items():
        part = divided(build.from_polynomial({monomial: k}, dtype), c)
        if part is None:
            rest = build.add(rest, build.from_polynomial({monomial: k}, dtype))
        else:
            whole = build.add(whole, part)
    return whole, rest


def f32(e: n.Expr) -> n.Expr:
    """A number as f32."""
    return converted(e, F32)
