"""Where instances meet: mbarriers and named barriers, what they publish, and what happens when nobody can go on."""
from __future__ import annotations

import numpy as np

from kir.interp.memory_access.cluster_memory import in_peer
from kir.interp.memory_access.regions import resolve
from kir.interp.numerics.number import Array
from kir.interp.numerics.values import spread
from kir.interp.state.cluster import root_of
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine
from kir.interp.state.result import Access
from kir.interp.state.tasks import Mbarrier, NamedBarrier, Task
from kir.ir.nodes import Region

MOST_ARRIVALS, MOST_BYTES = (1 << 20) - 1, (1 << 20) - 1
"""Limits of an mbarrier's counts (PTX ISA 9.7.13.15.2)."""


def init_barriers(m: Machine, region: Region, count: int, f: Frame) -> None:
    """`mbarrier.init` of the barriers that a place names."""
    place = resolve(m, region, f)
    if not 0 < count <= MOST_ARRIVALS:
        m.report("mbarrier", "error", f"mbarrier '{region.buffer.name}' expects {count} arrivals; 1 to {MOST_ARRIVALS} are possible", f,
                 id="KIR-I021", buffer=region.buffer.name)
    if m.checking:
        m.checker.on_barrier_object(place, f, "write", 0, None)
    for at in np.unique(place.index):
        name = f"{region.buffer.name}[{int(at) % max(1, place.memory.size // 8)}]"
        key = m.number_of(place.memory), int(at)
        if key in m.mbarriers:
            m.report("mbarrier", "error", f"mbarrier {name} is initialized again while it is one", f, id="KIR-I021", buffer=region.buffer.name)
        m.mbarriers[key] = Mbarrier(name, count, count)


def barriers(m: Machine, region: Region, f: Frame, verb: str, proxy: int = 0, agents: Array | None = None,
             rank: int | None = None) -> list[Mbarrier]:
    """The barrier that each active lane names, in the CTA of a `rank` of its cluster where one is given. One that is not initialized is
    reported (KIR-I021) and made with one arrival."""
    place = resolve(m, region, f)
    if rank is not None:
        place = in_peer(m, place, rank, f)
    m.out_of_bounds(place, f, None, verb, place.inside)
    if m.checking:
        m.checker.on_barrier_object(place, f, "read", proxy, agents)
    at = spread(place.index.reshape(place.index.shape[0], -1)[:, 0], (f.lanes,))
    out, number = [], m.number_of(place.memory)
    lanes = f.active().nonzero()[0]
    for lane, index in zip(lanes.tolist(), at[lanes].tolist(), strict=True):
        found = m.mbarriers.get((number, index))
        if found is None:
            m.report("mbarrier", "error", f"{verb} mbarrier '{region.buffer.name}' before it is initialized", f, lane, id="KIR-I021",
                     buffer=region.buffer.name, accesses=(m.declaration(region.buffer.name),))
            found = m.mbarriers[(number, index)] = Mbarrier(region.buffer.name, 1, 1)
        out.append(found)
    return out


def settle(m: Machine, b: Mbarrier) -> None:
    """Completes the phase when it is due, and reports counts that no mbarrier holds (KIR-I021)."""
    if b.pending < 0:
        m.report("mbarrier", "error", f"more than the {b.expected} expected arrivals on mbarrier {b.name} in one phase", None,
                 id="KIR-I021", buffer=b.name)
        b.pending = 0
    if abs(b.tx) > MOST_BYTES:
        m.report("mbarrier", "error", f"{b.tx} bytes outstanding on mbarrier {b.name}; it counts to {MOST_BYTES}", None, id="KIR-I021",
                 buffer=b.name)
    b.settle()


def named_barrier(m: Machine, f: Frame, key: tuple[str, int]) -> NamedBarrier:
    """A named barrier of the CTA of `f`, its cluster's barrier, or that of the whole grid."""
    root = f
    while root.parent is not None:
        root = root.parent
    group = m.clusters.place(root)[0] if key[0] == "cluster" else 0 if key[0] == "grid" else id(root)
    return m.named.setdefault((*key, group), NamedBarrier())


def _threads(f: Frame) -> int:
    """How many threads the active instances of a frame are."""
    return int(f.active().sum()) if f.level == "thread" else f.threads * f.lanes


def _home(f: Frame) -> Frame:
    """The frame whose lanes these are, where a part of them takes a branch on its own."""
    while f.diverged and f.parent is not None:
        f = f.parent
    return f


def arrive_cluster(m: Machine, f: Frame) -> None:
    """The active threads arrive on the barrier of their cluster. Reports those that arrive again before they have waited (KIR-I022)."""
    counts = m.clusters.counts.setdefault(id(root_of(f)), [0, 0])
    counts[0] += _threads(f)
    if counts[0] > counts[1] + m.cluster_threads // max(1, m.clusters.size):
        m.report("barrier", "error", "threads arrive on the barrier of their cluster again before they have waited for it", f, id="KIR-I022")
    b = named_barrier(m, f, ("cluster", 0))
    arrive_named(m, f, ("cluster", 0), m.cluster_threads)
    _home(f).cluster_generation = b.generation if b.arrived else -1


def waits_for_cluster(m: Machine, f: Frame) -> int:
    """The generation of the cluster's barrier that the active threads wait out, -1 where it is over. Reports those that have not arrived (KIR-I022)."""
    counts = m.clusters.counts.setdefault(id(root_of(f)), [0, 0])
    counts[1] += _threads(f)
    if counts[1] > counts[0]:
        m.report("barrier", "error", "threads wait for the barrier of their cluster without having arrived on it", f, id="KIR-I022")
    return _home(f).cluster_generation


def arrive_named(m: Machine, f: Frame, key: tuple[str, int], expected: int) -> None:
    """The active threads of `f` arrive: whole warps of them on a named barrier, as the hardware counts, each for itself on a cluster's or the grid's."""
    b = named_barrier(m, f, key)
    if f.level == "thread":
        active = f.thread_numbers()[f.active()]
        threads = len(active) if key[0] in ("cluster", "grid") else 32 * len(np.unique(active // 32))
    else:
        threads = f.threads * f.lanes
    if key[0] == "named" and not 0 <= key[1] <= 15:
        m.report("barrier", "error", f"there is no named barrier {key[1]}; they are numbered 0 to 15", f, id="KIR-I022")
    if key[0] == "named" and expected % 32:
        m.report("barrier", "error", f"named barrier {key[1]} expects {expected} threads; whole warps of 32 meet there", f, id="KIR-I022")
    if key == ("named", 0) and m.meets_all():
        m.report("barrier", "error", "named barrier 0 is the one of barrier(), which this kernel uses as well", f, id="KIR-I022")
    if key[0] == "named" and b.arrived and b.expected != expected:
        m.report("barrier", "error", f"named barrier {key[1]} is met by {expected} threads here, by {b.expected} elsewhere", f,
                 id="KIR-I022")
    b.expected = expected
    b.arrived += threads
    b.clock = m.published(f, b.clock)
    if b.arrived >= b.expected:
        if b.arrived > b.expected:
            m.report("barrier", "error", f"{b.arrived} threads arrive on a barrier of {b.expected}", f, id="KIR-I022")
        b.generation += 1
        b.arrived, b.opened, b.clock = 0, b.clock, None


def deadlock(m: Machine, tasks: list[Task]) -> None:
    """Reports who waits for what (KIR-I020)."""
    waiting = [t for t in tasks if t.wait is not None and t.wait.what != "its sub-teams to end"]
    seen: list[Access] = []
    for t in waiting:
        assert t.wait is not None
        origin = t.site.origin if t.site is not None else None
        seen.append(Access.at(f"waits for {t.wait.what}", m.anchor(t.site), t.name, origin))
    first = seen[0].verb if seen else "polls"
    m.report("deadlock", "error", f"no one can go on: {len(waiting)} wait, and the first {first}", None, id="KIR-I020",
             accesses=tuple(seen[:8]))


