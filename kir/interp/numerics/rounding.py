"""Float operations of the machine with a stated rounding, flushing or saturation, and approximations.

An approximation is as wrong as its instruction may be (the bounds of `grammars/conformance.toml`), now above and now below: a program that is right here
does not rest on more than the instruction promises. A value that the dtype holds exactly is given exactly. The error changes slowly with the operand, so that
an operand that is rounded otherwise gives nearly the same. Approximations take subnormals for zeros unless their attr `subnormal` says that they do not.
"""
from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import resources

import ml_dtypes
import numpy as np

from kir.interp.numerics import number
from kir.interp.numerics.number import Array
from kir.ir.types import F64, DType

APPROXIMATE: dict[str, Callable[..., Array]] = {
    "exp2_approx": np.exp2, "log2_approx": np.log2, "sqrt_approx": np.sqrt, "rsqrt_approx": lambda x: 1.0 / np.sqrt(x), "sin_approx": np.sin,
    "cos_approx": np.cos, "tanh_approx": np.tanh, "rcp_approx": lambda x: 1.0 / x, "div_approx": lambda a, b: a / b}
"""Functions in f64."""
TURNS = 37.0
"""How often the error of an approximation changes its sign while its operand grows by 2 pi."""
_exact: ContextVar[bool] = ContextVar("exact approximations", default=False)
KEEPS_SUBNORMALS = frozenset({"tanh_approx", "sqrt_approx"})
"""`tanh.approx` has no form that flushes; `sqrt_approx` is Triton's square root, which does not say."""
_EXACT: dict[str, Callable[..., Array]] = {
    "add_rounded": np.add, "sub_rounded": np.subtract, "mul_rounded": np.multiply, "div_rounded": np.true_divide, "sqrt_rounded": np.sqrt,
    "rcp_rounded": lambda x: 1.0 / x}
ROUNDED = frozenset({*APPROXIMATE, *_EXACT, "fma_rounded", "to_tf32"})
"""Rows of the instruction table that `apply` knows."""


def apply(fn: str, dtype: DType, x: tuple[Array, ...], attrs: Mapping[str, object]) -> Array:
    """The result of one of the rows of this module on operands of `dtype`."""
    if fn == "to_tf32":
        return _to_tf32(x[0], str(attrs.get("rounding", "rn")))
    if fn in APPROXIMATE:
        ftz = not attrs.get("subnormal") and fn not in KEEPS_SUBNORMALS
        made = number.precise(_approximated(fn, dtype), dtype, *(_flushed(v, dtype) if ftz else v for v in x))
        return _flushed(made, dtype) if ftz else made
    ftz = bool(attrs.get("ftz"))
    operands = tuple(_flushed(v, dtype) if ftz else v for v in x)
    how = str(attrs.get("rounding", "rn"))
    out = _nearest(fn, dtype, operands) if how == "rn" else _moved(fn, dtype, operands, how)
    if ftz:
        out = _flushed(out, dtype)
    if attrs.get("sat"):
        out = np.where(np.isnan(out.astype(np.float64)), 0.0, np.clip(out.astype(np.float64), 0.0, 1.0)).astype(out.dtype)
    return out


@contextmanager
def exact() -> Iterator[None]:
    """Approximations without their errors: what a device is compared with."""
    token = _exact.set(True)
    try:
        yield
    finally:
        _exact.reset(token)


@cache
def _bounds() -> Mapping[str, tuple[float, float, float]]:
    """Of each approximation: by how many units in the last place of f32 it may be off, by which absolute amount, and up to which operand that holds (beyond
    it the amount grows with the operand, as the range of an angle is reduced)."""
    rows = tomllib.loads(resources.files("kir.grammars").joinpath("conformance.toml").read_text(encoding="utf-8"))
    return {fn: (float(row.get("ulp", 0)), float(row.get("abs", 0.0)), float(row["domain"][1]) if "abs" in row and row.get("bounded") else np.inf)
            for fn, row in rows.items() if fn in APPROXIMATE}


def _approximated(fn: str, dtype: DType) -> Callable[..., Array]:
    """The function in f64, with the error that its instruction may have on operands of `dtype`: in narrower ones than f32 a unit in the last place, in f64
    that of a seed for Newton's method."""
    if _exact.get():
        return APPROXIMATE[fn]
    ulp, absolute, most = _bounds()[fn]
    unit = float(ml_dtypes.finfo(number.storage(dtype)).eps)
    relative = ulp * unit / 2 if dtype.bits == 32 else 2.0**-20 if dtype.bits == 64 else unit / 2

    def made(*x: Array) -> Array:
        value = APPROXIMATE[fn](*x)
        beyond = np.maximum(np.abs(x[0]) / most, 1.0)
        error = np.copysign(np.maximum(np.abs(value) * relative, absolute * beyond), value) * np.cos(TURNS * x[0])
        off = value + error
        if fn == "tanh_approx":
            off = np.clip(off, -1.0, 1.0)
        return np.where(np.isfinite(off) & (value.astype(number.storage(dtype)) != value), off, value)
    return made


def _flushed(x: Array, dtype: DType) -> Array:
    """Subnormals as zeros of their sign."""
    least = float(ml_dtypes.finfo(number.storage(dtype)).smallest_normal)
    wide = x.astype(np.float64)
    return np.where((np.abs(wide) < least) & (wide != 0), np.copysign(0.0, wide), wide).astype(x.dtype)


def _nearest(fn: str, dtype: DType, x: tuple[Array, ...]) -> Array:
    if fn == "fma_rounded":
        return number.precise(lambda a, b, c: a * b + c, dtype, *x)
    return number.rounded(_EXACT[fn], dtype, *x)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b as the rounded sum and its exact error (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _split(a: Array) -> tuple[Array, Array]:
    c = a * 134217729.0
    high = c - (c - a)
    return high, a - high


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b as the rounded product and its exact error (Dekker)."""
    p = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _moved(fn: str, dtype: DType, x: tuple[Array, ...], how: str) -> Array:
    """Directed rounding. The value is found in f64 with the sign of what is missing from it; f32 and narrower results then round in the
    right direction even where the exact value lies beside an f64 that is one of theirs."""
    wide = tuple(v.astype(np.float64) for v in x)
    with np.errstate(all="ignore"):
        match fn:
            case "add_rounded" | "sub_rounded":
                near, rest = _two_sum(wide[0], wide[1] if fn == "add_rounded" else -wide[1])
            case "mul_rounded":
                near, rest = _two_product(*wide)
            case "fma_rounded":
                product, low = _two_product(wide[0], wide[1])
                near, high = _two_sum(product, wide[2])
                rest = low + high
            case "sqrt_rounded":
                near = np.sqrt(wide[0])
                square, low = _two_product(near, near)
                rest = (wide[0] - square) - low
            case _:
                top, bottom = wide if fn == "div_rounded" else (np.ones(1), wide[0])
                near = top / bottom
                product, low = _two_product(near, bottom)
                rest = ((top - product) - low) * np.sign(bottom)
    rest = np.where(np.isfinite(rest), rest, 0.0)
    if how == "rd" and fn in ("add_rounded", "sub_rounded", "fma_rounded"):
        first, second = (product, wide[2]) if fn == "fma_rounded" else (wide[0], wide[1] if fn == "add_rounded" else -wide[1])
        both = ~np.signbit(first) & ~np.signbit(second)
        near = np.where((near == 0) & (rest == 0) & ~both, -0.0, near)  # IEEE 754-2019, 6.3: downward, a sum that cancels is -0
    return _directed(near, rest, dtype, how)


def _directed(near: Array, rest: Array, dtype: DType, how: str) -> Array:
    """`near` plus a tail of the sign of `rest`, rounded: the tail matters only where `near` itself is a number of `dtype`, and there one
    step of f64 towards it lands between the two neighbors that come into question."""
    step = np.where(rest > 0, np.inf, -np.inf)
    with np.errstate(over="ignore"):
        beside = np.full(near.shape, True) if dtype == F64 else near.astype(number.storage(dtype)).astype(np.float64) == near
    nudged = np.where((rest != 0) & np.isfinite(near) & beside, np.nextafter(near, step), near)
    if dtype == F64:
        toward = {"rz": np.where(near > 0, rest < 0, rest > 0), "ru": rest > 0, "rd": rest < 0}[how]
        return np.where(toward & np.isfinite(near), nudged, near)
    return number.cast(nudged, F64, dtype, how)


def _to_tf32(x: Array, how: str) -> Array:
    if how == "rn":
        return number.to_tf32(x)
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    moved = (bits + np.uint32(0x1000 if how == "rna" else 0)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), moved, bits).astype(np.uint32).view(np.float32)
