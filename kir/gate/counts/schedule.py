"""A model of one SM on which a trace runs: how long a CTA takes alone (`Run.cycles`), and how much of each resource it takes (`Run.busy`).

Instructions of all warps of a team are begun in order, four a cycle and SM; one waits for its operands, and for its pipe. A round of a loop that
is not unrolled
ends when its last instruction has begun; later rounds repeat its length. What goes on apart (cp.async, TMA, wgmma) is waited for where the trace says,
or bounds the length of a round by its latency over the rounds that it is begun ahead.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.gate.counts.trace import Access, Barrier, Item, Key, Loop, Op, Team, Wait, operations
from kir.hardware.target import Pipes

WHOLE = frozenset({"shared", "memory"})
"""Pipes that an SM has once; of the others each partition has one."""
PARTITIONS = 4
LOADED, AHEAD_POWER = 3.0, 2.0
"""How many times the latency of an idle memory a copy that goes on apart takes while all SMs copy, whether it is waited for at once or rounds later; and the
power with which what is left of it a round adds to one that is about as long: neither hides the other wholly (fitted to pairs that differ in stages:
`python -m benchmarks.forecast.analytic_errors space/`)."""
SECTOR = 32


@dataclass
class Clock:
    """What instructions take: `pipes` of the architecture, floating-point operations an SM makes in a clock by dtype and way (`tensor`), cycles until an access
    to global memory has its data (`latency`)."""

    pipes: Pipes
    tensor: Callable[[str], float]
    latency: Callable[[Access], float]


@dataclass
class Run:
    """Cycles of a CTA alone on an SM, and cycles of each resource that it takes of the SM."""

    cycles: float
    busy: dict[str, float] = field(default_factory=dict)


@dataclass
class Span:
    """What went on from one cycle to another of a CTA that runs alone. `lane`: a pipe (`tensor`, `shared`, ..), `issue`, `wait`, `barrier`, `copy in flight`
    and its like or, for what later rounds of a loop add that are not run one by one, `rounds` (`unrolled`: those of one straight piece of code); `what`: a
    buffer, a value, or how many rounds; `team`: the number of the team of warps, in the order of the program (0: the whole CTA)."""

    lane: str
    what: str
    begin: float
    end: float
    team: int = 0


@dataclass
class _Open:
    """A loop that is being run through: what its body read before it wrote it, and when what it wrote is there."""

    first: dict[Key, float] = field(default_factory=dict)
    written: dict[Key, tuple[float, frozenset[str]]] = field(default_factory=dict)
    ahead: list[tuple[str, int]] = field(default_factory=list)
    in_turn: float = 0.0
    """Cycles that a round takes at least, because a thread has only so many loads under way."""


def run(items: Sequence[Item], warps: float, clock: Clock, log: list[Span] | None = None) -> Run:
    """A trace on one SM; to `log` is added what goes on when."""
    apart: dict[str, float] = {}
    for op, _, _ in operations(items, 1.0, warps):
        if op.apart == "copy":
            apart["copy"] = max(apart.get("copy", 0.0), LOADED * _latency(op, clock))
        elif op.apart:
            apart[op.apart] = clock.pipes.product if op.apart == "product" else clock.pipes.store
    sm = _Sm(clock, warps, apart, log)
    sm.items(items)
    busy: dict[str, float] = {}
    for op, times, of in operations(items, 1.0, warps):
        for name, cycles in _busy(op, clock).items():
            busy[name] = busy.get(name, 0.0) + cycles * times * (1.0 if name == "fill" else of)
    return Run(max(sm.now, sm.last), busy)


def _busy(op: Op, clock: Clock) -> dict[str, float]:
    """Cycles of an SM's resources that one warp's share of an operation takes; of `fill`, what the whole team's takes."""
    out: dict[str, float] = {}
    if op.count:
        out["issue"] = op.count / PARTITIONS
    if op.pipe in WHOLE:
        out[op.pipe] = op.count * op.units
    elif op.pipe == "tensor":
        out["tensor"] = op.count * op.units / clock.tensor(op.dtype)
    elif op.pipe != "none" and op.count:
        out[op.pipe] = op.count * 32.0 / clock.pipes.rate(op.pipe)
    if op.access is not None:
        out["fill"] = op.access.fresh * SECTOR / clock.pipes.fill
    return out


def _what(op: Op) -> str:
    """What an operation is called where it is shown: the buffer that it accesses, else the value that it gives."""
    return op.access.buffer if op.access is not None else op.writes if isinstance(op.writes, str) else op.dtype or op.pipe


def _latency(op: Op, clock: Clock) -> float:
    if op.access is not None:
        return clock.latency(op.access) + (clock.pipes.bulk if op.dtype == "tma" else 0.0)
    if op.pipe == "shared" and op.latency == 1.0:
        return clock.pipes.shared_latency
    if op.pipe == "tensor":
        return op.latency + clock.pipes.tensor_latency
    return op.latency


class _Sm:
    def __init__(self, clock: Clock, warps: float, apart: Mapping[str, float], log: list[Span] | None = None, begun: float = 0.0, team: int = 0) -> None:
        self.clock, self.warps, self.apart = clock, warps, dict(apart)
        self.log, self.begun, self.number = log, begun, team
        self.now = self.last = 0.0
        self.free: dict[str, float] = {}
        self.used: dict[str, float] = {}
        self.ready: dict[Key, float] = {}
        self.under_way: dict[str, float] = {}
        self.open: list[_Open] = []

    def items(self, items: Sequence[Item]) -> None:
        for item in items:
            match item:
                case Op():
                    self.op(item)
                case Loop():
                    self.loop(item)
                case Barrier():
                    self.barrier(item)
                case Wait():
                    self.wait(item)
                case Team():
                    self.team(item)

    def tell(self, lane: str, what: str, begin: float, end: float) -> None:
        if self.log is not None and end > begin:
            self.log.append(Span(lane, what, self.begun + begin, self.begun + end, self.number))

    def op(self, op: Op) -> None:
        start = max((self.ready.get(k, 0.0) for k in op.reads), default=0.0)
        start = max(start, self.now)
        for k in op.reads:
            for each in self.open:
                if k not in each.first and k not in each.written:
                    each.first[k] = start
        if op.pipe == "none":
            self._wrote(op, start)
            return
        warps = max(1.0, self.warps * op.share)
        deep = -(-warps // PARTITIONS)
        begun, done = start, start
        for name, cycles in _busy(op, self.clock).items():
            if name == "issue":
                continue
            alone = cycles if name == "fill" else cycles * (warps if name in WHOLE or op.apart == "product" else PARTITIONS * deep)
            at = max(start, self.free.get(name, 0.0))
            self.free[name] = at + alone
            self.used[name] = self.used.get(name, 0.0) + alone
            begun, done = max(begun, at), max(done, at + alone)
            self.tell(name, _what(op), at, at + alone)
        self.tell("issue", _what(op), self.now, self.now + op.count * deep)
        self.now += op.count * deep
        self.last = max(self.last, begun)
        if op.apart:
            groups = max(1.0, self.warps // PARTITIONS) if op.apart == "product" else 1.0  # other warpgroups' products come between
            there = done + self.apart.get(op.apart, 0.0) / groups
            self.tell(f"{op.apart} in flight", _what(op), begun, there)
            self.under_way[op.apart] = max(self.under_way.get(op.apart, 0.0), there)
            return
        if op.most and self.open:
            self.open[-1].in_turn = max(self.open[-1].in_turn, _latency(op, self.clock) * op.count / op.most)
        self._wrote(op, done + _latency(op, self.clock))

    def _wrote(self, op: Op, done: float) -> None:
        if op.writes is None:
            return
        self.ready[op.writes] = done
        for each in self.open:
            each.written[op.writes] = (done, op.varies)

    def barrier(self, b: Barrier) -> None:
        warps, before = b.warps or self.warps, self.now
        self.now = max(self.now, self.last, self.free.get("shared", 0.0), self.free.get("memory", 0.0))
        self.now += self.clock.pipes.barrier + warps * self.clock.pipes.barrier_warp + (self.clock.pipes.cluster if b.cluster else 0.0)
        self.last = max(self.last, self.now)
        self.tell("barrier", "all threads" if not b.warps else f"{b.warps:g} warps", before, self.now)

    def wait(self, w: Wait) -> None:
        before = self.now
        self._wait(w)
        self.tell("wait", w.kind, before, self.now)

    def _wait(self, w: Wait) -> None:
        if w.depth and self.open:
            self.open[-1].ahead.append((w.kind, w.depth))
            return
        if w.kind in self.under_way:
            self.now = max(self.now, self.under_way[w.kind])
        elif w.kind == "product":
            self.now = max(self.now, self.free.get("tensor", 0.0))
        elif w.kind == "copy":
            self.now += self.apart.get("copy", 0.0)
        self.last = max(self.last, self.now)

    def team(self, t: Team) -> None:
        ends = [self.now]
        teams = [each for each in (t, *t.beside) if each.body or each is not t]
        for number, each in enumerate(teams, 1):
            sm = _Sm(self.clock, each.warps, self.apart, self.log, self.begun + self.now, number if t.beside else self.number)
            sm.items(each.body)
            ends.append(self.now + max(sm.now, sm.last))
        self.now = self.last = max(ends)

    def loop(self, loop: Loop) -> None:
        """A round; a second one after it, whose length all later ones have, where nothing loops inside; else theirs is the first's."""
        rounds = loop.trips / max(1.0, loop.together)
        mark, before, used = _Open(), dict(self.free), dict(self.used)
        begun = max(self.now, max(self.free.values(), default=0.0)) if rounds > 1.0 else self.now
        least, carried = self._round(loop, mark)
        if rounds > 1.0:
            self.now = max(self.now, self.last)
            left, length = rounds - 1.0, self.now - begun
            if rounds > 2.0 and not any(isinstance(x, Loop | Team) for x in loop.body):
                begun, used = self.now, dict(self.used)
                least, carried = self._round(loop, mark)
                self.now = max(self.now, self.last)
                left, length = rounds - 2.0, self.now - begun
                carried = 0.0
            period = max(least, length, carried)
            if flying := max((self.apart.get(kind, 0.0) / depth for kind, depth in mark.ahead), default=0.0):
                period = (period ** AHEAD_POWER + flying ** AHEAD_POWER) ** (1.0 / AHEAD_POWER)
            self.tell("rounds", f"{left:.0f} more of {loop.var}", max((self.now, *self.free.values())), self.now + left * period)
            self._shift(left * period, mark, before)
            for k in self.used:
                self.used[k] += left * (self.used[k] - used.get(k, 0.0))
        for each in self.open:
            for key, at in mark.first.items():
                if key not in each.first and key not in each.written:
                    each.first[key] = at
            for key, (_, varies) in mark.written.items():
                each.written[key] = (self.ready.get(key, 0.0), varies)

    def _round(self, loop: Loop, mark: _Open) -> tuple[float, float]:
        """One round, of `together` rounds in one straight piece: cycles that it takes at least, by its pipes and by what it hands on."""
        begun, before, used, own = self.now, dict(self.free), dict(self.used), _Open()
        self.open.append(own)
        self.items(loop.body)
        self.open.pop()
        steady = max(self.now - begun, *(v - used.get(k, 0.0) for k, v in self.used.items()), 0.0)
        carried = max((done - own.first[k] for k, (done, varies) in own.written.items() if k in own.first and loop.var not in varies), default=0.0)
        mark.first, mark.ahead, mark.in_turn = {**own.first, **mark.first}, [*mark.ahead, *own.ahead], max(mark.in_turn, own.in_turn)
        mark.written.update(own.written)
        if loop.together > 1.0:
            by = (loop.together - 1.0) * max(steady, carried, mark.in_turn)
            self.tell("unrolled", f"{loop.together - 1:.0f} more of {loop.var}", self.now, self.now + by)
            self._shift(by, mark, before)
            for k in self.used:
                self.used[k] += (loop.together - 1.0) * (self.used[k] - used.get(k, 0.0))
        return steady * loop.together, carried * loop.together

    def _shift(self, by: float, mark: _Open, before: Mapping[str, float]) -> None:
        """What further rounds add."""
        if by <= 0.0:
            return
        self.now += by
        self.last += by
        for k, v in self.free.items():
            if v != before.get(k):
                self.free[k] = v + by
        for key in mark.written:
            if key in self.ready:
                self.ready[key] += by
        for kind in self.under_way:
            self.under_way[kind] += by
