"""Instruction table, family `matrix`: ldmatrix, stmatrix, mma.sync and wgmma on the packed elements of each lane of a warp.

Lane mappings are those of `kir.ir.layouts.layout_tables`, numerics those of `kir.interp.memory_access.tile_product`.
"""
from __future__ import annotations

import re

import numpy as np

from kir.base.diagnostic import error
from kir.interp.calls.warp import WARP_SIZE, in_order
from kir.interp.memory_access import load_store
from kir.interp.memory_access.regions import resolve
from kir.interp.memory_access.tile_product import product
from kir.interp.numerics.number import Array, narrow, storage
from kir.interp.numerics.values import Mask, Val
from kir.interp.scheduling.async_operations import issue
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine, Semantics
from kir.interp.state.memory import Place
from kir.ir.layouts import layout_tables
from kir.ir.nodes import Call, Expr, Load, Region
from kir.ir.types import F32, DType, dtype_of


def _by_warps(v: Val, f: Frame) -> tuple[Array, Mask]:
    full = np.broadcast_to(v.data, (f.lanes, *v.tile)).reshape(f.lanes // WARP_SIZE, WARP_SIZE, -1)
    ok = None if v.ok is None else np.broadcast_to(v.ok, v.data.shape if v.data.shape[0] > 1 else (1, *v.tile))
    return full, None if ok is None else np.broadcast_to(ok, (f.lanes, *v.tile)).reshape(full.shape)


def _whole_warps(m: Machine, e: Call, f: Frame) -> None:
    if f.lanes % WARP_SIZE or not in_order(f):
        raise error("KIR-I002", f"'{e.fn}' needs whole warps of 32 lanes")
    m.must_converge(f, e.fn)


def _mma_sync(m: Machine, e: Call, f: Frame) -> Val:
    _whole_warps(m, e, f)
    a, b, c = (m.evaluate(x, f) for x in e.args if isinstance(x, Expr))
    shape = str(dict(e.attrs).get("shape", "m16n8k16"))
    if not shape.startswith("m16n8k"):
        raise error("KIR-I002", f"mma_sync of shape {shape}", needs="m16n8k4, m16n8k8, m16n8k16 or m16n8k32")
    k, of = int(shape.removeprefix("m16n8k")), dtype_of(e.args[0].type)
    fragments = layout_tables.mma_a(k, of.bits), layout_tables.mma_b(k, of.bits), layout_tables.mma_c()
    tiles, defined = [], []
    for v, held in zip((a, b, c), fragments, strict=True):
        rows, cols = held.rows, held.cols
        data, ok = _by_warps(v, f)
        if data.shape[2] != rows.shape[1]:
            raise error("KIR-I002", f"mma_sync {shape}: {data.shape[2]} elements a lane where {rows.shape[1]} are needed")
        tile = np.zeros((len(data), *held.shape), data.dtype)
        tile[:, rows, cols] = data
        tiles.append(tile)
        if m.checking:
            good = np.ones(tile.shape, np.bool_)
            if ok is not None:
                good[:, rows, cols] = ok
            defined.append(good)
    precision = "tf32" if of == F32 else "ieee"
    out = (tiles[2].astype(np.float32) if narrow(dtype_of(e.args[2].type)) else tiles[2]) + product(tiles[0], tiles[1], of, precision)
    m.counters.count_flops("tensor", 2 * 16 * 8 * k * len(out))
    rows, cols = fragments[2].rows, fragments[2].cols
    packed = out[:, rows, cols].reshape(f.lanes, -1).astype(storage(dtype_of(e.args[2].type)))
    if not m.checking or all(d.all() for d in defined):
        return Val(packed)
    good_out: Array = np.asarray(defined[0].all(2))[:, :, None] & np.asarray(defined[1].all(1))[:, None, :] & defined[2]
    return Val(packed, good_out[:, rows, cols].reshape(packed.shape))


def _rows(m: Machine, e: Call, f: Frame, num: int, verb: str) -> tuple[Place, Array]:
    """Element indices [warps, matrix, row, 8] of the rows that lanes 0 .. 8 * num - 1 of each warp name."""
    region = e.args[0]
    if not isinstance(region, Region):
        raise error("KIR-I002", f"'{e.fn}' acts on a place (&As[row, column])")
    place = resolve(m, region, f)
    if storage(place.dtype).itemsize != 2:
        raise error("KIR-I002", f"'{e.fn}' moves 16-bit elements, not {place.dtype}")
    m.out_of_bounds(place, f, None, verb, place.inside)
    first = np.broadcast_to(place.index.reshape(place.index.shape[0], -1)[:, 0], (f.lanes,)).reshape(-1, WARP_SIZE)
    if m.checking:
        m.checker.aligned(place, first[:, : 8 * num] * 2, 16, e.fn)
    index = first[:, : 8 * num].reshape(-1, num, 8, 1) + np.arange(8)
    lane = np.arange(f.lanes).reshape(-1, WARP_SIZE)[:, : 8 * num].reshape(-1, num, 8, 1) + np.zeros(8, np.int64)
    if m.checking:
        m.checker.on_rows(place, f, index, lane, verb)
    return place, index


def _ldmatrix(m: Machine, e: Call, f: Frame) -> Val:
    _whole_warps(m, e, f)
    options = dict(e.attrs)
    num, trans = int(options.get("num", 4)), bool(options.get("trans", False))
    place, index = _rows(m, e, f, num, "read")
    flat = place.memory.typed(place.dtype)
    limit = flat.size - 1
    pick = np.minimum(index, limit)[(slice(None), *layout_tables.ldmatrix(num, trans))].reshape(f.lanes, 2 * num)
    m.counters.count_bytes("read", place.memory.space, index.size * 2)
    return Val(flat[pick], m.checker.validity(place.memory, pick, 2) if m.checking else None)


def _stmatrix(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    _whole_warps(m, e, f)
    options = dict(e.attrs)
    value = next(m.evaluate(a, f) for a in e.args if isinstance(a, Expr))
    num, trans = value.data.shape[-1] // 2, bool(options.get("trans", False))
    place, index = _rows(m, e, f, num, "write")
    flat = place.memory.typed(place.dtype)
    target = index[(slice(None), *layout_tables.ldmatrix(num, trans))].reshape(f.lanes, 2 * num)
    flat[target] = np.broadcast_to(value.data, target.shape)
    m.counters.count_bytes("write", place.memory.space, target.size * 2)
    if m.checking:
        m.checker.mark(place.memory, target, 2, value.ok)
    return ()


def wgmma_shape(e: Call) -> tuple[int, int]:
    """(n, k) of a `wgmma`. Raises KirError KIR-I002 for a shape that there is not (PTX ISA, wgmma.mma_async)."""
    text, of = str(dict(e.attrs).get("shape", "")), dtype_of(e.args[1].type)
    found = re.fullmatch(r"m64n(\d+)k(\d+)", text)
    n, k = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 8 <= n <= 256 or n % 8 or k * of.bits != 256:
        raise error("KIR-I002", f"wgmma of shape '{text}' for {of}", needs=f"m64n8k{256 // of.bits} to m64n256k{256 // of.bits}, n a multiple of 8")
    return n, k


def matrix(data: Array, transposed: bool) -> Array:
    """Tiles [.., rows, columns] of what a place of a `wgmma` holds: its panels side by side, its axes the right way round."""
    if data.ndim == 4:
        data = np.swapaxes(data, 1, 2).reshape(data.shape[0], data.shape[2], -1)
    return np.swapaxes(data, 1, 2) if transposed else data


def _wgmma(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    """Issues the product: each warp adds its 16 rows to its own accumulators at any time until its group is waited for."""
    _whole_warps(m, e, f)
    n, k = wgmma_shape(e)
    acc, a, b = e.args
    if not (isinstance(acc, Region) and isinstance(a, Region) and isinstance(b, Region)):
        raise error("KIR-I002", "wgmma acts on places (&acc, &As[..], &Bs[..])")
    attrs = dict(e.attrs)
    held = layout_tables.wgmma_acc(n)
    number = f.thread_numbers()
    precision = "tf32" if dtype_of(a.type) == F32 else "ieee"

    def act(acting: Frame) -> None:
        heads = acting.subset(np.arange(0, f.lanes, WARP_SIZE))  # a warp reads shared memory as one
        right = m.evaluate(Load(b), heads)
        tile_b = matrix(right.data, bool(attrs.get("trans_b", False)))
        left = m.evaluate(Load(a), acting if a.buffer.space == "register" else heads)
        old = m.evaluate(Load(acc), acting)
        made = np.broadcast_to(old.data, (f.lanes, *old.data.shape[1:])).reshape(f.lanes, n // 2).copy()
        ok = np.ones(made.shape, np.bool_) if old.ok is None else np.broadcast_to(old.ok, (f.lanes, *old.data.shape[1:])).reshape(made.shape).copy()
        for first in range(0, f.lanes, WARP_SIZE):
            lanes, warp = slice(first, first + WARP_SIZE), first // WARP_SIZE
            rank = int(number[first]) // WARP_SIZE % 4
            if a.buffer.space == "register":
                rows, good_rows = _operand_a(left, lanes, k, dtype_of(a.type))
            else:
                whole = matrix(left.data, bool(attrs.get("trans_a", False)))
                rows = whole[warp if whole.shape[0] > 1 else 0, 16 * rank:16 * rank + 16]
                good_rows = _defined(left, warp, bool(attrs.get("trans_a", False)))[16 * rank:16 * rank + 16]
            columns = tile_b[warp if tile_b.shape[0] > 1 else 0]
            part = product(rows, columns, dtype_of(a.type), precision)
            r, c = held.rows[32 * rank:32 * rank + 32] - 16 * rank, held.cols[32 * rank:32 * rank + 32]
            made[lanes] += part[r, c].astype(made.dtype)
            if m.checking:
                good: Array = np.asarray(good_rows.all(1))[:, None] & np.asarray(_defined(right, warp, bool(attrs.get("trans_b", False))).all(0))[None]
                ok[lanes] &= good[r, c]
        back = (f.lanes, *old.data.shape[1:])
        load_store.write(m, resolve(m, acc, acting), acting, Val(made.reshape(back), ok.reshape(back) if m.checking else None), None, False)
        m.counters.count_flops("tensor", 2 * 16 * n * k * (f.lanes // WARP_SIZE))

    issue(m, acc, (a,), f, act)
    return ()


def _operand_a(v: Val, lanes: slice, k: int, of: DType) -> tuple[Array, Array]:
    """The 16 rows of A that a warp holds in registers, and which of their elements are defined."""
    fragment = layout_tables.mma_a(k, of.bits)
    rows, good = np.zeros((16, k), v.data.dtype), np.ones((16, k), np.bool_)
    rows[fragment.rows, fragment.cols] = v.data[lanes].reshape(WARP_SIZE, -1)
    if v.ok is not None:
        good[fragment.rows, fragment.cols] = np.broadcast_to(v.ok, v.data.shape)[lanes].reshape(WARP_SIZE, -1)
    return rows, good


def _defined(v: Val, lane: int, transposed: bool) -> Array:
    """Which elements of a lane's matrix are defined."""
    full = np.ones(v.data.shape, np.bool_) if v.ok is None else np.broadcast_to(v.ok, v.data.shape)
    every = matrix(full, transposed)
    return np.asarray(every[lane if every.shape[0] > 1 else 0])


MATRIX: dict[str, Semantics] = {
    "mma_sync": _mma_sync, "wgmma": _wgmma, "ldmatrix": _ldmatrix, "stmatrix": _stmatrix}
