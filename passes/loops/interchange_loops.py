"""Runs the outer of two nested loops that fold into a scalar as the inner one.

pipeline: `interchange-loops{out=tap}@main/channel`

```diff
 kir 1
 program filtered
   size C: i32
   size T: i32
   in X: f32[C, T + 2]
   in W: f32[C, 3]
   out Y: f32[T]
 kernel main grid (t: T) threads 1
   register acc: f32 = 0.0
-  @channel for c in 0..C
-    for tap in 0..3
+  @channel for tap in 0..3
+    for c in 0..C
       acc = acc + W[c, tap] * X[c, t + tap]
   Y[t] = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.ir.visit import names_read, statements
from kir.rewrite import Found, Miss, Pass, Path, Place, Rewritten, Site
from kir.rewrite.match import edited, is_counted, node_as
from kir.rewrite.match.exchange import accumulation


@dataclass(frozen=True)
class InterchangeLoops(Pass):
    """`out` is the counter of the loop that comes outside."""

    intent: ClassVar[str] = "loop-interchange"
    catalogue: ClassVar[tuple[int, ...]] = (33,)
    claim: ClassVar[str] = "The long loop is the one that tiles and panels are made of, and what it reads along it is read in a row."
    numerics: ClassVar[str] = "reassociated(k)"

    out: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At two nested loops that do nothing but fold values into a scalar which these do not depend on, each as often as the other's counter may be."""
        return self._at(path, node, forward=True)

    def _at(self, path: Path, node: Place, forward: bool) -> Found:
        if not is_counted(node, of=I32, plain=True) or len(node.body) != 1 or not is_counted(inner := node.body[0], of=I32, plain=True):
            return None
        name = inner.var.name if forward else node.var.name
        if self.out not in ("", name):
            return Miss(f"'{name}' is the counter")
        if node.var.name in names_read(inner.hi):
            return Miss("how often the inner loop runs depends on the outer one")
        into = {s.at.buffer for s in statements(inner.body) if isinstance(s, n.Store) and not s.at.index and s.at.buffer.space == "register"}
        if not any(accumulation(node, b) is not None for b in into):
            return Miss("the loops do more than fold values into one scalar")
        return Site(path, replace(self, out=name))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The inner loop outside; where each stands keeps its label."""
        outer = node_as(program, site.path, n.For)
        inner = outer.body[0]
        assert isinstance(inner, n.For)
        return edited(program, site.path, (replace(inner, label=outer.label, body=(replace(outer, label=inner.label, body=inner.body),)),))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the same form, of which the outer loop is the one that came outside."""
        return self._at(path, node, forward=False)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The outer loop inside."""
        return self.optimize(program, site)
