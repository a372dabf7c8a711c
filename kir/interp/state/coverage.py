"""What a run reaches: how often each loop runs, which way each branch goes, and whether the masks of an access are full, partial or empty.

A coverage is a set of bits for each place of a program. Runs over several inputs add theirs together; what no run reaches was not tested.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from kir.interp.numerics.number import Array
from kir.interp.numerics.values import Mask
from kir.interp.state.frame import Frame
from kir.ir import nodes as n

Kind = Literal["grid", "loop", "trips", "branch", "choice", "read", "write"]
Place = tuple[Kind, str]
"""What kind of place it is, and its anchor. A statement may read and write under different masks: they are two places."""
SINGLE, SEVERAL = 1, 2
"""Of an axis of a grid: it had one CTA, or several."""
ZERO, ONE, TWO, MORE = 1, 2, 4, 8
"""Of a loop: it ran not at all, once, twice, three times or more. (The most that it ran is kept beside, as `trips`.)"""
TAKEN, SKIPPED = 1, 2
"""Of a branch: the condition held for some instance, did not hold for some."""
FULL, PARTIAL, EMPTY = 1, 2, 4
"""Of a masked access, by instance: all elements, some of them, none. An access of single elements is never partial."""


class Coverage:
    """Collects what one run reaches. Places are statements by identity until `by_anchor` names them."""

    def __init__(self, ends: bool = False) -> None:
        self._bits: dict[tuple[Kind, int], int] = {}
        self._grids: dict[Place, int] = {}
        self.ends: dict[int, int] | None = {} if ends else None
        """Where it is asked for: by the identity of a memory, one past the last byte that an access touched."""
        self.by_elements = False
        """Whether the tile that is accessed stands for single elements, one after another."""

    def grid(self, k: n.Kernel, extents: Sequence[int]) -> None:
        """A kernel was launched over so many CTAs along each axis."""
        for axis, extent in zip(k.grid, extents, strict=True):
            place: Place = ("grid", f"{k.name}/{axis.name}")
            self._grids[place] = self._grids.get(place, 0) | (SEVERAL if extent > 1 else SINGLE)

    def loop(self, s: n.Stmt, trips: Array | int) -> None:
        """A loop ended; `trips` says how often it ran, for each instance or for all alike."""
        if not isinstance(trips, int) and trips.size == 0:
            return
        bits, most = 0, trips if isinstance(trips, int) else int(trips.max())
        self._bits["trips", id(s)] = max(most, self._bits.get(("trips", id(s)), 0))
        for count in ((trips,) if isinstance(trips, int) else np.unique(trips).tolist()):
            bits |= (ZERO, ONE, TWO, MORE)[min(int(count), 3)]
        self._note("loop", s, bits)

    def branch(self, s: n.Stmt, cond: Array, f: Frame) -> None:
        """A branch was decided. `cond` [lanes] or [1]."""
        if self._bits.get(("branch", id(s))) == TAKEN | SKIPPED:
            return
        known = cond[f.live] if f.live is not None and cond.shape[0] == f.lanes else cond
        self._note("branch", s, (TAKEN if known.any() else 0) | (SKIPPED if not known.all() else 0))

    def access(self, s: n.Stmt | None, verb: str, mask: Mask, f: Frame) -> None:
        """A masked access was made where `mask` [lanes or 1, *tile] holds; None: everywhere."""
        kind: Kind = "write" if verb == "write" else "read"
        if s is None or self._bits.get((kind, id(s))) == FULL | PARTIAL | EMPTY:
            return
        if mask is None:
            self._note(kind, s, FULL)
            return
        known = mask[f.live] if f.live is not None and mask.shape[0] == f.lanes else mask
        if known.size == 0:
            return
        rows = known.reshape(-1, 1) if self.by_elements else known.reshape(known.shape[0], -1)
        every, some = rows.all(1), rows.any(1)
        self._note(kind, s, (FULL if every.any() else 0) | (EMPTY if not some.all() else 0) | (PARTIAL if (some & ~every).any() else 0))

    def touched(self, memory: object, index: Array, itemsize: int, want: Mask, f: Frame) -> None:
        """Elements at `index` [lanes or 1, *tile] of a memory were read or written where `want` holds."""
        if self.ends is None:
            return
        live = None if f.live is None else f.live.reshape((-1,) + (1,) * (index.ndim - 1))
        held = live if want is None else want if live is None else np.logical_and(want, live)
        known = index if held is None else index[held] if held.shape == index.shape else np.broadcast_to(index, shape := np.broadcast_shapes(
            index.shape, held.shape))[np.broadcast_to(held, shape)]
        if known.size:
            self.ends[id(memory)] = max(self.ends.get(id(memory), 0), (int(known.max()) + 1) * itemsize)

    def reached(self, kind: Kind, s: n.Stmt, bits: int) -> None:
        """So much of a place was reached."""
        self._note(kind, s, bits)

    def ran(self, s: n.Stmt, most: int) -> None:
        """A loop ran at most so often."""
        self._bits["trips", id(s)] = max(most, self._bits.get(("trips", id(s)), 0))

    def _note(self, kind: Kind, s: n.Stmt, bits: int) -> None:
        self._bits[kind, id(s)] = self._bits.get((kind, id(s)), 0) | bits

    def by_anchor(self, anchors: Mapping[int, str]) -> dict[Place, int]:
        """The bits of each place that was reached, by its anchor; `anchors` names statements by identity."""
        return {**self._grids, **{(kind, anchors[key]): bits for (kind, key), bits in self._bits.items() if key in anchors}}


def joined(*parts: Mapping[Place, int]) -> dict[Place, int]:
    """What several runs reach together."""
    out: dict[Place, int] = {}
    for part in parts:
        for place, bits in part.items():
            before = out.get(place, 0)
            out[place] = max(before, bits) if place[0] == "trips" else before | bits
    return out


def to_json(reached: Mapping[Place, int]) -> list[list[Any]]:
    """A JSON array of [kind, anchor, bits]."""
    return [[kind, anchor, bits] for (kind, anchor), bits in reached.items()]


def from_json(rows: list[list[Any]]) -> dict[Place, int]:
    """The inverse of `to_json`."""
    return {(kind, anchor): bits for kind, anchor, bits in rows}
