"""The grid in plain words: an axis of one CTA leaves, and a loop over what a CTA's tile holds is one with the axis of tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations

from kir.analysis.facts import Facts
from kir.analysis.normal.normal_form import is_pure
from kir.faces.plain.loops import ends_of, is_serial, parted, whole
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import I32, DType
from kir.ir.visit import names_read, substitute, walk

ORDERLESS = frozenset({"atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor"})
"""Atomic operations of which no one sees in which order they were made."""

MOST_AXES = 3
DEEP = 3
"""Quotients of quotients that are looked at."""


def without_units(k: n.Kernel) -> n.Kernel:
    """The kernel without axes of one CTA, but for one where all are."""
    units = {a.name: build.const(0, I32) for a in k.grid if build.int_value(a.extent) == 1}
    if not units or k.cluster:
        return k
    left = tuple(a for a in k.grid if a.name not in units) or k.grid[:1]
    return replace(k, grid=left, body=tuple(substitute(s, units) for s in k.body))


def flattened(k: n.Kernel, known: Facts, fresh: Callable[[str], str], aliased: bool) -> n.Kernel:
    """The kernel with one axis and one loop of its outermost nest made one; itself where none are."""
    if aliased or len(k.body) != 1 or k.cluster:
        return k
    for axis in k.grid:
        outer = n.Var(axis.name, I32)
        for depth, loop in enumerate(_nest(k.body)):
            if (made := whole(outer, loop, axis.extent, _outside(k.body, depth), known, fresh)) is None:
                continue
            var, end, body = made
            if _apart(body, var.name):
                grid = tuple(n.Axis(var.name, end) if a == axis else a for a in k.grid)
                return replace(k, grid=grid, body=body)
    return k


def untangled(s: n.For, known: Facts, fresh: Callable[[str], str], aliased: bool) -> n.For:
    """A nest of loops with two of them made one that do not stand in the order of tile and place in the tile, where its rounds are apart; itself where none
    are."""
    nest = list(_nest((s,)))
    counters = {loop.var.name for loop in nest}
    free = [k for k, loop in enumerate(nest) if counters.isdisjoint(names_read(loop.hi))]
    for outer, inner in permutations(free if not aliased and len(nest) > 1 else (), 2):
        first, last = sorted((outer, inner))
        body = _outside(_outside((s,), last), first)
        for _ in range(first):
            body = _inner(body)
        made = whole(nest[outer].var, nest[inner], nest[outer].hi, body, known, fresh)
        if made is not None and _apart(made[2], made[0].name):
            whole_nest = _inside((s,), first, replace(nest[first], var=made[0], hi=made[1], body=made[2]))[0]
            assert isinstance(whole_nest, n.For)
            return whole_nest
    return s


def _inner(body: n.Block) -> n.Block:
    s = body[0]
    assert isinstance(s, n.For)
    return s.body


def divided(k: n.Kernel, known: Facts, fresh: Callable[[str], str]) -> n.Kernel:
    """The kernel with an axis whose counter is only asked for its quotient and its remainder as two axes."""
    for axis in k.grid if len(k.grid) < MOST_AXES and not k.cluster else ():
        made = parted(n.Var(axis.name, I32), axis.extent, k.body, known, fresh)
        if made is not None:
            (q, rounds), (r, each), body = made
            two = n.Axis(r.name, each), n.Axis(q.name, rounds)
            return replace(k, grid=tuple(x for a in k.grid for x in (two if a == axis else (a,))), body=body)
    return k


def shortened(k: n.Kernel, known: Facts) -> n.Kernel:
    """The kernel with axes that go no further than all that it does is guarded by, where each tile that is left out is a CTA that does nothing."""
    for axis in k.grid:
        for end in ends_of(k.body, n.Var(axis.name, I32), axis.extent, known):
            top, now = build.int_value(end), build.int_value(axis.extent)
            if top is not None and now is not None and 0 < top < now:
                return replace(k, grid=tuple(n.Axis(a.name, end) if a == axis else a for a in k.grid))
    return k


def _nest(body: n.Block) -> Iterator[n.For]:
    """The loops of a nest in which each holds the next one alone."""
    while len(body) == 1 and isinstance(s := body[0], n.For) and is_serial(s):
        yield s
        body = s.body


def _outside(body: n.Block, depth: int) -> n.Block:
    """A nest without the loop at a depth."""
    s = body[0]
    assert isinstance(s, n.For)
    return s.body if depth == 0 else (replace(s, body=_outside(s.body, depth - 1)),)


def _inside(body: n.Block, depth: int, loop: n.For) -> n.Block:
    """A nest with another loop at a depth."""
    s = body[0]
    assert isinstance(s, n.For)
    return (loop,) if depth == 0 else (replace(s, body=_inside(s.body, depth - 1, loop)),)


def _apart(body: n.Block, x: str) -> bool:
    """Whether the rounds of `x` touch nothing that another one writes: each place of a tensor that is written is on a line of its own in one axis."""
    spans: dict[str, int | None] = {name: None for name in bound_names(body) if name != x}
    nodes = [s for b in body for s in walk(b)]
    spans |= {s.var.name: build.int_value(s.hi) for s in nodes if isinstance(s, n.For) and is_serial(s)}
    own = {s.buffer.name for s in nodes if isinstance(s, n.Alloc)}
    places: dict[str, list[tuple[n.Expr | n.Span, ...]]] = {}
    for s in nodes:
        if isinstance(s, n.Region) and s.buffer.name not in own:
            places.setdefault(s.buffer.name, []).append(s.index)
    written = {s.at.buffer.name for s in nodes if isinstance(s, n.Store)} - own
    free = [s.call for s in nodes if isinstance(s, n.Eval) and _is_orderless(s.call)]
    added = [r.buffer.name for c in free for r in walk(c.args[0]) if isinstance(r, n.Region)]
    if any(isinstance(s, (n.Copy, n.Mma, n.Opaque, n.Hole)) or (isinstance(s, n.Call) and not is_pure(s) and not any(s is c for c in free)) for s in nodes):
        return False
    if any(isinstance(s, n.View) for s in nodes) and (written or added):
        return False
    if any(name in written or len(places[name]) != added.count(name) for name in added):
        return False
    return all(_on_lines(places[name], x, spans) for name in written)


def _is_orderless(s: n.Call) -> bool:
    of = [x.buffer.dtype for x in walk(s.args[0]) if isinstance(x, n.Region)][:1] if s.fn.startswith("atomic_") else []
    return bool(of) and (s.fn in ORDERLESS or (s.fn == "atomic_add" and of[0].is_integer))


def _on_lines(places: list[tuple[n.Expr | n.Span, ...]], x: str, spans: dict[str, int | None]) -> bool:
    """Whether all places that a round of `x` touches differ from those of every other round: in the same axes all name them by the same expressions, and
    these are of as many values as `x` has."""
    first = places[0]
    same = [i for axis, i in enumerate(first) if isinstance(i, n.Expr) and isinstance(i.type, DType) and all(
        len(p) == len(first) and p[axis] == i for p in places)]
    return _told(n.Var(x, I32), same, spans, DEEP)


def _told(e: n.Expr, by: list[n.Expr], spans: dict[str, int | None], depth: int) -> bool:
    """Whether the value of `e` follows from those of some expressions."""
    if any(_line(i, e, spans) for i in by):
        return True
    divisors = dict.fromkeys(y.b for i in by for y in walk(i) if isinstance(y, n.Binary) and y.op in ("floordiv", "mod") and y.a == e) if depth else {}
    return any(_told(n.Binary("floordiv", e, b), by, spans, depth - 1) and _told(n.Binary("mod", e, b), by, spans, depth - 1) for b in divisors)


def _line(i: n.Expr, e: n.Expr, spans: dict[str, int | None]) -> bool:
    """Whether an index is a multiple of `e`, and beyond it what is the same in each round, or counters that stay below that multiple."""
    left = dict(build.polynomial(i))
    by = left.pop((e,), 0)
    room = abs(by)
    for atoms, c in left.items():
        names = frozenset(name for a in atoms for name in names_read(a))
        if names & names_read(e):
            return False
        if moving := names & spans.keys():
            span = spans[next(iter(moving))]
            if len(atoms) != 1 or not isinstance(atoms[0], n.Var) or span is None:
                return False
            room -= abs(c) * (span - 1)
    return room > 0 and not any(isinstance(y, (n.Load, n.Call)) for y in walk(i))


__all__ = ["divided", "flattened", "shortened", "untangled", "without_units"]
