"""Instruction table, family `math`: functions of single elements, correctly rounded from f64 (approximate rows included)."""
from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from kir.base.diagnostic import error
from kir.interp.numerics import bits, number, rounding, special_functions
from kir.interp.numerics.number import Array
from kir.interp.numerics.values import Val, aligned, defined
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine
from kir.ir.nodes import Call, Expr
from kir.ir.types import F64, DType, dtype_of

Elementwise = Callable[..., Array]


_FLOAT: dict[str, Elementwise] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x), "rcp": lambda x: 1.0 / x,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erf": special_functions.each(math.erf), "erfinv": special_functions.each(special_functions.erfinv),
    "lgamma": special_functions.each(special_functions.lgamma),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)), "floor": np.floor, "ceil": np.ceil, "round_even": np.rint,
    "round_away": special_functions.round_away, "trunc": np.trunc, "pow": np.power, "fmod": np.fmod, "copysign": np.copysign,
    "fma": lambda a, b, c: a * b + c,
    "log10": np.log10, "exp10": lambda x: np.power(10.0, x), "hypot": np.hypot, "cbrt": np.cbrt, "remainder": special_functions.remainder,
    "j0": special_functions.bessel_j0, "j1": special_functions.bessel_j1, "i0": special_functions.bessel_i0, "i1": special_functions.bessel_i1,
    "erfc": special_functions.each(math.erfc),
    "erfcx": special_functions.each(special_functions.erfcx), "tgamma": special_functions.each(special_functions.tgamma), "min_nan": special_functions.min_nan,
    "max_nan": special_functions.max_nan, "abs": np.abs}


def _unsigned(x: Array) -> Array:
    return np.ascontiguousarray(x).view(np.dtype(f"u{x.dtype.itemsize}"))


def _popc(x: Array, dtype: DType) -> Array:
    u, out = _unsigned(x).astype(np.uint64), np.zeros(x.shape, np.int32)
    for _ in range(dtype.bits):
        out += (u & np.uint64(1)).astype(np.int32)
        u = u >> np.uint64(1)
    return out


def _clz(x: Array, dtype: DType) -> Array:
    u, out = _unsigned(x).astype(np.uint64), np.full(x.shape, dtype.bits, np.int32)
    for bit in range(dtype.bits):
        out = np.where((u >> np.uint64(bit)) & np.uint64(1), dtype.bits - 1 - bit, out)
    return out.astype(np.int32)


def _ffs(x: Array, dtype: DType) -> Array:
    u, out = _unsigned(x).astype(np.uint64), np.zeros(x.shape, np.int32)
    for bit in reversed(range(dtype.bits)):
        out = np.where((u >> np.uint64(bit)) & np.uint64(1), bit + 1, out)
    return out.astype(np.int32)


def _brev(x: Array, dtype: DType) -> Array:
    u, out = _unsigned(x).astype(np.uint64), np.zeros(x.shape, np.uint64)
    for _ in range(dtype.bits):
        out = (out << np.uint64(1)) | (u & np.uint64(1))
        u = u >> np.uint64(1)
    return out.astype(_unsigned(x).dtype).view(x.dtype)


_BITS: dict[str, Callable[[Array, DType], Array]] = {"popc": _popc, "clz": _clz, "ffs": _ffs, "brev": _brev}


def _mulhi(a: Array, b: Array, dtype: DType) -> Array:
    wide = (a.astype(object) * b.astype(object)) >> dtype.bits
    return np.asarray(wide).astype(number.storage(dtype))


def _prmt(a: Array, b: Array, selector: Array) -> Array:
    """Byte permute, PTX ISA 9.7.8.6 `prmt` in its default mode: selector nibble n takes byte n & 7 of b:a, or its sign."""
    both = a.astype(np.uint32).astype(np.uint64) | (b.astype(np.uint32).astype(np.uint64) << np.uint64(32))
    pick = selector.astype(np.uint32).astype(np.uint64)
    out = np.zeros(np.broadcast_shapes(both.shape, pick.shape), np.uint64)
    for i in range(4):
        code = (pick >> np.uint64(4 * i)) & np.uint64(15)
        byte = (both >> ((code & np.uint64(7)) * np.uint64(8))) & np.uint64(255)
        sign = np.where(byte >> np.uint64(7), np.uint64(255), np.uint64(0))
        out |= np.where(code >> np.uint64(3), sign, byte) << np.uint64(8 * i)
    return out.astype(np.uint32)


def philox(seed: Array, counter: tuple[Array, Array, Array, Array], rounds: int = 10) -> tuple[Array, ...]:
    """Philox 4x32 (Salmon et al., SC 2011): four u32 words from a 64-bit seed and four u32 counters, elementwise."""
    key = seed.astype(np.uint64)
    k0, k1 = (key & np.uint64(0xFFFFFFFF)).astype(np.uint64), key >> np.uint64(32)
    low = np.uint64(0xFFFFFFFF)
    c0, c1, c2, c3 = (c.astype(np.uint32).astype(np.uint64) for c in counter)
    for _ in range(rounds):
        x, y = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (y >> np.uint64(32)) ^ c1 ^ k0, y & low, (x >> np.uint64(32)) ^ c3 ^ k1, x & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return tuple(c.astype(np.uint32) for c in (c0, c1, c2, c3))


def _uniform(bits: Array) -> Array:
    """Random bits to [0, 1): the magnitude of the bits as a signed number (one's complement if negative), scaled by about 2^-31."""
    signed = np.ascontiguousarray(bits.astype(np.uint32)).view(np.int32)
    return np.where(signed < 0, ~signed, signed).astype(np.float32) * np.float32(4.6566127342e-10)


def _math(m: Machine, e: Call, f: Frame) -> Val:
    values = [m.evaluate(a, f) for a in e.args if isinstance(a, Expr)]
    operands = aligned(*values)
    dtype = dtype_of(e.args[0].type)
    ok = defined(*values) if m.checking else None
    if m.checking:
        m.counters.count_flops("sfu", max(x.size for x in operands))
    return Val(apply(e.fn, dtype, operands, dict(e.attrs)), ok)


def apply(fn: str, dtype: DType, x: tuple[Array, ...], attrs: dict[str, object]) -> Array:
    """The result of one of the rows of this module on operands of `dtype`. Raises KirError KIR-I002 where it has no meaning."""
    if fn in bits.BITS:
        return bits.BITS[fn](dtype, x, attrs)
    if fn in rounding.ROUNDED:
        return rounding.apply(fn, dtype, x, attrs)
    if fn in _BITS:
        return _BITS[fn](x[0], dtype)
    if fn == "mulhi":
        return _mulhi(x[0], x[1], dtype)
    if fn == "prmt":
        return _prmt(*x).astype(x[0].dtype)
    if fn == "philox":
        zero = np.zeros(1, np.uint32)
        words = [*x[1:], zero, zero, zero][:4]
        wide = np.broadcast_arrays(x[0], *words)
        out = philox(wide[0], (wide[1], wide[2], wide[3], wide[4]), int(str(attrs.get("rounds", 10))))
        return out[int(str(attrs.get("lane", 0)))]
    if fn == "uint_to_unit_float":
        return _uniform(x[0])
    if fn in ("isnan", "isinf", "isfinite"):
        return {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}[fn](x[0].astype(np.float64))
    if fn in ("ilogb", "signbit"):
        return special_functions.ilogb(x[0].astype(np.float64)) if fn == "ilogb" else np.signbit(x[0].astype(np.float32)).astype(np.int32)
    if fn == "ldexp":
        return np.ldexp(x[0].astype(np.float64), x[1]).astype(number.storage(dtype))
    if fn == "div_rz":
        return number.cast(x[0].astype(np.float64) / x[1].astype(np.float64), F64, dtype, "rz")
    if fn == "nextafter":
        return number.neighbor(x[0], x[1], dtype)
    if dtype.is_float:
        return number.precise(_FLOAT[fn], dtype, *x)
    if fn == "abs":
        return number.wrap(np.abs(x[0]), dtype)
    if fn == "fma":
        return number.binary("add", dtype, number.binary("mul", dtype, x[0], x[1]), x[2])
    if fn in ("min_nan", "max_nan"):
        return number.binary(fn[:3], dtype, x[0], x[1])
    raise error("KIR-I002", f"'{fn}' has no meaning on {dtype}")


MATH = dict.fromkeys((*_FLOAT, *_BITS, "mulhi", "prmt", "philox", "uint_to_unit_float", "isnan", "isinf", "isfinite",
                      "ilogb", "signbit", "ldexp", "div_rz", "nextafter",
                      *bits.BITS, *rounding.ROUNDED), _math)
