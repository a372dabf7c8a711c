"""Where the accesses of a team go: vectors, bank conflicts, sectors, what neighbors share, what the whole grid touches."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from kir.base.dataclass import dataclass
from kir.gate.counts.numbers import Integers, Value, Values, evaluate, held, number, offsets
from kir.gate.counts.trace import Access, Verb
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.types import I32
from kir.ir.visit import names_read, once, walk

LANES = 32
VECTOR = 16
"""Bytes that one lane moves at most with one instruction."""
SECTOR, LINE = 32, 128
MOST_THREADS, MOST_ROUNDS, MOST_CTAS = 256, 8, 4096
"""How many threads, rounds of the innermost loop (more of small elements), and CTAs are looked at."""


@dataclass
class Instances:
    """Who runs a statement: thread variables, outermost first, with how many values each takes. None: all threads of the team as one."""

    variables: tuple[tuple[str, int], ...] = ()

    @property
    def count(self) -> int:
        return math.prod(c for _, c in self.variables)

    def of(self, first: int, many: int) -> dict[str, Value]:
        """Values of the variables for instances `first` and the `many - 1` after it."""
        at = np.arange(first, first + many, dtype=np.int64)
        out: dict[str, Value] = {}
        for name, count in reversed(self.variables):
            out[name], at = at % count, at // count
        return out


@dataclass(frozen=True)
class Around:
    """A loop around an access: its variable, its first value, step and rounds, and its number in the trace."""

    var: str
    lo: int
    step: int
    trips: float
    number: int = 0


@dataclass(frozen=True)
class Shape:
    """What one execution of an access is for a warp: instructions (each of `bytes` a lane), and the cycles that one takes of shared memory's banks or
    the lines of L1."""

    instructions: float
    bytes: int
    cycles: float
    sectors: float = 0.0


@dataclass
class Places:
    """The places of accesses of one kernel at one CTA (`values`), of a grid whose `axes` have these extents."""

    values: dict[str, Value | n.Expr]
    axes: Sequence[tuple[str, int]] = ()
    together: int = 264
    """CTAs that run at the same time."""
    as_written: bool = True
    bounds: dict[str, tuple[n.Expr, n.Expr]] = field(default_factory=dict)
    """Where the loops around begin and end, by their variable: CTAs that take turns begin theirs at places of their own."""

    def names(self, r: n.Region) -> frozenset[str]:
        """Variables that a place depends on, through the names between."""
        return self.behind(*r.index)

    def behind(self, *of: n.Node) -> frozenset[str]:
        """Variables that values depend on, through the names between and through where loops begin."""
        found: set[str] = set()
        left = [x for e in of for x in leaves(e)]
        while left:
            name = left.pop()
            if name in found:
                continue
            found.add(name)
            value = self.values.get(name)
            if isinstance(value, n.Expr):
                left += leaves(value)
            if name in self.bounds:
                left += leaves(self.bounds[name][0])
        return frozenset(found)

    def turns(self, around: Sequence[Around]) -> list[Around]:
        """Those loops that CTAs begin at places of their own: one round of each is to a CTA what the whole kernel is to one that does it once."""
        axes = {name for name, _ in self.axes}
        return [a for a in around if a.var in self.bounds and not axes.isdisjoint(self.behind(self.bounds[a.var][0]))]

    def warp(self, r: n.Region, team: Instances) -> Integers | None:
        """Byte offsets [lanes, elements] of one warp (or of the team as one)."""
        lanes = min(LANES, team.count) if team.variables else 1
        at = offsets(r, {**self.values, **team.of(0, lanes)} if team.variables else self.values, lanes)
        return None if at is None else at.reshape(at.shape[0], -1) * r.buffer.dtype.bytes

    def shape(self, r: n.Region, at: Integers | None, elements: float, width: int = 0) -> Shape:
        """How a warp's instructions are cut: vectors of at most `width` bytes (0: what its places allow), and their cycles."""
        size = r.buffer.dtype.bytes
        if at is None:
            return Shape(elements, size, 4.0 if r.buffer.space == "global" else 1.0, LANES / 2 if r.buffer.space == "global" else 0.0)
        if r.buffer.space == "global" and self.as_written and not width:
            width = max(size, r.buffer.align)
        vector = _vector(at, size, width)
        first = at[:, ::vector // size] if at.shape[1] > 1 else at
        pick = first[:, 0] if first.shape[1] else at[:, 0]
        count = elements * size / vector
        if r.buffer.space == "global":
            lines = len(np.unique(pick // LINE)) * max(1, vector * LANES // (LINE * LANES) or 1)
            touched = len(np.unique((pick[:, None] + np.arange(0, vector, SECTOR)[None] if vector > SECTOR else pick[:, None]) // SECTOR))
            return Shape(count, vector, max(float(lines), touched / 4), float(touched))
        if not self.as_written:
            return Shape(count, vector, float(max(1, vector // 4)))
        return Shape(count, vector, banks(swizzled(r.buffer, pick), vector))

    def access(self, r: n.Region, verb: Verb, team: Instances, warps: float, at: Integers | None, shape: Shape, around: Sequence[Around],
               l1: float) -> Access:
        """What an access to global memory asks for, over the loops around it, innermost last. `l1`: bytes that L1 keeps for a CTA."""
        requests = shape.instructions * warps
        names = self.names(r)
        moving = [a for a in around if a.var in names and a.trips > 1]
        executions = math.prod(a.trips for a in around)
        if at is None:
            asked = requests * shape.sectors
            return Access(r.buffer.name, verb, requests, asked, asked, asked * SECTOR * executions, executions=executions,
                          unique=asked * SECTOR * executions, moved=asked * SECTOR * executions)
        asked, fresh, reach = self._fresh(r, team, moving, shape, warps, at)
        taken = self.turns(around)
        once = (fresh if verb == "read" else asked) * math.prod(a.trips for a in moving) * SECTOR
        rounds = self.rounds(r, fresh * SECTOR, around, names)
        touched = min(fresh * math.prod(a.trips for a in moving if a not in taken) * SECTOR, _held(r.buffer, self.values))
        resting = executions / math.prod(a.trips for a in moving) if moving else executions
        again = resting if touched > l1 or verb != "read" else 1.0
        moved = once * again if touched > l1 or verb != "read" else min(once, touched * math.prod(a.trips for a in moving if a in taken))
        distinct, unique = self.grid(r, names, touched, taken)
        contended = 1.0
        if verb == "update":
            contended = max(1.0, warps * LANES * shape.instructions / max(1, len(np.unique(at)) * (warps if names & {v for v, _ in team.variables} else 1)))
        return Access(r.buffer.name, verb, requests, asked, fresh, touched, again, executions, distinct, unique, contended, moved, self.first(r, team, around),
                      math.prod(a.trips for a in taken), rounds, reach)

    def first(self, r: n.Region, team: Instances, around: Sequence[Around]) -> int:
        """The place (bytes) of the first lane where the loops around begin; -1 where that is not known."""
        at = offsets(r, {**self.values, **{a.var: a.lo for a in around}, **(team.of(0, 1) if team.variables else {})}, 1)
        return -1 if at is None else int(at.reshape(-1)[0]) * r.buffer.dtype.bytes

    def rounds(self, r: n.Region, each: float, around: Sequence[Around], names: frozenset[str]) -> tuple[tuple[int, float], ...]:
        """Bytes that a CTA touches in one round of each of the loops around, by the loop's number."""
        whole, out = _held(r.buffer, self.values), []
        for a in reversed(around):
            out.append((a.number, min(each, whole)))
            each *= a.trips if a.var in names else 1.0
        return tuple(reversed(out))

    def _fresh(self, r: n.Region, team: Instances, moving: Sequence[Around], shape: Shape, warps: float,
               at: Integers) -> tuple[float, float, float]:
        """Sectors that the team's warps ask of L1 in one execution, those that are new to the CTA in it, and how far (bytes) the places lie side by side."""
        rounds, outer = moving[-1] if moving else None, moving[-2] if len(moving) > 1 else None
        size = r.buffer.dtype.bytes
        most = max(MOST_ROUNDS, SECTOR // size)  # as many as single elements of a sector
        inner = int(min(most, rounds.trips)) if rounds else 1
        again = int(min(outer.trips, 2 * most // inner)) if outer and rounds and rounds.trips < most else 1  # of few rounds, the next few as well
        looked = inner * again
        count = team.count if team.variables else 1
        threads = min(count, MOST_THREADS)
        here: dict[str, Value | n.Expr] = {**self.values}
        names = team.of(0, threads) if team.variables else {}
        if rounds is not None:
            for name, v in names.items():
                names[name] = np.tile(v, looked) if isinstance(v, np.ndarray) else v
            here[rounds.var] = np.tile(np.repeat(rounds.lo + rounds.step * np.arange(inner, dtype=np.int64), threads), again)
        if outer is not None and again > 1:
            here[outer.var] = np.repeat(outer.lo + outer.step * np.arange(again, dtype=np.int64), threads * inner)
        here.update(names)
        instances = threads * looked
        many = offsets(r, here, instances)
        if many is None:
            return shape.sectors * shape.instructions * warps, shape.sectors * shape.instructions * warps, 0.0
        reach = side_by_side(many[:threads] * size)
        if rounds is not None and inner > 1 and abs(int(many[threads].reshape(-1)[0] - many[0].reshape(-1)[0])) * size <= reach:
            reach *= rounds.trips
        if outer is not None and again > 1 and abs(int(many[threads * inner].reshape(-1)[0] - many[0].reshape(-1)[0])) * size <= reach:
            reach *= outer.trips
        seen = np.unique(many.reshape(-1) * size // SECTOR)
        share = max(1.0, count / threads) if len(np.unique(at[:, 0])) > 1 or at.shape[0] == 1 else 1.0
        if not team.variables:
            asked = float(len(np.unique(at // SECTOR)))
            return max(asked, 1.0), len(seen) / looked, reach
        asked = shape.sectors * shape.instructions * warps
        return asked, min(asked, len(seen) * share / looked), reach

    def grid(self, r: n.Region, names: frozenset[str], touched: float, turns: Sequence[Around]) -> tuple[float, float]:
        """How many of the CTAs that run together touch places of their own (a share), and bytes that the whole grid touches, `touched` of them a CTA in each of
        its `turns`."""
        mine = [(name, extent) for name, extent in self.axes if name in names]
        total = math.prod(extent for _, extent in self.axes) or 1
        whole = _held(r.buffer, self.values)
        by_ends = self.behind(*(self.bounds[name][1] for name in names if name in self.bounds)) - names
        most = touched * math.prod(extent for name, extent in self.axes if name in by_ends)
        running = min(total, self.together)
        if not mine:
            return (1.0 if most > touched else 1.0 / running), min(whole, most)
        taken = [a for a in turns if a.var in names]
        times = round(math.prod(a.trips for a in taken))
        first = n.Region(r.buffer, tuple(i.lo if isinstance(i, n.Span) else i for i in r.index))
        places = self._of_ctas(first, min(total * times, max(running, MOST_CTAS)), total, taken)
        if places is None:
            return 1.0, min(whole, most * times * math.prod(extent for _, extent in mine))
        own = len(np.unique(places[:running])) / min(running, len(places))
        found = len(np.unique(places))
        if total * times > len(places) and found > 1.5 * len(np.unique(places[:len(places) // 2])):
            return own, min(whole, most * found * total * times / len(places))
        return own, min(whole, most * found)

    def _of_ctas(self, r: n.Region, count: int, ctas: int, turns: Sequence[Around]) -> Integers | None:
        """Where the CTAs of the grid begin, one turn of all after the other."""
        at = np.arange(count, dtype=np.int64)
        turn, at = _digits(at, ctas)
        here: dict[str, Value | n.Expr] = {**self.values}
        for name, extent in self.axes:
            at, here[name] = _digits(at, extent)
        for a in reversed(turns):
            rounds = max(1, round(a.trips))
            here[f"turn of {a.var}"], turn = turn % rounds * a.step, turn // rounds
            first, end = self.bounds[a.var]
            here[a.var] = n.Binary("min", n.Binary("add", first, n.Var(f"turn of {a.var}", I32)), n.Binary("sub", end, const(1)))
        places = offsets(r, here, count)
        return None if places is None else places.reshape(count, -1)[:, 0]


def _digits(at: Integers, extent: int) -> tuple[Integers, Integers]:
    """Quotient and remainder of the first numbers by an extent, which may be beyond 64 bits: no number reaches it then."""
    return (at * 0, at) if extent >= len(at) else (at // extent, at % extent)


def side_by_side(at: Integers) -> float:
    """How many bytes places (bytes) take that lie side by side; where they do not, each lies in a sector of its own."""
    sectors = np.unique(at.reshape(-1) // SECTOR)
    return float(len(sectors) * SECTOR) if sectors[-1] - sectors[0] < 2 * len(sectors) else float(SECTOR)


def leaves(e: n.Node) -> tuple[str, ...]:
    """The names that a value depends on, those of registers among them."""
    return once(e, "_index_leaves", lambda: (*names_read(e), *(name for x in walk(e) if isinstance(x, n.Load) and (name := held(x)) is not None)))


def _held(b: n.Buffer, values: Values) -> float:
    """Bytes of a whole buffer."""
    extents = [number(d, values) for d in b.shape]
    return float(math.prod(x for x in extents if x is not None) * b.dtype.bytes) if None not in extents else math.inf


def _vector(at: Integers, size: int, width: int) -> int:
    """Bytes of the vectors that a lane's elements can be moved in: side by side, and aligned in every lane."""
    if at.shape[1] < 2:
        return size
    row = at[0]
    breaks = np.nonzero(np.diff(row) != size)[0]
    run = int(breaks[0]) + 1 if len(breaks) else len(row)
    vector = size
    while vector * 2 <= (width or VECTOR) and vector * 2 <= VECTOR and run * size % (vector * 2) == 0 and not np.any(at[:, 0] % (vector * 2)):
        vector *= 2
    return vector


def swizzled(b: n.Buffer, at: Integers) -> Integers:
    """Byte offsets as a swizzle lays them out."""
    if b.layout is None or b.layout.name != "swizzle":
        return at
    bits, base, shift = (int(x) for x in b.layout.args if isinstance(x, int))
    return at ^ ((at >> base + shift & (1 << bits) - 1) << base)


def banks(at: Integers, vector: int) -> float:
    """Cycles that the 32 banks of shared memory need for one warp's instruction of `vector` bytes a lane: groups of lanes that together take 128 bytes are
    served in turn, and places of one bank one after the other (words that are the same but once)."""
    groups = max(1, vector * len(at) // LINE)
    words = (at[:, None] + np.arange(0, max(4, vector), 4)[None]) // 4
    total = 0.0
    for part in np.array_split(words, min(groups, len(words))):
        distinct = np.unique(part)
        total += float(np.bincount(distinct % 32).max()) if len(distinct) else 0.0
    return max(1.0, total)


def known(values: Mapping[str, Value | n.Expr], e: n.Expr) -> Value | None:
    """An expression at these values."""
    return evaluate(e, values)
