"""Memory as bytes, and places in it: buffers with strides and layouts, byte reinterpretations, and functional views.

Every memory is one array of bytes for each lane of the frame that owns it (one copy for global memory). A buffer's element is found
through its strides or layout, so a swizzle on one side only shows as wrong values.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from kir.base.dataclass import dataclass
from kir.interp.numerics.number import Array, poison, storage
from kir.interp.numerics.values import Mask, Val
from kir.interp.state.shadow import Shadow
from kir.ir.layouts.layout import row_major
from kir.ir.layouts.layout_tables import swizzled
from kir.ir.nodes import Buffer, Expr, Region, View
from kir.ir.types import DType

ALIGNMENT = 16
"""Bytes to which the memory of a lane is padded, so that every dtype sees whole elements."""


class Instances(Protocol):
    """Those who own memory, or touch it: the instances of a team, one a lane."""

    lanes: int

    def lane_in(self, ancestor: Instances) -> Array | None:
        """For each lane its lane among the instances around; None when they are the same."""


@dataclass(eq=False)
class Memory:
    """Bytes [lanes, size]. `valid` (checking mode) has a flag per granule of `granule` bytes; `pending` names products in flight that update
    registers, `read_by` those that read them (as the left operand of a wgmma)."""

    name: str
    space: str
    lanes: int
    size: int
    owner: Instances | None
    granule: int = 1
    valid: Array | None = None
    shadow: Shadow | None = None
    data: Array = field(init=False)
    unfenced: Array | None = None
    """Lanes whose registers generic writes have changed since the last wgmma_fence."""
    written_at: Any = None
    """The statement of the last generic write to registers."""
    pending: list[Any] = field(default_factory=list)
    read_by: list[Any] = field(default_factory=list)
    phase: int = 0
    """Bytes that it lies beyond a multiple of any width: what its declaration says it is a multiple of, and no more."""
    _views: dict[str, Array] = field(default_factory=dict)
    _starts: dict[int, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.size = -(-max(self.size, 1) // ALIGNMENT) * ALIGNMENT
        self.data = np.zeros((self.lanes, self.size), np.uint8)

    def typed(self, dtype: DType) -> Array:
        """All elements of all lanes as one flat array that shares the bytes."""
        found = self._views.get(dtype.name)
        if found is None:
            found = self._views[dtype.name] = self.data.reshape(-1).view(storage(dtype))
        return found

    def of_lanes(self, mapped: Array | None, itemsize: int) -> Array:
        """Where the memory of each lane begins, in elements, by the lane that owns it; of all lanes in turn where none are named."""
        if mapped is not None:
            out: Array = mapped * (self.size // itemsize)
            return out
        found = self._starts.get(itemsize)
        if found is None:
            found = self._starts[itemsize] = np.arange(self.lanes) * (self.size // itemsize)
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
    frame: Instances | None = None
    view: View | None = None
    offsets: Array | None = field(default=None, init=False)
    """Those of all its elements from the first, once they were asked for."""
    own: Array | None = field(default=None, init=False)
    """The same in the memory of all lanes, seen by these themselves."""
    peers: Buffer | None = None
    """The shared buffer that a view of cluster memory shows: its first index is the CTA, the others are the buffer's."""

    @cached_property
    def direct(self) -> bool:
        """Whether an element's address is the sum of its indices times the strides."""
        return self.view is None and self.base is None and not self.swizzles and self.peers is None

    @cached_property
    def period(self) -> int:
        """Elements after which an element's address is swizzled as the first one's: 1 without swizzles; 0 where there is no such number, or a large one."""
        if self.view is not None or self.base is not None or self.peers is not None:
            return 0
        size = max((1 << (bits + low + shift) for bits, low, shift in self.swizzles), default=0)
        return 0 if size > LONG else max(1, size // storage(self.buffer.dtype).itemsize)

    @cached_property
    def plain(self) -> bool:
        """Whether elements lie row-major from the start of the memory."""
        return self.view is None and self.base is None and not self.swizzles and self.peers is None and self.strides == row_major(self.shape)

    @cached_property
    def whole(self) -> Array:
        """The elements [lanes, *shape] of one that is plain, sharing the bytes."""
        lanes = self.memory.lanes
        return self.memory.typed(self.buffer.dtype).reshape(lanes, -1)[:, :math.prod(self.shape)].reshape(lanes, *self.shape)

    def element(self, indices: list[Array], itemsize: int) -> Array:
        """Offsets in elements, from indices per dimension that broadcast (int64)."""
        base, offset, rank = 0, None, 1
        for i, s in zip(indices, self.strides, strict=True):
            rank = max(rank, i.ndim)
            if i.size == 1:
                base += int(i.item()) * s
                continue
            part = i if s == 1 else i * s
            offset = part if offset is None else offset + part
        if offset is None:
            offset = np.array(base, np.int64, ndmin=rank)
        elif base:
            offset = offset + base
        return self.swizzled(offset, itemsize) if self.swizzles else offset

    def swizzled(self, offset: Array, itemsize: int) -> Array:
        """Where the elements lie that are so far from the first before anything is swizzled."""
        at = offset * itemsize
        for bits, low, shift in self.swizzles:
            at = swizzled(at, bits, low, shift)
        return at // itemsize


@dataclass(eq=False)
class Place:
    """A resolved region: element indices `index` [l, *tile] into `memory.typed(dtype)`, and where they lie `inside` the buffer. `named` are the indices by
    dimension, or what works them out: few ask."""

    handle: Handle
    memory: Memory
    index: Array
    inside: Mask
    named: list[Array] | Callable[[], list[Array]]
    fill: Expr | None = None
    own: Mask = None
    """Where a functional view has the element itself: its fill stands for elements outside the buffer below, not outside its shape."""
    contiguous: int = 1
    """Extent of the innermost span, when its elements are neighbors."""

    @property
    def dtype(self) -> DType:
        """Dtype of the elements."""
        return self.handle.buffer.dtype

    @property
    def indices(self) -> list[Array]:
        """The indices by dimension [l, *tile]."""
        return self.named() if callable(self.named) else self.named


class KeptPlace(NamedTuple):
    """What was worked out of the place that a region names, but for indices that are the same for all lanes: of that buffer in that frame, for these values
    of the other indices and their strides. `beyond` are the dimensions in which it leaves the buffer. `region` is kept so that its identity stays its own."""

    handle: Handle
    frame: Instances
    values: tuple[Val, ...]
    strides: tuple[int, ...]
    beyond: tuple[int, ...]
    region: Region
    offset: Array
    """In elements [l, *tile]; with what `lanes` add, where the place lies inside."""
    lanes: Array | None
    inside: Mask
    steps: list[Array | int]
    """Of each span from its first index [1, *tile]."""


MOST_KEPT = 1 << 18
"""Elements of a buffer in all lanes up to which their places are kept."""
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


def locate(handle: Handle, indices: list[Array], frame: Instances, contiguous: int = 1, ranges: list[tuple[int, int]] | None = None) -> Place:
    """The elements at `indices` (int64 [l, *tile] per dimension) of a buffer with addresses."""
    inside: Mask = None
    known = [Val(x).index()[1:] for x in indices] if ranges is None else ranges
    for x, d, (low, high) in zip(indices, handle.shape, known, strict=True):
        if (low < 0 or high >= d) and x.size:
            within = (x >= 0) & (x < d)
            inside = within if inside is None else inside & within
    kind = storage(handle.buffer.dtype)
    return _placed(handle, handle.element(indices, kind.itemsize), indices, inside, frame, contiguous)


def everything(handle: Handle, indices: list[Array], frame: Instances, contiguous: int) -> Place:
    """As `locate`, of all elements, whose `indices` are the same each time."""
    kind = storage(handle.buffer.dtype)
    memory = handle.memory
    own = handle.base is None and memory.owner is frame
    if own and handle.own is not None:
        return Place(handle, memory, handle.own, None, indices, contiguous=contiguous)
    if handle.offsets is None:
        handle.offsets = handle.element(indices, kind.itemsize)
        handle.offsets.flags.writeable = False
    made = _placed(handle, handle.offsets, indices, None, frame, contiguous)
    if own and made.index.size <= MOST_KEPT:
        handle.own = made.index
        handle.own.flags.writeable = False
    return made


def _placed(handle: Handle, offset: Array, indices: list[Array], inside: Mask, frame: Instances, contiguous: int) -> Place:
    """The place of elements at an offset from the buffer's first."""
    kind = storage(handle.buffer.dtype)
    if handle.base is not None:
        assert handle.frame is not None
        lanes = frame.lane_in(handle.frame)
        base = handle.base if lanes is None or handle.base.shape[0] == 1 else handle.base[lanes]
        offset = offset + (base // kind.itemsize).reshape((-1,) + (1,) * (offset.ndim - 1))
    memory = handle.memory
    if inside is not None:
        offset = np.where(inside, offset, 0)
    if memory.owner is not None and memory.lanes > 1:
        offset = offset + memory.of_lanes(frame.lane_in(memory.owner), kind.itemsize).reshape((-1,) + (1,) * (offset.ndim - 1))
    return Place(handle, memory, offset, inside, indices, contiguous=contiguous)


def fill_poison(memory: Memory, dtype: DType) -> None:
    """Writes the pattern of undefined values over the whole memory."""
    memory.typed(dtype)[:] = poison(dtype)
