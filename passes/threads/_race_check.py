"""Whether threads touch one place of memory, one of them writing, with no barrier of the CTA between: on the code of one thread of many."""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeVar

from kir.analysis import Aliases
from kir.analysis.facts import Facts
from kir.analysis.solver import decide
from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import region_text
from kir.ir.types import TileType, dtype_of
from kir.ir.visit import children, names_read, statements, substitute, transform, walk
from kir.rewrite import Verdict, proved, refuted, unknown
from kir.rewrite.match import matched_as
from kir.rewrite.match.independence import MOST_CASES, in_other_blocks, number, only_term

from ._thread_ownership import PRIVATE, is_return

N = TypeVar("N", bound=n.Node)
READ, WRITE, ATOMIC = "read", "write", "atomic"


@dataclass(frozen=True)
class Touch:
    """What a thread does to a place: the conditions under which it does, and the loops around whose rounds threads run apart from each other."""

    kind: str
    at: n.Region
    when: tuple[n.Expr, ...]
    own: frozenset[str]
    value: n.Expr | None = None


def ordered(team: n.For, known: Facts, aliases: Aliases) -> Verdict:
    """Whether all threads of a loop over them meet at a barrier before one touches what another has written, or writes what it has read. Of a tensor that is
    written and has two names nothing is said."""
    written = {x.at.buffer.name for x in walk(team) if isinstance(x, n.Store)} | {
        a.buffer.name for x in walk(team) if isinstance(x, n.Call) for a in x.args if isinstance(a, n.Region)}
    named = {x.buffer.name for x in walk(team) if isinstance(x, n.Region) and x.buffer.space == "global"}
    if two := next(((a, b) for a in sorted(named & written) for b in sorted(named) if a != b and aliases.may_be_one(a, b)), None):
        return unknown(f"'{two[0]}' is written, and '{two[1]}' may be the same memory", needs="one name for memory that is written")
    try:
        _Phases(team, known, written - {x.buffer.name for x in walk(team) if isinstance(x, n.Alloc)}).run()
    except _Races as found:
        return found.verdict
    return proved("no two threads touch a place that one of them writes without a barrier between")


class _Races(Exception):
    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict


@dataclass
class _Phases:
    """Follows the touches since the last barrier through the code."""

    team: n.For
    known: Facts
    written: set[str]
    _seen: set[tuple[Touch, Touch]] = field(default_factory=set)
    _ranges: dict[str, n.For] = field(default_factory=dict)

    def run(self) -> None:
        self._ranges = {s.var.name: s for s in statements(self.team.body) if isinstance(s, n.For)}
        self._block(self.team.body, (), (), frozenset(), {})

    def _block(self, block: n.Block, pending: tuple[Touch, ...], when: tuple[n.Expr, ...], own: frozenset[str],
               lets: Mapping[str, n.Expr]) -> tuple[Touch, ...]:
        for s in block:
            if isinstance(s, n.Eval) and s.call.fn == "barrier":
                pending = ()
                continue
            pending = self._met(pending, self._touches(s, when, own, lets))
            match s:
                case n.Let() if len(s.names) == 1:
                    lets = {**lets, s.names[0]: substitute(s.value, lets)}
                case n.If() if is_return(s):
                    when = (*when, build.invert(substitute(s.cond, lets)))
                case n.If():
                    cond = substitute(s.cond, lets)
                    first = self._block(s.then, pending, (*when, cond), own, lets)
                    second = self._block(s.orelse, pending, (*when, build.invert(cond)), own, lets)
                    pending = tuple(dict.fromkeys((*first, *second)))
                case n.For() | n.While():
                    pending = self._loop(s, pending, when, own, lets)
                case _:
                    pass
        return pending

    def _loop(self, s: n.For | n.While, pending: tuple[Touch, ...], when: tuple[n.Expr, ...], own: frozenset[str],
              lets: Mapping[str, n.Expr]) -> tuple[Touch, ...]:
        """A loop in which nobody waits is run by each thread at its own pace; of another, each round follows the one before."""
        waits = any(isinstance(x, n.Eval) and x.call.fn == "barrier" for x in statements(s.body))
        if not waits:
            names = {s.var.name} if isinstance(s, n.For) else set()
            inside = (*when, n.Binary("lt", s.var, substitute(s.hi, lets))) if isinstance(s, n.For) else when
            return self._block(s.body, pending, inside, own | names, lets)
        after = self._block(s.body, pending, when, own, lets)
        again = s
        if isinstance(s, n.For):
            again = substitute(replace(s, hi=s.lo), {s.var.name: build.add(s.var, s.step)})
        last = self._block(again.body, after, when, own, lets)
        return tuple(dict.fromkeys((*pending, *after, *last)))

    def _touches(self, s: n.Stmt, when: tuple[n.Expr, ...], own: frozenset[str], lets: Mapping[str, n.Expr]) -> Iterator[Touch]:
        heads: Iterable[n.Node] = (s,)
        if isinstance(s, (n.For, n.If, n.While)):
            heads = [c for c in children(s) if isinstance(c, n.Expr)]

        def touch(kind: str, at: n.Region, mask: n.Expr | None, value: n.Expr | None = None) -> Iterator[Touch]:
            if at.buffer.space not in PRIVATE and at.buffer.name in self.written:
                held = when if mask is None else (*when, substitute(mask, lets))
                yield Touch(kind, substitute(at, lets), held, own, value)
        for head in heads:
            for x in walk(head):
                match x:
                    case n.Load():
                        yield from touch(READ, x.at, x.mask)
                    case n.Call() if x.fn.startswith("atomic_"):
                        mask = x.args[2] if len(x.args) > 2 and isinstance(x.args[2], n.Expr) else None
                        for at in (a for a in x.args if isinstance(a, n.Region)):
                            yield from touch(ATOMIC, at, mask)
                    case n.Store():
                        yield from touch(WRITE, x.at, x.mask, substitute(x.value, lets))
                    case _:
                        pass

    def _met(self, pending: tuple[Touch, ...], made: Iterable[Touch]) -> tuple[Touch, ...]:
        for b in made:
            for a in (*pending, b):
                if a.at.buffer.name == b.at.buffer.name and not (a.kind == b.kind != WRITE) and (a, b) not in self._seen:
                    self._seen.add((a, b))
                    self._apart(a, b)
            pending = tuple(dict.fromkeys((*pending, b)))
        return pending

    # -------------------------------------------------------------------------------------------------------------- two touches
    def _apart(self, a: Touch, b: Touch) -> None:
        """Raises _Races unless no two threads access one place by these touches."""
        if a == b and (not self._differs(a) or (a.kind == WRITE and self._all_alike())):
            return  # all threads write one value to one place
        t = self.team.var
        other = n.Var(f"{t.name}'", t.of)
        known = self.known.ranging(t, self.team.lo, self.team.hi).ranging(other, self.team.lo, self.team.hi)
        apart: n.Expr = n.Binary("eq", t, other)
        index, known = _elements(a.at, "", known)
        again, known = _elements(b.at, "'", known)
        renamed: dict[str, n.Expr] = {t.name: other, **{name: n.Var(f"{name}'", self._ranges[name].var.of) for name in b.own}}
        for touch, names in ((a, {}), (b, renamed)):
            for name in sorted(touch.own):
                loop = self._ranges[name]
                lo, hi = (substitute(e, names) for e in (loop.lo, loop.hi))
                var = matched_as(names.get(name, loop.var), n.Var)
                known = known.ranging(var, lo, hi)
            for cond in touch.when:
                if not any(isinstance(x, (n.Load, n.Call)) for x in walk(cond)):
                    apart = build.logical_or(apart, build.invert(_plain(substitute(cond, names))))
        for name in (names_read(a.at) | names_read(b.at)) & self._ranges.keys() - a.own - b.own:
            loop = self._ranges[name]
            known = known.ranging(loop.var, loop.lo, build.add(loop.hi, 1))
        compared = False
        again = tuple(substitute(y, renamed) for y in again)
        if any(_steps(build.sub(y, x), t, other) or _digits(x, y, t, other, known) for x, y in _divided(index, again)):
            return
        for x, y in zip(index, again, strict=True):
            if x.type == y.type and not any(isinstance(v, (n.Load, n.Call)) for e in (x, y) for v in walk(e)):
                if _steps(build.sub(y, x), t, other) or _digits(x, y, t, other, known) or in_other_blocks(x, y, known):
                    return
                apart, compared = build.logical_or(apart, n.Binary("ne", x, y)), True
        if self._apart_for_all_threads(a, b):
            return
        answer = decide(apart, known)
        if answer.kind == "always":
            return
        told = f"{region_text(a.at)} and {region_text(b.at)} may be one place, and no barrier is between"
        if a.kind == b.kind == WRITE and a.at == b.at:
            told = f"several threads may write {region_text(a.at)}"
        needs = "a barrier between, or places of their own"
        alike = a == b and a.value is not None and t.name not in names_read(a.value)  # what they write may be one value all the same
        if answer.witness and answer.kind in ("sometimes", "never") and compared and not alike:
            raise _Races(refuted(told, answer.shown(), needs=needs))
        raise _Races(unknown(told, needs=needs))

    def _apart_for_all_threads(self, a: Touch, b: Touch) -> bool:
        """Whether no two threads reach one place by two touches, by trying every thread at every round of loops that are its own."""
        threads = build.int_value(self.team.hi) or 0
        reached: list[dict[tuple[int, ...], set[int]]] = []
        used = [k for k, (x, y) in enumerate(zip(a.at.index, b.at.index, strict=True)) if all(
            isinstance(e, n.Expr) and names_read(e) <= {self.team.var.name, *t.own} for e, t in ((x, a), (y, b)))]
        for touch in (a, b):
            loops = [self._ranges[name] for name in sorted(touch.own)]
            rounds = [build.int_value(loop.hi) for loop in loops]
            if not used or None in rounds or threads * math.prod(r or 0 for r in rounds) > MOST_CASES:
                return False
            places: dict[tuple[int, ...], set[int]] = {}
            for at in itertools.product(range(threads), *(range(r or 0) for r in rounds)):
                values = dict(zip((self.team.var.name, *(loop.var.name for loop in loops)), at, strict=True))
                place = [number(e, values) for k in used if isinstance(e := _plain(touch.at.index[k]), n.Expr)]
                if None in place:
                    return False
                if all(number(c, values) != 0 for c in touch.when if isinstance(c, n.Binary)):
                    places.setdefault(tuple(x for x in place if x is not None), set()).add(at[0])
            reached.append(places)
        first, second = reached
        return all(not (second.get(place, set()) - {t}) for place, some in first.items() for t in some)

    def _all_alike(self) -> bool:
        """Whether all threads do the same: none of them asks which one it is, gets anything from others, or reads what is written."""
        return not any((isinstance(x, n.Var) and x.name == self.team.var.name) or (isinstance(x, n.Load) and x.at.buffer.name in self.written)
                       or (isinstance(x, n.Call) and (x.of is not None or instruction(x.fn).level != "element" or instruction(x.fn).effect))
                       or isinstance(x, (n.Opaque, n.Hole, n.Address)) for s in self.team.body for x in walk(s))

    def _differs(self, a: Touch) -> bool:
        """Whether a write is not the same for all threads."""
        names = {self.team.var.name, *a.own, *bound_names(self.team.body)}
        parts = (a.at, *a.when, *(() if a.value is None else (a.value,)))
        return a.kind != WRITE or a.value is None or any(names & names_read(x) or any(isinstance(y, n.Load) for y in walk(x)) for x in parts[:1]) or any(
            (isinstance(y, n.Var) and y.name == self.team.var.name) or (isinstance(y, n.Load) and y.at.buffer.space in PRIVATE)
            for x in parts for y in walk(x))


QUOTIENTS = {"floordiv": "mod", "tdiv": "trem"}
"""By the operator of a quotient, that of what remains."""


def _divided(index: Sequence[n.Expr], again: Sequence[n.Expr]) -> Iterator[tuple[n.Expr, n.Expr]]:
    """Numbers that are equal where two places are one: of each, one index has the quotient by something, and another has what remains."""
    pairs = [{op: part for op in (*QUOTIENTS, *QUOTIENTS.values()) if (part := _part(x, y, op)) is not None} for x, y in zip(index, again, strict=True)
             if x.type == y.type and not any(isinstance(v, (n.Load, n.Call)) for e in (x, y) for v in walk(e))]
    for op, rest in QUOTIENTS.items():
        for whole, left in itertools.product((each[op] for each in pairs if op in each), (each[rest] for each in pairs if rest in each)):
            if all((a.a, a.b) == (b.a, b.b) for a, b in zip(whole, left, strict=True)) and whole[0].b == whole[1].b:
                yield whole[0].a, whole[1].a


def _part(x: n.Expr, y: n.Expr, op: str) -> tuple[n.Binary, n.Binary] | None:
    """The only term of each of two indices that is such a quotient or remainder, where they differ in nothing else."""
    ours, theirs = only_term(x, op), only_term(y, op)
    return (ours[0], theirs[0]) if ours is not None and theirs is not None and ours[1] == theirs[1] else None


def _steps(difference: n.Expr, t: n.Var, other: n.Var) -> bool:
    """Whether two indices differ by so many for each thread from one to the other: they are the same for one thread alone."""
    terms = build.polynomial(difference)
    step = terms.get((other,), 0)
    return step != 0 and terms == {(other,): step, (t,): -step}


def _plain(e: N) -> N:
    """Shifts and masks by literals as products, quotients and remainders, which are known of."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        value = build.int_value(new.b) if isinstance(new, n.Binary) else None
        if not isinstance(new, n.Binary) or value is None or value < 0:
            return new
        match new.op:
            case "shl" if value < 31:
                return build.mul(new.a, 1 << value)
            case "shr" if value < 31:
                return build.floordiv(new.a, 1 << value)
            case "and" if value & (value + 1) == 0:
                return build.mod(new.a, value + 1)
            case _:
                return new
    made: N = transform(e, leave)
    return made


def _digits(x: n.Expr, y: n.Expr, t: n.Var, other: n.Var, known: Facts) -> bool:
    """Whether two indices are one sum of digits, of which each has room below the next one, over numbers of one thread and of the other: then
    they are the same only where all digits are, the thread's number among them."""
    ours, theirs = dict(build.polynomial(x)), dict(build.polynomial(y))
    for m in ours.keys() & theirs.keys():
        if ours[m] == theirs[m]:
            del ours[m], theirs[m]
    digits: list[tuple[int, int | None]] = []
    for m, coefficient in ours.items():
        here = m[0] if len(m) == 1 else None
        if not isinstance(here, n.Var):
            return False
        there = other if here == t else n.Var(f"{here.name}'", here.of)
        a, b = known.domain(here), known.domain(there)
        if theirs.pop((there,), None) != coefficient or coefficient <= 0:
            return False
        ends = (a.lo, a.hi, b.lo, b.hi)
        digits.append((coefficient, None if None in ends else max(e for e in ends if e is not None) - min(e for e in ends if e is not None)))
    room: int | None = 0
    for coefficient, most in sorted(digits, key=lambda each: (each[0], math.inf if each[1] is None else each[1])):
        if room is None or room >= coefficient:
            return False
        room = None if most is None else room + coefficient * most
    return not theirs and (t,) in ours


def _elements(at: n.Region, mark: str, known: Facts) -> tuple[tuple[n.Expr, ...], Facts]:
    """The indices of any one element of a place, and what is known of where it stands in its spans."""
    out: list[n.Expr] = []
    for axis, i in enumerate(at.index):
        i = _plain(i)
        if isinstance(i, n.Span) and not isinstance(i.lo.type, TileType):
            dtype = dtype_of(i.lo.type)
            inside = n.Var(f"%e{axis}{mark}", dtype)
            known = known.ranging(inside, build.const(0, dtype), build.const(i.extent, dtype) if isinstance(i.extent, int) else i.extent)
            out.append(build.add(i.lo, build.mul(inside, i.step)))
        elif isinstance(i, n.Span) or isinstance(i.type, TileType):
            raise _Races(unknown(f"{region_text(at)} is more than one place"))
        else:
            out.append(i)
    return tuple(out), known
