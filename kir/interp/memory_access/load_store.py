"""Reading and writing places: masks, clipping, undefined values, and what the checker wants to know of each access."""
from __future__ import annotations

from dataclasses import replace

import numpy as np

from kir.interp.memory_access.regions import resolve
from kir.interp.numerics.number import Array, poison, storage
from kir.interp.numerics.values import Mask, Val, both, lift, spread
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine
from kir.interp.state.memory import Handle, Place
from kir.ir.nodes import Load, Region


def load(m: Machine, e: Load, f: Frame) -> Val:
    """The value of a load expression."""
    if not e.at.index and e.mask is None and not m.checking:
        whole = direct(m, e.at, f)
        if whole is not None:
            return Val(whole.copy())
    mask = None if e.mask is None else m.evaluate(e.mask, f)
    place = resolve(m, e.at, f, mask)
    other = None if e.other is None else m.evaluate(e.other, f)
    return read(m, place, f, mask, other, e.clip, e.cache)


def direct(m: Machine, region: Region, f: Frame) -> Array | None:
    """The elements [lanes, *shape] of a whole buffer that lies densely in memory of this very frame, sharing the bytes; else None."""
    handle = f.find(region.buffer.name)
    if region.index or not isinstance(handle, Handle) or handle.memory.owner is not f or not handle.plain:
        return None
    return handle.whole


def filled(m: Machine, region: Region, f: Frame, value: Val) -> bool:
    """Whether a whole buffer of this very frame could be written as one, in the active lanes: as `write` does, where nobody checks."""
    whole = None if m.checking else direct(m, region, f)
    if whole is None:
        return False
    data = lift(value.data, whole.ndim - 1)
    if f.live is None:
        whole[...] = data
        written = whole.nbytes
    else:
        whole[f.live] = data[f.live] if data.shape[0] > 1 else data
        written = int(f.live.sum()) * (whole.nbytes // max(1, whole.shape[0]))
    m.counters.count_bytes("write", region.buffer.space, written)
    return True


def wanted(m: Machine, place: Place, f: Frame, mask: Val | None, clip: bool, verb: str) -> Mask:
    """Which elements an access touches, inactive lanes left out of account: mask and bounds; None for all."""
    want: Mask = None
    rank = place.index.ndim - 1
    if mask is not None:
        m.must_be_defined(mask, f, "a mask")
        want = lift(mask.data, rank)
    if place.inside is not None:
        if not clip:
            m.out_of_bounds(place, f, want, verb, place.own if verb == "read" and place.fill is not None else place.inside)
        want = both(want, place.inside)
    if m.coverage is not None and (mask is not None or clip):
        m.coverage.access(m.site, verb, want, f)
    if m.coverage is not None and place.memory.space == "global":
        m.coverage.touched(place.memory, place.index, storage(place.dtype).itemsize, want, f)
    return want


def read(m: Machine, place: Place, f: Frame, mask: Val | None = None, other: Val | None = None, clip: bool = False,
         cache: str = "") -> Val:
    """The elements of a place; `other` (else the view's fill, else an undefined value) where they are masked off or outside."""
    want = wanted(m, place, f, mask, clip, "read")
    if m.checking:
        place = _apart(place, mask, clip)
    dtype = place.dtype
    data = place.memory.typed(dtype).take(place.index)
    ok: Mask = None
    if m.checking:
        ok = m.checker.on_read(place, f, want, cache)
        m.checker.lookahead.on_read(place, f, want, cache)
    m.counters.count_bytes("read", place.memory.space, _elements(place, want, f) * storage(dtype).itemsize)
    if want is None:
        return Val(data, ok)
    if other is None and place.fill is not None:
        other = m.evaluate(place.fill, f)
    instead = Val(np.array([poison(dtype)]), np.zeros(1, np.bool_)) if other is None else other
    rank = data.ndim - 1
    out = np.where(want, data, lift(instead.data, rank))
    if not m.checking:
        return Val(out)
    if ok is None and instead.ok is None:
        return Val(out)
    inner = np.ones((1,), np.bool_) if ok is None else ok
    outer = np.ones((1,), np.bool_) if instead.ok is None else instead.ok
    return Val(out, np.where(want, lift(inner, rank), lift(outer, rank)))


def _apart(place: Place, mask: Val | None, clip: bool) -> Place:
    """A place whose elements are touched one by one, where each has a condition of its own or as far as the tensor goes: no vector."""
    return replace(place, contiguous=1) if clip or (mask is not None and mask.data.ndim > 1 and mask.data.shape[-1] > 1) else place


def _elements(place: Place, want: Mask, f: Frame) -> int:
    """How many elements a read reaches: those that a mask, the tensor's end or a branch leaves out are not among them; one that all lanes read is one."""
    shape, rank = place.index.shape, place.index.ndim - 1
    if f.live is not None and shape[0] > 1:
        want = both(None if want is None else lift(want, rank), lift(f.live, rank))
    if want is None:
        return int(place.index.size)
    want = lift(want, rank)
    alike = tuple(k for k, (n, d) in enumerate(zip(want.shape, shape)) if n > d)
    want = want.any(axis=alike, keepdims=True) if alike else want
    return int(np.count_nonzero(want) * (place.index.size // max(1, want.size)))


def write(m: Machine, place: Place, f: Frame, value: Val, mask: Val | None = None, clip: bool = False, cache: str = "") -> None:
    """Stores a value of the place's shape (or one that broadcasts to it) in the active lanes."""
    want = wanted(m, place, f, mask, clip, "write")
    if m.checking:
        place = _apart(place, mask, clip)
    rank = max(place.index.ndim, value.data.ndim) - 1
    if f.live is not None:
        want = both(want, lift(f.live, rank)) if want is None or want.ndim == rank + 1 else both(lift(want, rank), lift(f.live, rank))
    index, data = lift(place.index, rank), lift(value.data, rank)
    flat = place.memory.typed(place.dtype)
    if m.checking:
        m.checker.on_write(place, f, want, value, cache)
        m.checker.lookahead.on_write(place, want)
    if want is None:
        if data.shape[0] > index.shape[0]:
            index = np.broadcast_to(index, np.broadcast_shapes(index.shape, data.shape))
        flat[index] = data
        m.counters.count_bytes("write", place.memory.space, index.size * flat.itemsize)
        return
    shape = np.broadcast_shapes(index.shape, data.shape, want.shape)
    chosen = spread(want, shape)
    flat[spread(index, shape)[chosen]] = spread(data, shape)[chosen]
    m.counters.count_bytes("write", place.memory.space, int(np.count_nonzero(chosen)) * flat.itemsize)
