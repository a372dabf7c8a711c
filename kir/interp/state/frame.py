"""Frames: the running instances of a team, the values of their names, and what they have in flight.

Frames nest as teams split: `owner` maps each lane to the lane of the parent frame that it belongs to.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from kir.base.dataclass import dataclass
from kir.interp.numerics.number import Array, every, some
from kir.interp.numerics.values import Mask, Val
from kir.interp.state.clocks import Clocks
from kir.interp.state.memory import Handle, Instances, Memory
from kir.interp.state.tasks import Mbarrier, Team
from kir.ir.nodes import Stmt

LEVELS = {"warpgroup": 128, "warp": 32, "thread": 1}
"""Levels of the machine that a loop splits a team into, with the threads of one instance."""


@dataclass(eq=False)
class Operation:
    """One operation in flight, issued by the lanes `lanes` of a frame. `reads` are the agents that stand for its reading part."""

    family: str
    act: Callable[[], None]
    lanes: Array
    site: Stmt | None
    writer: Array | None = None
    reader: Array | None = None
    frame: Frame | None = None
    signals: tuple[tuple[Mbarrier, int], ...] = ()
    registers: Memory | None = None
    sources: tuple[Memory, ...] = ()
    acted: bool = False


@dataclass(eq=False)
class Group:
    """Operations that a commit closed, for the lanes that made it."""

    operations: list[Operation]
    lanes: Array
    read: Array | None = None


@dataclass(eq=False)
class Queue:
    """What the instances of one team have in flight, by family: `cp_async`, `bulk`, `wgmma`."""

    open: dict[str, list[Operation]] = field(default_factory=dict)
    groups: dict[str, list[Group]] = field(default_factory=dict)
    slots: dict[str, tuple[Array, Array, Array]] = field(default_factory=dict)
    """Checking mode: the agents that stand for the operations of the group that is open, and the lanes that have one."""


@dataclass
class Frame:
    """The running instances of one team. `live` marks the lanes that are active (None: all); a lane that breaks, continues or
    returns leaves it until the loop or function ends. `agents` names each lane to the race detector."""

    lanes: int
    level: str = "cta"
    parent: Frame | None = None
    owner: Array | None = None
    live: Mask = None
    scope: bool = True
    """Whether names of the parent are visible (not in a function)."""
    env: dict[str, Val | Handle] = field(default_factory=dict)
    broken: Mask = None
    continued: Mask = None
    returned: Mask = None
    results: list[Val] | None = None
    agents: Array | None = None
    cta: Array | None = None
    """The CTA of each lane, as an index into the CTAs that run now."""
    name: str = ""
    numbers: Array | None = None
    """The number of each lane among its siblings, as the loop over threads counts them."""
    warps: tuple[Array, Array, Array, bool] | None = None
    """What `kir.interp.calls.warp.lanes_of` found for these numbers."""
    threads: int = 1
    """Threads of one instance."""
    team: Team | None = None
    """Those who meet at `barrier()`: the siblings of the innermost split."""
    split: bool = False
    """Whether those siblings run as coroutines of their own."""
    diverged: bool = False
    """Whether this is a `subset` of the lanes that run together otherwise."""
    branches: int = 0
    """How many branches around are taken by some lanes and left by others, and have operations with a mask in both arms."""
    proxy: int = 0
    """1 while an asynchronous operation acts for the frame through the async proxy."""
    since: Array | None = None
    """Checking mode, while an operation of a group acts: by lane, the clock up to which its issuer knew what its agent did."""
    queue: Queue | None = None
    """Asynchronous operations that instances of this team have in flight."""
    queues: dict[tuple[str, int, int], Queue] = field(default_factory=dict)
    """Queues of sub-teams that have ended: the same threads run the next loop over that level."""
    cluster_generation: int = -1
    """The cluster's barrier phase that this team has arrived for."""
    clocks: Clocks | None = None
    """Checking mode: what the agents of the CTAs of this frame know of one another."""
    rows: Array | None = None
    """Checking mode: the row of each lane's CTA in `clocks`."""
    agent_key: tuple[Any, ...] = ()
    acts_for: Frame | None = None
    """The frame that this one is a snapshot of: it owns the same memories."""
    _maps: dict[int, Array | None] = field(default_factory=dict)
    _every: Array | None = None
    """All lanes, once they were asked for."""

    def idle(self) -> bool:
        """Whether no lane is active."""
        return self.live is not None and not some(self.live)

    def lane_in(self, ancestor: Instances) -> Array | None:
        """For each lane its lane in an enclosing frame; None when they are the same."""
        key = id(ancestor)
        if key in self._maps:
            return self._maps[key]
        frame: Frame | None = self
        lanes: Array | None = None
        while frame is not None and frame is not ancestor and frame.acts_for is not ancestor:
            if frame.owner is not None:
                lanes = frame.owner if lanes is None else frame.owner[lanes]
            frame = frame.parent
        self._maps[key] = lanes
        return lanes

    def find(self, name: str) -> Val | Handle | None:
        """What a name stands for; values of enclosing frames are spread over this frame's lanes once."""
        found = self.env.get(name)
        if found is not None or self.parent is None or not self.scope:
            return found
        found = self.parent.find(name)
        if isinstance(found, Val) and self.owner is not None and found.data.shape[0] > 1:
            found = Val(found.data[self.owner], None if found.ok is None else found.ok[self.owner])
        if found is not None:
            self.env[name] = found
        return found

    def thread_numbers(self) -> Array:
        """For each lane its number among the threads of the loop that made the frame (functions see their caller's)."""
        if self.numbers is not None:
            return self.numbers
        return self.parent.thread_numbers() if self.parent is not None and self.owner is None else np.zeros(self.lanes, np.int64)

    def active(self) -> Array:
        """The active lanes as a full mask, which is nobody's to change."""
        if self.live is not None:
            live: Array = self.live
            return live
        if self._every is None or len(self._every) != self.lanes:
            self._every = np.ones(self.lanes, np.bool_)
            self._every.flags.writeable = False
        return self._every

    def threads_of(self, group: int) -> int:
        """How many threads of one instance of the parent are in a warpgroup."""
        count = int(self.numbers.max()) + 1 if self.numbers is not None and len(self.numbers) else 0
        return max(0, min(LEVELS["warpgroup"], count - LEVELS["warpgroup"] * group))

    def exited(self) -> Array:
        """For each lane whether its thread has left the kernel (a return from a device function is none)."""
        frame = self
        while frame.owner is None and frame.parent is not None:
            frame = frame.parent
        gone = np.zeros(self.lanes, np.bool_) if frame.returned is None else frame.returned
        if frame.owner is not None and frame.parent is not None and frame.parent.live is not None:
            gone = gone | ~frame.parent.live[frame.owner]
        return gone

    def stop(self, kind: str) -> None:
        """The active lanes leave: until the next iteration (`continue`), the end of the loop (`break`) or of the function (`return`)."""
        leaving = self.active()
        if kind == "break":
            self.broken = leaving if self.broken is None else self.broken | leaving
        elif kind == "continue":
            self.continued = leaving if self.continued is None else self.continued | leaving
        else:
            self.returned = leaving if self.returned is None else self.returned | leaving
        self.live = np.zeros(self.lanes, np.bool_)

    def resume(self, kind: str) -> None:
        """Lanes that left with `break` or `continue` are active again."""
        back = self.broken if kind == "break" else self.continued
        if back is None:
            return
        if kind == "break":
            self.broken = None
        else:
            self.continued = None
        joined = back if self.live is None else self.live | back
        self.live = None if every(joined) else joined

    def child(self, count: int, level: str, name: str) -> Frame:
        """A frame of `count` sub-instances for each lane (lane-major)."""
        owner = np.repeat(np.arange(self.lanes), count)
        made = Frame(self.lanes * count, level, self, owner, None if self.live is None else self.live[owner], name=name)
        made.cta = None if self.cta is None else self.cta[owner]
        made.numbers = np.tile(np.arange(count), self.lanes)
        made.clocks, made.rows = self.clocks, None if self.rows is None else self.rows[owner]
        return made

    def snapshot(self, agents: Array | None, proxy: int) -> Frame:
        """This frame as it is now, for an operation that acts later as `agents`."""
        made = Frame(self.lanes, self.level, self.parent, self.owner, self.live, self.scope, dict(self.env), name=self.name,
                     agents=agents, cta=self.cta, numbers=self.numbers, threads=self.threads, proxy=proxy, _maps=self._maps,
                     clocks=self.clocks, rows=self.rows, agent_key=self.agent_key)
        made.acts_for = self
        return made

    def subset(self, lanes: Array) -> Frame:
        """Some lanes of this frame, on their own for a while (they may wait where the others do not)."""
        made = Frame(len(lanes), self.level, self, lanes, None, self.scope, name=self.name, numbers=self.thread_numbers()[lanes],
                     threads=self.threads, team=self.team, split=self.split, proxy=self.proxy, queue=self.queue, clocks=self.clocks,
                     agent_key=(*self.agent_key, *lanes.tolist()), diverged=True)
        made.agents = None if self.agents is None else self.agents[lanes]
        made.cta = None if self.cta is None else self.cta[lanes]
        made.rows = None if self.rows is None else self.rows[lanes]
        return made

    def absorb(self, parts: list[tuple[Array, Frame]]) -> None:
        """The lanes of `subset`s are together again; those that jumped have left."""
        live = np.zeros(self.lanes, np.bool_)
        for lanes, part in parts:
            live[lanes] = part.active()
            for kind in ("broken", "continued", "returned"):
                gone = getattr(part, kind)
                if gone is not None:
                    mask = np.zeros(self.lanes, np.bool_) if getattr(self, kind) is None else getattr(self, kind).copy()
                    mask[lanes[gone]] = True
                    setattr(self, kind, mask)
        self.live = None if every(live) else live

    def part(self, lanes: Array, name: str) -> Frame:
        """Some lanes of this frame as a frame of their own, seen as children of the parent."""
        made = Frame(len(lanes), self.level, self.parent, None if self.owner is None else self.owner[lanes],
                     None if self.live is None else self.live[lanes], self.scope, name=name)
        made.agents = None if self.agents is None else self.agents[lanes]
        made.numbers = None if self.numbers is None else self.numbers[lanes]
        made.cta = None if self.cta is None else self.cta[lanes]
        made.threads, made.team, made.split = self.threads, self.team, self.split
        made.clocks, made.rows = self.clocks, None if self.rows is None else self.rows[lanes]
        made.agent_key = (*self.agent_key, int(lanes[0]) if len(lanes) else 0)
        made.env = {k: Val(v.data[lanes] if v.data.shape[0] > 1 else v.data, v.ok if v.ok is None or v.ok.shape[0] == 1 else v.ok[lanes])
                    if isinstance(v, Val) else v for k, v in self.env.items()}
        return made
