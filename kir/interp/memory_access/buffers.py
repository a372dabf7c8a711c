"""Buffers as frames hold them: how they lie in memory, where their memory is, and bytes seen as another buffer."""
from __future__ import annotations

from kir.base.diagnostic import error
from kir.interp.memory_access.regions import resolve
from kir.interp.numerics.number import storage
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine
from kir.interp.state.memory import Handle, Memory, bytes_needed, fill_poison
from kir.ir import nodes as n
from kir.ir.layouts.layout import arrangement
from kir.ir.types import I32

WIDEST = 128
"""Bytes of the largest multiple that an address in shared memory must be one of."""


def home_of(m: Machine, space: str, f: Frame) -> Frame:
    """The frame that owns a buffer of `space` declared in `f`."""
    if space in ("fragment", "register"):
        return f
    root = f
    while root.parent is not None:
        root = root.parent
    return m.cluster_homes.setdefault(m.clusters.place(root)[0], Frame(1, "cluster")) if space == "cluster" else root


def allocate(m: Machine, b: n.Buffer, home: Frame, f: Frame) -> Handle:
    """Memory for a buffer, holding the pattern of undefined values."""
    shape = tuple(m.size(d, f) for d in b.shape)
    strides, swizzles = layout_of(m, b, shape, f)
    size = bytes_needed(shape, strides, swizzles, storage(b.dtype).itemsize)
    memory = Memory(b.name, b.space, 1 if b.space == "cluster" else home.lanes, size, None if b.space == "cluster" else home)
    memory.phase = b.align if b.space == "shared" and 0 < b.align < WIDEST else 0
    fill_poison(memory, b.dtype)
    m.is_home(home)
    if m.checking:
        m.checker.adopt(memory, b, False)
    return Handle(b, memory, shape, strides, swizzles)


def layout_of(m: Machine, b: n.Buffer, shape: tuple[int, ...], f: Frame) -> tuple[tuple[int, ...], tuple[tuple[int, int, int], ...]]:
    """Strides in elements and swizzles of a buffer. Fragments have no addresses, so theirs is row-major."""
    if b.strides is not None:
        return tuple(m.size(d, f) for d in b.strides), arrangement(b.layout, shape)[1]
    return arrangement(None if b.space in ("fragment", "register") else b.layout, shape)


def reinterpreted(m: Machine, buffer: n.Buffer, at: n.Region, base: Handle, f: Frame) -> Handle:
    """The bytes that start at a place, as another buffer. Raises KirError KIR-I010 for a view that reaches past its memory."""
    shape = tuple(m.size(d, f) for d in buffer.shape)
    if base.view is not None:
        raise error("KIR-I002", f"'{buffer.name}' reinterprets the functional view '{base.buffer.name}', which has no bytes")
    corner = n.Region(at.buffer, tuple(i.lo if isinstance(i, n.Span) else i for i in at.index) or tuple(
        n.Const(0, I32) for _ in base.shape)) if base.shape else at
    place = resolve(m, corner, f)
    old, new = storage(place.dtype).itemsize, storage(buffer.dtype).itemsize
    lane_bytes = base.memory.size
    start = place.index.reshape(place.index.shape[0], -1)[:, 0] * old % lane_bytes
    strides, swizzles = layout_of(m, buffer, shape, f)
    needed = bytes_needed(shape, strides, swizzles, new)
    m.view_fits(buffer, start, needed, new, base, f)
    m.is_home(f)
    return Handle(buffer, base.memory, shape, strides, swizzles, None if not start.any() else start, f)
