"""Memory as bytes, and places in it: buffers with strides and layouts, byte reinterpretations, and functional views.

Every memory is one array of bytes for each lane of the frame that owns it (one copy for global memory). A buffer's element is found
through its strides or layout, so a swizzle on one side only shows as wrong values.
"""
from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kir.dataclass import dataclass
from kir.diagnostic import error
from kir.interp.frame import Frame, Mask, Val, both, lift
from kir.interp.number import Array, poison, storage
from kir.ir.layout import row_major
from kir.ir.layout_tables import swizzled
from kir.ir.nodes import Buffer, Expr, Region, Span, View
from kir.ir.types import DType

if TYPE_CHECKING:
    from kir.interp.machine import Machine
    from kir.interp.shadow import Shadow

ALIGNMENT = 16
"""Bytes to which the memory of a lane is padded, so that every dtype sees whole elements."""


@dataclass(eq=False)
class Memory:
    """Bytes [lanes, size]. `valid` (checking mode) has a flag per granule of `granule` bytes; `written` and `fenced` count the
    generic writes to registers and those that a `wgmma_fence` has seen; `pending` names asynchronous operations in flight."""

    name: str
    space: str
    lanes: int
    size: int
    owner: Frame | None
    granule: int = 1
    valid: Array | None = None
    shadow: Shadow | None = None
    data: Array = field(init=False)
    unfenced: bool = False
    written_at: Any = None
    """The statement of the last generic write to registers."""
    pending: list[Any] = field(default_factory=list)
    _views: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.size = -(-max(self.size, 1) // ALIGNMENT) * ALIGNMENT
        self.data = np.zeros((self.lanes, self.size), np.uint8)

    def typed(self, dtype: DType) -> Array:
        """All elements of all lanes as one flat array that shares the bytes."""
        found = self._views.get(dtype.name)
        if found is None:
            found = self._views[dtype.name] = self.data.reshape(-1).view(storage(dtype))
        return found

    def granules(self, index: Array, width: int) -> Array:
        """Indices of the granules of elements of `width` bytes: one more axis at the end."""
        per = max(1, width // self.granule)
        if width < self.granule:
            return (index * width // self.granule)[..., None]
        if per == 1:
            return index[..., None]
        out: Array = index[..., None] * per + np.arange(per)
        return out

    def track(self, defined: bool) -> None:
        """Starts keeping validity, with everything defined or nothing."""
        self.valid = np.full(self.lanes * self.size // self.granule, defined, np.bool_)


@dataclass(eq=False)
class Handle:
    """A buffer's name at run time. `base` is the byte offset of its first element in each lane of `frame`; a functional view has
    `view` and is looked up in `frame`."""

    buffer: Buffer
    memory: Memory
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    swizzles: tuple[tuple[int, int, int], ...] = ()
    base: Array | None = None
    frame: Frame | None = None
    view: View | None = None
    peers: Buffer | None = None
    """The shared buffer that a view of cluster memory shows: its first index is the CTA, the others are the buffer's."""

    @property
    def direct(self) -> bool:
        """Whether an element's address is the sum of its indices times the strides."""
        return self.view is None and self.base is None and not self.swizzles and self.peers is None

    @property
    def plain(self) -> bool:
        """Whether elements lie row-major from the start of the memory."""
        return self.view is None and self.base is None and not self.swizzles and self.peers is None and self.strides == row_major(self.shape)

    def element(self, indices: list[Array], itemsize: int) -> Array:
        """Offsets in elements, from indices per dimension that broadcast (int64)."""
        base, offset, rank = 0, None, 1
        for i, s in zip(indices, self.strides, strict=True):
            rank = max(rank, i.ndim)
            if i.size == 1:
                base += int(i.reshape(-1)[0]) * s
                continue
            part = i if s == 1 else i * s
            offset = part if offset is None else offset + part
        if offset is None:
            offset = np.full((1,) * rank, base, np.int64)
        elif base:
            offset = offset + base
        if not self.swizzles:
            return offset
        at = offset * itemsize
        for bits, low, shift in self.swizzles:
            at = swizzled(at, bits, low, shift)
        return at // itemsize


@dataclass(eq=False)
class Place:
    """A resolved region: element indices `index` [l, *tile] into `memory.typed(dtype)`, and where they lie `inside` the buffer."""

    handle: Handle
    memory: Memory
    index: Array
    inside: Mask
    indices: list[Array]
    fill: Expr | None = None
    own: Mask = None
    """Where a functional view has the element itself: its fill stands for elements outside the buffer below, not outside its shape."""
    contiguous: int = 1
    """Extent of the innermost span, when its elements are neighbors."""

    @property
    def dtype(self) -> DType:
        """Dtype of the elements."""
        return self.handle.buffer.dtype


LONG = 1 << 12
"""Bytes of a period that memory is not rounded up to: no hardware swizzles so far."""


def bytes_needed(shape: tuple[int, ...], strides: tuple[int, ...], swizzles: tuple[tuple[int, int, int], ...], itemsize: int) -> int:
    """Bytes from the first to past the last element, rounded up to the period of the swizzles: of a long one, to the bytes that it exchanges, and
    not at all where no element lies so high that it is moved."""
    if any(d == 0 for d in shape):
        return 0
    size = (sum((d - 1) * abs(s) for d, s in zip(shape, strides, strict=True)) + 1) * itemsize
    for bits, low, shift in swizzles:
        period = 1 << (bits + low + shift)
        if period > LONG:
            period = 1 << (bits + low) if size > 1 << (low + shift) else 1
        size = -(-size // period) * period
    return size


def resolve(machine: Machine, region: Region, frame: Frame) -> Place:
    """The place that a region names for every lane of `frame`. Raises KirError KIR-I005 for a name that holds no buffer."""
    handle = frame.find(region.buffer.name) or machine.globals.get(region.buffer.name)
    if not isinstance(handle, Handle):
        raise error("KIR-I005", f"'{region.buffer.name}' is no buffer here")
    index: tuple[Expr | Span, ...] = region.index
    if handle.peers is not None:
        return _of_peer(machine, region, handle, frame)
    if index and handle.direct and frame.live is None:
        found = _scalars(machine, region, handle, frame)
        if found is not None:
            return found
    if not index:
        indices = [np.arange(d).reshape((1,) + (1,) * i + (d,) + (1,) * (len(handle.shape) - 1 - i)) for i, d in enumerate(handle.shape)]
        extents = [(d, 1) for d in handle.shape]
        ranges = [(0, d - 1) for d in handle.shape]
    else:
        indices, extents, ranges = _indices(machine, index, frame)
    contiguous = extents[-1][0] if extents and extents[-1][1] == 1 and handle.strides and handle.strides[-1] == 1 else 1
    if handle.view is not None and handle.view.axes:
        return _through(machine, handle, indices, frame)
    return locate(handle, indices, frame, contiguous, ranges)


def _of_peer(machine: Machine, region: Region, handle: Handle, frame: Frame) -> Place:
    """A place in the shared memory of a CTA of the cluster. Raises KirError KIR-I002 for a place that is of several CTAs."""
    if not region.index or isinstance(region.index[0], Span):
        raise error("KIR-I002", f"'{region.buffer.name}' is memory of several CTAs: an access names one")
    rank = machine.uniform(region.index[0], frame)
    there = machine.peer_handle(handle, rank, frame)
    if len(region.index) == 1:
        indices = [np.arange(d).reshape((1,) + (1,) * i + (d,) + (1,) * (len(there.shape) - 1 - i)) for i, d in enumerate(there.shape)]
        return locate(there, indices, frame)
    indices, extents, ranges = _indices(machine, region.index[1:], frame)
    contiguous = extents[-1][0] if extents and extents[-1][1] == 1 and there.strides and there.strides[-1] == 1 else 1
    return locate(there, indices, frame, contiguous, ranges)


def _scalars(machine: Machine, region: Region, handle: Handle, frame: Frame) -> Place | None:
    """The place of a region whose indices are all scalars, in bounds; None when it is another. The part of the address that comes from
    indices that differ between lanes is kept, and used again as long as they are the same values: a loop over k in A[i, k] then costs
    one addition."""
    values: list[Val] = []
    for i in region.index:
        if isinstance(i, Span):
            return None
        v = machine.evaluate(i, frame)
        if v.ok is not None or v.data.ndim > 1:
            return None
        values.append(v)
    base, varied = 0, []
    for v, stride, extent in zip(values, handle.strides, handle.shape, strict=True):
        wide, low, high = v.index()
        if low < 0 or high >= extent:
            return None
        if wide.size == 1:
            base += low * stride
        else:
            varied.append((v, stride))
    kept = machine.places.get(id(region))
    if kept is not None and kept[0] is handle and kept[1] is frame and len(kept[2]) == len(varied) and all(
            a is v for a, (v, _) in zip(kept[2], varied, strict=True)):
        partial = kept[3]
    else:
        partial = np.zeros((1,), np.int64)
        for v, stride in varied:
            partial = partial + v.index()[0] * stride
        memory = handle.memory
        if memory.owner is not None and memory.lanes > 1:
            mapped = frame.lane_in(memory.owner)
            lane = np.arange(memory.lanes) if mapped is None else mapped
            partial = partial + lane * (memory.size // storage(handle.buffer.dtype).itemsize)
        machine.places[id(region)] = (handle, frame, tuple(v for v, _ in varied), partial, region)
    return Place(handle, handle.memory, partial + base if base else partial, None, [v.data for v in values])


def _indices(machine: Machine, index: tuple[Expr | Span, ...], frame: Frame) -> tuple[list[Array], list[tuple[int, int]],
                                                                                      list[tuple[int, int]]]:
    """Per dimension the indices [l, *tile]; per span its extent and step (0 unless it is the last index); least and largest index."""
    spans = [i for i in index if isinstance(i, Span)]
    out: list[Array] = []
    extents: list[tuple[int, int]] = []
    ranges: list[tuple[int, int]] = []
    axis = 0
    values = [machine.evaluate(i.lo if isinstance(i, Span) else i, frame) for i in index]
    rank = max((v.data.ndim for v in values), default=1) - 1
    for i, v in zip(index, values, strict=True):
        if v.ok is not None:
            machine.must_be_defined(v, frame, "an address")
        x, low, high = v.index()
        if isinstance(i, Span):
            extent, step = machine.size(i.extent, frame), machine.size(i.step, frame)
            steps = np.arange(extent, dtype=np.int64) * step
            x = (x[:, None] + steps).reshape((x.shape[0],) + (1,) * axis + (extent,) + (1,) * (len(spans) - 1 - axis))
            extents.append((extent, step if axis == len(spans) - 1 and i is index[-1] else 0))
            low, high = min(low, low + (extent - 1) * step), max(high, high + (extent - 1) * step)
            axis += 1
        else:
            x = x.reshape(x.shape[:1] + (1,) * len(spans)) if spans else lift(x, rank)
        out.append(x)
        ranges.append((low, high))
    return out, extents, ranges


def locate(handle: Handle, indices: list[Array], frame: Frame, contiguous: int = 1, ranges: list[tuple[int, int]] | None = None) -> Place:
    """The elements at `indices` (int64 [l, *tile] per dimension) of a buffer with addresses."""
    inside: Mask = None
    known = [Val(x).index()[1:] for x in indices] if ranges is None else ranges
    for x, d, (low, high) in zip(indices, handle.shape, known, strict=True):
        if (low < 0 or high >= d) and x.size:
            within = (x >= 0) & (x < d)
            inside = within if inside is None else inside & within
    kind = storage(handle.buffer.dtype)
    offset = handle.element(indices, kind.itemsize)
    if handle.base is not None:
        assert handle.frame is not None
        lanes = frame.lane_in(handle.frame)
        base = handle.base if lanes is None or handle.base.shape[0] == 1 else handle.base[lanes]
        offset = offset + (base // kind.itemsize).reshape((-1,) + (1,) * (offset.ndim - 1))
    memory = handle.memory
    if inside is not None:
        offset = np.where(inside, offset, 0)
    if memory.owner is not None and memory.lanes > 1:
        mapped = frame.lane_in(memory.owner)
        lane = np.arange(memory.lanes) if mapped is None else mapped
        offset = offset + (lane * (memory.size // kind.itemsize)).reshape((-1,) + (1,) * (offset.ndim - 1))
    return Place(handle, memory, offset, inside, indices, contiguous=contiguous)


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


def fill_poison(memory: Memory, dtype: DType) -> None:
    """Writes the pattern of undefined values over the whole memory."""
    memory.typed(dtype)[:] = poison(dtype)
