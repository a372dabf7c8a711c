"""Shared memory of a CTA as another of its cluster sees it.

It is there from when the peer has declared it until the peer ends; who touches it earlier or later has not synchronized with it (PTX ISA,
barrier.cluster; CUDA C++ Programming Guide, distributed shared memory).
"""
from __future__ import annotations

from dataclasses import replace

from kir.base.diagnostic import error
from kir.interp.state.cluster import Use, root_of
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine
from kir.interp.state.memory import Handle, Place


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
