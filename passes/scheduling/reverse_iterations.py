"""Runs a loop of sums and maxima from its end to its beginning, so that the iterations that need masks come first.

pipeline: `reverse-iterations@main/tiles`

```diff
 kir 1
 program row_sums
   in X: f32[M, N]
   out S: f32[M]
   size M: i32
   size N: i32
 kernel main grid (row: M) threads 1
   register total: f32 = 0.0
   @tiles for j in 0..ceildiv(N, 64)
-    total = total + reduce(load(X[row, j * 64 +: 64] else 0.0 clip), axis=0, op=sum)
+    total = total + reduce(load(X[row, j * -64 + ceildiv(N, 64) * 64 - 64 +: 64] else 0.0 clip), axis=0, op=sum)
   S[row] = total
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.ir.visit import walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict
from kir.rewrite.match import edited, is_counted, node_as
from kir.rewrite.match.sums import sums

from ..loops.split_loop import moved


def _any_order(program: n.Program, site: Site, context: Context) -> Verdict:
    return sums(program, node_as(program, site.path, n.For)).verdict


def _reversed(loop: n.For) -> n.For:
    """The loop whose iteration i does what the i-th from the end did."""
    last = build.sub(build.sub(loop.hi, 1), loop.var)
    return replace(loop, body=tuple(moved(s, loop.var.name, last) for s in loop.body))


def _length(loop: n.For) -> int:
    return sum(1 for s in loop.body for _ in walk(s))


@dataclass(frozen=True)
class ReverseIterations(Pass):
    """No parameters."""

    intent: ClassVar[str] = "reverse-iterations"
    catalogue: ClassVar[tuple[int, ...]] = (33, 53)
    claim: ClassVar[str] = "The iterations at the edge come first, where what begins the loop is done anyway, and all later ones are alike."
    numerics: ClassVar[str] = "reassociated(k)"
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P713", "validity", "numerics", "iterations are sums and maxima, which have no order", _any_order),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop from 0 by 1."""
        if not is_counted(node, of=I32):
            return None
        return Site(path, self) if any(x == node.var for s in node.body for x in walk(s)) else Miss("all iterations are the same")

    def sites(self, program: n.Program) -> Iterator[Site]:
        """Loops that count up."""
        for site in super().sites(program):
            loop = node_as(program, site.path, n.For)
            if _length(_reversed(loop)) > _length(loop):
                yield site

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The last iteration first."""
        return edited(program, site.path, (_reversed(node_as(program, site.path, n.For)),))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that counts down, in what its iterations do."""
        if not is_counted(node, of=I32):
            return None
        back = _reversed(node)
        return Site(path, self) if _length(back) < _length(node) and _reversed(back) == node else None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The first iteration first."""
        return edited(program, site.path, (_reversed(node_as(program, site.path, n.For)),))
