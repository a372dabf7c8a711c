"""What a test of a program must reach, and at which sizes it does: worked out from the program's own control flow, without running it.

A goal is one bit of a place (`kir.interp.state.coverage`): a loop runs not at all, once, twice, three times or more, or often enough to use each stage of
a ring again; a branch goes either way; a mask is full, partial, empty; a grid has one CTA or several along an axis. `predicted` walks through the
program once for many sizes together: its sizes, the first and the last CTA of each axis and thread of each team, and the first and the last
iteration of each loop are the lanes of one frame of the interpreter. What depends on data in memory is not known in advance; runs tell.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.interp.evaluation.interpreter import Interpreter
from kir.interp.launch import largest_value, may_block
from kir.interp.native import signature
from kir.interp.numerics.values import Val
from kir.interp.state.coverage import EMPTY, FULL, MORE, ONE, PARTIAL, SEVERAL, SINGLE, SKIPPED, TAKEN, TWO, ZERO, Kind
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.build import int_value
from kir.ir.types import DType, TileType, dtype_of
from kir.ir.visit import children, names_read, once, walk, with_own_statements

Array = NDArray[Any]
WRAP = 16
"""Of a loop, beside the bits of `kir.interp.state.coverage`: it ran often enough that a ring of stages that it fills is used again twice."""
ROUNDS = 2
"""How often a ring is gone through before it counts as used again: each phase of its barriers comes twice."""
LATER = (4, 8)
"""Ways of every serial loop, by these numbers below zero: more trips than so many, since what the first three have right a later one may not."""
EDGE, EDGES = 1 << 40, (-1, 0, 1)
"""Ways of every comparison of whole numbers: its sides are so far apart, as next to where it turns; by numbers from `EDGE` on."""
TEAMS = ("warpgroup", "warp", "thread")
UNKNOWN_TRIPS = 8
"""Trips counted for a loop whose bounds are not known from the sizes: of all CTAs together where each begins at its own number."""
FIRST_SECONDS, STATEMENT_SECONDS, NODE_SECONDS, ELEMENT_SECONDS = 2e-3, 1e-5, 4e-6, 1e-9
"""What the interpreter takes to begin, for a statement, for an expression in it, and for an element of its value."""
FAR_ELEMENT_SECONDS = 8e-9
"""What it takes for an element of values that no cache holds."""
COMPILED, FASTER = 0.05, 20
"""Seconds that a loop takes to be compiled (`kir.interp.native`), where it can be, and how much faster it runs then."""
MOST_HELD = 1 << 16
"""Elements of the largest value of a CTA that are counted: extents that are not known are a guess."""
MOST_LANES = 1 << 14
MOST_ELEMENTS = 1 << 22
"""Elements of a value, over all lanes, beyond which it is not worked out."""
FEW_ELEMENTS = 1 << 18
"""The same, of a value that only decides between two operands."""
MOST_STAGES = 16
NOT_EVALUATED = (KirError, ValueError, TypeError, IndexError, KeyError, ZeroDivisionError, MemoryError)
"""What evaluating an expression may raise that needs memory, or a name that is not known in advance."""


@dataclass(frozen=True)
class Goal:
    """One thing to reach."""

    kind: Kind
    anchor: str
    bit: int


@dataclass
class Prediction:
    """For some sizes: which of them reach a goal, and about how many seconds an interpreted run takes. `unsure` are goals below a branch or a loop that
    depends on data: they may be reached. `unknown` are loops whose trips depend on data; `rings` the stages of loops that fill a ring. `ways` are what
    sizes decide besides, which no record counts: by a node's identity and a number, where they are gone."""

    reached: dict[Goal, Array] = field(default_factory=dict)
    seconds: Array = field(default_factory=lambda: np.zeros(0))
    unsure: set[Goal] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    rings: dict[str, int] = field(default_factory=dict)
    ways: dict[tuple[int, int], Array] = field(default_factory=dict)
    stepped: Array = field(default_factory=lambda: np.zeros(0))
    """Seconds with one CTA after the other, as the checking mode runs them."""
    most: Array = field(default_factory=lambda: np.zeros(0))
    """No fewer seconds where there are many CTAs: each thread is an element, and no cache holds them."""


def rings(program: n.Program) -> dict[str, int]:
    """The stages of the ring that a loop fills, by the loop's anchor: as its attribute says, or the extent of the first axis of memory of more axes
    that its body indexes by what changes, or the divisor of a remainder of its variable."""
    return once(program, "_rings", lambda: _rings(program))


def _rings(program: n.Program) -> dict[str, int]:
    out = {}
    for text, _, s in anchors(program):
        if isinstance(s, n.For) and s.kind not in TEAMS:
            stages = [int(v) for k, v in s.attrs if k == "stages" and isinstance(v, int)]
            stages += [c for b in s.body for x in walk(b) for c in _stages(x, s.var.name)]
            if most := max((c for c in stages if 1 < c <= MOST_STAGES), default=0):
                out[text] = most
    return out


def _stages(x: n.Node, var: str) -> Iterator[int]:
    match x:
        case n.Region(buffer=b, index=(n.Expr() as at, _, *_)) if b.space in ("shared", "cluster") and not isinstance(at, n.Const) and len(b.shape) > 1:
            yield int_value(b.shape[0]) or 0
        case n.Binary(op="mod" | "trem", a=a, b=n.Const(value=int() as c)) if any(isinstance(v, n.Var) and v.name == var for v in walk(a)):
            yield c


def predicted(program: n.Program, shapes: Sequence[Mapping[str, int]]) -> Prediction:
    """What a run at each of these sizes (of the program's, by name) reaches. Sizes that are not given are not known."""
    program = with_own_statements(program)
    out = Prediction(seconds=np.full(len(shapes), FIRST_SECONDS), rings=rings(program), stepped=np.full(len(shapes), FIRST_SECONDS),
                     most=np.full(len(shapes), FIRST_SECONDS))
    names = {id(s): text for text, _, s in anchors(program)}
    host = _Lanes(np.arange(len(shapes)), np.arange(len(shapes)), np.ones(len(shapes)), {})
    m = Interpreter(program)
    walker = _Walker(m, names, out)
    with np.errstate(all="ignore"):
        for p in program.params:
            if isinstance(p.of, DType):
                if all(p.name in s for s in shapes):
                    host.env[p.name] = Val(np.array([s[p.name] for s in shapes], np.int64))
                elif p.value is not None and (value := walker.value(p.value, host)) is not None:
                    host.env[p.name] = value
        everywhere = np.ones(len(shapes), np.bool_)
        plan = program.plan or tuple(n.Launch(k.name) for k in program.kernels)
        launched: dict[str, Array] = {}
        for name, where in _launched(walker, plan, host, everywhere):
            launched[name] = launched.get(name, ~everywhere) | where
        for k in program.kernels:
            where = np.flatnonzero(launched.get(k.name, ~everywhere))
            if where.size:
                walker.kernel(k, host.at(where))
    return out


def _launched(walker: _Walker, plan: Iterable[n.Launch | n.Dispatch], host: _Lanes, where: Array) -> Iterator[tuple[str, Array]]:
    for step in plan:
        if isinstance(step, n.Launch):
            yield step.kernel, where
            continue
        rest = where
        for guard, arm in step.arms:
            value = walker.value(guard, host)
            holds = where if value is None else np.broadcast_to(value.data.astype(np.bool_), where.shape)
            yield from _launched(walker, arm, host, rest & holds)
            rest = rest if value is None else rest & ~holds
        yield from _launched(walker, step.orelse, host, rest)


@dataclass
class _Lanes:
    """Instances that are looked at side by side: the number of each one's sizes, the CTA that stands for others (`owner`), how often it runs
    (`weight`), and the values of names."""

    shape: Array
    owner: Array
    weight: Array
    env: dict[str, Any]

    def at(self, index: Array) -> _Lanes:
        """Some lanes, or lanes several times."""
        count = len(self.shape)
        env = {k: Val(v.data[index]) if v.data.shape[0] == count and count > 1 else v for k, v in self.env.items()}
        return _Lanes(self.shape[index], self.owner[index], self.weight[index], env)

    def over(self, x: Array) -> Array:
        """An array over the lanes."""
        return np.broadcast_to(x.reshape(x.shape[0], -1)[:, 0], (len(self.shape),))


@lru_cache(maxsize=4096)
def limits(body: n.Block, of: str = "") -> frozenset[int]:
    """Numbers with which a block compares, by which it cuts whole numbers, and that their types cannot hold, and extents of memory other than global that
    it has; with `of`, a loop's variable, only where what is compared, cut or an index comes from the variable, or from private whole numbers that the loop
    changes."""
    out: set[int] = set()
    names = _from(body, of) if of else None
    for x in (x for s in body for x in walk(s)):
        match x:
            case n.Binary(op="shr", a=a, b=n.Const(value=int() as c)) if 0 <= c < 32 and _about(a, names):
                out.add(1 << c)
            case n.Binary(op="lt" | "le" | "gt" | "ge" | "eq" | "ne" | "min" | "max" | "mod" | "trem" | "floordiv" | "tdiv" | "and", a=a, b=b):
                out |= {abs(c.value) for e, other in ((a, b), (b, a)) for c in _addend(e, x.op) if isinstance(c.value, int) and not isinstance(c.value, bool)
                        and _about(other, names)}
            case n.Cast(x=a, dtype=to) if to.is_integer and not to.is_bool and to.bits < 32 and _about(a, names):
                out.add(_exact(to) + 1)
            case n.Buffer(space="shared" | "fragment" | "register" | "cluster") if names is None:
                out |= {v for d in x.shape if (v := int_value(d))}
            case n.Region(buffer=buffer) if names is not None and buffer.space not in ("global", "constant"):
                out |= {v for i, d in zip(x.index, buffer.shape, strict=False) if (v := int_value(d)) and _about(i, names)}
            case _:
                pass
    return frozenset(c for c in out if 1 < c < MOST_ELEMENTS)


def _addend(e: n.Expr, op: str) -> tuple[n.Const, ...]:
    """The number that an operand is, or that is added to it where the lesser or greater of two is taken: how far they may be apart."""
    match e:
        case n.Const():
            return (e,)
        case n.Binary(op="add" | "sub", a=a, b=b) if op in ("min", "max"):
            return tuple(x for x in (a, b) if isinstance(x, n.Const))
        case _:
            return ()


def _about(e: n.Node, names: set[str] | None) -> bool:
    return names is None or any((isinstance(x, n.Var) and x.name in names) or (isinstance(x, n.Region) and x.buffer.name in names) for x in walk(e))


def _from(body: n.Block, var: str) -> set[str]:
    """The variable of a loop, private whole numbers that its body sets, and the names that either goes into."""
    inside = [x for s in body for x in walk(s)]
    own = [x.at.buffer for x in inside if isinstance(x, n.Store) and x.at.buffer.space in ("register", "fragment")]
    names = {var} | {buffer.name for buffer in own if buffer.dtype.is_integer}
    while True:
        more = {name for x in inside if isinstance(x, n.Let) and not names.issuperset(x.names) and _about(x.value, names) for name in x.names}
        more |= {x.var.name for x in inside if isinstance(x, n.For) and x.var.name not in names and any(_about(e, names) for e in (x.lo, x.hi, x.step))}
        if not more:
            return names
        names |= more


def _leaves(body: n.Block) -> bool:
    """Whether a block may be left before its end."""
    return any(isinstance(x, n.Jump) and x.kind != "continue" for s in body for x in walk(s))


def _held(k: n.Kernel) -> tuple[int, int, bool]:
    """Elements of the largest value of a CTA, and with its threads, which are run side by side; and whether it may wait."""
    inside, most = list(walk(k)), min(MOST_HELD, largest_value(k))
    threads = int_value(k.threads) or 1 if any(isinstance(x, n.For) and x.kind in TEAMS for x in inside) else 1
    return most, max(threads, most), any(map(may_block, inside))


class _Walker:
    def __init__(self, m: Machine, names: Mapping[int, str], out: Prediction) -> None:
        self.m, self.names, self.out, self.count = m, names, out, len(out.seconds)
        self.owners, self.saved = np.zeros(0), np.zeros(0)
        self.inside, self.axes = False, frozenset[str]()
        self.guesses = 0
        self.known: dict[int, float] = {}

    def value(self, e: n.Expr, lanes: _Lanes) -> Val | None:
        """The value of an expression in each lane, or None where it is not known or too large."""
        kind = e.type
        elements = 1
        if isinstance(kind, TileType):
            for d in kind.shape:
                if not isinstance(d, int):
                    return None
                elements *= d
        if elements * len(lanes.shape) > MOST_ELEMENTS:
            return None
        try:
            return self.m.evaluate(e, Frame(len(lanes.shape), "cta", env=lanes.env))
        except NOT_EVALUATED:
            return None

    def kernel(self, k: n.Kernel, host: _Lanes) -> None:
        """A kernel at the corners of its grid."""
        self.axes = frozenset(axis.name for axis in k.grid)
        extents: list[Array | None] = []
        for axis in k.grid:
            self.decisions(axis.extent, f"{k.name}/{axis.name}", host, None)
            value = self.value(axis.extent, host)
            if value is None:
                extents.append(None)
                continue
            extent = host.over(value.data.astype(np.int64))
            self.note("grid", f"{k.name}/{axis.name}", SEVERAL, host.shape[extent > 1])
            self.note("grid", f"{k.name}/{axis.name}", SINGLE, host.shape[extent == 1])
            extents.append(extent)
        corners = list(product(*((False, True) for _ in k.grid)))[: 16]
        index = np.tile(np.arange(len(host.shape)), len(corners))
        lanes = host.at(index)
        lanes.owner = np.arange(len(index))
        last = np.repeat(np.array(corners, np.bool_).reshape(len(corners), len(k.grid)), len(host.shape), axis=0)
        total = np.ones(len(host.shape))
        for i, (axis, count) in enumerate(zip(k.grid, extents, strict=True)):
            if count is not None:
                lanes.env[axis.name] = Val(np.where(last[:, i], count[index] - 1, 0).astype(np.int32))
                total = total * count
        self.owners, self.saved = np.zeros(len(index)), np.zeros(len(index))
        self.block(k.body, lanes)
        alone, (most, wide, waits) = self.owners.reshape(len(corners), -1).max(0), once(k, "_held", lambda: _held(k))
        quick = (self.owners - self.saved).reshape(len(corners), -1).max(0)
        turns = total if waits else np.ones(len(total))  # CTAs that may wait take turns
        np.add.at(self.out.stepped, host.shape, alone * total)
        np.add.at(self.out.seconds, host.shape, quick * turns + alone / STATEMENT_SECONDS * total * most * ELEMENT_SECONDS)
        np.add.at(self.out.most, host.shape, quick * turns + alone / STATEMENT_SECONDS * total * wide * FAR_ELEMENT_SECONDS)

    def note(self, kind: Kind, anchor: str, bit: int, shapes: Array) -> None:
        """Sizes at which a goal is reached."""
        goal = Goal(kind, anchor, bit)
        if self.guesses:
            self.out.unsure.add(goal)
        elif shapes.size:
            if goal not in self.out.reached:
                self.out.reached[goal] = np.zeros(self.count, np.bool_)
            self.out.reached[goal][shapes] = True

    def block(self, body: n.Block, lanes: _Lanes) -> None:
        """The statements of a block; lanes that leave it are not looked at in its rest."""
        guesses = self.guesses
        self._block(body, lanes)
        self.guesses = guesses

    def _block(self, body: n.Block, lanes: _Lanes) -> None:
        for s in body:
            if not len(lanes.shape):
                return
            self.owners += np.bincount(lanes.owner, lanes.weight * self.seconds(s), len(self.owners))
            self.accesses(s, lanes)
            self.choices(s, lanes)
            match s:
                case n.Let(names=(name,)):
                    value = self.value(s.value, lanes) if dtype_of(s.value.type).is_integer or dtype_of(s.value.type).is_bool else None
                    if value is None:
                        lanes.env.pop(name, None)
                    else:
                        lanes.env[name] = value
                case n.For():
                    self.loop(s, lanes)
                case n.If():
                    lanes = self.branch(s, lanes)
                case n.While():
                    self.out.unknown.add(self.names.get(id(s), ""))
                    self.guessed(s.body, self.again(lanes, UNKNOWN_TRIPS))
                case n.Roles():
                    for role in s.roles:
                        self.block(role.body, self.again(lanes, 1))
                case n.Jump():
                    return
                case _:
                    pass

    def choices(self, s: n.Stmt, lanes: _Lanes) -> None:
        """What the expressions of a statement decide by sizes alone: foreseen, and not watched in runs."""
        for e in children(s):
            if isinstance(e, (n.Expr, n.Region)):
                self.decisions(e, self.names.get(id(s), ""), lanes)

    def decisions(self, e: n.Node, anchor: str, lanes: _Lanes, extremes: Kind | None = "choice") -> None:
        """Which operand a minimum or maximum of whole numbers takes, and beside that the ways of an expression: which operand a selection takes, whether
        a remainder or a bitwise `and` changes a whole number, a cast to fewer bits or to a float loses some of it, and whether an index leaves an axis
        of shared or private memory."""
        for x in walk(e):
            match x:
                case n.Binary(op="min" | "max", type=DType(is_integer=True)):
                    a, b = self.value(x.a, lanes), self.value(x.b, lanes)
                    if a is not None and b is not None:
                        first, second = lanes.over(a.data), lanes.over(b.data)
                        self.way(extremes, anchor, x, first < second, first > second, lanes)
                case n.Binary(op="mod" | "trem" | "and", a=given, b=n.Const(value=int())) if dtype_of(x.type).is_integer:
                    a, b = self.few(given, lanes), self.few(x, lanes)
                    if a is not None and b is not None:
                        self.way(None, anchor, x, a.data != b.data, None, lanes)
                case n.Binary(op="lt" | "le" | "gt" | "ge" | "eq" | "ne") if dtype_of(x.a.type).is_integer and not isinstance(x.type, TileType):
                    a, b = self.few(x.a, lanes), self.few(x.b, lanes)
                    if a is not None and b is not None:
                        apart = a.data.astype(np.int64) - b.data.astype(np.int64)
                        for by in EDGES:
                            self.way(None, anchor, x, apart == by, None, lanes, by)
                case n.Select():
                    if (cond := self.few(x.cond, lanes)) is not None:
                        holds = cond.data.astype(np.bool_)
                        self.way(None, anchor, x, holds, ~holds, lanes)
                case n.Cast(x=given, dtype=to) if dtype_of(given.type).is_integer and 0 < _exact(to) < _exact(dtype_of(given.type)):
                    if (a := self.few(given, lanes)) is not None:
                        self.way(None, anchor, x, np.abs(a.data.astype(np.int64)) > _exact(to), None, lanes)
                case n.Region(buffer=buffer) if buffer.space not in ("global", "constant"):
                    for i, d in zip(x.index, buffer.shape, strict=False):
                        at, extent = self.few(i.lo if isinstance(i, n.Span) else i, lanes), int_value(d)
                        if at is not None and extent is not None:
                            self.way(None, anchor, i, at.data.astype(np.int64) >= extent, None, lanes)
                case _:
                    pass

    def few(self, e: n.Expr, lanes: _Lanes) -> Val | None:
        """The value of an expression that has few elements in all lanes together."""
        kind = e.type
        if isinstance(kind, TileType):
            known = [d for d in kind.shape if isinstance(d, int)]
            if len(known) < len(kind.shape) or np.prod(known, dtype=float) * len(lanes.shape) > FEW_ELEMENTS:
                return None
        return self.value(e, lanes)

    def way(self, kind: Kind | None, anchor: str, x: n.Node, taken: Array, skipped: Array | None, lanes: _Lanes, edge: int | None = None) -> None:
        """Note a choice, or a way, where some element of a lane makes it; with `edge`, how far two sides of a comparison are apart there."""
        for bit, where in ((TAKEN if edge is None else EDGE + edge, taken), (SKIPPED, skipped)):
            if where is not None:
                rows = np.broadcast_to(where.reshape(where.shape[0], -1).any(1), (len(lanes.shape),))
                if kind is not None:
                    self.note(kind, f"{anchor}:{id(x)}", bit, lanes.shape[rows])
                else:
                    self.beyond((id(x), bit), lanes.shape[rows])

    def beyond(self, what: tuple[int, int], shapes: Array) -> None:
        """Sizes at which a way is gone."""
        self.out.ways.setdefault(what, np.zeros(self.count, np.bool_))[shapes] = True

    def guessed(self, body: n.Block, lanes: _Lanes) -> None:
        """Statements that run or not, or how often, as data in memory say."""
        self.guesses += 1
        self.block(body, lanes)
        self.guesses -= 1

    def seconds(self, s: n.Stmt) -> float:
        """What a statement takes by itself, without the statements in it."""
        found = self.known.get(id(s))
        if found is None:
            nodes = sum(1 for x in children(s) if isinstance(x, (n.Expr, n.Region)) for _ in walk(x))
            found = self.known[id(s)] = STATEMENT_SECONDS + nodes * NODE_SECONDS
        return found

    def again(self, lanes: _Lanes, times: float) -> _Lanes:
        return _Lanes(lanes.shape, lanes.owner, lanes.weight * times, dict(lanes.env))

    def loop(self, s: n.For, lanes: _Lanes) -> None:
        """The first and the last iteration of a loop, or instance of a team."""
        bounds = [self.value(x, lanes) for x in (s.lo, s.hi, s.step)]
        anchor = self.names.get(id(s), "")
        if any(v is None for v in bounds):
            self.out.unknown.add(anchor)
            shared_out = 1 if self.axes.isdisjoint(names_read(s.lo)) else abs(int_value(s.step) or 1)  # CTAs that stay share the trips out
            self.guessed(s.body, self.again(lanes, 1 if s.kind in TEAMS else UNKNOWN_TRIPS / shared_out))
            return
        lo, hi, step = (lanes.over(v.data.astype(np.int64)) for v in bounds if v is not None)
        trips = np.where(step > 0, np.maximum(0, -((lo - hi) // np.where(step == 0, 1, step))), np.maximum(0, -((hi - lo) // np.where(step == 0, 1, -step))))
        serial = s.kind not in TEAMS
        if serial:
            self.guesses += (early := _leaves(s.body))
            for bit, reached in ((ZERO, trips == 0), (ONE, trips == 1), (TWO, trips == 2), (MORE, trips > 2)):
                self.note("loop", anchor, bit, lanes.shape[reached])
            if anchor in self.out.rings:
                self.note("loop", anchor, WRAP, lanes.shape[trips > ROUNDS * self.out.rings[anchor]])
            self.guesses -= early
            for most in LATER:
                self.beyond((id(s), -most), lanes.shape[trips > most])
            for c in limits(s.body, s.var.name):
                self.beyond((id(s), c), lanes.shape[(trips > 1) & (lo <= c) & (lo + (trips - 1) * step > c)])
        first, last = np.flatnonzero(trips > 0), np.flatnonzero(trips > 1)
        if len(first) + len(last) > MOST_LANES:
            last = last[:0]
        index = np.concatenate([first, last])
        if not index.size:
            return
        inner = lanes.at(index)
        ahead = np.concatenate([np.zeros(len(first), np.int64), trips[last] - 1])
        inner.env[s.var.name] = Val((lo[index] + ahead * step[index]).astype(np.int64))
        if serial:
            inner.weight = inner.weight * np.maximum(ahead, 1) if len(last) else inner.weight * trips[index]
        else:
            inner.weight = inner.weight * (ahead == 0)
        if self.inside or not serial or not signature.taken(s):
            self.block(s.body, inner)
            return
        before, self.inside = self.owners.copy(), True
        self.block(s.body, inner)
        self.inside = False
        spent = self.owners - before
        self.saved += np.maximum(0.0, spent - COMPILED - spent / FASTER)

    def branch(self, s: n.If, lanes: _Lanes) -> _Lanes:
        """Both branches; gives the lanes that go on."""
        value, anchor = self.value(s.cond, lanes), self.names.get(id(s), "")
        if value is None:
            self.guessed(s.then, self.again(lanes, 1))
            self.guessed(s.orelse, self.again(lanes, 1))
            self.guesses += _leaves(s.then) or _leaves(s.orelse)  # until the end of the block
            return lanes
        cond = lanes.over(value.data.astype(np.bool_))
        stays = np.ones(len(cond), np.bool_)
        for bit, taken, body in ((TAKEN, cond, s.then), (SKIPPED, ~cond, s.orelse)):
            self.note("branch", anchor, bit, lanes.shape[taken])
            if body and taken.any():
                self.block(body, lanes.at(np.flatnonzero(taken)))
                if isinstance(body[-1], n.Jump):
                    stays &= ~taken
        return lanes if stays.all() else lanes.at(np.flatnonzero(stays))

    # ------------------------------------------------------------------------------------------------------------------ masks
    def accesses(self, s: n.Stmt, lanes: _Lanes) -> None:
        """How full the masks of a statement's own accesses are."""
        anchor = self.names.get(id(s), "")
        match s:
            case n.Store():
                self.mask("write", anchor, s.at, s.mask, s.clip, lanes)
                self.reads(s.value, anchor, lanes)
            case n.Copy():
                self.mask("read", anchor, s.src.at, s.src.mask or s.mask, s.src.clip, lanes)
                self.mask("write", anchor, s.dst, s.mask, s.clip, lanes)
            case n.Let():
                self.reads(s.value, anchor, lanes)
            case n.Eval():
                self.reads(s.call, anchor, lanes)
            case n.Mma():
                self.reads(s.a, anchor, lanes)
                self.reads(s.b, anchor, lanes)
            case _:
                pass

    def reads(self, e: n.Expr, anchor: str, lanes: _Lanes) -> None:
        for x in walk(e):
            if isinstance(x, n.Load) and (x.mask is not None or x.clip):
                self.mask("read", anchor, x.at, x.mask, x.clip, lanes)

    def mask(self, kind: Kind, anchor: str, at: n.Region, mask: n.Expr | None, clip: bool, lanes: _Lanes) -> None:
        every, none = np.ones(len(lanes.shape), np.bool_), np.zeros(len(lanes.shape), np.bool_)
        if mask is not None:
            value = self.value(mask, lanes)
            if value is None:
                return
            rows = value.data.astype(np.bool_).reshape(value.data.shape[0], -1)
            every, none = every & rows.all(1), none | ~rows.any(1)
        if clip:
            for i, d in zip(at.index, at.buffer.shape, strict=False):
                lo, extent = self.value(i.lo if isinstance(i, n.Span) else i, lanes), self.value(d, lanes)
                span, step = (i.extent, i.step) if isinstance(i, n.Span) else (1, 1)
                if lo is None or extent is None or not isinstance(span, int) or not isinstance(step, int):
                    return
                first, last = lo.data.reshape(lo.data.shape[0], -1).min(1), lo.data.reshape(lo.data.shape[0], -1).max(1) + (span - 1) * step
                size = extent.data.reshape(extent.data.shape[0], -1)[:, 0]
                every, none = every & (first >= 0) & (last < size), none | (last < 0) | (first >= size)
        elif mask is None:
            return
        self.note(kind, anchor, FULL, lanes.shape[every])
        self.note(kind, anchor, EMPTY, lanes.shape[none])
        self.note(kind, anchor, PARTIAL, lanes.shape[~every & ~none])


def _exact(to: DType) -> int:
    """The whole number up to which a dtype holds all."""
    if to.is_integer:
        return (1 << (to.bits - (not to.name.startswith("u")))) - 1
    return {"f16": 1 << 11, "bf16": 1 << 8, "f32": 1 << 24}.get(to.name, 0)


# -------------------------------------------------------------------------------------------------------------------------------- facts

def promised(program: n.Program) -> tuple[n.Expr, ...]:
    """What callers promise of a program's sizes: its facts, and what every CTA assumes of sizes alone before it branches."""
    sizes = {p.name for p in program.params if p.role == "size"}
    out = dict.fromkeys(program.facts)
    blocks = [k.body for k in program.kernels]
    while blocks:
        for s in blocks.pop():
            if any(isinstance(x, n.Jump) for x in walk(s)):
                break  # some may not come to what follows
            if isinstance(s, n.For) and s.kind in ("warpgroup", "warp", "thread"):
                blocks.append(s.body)
            elif isinstance(s, n.Eval) and s.call.fn == "assume":
                said = [e for e in s.call.args if isinstance(e, n.Expr) and {x.name for x in walk(e) if isinstance(x, n.Var)} <= sizes]
                out.update(dict.fromkeys(said))
    return tuple(out)


def holding(program: n.Program, shapes: Sequence[Mapping[str, int]], facts: Iterable[n.Expr], extents: Sequence[tuple[n.Expr, Array]] = (),
            most: tuple[Sequence[Sequence[n.Expr]], int] | None = None) -> Array:
    """At which sizes every fact may hold and each expression of `extents` has the values beside it; what is not known from the sizes counts as held.
    With `most`, no array of these shapes may have more elements, or none."""
    fine = np.ones(len(shapes), np.bool_)
    lanes = _Lanes(np.arange(len(shapes)), np.arange(len(shapes)), np.ones(len(shapes)), {})
    walker = _Walker(Interpreter(program), {}, Prediction(seconds=np.zeros(len(shapes))))
    with np.errstate(all="ignore"):
        for p in program.params:
            if isinstance(p.of, DType) and shapes and all(p.name in s for s in shapes):
                lanes.env[p.name] = Val(np.array([s[p.name] for s in shapes], np.int64))
            elif isinstance(p.of, DType) and p.value is not None and (value := walker.value(p.value, lanes)) is not None:
                lanes.env[p.name] = value
        for fact in facts:
            if (value := walker.value(fact, lanes)) is not None:
                fine &= lanes.over(value.data.astype(np.bool_))
        for e, wanted in extents:
            if (value := walker.value(e, lanes)) is not None:
                fine &= lanes.over(value.data) == wanted
        for shape in most[0] if most is not None else ():
            total = np.ones(len(shapes))
            for d in shape:
                if (value := walker.value(d, lanes)) is not None:
                    extent = lanes.over(value.data)
                    fine &= extent > 0
                    total = total * extent
            fine &= total <= most[1] if most is not None else fine
    return fine
