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


def _apply(fn: str, dtype: DType, old: Array, value: Array, expected: Array | None) -> Array:
    if fn in ("atomic_exch", "atomic_store"):
        return value
    if fn == "atomic_load":
        return old
    if fn == "atomic_cas":
        assert expected is not None
        return np.where(old == expected, value, old)
    return number.binary(fn.removeprefix("atomic_"), dtype, old, value)


def rounds(index: Array) -> list[Array]:
    """Positions of `index` (1-D) split so that no element occurs twice in one part, earlier positions first."""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    first = np.ones(len(index), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    starts = np.maximum.accumulate(np.where(first, np.arange(len(index)), 0))
    rank = np.arange(len(index)) - starts
    return [order[rank == r] for r in range(int(rank.max()) + 1 if len(index) else 0)]


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
    old_ok = m.checker.on_atomic(place, f, want, [*values], dict(e.attrs), shape) if m.checking else None
    old = np.full(int(np.prod(shape)), number.poison(dtype), storage(dtype))
    wanted_old = None if expected is None else np.broadcast_to(lift(expected.data, rank), shape).reshape(-1)[chosen]
    got = np.empty(len(chosen), flat.dtype)
    for part in rounds(at):
        before = flat[at[part]]
        got[part] = before
        flat[at[part]] = _apply(e.fn, dtype, before, new[part], None if wanted_old is None else wanted_old[part])
    old[chosen] = got
    m.counters.count_bytes("atomic", place.memory.space, len(chosen) * flat.itemsize)
    return () if e.fn == "atomic_store" else Val(old.reshape(shape), old_ok)


ATOMIC: dict[str, Semantics] = dict.fromkeys(
    ("atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor", "atomic_exch", "atomic_cas",
     "atomic_load", "atomic_store"), _atomic)
