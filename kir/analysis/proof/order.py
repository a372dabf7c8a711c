"""What of two accesses comes first: by the program, by barriers, by groups that are waited for, and by phases of mbarriers that complete.

A *moment* is an execution of an item: the values of the variables around it, and counts of what its instance has done before. All that is said of two
moments is a condition on their variables, for the solver.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kir.analysis.proof.asking.question import Holding, Ranging
from kir.analysis.proof.counting import ZERO, Counted, folded
from kir.analysis.proof.sites import Access, Branch, Item, Loop, Place, Split, Sync, Team
from kir.analysis.proof.values import FALSE, TRUE, both, compared, either, wide
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import I64, dtype_of
from kir.ir.visit import names_read, substitute, walk

FAMILY_OF = {"async_wait": "cp_async", "bulk_wait": "bulk", "wgmma_wait": "wgmma"}
Around = Loop | Split | Team
Named = Callable[[n.Expr], n.Expr]


@dataclass(frozen=True, eq=False)
class Site:
    """An item and the loops, splits and roles around it, outermost first."""

    item: Access | Sync
    stack: tuple[Around, ...]

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.item.place

    @property
    def role(self) -> Team | None:
        """The role that it belongs to."""
        return next((i for i in self.stack if isinstance(i, Team)), None)

    @property
    def key(self) -> int:
        """A number of its role; 0 outside of any."""
        return id(self.role) if self.role is not None else 0

    def variables(self) -> list[n.Var]:
        """Those of the loops and splits around it."""
        return [i.count if isinstance(i, Loop) else i.var for i in self.stack if isinstance(i, (Loop, Split))]


@dataclass(frozen=True, eq=False)
class Moment:
    """An execution of a site: `named` gives each of its expressions the names of this execution."""

    site: Site
    named: Named

    def of(self, v: n.Var) -> n.Expr:
        """The value of one of its variables."""
        return self.named(v)

    def holds(self) -> n.Expr:
        """That it is executed."""
        return both(*(self.condition(h) for h in self.site.place.holding))

    def condition(self, h: Holding) -> n.Expr:
        """What holds at its place, as a condition."""
        if isinstance(h, Ranging):
            v = self.named(h.var)
            return both(compared("le", self.named(h.lo), v), compared("lt", v, self.named(h.hi)))
        return folded(self.named(h))


@dataclass(frozen=True, eq=False)
class Ring:
    """Mbarriers that count: `slots` of them, each of which completes a phase after `expected` arrivals. Arrival number r of each that arrives is on slot r
    mod slots, and the wait number w of a role is for arrival w - credit. `leaders` are, by role, the variables of those that arrive that have one value."""

    name: str
    slots: int
    expected: int
    credit: Mapping[int, int]
    leaders: Mapping[int, Mapping[str, n.Expr]]
    arrives: Mapping[int, Counted]
    """Arrivals of those that arrive, by role."""


class Order:
    """The relation of moments. `counts` are what any instance has done: `bar SPLIT`, `group FAMILY`, `wait RING`; `behind[a, b]` says by how many rounds
    what the completion of a round of a ring tells of another one lies behind it."""

    def __init__(self, sites: Iterable[Site], counts: Counted, shared: set[str]) -> None:
        self.sites, self.counts, self.shared = list(sites), counts, shared
        self.waits = [s for s in self.sites if isinstance(s.item, Sync) and s.item.fn in FAMILY_OF]
        self.rings: dict[str, Ring] = {}
        self.behind: dict[tuple[str, str], int] = {}

    # ------------------------------------------------------------------------------------------------------------------ naming
    def first(self, site: Site) -> Moment:
        """The execution of a site whose variables have their own names."""
        return Moment(site, lambda e: e)

    def second(self, site: Site) -> Moment:
        """Another one: its variables are primed."""
        def named(e: n.Expr) -> n.Expr:
            own = {name: n.Var(f"{name}'", v.of) for name, v in _variables(e).items() if name not in self.shared and not name.startswith("%")}
            made: n.Expr = substitute(e, own) if own else e
            return made
        return Moment(site, named)

    def elsewhere(self, site: Site, values: Mapping[str, n.Expr]) -> Moment:
        """An execution with given values of all its variables."""
        def named(e: n.Expr) -> n.Expr:
            made: n.Expr = substitute(e, {k: v for k, v in values.items() if k in names_read(e)})
            return made
        return Moment(site, named)

    def count(self, m: Moment, name: str, counted: Counted | None = None) -> n.Expr | None:
        """How often something had happened."""
        found = (counted or self.counts).at.get(id(m.site.item), {}).get(name)
        return None if found is None else m.named(found)

    # ----------------------------------------------------------------------------------------------------------------- orders
    def ordered(self, a: Moment, b: Moment) -> n.Expr:
        """A condition under which all that `a` does has been done before `b` begins."""
        item = a.site.item
        late = item.late if isinstance(item, Access) else None
        if late is not None and late.family == "signal":
            round_ = self.signaled(a)
            return FALSE if round_ is None else self._completed(round_, late.barrier, b)
        told = FALSE if late is not None else self.then(a, b, False)
        for m, when, together in self.ends(a, b):
            told = either(told, both(when, self.then(m, b, together)))
        return told

    def then(self, a: Moment, b: Moment, together: bool) -> n.Expr:
        """A condition under which `b` comes after `a`, which is done at once; `together`: of a warpgroup that is as far."""
        return either(self.sequential(a, b), either(self._barrier(a, b), self._rings(a, b, together)))

    def sequential(self, a: Moment, b: Moment) -> n.Expr:
        """By the program: of one instance, or of a team before or after it splits."""
        told = TRUE if _before(a.site.place, b.site.place) else FALSE
        for v in reversed(list(_common(a.site, b.site))):
            if isinstance(v, Team):
                continue
            x, y = (m.of(v.count if isinstance(v, Loop) else v.var) for m in (a, b))
            same = compared("eq", x, y) if x != y else TRUE
            told = either(compared("lt", x, y) if x != y else FALSE, both(same, told)) if isinstance(v, Loop) else both(same, told)
        return told

    def _barrier(self, a: Moment, b: Moment) -> n.Expr:
        told, outside = FALSE, TRUE
        for v in _common(a.site, b.site):
            if isinstance(v, Team):
                continue
            if isinstance(v, Split):
                x, y = (self.count(m, f"bar {id(v)}") for m in (a, b))
                if x is not None and y is not None and x != y:
                    told = either(told, both(outside, compared("lt", x, y)))
            p, q = (m.of(v.count if isinstance(v, Loop) else v.var) for m in (a, b))
            outside = both(outside, compared("eq", p, q) if p != q else TRUE)
        return told

    def _rings(self, a: Moment, b: Moment, together: bool) -> n.Expr:
        told, role = FALSE, a.site.key
        for ring in self.rings.values():
            if role not in ring.arrives:
                continue
            done = self.count(a, ring.name, ring.arrives[role])
            if done is None:
                continue
            leads = TRUE
            for name, value in ring.leaders[role].items():
                own = next((v for v in a.site.stack if isinstance(v, Split) and v.var.name == name), None)
                if own is not None and not (together and is_warpgroup(own)):
                    leads = both(leads, compared("eq", a.of(own.var), value))
            told = either(told, both(leads, self._completed(done, ring.name, b)))
        return told

    def _completed(self, round_: n.Expr, name: str, b: Moment) -> n.Expr:
        """That a round of a ring is known to have completed."""
        told, role = FALSE, b.site.key
        for other, ring in self.rings.items():
            back = 0 if other == name else self.behind.get((other, name))
            waited = self.count(b, f"wait {other}")
            if back is None or waited is None or waited == ZERO or role not in ring.credit:
                continue
            known = build.sub(waited, const(1 + ring.credit[role] + back, I64))
            told = either(told, compared("le", round_, known))
        return told

    def signaled(self, a: Moment) -> n.Expr | None:
        """The round whose phase a copy belongs to: that of the last arrival before it."""
        item, role = a.site.item, a.site.key
        ring = self.rings.get(item.late.barrier) if isinstance(item, Access) and item.late is not None else None
        if ring is None or role not in ring.arrives:
            return None
        done = self.count(a, ring.name, ring.arrives[role])
        return None if done is None else build.sub(done, const(1, I64))

    # ------------------------------------------------------------------------------------------------------------------- ends
    def ends(self, a: Moment, b: Moment) -> list[tuple[Moment, n.Expr, bool]]:
        """Waits at which what `a` left in flight is over, or, where it did nothing late, at which a warpgroup comes together after it: each with its
        condition."""
        item = a.site.item
        late = item.late if isinstance(item, Access) else None
        out: list[tuple[Moment, n.Expr, bool]] = []
        for w in self.waits:
            assert isinstance(w.item, Sync)
            family = FAMILY_OF[w.item.fn]
            if not _same_team(a.site, w) or family != (late.family if late is not None else "wgmma"):
                continue
            if isinstance(item, Access) and w.item.read and item.verb != "read":
                continue
            together = family == "wgmma" and any(map(is_warpgroup, w.stack))
            if (late is None and not together) or (together and _of_some(w)):
                continue
            left = int_value(w.item.number) if late is not None and w.item.number is not None else None
            for m in self._nearby(w, a, b, together, () if not left else (left + 1,)):
                if late is None:
                    when = self.sequential(a, m)
                else:
                    begun, now = self.count(a, f"group {family}"), self.count(m, f"group {family}")
                    if begun is None or now is None or w.item.number is None:
                        continue
                    when = compared("lt", begun, build.sub(now, wide(w.item.number)))
                if when != FALSE:
                    out.append((m, both(m.holds(), when), together))
        return out

    def _nearby(self, w: Site, a: Moment, b: Moment, together: bool, later: tuple[int, ...]) -> list[Moment]:
        """Executions of a wait around two moments: in the trips of the one or of the other, one before or after, so many `later` than the first, and the
        first or the last of other loops."""
        out: dict[tuple[n.Expr, ...], Moment] = {}
        for near, steps in ((a, (0, 1, *later)), (b, (0, -1))):
            common = list(_common(w, near.site))
            loops = [v for v in common if isinstance(v, Loop)]
            for step in steps if loops else (0,):
                for last in (False, True):
                    values: dict[str, n.Expr] = {}
                    for v in w.stack:
                        if isinstance(v, Team):
                            continue
                        var = v.count if isinstance(v, Loop) else v.var
                        if isinstance(v, Split):
                            value = a.of(var)
                        elif v in common:
                            value = near.of(var)
                            if step and v is loops[-1]:
                                value = build.add(value, const(step, dtype_of(var.of)))
                        elif last and v.trips is not None:
                            value = near.named(_narrowed(build.sub(v.trips, const(1, I64)), var))
                        else:
                            value = const(0, dtype_of(var.of))
                        if together and is_warpgroup(v) and v in list(_common(w, b.site)):
                            value = b.of(var)
                        values[var.name] = value
                    out.setdefault(tuple(values.values()), self.elsewhere(w, values))
        return list(out.values())


def _narrowed(e: n.Expr, like: n.Var) -> n.Expr:
    return e if e.type == like.of else build.cast(e, dtype_of(like.of))


def _variables(e: Any) -> dict[str, n.Var]:
    return {v.name: v for v in walk(e) if isinstance(v, n.Var)}


def _common(a: Site, b: Site) -> Iterable[Around]:
    for x, y in zip(a.stack, b.stack, strict=False):
        if x is not y:
            return
        yield x


def is_warpgroup(v: Around) -> bool:
    """Whether it is a split into the 128 threads of a warpgroup."""
    return isinstance(v, Split) and v.loop.kind == "thread" and int_value(v.loop.lo) == 0 and int_value(v.loop.hi) == 128


def _of_some(w: Site) -> bool:
    """Whether a condition around a site tells the threads of a warpgroup apart."""
    own = {v.var.name for v in w.stack if isinstance(v, Split) and is_warpgroup(v)}
    return any(own & names_read(h) for h in w.place.holding if not isinstance(h, Ranging))


def _same_team(a: Site, b: Site) -> bool:
    """Whether both are of the instances of the same splits."""
    return [v for v in a.stack if isinstance(v, (Split, Team))] == [v for v in b.stack if isinstance(v, (Split, Team))]


def _before(a: Place, b: Place) -> bool:
    """Whether a statement stands before another one in one of the blocks around both."""
    for k, (x, y) in enumerate(zip(a.path, b.path, strict=False)):
        if x != y:
            return isinstance(x, int) and isinstance(y, int) and x < y and (k == 0 or a.path[k - 1] != "roles")
    return False


def sites_of(items: tuple[Item, ...], stack: tuple[Around, ...] = ()) -> Iterable[Site]:
    """All accesses and calls that order them, in reading order."""
    for i in items:
        if isinstance(i, (Access, Sync)):
            yield Site(i, stack)
        elif isinstance(i, (Loop, Split, Team)):
            yield from sites_of(i.items, (*stack, i))
        elif isinstance(i, Branch):
            for arm in i.arms:
                yield from sites_of(arm, stack)


__all__ = ["Moment", "Order", "Ring", "Site", "sites_of"]
