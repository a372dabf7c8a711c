"""Vector clocks of the agents of one or more CTAs: who knows of whose accesses, and in what sense.

An agent is a thread, a team that runs as one, or the reading or writing part of an asynchronous operation. `know[layer, row, a, b]`
is the clock of agent b up to which a knows its accesses, within the CTA of `row`. Layers: `ORDERED` by barriers, waits and fences;
`SHUFFLED` the same plus orders that only a shuffle or vote gives; `PROXIED` up to a proxy fence on the way; `FENCED` up to a memory
fence, which is what a relaxed atomic publishes; `TOLD` of tensor memory what a fence before a meeting (or a commit) has covered, and
`HEARD` that which a fence after it has taken in, which no meeting passes on. The diagonal of `ORDERED` is an agent's own clock.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from kir.interp.numerics.number import Array, every, some

ORDERED, SHUFFLED, PROXIED, FENCED, TOLD, HEARD = range(6)
EVERY = slice(0, HEARD)
Knowledge = dict[int, Array]
"""What was published, by CTA: [layer, agent]."""


class Clocks:
    """The clocks of `ctas` CTAs (numbers `numbers`) that run as one frame, or of one that runs as a coroutine."""

    def __init__(self, numbers: Array, layers: int = 4, capacity: int = 4) -> None:
        """`capacity`: agents to leave room for; there may come to be more."""
        self.numbers = numbers
        self.layers = layers
        """Layers kept: 2 for a kernel with neither an async proxy nor atomics, all for one with tensor memory."""
        self.count = 1
        self.version = 0
        """Changes whenever an agent learns from another."""
        self.know = np.zeros((layers, len(numbers), capacity, capacity), np.int32)
        self.know[ORDERED:PROXIED, :, 0, 0] = 1
        self.blocks: dict[tuple[Any, ...], tuple[int, int]] = {}
        self.operations: dict[tuple[Any, ...], list[int]] = {}
        """The first agents of the blocks for what the same lanes have issued, in the order in which these were made."""
        self.names: list[str] = [""]
        self.foreign: list[Knowledge] = [{} for _ in numbers]
        """What the threads of each CTA know of other CTAs."""
        self.told: list[Knowledge] = [{} for _ in numbers]
        """The same, and what a relaxed atomic has told them: their plain reads may still see what was there before, until a fence comes behind it."""
        self.heard: list[dict[int, tuple[int, Knowledge]]] = [{} for _ in numbers]
        """By CTA and agent: when its last relaxed atomic was, and what it and those before it told, where no fence has come behind them."""
        self.fenced = False
        """Whether an agent has ordered what it did for those that read its flag."""
        self.leasts: dict[int, tuple[int, int, Array, Array]] = {}
        """By layer, what some agents all knew of each when they were last asked: the version, the room, which agents, and the clocks."""

    def block(self, key: tuple[Any, ...], size: int, name: str, of: Array | None = None) -> int:
        """The first of `size` agents that belong to `key`; made when they are new. Each is called `name` and its number in `of`, or its
        place."""
        found = self.blocks.get((*key, size))
        if found is not None:
            return found[0]
        first = self.count
        self.count += size
        self.names += [f"{name} {i}" for i in (range(size) if of is None else of)]
        if self.count > self.know.shape[-1]:
            wider = max(self.count, 2 * self.know.shape[-1])
            grown = np.zeros((self.layers, self.know.shape[1], wider, wider), np.int32)
            grown[:, :, :first, :first] = self.know[:, :, :first, :first]
            self.know = grown
        self.blocks[(*key, size)] = (first, size)
        return first

    def issued(self, rows: Array, own: Array, live: Array, key: tuple[Any, ...], name: str) -> tuple[Array, Array]:
        """By lane, agents for what the `live` lanes issue, and which lanes have one: those of an earlier operation that all issuers know to
        have ended, or new ones. A lane that issues nothing has none: where one thread of many issues, each operation is one agent."""
        per_row = len(rows) // len(self.numbers)
        index = np.arange(len(rows)) % max(1, per_row)
        issuing = index[live] if len(self.numbers) == 1 else np.unique(index[live])
        place = np.minimum(np.searchsorted(issuing, index), max(0, len(issuing) - 1))
        full = (*key, len(issuing), *(issuing.tolist() if len(issuing) < per_row else ()))
        earlier = self.operations.setdefault(full, [])
        at, agents = rows[live], np.array(earlier, np.int64)[:, None] + place[live]
        ended = (self.know[ORDERED, at, own[live], agents] >= self.now(at, agents)).all(axis=1)
        if some(ended):
            first = earlier[int(ended.argmax())]
        else:
            first = self.block((*full, len(earlier)), len(issuing), name, issuing)
            earlier.append(first)
        return first + place, issuing[place] == index if len(issuing) else np.zeros(len(index), np.bool_)

    def least(self, layer: int, rows: Array, agents: Array, of: Array) -> int:
        """No more than the least that any of some agents, by row, knows of those of `of`, and just that since they last learned; 0 where one of these is
        no agent of this CTA."""
        width = self.know.shape[-1]
        if not len(of) or int(of.max()) >= width:
            return 0
        pairs = np.flatnonzero(np.bincount(rows * width + agents))
        held = self.leasts.get(layer)
        if held is None or held[:2] != (self.version, width) or not np.array_equal(held[2], pairs):
            held = self.leasts[layer] = self.version, width, pairs, self.know[layer].reshape(-1, width)[pairs].min(axis=0)
        return int(held[3][of].min())

    def now(self, rows: Array, agents: Array) -> Array:
        """The agents' own clocks."""
        out: Array = self.know[ORDERED, rows, agents, agents]
        return out

    def tick(self, rows: Array, agents: Array) -> None:
        """What the agents do from now on is later than what they have published."""
        self.know[ORDERED:PROXIED, rows, agents, agents] += 1

    def learn(self, rows: Array, agents: Array, of: Array) -> None:
        """Each agent learns what the agent at the same position of `of` knows (and did)."""
        self.version += 1
        known = self.know[..., : self.count]
        a, b = self.span(rows, agents), self.span(rows, of)
        if a is not None and b is not None:
            np.maximum(known[:, :, a], known[:, :, b], out=known[:, :, a])
            return
        if a is not None and every(of == of[0]):
            np.maximum(known[:, :, a], known[:, :, int(of[0]), None], out=known[:, :, a])
            return
        known[:, rows, agents] = np.maximum(known[:, rows, agents], known[:, rows, of])

    def follow(self, rows: Array, agents: Array, of: Array) -> None:
        """As `learn`, where an earlier call has passed on all that `of` had learned, and only its own accesses are new."""
        self.know[ORDERED:PROXIED, rows, agents, of] = self.know[ORDERED:PROXIED, rows, of, of]

    def span(self, rows: Array, agents: Array) -> slice | None:
        """The agents as a range, when they are the same consecutive ones in every row."""
        count = len(agents) // len(self.numbers)
        if not count or count * len(self.numbers) != len(agents):
            return None
        first = int(agents[0])
        expected = first + np.arange(len(agents)) % count
        same = every(agents == expected) and every(rows == np.arange(len(agents)) // count)
        return slice(first, first + count) if same else None

    def meet(self, rows: Array, agents: Array, group: Array, layers: slice = EVERY) -> None:
        """Agents of one `group` (sorted numbers) learn from each other."""
        self.version += 1
        whole, size = self.span(rows, agents), int((group == group[0]).sum())
        if whole is not None and len(group) % size == 0 and every(group.reshape(-1, size) == group[::size, None]) and every(
                group[::size][1:] != group[::size][:-1]):
            known = self.know[layers, :, whole, : self.count]
            parts = known.reshape(len(known), len(self.numbers), -1, size, self.count)
            known[...] = np.broadcast_to(parts.max(axis=3, keepdims=True), parts.shape).reshape(known.shape)
            self.tick(rows, agents)
            return
        starts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
        index = np.cumsum(np.concatenate([[False], group[1:] != group[:-1]]))
        known = self.know[..., : self.count]
        joined = np.maximum.reduceat(known[layers, rows, agents], starts, axis=1)
        known[layers, rows, agents] = joined[:, index]
        self.tick(rows, agents)

    def fence(self, rows: Array, agents: Array, layer: int) -> None:
        """What the agents know is now known in the sense of `layer`."""
        self.version += 1
        if layer >= self.layers:
            return
        self.fenced |= layer == FENCED
        self.know[layer, rows, agents] = np.maximum(self.know[layer, rows, agents], self.know[ORDERED, rows, agents])
        if layer == FENCED:
            self._believe(rows, agents)
        self.tick(rows, agents)

    def _believe(self, rows: Array, agents: Array) -> None:
        """Fences of agents: what relaxed atomics of theirs, or of those of whom they know, have told is known."""
        for row in self._rows(rows):
            mine = agents[rows == row]
            for agent, (clock, known) in list(self.heard[row].items()):
                if some(mine == agent) or some(self.know[ORDERED, row, mine, agent] >= clock):
                    del self.heard[row][agent]
                    for cta, of in known.items():
                        _join(self.foreign[row], cta, of)

    def hear(self, rows: Array, agents: Array) -> None:
        """What was told of tensor memory, the agents have heard."""
        self.know[HEARD, rows, agents] = np.maximum(self.know[HEARD, rows, agents], self.know[TOLD, rows, agents])

    def follow_on(self, rows: Array, agents: Array, of: Array) -> None:
        """What the agents do with tensor memory comes after what those of `of` did, of the same threads, without a fence."""
        self.know[HEARD, rows, agents, of] = self.know[ORDERED, rows, of, of]

    def publish(self, rows: Array, agents: Array, into: Knowledge | None, layer: int | None = None, ended: bool = False) -> Knowledge:
        """What the agents know, joined into `into`; with `layer`, only what they know in that sense. Those that have `ended` do nothing later,
        so who knows this knows all of them, and they may stand for other operations."""
        out: Knowledge = dict(into or {})
        for row in self._rows(rows):
            mine = self.know[:, row, _of_row(agents, rows, row), : self.count].max(axis=1)
            if layer is not None:
                mine = np.broadcast_to(mine[layer], mine.shape).copy()
            _join(out, int(self.numbers[row]), mine)
            for cta, known in self.foreign[row].items():
                _join(out, cta, known)
        if not ended:
            self.tick(rows, agents)
        return out

    def _rows(self, rows: Array) -> list[int]:
        """Which rows there are, once each."""
        return [0] if len(self.numbers) == 1 and len(rows) else np.unique(rows).tolist()

    def acquire(self, rows: Array, agents: Array, published: Knowledge, relaxed: bool = False) -> None:
        """The agents learn what was published. What other CTAs did is known to the whole CTA from then on; `relaxed`: once a fence comes behind it."""
        self.version += 1
        for row in self._rows(rows):
            mine = _of_row(agents, rows, row)
            for cta, known in published.items():
                if cta == int(self.numbers[row]):
                    width = min(known.shape[1], self.count)
                    own = self.know[:HEARD, row, :, :width]
                    own[:, mine] = np.maximum(own[:, mine], known[:HEARD, None, :width])
                    continue
                _join(self.told[row], cta, known)
                for agent in agents[rows == row].tolist() if relaxed else ():
                    before = self.heard[row].get(agent, (0, {}))[1]
                    _join(before, cta, known)
                    self.heard[row][agent] = int(self.know[ORDERED, row, agent, agent]), before
                if not relaxed:
                    _join(self.foreign[row], cta, known)

    def knows_foreign(self, row: int, cta: int, agent: Array, clock: Array, plain: bool = False) -> Array:
        """Whether the CTA knows accesses of another CTA's agents; `plain`: so that a plain read sees them."""
        known = (self.foreign if plain else self.told)[row].get(cta)
        if known is None:
            return np.zeros(agent.shape, np.bool_)
        inside = agent < known.shape[1]
        out: Array = inside & (known[ORDERED, np.where(inside, agent, 0)] >= clock)
        return out


def _of_row(agents: Array, rows: Array, row: int) -> slice | Array:
    """The agents of one row: a range, where they follow one another."""
    mine: Array = agents[rows == row]
    if len(mine) and int(mine[-1]) - int(mine[0]) == len(mine) - 1 and every(mine[1:] > mine[:-1]):
        return slice(int(mine[0]), int(mine[-1]) + 1)
    return mine


def _join(into: Knowledge, cta: int, known: Array) -> None:
    old = into.get(cta)
    if old is None:
        into[cta] = known
        return
    width = max(old.shape[1], known.shape[1])
    wide = np.zeros((len(old), width), np.int32)
    wide[:, : old.shape[1]] = old
    wide[:, : known.shape[1]] = np.maximum(wide[:, : known.shape[1]], known)
    into[cta] = wide
