"""Shadow of a memory: who accessed each granule last, and how; from it, which new access races with an old one.

Of writes the last is kept. Of reads and atomic updates the latest clock of every agent of the CTA that came last is kept, and that
other CTAs did so too: within a launch no two CTAs are ordered unless one has acquired what the other released.
"""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kir.base.dataclass import dataclass
from kir.interp.numerics.number import Array, every, some
from kir.interp.state.clocks import ORDERED, PROXIED, SHUFFLED, Clocks

NOBODY, EARLIER, UNAWAITED = -1, -2, -3
"""In place of a CTA: never accessed; by the previous launch, which may still run; by one before it, of which the previous launch's end says nothing."""
MANY = -4
"""In place of an agent: more than one."""


@dataclass(eq=False)
class Conflict:
    """An old access that the new access at position `at` is not ordered with."""

    at: int
    site: int
    cta: int
    agent: int
    verb: str
    weak: bool = False
    proxy: bool = False
    told: bool = False
    """A relaxed atomic has told of it, but no fence has come behind that."""


FEW = 256
"""Accesses of which NumPy's `at` takes no longer than what is done without it."""
LEAST_RUN = 64
"""Granules of a lane of which it is worth a look whether they are a range."""


class Run(NamedTuple):
    """The same range of granules in the memory of each lane. What is kept of it is compared and changed as a part of an array, in a tenth of the time
    that it takes granule by granule."""

    lanes: int
    low: int
    high: int

    def of(self, kept: Array) -> Array:
        """Its part [lanes, granules, ..] of what is kept of all granules."""
        return kept.reshape(self.lanes, -1, *kept.shape[1:])[:, self.low:self.high]


def run_of(g: Array, lanes: int, granules: int) -> Run | None:
    """Granules as a run, where each of it is there once in each lane, in whatever order: what teams read or write of a tile, swizzled or not. There are
    `granules` of them in all lanes."""
    if len(g) < LEAST_RUN * lanes:
        return None
    first = g[:len(g) // lanes]
    low = int(first.min())
    if int(first.max()) - low + 1 != len(first):
        return None
    if lanes > 1 and not every(g.reshape(lanes, -1) == first + np.arange(0, granules, granules // lanes)[:, None]):
        return None
    seen = np.zeros(len(first), np.bool_)
    seen[first - low] = True
    return Run(lanes, low, low + len(first)) if every(seen) else None


class Crowd:
    """Accesses of many agents to each granule: reads, or atomic updates."""

    def __init__(self, granules: int) -> None:
        self.granules = granules
        self.used = False
        """Whether there was any access. Until then there is no more: most memory is never updated, and much of it never read."""

    def _begin(self) -> None:
        """The first access."""
        granules, self.used = self.granules, True
        self.cta = np.full(granules, NOBODY, np.int32)
        self.other = np.full(granules, NOBODY, np.int32)
        self.site = np.zeros(granules, np.int32)
        self.other_site = np.zeros(granules, np.int32)
        self.column_agents = np.zeros(0, np.int64)
        self.column_of = np.zeros(0, np.int64)
        self.clock = np.zeros((granules, 0), np.int32)
        self.latest = np.zeros(granules, np.int32)
        """No less than any clock of a granule."""
        self.last = np.full(granules, NOBODY, np.int32)
        """The agent that came last, or MANY that came at once."""
        self.before = np.zeros(granules, np.int32)
        """No less than any clock of a granule but those of the agent that came last."""

    def forget(self, overlapping: bool, chained: bool) -> None:
        """A new launch (see `Shadow.forget`)."""
        if not self.used:
            return
        self.cta[:] = _earlier(self.cta, overlapping, chained)
        self.other[:] = _earlier(self.other, overlapping, chained)
        self.clock[:] = 0
        self.latest[:] = self.before[:] = 0
        self.last[:] = NOBODY

    def note(self, g: Array, cta: Array, agent: Array, clock: Array, site: int, crowded: bool) -> None:
        """Accesses to granules `g` by agents at their clocks."""
        if not self.used:
            self._begin()
        old = self.cta[g]
        fresh = old != cta
        if some(fresh):
            moved = (old != NOBODY) & fresh
            if some(moved):  # what nobody has accessed has no clocks yet
                there = g[moved]
                self.other[there], self.other_site[there] = old[moved], self.site[there]
                self.clock[there] = 0
                self.latest[there], self.before[there], self.last[there] = 0, 0, NOBODY
            self.cta[g[::-1]] = cta[::-1]
            several = self.cta[g] != cta
            self.other[g[several]], self.other_site[g[several]] = cta[several], site
        self.site[g] = site
        if crowded:
            column = self._columns(agent)
            _raised(self.clock.reshape(-1), g * self.clock.shape[1] + column, clock)
            another = self.last[g] != agent
            if some(another):
                changed = g[another]
                self.before[changed] = self.latest[changed]
                self.last[g] = agent
                several = self.last[g] != agent
                if some(several):
                    self.last[g[several]] = MANY
            _raised(self.latest, g, clock)

    def note_run(self, run: Run, cta: Array, agent: int, clock: Array, site: int, crowded: bool) -> bool:
        """As `note`, of accesses to a run by an agent of each lane's CTA; False where another CTA has been there, and nothing is noted."""
        if not self.used:
            self._begin()
        old = run.of(self.cta)
        fresh = old != cta
        if some(fresh):
            if some(fresh & (old != NOBODY)):
                return False
            if self.clock.shape[1]:
                run.of(self.clock)[fresh] = 0
            run.of(self.latest)[fresh], run.of(self.before)[fresh], run.of(self.last)[fresh] = 0, 0, NOBODY
            old[...] = cta
        run.of(self.site)[...] = site
        if crowded:
            column = int(self._columns(np.array([agent]))[0])
            own, latest, last = run.of(self.clock)[..., column], run.of(self.latest), run.of(self.last)
            np.maximum(own, clock, out=own)
            another = last != agent
            if some(another):
                np.copyto(run.of(self.before), latest, where=another)
                last[...] = agent
            np.maximum(latest, clock, out=latest)
        return True

    def all_known(self, run: Run, clocks: Clocks, rows: Array, agents: Array) -> bool:
        """Whether it shows at once that `conflicts` finds nothing of accesses to a run, by one and the same agent of each lane's CTA."""
        if not self.used:
            return True
        cta, last, other = clocks.numbers[rows][:, None], run.of(self.cta), run.of(self.other)
        if some((other != NOBODY) & (other != cta)):
            return False
        if not every(last == cta):
            return every(last == NOBODY)
        if not len(self.column_agents):
            return True
        most = int(np.where(run.of(self.last) == agents[0], run.of(self.before), run.of(self.latest)).max())
        return most <= 0 or most <= clocks.least(ORDERED, rows, agents, self.column_agents)

    def _columns(self, agent: Array) -> Array:
        most = int(agent.max()) + 1
        if most > len(self.column_of):
            self.column_of = np.concatenate([self.column_of, np.full(most - len(self.column_of), -1, np.int64)])
        unknown = self.column_of[agent] < 0
        if some(unknown):
            new = np.unique(agent[unknown])
            start = len(self.column_agents)
            self.column_of[new] = np.arange(start, start + len(new))
            self.column_agents = np.concatenate([self.column_agents, new])
            if len(self.column_agents) > self.clock.shape[1]:
                wider = np.zeros((len(self.clock), max(len(self.column_agents), 2 * self.clock.shape[1])), np.int32)
                wider[:, : self.clock.shape[1]] = self.clock
                self.clock = wider
        out: Array = self.column_of[agent]
        return out

    def conflicts(self, g: Array, clocks: Clocks, rows: Array, agents: Array, lanes: Array, cta: Array, verb: str, plain: bool = False) -> Conflict | None:
        """One old access that is not ordered before accesses to `g` by the frame lanes `lanes` (whose rows and agents are given by
        lane), an error in preference to a weak one. `plain`: of these accesses being plain reads."""
        if not self.used:
            return None
        last = self.cta[g]
        for who, sites in ((last, self.site), (self.other[g], self.other_site)):
            foreign = (who != NOBODY) & (who != cta)
            if some(foreign):
                for at in np.flatnonzero(foreign)[:64]:
                    if int(who[at]) not in (clocks.foreign if plain else clocks.told)[int(rows[lanes[at]])]:
                        return Conflict(int(at), int(sites[g[at]]), int(who[at]), -1, verb)
        n = len(self.column_agents)
        if not n:
            return None
        mine = last == cta
        agent = agents[lanes]
        if every(mine):
            of_others = np.where(self.last[g] == agent, self.before[g], self.latest[g])
            others = of_others > 0
            if not some(others) or int(of_others.max()) <= clocks.least(ORDERED, rows[lanes[others]], agent[others], self.column_agents):
                return None  # whatever it was, it is one's own, or known
        seen = self.clock[g, :n]
        weak: Conflict | None = None
        theirs = (last != NOBODY) & ~mine
        if some(theirs) and (found := self._of_others(g, seen, clocks, rows[lanes], theirs, verb, plain)) is not None:
            return found
        late = self._late(seen, clocks, ORDERED, rows[lanes], agent)
        if not every(mine):
            late &= mine[:, None]
        if some(late):
            loose = late & self._late(seen, clocks, SHUFFLED, rows[lanes], agent)
            pick = loose if some(loose) else late
            at, column = np.unravel_index(int(pick.argmax()), pick.shape)
            weak = Conflict(int(at), int(self.site[g[at]]), int(cta[at]), int(self.column_agents[column]), verb, not some(loose))
        return weak

    def _of_others(self, g: Array, seen: Array, clocks: Clocks, rows: Array, theirs: Array, verb: str, plain: bool) -> Conflict | None:
        """An access of another CTA's agents that this CTA does not know of, though it knows something of that CTA."""
        for row in np.unique(rows[theirs]):
            for other in np.unique(self.cta[g[theirs & (rows == row)]]):
                held = (clocks.foreign if plain else clocks.told)[int(row)].get(int(other))
                if held is None:
                    continue
                known = np.zeros(len(self.column_agents), np.int32)
                inside = self.column_agents < held.shape[1]
                known[inside] = held[ORDERED, self.column_agents[inside]]
                late = (seen > known) & (theirs & (rows == row) & (self.cta[g] == other))[:, None]
                if some(late):
                    at, column = np.unravel_index(int(late.argmax()), late.shape)
                    return Conflict(int(at), int(self.site[g[at]]), int(other), int(self.column_agents[column]), verb)
        return None

    def _late(self, seen: Array, clocks: Clocks, layer: int, rows: Array, agents: Array) -> Array:
        """By access and column, whether what was seen of the column's agent is later than what the one that accesses knows of it; never of itself."""
        width = clocks.know.shape[-1]
        columns = np.minimum(self.column_agents, width - 1)
        known: Array
        if every(rows == rows[0]):
            known = np.take(clocks.know[layer, int(rows[0])], agents, axis=0).take(columns, axis=1)
        else:
            known = clocks.know[layer, rows[:, None], agents[:, None], columns]
        if not every(columns == self.column_agents):
            known = np.where(self.column_agents < width, known, 0)
        late: Array = seen > known
        own = self.column_of[np.minimum(agents, len(self.column_of) - 1)]
        has = (agents < len(self.column_of)) & (own >= 0)
        late[has, own[has]] = False
        return late


def _raised(kept: Array, at: Array, clock: Array) -> None:
    """What is kept at some places, which may come several times, is no less than the clocks there. These are mostly one number, which where
    there are many takes half the time."""
    if len(at) > FEW and every(clock == clock[0]):
        kept[at] = np.maximum(kept[at], clock[0])
    else:
        np.maximum.at(kept, at, clock)


def of_two(g: Array, cta: Array, site: int) -> Conflict | None:
    """An update of a granule that another CTA updates in the same call."""
    order = np.argsort(g, kind="stable")
    g, cta = g[order], cta[order]
    found = np.flatnonzero((g[1:] == g[:-1]) & (cta[1:] != cta[:-1]))
    return Conflict(int(order[found[0] + 1]), site, int(cta[found[0]]), -1, "update") if len(found) else None


def _earlier(cta: Array, overlapping: bool, chained: bool) -> Array | int:
    """Who accessed, as the next launch sees it."""
    if not overlapping:
        return NOBODY
    kept: Array = np.where(cta == EARLIER, EARLIER if chained else UNAWAITED, np.where(cta < EARLIER, cta, np.where(cta == NOBODY, NOBODY, EARLIER)))
    return kept


class Shadow:
    """The shadow of one memory."""

    def __init__(self, granules: int) -> None:
        self.cta = np.full(granules, NOBODY, np.int32)
        self.agent = np.zeros(granules, np.int32)
        self.clock = np.zeros(granules, np.int32)
        self.site = np.zeros(granules, np.int32)
        self.generic = np.ones(granules, np.bool_)
        self.reads = Crowd(granules)
        self.updates = Crowd(granules)
        self.narrow: Array | None = None
        """Where an update was atomic for the threads of its own CTA alone."""
        self.latest: tuple[Array, Array, Array] | None = None
        """CTA, agent and clock of the atomic update of each granule that came last, where there was any."""

    def of_cta(self, g: Array, narrow: bool) -> Array:
        """Where updates of `g`, atomic for their own CTA alone where `narrow`, may meet what is, or are; and that they are is noted."""
        if self.narrow is None:
            self.narrow = np.zeros(len(self.cta), np.bool_)
        met: Array = self.narrow[g] | narrow
        self.narrow[g] |= narrow
        return met

    def note_update(self, g: Array, cta: Array, agent: Array, clock: Array) -> None:
        """Atomic updates of granules `g`, one after the other."""
        if self.latest is None:
            self.latest = np.full(len(self.cta), NOBODY, np.int32), np.zeros(len(self.cta), np.int32), np.zeros(len(self.cta), np.int32)
        for kept, new in zip(self.latest, (cta, agent, clock), strict=True):
            kept[g] = new

    def after_updates(self, g: Array, clocks: Clocks, rows: Array, cta: Array, agent: Array) -> Array:
        """Where accesses to `g` come after the last atomic update, and so after all of them: these have one order, in which each has seen those before it."""
        if self.latest is None:
            return np.zeros(len(g), np.bool_)
        who, writer, clock = (x[g] for x in self.latest)
        known = np.minimum(writer, clocks.know.shape[-1] - 1)
        out: Array = (who == cta) & ((writer == agent) | (clocks.know[ORDERED, rows, agent, known] >= clock))
        for row in np.unique(rows[(who >= 0) & (who != cta)]):
            for other in np.unique(who[(rows == row) & (who >= 0) & (who != cta)]):
                out |= (rows == row) & (who == other) & clocks.knows_foreign(int(row), int(other), writer, clock)
        return out

    def forget(self, overlapping: bool, chained: bool) -> None:
        """A new launch; with `overlapping` what the last one did is not yet known, and `chained` says whether its own end means that those before it
        have ended."""
        self.cta[:] = _earlier(self.cta, overlapping, chained)
        self.reads.forget(overlapping, chained)
        self.updates.forget(overlapping, chained)
        self.latest = None
        self.narrow = self.narrow if overlapping else None

    def after_write(self, g: Array, clocks: Clocks, rows: Array, cta: Array, agent: Array, proxy: int, since: Array | None = None,
                    plain: bool = False) -> Conflict | None:
        """A write that accesses to `g` are not ordered after. `since`: the clocks up to which the issuer of an operation knows its agents, which stand
        for others of its group too. `plain`: of these accesses being plain reads."""
        who = self.cta[g]
        if every(who == NOBODY):
            return None
        mine, writer, clock = who == cta, self.agent[g], self.clock[g]
        width = clocks.know.shape[-1]
        if since is None and not proxy and every(mine):
            others = writer != agent
            if not some(others) or int(clock[others].max()) <= clocks.least(ORDERED, rows, agent, np.flatnonzero(np.bincount(writer[others]))):
                return None  # one's own, or known
        known = np.minimum(writer, width - 1)
        late = mine & (writer != agent) & (clocks.know[ORDERED, rows, agent, known] < clock)
        if since is not None:
            late |= mine & (writer == agent) & (clock > since) & (clock < clocks.now(rows, agent))
        if some(late):
            loose = late & ((writer == agent) | (clocks.know[SHUFFLED, rows, agent, known] < clock))
            at = int((loose if some(loose) else late).argmax())
            return Conflict(at, int(self.site[g[at]]), int(cta[at]), int(writer[at]), "write", not some(loose))
        foreign = (who != NOBODY) & ~mine
        if some(foreign):
            for row in np.unique(rows[foreign]):
                for other in np.unique(who[foreign & (rows == row)]):
                    there = foreign & (rows == row) & (who == other)
                    known_there = clocks.knows_foreign(int(row), int(other), writer, clock, plain)
                    if other == EARLIER:
                        known_there |= EARLIER in clocks.foreign[int(row)]
                    if some(there & ~known_there):
                        at = int((there & ~known_there).argmax())
                        return Conflict(at, int(self.site[g[at]]), int(other), int(writer[at]), "write")
        if proxy and clocks.layers > PROXIED:
            stale = mine & self.generic[g] & (clocks.know[PROXIED, rows, agent, known] < clock)
            if some(stale):
                at = int(stale.argmax())
                return Conflict(at, int(self.site[g[at]]), int(cta[at]), int(writer[at]), "write", proxy=True)
        return None

    def all_known(self, run: Run, clocks: Clocks, rows: Array, agents: Array, proxy: int, since: Array | None = None) -> bool:
        """Whether it shows at once that `after_write` finds nothing of accesses to a run, by one and the same agent of each lane's CTA."""
        who = run.of(self.cta)
        if every(who == NOBODY):
            return True
        if not every(who == clocks.numbers[rows][:, None]) or (proxy and clocks.layers > PROXIED and some(run.of(self.generic))):
            return False
        writer = run.of(self.agent)
        others = writer != agents[0]
        if since is not None and not every(others):
            return False
        if not some(others):
            return True
        return int(run.of(self.clock)[others].max()) <= clocks.least(ORDERED, rows, agents, np.flatnonzero(np.bincount(writer[others])))

    def note_write_run(self, run: Run, cta: Array, agent: int, clock: Array, site: int, proxy: int) -> None:
        """As `note_write`, of a run."""
        for kept, value in ((self.cta, cta), (self.agent, agent), (self.clock, clock), (self.site, site), (self.generic, not proxy)):
            run.of(kept)[...] = value

    def note_write(self, g: Array, cta: Array, agent: Array, clock: Array, site: int, proxy: int) -> None:
        """Writes to granules `g`."""
        self.cta[g], self.agent[g], self.clock[g], self.site[g], self.generic[g] = cta, agent, clock, site, not proxy
