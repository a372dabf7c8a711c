"""Values and frames: every value carries a leading axis of lanes, the instances of the team that runs side by side.

A value of tile shape S in a frame of L lanes is an array [L, *S], or [1, *S] when all lanes agree. Frames nest as teams split:
`owner` maps each lane to the lane of the parent frame that it belongs to.
"""
from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from kir.dataclass import dataclass
from kir.interp.number import Array

if TYPE_CHECKING:
    from kir.interp.asynchrony import Queue
    from kir.interp.clocks import Clocks
    from kir.interp.memory import Handle
    from kir.interp.schedule import Team

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
                low = high = int(wide.reshape(-1)[0])
            else:
                low, high = (int(wide.min()), int(wide.max())) if wide.size else (0, 0)
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

    def idle(self) -> bool:
        """Whether no lane is active."""
        return self.live is not None and not self.live.any()

    def lane_in(self, ancestor: Frame) -> Array | None:
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
        """The active lanes as a full mask."""
        return np.ones(self.lanes, np.bool_) if self.live is None else self.live

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
        self.live = None if joined.all() else joined

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
        self.live = None if live.all() else live

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
