"""How often something has happened when an instance comes to a place: sums over the trips of loops in closed form.

What a body adds in each trip is worked out with a symbol for what was there before: nothing, the same in every trip, or one of two where a condition
compares the trip with a bound. Anything else is not known, and stays so.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

from kir.analysis.proof.sites import Access, Barrier, Branch, Item, Loop, Place, Split, Sync, Team
from kir.analysis.proof.values import FALSE, TRUE, both, chosen, either, wide
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value, polynomial
from kir.ir.types import BOOL, I64, dtype_of
from kir.ir.visit import names_read, statements, substitute

Counts = Mapping[str, n.Expr | None]
"""Counts by name, in i64; None for one that is not known."""
ZERO = const(0, I64)
OWN = "group "
"""How the names of counts begin that belong to one team alone, and not to those it splits into."""
Steps = Callable[[Item], Mapping[str, int]]
"""What an item adds to each count."""


@dataclass(frozen=True, eq=False)
class Counted:
    """Counts before each item (by `id`), and at the end of each role (by its own `id`) and of the kernel (0)."""

    at: Mapping[int, Counts]
    ends: Mapping[int, Counts]


def counted(items: tuple[Item, ...], names: tuple[str, ...], steps: Steps, fixed: Mapping[str, n.Expr], positive: Callable[[n.Expr, Place], bool]) -> Counted:
    """Counts of instances whose variables have the values `fixed`; `positive` says whether a number of trips is never below 0."""
    made = _Counting(names, steps, fixed, positive)
    made.ends[0] = made.items(items, dict.fromkeys(names, ZERO))
    return Counted(made.at, made.ends)


class _Counting:
    def __init__(self, names: tuple[str, ...], steps: Steps, fixed: Mapping[str, n.Expr], positive: Callable[[n.Expr, Place], bool]) -> None:
        self.names, self.steps, self.fixed, self.positive = names, steps, fixed, positive
        self.at: dict[int, Counts] = {}
        self.ends: dict[int, Counts] = {}

    def items(self, items: tuple[Item, ...], state: Counts) -> Counts:
        for i in items:
            state = self.item(i, state)
        return state

    def item(self, i: Item, state: Counts) -> Counts:
        self.at[id(i)] = state
        match i:
            case Access() | Barrier() | Sync():
                told = self.steps(i)
                return {k: v if v is None or k not in told else build.add(v, const(told[k], I64)) for k, v in state.items()}
            case Branch():
                cond = folded(substitute(i.cond, self.fixed)) if self.fixed else i.cond
                if cond in (TRUE, FALSE):
                    return self.items(i.arms[0 if cond == TRUE else 1], state)
                a, b = (self.items(arm, state) for arm in i.arms)
                return {k: _either(cond, a[k], b[k]) for k in state}
            case Loop():
                return self.loop(i, state)
            case Split():
                after = self.items(i.items, state)
                return {k: state[k] if k.startswith(OWN) else None if (v := after[k]) is not None and i.var.name in names_read(v) else v for k in state}
            case Team():
                self.ends[id(i)] = after = self.items(i.items, state)
                return {k: state[k] if k.startswith(OWN) or after[k] == state[k] else None for k in state}

    def loop(self, i: Loop, state: Counts) -> Counts:
        """Once with symbols for what was counted before, once with what that says."""
        head: Counts = {k: n.Var(f"%before {k}", I64) for k in state}
        kept = dict(self.at), dict(self.ends)
        after = self.items(i.items, head)
        self.at, self.ends = kept
        leaves = any(isinstance(x, n.Jump) for x in statements(i.place.stmt.body)) if isinstance(i.place.stmt, (n.For, n.While)) else True
        count = wide(i.count)
        trips = None
        if i.trips is not None and not leaves:
            own = wide(substitute(i.trips, self.fixed)) if self.fixed else wide(i.trips)
            trips = own if self.positive(own, i.place) else build.maximum(own, ZERO)
        first: dict[str, n.Expr | None] = {}
        last: dict[str, n.Expr | None] = {}
        for k, entry in state.items():
            added = self.added(after[k], head[k], i.count.name)
            if added is None or entry is None or (leaves and added != ZERO):
                first[k] = last[k] = entry if added == ZERO else None
            else:
                first[k] = _summed(entry, added, i.count.name, count)
                last[k] = None if trips is None and added != ZERO else _summed(entry, added, i.count.name, trips if trips is not None else ZERO)
        self.items(i.items, first)
        return last

    def added(self, after: n.Expr | None, before: n.Expr | None, count: str) -> n.Expr | None:
        """What one trip adds, where that does not depend on what was there before."""
        if after is None or before is None:
            return None
        if isinstance(after, n.Select):
            a, b = self.added(after.a, before, count), self.added(after.b, before, count)
            return None if a is None or b is None else chosen(after.cond, a, b)
        told = build.sub(after, before)
        return None if any(x.startswith("%before ") for x in names_read(told)) else told


def _either(cond: n.Expr, a: n.Expr | None, b: n.Expr | None) -> n.Expr | None:
    return None if a is None or b is None else chosen(cond, a, b)


def _summed(entry: n.Expr, added: n.Expr, count: str, trips: n.Expr) -> n.Expr | None:
    """`entry` and what so many trips add."""
    if count not in names_read(added):
        return build.add(entry, build.mul(trips, added))
    if not isinstance(added, n.Select) or {count} & (names_read(added.a) | names_read(added.b)):
        return None
    held = _times(added.cond, count, trips)
    if held is None:
        return None
    return build.add(entry, build.add(build.mul(held, added.a), build.mul(build.sub(trips, held), added.b)))


def _times(cond: n.Expr, count: str, trips: n.Expr) -> n.Expr | None:
    """In how many of the first trips a comparison of the trip with a bound holds."""
    if isinstance(cond, n.Unary) and cond.op == "not":
        inner = _times(cond.x, count, trips)
        return None if inner is None else build.sub(trips, inner)
    if not isinstance(cond, n.Binary) or cond.op not in ("lt", "le", "gt", "ge"):
        return None
    if cond.a.type != cond.b.type:
        return None
    terms = dict(polynomial(build.sub(cond.a, cond.b)))
    own = [m for m in terms if any(count in names_read(x) for x in m)]
    if len(own) != 1 or len(own[0]) != 1 or not isinstance(own[0][0], n.Var):
        return None
    c = terms.pop(own[0])
    rest = wide(build.from_polynomial(terms, dtype_of(cond.a.type)))
    op = cond.op
    if c == -1:
        op, rest = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}[op], build.unary("neg", rest)
    elif c != 1:
        return None
    bound = build.unary("neg", rest)  # count OP bound
    at = build.maximum(build.add(bound, const(1, I64)) if op in ("gt", "le") else bound, ZERO)
    below = build.minimum(trips, at)
    return below if op in ("lt", "le") else build.sub(trips, below)


def folded(e: n.Expr) -> n.Expr:
    """A condition with what is a number worked into it."""
    match e:
        case n.Binary() if e.op == "and":
            return both(folded(e.a), folded(e.b))
        case n.Binary() if e.op == "or":
            return either(folded(e.a), folded(e.b))
        case n.Unary() if e.op == "not":
            inner = folded(e.x)
            return TRUE if inner == FALSE else FALSE if inner == TRUE else e if inner == e.x else n.Unary("not", inner)
        case n.Binary() if e.op in n.COMPARISONS and (a := int_value(e.a)) is not None and (b := int_value(e.b)) is not None:
            return const({"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b, "eq": a == b, "ne": a != b}[e.op], BOOL)
        case _:
            return e
