"""Which accesses of two threads of a team may come at the same time: those between which there is a way without a barrier.

Every thread that has not left the kernel passes the same barriers in the same order (a claim of its own), so two threads are always in the same trip of a
loop that holds one. Those that have left are waited for by none: what they did since their last barrier is ordered before nothing.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from kir.analysis.proof.asking.question import Holding, Ranging
from kir.analysis.proof.sites import SHUFFLE, WARP_SYNC, Access, Barrier, Branch, Item, Loop, Place, Split, Sync, Team
from kir.analysis.proof.values import FALSE, TRUE, both, compared, either, opposite
from kir.analysis.uniform import depends, varying
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import BOOL, dtype_of
from kir.ir.visit import buffers_named, names_read, substitute, walk

Relation = Literal["same", "next", "later"]
Trips = Mapping[str, Relation]
"""For the counter of each loop around both accesses that all threads go through together: whether the second one is in the trip of the first, in the
next one, or in any later one. The trips of other loops have nothing to do with one another."""


Conditions = tuple[n.Expr, ...]


@dataclass(frozen=True, eq=False)
class Reached:
    """An access, and the conditions under which there is a way without a barrier between it and an end of what it stands in."""

    access: Access
    when: Conditions = ()
    shuffled: bool = False
    """Whether its warp has exchanged what it read since, all lanes together."""
    synced: int = 1
    """How many neighbors of its warp have come together since."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Two accesses, of two threads, that may come at the same time."""

    first: Reached
    second: Reached
    trips: Trips
    among: Literal["threads", "warps", "lanes"] = "threads"
    """Whose: of any two threads, of two warps, or of two lanes of one."""


@dataclass(frozen=True, eq=False)
class Leap:
    """A way that leaves some items by a jump: what comes after its last barrier, and under which condition it is reached without one."""

    kind: str
    last: tuple[Reached, ...]
    open: n.Expr


@dataclass(frozen=True, eq=False)
class Ends:
    """What may come before the first barrier of some items, after the last one, and under which condition there is a way through without one; and the
    ways that leave them by a jump."""

    first: tuple[Reached, ...]
    last: tuple[Reached, ...]
    open: n.Expr
    leaps: tuple[Leap, ...] = ()


def has_barrier(items: tuple[Item, ...]) -> bool:
    """Whether some thread may come to a barrier."""
    return any(isinstance(i, Barrier) or any(map(has_barrier, below(i))) for i in items)


def below(i: Item) -> tuple[tuple[Item, ...], ...]:
    """The items inside of one."""
    return (i.items,) if isinstance(i, (Loop, Split, Team)) else i.arms if isinstance(i, Branch) else ()


def every(items: tuple[Item, ...]) -> Iterator[Item]:
    """All items, those inside of others too, in reading order."""
    for i in items:
        yield i
        for inner in below(i):
            yield from every(inner)


def leaving(items: tuple[Item, ...], after: bool = False, loop: bool = False, outer: bool = False) -> Iterator[Branch]:
    """Branches that a thread may leave by a jump past a barrier that the others come to: `after` the items there is one in what they stand in, in the
    innermost `loop` around them, or in one around that (`outer`)."""
    for k, i in enumerate(items):
        later = after or any(has_barrier((x,)) for x in items[k + 1:])
        if isinstance(i, Branch):
            jumps = {x.kind for x in _own_jumps(i.place.stmt)}
            if ("return" in jumps and (later or loop or outer)) or (jumps and loop):
                yield i
            for arm in i.arms:
                yield from leaving(arm, later, loop, outer)
        elif isinstance(i, Loop):
            yield from leaving(i.items, later, has_barrier((i,)), loop or outer)
        elif isinstance(i, (Split, Team)):
            yield from leaving(i.items, later, loop, outer)


def _own_jumps(s: n.Node) -> Iterator[n.Jump]:
    """Jumps of a branch that leave it: a `return`, or those to a loop around it."""
    for block in ((s.then, s.orelse) if isinstance(s, n.If) else ()):
        for x in block:
            if isinstance(x, n.Jump):
                yield x
            elif isinstance(x, n.If):
                yield from _own_jumps(x)
            elif isinstance(x, (n.For, n.While)):
                yield from (y for y in walk(x) if isinstance(y, n.Jump) and y.kind == "return")


def exits(items: tuple[Item, ...], i: Branch) -> bool:
    """Whether a branch does nothing else with threads than end them; one of these items itself, if more orders what is done than barriers of all and
    exchanges of warps: then what follows is known to be done by the others alone."""
    s = i.place.stmt
    blocks = [b for x in walk(s) for b in ((x.then, x.orelse) if isinstance(x, n.If) else (x.body,) if isinstance(x, (n.For, n.While)) else ())]
    last = {id(b[-1]) for b in blocks if b}
    if any(id(x) not in last for x in walk(s) if isinstance(x, n.Jump)) or any(x.kind != "return" for x in _own_jumps(s)):
        return False
    ends = {id(b[-1]) for b in blocks[:2] if b}
    return only_barriers(items) or (any(x is i for x in items) and all(id(x) in ends for x in walk(s) if isinstance(x, n.Jump)))


def only_barriers(items: tuple[Item, ...]) -> bool:
    """Whether nothing but barriers of all, and exchanges of warps, orders what is done."""
    return all(i.fn in (SHUFFLE, WARP_SYNC) if isinstance(i, Sync) else not isinstance(i, Team) for i in every(items))


Leaver = tuple[Branch, tuple[n.Var, ...], bool]
"""A branch that some threads leave the kernel by while others go on, the counters of the loops around it, and whether all that come to it leave alike, but not
all come to it: it stands behind a `continue`, or in a branch, that some threads take."""


def leavers(items: tuple[Item, ...]) -> list[Leaver]:
    """All of them."""
    out: list[Leaver] = []
    for split in (x for x in every(items) if isinstance(x, Split)):
        differs, start = varying(split.loop), len(split.place.path)
        for x, counts in _returns(split.items, ()):
            cond = x.place.stmt.cond if isinstance(x.place.stmt, n.If) else None
            own = cond is None or depends(cond, differs[x.place.path[start:]])
            reach = [h for h in x.place.holding if not isinstance(h, Ranging)]
            if own or any(name == x.place.thread or name.startswith("any.") for h in reach for name in names_read(h)):
                out.append((x, counts, not own))
    return out


def _returns(items: tuple[Item, ...], counts: tuple[n.Var, ...]) -> Iterator[tuple[Branch, tuple[n.Var, ...]]]:
    for i in items:
        if isinstance(i, Branch) and any(x.kind == "return" for x in _own_jumps(i.place.stmt)):
            yield i, counts
        for inner in below(i):
            yield from _returns(inner, (*counts, i.count) if isinstance(i, Loop) else counts)


def by_all(left: list[Leaver], shared: set[str], proves: Callable[[tuple[Holding, ...], n.Expr, Place], bool], w: Access) -> bool:
    """Whether all threads that the conditions of a store tell come to it. Those that have left in a branch are told: it stands behind the store; or beside it,
    and in a loop around both whoever would have left in an earlier trip would in this one."""
    for x, counts, _ in left:
        common = [v for v in counts if v in w.place.scope]
        if x.place.thread != w.place.thread or (not common and x.place.path > w.place.path):
            continue
        if len(common) != len(counts) or len(counts) > 1 or opposite(x.cond) not in w.place.holding:
            return False
        for k in common:
            reached = Reached(Access("read", x.place, n.Buffer("%", BOOL, (), "shared"), "%", ()))
            earlier, _ = apart_by(reached, {}, shared | {v.name for v in x.place.scope if v != k})
            before = compared("lt", n.Var(f"{k.name}'", k.of), k)
            if not proves((*x.place.holding, *map(earlier, x.place.holding), earlier(x.cond), before), x.cond, x.place):
                return False
    return True


def accesses(items: tuple[Item, ...]) -> Iterator[Access]:
    """All accesses, in reading order."""
    return (i for i in every(items) if isinstance(i, Access))


def past(items: tuple[Item, ...]) -> Iterator[tuple[n.Expr, Place, tuple[Holding, ...]]]:
    """What loops in steps of two and more count to behind each of their trips, with their place and what holds in the trip."""
    for x in every(items):
        step = int_value(x.place.stmt.step) if isinstance(x, Loop) and isinstance(x.place.stmt, n.For) else None
        if step is not None and step > 1 and isinstance(x, Loop) and isinstance(x.runs, n.Binary):
            counted = build.compare("ge", x.count, const(0, dtype_of(x.count.type)))
            yield build.add(x.runs.a, const(step, dtype_of(x.runs.a.type))), x.place, (*x.place.holding, counted, x.runs)


def concurrent(items: tuple[Item, ...], left: bool = False) -> list[Pair]:
    """The pairs of accesses inside a loop over threads that may come at the same time; `left`: some threads may end at one of the items, others not."""
    out: list[Pair] = []
    _ends(items, {}, out, left)
    return out


def _further(reached: Iterable[Reached], when: n.Expr) -> list[Reached]:
    """The same, where there is a way on."""
    return [] if when == FALSE else [r if when == TRUE else replace(r, when=(*r.when, when)) for r in reached]


def _ends(items: tuple[Item, ...], trips: Trips, out: list[Pair], left: bool) -> Ends:
    first: list[Reached] = []
    last: list[Reached] = []
    leaps: list[Leap] = []
    is_open: n.Expr = TRUE
    for i in items:
        if isinstance(i, Sync) and i.fn == SHUFFLE:
            last = [replace(r, shuffled=r.shuffled or _feeds(r.access, i)) for r in last]
            continue
        if isinstance(i, Sync) and i.fn == WARP_SYNC:
            last = [replace(r, synced=max(r.synced, _lanes(i))) for r in last]
            continue
        part = _part(i, trips, out, left)
        out += [Pair(a, b, trips) for a in last for b in part.first]
        gone = [*leaps, *(Leap(x.kind, tuple(last), TRUE) for x in part.leaps if x.open != FALSE and has_barrier((i,)))] if left else []
        out += [Pair(a, Reached(b), trips) for x in gone if x.kind == "return" for a in x.last for b in accesses((i,))]
        first += _further(part.first, is_open)
        leaps += [Leap(x.kind, (*_further(last, x.open), *x.last), both(is_open, x.open)) for x in part.leaps]
        last = [*_further(last, part.open), *part.last]
        is_open = both(is_open, part.open)
    return Ends(tuple(first), tuple(last), is_open, tuple(leaps))


def _lanes(i: Sync) -> int:
    return (int_value(i.number) if i.number is not None else None) or 1


def _feeds(a: Access, i: Sync) -> bool:
    """Whether what an access reads is exchanged: it is in a register, or a name, that the exchange takes, or is part of it."""
    s = a.place.stmt
    names = {s.at.buffer.name} if isinstance(s, n.Store) else set(s.names) if isinstance(s, n.Let) else set[str]()
    return a.verb == "read" and (s is i.place.stmt or not names.isdisjoint({*names_read(i.place.stmt), *buffers_named(i.place.stmt)}))


def _part(i: Item, trips: Trips, out: list[Pair], left: bool) -> Ends:
    if isinstance(i, Access):
        out.append(Pair(Reached(i), Reached(i), trips))
        return Ends((Reached(i),), (Reached(i),), TRUE)
    if isinstance(i, Barrier):
        return Ends((), (), FALSE)
    if isinstance(i, Sync):
        return Ends((), (), TRUE)
    barred = any(map(has_barrier, below(i)))
    if isinstance(i, Branch):
        return _branch(i, trips, out, barred, left)
    if isinstance(i, Loop) and not barred and any(isinstance(x, Sync) and x.fn == WARP_SYNC and _lanes(x) == 32 for x in every(i.items)):
        return _of_warps(i, trips, out, left)
    if not barred:
        inside = tuple(Reached(a) for inner in below(i) for a in accesses(inner))
        out += [Pair(a, b, trips) for k, a in enumerate(inside) for b in inside[k:]]
        return Ends(inside, inside, TRUE, _ended(i, inside))
    assert isinstance(i, Loop)
    return _loop(i, trips, out, left)


def _ended(i: Loop | Split | Team, inside: tuple[Reached, ...]) -> tuple[Leap, ...]:
    """The ways out of the kernel from among some accesses between which there is no barrier."""
    return (Leap("return", inside, TRUE),) if any(isinstance(x, n.Jump) and x.kind == "return" for x in walk(i.place.stmt)) else ()


def _of_warps(i: Loop, trips: Trips, out: list[Pair], left: bool) -> Ends:
    """The ends of a loop in which lanes of each warp come together, but warps do not: these are in any two trips."""
    inside = tuple(Reached(a) for a in accesses(i.items))
    out += [Pair(a, b, trips, "warps") for k, a in enumerate(inside) for b in inside[k:]]
    lanes: list[Pair] = []
    made = _loop(i, trips, lanes, left)
    out += [replace(p, among="lanes") for p in lanes]
    return replace(made, open=TRUE, leaps=(*made.leaps, *_ended(i, inside)))


def _loop(i: Loop, trips: Trips, out: list[Pair], left: bool) -> Ends:
    """The ends of a loop whose trips all threads go through together, those that have left the kernel in one excepted: what these did since their last
    barrier, in that trip or before, is ordered before nothing in any later one."""
    body = _ends(i.items, {**trips, i.count.name: "same"}, out, left)
    again, gone = ([x for x in body.leaps if x.kind == kind] for kind in ("continue", "break"))
    around = body.open == FALSE and all(x.open == FALSE for x in again)
    last = (*body.last, *(r for x in again for r in x.last))
    ended = [x if x.open == FALSE else Leap(x.kind, (*x.last, *last), TRUE) for x in body.leaps if x.kind == "return"]
    out += [Pair(a, Reached(b), {**trips, i.count.name: "later"}) for x in ended if left for a in x.last for b in accesses(i.items)]
    out += [Pair(a, b, {**trips, i.count.name: "next" if around else "later"}) for a in last for b in body.first]
    never = TRUE if i.runs is None else opposite(substitute(i.runs, {i.count.name: const(0, dtype_of(i.count.type))}))
    never = never if around and all(x.open == FALSE for x in gone) else TRUE
    head = (Reached(a) for a in i.items if isinstance(a, Access) and a.place.stmt is i.place.stmt)  # a condition is read once more than the body is run
    return Ends(body.first, (*last, *head, *(r for x in gone for r in x.last)), never, tuple(ended))


def _branch(i: Branch, trips: Trips, out: list[Pair], barred: bool, left: bool) -> Ends:
    """The ends of both arms; of one that ends with a jump, where that goes."""
    s = i.place.stmt
    ends, leaps = [], list[Leap]()
    for arm, block, cond in zip(i.arms, (s.then, s.orelse) if isinstance(s, n.If) else ((), ()), (i.cond, opposite(i.cond)), strict=True):
        made = _ends(arm, trips, out, left)
        leaps += [Leap(x.kind, x.last, both(cond, x.open)) for x in made.leaps]
        jump = block[-1] if block else None
        if isinstance(jump, n.Jump):
            leaps.append(Leap(jump.kind, made.last, both(cond, made.open)))
            made = Ends(made.first, (), FALSE)
        ends.append(made)
    one, other = ends
    if not barred:  # threads of one condition may be in one arm while others are in the other
        out += [Pair(Reached(a), Reached(b), trips) for a in accesses(i.arms[0]) for b in accesses(i.arms[1])]
        when = FALSE if one.open == other.open == FALSE else TRUE if not leaps else either(both(i.cond, one.open), both(opposite(i.cond), other.open))
        return Ends(one.first + other.first, one.last + other.last, when, tuple(leaps))
    when = either(both(i.cond, one.open), both(opposite(i.cond), other.open))
    return Ends(one.first + other.first, one.last + other.last, when, tuple(leaps))


def other_threads(pair: Pair, a: n.Var, b: n.Expr) -> n.Expr:
    """That two threads are not one; and not of one warp where it has come together between what they do, or where one reads before its warp exchanges values,
    and another writes after that: who writes has what was read, or waits for those who have read."""
    whole = pair.among == "warps" or (pair.first.shuffled and pair.first.access.verb == "read")
    size = 32 if whole else pair.first.synced
    groups, warps = (tuple(x if k == 1 else build.floordiv(x, const(k, dtype_of(a.of))) for x in (a, b)) for k in (size, 32))
    apart = compared("ne", *groups)
    return apart if pair.among != "lanes" else FALSE if size == 32 else both(compared("eq", *warps), apart)


def apart_by(second: Reached, trips: Trips, shared: set[str]) -> tuple[Any, list[n.Expr]]:
    """How the second of two accesses names what is its own, and what holds between the trips of both."""
    told: dict[str, n.Expr] = {}
    held: list[n.Expr] = []
    scope = {v.name: v for v in second.access.place.scope}
    for name, relation in trips.items():
        v = scope[name]
        if relation == "same":
            shared = shared | {name}
        elif relation == "next":
            told[name] = build.add(v, const(1, dtype_of(v.of)))
        else:
            held.append(compared("gt", n.Var(f"{name}'", v.of), v))

    def renamed(x: Any) -> Any:
        if isinstance(x, Ranging):
            if x.var.name in shared:
                return Ranging(x.var, renamed(x.lo), renamed(x.hi))
            if x.var.name in told:
                return both(compared("le", renamed(x.lo), told[x.var.name]), compared("lt", told[x.var.name], renamed(x.hi)))
            return Ranging(n.Var(f"{x.var.name}'", x.var.of), renamed(x.lo), renamed(x.hi))
        own = {v.name: v for v in walk(x) if isinstance(v, n.Var) and v.name not in shared}
        return substitute(x, {name: told.get(name, n.Var(f"{name}'", v.of)) for name, v in own.items()})
    return renamed, held
