"""The place that a region names: its indices worked out for every lane, functional views and shared memory of peers resolved."""
from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, reduce

import numpy as np

from kir.base.diagnostic import error
from kir.interp.memory_access.cluster_memory import peer_handle
from kir.interp.numerics.number import Array, every, storage
from kir.interp.numerics.values import Mask, Val, both, lift
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine
from kir.interp.state.memory import Handle, KeptPlace, Place, everything, locate
from kir.ir.nodes import Expr, Region, Span
from kir.ir.visit import once


def resolve(machine: Machine, region: Region, frame: Frame, mask: Val | None = None) -> Place:
    """The place that a region names for every lane of `frame`; where a `mask` holds an access back, its address may be undefined. Raises KirError
    KIR-I005 for a name that holds no buffer."""
    handle = frame.find(region.buffer.name) or machine.globals.get(region.buffer.name)
    if not isinstance(handle, Handle):
        raise error("KIR-I005", f"'{region.buffer.name}' is no buffer here")
    index: tuple[Expr | Span, ...] = region.index
    if handle.peers is not None:
        return _of_peer(machine, region, handle, frame)
    values: list[Val] | None = None
    many = region.__dict__.get("_even_spans") or (once(region, "_even_spans", lambda: _even_spans(index)) if index else 0)
    if many and (handle.direct or (many > 1 and handle.period)):
        values = [machine.evaluate(i.lo if isinstance(i, Span) else i, frame) for i in index]
        found = _within(machine, region, handle, frame, values)
        if found is not None:
            return found
        if frame.live is None and not any(isinstance(i, Span) for i in index):
            values = None
    if not index:
        indices = _every_index(handle.shape)
        extents = [(d, 1) for d in handle.shape]
    else:
        indices, extents, ranges = _indices(machine, index, frame, mask, values)
    contiguous = extents[-1][0] if extents and extents[-1][1] == 1 and handle.strides and handle.strides[-1] == 1 else 1
    if handle.view is not None and handle.view.axes:
        return _through(machine, handle, list(indices), frame)
    return locate(handle, list(indices), frame, contiguous, ranges) if index else everything(handle, list(indices), frame, contiguous)


@lru_cache(maxsize=256)
def _every_index(shape: tuple[int, ...]) -> list[Array]:
    """All indices of a buffer by dimension, [1, *shape], which are nobody's to change."""
    return [_unchanged(np.arange(d).reshape((1,) + (1,) * i + (d,) + (1,) * (len(shape) - 1 - i))) for i, d in enumerate(shape)]


@lru_cache(maxsize=1024)
def _steps(extent: int, step: int) -> Array:
    """The indices of a span from its first, which are nobody's to change."""
    return _unchanged(np.arange(extent, dtype=np.int64) * step)


def _unchanged(x: Array) -> Array:
    x.flags.writeable = False
    return x


def _even_spans(index: tuple[Expr | Span, ...]) -> int:
    """One more than there are spans, where the extent and the step of each are numbers; else 0."""
    spans = [i for i in index if isinstance(i, Span)]
    return 1 + len(spans) if all(type(i.extent) is int and type(i.step) is int for i in spans) else 0


def _of_peer(machine: Machine, region: Region, handle: Handle, frame: Frame) -> Place:
    """A place in the shared memory of a CTA of the cluster. Raises KirError KIR-I002 for a place that is of several CTAs."""
    if not region.index or isinstance(region.index[0], Span):
        raise error("KIR-I002", f"'{region.buffer.name}' is memory of several CTAs: an access names one")
    rank = machine.uniform(region.index[0], frame)
    there = peer_handle(machine, handle, rank, frame)
    if len(region.index) == 1:
        return locate(there, list(_every_index(there.shape)), frame)
    indices, extents, ranges = _indices(machine, region.index[1:], frame)
    contiguous = extents[-1][0] if extents and extents[-1][1] == 1 and there.strides and there.strides[-1] == 1 else 1
    return locate(there, indices, frame, contiguous, ranges)


def _within(machine: Machine, region: Region, handle: Handle, frame: Frame, values: list[Val]) -> Place | None:
    """The place of a region whose indices, or the first of each span, have these values, the same for all elements of a lane; None for one that is another,
    or out of bounds without a span. What comes from spans and from indices that differ between lanes or leave the buffer is kept, and used again as long as
    they are the same values: a loop over k in A[i, k] then costs one addition."""
    base, spans = 0, 0
    varied: list[tuple[Val, int]] = []
    beyond: list[int] = []
    for k, (i, v, stride, extent) in enumerate(zip(region.index, values, handle.strides, handle.shape, strict=True)):
        if v.ok is not None or v.data.ndim > 1:
            return None
        wide, low, high = v.index()
        if isinstance(i, Span):
            assert isinstance(i.extent, int) and isinstance(i.step, int)
            reach = (i.extent - 1) * i.step
            if i.extent < 1:
                return None
            low, high = low + min(0, reach), high + max(0, reach)
            spans += 1
        if low < 0 or high >= extent:
            beyond.append(k)
        elif wide.size == 1:
            base += int(wide.item()) * stride
            continue
        varied.append((v, stride))
    if beyond and not spans:
        return None
    rest = base % handle.period  # of an address whose swizzles are the same as those of the place at `base`
    base -= rest
    kept = machine.places.get((id(region), rest))
    strides, out = tuple([stride for _, stride in varied]), tuple(beyond)
    if kept is None or kept.strides != strides or kept.beyond != out or not (
            (kept.handle is handle and kept.frame is frame and all(a is v for a, (v, _) in zip(kept.values, varied)))
            or (spans and _reusable(kept, handle, frame, varied))):
        kept = machine.places[id(region), rest] = _partial(region, handle, frame, varied, spans, rest, values, out)
    elif kept.handle is not handle or kept.frame is not frame:
        kept = machine.places[id(region), rest] = kept._replace(handle=handle, frame=frame, values=tuple([v for v, _ in varied]))
    offset, steps = kept.offset + base if base else kept.offset, kept.steps
    if beyond:
        offset = np.where(kept.inside, offset, 0)
        offset = offset if kept.lanes is None else offset + kept.lanes
    tall, last = (-1,) + (1,) * spans, region.index[-1]
    whole = isinstance(last, Span) and last.step == 1 and handle.strides[-1] == 1
    return Place(handle, handle.memory, offset, kept.inside,
                 lambda: [v.data if not spans else v.index()[0].reshape(tall) + step for v, step in zip(values, steps, strict=True)],
                 contiguous=last.extent if whole and isinstance(last, Span) and isinstance(last.extent, int) else 1)


def _reusable(kept: KeptPlace, handle: Handle, frame: Frame, varied: list[tuple[Val, int]]) -> bool:
    """Whether `_partial` gives for another buffer, frame or values what was kept, as it does where threads come to a place again: to compare what a
    lane has is less than to work out all elements of its tile."""
    old, one, other = kept.handle, kept.handle.memory, handle.memory
    if (old.shape, old.strides, old.swizzles, old.buffer.dtype) != (handle.shape, handle.strides, handle.swizzles, handle.buffer.dtype):
        return False
    if (one.size, one.lanes, one.owner is None) != (other.size, other.lanes, other.owner is None):
        return False
    pairs = [(a.data, v.data) for a, (v, _) in zip(kept.values, varied, strict=True) if a is not v]
    if one.owner is not None and other.owner is not None and one.lanes > 1:
        assert isinstance(kept.frame, Frame)
        a, b = kept.frame.lane_in(one.owner), frame.lane_in(other.owner)
        if a is None or b is None:
            if a is not b:
                return False
        elif a is not b:
            pairs.append((a, b))
    return all(a.shape == b.shape and every(a == b) for a, b in pairs)


def _partial(region: Region, handle: Handle, frame: Frame, varied: list[tuple[Val, int]], spans: int, rest: int, values: list[Val],
             beyond: tuple[int, ...]) -> KeptPlace:
    """What spans, `varied` indices (with their strides) and the lanes' own memory bring, from `rest` elements on; and which elements
    are inside in the dimensions `beyond`."""
    tall = (-1,) + (1,) * spans
    parts = [(v.index()[0] if stride == 1 else v.index()[0] * stride).reshape(tall) for v, stride in varied]
    steps: list[Array | int] = []
    axis = 0
    for i, stride in zip(region.index, handle.strides, strict=True):
        if isinstance(i, Span):
            assert isinstance(i.extent, int) and isinstance(i.step, int)
            step = _steps(i.extent, i.step).reshape((1,) * (axis + 1) + (-1,) + (1,) * (spans - 1 - axis))
            axis += 1
            parts.append(step if stride == 1 else step * stride)
            steps.append(step)
        else:
            steps.append(0)
    inside: Mask = None
    for k in beyond:
        x = values[k].index()[0].reshape(tall) + steps[k]
        inside = both(inside, (x >= 0) & (x < handle.shape[k]))
    memory, itemsize, lanes = handle.memory, storage(handle.buffer.dtype).itemsize, None
    if handle.swizzles:
        parts = [handle.swizzled(reduce(np.add, parts, np.full((1,) * (spans + 1), rest, np.int64)), itemsize)]
    if memory.owner is not None and memory.lanes > 1:
        lanes = memory.of_lanes(frame.lane_in(memory.owner), itemsize).reshape(tall)
        parts += [] if beyond else [lanes]
    offset = reduce(np.add, parts) if parts else np.zeros((1,) * (spans + 1), np.int64)
    return KeptPlace(handle, frame, tuple([v for v, _ in varied]), tuple([stride for _, stride in varied]), beyond, region, offset, lanes, inside, steps)


def _indices(machine: Machine, index: tuple[Expr | Span, ...], frame: Frame, mask: Val | None = None,
             values: list[Val] | None = None) -> tuple[list[Array], list[tuple[int, int]], list[tuple[int, int]]]:
    """Per dimension the indices [l, *tile]; per span its extent and step (0 unless it is the last index); least and largest index. `values` where those
    of the indices are known."""
    spans = [i for i in index if isinstance(i, Span)]
    out: list[Array] = []
    extents: list[tuple[int, int]] = []
    ranges: list[tuple[int, int]] = []
    axis = 0
    if values is None:
        values = [machine.evaluate(i.lo if isinstance(i, Span) else i, frame) for i in index]
    rank = max((v.data.ndim for v in values), default=1) - 1
    for i, v in zip(index, values, strict=True):
        if v.ok is not None:
            machine.must_be_defined(v if mask is None else _where_wanted(v, mask), frame, "an address")
        x, low, high = v.index()
        if isinstance(i, Span):
            extent, step = machine.size(i.extent, frame), machine.size(i.step, frame)
            x = (x[:, None] + _steps(extent, step)).reshape((x.shape[0],) + (1,) * axis + (extent,) + (1,) * (len(spans) - 1 - axis))
            extents.append((extent, step if axis == len(spans) - 1 and i is index[-1] else 0))
            low, high = min(low, low + (extent - 1) * step), max(high, high + (extent - 1) * step)
            axis += 1
        else:
            x = x.reshape(x.shape[:1] + (1,) * len(spans)) if spans else lift(x, rank)
        out.append(x)
        ranges.append((low, high))
    return out, extents, ranges


def _where_wanted(v: Val, mask: Val) -> Val:
    """A value that counts as defined wherever a mask holds the access back."""
    assert v.ok is not None
    rank = v.data.ndim - 1
    held: Array = ~mask.data.astype(np.bool_)
    if held.ndim - 1 > rank:  # the access is of several elements, all of which have this index
        held = np.asarray(held.reshape(held.shape[0], -1).all(1)).reshape((held.shape[0],) + (1,) * rank)
    return Val(v.data, v.ok | lift(held, rank))


def _through(machine: Machine, handle: Handle, indices: list[Array], frame: Frame) -> Place:
    """Elements of a functional view: its axes take the indices, and the place that it stands for is resolved with them."""
    view = handle.view
    assert view is not None
    inner = Frame(frame.lanes, frame.level, frame, None, frame.live, name=frame.name)
    own: Mask = None
    for axis, x, d in zip(view.axes, indices, handle.shape, strict=True):
        if x.size and (int(x.min()) < 0 or int(x.max()) >= d):
            within = (x >= 0) & (x < d)
            own = within if own is None else own & within
        inner.env[axis] = Val(x.astype(np.int32))
    place = resolve(machine, view.at, inner)
    return replace(place, inside=both(place.inside, own), own=both(place.own, own), fill=view.fill if view.fill is not None else place.fill)
