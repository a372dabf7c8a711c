"""Runs a loop in whole pieces of a fixed length, and what is left of it behind them, one after another.

pipeline: `split-remainder{extent=4}@main/items`

```diff
 kir 1
 program scale
   in X: f32[N]
   out Y: f32[N]
   size N: i32
   fact N >= 0
 kernel main grid () threads 1
-  @items for i in 0..N
-    Y[i] = X[i] * 2.0
+  @items for i in 0..N // 4
+    for i_1 in 0..4
+      Y[i * 4 + i_1] = X[i * 4 + i_1] * 2.0
+  for i_2 in 0..N % 4
+    Y[N // 4 * 4 + i_2] = X[N // 4 * 4 + i_2] * 2.0
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis.facts import Facts
from kir.analysis.integers.integer_sums import Terms, in_sums, replaced
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.types import I32
from kir.ir.visit import names_read, statements, substitute
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict
from kir.rewrite.edit import block_at
from kir.rewrite.match import counting, edited, fresh_names, fresh_var, is_counted, names_at, node_as
from kir.rewrite.precondition import decided

Left = Literal["mod", "rest"]
LEFT: tuple[Left, ...] = ("mod", "rest")


def _counts(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    return decided(build.compare("ge", loop.hi, 0), Facts.at(program, site.path), "the loop ends at 0 or later",
                   "where the loop ends below 0, what is left of whole pieces is above it", needs="a fact that the end is at least 0")


@dataclass(frozen=True)
class SplitRemainder(Pass):
    """`extent` iterations in a piece; `left` is how the number of those that are left is written: as the remainder, or as what whole pieces leave."""

    intent: ClassVar[str] = "specialize-tail"
    catalogue: ClassVar[tuple[int, ...]] = (53, 52)
    claim: ClassVar[str] = "Pieces are whole, so that each can be moved at once, and nothing in them asks for the end."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P931", "validity", "shape", "the loop does not end below 0", _counts),)

    extent: int = 4
    left: Left = "mod"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop from 0 by 1 of a length that is not known."""
        if not is_counted(node, of=I32, plain=True) or self.extent < 2:
            return None
        if build.int_value(node.hi) is not None:
            return Miss("its length is a literal")
        if any(isinstance(s, n.Jump | n.Opaque | n.Alloc) for s in statements(node.body)):
            return Miss("its body leaves early, declares memory, or is not understood")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the pieces, and one over what is left."""
        loop = node_as(program, site.path, n.For)
        taken = names_at(program, site.path)
        v, r = (fresh_var(loop.var.name, taken) for _ in range(2))
        pieces = build.floordiv(loop.hi, self.extent)
        inner = counting(v, self.extent, _at(loop.body, loop.var, build.add(build.mul(loop.var, self.extent), v)))
        body = rename(counting(r, self._rest(loop.hi), _at(loop.body, loop.var, build.add(build.mul(pieces, self.extent), r))),
                      fresh_names(loop.body, taken), labels=False)
        return edited(program, site.path, (replace(loop, hi=pieces, body=(inner,)), body))

    def _rest(self, hi: n.Expr) -> n.Expr:
        """How many iterations whole pieces leave."""
        return build.mod(hi, self.extent) if self.left == "mod" else build.sub(hi, build.mul(build.floordiv(hi, self.extent), self.extent))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over pieces that is followed by the same over what they leave."""
        block, i = (block_at(program, path), int(path[-1])) if is_counted(node, of=I32, plain=True) else ((), 0)
        inner = node.body[0] if isinstance(node, n.For) and len(node.body) == 1 else None
        rest = block[i + 1] if i + 1 < len(block) else None
        if not (isinstance(node, n.For) and is_counted(inner, of=I32, plain=True) and is_counted(rest, of=I32, plain=True)):
            return None
        extent = build.int_value(inner.hi)
        if extent is None or not (isinstance(node.hi, n.Binary) and node.hi.op == "floordiv" and build.int_value(node.hi.b) == extent):
            return None
        for left in LEFT:
            item = SplitRemainder(extent, left)
            if rest.hi == item._rest(node.hi.a):
                whole = fresh_var(node.var.name, names_at(program, path))
                one = _counted(inner.body, build.add(build.mul(node.var, extent), inner.var), whole)
                two = _counted(rest.body, build.add(build.mul(node.hi, extent), rest.var), whole)
                two = tuple(rename(s, dict(zip(bound_names(two), bound_names(one), strict=False))) for s in two)
                if one != two or any(names_read(s) & {node.var.name, inner.var.name, rest.var.name} for s in one):
                    return Miss("what is left is not treated as the pieces are")
                return Site(path, item, {"made": replace(node, var=whole, hi=node.hi.a, body=one)})
        return Miss("the loop behind it does not run over what the pieces leave")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop over all."""
        made = site.captures["made"]
        return edited(program, site.path, (made,), 0, 2)


def _at(body: n.Block, var: n.Var, place: n.Expr) -> n.Block:
    return tuple(substitute(s, {var.name: place}) for s in body)


def _counted(body: n.Block, place: n.Expr, var: n.Var) -> n.Block:
    """A body in which a variable stands for a place."""
    part = build.polynomial(place)

    def change(terms: Terms) -> Terms | None:
        return replaced(terms, ((part, var),))
    return tuple(in_sums(s, change) for s in body)  # type: ignore[misc]  # statements stay statements
