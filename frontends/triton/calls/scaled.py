"""`tl.dot_scaled`: products of microscaled operands, as Triton computes them where the hardware has no such product.

Each operand is widened to bf16 (f16 where one of them is fp16), multiplied by its scales in that dtype, and the two are multiplied. A scale is a power
of two without sign (e8m0, its bits in a uint8), one for 32 elements along K; 255 is NaN. Source: Triton 3.6, `DecomposeScaledBlocked.cpp`, and the
OCP Microscaling Formats specification 1.0.
"""

from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BF16, F8E4M3, F8E5M2, F16, F32, I32, U8, U32, DType, shape_of

from ..state.state import State
from ..types.shapes import reshaped, size, stretched
from ..values import operators
from ..values.arguments import Arguments
from ..values.values import Dim, NotUnderstood, Run, Value, describe
from .reductions import dot, tile_of

FORMATS = {"e4m3": F8E4M3, "e5m2": F8E5M2, "bf16": BF16, "fp16": F16, "e2m1": U8}
GROUP = 32
"""Elements along K that share a scale."""


def dot_scaled(r: State, a: Arguments) -> Value:
    """`tl.dot_scaled(lhs, lhs_scale, lhs_format, rhs, rhs_scale, rhs_format, acc, fast_math, lhs_k_pack, rhs_k_pack)`."""
    formats = [_format(a.need(2, "lhs_format")), _format(a.need(5, "rhs_format"))]
    if not all(a.get(k, word, True) is True for k, word in ((8, "lhs_k_pack"), (9, "rhs_k_pack"))):
        raise NotUnderstood("a scaled product of operands that are not packed along K")
    fast = a.get(7, "fast_math", False)
    if not isinstance(fast, bool):
        raise NotUnderstood("a scaled product whose treatment of NaN the binding decides")
    dtype = F16 if "fp16" in formats else BF16
    lhs = _scaled(r, tile_of(a.need(0, "lhs"), "the product"), a.get(1, "lhs_scale"), formats[0], dtype, fast)
    rhs = _turned(_scaled(r, _turned(tile_of(a.need(3, "rhs"), "the product")), a.get(4, "rhs_scale"), formats[1], dtype, fast))
    return dot(r, Arguments([Run(lhs), Run(rhs), a.get(6, "acc")], {}))


def _format(v: Value) -> str:
    if isinstance(v, str) and v in FORMATS:
        return v
    raise NotUnderstood(f"{describe(v)} as a format of a scaled product")


def _turned(e: n.Expr) -> n.Expr:
    """A matrix with its axes exchanged."""
    _matrix(e)
    return build.call("trans", e, build.const(1), build.const(0))


def _matrix(e: n.Expr) -> tuple[Dim, Dim]:
    """The rows and columns of an operand."""
    if len(shape := shape_of(e.type)) != 2:
        raise NotUnderstood("a scaled product of tiles of unusual rank")
    return shape[0], shape[1]


def _scaled(r: State, e: n.Expr, scale: Value, kind: str, dtype: DType, fast: bool) -> n.Expr:
    """A matrix whose rows lie along K, widened and multiplied by its scales."""
    rows, columns = _matrix(e)
    given = build.cast(e, FORMATS[kind], "bits")
    wide = build.cast(given, dtype) if kind != "e2m1" else _four_bits(r, given, rows, columns, dtype)
    columns = shape_of(wide.type)[1]
    if scale is None:
        return wide
    held = tile_of(scale, "the scale")
    if len(shape_of(held.type)) != 2:
        raise NotUnderstood("scales of unusual rank")
    if not (held_dtype := held.type.dtype).is_symbolic and held_dtype != U8:  # type: ignore[union-attr]  # a tile, by its rank
        raise NotUnderstood(f"scales of {held_dtype}")
    bits = r.out.let("scale", build.cast(held, U8, "bits"))
    groups = shape_of(bits.type)[1]
    power = build.cast(build.cast(build.binary("shl", build.cast(bits, U32), _like(23, U32, bits)), F32, "bits"), dtype)
    if not fast:
        power = build.select(build.compare("eq", bits, _like(255, U8, bits)), _like(float("nan"), dtype, bits), power)
    return build.mul(wide, reshaped(stretched(build.expand(power, 2), (rows, groups, GROUP)), (rows, columns)))


def _four_bits(r: State, e: n.Expr, rows: Dim, columns: Dim, dtype: DType) -> n.Expr:
    """Elements of a sign, two bits of exponent and one of mantissa, two in a byte, the first in its lower half: ±0, 0.5, 1, 1.5, 2, 3, 4, 6."""
    e = r.out.let("packed", e)
    low, high = build.binary("and", e, _like(15, U8, e)), build.binary("shr", e, _like(4, U8, e))
    four = r.out.let("four", build.cast(reshaped(build.call("join", low, high), (rows, size((columns, 2)))), I32))
    size_, sign = build.binary("and", four, _like(7, I32, four)), build.binary("and", four, _like(8, I32, four))
    half = build.mul(build.cast(build.binary("and", size_, _like(1, I32, four)), F32), _like(0.5, F32, four))
    exponent = build.binary("shr", size_, _like(1, I32, four))
    power = build.cast(build.binary("shl", build.add(exponent, _like(126, I32, four)), _like(23, I32, four)), F32, "bits")
    normal = build.mul(build.add(half, _like(1.0, F32, four)), power)
    value = build.select(build.compare("eq", exponent, _like(0, I32, four)), half, normal)
    return build.cast(build.select(build.compare("eq", sign, _like(0, I32, four)), value, build.negate(value)), dtype)


def _like(value: int | float, dtype: DType, e: n.Expr) -> n.Expr:
    """A tile of one number, of the shape of another."""
    return stretched(operators.number(value, dtype), shape_of(e.type))
