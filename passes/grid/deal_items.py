"""Counts the items of a grid in other loops: in pieces, by number, or in the order in which threads are to take them.

pipeline: `deal-items{counts=[128,4,4] place=["turn0 // 16 * 4 + turn1", "turn0 % 16 * 4 + turn2"]}@main/rows`

```diff
 kir 1
 program doubled
   in X: f32[M, 64]
   out Y: f32[M, 64]
   size M: i32
 kernel main grid (b: M // 32) threads 1
-  @rows for r in 0..32
-    for c in 0..64
-      Y[b * 32 + r, c] = X[b * 32 + r, c] * 2.0
+  @rows for turn in 0..128
+    for turn_1 in 0..4
+      for turn_2 in 0..4
+        Y[b * 32 + turn // 16 * 4 + turn_1, turn % 16 * 4 + turn_2] = X[b * 32 + turn // 16 * 4 + turn_1, turn % 16 * 4 + turn_2] * 2.0
```
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kir.analysis.integers.integer_sums import Terms, in_sums, replaced
from kir.analysis.loops.loop_nest import counters, reach, renamed
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, dtype_of
from kir.ir.visit import names_read, statements, substitute
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import node_at
from kir.rewrite.match import counting, edited, fresh_var, is_counted, matched_as, names_at, node_as, params_as
from kir.rewrite.match.independence import independent, order_free
from kir.rewrite.view import expression_at, text_of

from .deal_rows import rows_and_columns

MOST_LOOPS = 5
"""Loops around each other that are looked at."""


def _item(site: Site) -> DealItems:
    return params_as(site, DealItems)


def _each_once(program: n.Program, site: Site, context: Context) -> Verdict:
    item = _item(site)
    turns, place = item.turns(), item.places(program, site.path)
    shape = _shape(node_at(program, site.path), len(place)) or ()
    found = reach([("serial", v, count) for v, count in zip(turns, item.counts, strict=True)], place)
    if isinstance(found, str):
        return unknown(found)
    if any(found.low) or tuple(b + 1 for b in found.high) != shape:
        return refuted("the loops leave the grid of items, or stop short of it",
                       f"places from {list(found.low)} to {list(found.high)}, and {list(shape)} items", needs="the places of all items")
    if found.missed is not None or math.prod(item.counts) != math.prod(shape):
        what = f"item {list(found.missed)} is never reached" if found.missed is not None else f"{math.prod(item.counts)} turns for {math.prod(shape)} items"
        return refuted("the loops do not come to each item once", what, needs="one turn for each item")
    return proved("each item has one turn (counted out)")


def _any_order(program: n.Program, site: Site, context: Context) -> Verdict:
    path, s = site.path, node_at(program, site.path)
    for _ in _item(site).place:
        assert isinstance(s, n.For)
        for rule in (independent, order_free):
            verdict = rule(program, path, s)
            if not verdict:
                return verdict
        path, s = (*path, "body", 0), s.body[0]
    return proved("each item writes places of its own")


@dataclass(frozen=True)
class DealItems(Pass):
    """`counts` are the lengths of the loops, outermost first; `place` the item's place along each axis, in their counters `turn0`, `turn1`, .. ."""

    intent: ClassVar[str] = "partition-rows"
    catalogue: ClassVar[tuple[int, ...]] = (47, 16, 52)
    claim: ClassVar[str] = "Items come in the order and in the pieces that suit whoever is to work on them."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P923", "validity", "shape", "the loops come to each item once, and to nothing else", _each_once),
        Precondition("KIR-P924", "validity", "aliasing", "no item touches what another one writes", _any_order))

    counts: tuple[int, ...] = ()
    place: tuple[str, ...] = ()

    def turns(self) -> tuple[n.Var, ...]:
        """The counters as texts name them."""
        return counters(len(self.counts), "turn")

    def places(self, program: n.Program, path: Path) -> list[n.Expr]:
        """The item's place along each axis."""
        found = [expression_at(program, path, text, self.turns()) for text in self.place]
        return [e for e in found if e is not None and e.type == I32 and names_read(e) <= {v.name for v in self.turns()}]

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At loops around nothing else, as many as there are axes; which loops take their place is given."""
        if not (self.counts and self.place and isinstance(node, n.For)):
            return None
        if len(self.places(program, path)) != len(self.place) or min(self.counts) < 2:
            return Miss("the places are none, or there are loops of one turn")
        if _shape(node, len(self.place)) is None:
            return Miss(f"there are not {len(self.place)} loops of literal lengths around nothing else")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Loops over the turns."""
        s, place = node_at(program, site.path), self.places(program, site.path)
        label = s.label if isinstance(s, n.For) else None
        taken = names_at(program, site.path)
        turns = [fresh_var("turn", taken) for _ in self.counts]
        values: dict[str, n.Expr] = {}
        body: n.Block = ()
        for e in place:
            assert isinstance(s, n.For)
            values[s.var.name] = renamed(e, self.turns(), turns)
            body = s.body
            s = body[0]
        body = tuple(substitute(x, values) for x in body)
        return edited(program, site.path, _around(turns, self.counts, body, label))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At loops of literal lengths around each other whose counters only tell places along the axes of what is stored."""
        if not _is_plain(node) or not isinstance(node, n.For) or isinstance(rows_and_columns(node, "%row", "%column"), n.For):
            return None
        out = []
        for depth in range(len(_lengths(node)), 0, -1):
            for parts in _parts(node, depth):
                made = _Axes.of(node, depth, parts)
                if made is not None:
                    item = DealItems(made.counts, tuple(text_of(renamed(e, made.loops, counters(depth, "turn"))) for e in made.place))
                    out.append(Site(path, item, {"axes": made}))
        return tuple(out) or Miss("its counters are more than places along the axes of what is stored")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop for each axis."""
        axes, node = matched_as(site.captures["axes"], _Axes), node_as(program, site.path, n.For)
        taken = names_at(program, site.path)
        names = [fresh_var("item", taken) for _ in axes.place]
        body = tuple(substitute(s, dict(zip(axes.names, names, strict=True))) for s in axes.body)
        return edited(program, site.path, _around(names, axes.shape, body, node.label))


@dataclass(frozen=True)
class _Axes:
    """Loops as a grid: their counters and lengths, the place along each axis in terms of them, its extent, and the body for the item at `names`."""

    loops: tuple[n.Var, ...]
    counts: tuple[int, ...]
    place: tuple[n.Expr, ...]
    shape: tuple[int, ...]
    names: tuple[str, ...]
    body: n.Block

    @staticmethod
    def of(node: n.For, depth: int, parts: tuple[Terms, ...]) -> _Axes | None:
        """The grid along given axes; None where the loops count something else, or these axes in the same way already."""
        loops, counts, s = list[n.Var](), list[int](), n.For(node.var, node.lo, node.hi, node.step, (node,))
        for _ in range(depth):
            inner = matched_as(s.body[0], n.For)
            s = inner
            loops.append(s.var)
            counts.append(build.int_value(s.hi) or 0)
        place = tuple(build.from_polynomial(p, I32) for p in parts)
        found = reach([("serial", v, c) for v, c in zip(loops, counts, strict=True)], place)
        if place == tuple(loops) or isinstance(found, str) or any(found.low) or found.missed is not None:
            return None
        shape = tuple(b + 1 for b in found.high)
        if math.prod(shape) != math.prod(counts) or min(shape) < 2:
            return None
        names = tuple(f"%item{k}" for k in range(len(parts)))
        body = tuple(_in_places(x, parts, names) for x in s.body)
        if any(names_read(x) & {v.name for v in loops} for x in body):
            return None
        return _Axes(tuple(loops), tuple(counts), place, shape, names, body)


def _in_places(s: n.Stmt, parts: tuple[Terms, ...], names: tuple[str, ...]) -> n.Stmt:
    def change(terms: Terms) -> Terms | None:
        return replaced(terms, [(p, n.Var(name, I32)) for p, name in zip(parts, names, strict=True)])
    made = matched_as(in_sums(s, change), n.Stmt)
    return made


def _parts(node: n.For, depth: int) -> Iterator[tuple[Terms, ...]]:
    """What the counters of the outermost `depth` loops add to the indices of a store: for each store, one sum for each index that moves."""
    body: n.Block = (node,)
    own: set[str] = set()
    for _ in range(depth):
        s = body[0]
        assert isinstance(s, n.For)
        own.add(s.var.name)
        body = s.body
    seen: list[tuple[Terms, ...]] = []
    for x in statements(body):
        at = x.at if isinstance(x, n.Store) and x.at.buffer.shape else next(
            (a for a in x.call.args if isinstance(a, n.Region)), None) if isinstance(x, n.Eval) else None
        moving = tuple(p for i in (at.index if at is not None else ()) if isinstance(i, n.Expr) and i.type == I32 and (
            p := {m: c for m, c in build.polynomial(i).items() if any(names_read(a) & own for a in m)}))
        if moving and moving not in seen:
            seen.append(moving)
            yield moving


def _is_plain(s: Place | n.Stmt) -> bool:
    """Whether a statement is a serial loop from 0 by 1 of literal length."""
    return is_counted(s, plain=True) and (
        build.int_value(s.hi) or 0) > 1 and dtype_of(s.var.type) == I32


def _lengths(s: Place | n.Stmt) -> tuple[int, ...]:
    """The lengths of loops of literal lengths around nothing else."""
    out: list[int] = []
    while _is_plain(s) and isinstance(s, n.For) and len(out) < MOST_LOOPS:
        out.append(build.int_value(s.hi) or 0)
        if len(s.body) != 1:
            break
        s = s.body[0]
    return tuple(out)


def _shape(s: Place, axes: int) -> tuple[int, ...] | None:
    """The lengths of as many loops around nothing else as there are axes."""
    found = _lengths(s)
    return found[:axes] if len(found) >= axes else None


def _around(names: list[n.Var], counts: tuple[int, ...], body: n.Block, label: str | None) -> n.Block:
    for v, count in zip(reversed(names), reversed(counts), strict=True):
        body = (counting(v, count, body),)
    outer = matched_as(body[0], n.For)
    return (replace(outer, label=label),)
