"""Machine numbers on NumPy: storage dtypes, wrapping integers, and floats that round after every operation.

Floats narrower than 32 bits compute in f32 and round once, which is the correctly rounded result for + - * / and sqrt (f32 has more
than twice their precision). Integer division by zero gives 0 rather than a trap. Shifts by the width or more give 0 (or the sign).
"""
from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import ml_dtypes
import numpy as np
from numpy._core.multiarray import count_nonzero  # without what asks other libraries first, which takes longer than to count few elements
from numpy.typing import NDArray

from kir.base.diagnostic import error
from kir.ir.types import FP8, I32, U32, DType

Array = NDArray[Any]

_STORAGE: dict[str, Any] = {
    "bool": np.bool_, "i4": np.int8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u4": np.uint8, "u8": np.uint8,
    "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
    "f64": np.float64, "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e8m0": ml_dtypes.float8_e8m0fnu,
    "f4e2m1": ml_dtypes.float4_e2m1fn, "mbarrier": np.int64, "tensormap": np.int64}

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


_KINDS: dict[str, np.dtype[Any]] = {name: np.dtype(kind) for name, kind in _STORAGE.items()}


MANY = 1 << 10
"""Floats from which on NumPy counts those that are nonzero more slowly than it looks whether all are, and converts halves more slowly than it looks them up."""


def some(x: Any) -> bool:
    """Whether any element is nonzero: `x.any()` at an eighth of the price, which for the few lanes of a team is mostly overhead."""
    return bool(count_nonzero(x))


def every(x: Any) -> bool:
    """Whether all elements are nonzero, as `some`."""
    return bool(x.all() if x.size > MANY and x.dtype.kind == "f" else count_nonzero(x) == x.size)


def storage(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype that holds one element. Raises KirError KIR-I003 for a symbolic dtype."""
    found = _KINDS.get(dtype.name)
    if found is None:
        raise error("KIR-I003", f"dtype '{dtype}' is symbolic", needs="a specialized program")
    return found


def poison(dtype: DType) -> Any:
    """The bit pattern that stands for an undefined value: NaN for floats that have one, else a conspicuous number."""
    kind = storage(dtype)
    if dtype.is_float:
        return np.array(6.0 if dtype.name == "f4e2m1" else np.nan).astype(kind)[()]
    if dtype.is_bool:
        return np.True_
    return kind.type(0x5A if dtype.bits == 8 else 5 if dtype.bits == 4 else 0x5A5A)


def wrap(x: Array, dtype: DType) -> Array:
    """`x` reduced to the width of an integer dtype (NumPy's own types wrap by themselves; 4-bit ones do not)."""
    if dtype.bits == 4 and dtype.is_integer:
        low: Array = x & np.asarray(15, x.dtype)
        if dtype.kind == "int":
            low = (low ^ 8) - 8
        return low.astype(x.dtype)
    return x


def narrow(dtype: DType) -> bool:
    """Whether operations on `dtype` compute in f32 and round."""
    return dtype.is_float and dtype.bits < 32


def rounded(op: Callable[..., Array], dtype: DType, *operands: Array) -> Array:
    """A float operation with one rounding to `dtype`."""
    if narrow(dtype):
        out: Array = op(*(x.astype(np.float32) for x in operands)).astype(storage(dtype))
        return out
    return op(*operands)


def precise(op: Callable[..., Array], dtype: DType, *operands: Array) -> Array:
    """A float function evaluated in f64, then rounded to `dtype`: the same on every machine."""
    out: Array = op(*(x.astype(np.float64) for x in operands)).astype(storage(dtype))
    return out


def _tdiv(a: Array, b: Array) -> Array:
    q = np.floor_divide(a, b)
    inexact = (q * b != a) & (b != 0)
    return np.where(inexact & ((a < 0) != (b < 0)), q + 1, q).astype(a.dtype)


def _ceildiv(a: Array, b: Array) -> Array:
    q = np.floor_divide(a, b)
    return np.where((q * b != a) & (b != 0), q + 1, q).astype(a.dtype)


def _shift(op: Callable[..., Array], dtype: DType, a: Array, b: Array) -> Array:
    one = b.size == 1
    wide: Any = not 0 <= int(b.reshape(-1)[0]) < dtype.bits if one else (b < 0) | (b >= dtype.bits)
    if not (wide if one else some(wide)):
        within: Array = op(a, b.astype(a.dtype))
        return within.astype(a.dtype, copy=False)
    shifted = op(a, np.where(wide, 0, b).astype(a.dtype))
    beyond = np.where(a < 0, -1, 0).astype(a.dtype) if op is np.right_shift and dtype.kind == "int" else np.zeros(1, a.dtype)
    return np.where(wide, beyond, shifted).astype(a.dtype)


def _least(a: Array, b: Array) -> Array:
    """The lesser, or the one that is no NaN. Of two zeros -0 is the lesser (PTX ISA, `min`): NumPy gives either, by where an element lies."""
    out: Array = np.fmin(a, b)
    return out if every(out) else np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), out)


def _greatest(a: Array, b: Array) -> Array:
    """The greater, or the one that is no NaN; of two zeros +0."""
    out: Array = np.fmax(a, b)
    return out if every(out) else np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), out)


_COMPARE: dict[str, Callable[..., Array]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal}
_FLOAT: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide, "min": _least, "max": _greatest, "mod": np.mod,
    "floordiv": np.floor_divide, "trem": np.fmod}
_BOOL: dict[str, Callable[..., Array]] = {
    "and": np.logical_and, "min": np.logical_and, "or": np.logical_or, "max": np.logical_or, "xor": np.logical_xor}
_INTEGER: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "floordiv": np.floor_divide, "mod": np.mod, "ceildiv": _ceildiv, "tdiv": _tdiv,
    "trem": lambda a, b: a - _tdiv(a, b) * b}


def operation(op: str, dtype: DType) -> Callable[[Array, Array], Array]:
    """What `a op b` does with operands of `dtype`; comparisons give bool. Raises KirError KIR-I002 where the operation has no meaning."""
    if op in _COMPARE:
        return partial(_narrowly, _COMPARE[op]) if narrow(dtype) else _COMPARE[op]
    if dtype.is_float and op in _FLOAT:
        return partial(rounded, _FLOAT[op], dtype) if narrow(dtype) else _FLOAT[op]
    if dtype.is_bool and op in _BOOL:
        return _BOOL[op]
    if dtype.is_integer and op in _INTEGER:
        return partial(_wrapping, _INTEGER[op], dtype) if dtype.bits == 4 else _INTEGER[op]
    if dtype.is_integer and op in ("shl", "shr"):
        shift = partial(_shift, np.left_shift if op == "shl" else np.right_shift, dtype)
        return partial(_wrapping, shift, dtype) if dtype.bits == 4 else shift
    raise error("KIR-I002", f"'{op}' has no meaning on {dtype}")


def _narrowly(op: Callable[..., Array], a: Array, b: Array) -> Array:
    return op(a.astype(np.float32), b.astype(np.float32))


def _wrapping(op: Callable[..., Array], dtype: DType, a: Array, b: Array) -> Array:
    return wrap(op(a, b), dtype)


def binary(op: str, dtype: DType, a: Array, b: Array) -> Array:
    """`a op b` over operands of `dtype`, as `operation`."""
    return operation(op, dtype)(a, b)


def unary(op: str, dtype: DType, x: Array) -> Array:
    """`neg`, or `not` (logical on bool, bitwise on integers)."""
    if op == "not":
        return np.logical_not(x) if dtype.is_bool else wrap(np.invert(x), dtype)
    return rounded(np.negative, dtype, x) if dtype.is_float else wrap(np.negative(x), dtype)


def cast(x: Array, source: DType, target: DType, rounding: str) -> Array:
    """`x` converted from `source` to `target`. `rn` rounds to nearest even between floats and from integers; to an integer a float
    is truncated unless `ru` or `rd` is asked for (`cvt.rzi`, what a C cast does), clamped to the range, NaN giving 0. `sat` clamps
    to the finite range of the target, and so does `rn` to fp8. `bits` reinterprets elements of equal width."""
    kind = storage(target)
    if rounding == "bits":
        if source.bytes != target.bytes:
            raise error("KIR-I002", f"bit cast from {source} to {target}: widths differ")
        return np.ascontiguousarray(x).view(kind)
    if target.is_bool:
        truth: Array = np.not_equal(x.astype(np.float32) if narrow(source) else x, 0)
        return truth
    if target.is_integer:
        return _to_integer(x, source, target, rounding)
    if not source.is_float:
        wide = x.astype(np.int64) if source.bits < 64 else x
        return wide.astype(np.float32).astype(kind) if narrow(target) else wide.astype(kind)
    if rounding == "sat" or (rounding == "rn" and target in FP8):
        largest = np.float64(ml_dtypes.finfo(kind).max)
        wide = x.astype(np.float64)
        return np.asarray(np.clip(wide, -largest, largest)).astype(kind)
    if rounding in ("rz", "ru", "rd"):
        return _directed(x, target, rounding)
    if x.dtype == np.float16 and kind == np.float32 and x.size > MANY:
        return _of_halves().take(x.view(np.uint16))
    return x.astype(kind)


@cache
def _of_halves() -> Array:
    """Each float16 as a float32, by its bits: to look up many is several times as fast as NumPy's conversion."""
    with np.errstate(invalid="ignore"):
        out: Array = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    return out


def conversion(source: DType, target: DType, rounding: str) -> Callable[[Array], Array]:
    """What `cast` does with arrays of `source`."""
    if target.is_integer and target.bits >= 8 and not source.is_float and rounding not in ("sat", "bits"):
        return partial(_stored, storage(target))
    return partial(cast, source=source, target=target, rounding=rounding)


def _stored(kind: np.dtype[Any], x: Array) -> Array:
    return x.astype(kind)


def _to_integer(x: Array, source: DType, target: DType, rounding: str) -> Array:
    """A number cut off to an integer, clamped to its range from 32 bits on (`sat`: always). A narrower one has the low bits of that of 32: compilers convert to
    32 bits and store a part."""
    kind = storage(target)
    low, high = target.range
    if not source.is_float:
        if rounding == "sat":
            limited: Array = np.clip(x.astype(object) if source.bits == 64 else x.astype(np.int64), low, high)
            return limited.astype(kind)
        return wrap(x.astype(kind), target)
    wide = x.astype(np.float64)
    whole = {"ru": np.ceil, "rd": np.floor}.get(rounding, np.trunc)(wide)
    whole = np.where(np.isnan(whole), 0.0, whole)
    if rounding != "sat" and target.bits < 32:
        low, high = (I32 if target.kind == "int" else U32).range
    safe = np.clip(whole, float(low), float(high))
    if target.bits < 64:
        return wrap(safe.astype(np.int64).astype(kind), target)
    edge = float(high)
    inside = np.where(safe >= edge, 0.0, safe).astype(kind)
    return np.where(safe >= edge, kind.type(high), inside).astype(kind)


def _directed(x: Array, target: DType, rounding: str) -> Array:
    """Directed rounding: nearest first, then one unit in the last place back where that went the wrong way."""
    kind = storage(target)
    near = x.astype(kind)
    exact, got = x.astype(np.float64), near.astype(np.float64)
    wrong = {"rz": np.abs(got) > np.abs(exact), "ru": got < exact, "rd": got > exact}[rounding]
    grow = {"rz": np.zeros(x.shape, np.bool_), "ru": exact > 0, "rd": exact < 0}[rounding]
    bits = near.view(_BITS[kind.itemsize]).copy()
    step = np.where(grow, 1, -1).astype(np.int64)
    moved = (bits.astype(np.int64) + step).astype(bits.dtype)
    return np.where(wrong & np.isfinite(exact), moved, bits).astype(bits.dtype).view(kind)


def neighbor(x: Array, toward: Array, dtype: DType) -> Array:
    """The next value of `dtype` from `x` in the direction of `toward`; `toward` itself when they are equal."""
    kind = storage(dtype)
    x, toward = np.broadcast_arrays(x, toward)
    wide, target = x.astype(np.float64), toward.astype(np.float64)
    bits = np.ascontiguousarray(x).view(_BITS[kind.itemsize])
    outward = (target > wide) == (wide > 0)
    moved = (bits.astype(np.int64) + np.where(outward, 1, -1)).astype(bits.dtype)
    sign = np.where(target < 0, 1 << (8 * kind.itemsize - 1), 0).astype(bits.dtype)
    moved = np.where(wide == 0, sign + bits.dtype.type(1), moved).astype(bits.dtype)
    same = (wide == target) | np.isnan(wide) | np.isnan(target)
    return np.where(same, np.where(np.isnan(wide), x, toward), moved.view(kind)).astype(kind)


def to_tf32(x: Array) -> Array:
    """f32 rounded to the 10 mantissa bits of tf32, to nearest even; infinities and NaN unchanged."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    odd = (bits >> np.uint32(13)) & np.uint32(1)
    up = (bits + np.uint32(0xFFF) + odd) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), up, bits).astype(np.uint32).view(np.float32)
