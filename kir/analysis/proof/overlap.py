"""Kernels with something asynchronous: every two accesses of one memory, of which one writes, are in an order, and every read of shared memory comes after
writes that fill it."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np

from kir.analysis.proof.asking.question import Holding, Ranging
from kir.analysis.proof.counting import counted
from kir.analysis.proof.covered import numbers
from kir.analysis.proof.flight import troubles
from kir.analysis.proof.named import ARRIVE, SYNC, Named
from kir.analysis.proof.order import FAMILY_OF, Around, Moment, Order, Site, sites_of
from kir.analysis.proof.rings import Broken, Proves, Rings, replace_names
from kir.analysis.proof.sites import Access, Barrier, Branch, Item, Kind, Loop, Place, Split, Sync, Team, of_one_kind
from kir.analysis.proof.values import FALSE, both, compared, either, opposite
from kir.analysis.proof.walk import Walk
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import I64, dtype_of
from kir.ir.visit import names_read, substitute, walk

COMMITS = {"async_commit": "group cp_async", "bulk_commit": "group bulk", "wgmma_commit": "group wgmma"}
ENDING = {"cp_async": "write", "bulk": "read"}
"""What must be over when an instance ends, by family: memory that is filled, or sources that are read."""
MOST_ELEMENTS = 1 << 21
OLDER = 4
"""Groups, from the newest one that a wait leaves none of in flight on, and rounds of a ring, that may have brought what is read after it."""
APART = "\""
"""What names of another instance's variables end with."""
ASYNCHRONOUS: tuple[Kind, ...] = ("race", "wait", "ring", "undefined", "barrier")


@dataclass(frozen=True, eq=False)
class OrderedPair:
    """Two executions of accesses that are to be in an order, and under which conditions: `claim` is to follow from `holding`."""

    first: Access
    second: Access
    holding: tuple[Holding, ...]
    apart: n.Expr
    """That they do not touch the same element."""
    order: n.Expr
    """That one is done before the other begins."""
    named: Callable[[n.Expr], n.Expr]
    """What names of the second are."""

    @property
    def late(self) -> bool:
        """Whether one of them acts after its statement."""
        return self.first.late is not None or self.second.late is not None


class Overlap:
    """What is asynchronous in one kernel. `proves` asks whether a condition follows from what holds at a place."""

    def __init__(self, program: n.Program, kernel: n.Kernel, made: Walk, shared: set[str], proves: Proves) -> None:
        self.program, self.kernel, self.walk, self.proves, self.shared = program, kernel, made, proves, shared
        self.splits = [i for i in _all(made.items) if isinstance(i, Split)]
        sites = list(sites_of(made.items))
        mbarriers = list(dict.fromkeys(s.item.barrier for s in sites if isinstance(s.item, Sync) and s.item.barrier))
        names = (*(f"bar {id(s)}" for s in self.splits), *COMMITS.values(), *(f"wait {b}" for b in mbarriers))
        self.inner = {id(b): s for s in self.splits for b in _own_barriers(s.items)}
        counts = counted(made.items, names, self._steps, {}, self._positive)
        self.order = Order(sites, counts, shared)
        self.broken: list[tuple[tuple[Kind, ...], str, Place | None, str]] = []
        buffers = {s.buffer.name: s.buffer for s in _statements(kernel.body) if isinstance(s, n.Alloc)}
        rings, whole = Rings(self.order, made.items, buffers, proves, self._positive), True
        try:
            rings.checked()
        except Broken as bad:
            self.broken.append((ASYNCHRONOUS, "mbarriers are not followed", bad.place, bad.why))
            self.order.rings, whole = {}, False
        try:
            if whole and any(isinstance(s.item, Sync) and s.item.fn in (SYNC, ARRIVE) for s in sites):
                Named(self.order, made.items, proves, rings).checked()
        except Broken as bad:
            self.broken.append((("ring", "barrier"), "named barriers are not followed", bad.place, bad.why))
        for t in troubles(program, kernel):
            place = next((s.place for s in sites if s.place.stmt is t.stmt), None)
            if t.families and t.families <= ENDING.keys() and all(self._landed(s, t.families) for s in sites):
                continue
            self.broken.append((t.kinds, "what is in flight", place, t.why))

    def _steps(self, i: Item) -> Mapping[str, int]:
        if isinstance(i, Barrier):
            split = self.inner.get(id(i))
            return {f"bar {id(split)}": 1} if split is not None else {}
        if isinstance(i, Sync):
            return {COMMITS[i.fn]: 1} if i.fn in COMMITS else {f"wait {i.barrier}": 1} if i.fn == "mbar_wait" else {}
        return {}

    def _positive(self, e: n.Expr, place: Place) -> bool:
        return self.proves(place.holding, compared("ge", e, const(0, dtype_of(e.type))), place)

    def _landed(self, x: Site, families: frozenset[str]) -> bool:
        """Whether what an access leaves in flight is waited for by a group of its own before the end, wherever it is executed."""
        item = x.item
        if not isinstance(item, Access) or item.late is None or item.late.family not in families or item.verb != ENDING[item.late.family]:
            return True
        moment = self.order.first(x)
        over = FALSE
        for _, when, _ in self.order.ends(moment, moment):
            over = either(over, when)
        return over != FALSE and self.proves(self._holding(x, lambda e: e), over, x.place)

    def meeting_splits(self) -> list[Split]:
        """Splits whose instances meet at barriers of their own."""
        return [s for s in self.splits if _own_barriers(s.items)]

    # ---------------------------------------------------------------------------------------------------------------- pairs
    def pairs(self, may_meet: Callable[[Access, Access], bool], same_place: Callable[[Access, Access, Any], n.Expr],
                 same_value: Callable[[Access, Access, Any], n.Expr]) -> Iterator[OrderedPair]:
        """Every two accesses of one CTA that are to be in an order."""
        accesses = [s for s in self.order.sites if isinstance(s.item, Access)]
        for k, x in enumerate(accesses):
            for y in accesses[k:]:
                a, b = x.item, y.item
                assert isinstance(a, Access) and isinstance(b, Access)
                if of_one_kind(a, b) or not may_meet(a, b):
                    continue
                first, second = self.order.first(x), self.order.second(y)
                holding = (*self._holding(x, lambda e: e), *self._holding(y, second.named))
                if a.buffer != b.buffer:
                    yield OrderedPair(a, b, holding, FALSE, FALSE, second.named)
                    continue
                told = either(self.order.ordered(first, second), self.order.ordered(second, first))
                told = either(told, self._one(first, second))
                yield OrderedPair(a, b, holding, either(opposite(same_place(a, b, second.named)), same_value(a, b, second.named)), told, second.named)

    def _one(self, a: Moment, b: Moment) -> n.Expr:
        """That both are of one execution of a statement, which reads before it writes."""
        if a.site.place.stmt is not b.site.place.stmt or a.site.stack != b.site.stack:
            return FALSE
        return both(*(compared("eq", a.of(v), b.of(v)) for v in a.site.variables()))

    def _holding(self, s: Site, named: Callable[[n.Expr], n.Expr]) -> tuple[Holding, ...]:
        item = s.item
        assert isinstance(item, Access)
        ranges = (Ranging(v, const(0), const(d) if isinstance(d, int) else d) for v, d in item.elements)
        return tuple(replace_names(h, named) for h in (*s.place.holding, *ranges, item.mask))

    # --------------------------------------------------------------------------------------------------------------- coverage
    def filled(self, read: Access) -> bool:
        """Whether some of the writes in flight have filled what an access reads: for every execution of it, the part with an index that it has in common with
        a write that it names (by the round or the group that it waited for), whose other indices go through all of the memory."""
        site = next((s for s in self.order.sites if s.item is read), None)
        shape = [int_value(d) for d in read.buffer.shape]
        if site is None or not read.plain or any(d is None for d in shape):
            return False
        sizes = [int(d) for d in shape if d is not None]
        told = FALSE
        held: list[Holding] = []
        for x in self.order.sites:
            w = x.item
            if isinstance(w, Access) and w.verb == "write" and w.plain and w.root == read.root and w.buffer == read.buffer:
                condition, ranges = self._fills(x, site, sizes)
                told = either(told, condition)
                held += ranges
        return told != FALSE and self.proves((*self._holding(site, lambda e: e), *held), told, read.place)

    def _fills(self, x: Site, y: Site, sizes: list[int]) -> tuple[n.Expr, list[Holding]]:
        """A condition under which a write fills what is read; and ranges of its variables that may have any value."""
        w, r = x.item, y.item
        assert isinstance(w, Access) and isinstance(r, Access)
        told, held = FALSE, list[Holding]()
        for crossing in (False, True):
            common = [v for v in x.stack if v in y.stack and not (crossing and isinstance(v, Split))]
            if crossing and len(common) == len([v for v in x.stack if v in y.stack]):
                break
            condition, more = self._fills_from(x, y, common, sizes, crossing)
            told, held = either(told, condition), held + more
        return told, held

    def _fills_from(self, x: Site, y: Site, common: list[Around], sizes: list[int], crossing: bool) -> tuple[n.Expr, list[Holding]]:
        """The same, of a write in the same trips and, but for `crossing`, by the same instances of what is `common`."""
        w, r = x.item, y.item
        assert isinstance(w, Access) and isinstance(r, Access)
        own = [v for v in x.stack if v not in common and not isinstance(v, Team)]
        bounds = {h.var.name: (int_value(h.lo), int_value(h.hi)) for h in w.place.holding if isinstance(h, Ranging)}
        constant = [v for v in own if isinstance(v, (Loop, Split)) and None not in bounds.get(_var(v).name, (None, None))]
        if any(isinstance(v, Split) and v not in constant for v in own):
            return FALSE, []
        each = _solved(w, {v.name for v in x.variables()} - {_var(v).name for v in constant})
        for by_round in (None, *(v for v in reversed(constant) if isinstance(v, Loop))):
            free: dict[str, range] = {v.name: range(d) for v, d in w.elements if isinstance(d, int) and v.name not in each}
            free |= {_var(v).name: range(*bounds[_var(v).name]) for v in constant if v is not by_round}  # type: ignore[arg-type]  # numbers alone come here
            ranged = [k for k, i in enumerate(w.index) if int_value(i) is None and _numeric(i, free)]
            guards = [h for h in (*w.place.holding, w.mask) if not isinstance(h, Ranging) and names_read(h) & free.keys()]
            if any(not _numeric(h, free) for h in guards):
                continue
            if all(len(v) for v in free.values()) and _everything([w.index[k] for k in ranged], guards, [sizes[k] for k in ranged], free):
                break
        else:
            return FALSE, []
        names = {name: n.Var(f"{name}{APART if crossing else ''}", _dtype(x, w, name)) for name in free}
        loops = [v for v in own if isinstance(v, Loop) and (v is by_round or v not in constant)]
        told = FALSE
        shared_loops = [v for v in common if isinstance(v, Loop)]
        for found in (loops, [*shared_loops[-1:], *loops] if shared_loops and not loops else None):
            for values in self._values(x, y, found) if found is not None else ():
                now: dict[str, n.Expr] = {**{v.name: v for v in x.variables()}, **values, **names}
                moment = self.order.elsewhere(x, now)
                inside = []
                for name, (k, offset, d) in each.items():
                    now[name] = build.sub(r.index[k], moment.named(offset))
                    inside += [compared("ge", now[name], const(0, dtype_of(now[name].type))), compared("lt", now[name], const(d, dtype_of(now[name].type)))]
                moment = self.order.elsewhere(x, now)
                rest = [compared("eq", moment.named(i), j) for k, (i, j) in enumerate(zip(w.index, r.index, strict=True)) if k not in ranged]
                needed = [*(h for h in w.place.holding if not (isinstance(h, Ranging) and h.var.name in free)), w.mask]
                there = both(*(moment.condition(h) for h in needed if h not in guards))
                told = either(told, both(*rest, *inside, there, self.order.ordered(moment, self.order.first(y))))
        ranges: list[Holding] = [Ranging(names[k], const(v.start), const(v.stop)) for k, v in free.items()]
        return told, [*ranges, *(substitute(h, names) for h in guards)]

    def _values(self, x: Site, y: Site, loops: list[Loop]) -> Iterator[dict[str, n.Expr]]:
        """Trips of the loops around a write that may be those of what is read: the outer ones as around the access, the innermost by its round or group."""
        if not loops:
            yield {}
            return
        around = [v.count for v in y.stack if isinstance(v, Loop)]
        outer: dict[str, n.Expr] = {}
        for k, v in enumerate(loops[:-1]):
            outer[v.count.name] = around[k] if k < len(around) else const(0, dtype_of(v.count.of))
        last = loops[-1].count
        first = self.order.elsewhere(x, {**{v.name: v for v in x.variables()}, **outer, last.name: const(0, dtype_of(last.of))})
        for now, begun in self._rounds(first, self.order.first(y)):
            found = build.sub(now, begun)
            yield {**outer, last.name: found if found.type == last.of else build.cast(found, dtype_of(last.of))}

    def _rounds(self, first: Moment, y: Moment) -> Iterator[tuple[n.Expr, n.Expr]]:
        """The newest rounds or groups that an access knows to be over, and that of a write in the first trip of its loop."""
        w = first.site.item
        assert isinstance(w, Access)
        if w.late is not None and w.late.family == "signal":
            begun = self.order.signaled(first)
            waited = self.order.count(y, f"wait {w.late.barrier}")
            ring = self.order.rings.get(w.late.barrier)
            if begun is not None and waited is not None and ring is not None and y.site.key in ring.credit:
                for older in range(min(ring.slots, OLDER)):
                    yield build.sub(waited, const(1 + ring.credit[y.site.key] + older, I64)), begun
        elif w.late is not None:
            begun = self.order.count(first, f"group {w.late.family}")
            for site in self.order.waits:
                assert isinstance(site.item, Sync)
                if begun is None or FAMILY_OF[site.item.fn] != w.late.family or site.item.number is None:
                    continue
                common = {v.name: v for v in y.site.variables()}
                if any(v.name not in common for v in site.variables()):
                    continue
                now = self.order.counts.at[id(site.item)].get(f"group {w.late.family}")
                if now is None:
                    continue
                for older in range(OLDER):
                    yield build.sub(now, const(int(int_value(site.item.number) or 0) + 1 + older, I64)), begun


def _solved(w: Access, moving: set[str]) -> dict[str, tuple[int, n.Expr, int]]:
    """Elements of a write that an index determines, being added once to what its instance and trip are: the axis, what is added, and how many there are."""
    out: dict[str, tuple[int, n.Expr, int]] = {}
    for v, d in w.elements:
        at = [k for k, i in enumerate(w.index) if v.name in names_read(i)]
        if isinstance(d, int) and len(at) == 1 and v.name not in names_read(w.mask) and names_read(w.index[at[0]]) & moving:
            i = w.index[at[0]]
            offset = build.sub(i, v if v.type == i.type else build.cast(v, dtype_of(i.type)))
            if v.name not in names_read(offset):
                out[v.name] = (at[0], offset, d)
    return out


def _var(v: Loop | Split) -> n.Var:
    return v.count if isinstance(v, Loop) else v.var


def _dtype(x: Site, w: Access, name: str) -> Any:
    return next(v.of for v in (*x.variables(), *(e for e, _ in w.elements)) if v.name == name)


def _numeric(e: n.Expr, free: Mapping[str, range]) -> bool:
    return names_read(e) <= free.keys() and all(isinstance(x, (n.Var, n.Const, n.Binary, n.Unary, n.Cast)) for x in walk(e))


def _everything(index: list[n.Expr], guards: list[n.Expr], sizes: list[int], free: Mapping[str, range]) -> bool:
    """Whether indices go through all of some dimensions as their variables go through theirs, where conditions on these hold."""
    names = [k for k in free if any(k in names_read(i) for i in (*index, *guards))]
    if np.prod([len(free[k]) for k in names], dtype=np.float64) > MOST_ELEMENTS:
        return False
    at = {k: np.arange(free[k].start, free[k].stop).reshape((-1,) + (1,) * (len(names) - 1 - j)) for j, k in enumerate(names)}
    found = [f for i in (*index, *guards) if (f := numbers(i, at)) is not None]
    if len(found) < len(index) + len(guards):
        return False
    spread = np.broadcast_arrays(np.ones((1,) * len(names), np.bool_), *found)
    inside = np.logical_and.reduce([spread[0], *spread[1 + len(index):]])
    for f, d in zip(spread[1:], sizes, strict=False):
        inside = inside & (f >= 0) & (f < d)
    hit = np.zeros(sizes, np.bool_)
    hit[tuple(f[inside] for f in spread[1:1 + len(index)])] = True
    return bool(hit.all()) and bool(inside.any())


def _all(items: tuple[Item, ...]) -> Iterator[Item]:
    for i in items:
        yield i
        if isinstance(i, (Loop, Split, Team)):
            yield from _all(i.items)
        elif isinstance(i, Branch):
            for arm in i.arms:
                yield from _all(arm)


def _own_barriers(items: tuple[Item, ...]) -> list[Barrier]:
    """Barriers that no inner split holds."""
    out: list[Barrier] = []
    for i in items:
        if isinstance(i, Barrier):
            out.append(i)
        elif isinstance(i, Loop):
            out += _own_barriers(i.items)
        elif isinstance(i, Branch):
            out += [b for arm in i.arms for b in _own_barriers(arm)]
    return out


def _statements(body: n.Block) -> Iterator[n.Stmt]:
    from kir.ir.visit import statements
    return statements(body)


Status = Literal["proved", "open"]
__all__ = ["OrderedPair", "Overlap", "substitute"]
