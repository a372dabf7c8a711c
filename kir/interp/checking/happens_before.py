"""What a thread knows to have happened: clocks carried by barriers, fences, groups and messages."""
from __future__ import annotations

import numpy as np

from kir.interp.checking.memory_reordering import Lookahead
from kir.interp.checking.program_facts import finest_view, viewed_only
from kir.interp.numerics.number import Array, every, some
from kir.interp.state.clocks import EVERY, FENCED, ORDERED, PROXIED, SHUFFLED, TOLD, Clocks, Knowledge
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine
from kir.interp.state.memory import Memory
from kir.interp.state.monitor import Reordering
from kir.interp.state.result import Access
from kir.interp.state.shadow import EARLIER
from kir.ir import nodes as n

WARP = 32
GROUPS = {**dict.fromkeys(("mma_sync", "ldmatrix", "stmatrix", "tcgen05_alloc", "tcgen05_dealloc", "tcgen05_relinquish", "tcgen05_ld",
                           "tcgen05_wait_ld"), WARP),
          **dict.fromkeys(("wgmma", "wgmma_fence", "wgmma_commit", "wgmma_wait", "set_registers"), 4 * WARP)}
"""Instructions that neighboring threads execute together (PTX ISA: those with `.sync.aligned`), with how many these are."""
ENOUGH_BYTES, MOST_BYTES = 1 << 29, 1 << 34
"""Of what agents know of one another, from where on operations that are in flight are followed no longer: where errors have been found, and at all."""


class HappensBefore:
    """Who knows what. Agents are threads and what acts for them; clocks count the steps of each."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.lookahead: Reordering = Lookahead(m)
        self.memories: list[Memory] = []
        self.sites: list[n.Stmt | None] = [None]
        self.site_of: dict[int, int] = {}
        self.roots: dict[int, Clocks] = {}
        self.read_only: set[str] = set()
        self.released: dict[tuple[int, int], Knowledge] = {}
        self.dirty: list[Memory] = []
        self.steps: dict[int, dict[tuple[int, int], tuple[list[n.Stmt | None], dict[int, int]]]] = {}
        """By team whose warps run as coroutines, and by warpgroup: the instructions that its warps have executed together, and how many each has."""
        self.overlapping = self.awaited = False
        self.layers = 4
        self.multiplies = False
        self.followed: tuple[Array, Clocks, int, Array] | None = None
        """The agents that learned last from their issuers: whose, when, in which lanes."""
        self.finest = finest_view(m.program)
        self.viewed_only = viewed_only(m.program)

    def enter(self, f: Frame) -> None:
        """A CTA starts (or several, as one frame)."""
        assert f.cta is not None
        most = max((x.count for x in self.roots.values() if len(x.numbers) == f.lanes), default=4)
        f.clocks = self.roots[id(f)] = Clocks(f.cta, self.layers, most)
        f.rows, f.agents = np.arange(f.lanes), np.zeros(f.lanes, np.int64)

    def fork(self, child: Frame, name: str) -> None:
        """A team splits: its parts know what it knew; neither knows what the other does next."""
        parent, clocks = child.parent, child.clocks
        assert parent is not None and clocks is not None and child.rows is not None and parent.agents is not None
        per_row = child.lanes // len(clocks.numbers) if len(clocks.numbers) else child.lanes
        child.agent_key = (*parent.agent_key, name)
        first = clocks.block(child.agent_key, per_row, child.level if child.level != "role" else child.name)
        child.agents = first + np.arange(child.lanes) % max(1, per_row)
        assert child.owner is not None
        clocks.learn(child.rows, child.agents, parent.agents[child.owner])
        clocks.tick(child.rows, child.agents)
        assert parent.rows is not None
        clocks.tick(parent.rows, parent.agents)

    def join(self, child: Frame) -> None:
        """The parts have ended: their team knows what they knew."""
        parent, clocks = child.parent, child.clocks
        assert parent is not None and clocks is not None and child.rows is not None
        assert child.agents is not None and parent.agents is not None and parent.rows is not None
        if self.steps:
            self._all_in_step(child)
        known, whole = clocks.know[..., : clocks.count], clocks.span(child.rows, child.agents)
        own = known[:, child.rows, child.agents] if whole is None else known[:, :, whole]
        joined = own.reshape(clocks.layers, parent.lanes, -1, clocks.count).max(axis=2)
        known[:, parent.rows, parent.agents] = np.maximum(known[:, parent.rows, parent.agents], joined)
        clocks.tick(child.rows, child.agents)

    def knowledge(self, f: Frame) -> tuple[Clocks, Array, Array]:
        """The clocks of the CTAs of a frame, and the row and agent of each lane."""
        return self._who(f)

    def _who(self, f: Frame) -> tuple[Clocks, Array, Array]:
        frame: Frame | None = f
        while frame is not None and frame.agents is None:
            frame = frame.parent
        assert frame is not None and frame.clocks is not None and frame.agents is not None and frame.rows is not None
        return frame.clocks, frame.rows, frame.agents

    def meet(self, f: Frame, agents: list[Array]) -> None:
        """The siblings of the innermost split meet at a barrier."""
        clocks, rows, own = self._who(f)
        if f.split:
            everyone = np.unique(np.concatenate(agents))
            clocks.meet(np.full(len(everyone), rows[0]), everyone, np.zeros(len(everyone), np.int64))
            return
        frame = f
        while frame.owner is None and frame.parent is not None:
            frame = frame.parent
        live = f.active().nonzero()[0]
        group = frame.owner if frame.owner is not None else np.zeros(f.lanes, np.int64)
        if len(live):
            clocks.meet(rows[live], own[live], group[live])

    def exchange(self, f: Frame) -> None:
        """Active lanes of each warp exchange values: an order, but not one of memory."""
        self._warp(f, slice(SHUFFLED, SHUFFLED + 1))

    def warp_sync(self, f: Frame, group: int = WARP, together: Array | None = None) -> None:
        """Active lanes of each warp, of each group of so many neighbors, or of those that `together` gives one number, synchronize, memory included."""
        self._warp(f, EVERY, group, together)

    def _warp(self, f: Frame, layers: slice, group: int = WARP, together: Array | None = None) -> None:
        if f.level != "thread":
            return
        clocks, rows, agents = self._who(f)
        numbers = f.thread_numbers()
        live = f.active().nonzero()[0]
        start = np.arange(f.lanes) - numbers % group if together is None else together
        if len(live):
            clocks.meet(rows[live], agents[live], start[live], layers)

    def fence(self, f: Frame, fn: str, scope: str) -> None:
        """A memory or proxy fence of the active lanes."""
        if fn == "wgmma_fence":
            self._fence_registers(f)
            return
        if fn == "fence" and scope == "cta":
            return  # others of the CTA know what a barrier tells them; threads of other CTAs learn nothing by it
        clocks, rows, agents = self._who(f)
        live = f.active()
        if fn == "tcgen05_fence_after":
            clocks.hear(rows[live], agents[live])
            return
        clocks.fence(rows[live], agents[live], FENCED if fn == "fence" else TOLD if fn == "tcgen05_fence_before" else PROXIED)

    def _fence_registers(self, f: Frame) -> None:
        """The active lanes' registers are fenced: those of their own and of the teams around them."""
        around: set[int] = set()
        frame: Frame | None = f
        while frame is not None:
            around.add(id(frame))
            frame = frame.parent
        for memory in [x for x in self.dirty if x.owner is None or id(x.owner) in around]:
            assert memory.unfenced is not None
            memory.unfenced[self.lanes_of(memory, f)] = False
            if not some(memory.unfenced):
                memory.unfenced = None
                self.dirty.remove(memory)

    def lanes_of(self, memory: Memory, f: Frame) -> Array | slice:
        """The instances of a memory that the active lanes of a frame have; all where the memory belongs to none around it."""
        if memory.owner is None or memory.lanes == 1 or (memory.owner is f and f.live is None):
            return slice(None)
        lanes = f.lane_in(memory.owner)
        lanes = np.arange(f.lanes) if lanes is None else lanes
        return lanes[f.active()] if int(lanes.max(initial=0)) < memory.lanes else slice(None)

    def dependency(self, f: Frame, fn: str) -> None:
        """`griddepcontrol.wait`: the previous launch has ended."""
        if fn != "grid_dependency_wait":
            return
        clocks, rows, _ = self._who(f)
        self.awaited |= some(f.active())
        for row in np.unique(rows[f.active()]):
            clocks.foreign[int(row)][EARLIER] = clocks.told[int(row)][EARLIER] = np.zeros((clocks.layers, 1), np.int32)

    def must_meet(self, f: Frame, what: str) -> None:
        """Reports a convergent instruction that only some of its threads reach (KIR-I023)."""
        if what in GROUPS:
            self._meet_in_groups(f, what, GROUPS[what])
            return
        gone, frame = np.zeros(f.lanes, np.bool_), f
        if f.diverged and what == "barrier":
            self.m.report("divergence", "error", f"{what} stands in a branch that not all threads take", f, id="KIR-I023", verb=what)
            return
        while True:
            if frame.returned is not None:
                gone |= frame.returned
            if frame.owner is not None or frame.parent is None:
                break
            frame = frame.parent
        if frame.owner is None:
            return
        if frame.parent is not None and frame.parent.live is not None:
            gone = gone | ~frame.parent.live[frame.owner]
        here = f.active()
        if every(here) or every(here | gone):
            return
        _, ctas, _ = self._who(f)  # other CTAs of the frame may have run out of rounds
        self._missed(f, f, ~(here | gone) & np.isin(ctas, ctas[here]), what)

    def _missed(self, f: Frame, whole: Frame, absent: Array, what: str) -> None:
        if some(absent):
            self.m.report("divergence", "error", f"{what} is not reached by {self.m.thread_name(whole, int(absent.argmax()))} with the others", f,
                          int(f.active().argmax()), id="KIR-I023", verb=what)

    def _meet_in_groups(self, f: Frame, what: str, size: int) -> None:
        """As `must_meet`, of an instruction that the threads of each group of `size` neighbors execute together."""
        if f.live is None and not f.diverged and f.level == "thread" and f.owner is not None:
            if f.split and size > WARP:
                self._in_step(f, f, what, size)
            return
        whole, lanes, gone = f, np.arange(f.lanes), f.exited()
        while whole.parent is not None and (whole.diverged or whole.owner is None):
            if whole.owner is not None:
                outer = whole.parent.exited()
                outer[whole.owner[gone]] = True
                lanes, gone = whole.owner[lanes], outer
            whole = whole.parent
        if whole.level != "thread":
            return
        if whole.split and size > WARP and some(f.active()):
            self._in_step(f, whole, what, size)
        here = np.zeros(whole.lanes, np.bool_)
        here[lanes[f.active()]] = True
        group = np.arange(whole.lanes) - whole.thread_numbers() % size
        first = np.unique(group, return_inverse=True)[1]
        reached = np.zeros(int(first.max(initial=0)) + 1, np.bool_)
        np.logical_or.at(reached, first, here)
        self._missed(f, whole, reached[first] & ~here & ~gone, what)

    def _in_step(self, f: Frame, whole: Frame, what: str, size: int) -> None:
        """Warps that run as coroutines execute the same instructions of their group one after the other."""
        site, number = self.m.site, int(whole.thread_numbers()[0])
        lane = int(whole.owner[0]) if whole.owner is not None else 0
        order, done = self.steps.setdefault(id(whole.parent), {}).setdefault((lane, number // size), ([], {}))
        at = done[number] = done.get(number, 0) + 1
        if at > len(order):
            order.append(site)
        elif order[at - 1] is not site:
            other = order[at - 1]
            seen = Access.at("executed by another warp", self.m.anchor(other), "", other.origin if other is not None else None)
            self.m.report("divergence", "error", f"{what} is executed by one warp of a warpgroup where another executes something else", f, id="KIR-I023",
                          verb=what, accesses=(seen,))

    def _all_in_step(self, child: Frame) -> None:
        """The warps of a team have ended: each has executed what the others of its group have."""
        for (_, group), (order, done) in self.steps.pop(id(child.parent), {}).items():
            behind = len(done) * WARP < min(4 * WARP, child.threads_of(group)) or any(count < len(order) for count in done.values())
            if behind and child.returned is None:
                self.m.site = order[min(done.values()) if len(done) > 1 and min(done.values()) < len(order) else -1]
                self.m.report("divergence", "error", "an instruction of a warpgroup is not executed by all its warps", child, id="KIR-I023", verb="execute")

    def published(self, f: Frame, clock: Knowledge | None) -> Knowledge:
        """`clock` joined with what the active lanes know."""
        clocks, rows, agents = self._who(f)
        live = f.active()
        return clocks.publish(rows[live], agents[live], clock)

    def release(self, f: Frame, lane: int, clock: Knowledge | None) -> Knowledge:
        """As `published`, of one lane."""
        clocks, rows, agents = self._who(f)
        return clocks.publish(rows[lane : lane + 1], agents[lane : lane + 1], clock)

    def publish(self, f: Frame, agents: Array, clock: Knowledge | None) -> Knowledge:
        """What an operation that `f` issued, and that has ended, did."""
        clocks, rows, _ = self._who(f)
        return clocks.publish(rows, agents, clock, ended=True)

    def finished(self, f: Frame, agents: Array, lanes: Array, clock: Knowledge | None) -> Knowledge | None:
        """`clock` joined with what operations of the given lanes, which have ended, did."""
        clocks, rows, _ = self._who(f)
        return clocks.publish(rows[lanes], agents[lanes], clock, ended=True) if some(lanes) else clock

    def acquire(self, f: Frame, clock: Knowledge, lanes: list[int] | None) -> None:
        """Some lanes, or all active ones, learn."""
        clocks, rows, agents = self._who(f)
        at = f.active() if lanes is None else np.array(lanes)
        clocks.acquire(rows[at], agents[at], clock)

    def asynchronous(self, f: Frame, family: str, grouped: bool) -> tuple[Array, Array]:
        """Agents for the reading and the writing part of an operation, for each lane that issues it: those of the open group, or of an
        earlier operation that all issuers know to have ended, or new ones."""
        clocks, rows, own = self._who(f)
        live = f.active()
        kept = f.queue.slots.get(family) if grouped and f.queue is not None else None
        if kept is None or some(live & ~kept[2]):
            parts = ("reads", "writes") if family == "bulk" else ("",)
            found = [clocks.issued(rows, own, live, (*f.agent_key, family, part), f"{family} {part} of {f.level}") for part in parts]
            if clocks.know.nbytes > ENOUGH_BYTES:  # operations that nobody waits for are more with each iteration
                self.m.no_room(clocks.know.nbytes > MOST_BYTES)
            kept = (found[0][0], found[-1][0], found[0][1])
            if grouped and f.queue is not None:
                f.queue.slots[family] = kept
        made = kept[:2]
        last = self.followed
        following = last is not None and last[0] is made[0] and last[1] is clocks and last[2] == clocks.version and every(last[3] == live)
        for agents in made if made[0] is not made[1] else made[:1]:
            if following:
                clocks.follow(rows[live], agents[live], own[live])
            else:
                clocks.learn(rows[live], agents[live], own[live])
            clocks.tick(rows[live], agents[live])
        clocks.tick(rows[live], own[live])
        self.followed = (made[0], clocks, clocks.version, live.copy())
        return made

    def known(self, f: Frame, agents: Array) -> Array:
        """By lane, the clock up to which it knows what its agent of `agents` did."""
        clocks, rows, own = self._who(f)
        out: Array = clocks.know[ORDERED, rows, own, agents]
        return out

    def observe(self, f: Frame, agents: Array, lanes: Array) -> None:
        """The lanes learn what their operations did; what these know else they have from the lanes."""
        clocks, rows, own = self._who(f)
        clocks.version += 1
        clocks.follow(rows[lanes], own[lanes], agents[lanes])
