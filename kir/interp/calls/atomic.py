"""Instruction table, family `atomic`: read-modify-write of single elements, lane by lane in the order of the lanes."""
from __future__ import annotations

import numpy as np

from kir.base.diagnostic import error
from kir.interp.memory_access.load_store import wanted
from kir.interp.memory_access.regions import resolve
from kir.interp.numerics import number
from kir.interp.numerics.number import Array, storage
from kir.interp.numerics.values import Val, both, lift
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine, Semantics
from kir.ir.nodes import Call, Expr, Region
from kir.ir.types import DType

FEW_TURNS = 8
"""Updates of one element that are made one by one."""


def _apply(fn: str, dtype: DType, old: Array, value: Array, expected: Array | None) -> Array:
    if fn in ("atomic_exch", "atomic_store"):
        return value
    if fn == "atomic_load":
        return old
    if fn == "atomic_cas":
        assert expected is not None
        return np.where(old == expected, value, old)
    return number.binary(fn.removeprefix("atomic_"), dtype, old, value)


def _turns(index: Array) -> tuple[Array, Array]:
    """The positions of `index` (1-D) by element, earlier ones first, and for each of them how many of its element come before it."""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    first = np.ones(len(index), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    places = np.arange(len(index))
    return order, places - np.maximum.accumulate(np.where(first, places, 0))


def _one_by_one(flat: Array, at: Array, new: Array, expected: Array | None, fn: str, dtype: DType, turns: tuple[Array, Array]) -> Array:
    """What each update finds. Those of different elements go at once: first the first of each element, then the second of each."""
    order, rank = turns
    got = np.empty(len(at), flat.dtype)
    for part in np.split(order[np.argsort(rank, kind="stable")], np.cumsum(np.bincount(rank))[:-1]):
        before = flat[at[part]]
        got[part] = before
        flat[at[part]] = _apply(fn, dtype, before, new[part], None if expected is None else expected[part])
    return got


def _at_once(flat: Array, at: Array, new: Array, fn: str, dtype: DType, turns: tuple[Array, Array]) -> Array:
    """The same for an operation that is associative to the bit: what the updates of an element come to, up to each, in twice as long strides each time."""
    order, rank = turns
    upto, stride, most = new[order], 1, int(rank.max())
    while stride <= most:
        later = np.flatnonzero(rank >= stride)
        upto[later] = _apply(fn, dtype, upto[later - stride], upto[later], None)
        stride *= 2
    begun = flat[at[order]]
    before, later = begun.copy(), np.flatnonzero(rank > 0)
    before[later] = _apply(fn, dtype, begun[later], upto[later - 1], None)
    last = np.flatnonzero(np.append(rank[1:] == 0, True))
    flat[at[order[last]]] = _apply(fn, dtype, begun[last], upto[last], None)
    got = np.empty(len(at), flat.dtype)
    got[order] = before
    return got


def _atomic(m: Machine, e: Call, f: Frame) -> Val | tuple[Val, ...]:
    region, *rest = e.args
    if not isinstance(region, Region):
        raise error("KIR-I002", f"'{e.fn}' acts on a place (&A[i])")
    values = [m.evaluate(a, f) for a in rest if isinstance(a, Expr)]
    expected = values[0] if e.fn == "atomic_cas" else None
    mask = values[1] if expected is None and len(values) > 1 else None
    place = resolve(m, region, f, mask)
    value = values[1] if expected is not None else values[0] if values else Val(np.zeros(1, storage(place.dtype)))
    clip = bool(dict(e.attrs).get("clip", False))
    want = wanted(m, place, f, mask, clip, "update")
    rank = max(v.data.ndim for v in (value, *values)) - 1
    rank = max(rank, place.index.ndim - 1)
    if f.live is not None:
        want = lift(f.live, rank) if want is None else both(lift(want, rank), lift(f.live, rank))
    index, data = lift(place.index, rank), lift(value.data, rank)
    shape = np.broadcast_shapes(index.shape, data.shape, (f.lanes,) + (1,) * rank, (1,) if want is None else want.shape)
    flat, dtype = place.memory.typed(place.dtype), place.dtype
    chosen = np.flatnonzero(np.broadcast_to(True if want is None else want, shape))
    at = np.broadcast_to(index, shape).reshape(-1)[chosen]
    new = np.broadcast_to(data, shape).reshape(-1)[chosen]
    old_ok = None
    if m.checking:
        old_ok = m.checker.on_atomic(place, f, want, [*values], dict(e.attrs), shape)
        m.checker.lookahead.on_write(place, want)
    old = np.full(int(np.prod(shape)), number.poison(dtype), storage(dtype))
    wanted_old = None if expected is None else np.broadcast_to(lift(expected.data, rank), shape).reshape(-1)[chosen]
    if len(chosen):
        turns = _turns(at)
        associative = not dtype.is_float and expected is None and int(turns[1].max()) >= FEW_TURNS
        old[chosen] = _at_once(flat, at, new, e.fn, dtype, turns) if associative else _one_by_one(flat, at, new, wanted_old, e.fn, dtype, turns)
    m.counters.count_bytes("atomic", place.memory.space, len(chosen) * flat.itemsize)
    return () if e.fn == "atomic_store" else Val(old.reshape(shape), old_ok)


ATOMIC: dict[str, Semantics] = dict.fromkeys(
    ("atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor", "atomic_exch", "atomic_cas",
     "atomic_load", "atomic_store"), _atomic)
