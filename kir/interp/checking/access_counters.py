"""Counts that need addresses: sectors of global memory and conflicts of shared memory's banks."""
from __future__ import annotations

import numpy as np

from kir.interp.numerics.number import storage
from kir.interp.numerics.values import Mask
from kir.interp.state.frame import Frame
from kir.interp.state.memory import Place
from kir.interp.state.result import Counters

WARP, SECTOR, BANKS, WORD = 32, 32, 32, 4
"""Lanes of a warp, bytes of a sector, banks, bytes of a bank's word."""


def count_traffic(counters: Counters, place: Place, f: Frame, want: Mask) -> None:
    """Sectors of global accesses and bank conflicts of shared ones, of warps of threads."""
    if f.level != "thread" or place.memory.space not in ("global", "shared"):
        return
    size = storage(place.dtype).itemsize
    index = np.broadcast_to(place.index, (f.lanes, *place.index.shape[1:])).reshape(f.lanes, -1)
    active = np.broadcast_to(f.active()[:, None], index.shape)
    if want is not None:
        active = active & np.broadcast_to(want, np.broadcast_shapes(want.shape, (f.lanes, *place.index.shape[1:]))).reshape(f.lanes, -1)
    start = np.arange(f.lanes) - f.thread_numbers() % WARP
    at = index * size % place.memory.size
    if place.memory.space == "global":
        keys = (start[:, None] * (1 << 40) + at // SECTOR)[active]
        counters.sectors += len(np.unique(keys))
        return
    phases = max(1, place.contiguous * size // WORD if place.contiguous * size <= 16 else 1)
    lane = f.thread_numbers() % WARP
    group = start * 8 + lane * phases // WARP
    words = np.unique((group[:, None] * (1 << 32) + at // WORD)[active])
    groups, banks = words >> 32, (words & 0xFFFFFFFF) % BANKS
    keys, counts = np.unique(groups * BANKS + banks, return_counts=True)
    if len(keys):
        keys //= BANKS
        most = np.maximum.reduceat(counts, np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])))
        counters.bank_conflicts += int((most - 1).sum())
