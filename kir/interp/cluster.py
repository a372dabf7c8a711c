"""Clusters: which CTAs belong together, and the shared memory of one as another sees it.

A CTA's rank counts along x first, as `%cluster_ctarank` does. Shared memory of a peer is there from when the peer has declared it until the
peer ends; who touches it earlier or later has not synchronized with it (PTX ISA, barrier.cluster; CUDA C++ Programming Guide, distributed
shared memory).
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from kir.dataclass import dataclass
from kir.diagnostic import error
from kir.interp.frame import Frame
from kir.interp.memory import Handle, Place
from kir.interp.number import Array

if TYPE_CHECKING:
    from kir.interp.machine import Machine
    from kir.ir.nodes import Stmt


@dataclass(eq=False)
class Use:
    """An access of one CTA to the shared memory of another: by which agents, at which clocks, at which statement."""

    cta: int
    agents: Array
    clocks: Array
    site: Stmt | None


@dataclass(eq=False)
class Clusters:
    """The clusters of the launch that runs now. `roots` are the frames of CTAs by cluster and rank, `gone` those that have ended."""

    extents: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    roots: dict[tuple[int, int], Frame] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    uses: dict[int, list[Use]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """CTAs of a cluster."""
        return int(np.prod(self.shape, dtype=np.int64))

    def place(self, root: Frame) -> tuple[int, int]:
        """The number of a CTA's cluster, and its rank there."""
        return self.of(int(root.cta[0]) if root.cta is not None else 0)

    def of(self, cta: int) -> tuple[int, int]:
        """The same of a CTA's number."""
        number, rank, across, within = 0, 0, 1, 1
        for i, extent in enumerate(self.extents):
            wide = self.shape[i] if i < len(self.shape) else 1
            at = cta % max(1, extent)
            cta //= max(1, extent)
            number, across = number + at // wide * across, across * -(-extent // wide)
            rank, within = rank + at % wide * within, within * wide
        return number, rank

    def order(self, total: int) -> Sequence[int]:
        """CTAs in the order in which they start: clusters one after another."""
        return range(total) if self.size == 1 else sorted(range(total), key=self.of)


def begun(m: Machine, extents: Sequence[int], shape: tuple[int, ...], name: str) -> Clusters:
    """The clusters of a launch. Raises KirError KIR-I029 when they do not divide the grid."""
    wide = (*shape, *(1 for _ in extents[len(shape):]))
    for axis, (extent, each) in enumerate(zip(extents, wide, strict=False)):
        if extent % each:
            raise error("KIR-I029", f"kernel '{name}' is launched with {extent} CTAs along axis {axis}, in clusters of {each}",
                        witness=(f"CTA {extent - 1} has no cluster of its own to be in",), needs="a grid that its clusters divide")
    if len(wide) > len(extents) and any(each != 1 for each in wide[len(extents):]):
        raise error("KIR-I029", f"kernel '{name}' has a grid of {len(extents)} axes and clusters of {list(shape)}", needs="a cluster along the grid's axes")
    return Clusters(tuple(extents), wide[:len(extents)])


def root_of(f: Frame) -> Frame:
    """The frame of the CTA that a frame belongs to."""
    while f.parent is not None or f.acts_for is not None:
        f = f.parent if f.parent is not None else f.acts_for  # type: ignore[assignment]  # one of them is there
    return f


def _peer(m: Machine, rank: int, name: str, f: Frame) -> Frame | None:
    """The frame of the CTA of a rank, where its shared memory is there; else None, and why not is reported."""
    mine, _ = m.clusters.place(root_of(f))
    if not 0 <= rank < m.clusters.size:
        m.report("cluster", "error", f"there is no CTA {rank} in a cluster of {m.clusters.size}", f, id="KIR-I030", buffer=name)
        return None
    found = m.clusters.roots.get((mine, rank))
    if found is None or not isinstance(found.env.get(name), Handle):
        m.report("cluster", "error", f"'{name}' of CTA {rank} of the cluster is used before that CTA is known to have started", f, id="KIR-I030", buffer=name)
        return None
    if id(found) in m.clusters.gone:
        m.report("cluster", "error", f"'{name}' of CTA {rank} of the cluster is used after that CTA has ended", f, id="KIR-I030", buffer=name)
    if m.checking and found is not root_of(f):
        clocks, rows, agents = m.checker.knowledge(f)
        live = f.active()
        use = Use(int(clocks.numbers[0]), agents[live].copy(), clocks.now(rows, agents)[live].copy(), m.site)
        m.clusters.uses.setdefault(id(found), []).append(use)
    return found


def peer_handle(m: Machine, view: Handle, rank: int, f: Frame) -> Handle:
    """The shared buffer that a view of cluster memory shows, in the CTA of a rank; the CTA's own where there is none."""
    assert view.peers is not None
    found = _peer(m, rank, view.peers.name, f)
    own = (found or root_of(f)).env.get(view.peers.name)
    if not isinstance(own, Handle):
        raise error("KIR-I005", f"'{view.peers.name}' is no buffer of the CTA")
    return own


def in_peer(m: Machine, place: Place, rank: int, f: Frame) -> Place:
    """The place at the same offset in the shared memory of the CTA of a rank; the place itself where there is none."""
    found = _peer(m, rank, place.memory.name, f)
    there = None if found is None else found.env.get(place.memory.name)
    if not isinstance(there, Handle):
        return place
    return replace(place, memory=there.memory, handle=replace(place.handle, memory=there.memory))


def ended(m: Machine, f: Frame) -> None:
    """A CTA ends. Reports one that may end while others still use its shared memory (KIR-I030)."""
    m.clusters.gone.add(id(f))
    if not m.checking:
        return
    clocks, _, _ = m.checker.knowledge(f)
    for use in m.clusters.uses.pop(id(f), ()):
        if not clocks.knows_foreign(0, use.cta, use.agents, use.clocks).all():
            m.site = use.site
            m.report("cluster", "error", f"CTA {int(clocks.numbers[0])} may end before CTA {use.cta} has used its shared memory here", f, id="KIR-I030")
