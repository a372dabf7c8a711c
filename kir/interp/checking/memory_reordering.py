"""What caches and pipelines make of the order of accesses: loads that may run early, and reads that do not see the kernel's own writes.

A pipelined loop with n stages may load for iteration i + n - 1 while iteration i still computes, so a load must not depend on what the
n - 1 iterations before its own write. A read through the read-only cache (`nc`, `ldg`) sees memory as it was before the kernel.
"""
from __future__ import annotations

import numpy as np

from kir.analysis.proof.sites import READ_ONLY_CACHES
from kir.interp.numerics.number import Array
from kir.interp.numerics.values import Mask, lift
from kir.interp.state.findings import Findings
from kir.interp.state.frame import Frame
from kir.interp.state.memory import Place
from kir.ir import nodes as n

Touched = dict[str, list[Array]]


class Lookahead:
    """Attached to a machine in checking mode; told of accesses to global memory and of iterations of pipelined loops."""

    def __init__(self, m: Findings) -> None:
        self.m = m
        self.written: Touched = {}
        self.loops: list[_Loop] = []

    @property
    def busy(self) -> bool:
        """Whether a pipelined loop runs."""
        return bool(self.loops)

    def begin(self) -> None:
        """A kernel is launched."""
        self.written, self.loops = {}, []

    def on_read(self, place: Place, f: Frame, want: Mask, cache: str) -> None:
        """A load of the wanted elements from global memory, with its cache policy."""
        if place.memory.space != "global":
            return
        name = place.memory.name
        if self.loops:
            for loop in self.loops:
                loop.reads.setdefault(name, []).append(_elements(place, want))
        if cache in READ_ONLY_CACHES and name in self.written and _meet([_elements(place, want)], self.written[name]):
            self.m.report("stale", "error", f"'{name}' is read through the read-only cache where this kernel has written it", f, 0,
                          id="KIR-I027", buffer=name, verb="read")

    def on_write(self, place: Place, want: Mask) -> None:
        """A store or an atomic update of the wanted elements of global memory."""
        if place.memory.space != "global":
            return
        touched = _elements(place, want)
        self.written.setdefault(place.memory.name, []).append(touched)
        for loop in self.loops:
            loop.writes.setdefault(place.memory.name, []).append(touched)

    def enter(self, s: n.For) -> None:
        """A pipelined loop begins."""
        stages = dict(s.attrs).get("stages", 1)
        self.loops.append(_Loop(max(1, int(stages)) if not isinstance(stages, str) else 1))

    def turn(self, f: Frame) -> None:
        """An iteration of the innermost pipelined loop has ended."""
        loop = self.loops[-1]
        for earlier in loop.earlier:
            for name, places in loop.reads.items():
                if name in earlier and _meet(places, earlier[name]):
                    self.m.report("early load", "error", f"a load of '{name}' may run before an earlier iteration writes what it reads", f,
                                  0, id="KIR-I028", buffer=name, verb="read")
        loop.next()

    def leave(self) -> None:
        """The innermost pipelined loop has ended."""
        self.loops.pop()


class _Loop:
    def __init__(self, stages: int) -> None:
        self.stages = stages
        self.earlier: list[Touched] = []
        self.reads: Touched = {}
        self.writes: Touched = {}

    def next(self) -> None:
        self.earlier = [*self.earlier, self.writes][-(self.stages - 1):] if self.stages > 1 else []
        self.reads, self.writes = {}, {}


def _elements(place: Place, want: Mask) -> Array:
    """The numbers of the elements that an access touches, flat."""
    if want is None:
        return place.index.reshape(-1)
    rank = max(place.index.ndim, want.ndim) - 1
    index, chosen = np.broadcast_arrays(lift(place.index, rank), lift(want, rank))
    return np.asarray(index[chosen])


def _meet(a: list[Array], b: list[Array]) -> bool:
    return bool(np.intersect1d(np.concatenate(a), np.concatenate(b)).size)
