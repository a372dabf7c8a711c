"""Inputs put in an order that makes tiles matter.

Elements that are drawn independently stay as good a draw in any other order, and an order can be chosen that a wrong kernel does not survive: a
maximum that is not carried from tile to tile shows when rows rise, a sum that is not carried when they cancel across tiles, a border that is read
wrongly when the extremes lie there. A distribution's name says it, so that any process draws the same:

    "normal, ordered by N/256 M/64"

Along the first of these sizes that a tensor has, pieces of 256 (of 64) elements are put in order; each row (slice along that axis) in another of
`ORDERS`. `*` stands for the longest axis of any tensor. The seed turns the orders; from `TOGETHER` on all tensors are in the same one.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.problem.schema import Draw, Tensor, names_in

Array = NDArray[Any]
WORD = ", ordered by "
INDEPENDENT = ("normal", "uniform", "log_uniform", "sparse", "integers")
"""Kinds of draws whose elements may be put in any order."""


@dataclass(frozen=True)
class Ordering:
    """Sizes with the extent of their tiles, the most telling first."""

    tiles: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return WORD + " ".join(f"{name}/{tile}" for name, tile in self.tiles)

    def axis(self, t: Tensor, a: Array) -> tuple[int, int] | None:
        """The axis of a tensor that is put in order, with the extent of its tiles; None for one without these sizes."""
        for name, tile in self.tiles:
            if name == "*" and a.ndim:
                return int(np.argmax(a.shape)), tile
            for axis, extent in enumerate(t.shape):
                if name in names_in(extent):
                    return axis, tile
        return None

    def applied(self, a: Array, axis: int, tile: int, first: int) -> Array:
        """`a` with each slice along `axis` in one of the orders, `first` that of the first slice; from `len(ORDERS)` on all slices in the same. Slices
        differ in the indices before the axis."""
        length = a.shape[axis]
        if length < 2:
            return a
        rows = np.ascontiguousarray(a).reshape(-1, length, int(np.prod(a.shape[axis + 1:], dtype=np.int64)))
        out = np.empty_like(rows)
        apart = len(ORDERS) if first < len(ORDERS) else 1  # every so many slices in the same order, together
        for i in range(min(apart, rows.shape[0])):
            order = ORDERS[(first + i) % len(ORDERS)]
            out[i::apart] = order(rows[i::apart].swapaxes(0, 1), max(1, min(tile, (length + 1) // 2))).swapaxes(0, 1)
        return out.reshape(a.shape)


def split(distribution: str) -> tuple[str, Ordering | None]:
    """The distribution that is drawn, and the order that its name asks for."""
    base, word, rest = distribution.partition(WORD)
    if not word:
        return base, None
    parts = [text.rpartition("/") for text in rest.split()]
    return base, Ordering(tuple((name, max(1, int(tile))) for name, _, tile in parts))


def ordered(inputs: Mapping[str, Array], tensors: Sequence[Tensor], ordering: Ordering, seed: int,
            draws: Callable[[Tensor], Draw | None] = lambda t: None) -> dict[str, Array]:
    """The inputs in order. `draws` says how a tensor was drawn; without it, tensors of floats are put in order and others are not."""
    out = dict(inputs)
    for number, t in enumerate(tensors):
        found = ordering.axis(t, out[t.name]) if t.name in out else None
        if found is None:
            continue
        how = draws(t)
        if how.kind in INDEPENDENT if how is not None else out[t.name].dtype.kind not in "iub":
            out[t.name] = ordering.applied(out[t.name], *found, (seed + number) % len(ORDERS) if seed < len(ORDERS) else seed)
    return out


# ------------------------------------------------------------------------------------------------------------------------------ orders
# Each takes slices [length, ..] and the extent of a tile, and gives each of them in another order (`_tied` with values that repeat).

def _rank(v: Array) -> Array:
    return np.argsort(v.astype(np.float64), axis=0, kind="stable")


def _taken(v: Array, index: Array) -> Array:
    return np.take_along_axis(v, index, axis=0)


def _rising(v: Array, tile: int) -> Array:
    return _taken(v, _rank(v))


def _late(v: Array, tile: int) -> Array:
    """The element of the largest magnitude is the last."""
    at = np.argmax(np.abs(v.astype(np.float64)), axis=0, keepdims=True)
    out = v.copy()
    np.put_along_axis(out, at, v[-1:], axis=0)
    out[-1:] = np.take_along_axis(v, at, axis=0)
    return out


def _cancelling(v: Array, tile: int) -> Array:
    """The upper half of the elements fills the even tiles, the lower half the odd ones."""
    even = (np.arange(v.shape[0]) // tile) % 2 == 0
    places = np.concatenate([np.flatnonzero(even), np.flatnonzero(~even)])
    out = np.empty_like(v)
    out[places] = _taken(v, _rank(v)[::-1])
    return out


def _falling(v: Array, tile: int) -> Array:
    return _taken(v, _rank(v)[::-1])


def _edges(v: Array, tile: int) -> Array:
    """The largest and the smallest elements lie in turns on both sides of each tile's border, and at both ends."""
    length = v.shape[0]
    starts = np.arange(tile, length, tile)
    border = np.zeros(length, np.bool_)
    border[[0, length - 1]] = True
    border[starts] = border[starts - 1] = True
    borders, inner = np.flatnonzero(border), np.flatnonzero(~border)
    rank, turn = _rank(v), np.arange(len(borders))
    low = len(borders) // 2
    out = np.empty_like(v)
    out[borders] = _taken(v, rank[np.where(turn % 2 == 0, length - 1 - turn // 2, turn // 2)])
    if inner.size:
        out[inner] = _taken(v, np.sort(rank[low:low + len(inner)], axis=0))
    return out


def _tied(v: Array, tile: int) -> Array:
    """Three of the values, each many times."""
    rank = _rank(v)
    chosen = _taken(v, rank[[0, v.shape[0] // 2, v.shape[0] - 1]])
    third = np.empty(v.shape, np.int64)
    np.put_along_axis(third, rank, np.broadcast_to((np.arange(v.shape[0]) * 3 // v.shape[0]).reshape(-1, *(1,) * (v.ndim - 1)), v.shape), axis=0)
    return np.take_along_axis(chosen, third, axis=0)


def _drawn(v: Array, tile: int) -> Array:
    return v


ORDERS: tuple[Callable[[Array, int], Array], ...] = (_rising, _late, _cancelling, _drawn, _falling, _edges, _tied)
"""In the order in which the slices of a tensor take them."""
TOGETHER = len(ORDERS)
"""The first seed with which all slices of all tensors rise; the next ones give the next orders."""
