"""Loops at which the checking mode has nothing to say, which may therefore be run compiled (`kir.interp.native.checked`).

Such a loop is run by CTAs as a whole, or by threads that run side by side. It reads registers of their own and tensors that the kernel never writes, all of
them defined; it writes registers of their own, and elements of tensors that nobody has touched, no two instances the same one, which it may read before. What
it wrote is told afterwards as any write is. Where that does not come out, the loop is undone, and runs statement by statement.
"""
from __future__ import annotations

import numpy as np

from kir.interp.checking.happens_before import HappensBefore
from kir.interp.numerics.number import Array, every, storage
from kir.interp.state.frame import Frame
from kir.interp.state.memory import Handle
from kir.interp.state.shadow import NOBODY

PRIVATE = ("register", "fragment")


def quiet(c: HappensBefore, f: Frame, reads: list[Handle], writes: list[Handle], in_place: list[Handle]) -> bool:
    """Whether nothing can be found where a frame reads and writes these buffers, but for writes to tensors, which `untouched` judges; what is written
    in place is read there first."""
    if not _together(c, f) or f.proxy or f.since is not None or c.multiplies or c.lookahead.busy:
        return False
    return all(_private(h, f) for h in writes if h.memory.space != "global") and all(_readable(c, h, f) for h in reads) and all(
        h.memory.space == "global" and h.memory.owner is None and _defined(h, f) for h in in_place)


def _together(c: HappensBefore, f: Frame) -> bool:
    """Whether a frame is CTAs, or their threads side by side where nobody asks how a warp's accesses lie."""
    above = f.parent
    if above is None:
        return f.level == "cta"
    return f.level == "thread" and f.scope and not (f.split or f.diverged or c.m.traffic) and above.level == "cta" and above.parent is None


def _private(h: Handle, f: Frame) -> bool:
    memory = h.memory
    return memory.space in PRIVATE and memory.owner is f and memory.shadow is None and not memory.pending and not memory.read_by and _defined(h, f)


def _readable(c: HappensBefore, h: Handle, f: Frame) -> bool:
    if h.memory.space in PRIVATE:
        return _private(h, f)
    return h.memory.space == "global" and h.memory.owner is None and h.memory.name in c.read_only and _defined(h, f)


def _defined(h: Handle, f: Frame) -> bool:
    """Whether every element of a buffer is, in the active lanes."""
    memory = h.memory
    assert memory.valid is not None
    grid = [np.arange(d).reshape((-1,) + (1,) * (len(h.shape) - 1 - i)) for i, d in enumerate(h.shape)]
    width = storage(h.buffer.dtype).itemsize
    within = memory.granules(np.asarray(h.element(grid, width)), width).reshape(-1)
    known = memory.valid.reshape(memory.lanes, -1)
    return every((known if f.live is None or memory.lanes == 1 else known[f.live])[:, within])


def untouched(h: Handle, elements: Array) -> bool:
    """Whether nobody has read or written these elements of a tensor yet."""
    memory, shadow = h.memory, h.memory.shadow
    if shadow is None or shadow.updates.used:
        return False
    g = memory.granules(elements, storage(h.buffer.dtype).itemsize).reshape(-1)
    return every(shadow.cta[g] == NOBODY) and (not shadow.reads.used or every(shadow.reads.cta[g] == NOBODY))
