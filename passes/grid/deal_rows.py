"""Deals a grid of rows and columns out in rounds of whole rows: a loop over the places of a round, and one over the rounds inside it.

pipeline: `deal-rows{places=256}@main/rows`

```diff
 kir 1
 program copied
   in X: f32[32, 32]
   out Y: f32[32, 32]
 kernel main grid (b: 1) threads 1
-  @rows for r in 0..32
-    for c in 0..32
-      Y[r, c] = X[r, c]
+  @rows for place in 0..256
+    for i in 0..4
+      Y[i * 8 + place // 32, place % 32] = X[i * 8 + place // 32, place % 32]
```
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.ir.visit import names_read, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved
from kir.rewrite.edit import fresh
from kir.rewrite.match import counting, edited, fresh_var, is_counted, matched, matched_as, names_at, node_as
from kir.rewrite.match.independence import independent
from kir.rewrite.match.sums import in_order


def _any_order(program: n.Program, site: Site, context: Context) -> Verdict:
    rows = node_as(program, site.path, n.For)
    columns = matched_as(rows.body[0], n.For)
    for path, loop in ((site.path, rows), ((*site.path, "body", 0), columns)):
        found = in_order(program, loop, independent(program, path, loop, serial=True))
        if not found:
            return found
    return proved("each row and column writes places of its own")


@dataclass(frozen=True)
class DealRows(Pass):
    """`places` of a round, a multiple of the columns: what so many threads do side by side."""

    intent: ClassVar[str] = "partition-rows"
    catalogue: ClassVar[tuple[int, ...]] = (47,)
    claim: ClassVar[str] = "Each round covers whole rows, so that neighbors of a round are neighbors in memory."
    least: ClassVar[Mapping[str, int]] = {"places": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P479", "validity", "aliasing", "no row or column touches what another one writes", _any_order),)

    places: int = 256

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over rows whose body is a loop over columns, of literal lengths that rounds of whole rows cover exactly."""
        found = _grid(node)
        if found is None:
            return None
        rows, columns = found
        if self.places % columns or (rows * columns) % self.places or self.places in (columns, 1):
            return Miss(f"rounds of {self.places} do not cover {rows} rows of {columns} in whole rows, several at a time")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the places of a round, and inside it one over the rounds, if there are several."""
        rows = node_as(program, site.path, n.For)
        assert isinstance(rows.body[0], n.For)
        columns, found = rows.body[0], matched(_grid(rows))
        height, width = found
        taken = names_at(program, site.path)
        place, i = fresh_var("place", taken), fresh_var("i", taken)
        rounds, step = height * width // self.places, self.places // width
        row = build.floordiv(place, width) if rounds == 1 else build.add(build.mul(i, step), build.floordiv(place, width))
        body = tuple(substitute(s, {rows.var.name: row, columns.var.name: build.mod(place, width)}) for s in columns.body)
        inner: n.Block = body if rounds == 1 else (replace(columns, var=i, hi=build.const(rounds), body=body),)
        made = replace(rows, var=place, hi=build.const(self.places), body=inner)
        return edited(program, site.path, (made,))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over places whose number is only used divided into row and column."""
        if not _plain(node):
            return None
        assert isinstance(node, n.For)
        made = rows_and_columns(node, "%row", "%column")
        if made is None:
            return None
        return made if isinstance(made, Miss) else Site(path, DealRows(build.int_value(node.hi) or 0))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop over all rows, and one over the columns."""
        node = node_as(program, site.path, n.For)
        taken = names_at(program, site.path)
        made = matched_as(rows_and_columns(node, fresh("row", taken), fresh("column", taken)), n.For)
        return edited(program, site.path, (made,))


def _plain(s: Place | n.Stmt) -> bool:
    """Whether a statement is a serial loop from 0 by 1 of literal length."""
    return is_counted(s, plain=True) and (
        build.int_value(s.hi) is not None and s.var.of == I32)


def _grid(s: Place) -> tuple[int, int] | None:
    """(rows, columns) of two loops around the same statements."""
    if not (_plain(s) and isinstance(s, n.For) and len(s.body) == 1 and _plain(s.body[0])):
        return None
    inner = matched_as(s.body[0], n.For)
    return build.int_value(s.hi) or 0, build.int_value(inner.hi) or 0


def rows_and_columns(loop: n.For, row: str, column: str) -> n.For | Miss | None:
    """The loops over rows and columns that a loop over places came from."""
    places = build.int_value(loop.hi) or 0
    widths = {build.int_value(x.b) for x in walk(loop) if isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and x.a == loop.var}
    width = widths.pop() if len(widths) == 1 else None
    if width is None or width < 2 or places % width or width == places:
        return None
    inner = loop.body[0] if len(loop.body) == 1 and _plain(loop.body[0]) else None
    a, b = n.Var(row, I32), n.Var(column, I32)
    rounds, body, whole = 1, loop.body, n.Binary("floordiv", loop.var, build.const(width))
    at: n.Expr = a
    if isinstance(inner, n.For):
        rounds, body = build.int_value(inner.hi) or 0, inner.body
        at = build.sub(a, build.mul(inner.var, places // width))

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if old == whole:
            return at
        return b if old == n.Binary("mod", loop.var, build.const(width)) else new
    made = tuple(transform(s, leave) for s in body)
    left = {loop.var.name} | ({inner.var.name} if isinstance(inner, n.For) else set())
    if any(names_read(s) & left for s in made):
        return Miss("the number of a place is not only used as its row and column")
    columns = counting(b, width, made, label=inner.label if isinstance(inner, n.For) else None)
    return replace(loop, var=a, hi=build.const(rounds * places // width), body=(columns,))
