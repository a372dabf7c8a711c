"""Products of tiles.

Products and sums are made in f64, rounded to f32 once and added to the accumulator. So a product of a tile and of its parts agree in every
bit on every machine, which sums in f32 in whatever order a BLAS takes do not.
"""
from __future__ import annotations

import numpy as np

from kir.interp.memory_access import load_store
from kir.interp.memory_access.regions import resolve
from kir.interp.numerics.number import Array, narrow, storage, to_tf32
from kir.interp.numerics.values import Val
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine
from kir.ir import nodes as n
from kir.ir.types import BF16, F32, F64, DType, dtype_of


def multiply(m: Machine, s: n.Mma, f: Frame, a: Val, b: Val) -> None:
    """acc += a * b for the active lanes; numerics as in `product`."""
    acc = s.acc.buffer.dtype
    result = product(a.data, b.data, dtype_of(s.a.type), s.precision)
    m.counters.count_flops(s.via, 2 * result.size * a.data.shape[-1])
    whole = load_store.direct(m, s.acc, f)
    if whole is not None and not m.checking and f.live is None:
        whole[...] = (whole.astype(np.float32) + result).astype(whole.dtype) if narrow(acc) else whole + result
        return
    place = resolve(m, s.acc, f)
    old = load_store.read(m, place, f)
    total = old.data.astype(np.float32) + result if narrow(acc) else old.data + result
    ok = None
    if m.checking and any(v.ok is not None for v in (a, b, old)):
        rows = True if a.ok is None else a.ok.all(-1)[..., :, None]
        columns = True if b.ok is None else b.ok.all(-2)[..., None, :]
        ok = np.broadcast_to(np.logical_and(np.logical_and(rows, columns), True if old.ok is None else old.ok), total.shape)
    load_store.write(m, place, f, Val(total.astype(storage(acc)), ok))


def product(a: Array, b: Array, of: DType, precision: str) -> Array:
    """`a` [.., m, k] times `b` [.., k, n], elements of dtype `of`, as f32 (f64 for f64, i32 for integers). `precision`: `ieee`,
    `tf32` (operands rounded), `tf32x3` and `bf16x3` (operands split in two parts, the product of the small parts dropped)."""
    if of == F64:
        return _matmul(a, b)
    if of.is_integer or of.is_bool:
        return _matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64).astype(np.int32)
    if of != F32 or precision == "ieee":
        return _rounded(a, b)
    x, y = a.astype(np.float32), b.astype(np.float32)
    def coarse(v: Array) -> Array:
        return to_tf32(v) if precision.startswith("tf32") else v.astype(storage(BF16)).astype(np.float32)
    high_a, high_b = coarse(x), coarse(y)
    if not precision.endswith("x3"):
        return _rounded(high_a, high_b)
    low_a, low_b = coarse(x - high_a), coarse(y - high_b)
    return _rounded(low_a, high_b) + _rounded(high_a, low_b) + _rounded(high_a, high_b)


def _rounded(a: Array, b: Array) -> Array:
    """The product of floats of any width, made in f64 and rounded to f32."""
    return np.asarray(_matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.float32))


ONE_THREAD = 1 << 18
"""Multiply-adds up to which OpenBLAS stays on one thread: its threads cost more than they bring here, and tile sizes stay small."""


def _matmul(a: Array, b: Array) -> Array:
    """`np.matmul` in f64, in blocks of rows, each small enough to stay on one thread."""
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    step = max(1, ONE_THREAD // max(1, inner * columns))
    if rows <= step:
        return np.asarray(np.matmul(a, b))
    return np.concatenate([np.matmul(a[..., i : i + step, :], b) for i in range(0, rows, step)], axis=-2)
