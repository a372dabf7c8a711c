"""Values: every value carries a leading axis of lanes, the instances of the team that runs side by side.

A value of tile shape S in a frame of L lanes is an array [L, *S], or [1, *S] when all lanes agree.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from kir.base.dataclass import dataclass
from kir.interp.numerics.number import Array

Mask = Any
"""A bool array over lanes (or elements), or None for "all"."""


@dataclass(slots=True)
class Val:
    """A value and, in checking mode, which of its elements are defined (`ok` is None when all are)."""

    data: Array
    ok: Mask = None
    _index: tuple[Array, int, int] | None = None

    def index(self) -> tuple[Array, int, int]:
        """The data as int64 with its least and largest value (0 and 0 when it is empty), kept for the next access."""
        if self._index is None:
            wide = self.data.astype(np.int64)
            if wide.size == 1:
                low = high = int(wide.item())
            else:
                low, high = (int(np.minimum.reduce(wide, axis=None)), int(np.maximum.reduce(wide, axis=None))) if wide.size else (0, 0)
            self._index = (wide, low, high)
        return self._index

    @property
    def tile(self) -> tuple[int, ...]:
        """The tile shape, without the axis of lanes."""
        return self.data.shape[1:]


def lift(x: Array, rank: int) -> Array:
    """`x` [l, *S] with S padded by leading ones to `rank` dimensions, so that NumPy broadcasts tiles aligned at the right."""
    missing = rank + 1 - x.ndim
    return x if missing <= 0 else x.reshape(x.shape[:1] + (1,) * missing + x.shape[1:])


def spread(x: Array, shape: tuple[int, ...]) -> Array:
    """`np.broadcast_to`, which takes longer than most of what is done with so few lanes, where there is something to do."""
    return x if x.shape == shape else np.broadcast_to(x, shape)


def aligned(*values: Val) -> tuple[Array, ...]:
    """The data of values at one rank."""
    rank = max(v.data.ndim for v in values) - 1
    return tuple(lift(v.data, rank) for v in values)


def defined(*values: Val) -> Mask:
    """Where all of the values are defined; None when they are everywhere."""
    known = [v for v in values if v.ok is not None]
    if not known:
        return None
    rank = max(v.data.ndim for v in values) - 1
    shape = np.broadcast_shapes(*(lift(v.data, rank).shape for v in values))
    out = np.ones(shape, np.bool_)
    for v in known:
        out &= lift(v.ok, rank)
    return out


def both(a: Mask, b: Mask) -> Mask:
    """The conjunction of two masks of one rank."""
    return b if a is None else a if b is None else a & b
