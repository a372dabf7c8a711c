"""Named barriers: that each round of one has the threads that it counts, that no one arrives for a round before the one before it is complete, and that
none waits for ever, together with the mbarriers.

The threads that use a number are *instances* of one split into warpgroups or warps. Every round of a number has one sync of each instance that syncs on it
and, where these are fewer threads than it counts, one arrival of another (or of one of them, ahead of its own sync). The arrivals are numbered: those of
instances that arrive a fixed number of times first. Then it is claimed of each call, for every round:

- an arrival for a round comes after the round before it is complete: its instance has synced on that number so often, or on another one whose completion
  tells so much of it;
- as many arrive as sync;
- no round waits for itself: the steps back around any circle of waits, by mbarriers too, are more than those ahead.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from kir.analysis.proof.asking.question import Holding, Ranging
from kir.analysis.proof.counting import ZERO, Counted, counted
from kir.analysis.proof.intervals import has_barrier
from kir.analysis.proof.order import Order, Site
from kir.analysis.proof.rings import ARRIVALS, FARTHEST, Broken, Proves, Rings, replace_names
from kir.analysis.proof.sites import Item, Split, Sync
from kir.analysis.proof.values import FALSE, both, compared, either
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import I64
from kir.ir.visit import substitute

SYNC, ARRIVE = "named_barrier_sync", "named_barrier_arrive"
WIDTHS = {"warpgroup": 128, "warp": 32}
MOST_INSTANCES, HIGHEST = 16, 15
"""Instances of one split, and the highest number of a barrier (PTX ISA, bar.sync: 16 barriers, of which __syncthreads has number 0)."""
UNBOUNDED = 1 << 40
"""As far ahead as no bound is proved of: more than any circle of waits makes up for."""
Instance = tuple[int, str, int]
"""A role's key, the variable of the split, and its value."""


@dataclass(frozen=True)
class Use:
    """A call of an instance."""

    site: Site
    by: Instance
    number: int
    fn: str


class Named:
    """All named barriers of a kernel; `checked` raises Broken for the first thing that is not proved."""

    def __init__(self, order: Order, items: tuple[Item, ...], proves: Proves, rings: Rings) -> None:
        self.order, self.items, self.proves, self.rings = order, items, proves, rings
        self.counts: dict[Instance, Counted] = {}
        self.uses: list[Use] = []
        self.offsets: dict[tuple[int, Instance], n.Expr] = {}
        self.syncs: dict[int, list[Instance]] = {}

    def checked(self) -> None:
        """Everything that is claimed of all of them."""
        expected: dict[int, int] = {}
        widths: dict[int, int] = {}
        for s in self.order.sites:
            if isinstance(s.item, Sync) and s.item.fn in (SYNC, ARRIVE):
                for use, count, width in self._used(s):
                    self.uses.append(use)
                    if expected.setdefault(use.number, count) != count or widths.setdefault(use.number, width) != width:
                        raise Broken(f"barrier {use.number} is used with other numbers of threads", s.place)
        names = tuple(f"{fn} {b}" for fn, b in product((SYNC, ARRIVE), expected))
        for i in dict.fromkeys(u.by for u in self.uses):
            self.counts[i] = counted(self.items, names, lambda item, i=i: self._steps(item, i), {i[1]: const(i[2])},  # type: ignore[misc]  # bound at once
                                     self.rings.positive)
        for b in expected:
            self._parties(b, expected[b], widths[b])
        for b in expected:
            for u in self._of(b, ARRIVE):
                self._in_turn(u)
        self._not_for_ever()

    # ------------------------------------------------------------------------------------------------------------------ parties
    def _used(self, s: Site) -> Iterator[tuple[Use, int, int]]:
        """The calls of each instance that comes to a site: which barrier, how many threads it counts, and how many an instance has."""
        item, splits = s.item, [v for v in s.stack if isinstance(v, Split)]
        assert isinstance(item, Sync) and item.slot is not None and item.number is not None
        bounds = [(int_value(v.loop.lo), int_value(v.loop.hi)) for v in splits]
        if len(splits) != 1 or splits[0].loop.kind not in WIDTHS or None in bounds[0]:
            raise Broken("which threads come to a named barrier", s.place)
        if has_barrier(splits[0].items):
            raise Broken("threads that meet at a named barrier meet at others of the CTA too", s.place)
        lo, hi = (int(x or 0) for x in bounds[0])
        if hi - lo > MOST_INSTANCES:
            raise Broken("how many instances come to a named barrier", s.place)
        for value in range(lo, hi):
            by = (s.key, splits[0].var.name, value)
            if any(h == FALSE for h in self._holding(s, by)):
                continue
            number, count = (int_value(substitute(e, {by[1]: const(value)})) for e in (item.slot, item.number))
            if number is None or count is None or not 0 < number <= HIGHEST or count % 32:
                raise Broken("which named barrier it is, or how many threads it counts", s.place)
            yield Use(s, by, number, item.fn), count, WIDTHS[splits[0].loop.kind]

    def _holding(self, s: Site, by: Instance) -> tuple[Holding, ...]:
        """What holds at a site for one instance."""
        fixed = {by[1]: const(by[2])}
        return tuple(replace_names(h, lambda e: substitute(e, fixed)) for h in s.place.holding if not (isinstance(h, Ranging) and h.var.name == by[1]))

    def _steps(self, item: Item, by: Instance) -> Mapping[str, int]:
        return {f"{u.fn} {u.number}": 1 for u in self.uses if u.site.item is item and u.by == by}

    def _of(self, b: int, fn: str) -> list[Use]:
        return [u for u in self.uses if u.number == b and u.fn == fn]

    def _parties(self, b: int, expected: int, width: int) -> None:
        """Who syncs, who arrives, and how arrivals are numbered; as many of both at the end."""
        first = next(u for u in self.uses if u.number == b)
        self.syncs[b] = list(dict.fromkeys(u.by for u in self._of(b, SYNC)))
        arrivers = list(dict.fromkeys(u.by for u in self._of(b, ARRIVE)))
        left = expected - width * len(self.syncs[b])
        if not self.syncs[b] or left not in (0, width) or bool(left) != bool(arrivers):
            raise Broken(f"who makes up the {expected} threads of barrier {b}", first.site.place)
        totals = {i: self._at_end(i, f"{ARRIVE} {b}", first) for i in arrivers}
        offset: n.Expr = ZERO
        for i in sorted(arrivers, key=lambda i: (int_value(totals[i]) is None, i[2])):
            self.offsets[b, i] = offset
            offset = build.add(offset, totals[i])
        if sum(int_value(t) is None for t in totals.values()) > 1:
            raise Broken(f"in which order barrier {b} is arrived at", first.site.place)
        every = [self._at_end(i, f"{SYNC} {b}", first) for i in self.syncs[b]]
        for other in (*every[1:], *((offset,) if arrivers else ())):
            outer = tuple(h for h in first.site.place.holding if isinstance(h, Ranging) and h.var.name not in {v.name for v in first.site.variables()})
            if other != every[0] and not self.proves(outer, compared("eq", other, every[0]), first.site.place):
                raise Broken(f"that as many arrive at barrier {b} as are waited for", first.site.place)

    def _at_end(self, i: Instance, name: str, u: Use) -> n.Expr:
        found = self.counts[i].ends.get(i[0], {}).get(name)
        if found is None:
            raise Broken(f"how often barrier {u.number} is used", u.site.place)
        return found

    # ------------------------------------------------------------------------------------------------------------------- rounds
    def _done(self, s: Site, by: Instance, b: int) -> n.Expr | None:
        """How many rounds of a barrier an instance knows to be complete at a site, as it has synced on it so often."""
        return self.counts[by].at[id(s.item)].get(f"{SYNC} {b}") if by in self.syncs[b] else ZERO

    def _round(self, u: Use) -> n.Expr:
        """Which round a call is for."""
        found = self.counts[u.by].at[id(u.site.item)].get(f"{u.fn} {u.number}")
        if found is None:
            raise Broken(f"which round of barrier {u.number} it is", u.site.place)
        return found if u.fn == SYNC else build.add(self.offsets[u.number, u.by], found)

    def _in_turn(self, u: Use) -> None:
        """An arrival comes after the round before its own."""
        r, b = self._round(u), u.number
        own = self._done(u.site, u.by, b)
        claim = compared("le", r, ZERO) if own is None else either(compared("le", r, ZERO), compared("le", r, own))
        for via in self.syncs:
            m = self._done(u.site, u.by, via)
            if via != b and u.by in self.syncs[via] and m is not None and (told := self._tells(via, b)) is not None:
                claim = either(claim, both(compared("ge", m, const(1, I64)), compared("le", r, build.add(m, const(told - 1, I64)))))
        if not self.proves(self._holding(u.site, u.by), claim, u.site.place):
            raise Broken(f"that a round of barrier {b} is complete before someone arrives for the next", u.site.place)

    def _tells(self, via: int, b: int) -> int | None:
        """The most `d` for which it is proved that when round q of a barrier is complete, so are q + d rounds of another."""
        parties = [self._of(via, ARRIVE), *([u for u in self._of(via, SYNC) if u.by == i] for i in self.syncs[via])]
        found = [d for uses in parties if uses and (d := next((d for d in (2, 1, 0, -1, -2) if all(self._knows(u, b, d) for u in uses)), None)) is not None]
        return max(found, default=None)

    def _knows(self, u: Use, b: int, d: int) -> bool:
        done = self._done(u.site, u.by, b)
        return done is not None and self.proves(self._holding(u.site, u.by), compared("ge", done, build.add(self._round(u), const(d, I64))), u.site.place)

    # ---------------------------------------------------------------------------------------------------------------- for ever
    def _not_for_ever(self) -> None:
        """How far ahead of each round what is waited for before it is: along no circle is that 0 or more."""
        ahead: dict[tuple[str | int, str | int], int] = {(a, b): d for (a, b), d in self.rings.ahead.items()}

        def add(a: str | int, b: str | int, s: Site, by: Instance, waited: n.Expr | None, r: n.Expr) -> None:
            if waited is None:
                raise Broken("how often it has waited before a named barrier", s.place)
            if waited == ZERO:
                return
            holding = self._holding(s, by)
            far = next((d for d in range(-FARTHEST - 2, FARTHEST + 1) if self.proves(
                holding, compared("le", waited, build.add(r, const(1 + d, I64))), s.place)), UNBOUNDED)
            ahead[a, b] = max(far, ahead.get((a, b), far))

        for u in self.uses:
            for number in self.syncs:
                add(u.number, number, u.site, u.by, self._done(u.site, u.by, number), self._round(u))
            for name, ring in self.order.rings.items():
                credit = ring.credit.get(u.by[0])
                waited = self.order.counts.at[id(u.site.item)].get(f"wait {name}")
                if credit is not None and waited != ZERO:
                    told = None if waited is None else build.sub(substitute(waited, {u.by[1]: const(u.by[2])}), const(credit, I64))
                    add(u.number, name, u.site, u.by, told, self._round(u))
        for name, ring in self.order.rings.items():
            for s in self.rings.of(name, *ARRIVALS):
                for by in self.counts:
                    if s.key == by[0] and not any(h == FALSE for h in self._holding(s, by)):
                        r = substitute(self.rings.number(s, ring), {by[1]: const(by[2])})
                        for number in self.syncs:
                            add(name, number, s, by, self._done(s, by, number), r)
        nodes = dict.fromkeys(x for pair in ahead for x in pair)
        for via, a, b in product(nodes, nodes, nodes):
            if (a, via) in ahead and (via, b) in ahead:
                far = ahead[a, via] + ahead[via, b]
                ahead[a, b] = max(far, ahead.get((a, b), far))
        circle = next((a for a in nodes if ahead.get((a, a), -1) >= 0), None)
        if circle is not None:
            place = next((u.site.place for u in self.uses if u.number == circle), self.uses[0].site.place)
            raise Broken(f"that a round of {circle if isinstance(circle, str) else f'barrier {circle}'} does not wait for itself", place)


__all__ = ["ARRIVE", "SYNC", "Named"]
