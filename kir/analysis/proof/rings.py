"""Mbarriers: that every arrival, every byte and every wait is of the round that it is taken for, that no phase is lapped, and that no wait is for ever.

A candidate is read off the calls: how many slots there are, who arrives, and whether a role's waits begin with rounds that nobody brings (`credit`). All
of it is then claimed of each call, for every round:

- an arrival number r is on slot r mod slots, and those that arrive in a round are as many as the mbarrier expects;
- a round's bytes are all announced by its arrival and brought before the next one;
- what would complete a round after that one comes after all that complete it know of the round before it on this slot, and after all who wait for it;
- a wait number w is on slot w mod slots and for the parity of its round;
- as many rounds are brought as are waited for, and no round waits for itself: the steps back around any circle of waits are more than those ahead.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from kir.analysis.proof.asking.question import Holding, Ranging
from kir.analysis.proof.counting import ZERO, Counted, counted, folded
from kir.analysis.proof.covered import numbers
from kir.analysis.proof.order import Order, Ring, Site
from kir.analysis.proof.sites import Access, Item, Loop, Place, Split, Sync
from kir.analysis.proof.values import FALSE, both, compared, either, wide
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import I64
from kir.ir.visit import names_read, substitute

ARRIVALS = ("mbar_arrive", "mbar_arrive_expect")
MOST_BYTES = (1 << 20) - 1
FARTHEST = 3
"""Rounds by which an arrival may be looked for ahead of a wait, beside the slots of both rings."""
Proves = Callable[[tuple[Holding, ...], n.Expr, Place], bool]


class Broken(Exception):
    """What is not seen to hold of some mbarriers: why, and where."""

    def __init__(self, why: str, site: Place | None) -> None:
        super().__init__(why)
        self.why, self.place = why, site


class Rings:
    """All rings of a kernel; `checked` raises Broken for the first thing that is not proved."""

    def __init__(self, order: Order, items: tuple[Item, ...], buffers: Mapping[str, n.Buffer], proves: Proves,
                 positive: Callable[[n.Expr, Place], bool]) -> None:
        self.order, self.items, self.proves, self.positive = order, items, proves, positive
        self.buffers = buffers
        self.ahead: dict[tuple[str, str], int] = {}
        """By how many rounds what is waited for before a round lies ahead of it, at most: of two rings."""
        self.calls: dict[str, list[Site]] = {}
        self.copies: dict[str, list[Site]] = {}
        for s in order.sites:
            if isinstance(s.item, Sync) and s.item.barrier:
                self.calls.setdefault(s.item.barrier, []).append(s)
            elif isinstance(s.item, Access) and s.item.late is not None and s.item.late.family == "signal" and s.item.verb == "write":
                self.copies.setdefault(s.item.late.barrier, []).append(s)

    def of(self, name: str, *fns: str) -> list[Site]:
        """The calls of some kinds on a ring."""
        return [s for s in self.calls.get(name, ()) if isinstance(s.item, Sync) and s.item.fn in fns]

    def checked(self) -> None:
        """Everything that is claimed of all rings."""
        for name in dict.fromkeys((*self.calls, *self.copies)):
            self.order.rings[name] = self._candidate(name)
        for name, ring in self.order.rings.items():
            self._arrivals(name, ring)
            self._waits(name, ring)
            self._bytes(name, ring)
        self._behind()
        for name, ring in self.order.rings.items():
            self._not_lapped(name, ring)
        self._not_for_ever()

    # -------------------------------------------------------------------------------------------------------------- candidates
    def _candidate(self, name: str) -> Ring:
        slots, expected = self._initialized(name)
        leaders: dict[int, Mapping[str, n.Expr]] = {}
        arrives: dict[int, Counted] = {}
        together = 0
        for key in dict.fromkeys(s.key for s in self.of(name, *ARRIVALS)):
            own = [s for s in self.of(name, *ARRIVALS) if s.key == key]
            told = {self._who(s) for s in own}
            if len(told) != 1:
                raise Broken(f"different threads arrive on '{name}' at different places", own[0].place)
            who, count = told.pop()
            leaders[key] = {k: const(v) for k, v in who}
            together += count
            fixed = leaders[key]
            arrives[key] = counted(self.items, (name,), partial(_steps, name, ARRIVALS), fixed, self.positive)
        if together != expected:
            raise Broken(f"{together} arrive on '{name}' in a round, it expects {expected}", self.calls[name][0].place if name in self.calls else None)
        return Ring(name, slots, expected, self._credits(name, slots), leaders, arrives)

    def _initialized(self, name: str) -> tuple[int, int]:
        """How many mbarriers there are and what each expects: each is told so once, before anything is done with it."""
        shape = [int_value(d) for d in self.buffers[name].shape] if name in self.buffers else [None]
        inits = self.of(name, "mbar_init")
        if not inits or any(d is None for d in shape) or len(shape) > 1:
            raise Broken(f"how many mbarriers '{name}' has, or where they are initialized", self.calls[name][0].place if name in self.calls else None)
        slots = int(shape[0] or 1) if shape else 1
        seen = np.zeros(slots, np.int64)
        counts = set()
        for s in inits:
            assert isinstance(s.item, Sync) and s.item.slot is not None
            spread = _spread(s)
            at = numbers(s.item.slot, spread) if spread is not None else None
            keep = _kept(s, spread) if spread is not None else None
            if at is None or keep is None or s.role is not None or any(isinstance(v, Loop) and v.trips is None for v in s.stack):
                raise Broken(f"which mbarriers of '{name}' are initialized here", s.place)
            slot, really = np.broadcast_arrays(at, keep, *(spread or {}).values())[:2]
            for each in slot[really].tolist():
                if not 0 <= each < slots:
                    raise Broken(f"'{name}' has no mbarrier {each}", s.place)
                seen[each] += 1
            counts.add(int_value(s.item.number) if s.item.number is not None else None)
            if not all(_earlier(s, u) for u in (*self.calls[name], *self.copies.get(name, ())) if u not in inits):
                raise Broken(f"'{name}' is used before it is initialized", s.place)
        if (seen != 1).any() or len(counts) != 1 or None in counts:
            raise Broken(f"each mbarrier of '{name}' is not initialized once and alike", inits[0].place)
        expected = counts.pop()
        assert expected is not None
        return slots, expected

    def _who(self, s: Site) -> tuple[tuple[tuple[str, int], ...], int]:
        """The instances that come to a call: the variables that have one value for all of them, and how many there are."""
        splits = [v for v in s.stack if isinstance(v, Split)]
        spread: dict[str, Any] = {}
        for k, v in enumerate(splits):
            lo, hi = int_value(v.loop.lo), int_value(v.loop.hi)
            if lo is None or hi is None:
                raise Broken("how many threads there are", s.place)
            spread[v.var.name] = np.arange(lo, hi).reshape((-1,) + (1,) * (len(splits) - 1 - k))
        keep: Any = np.ones([max(1, x.size) for x in spread.values()], np.bool_)
        for h in s.place.holding:
            if isinstance(h, Ranging) or not names_read(h) & spread.keys():
                continue
            for c in _conjuncts(h):
                if names_read(c) & spread.keys():
                    found = numbers(c, spread)
                    if found is None:
                        raise Broken("which threads come here", s.place)
                    keep = keep & found
        single: dict[str, int] = {}
        full = 1
        for k, v in enumerate(splits):
            values = np.unique(np.nonzero(keep)[k]) + int(spread[v.var.name].min())
            if len(values) == 1 and spread[v.var.name].size > 1:
                single[v.var.name] = int(values[0])
            elif len(values) != spread[v.var.name].size:
                raise Broken("which threads come here", s.place)
            else:
                full *= len(values)
        if int(keep.sum()) != full:
            raise Broken("which threads come here", s.place)
        return tuple(sorted(single.items())), full

    def _credits(self, name: str, slots: int) -> dict[int, int]:
        """By role, how many of its first waits are for rounds that nobody brings."""
        out: dict[int, int] = {}
        for key in dict.fromkeys(s.key for s in self.of(name, "mbar_wait")):
            sites = [s for s in self.of(name, "mbar_wait") if s.key == key]
            found = next((c for c in (0, slots) if all(self._is_for(s, name, slots, c) for s in sites)), None)
            if found is None:
                raise Broken(f"which phase of '{name}' is waited for", sites[0].place)
            out[key] = found
        return out

    def _is_for(self, s: Site, name: str, slots: int, credit: int) -> bool:
        item = s.item
        assert isinstance(item, Sync) and item.slot is not None and item.number is not None
        w = self.order.counts.at[id(item)].get(f"wait {name}")
        if w is None:
            return False
        parity = build.mod(build.add(build.floordiv(w, const(slots, I64)), const(int(credit > 0), I64)), const(2, I64))
        said = build.mod(wide(item.number), const(2, I64))
        return self.proves(s.place.holding, both(compared("eq", said, parity), compared("eq", wide(item.slot), build.mod(w, const(slots, I64)))), s.place)

    # ------------------------------------------------------------------------------------------------------------------ claims
    def _arrivals(self, name: str, ring: Ring) -> None:
        for s in self.of(name, *ARRIVALS):
            assert isinstance(s.item, Sync) and s.item.slot is not None
            r = self.number(s, ring)
            if not self.proves(self._led(s, ring), compared("eq", wide(self._told(s, ring, s.item.slot)), build.mod(r, const(ring.slots, I64))), s.place):
                raise Broken(f"that arrivals on '{name}' go round its slots one by one", s.place)

    def _waits(self, name: str, ring: Ring) -> None:
        """Splits whose threads synchronize at barriers have no wait that some of them alone come to: what follows a barrier would wait with it."""
        for s in self.of(name, "mbar_wait", *ARRIVALS):
            if s.key == 0 and any(u.key for u in self.order.sites):
                raise Broken(f"'{name}' is used outside of the roles", s.place)
        for s in self.of(name, "mbar_wait"):
            inner = [v for v in s.stack if isinstance(v, Split)]
            for v in inner:
                mine = any(v.var.name in names_read(h) for h in s.place.holding if not isinstance(h, Ranging))
                if mine and _meets(v):
                    raise Broken("some threads alone wait, and others meet them at a barrier", s.place)

    def _bytes(self, name: str, ring: Ring) -> None:
        """What an arrival announces is brought before the next one of that thread."""
        if self.of(name, "mbar_expect"):
            raise Broken(f"bytes of '{name}' are announced without an arrival", self.of(name, "mbar_expect")[0].place)
        copies, announced = self.copies.get(name, []), self.of(name, "mbar_arrive_expect")
        if not copies and not announced:
            return
        keys = {s.key for s in (*copies, *announced)}
        if len(keys) != 1 or not announced:
            raise Broken(f"who announces the bytes of '{name}'", (*copies, *announced)[0].place)
        key = keys.pop()
        leaders = ring.leaders[key]
        def owed(i: Item) -> Mapping[str, int]:
            if isinstance(i, Sync) and i.barrier == name and i.fn == "mbar_arrive_expect":
                value = int_value(i.number) if i.number is not None else None
                if value is None or not 0 <= value <= MOST_BYTES:
                    raise Broken(f"how many bytes of '{name}' are announced", i.place)
                return {"owed": value}
            if isinstance(i, Access) and i.late is not None and i.late.barrier == name and i.verb == "write":
                return {"owed": -i.late.bytes}
            return {}
        made = counted(self.items, ("owed",), owed, leaders, self.positive)
        for s in copies:
            if dict(self._who(s)[0]) != {k: int_value(v) for k, v in leaders.items()} or self._who(s)[1] != 1:
                raise Broken(f"other threads bring bytes to '{name}' than announce them", s.place)
            assert isinstance(s.item, Access) and s.item.late is not None
            r, left = self.number(s, ring), made.at[id(s.item)]["owed"]
            claim = both(compared("ge", r, const(1, I64)), compared("eq", wide(self._told(s, ring, s.item.late.slot)),
                                                                   build.mod(build.sub(r, const(1, I64)), const(ring.slots, I64))))
            if left is None or not self.proves(self._led(s, ring), both(claim, compared("ge", left, const(s.item.late.bytes, I64))), s.place):
                raise Broken(f"that a copy belongs to the last arrival on '{name}'", s.place)
        end = made.ends.get(key)
        for s in self.of(name, *ARRIVALS):
            left = made.at[id(s.item)]["owed"]
            if left is None or not self.proves(self._led(s, ring), compared("eq", left, ZERO), s.place):
                raise Broken(f"that the bytes of '{name}' are brought before the next arrival", s.place)
        if end is None or end["owed"] is None or not self.proves((), compared("eq", end["owed"], ZERO), announced[0].place):
            raise Broken(f"that all bytes of '{name}' are brought", announced[0].place)

    def number(self, s: Site, ring: Ring) -> n.Expr:
        """How many arrivals there were before a call."""
        found = ring.arrives[s.key].at[id(s.item)][ring.name] if s.key in ring.arrives else None
        if found is None:
            raise Broken(f"how often '{ring.name}' has been arrived on", s.place)
        return found

    def _told(self, s: Site, ring: Ring, e: n.Expr) -> n.Expr:
        return substitute(e, ring.leaders[s.key]) if ring.leaders.get(s.key) else e

    def _led(self, s: Site, ring: Ring) -> tuple[Holding, ...]:
        """What holds at a call for those that arrive."""
        fixed = ring.leaders.get(s.key, {})
        if not fixed:
            return s.place.holding
        return tuple(Ranging(h.var, substitute(h.lo, fixed), substitute(h.hi, fixed)) if isinstance(h, Ranging) else folded(substitute(h, fixed))
                     for h in s.place.holding if not (isinstance(h, Ranging) and h.var.name in fixed))

    def _waited(self, s: Site, ring: Ring, other: Ring) -> n.Expr | None:
        """How many rounds of another ring one that arrives has waited for before, those that nobody brings left out."""
        found = self.order.counts.at[id(s.item)].get(f"wait {other.name}")
        if found is None or s.key not in other.credit:
            return None
        return build.sub(self._told(s, ring, found), const(other.credit[s.key], I64))

    # ------------------------------------------------------------------------------------------- what completions say of others
    def _behind(self) -> None:
        """By how many rounds what the completion of a round tells of another ring lies behind it: the least that is proved."""
        rings = self.order.rings
        for a, b in product(rings, rings):
            if a == b:
                continue
            for key in rings[a].arrives:
                sites = [s for s in self.of(a, *ARRIVALS) if s.key == key]
                for back in range(-1, max(rings[a].slots, rings[b].slots) + 2):
                    if all(self._tells(s, rings[a], rings[b], back) for s in sites):
                        kept = self.order.behind.get((a, b))
                        self.order.behind[a, b] = back if kept is None else min(back, kept)
                        break
        for via, a, b in product(rings, rings, rings):
            if (a, via) in self.order.behind and (via, b) in self.order.behind and len({a, b, via}) == 3:
                told = self.order.behind[a, via] + self.order.behind[via, b]
                self.order.behind[a, b] = min(told, self.order.behind.get((a, b), told))

    def _tells(self, s: Site, ring: Ring, other: Ring, back: int) -> bool:
        waited, r = self._waited(s, ring, other), self.number(s, ring)
        if waited is None:
            return False
        return self.proves(self._led(s, ring), compared("ge", waited, build.add(r, const(1 - back, I64))), s.place)

    def _not_lapped(self, name: str, ring: Ring) -> None:
        """No arrival is for the round after the one that is not over, nor for one that somebody has still to wait for the round before."""
        sites = self.of(name, *ARRIVALS)
        alone = ring.expected == 1 and not self.copies.get(name)
        for s in sites:
            r = self.number(s, ring)
            last = build.sub(r, const(ring.slots, I64))
            moment = self.order.first(s)
            if not alone:
                claim = either(compared("lt", last, ZERO), self.order._completed(last, name, moment))
                if not self.proves(self._led(s, ring), self._told(s, ring, claim), s.place):
                    raise Broken(f"that a round of '{name}' is over before those after it on its slot", s.place)
            for w in self.of(name, "mbar_wait"):
                self._after_wait(name, ring, s, w)

    def _after_wait(self, name: str, ring: Ring, s: Site, w: Site) -> None:
        """An arrival for the next round on a slot comes after a wait for the one before."""
        waiting, arriving = self.order.first(w), self.order.second(s)
        count = self.order.counts.at[id(w.item)].get(f"wait {name}")
        if count is None:
            raise Broken(f"how often '{name}' is waited for", w.place)
        fixed = ring.leaders[s.key]
        leaders = {f"{k}'": v for k, v in fixed.items()}
        r = arriving.named(self.number(s, ring))
        same = compared("eq", r, build.add(count, const(ring.slots - ring.credit[w.key], I64)))
        claim = self.order.ordered(waiting, arriving)
        holding = [*w.place.holding, *(replace_names(h, arriving.named) for h in s.place.holding), same]
        if leaders:
            claim = folded(substitute(claim, leaders))
            holding = [_filled(h, leaders) for h in holding if not (isinstance(h, Ranging) and h.var.name in leaders)]
        if not self.proves(tuple(holding), claim, w.place):
            raise Broken(f"that a wait for '{name}' is over before the round after it on its slot completes", w.place)

    def _not_for_ever(self) -> None:
        rings = self.order.rings
        for name, ring in rings.items():
            for key, credit in ring.credit.items():
                own = [s for s in self.of(name, "mbar_wait") if s.key == key]
                place = own[0].place
                who = {self._who(s) for s in own}
                if len(who) != 1:
                    raise Broken(f"different threads wait for '{name}' at different places", place)
                fixed = {k: const(v) for k, v in who.pop()[0]}
                waits = counted(self.items, (name,), partial(_steps, name, ("mbar_wait",)), fixed, self.positive).ends.get(key, {}).get(name)
                for other, made in ring.arrives.items():
                    total = made.ends.get(other, {}).get(name)
                    if waits is None or total is None or not self._at_any_end(waits, total, credit, place, ring, key):
                        raise Broken(f"that as many rounds of '{name}' are brought as are waited for", place)
                if not ring.arrives:
                    raise Broken(f"nobody arrives on '{name}'", place)
        ahead: dict[tuple[str, str], int] = {}
        for a, b in product(rings, rings):
            for s in self.of(a, *ARRIVALS):
                waited = self._waited(s, rings[a], rings[b])
                if waited is None or self.order.counts.at[id(s.item)].get(f"wait {b}") == ZERO:
                    continue
                r = self.number(s, rings[a])
                far = next((d for d in range(-rings[b].slots - FARTHEST, FARTHEST + 1) if self.proves(
                    self._led(s, rings[a]), compared("le", waited, build.add(r, const(1 + d, I64))), s.place)), None)
                if far is None:
                    raise Broken(f"how far ahead of '{a}' its threads wait for '{b}'", s.place)
                ahead[a, b] = max(far, ahead.get((a, b), far))
        self.ahead = dict(ahead)
        for via, a, b in product(rings, rings, rings):
            if (a, via) in ahead and (via, b) in ahead:
                told = ahead[a, via] + ahead[via, b]
                ahead[a, b] = max(told, ahead.get((a, b), told))
        circle = next((a for a in rings if ahead.get((a, a), -1) >= 0), None)
        if circle is not None:
            raise Broken(f"that a round of '{circle}' does not wait for itself", self.calls[circle][0].place)

    def _at_any_end(self, waits: n.Expr, total: n.Expr, credit: int, place: Place, ring: Ring, key: int) -> bool:
        outer = tuple(h for h in place.holding if isinstance(h, Ranging) and not _counts(h, self.order.sites))
        return self.proves(outer, compared("le", build.sub(waits, const(credit, I64)), total), place)


def replace_names(h: Holding, named: Callable[[n.Expr], n.Expr]) -> Holding:
    """What holds, of another execution."""
    if isinstance(h, Ranging):
        v = named(h.var)
        return Ranging(v, named(h.lo), named(h.hi)) if isinstance(v, n.Var) else both(compared("le", named(h.lo), v), compared("lt", v, named(h.hi)))
    return folded(named(h))


def _filled(h: Holding, values: Mapping[str, n.Expr]) -> Holding:
    return replace_names(h, lambda e: substitute(e, values))


def _counts(h: Ranging, sites: list[Site]) -> bool:
    """Whether a range is that of the trips of a loop."""
    return any(isinstance(v, Loop) and v.count.name == h.var.name for s in sites for v in s.stack)


def _steps(name: str, fns: tuple[str, ...], i: Item) -> Mapping[str, int]:
    return {name: 1} if isinstance(i, Sync) and i.barrier == name and i.fn in fns else {}


def _meets(split: Split) -> bool:
    from kir.analysis.proof.intervals import has_barrier
    return has_barrier(split.items)


def _conjuncts(e: n.Expr) -> Iterator[n.Expr]:
    if isinstance(e, n.Binary) and e.op == "and":
        yield from _conjuncts(e.a)
        yield from _conjuncts(e.b)
    else:
        yield e


def _spread(s: Site) -> dict[str, Any] | None:
    """All values of the variables around a call; None where they are not numbers."""
    ranges: dict[str, range] = {}
    for h in s.place.holding:
        if isinstance(h, Ranging) and any(v.name == h.var.name for v in s.variables()):
            lo, hi = int_value(h.lo), int_value(h.hi)
            if lo is None or hi is None:
                return None
            ranges[h.var.name] = range(lo, hi)
    if any(v.name not in ranges for v in s.variables()):
        return None
    return {k: np.arange(r.start, r.stop).reshape((-1,) + (1,) * (len(ranges) - 1 - i)) for i, (k, r) in enumerate(ranges.items())}


def _kept(s: Site, spread: Mapping[str, Any]) -> Any | None:
    keep: Any = np.ones((1,) * max(1, len(spread)), np.bool_)
    for h in s.place.holding:
        if not isinstance(h, Ranging):
            found = numbers(h, spread)
            if found is None:
                return None
            keep = keep & found
    return keep


def _earlier(a: Site, b: Site) -> bool:
    """Whether the outermost statement around one stands before that of the other."""
    x, y = a.place.path[1], b.place.path[1]
    return isinstance(x, int) and isinstance(y, int) and x < y


__all__ = ["FALSE", "Broken", "Rings", "replace"]
