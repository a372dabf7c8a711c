"""Integer operations of the machine on bits: three-input logic, fields, funnel shifts, dot products of bytes (PTX ISA 9.7.1, 9.7.8)."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kir.interp.numerics.number import Array
from kir.ir.types import DType

Attrs = Mapping[str, Any]
Operation = Callable[[DType, tuple[Array, ...], Attrs], Array]


def _wide(x: Array) -> Array:
    """The bits of an integer, zero-extended to u64."""
    return np.ascontiguousarray(x).view(np.dtype(f"u{x.dtype.itemsize}")).astype(np.uint64)


def _narrow(x: Array, like: Array) -> Array:
    return np.ascontiguousarray(x.astype(np.dtype(f"u{like.dtype.itemsize}"))).view(like.dtype)


def _lop3(dtype: DType, x: tuple[Array, ...], attrs: Attrs) -> Array:
    a, b, c = np.broadcast_arrays(*(_wide(v) for v in x))
    lut, ones = int(attrs["lut"]), np.uint64((1 << dtype.bits) - 1)
    out = np.zeros(a.shape, np.uint64)
    for code in range(8):
        if lut >> code & 1:
            out |= (a if code & 4 else a ^ ones) & (b if code & 2 else b ^ ones) & (c if code & 1 else c ^ ones)
    return _narrow(out, x[0])


def _bit_extract(dtype: DType, x: tuple[Array, ...], attrs: Attrs) -> Array:
    """The bits at and above `position`, `length` of them; past the top come zeros, or the sign for signed operands."""
    value, position, length = np.broadcast_arrays(_wide(x[0]), x[1].astype(np.int64) & 255, x[2].astype(np.int64) & 255)
    top = dtype.bits - 1
    if dtype.kind == "int":
        signed = np.broadcast_to(x[0], value.shape).astype(np.int64)
        last = np.minimum(position + length - 1, top)
        sign = np.where(length == 0, 0, (value >> np.maximum(last, 0).astype(np.uint64)) & np.uint64(1)).astype(np.int64)
        got = signed >> np.minimum(position, 63)
        keep = np.where(length >= 63, -1, (np.int64(1) << np.minimum(length, 62)) - 1)
        out = np.where(sign == 1, (got & keep) | ~keep, got & keep)
        return _narrow(out.view(np.uint64), x[0])
    got = np.where(position > top, np.uint64(0), value >> np.minimum(position, 63).astype(np.uint64))
    mask = np.where(length >= 64, np.uint64(2**64 - 1), (np.uint64(1) << np.minimum(length, 63).astype(np.uint64)) - np.uint64(1))
    return _narrow(got & mask, x[0])


def _bit_insert(dtype: DType, x: tuple[Array, ...], attrs: Attrs) -> Array:
    base, field = _wide(x[0]), _wide(x[1])
    position, length = x[2].astype(np.int64) & 255, x[3].astype(np.int64) & 255
    at = np.arange(dtype.bits, dtype=np.int64)
    inside = (at >= position[..., None]) & (at < (position + length)[..., None])
    mask = (np.where(inside, np.uint64(1), np.uint64(0)) << at.astype(np.uint64)).sum(axis=-1, dtype=np.uint64)
    moved = np.where(position >= dtype.bits, np.uint64(0), field << np.minimum(position, 63).astype(np.uint64))
    return _narrow((base & ~mask) | (moved & mask), x[0])


def _nth_bit(dtype: DType, x: tuple[Array, ...], attrs: Attrs) -> Array:
    """The place of the n-th set bit from a place on, upward for a positive n, downward for a negative one; that place itself for 0, if its bit is set; all
    ones where there is none."""
    value, start, count = np.broadcast_arrays(_wide(x[0]), _wide(x[1]).astype(np.int64), _wide(x[2]).astype(np.uint32).view(np.int32).astype(np.int64))
    out, left = np.full(value.shape, 0xFFFFFFFF, np.uint64), np.maximum(np.abs(count), 1)
    for step in range(32):
        place = start + np.where(count < 0, -step, step)
        there = (place >= 0) & (place < 32) & ((count != 0) | (step == 0)) & (value >> np.clip(place, 0, 31).astype(np.uint64) & np.uint64(1) == 1)
        left = left - there
        out = np.where(there & (left == 0), place.astype(np.uint64), out)
    return _narrow(out, x[0])


def _funnel(left: bool) -> Operation:
    def run(dtype: DType, x: tuple[Array, ...], attrs: Attrs) -> Array:
        low, high, by = np.broadcast_arrays(_wide(x[0]), _wide(x[1]), _wide(x[2]))
        amount = np.minimum(by, np.uint64(32)) if attrs.get("clamp") else by & np.uint64(31)
        both = (high << np.uint64(32)) | low
        return _narrow((both << amount) >> np.uint64(32) if left else both >> amount, x[0])
    return run


def _dp4a(dtype: DType, x: tuple[Array, ...], attrs: Attrs) -> Array:
    out = x[2].astype(np.int64)
    for i in range(4):
        parts = []
        for v in x[:2]:
            byte = (_wide(v) >> np.uint64(8 * i) & np.uint64(255)).astype(np.int64)
            parts.append(np.where(byte > 127, byte - 256, byte) if v.dtype.kind == "i" else byte)
        out = out + parts[0] * parts[1]
    return _narrow(out.view(np.uint64), x[2])


BITS: dict[str, Operation] = {"lop3": _lop3, "bit_extract": _bit_extract, "bit_insert": _bit_insert, "nth_bit": _nth_bit, "funnel_left": _funnel(True),
                              "funnel_right": _funnel(False), "dp4a": _dp4a}
