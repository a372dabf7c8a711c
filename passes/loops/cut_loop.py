"""Runs through a loop in pieces of a fixed length, the last of which is as short as it comes.

pipeline: `cut-loop{extent=16}@main/k`

```diff
 kir 1
 program last_largest
   in X: f32[M, N]
   out S: f32[M]
   size M: i32
   size N: i32
 kernel main grid (row: M) threads 1
   register s: f32 = 0.0
-  @k for k in 0..N
-    s = max(s * 0.5, X[row, k])
+  @k for k_tile in 0..ceildiv(N, 16)
+    for i in 0..min(N - k_tile * 16, 16)
+      s = max(s * 0.5, X[row, k_tile * 16 + i])
   S[row] = s
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
from kir.ir.visit import names_read, statements, substitute
from kir.rewrite import Found, Miss, Pass, Path, Place, Rewritten, Site
from kir.rewrite.edit import element_name, kernel_of, names_in, tile_name
from kir.rewrite.match import counting, edited, fresh_var, is_counted, matched, names_at, node_as


@dataclass(frozen=True)
class CutLoop(Pass):
    """`extent` iterations in a piece. Their order stays as it is, so that nothing is asked of them."""

    intent: ClassVar[str] = "unroll"
    catalogue: ClassVar[tuple[int, ...]] = (52,)
    claim: ClassVar[str] = "Pieces of a fixed length can be staged, whatever is left at the end."
    least: ClassVar[Mapping[str, int]] = {"extent": 2}

    extent: int = 32

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop from 0 by 1 to what no literal says, which nothing leaves early."""
        if not is_counted(node, of=I32, plain=True) or self.extent < 2:
            return None
        if build.int_value(node.hi) is not None:
            return Miss("its length is a literal")
        if any(isinstance(s, n.Jump) and s.kind in ("break", "continue") for s in statements(node.body)):
            return Miss("an iteration may leave it")
        if _piece(node) is not None:
            return Miss("it runs through pieces already")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the pieces, and one through each."""
        loop, taken = node_as(program, site.path, n.For), names_in(program, kernel_of(program, site.path))
        tile, i = fresh_var(tile_name(loop.var.name), taken), fresh_var("i", taken)
        first = build.mul(tile, self.extent)
        inner = counting(i, build.binary("min", build.sub(loop.hi, first), build.const(self.extent)),
                         tuple(substitute(s, {loop.var.name: build.add(first, i)}) for s in loop.body))
        return edited(program, site.path, (replace(loop, var=tile, hi=build.ceildiv(loop.hi, self.extent), body=(inner,)),))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over pieces, of which each but the last is of one length."""
        if not is_counted(node, of=I32, plain=True):
            return None
        found = _piece(node)
        if found is None:
            return None
        if any(isinstance(s, n.Jump) and s.kind in ("break", "continue") for s in statements(node.body)):
            return Miss("an iteration may leave its piece")
        return Site(path, CutLoop(found[0]))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop."""
        loop = node_as(program, site.path, n.For)
        extent, end, inner = matched(_piece(loop))
        k = fresh_var(element_name(loop.var.name), names_at(program, site.path))
        body = tuple(substitute(s, {inner.var.name: build.sub(k, build.mul(loop.var, extent))}) for s in inner.body)
        return edited(program, site.path, (replace(loop, var=k, hi=end, body=body),))


def _piece(loop: n.For) -> tuple[int, n.Expr, n.For] | None:
    """How long a piece is, where the last one ends, and the loop through one, of a loop over pieces."""
    inner = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(inner, n.For) or not is_counted(inner, of=I32, plain=True) or not isinstance(inner.hi, n.Binary) or inner.hi.op != "min":
        return None
    least, extent = (inner.hi.b, build.int_value(inner.hi.a)) if isinstance(inner.hi.a, n.Const) else (inner.hi.a, build.int_value(inner.hi.b))
    if extent is None or extent < 2:
        return None
    end = build.add(least, build.mul(loop.var, extent))
    if loop.var.name in names_read(end) or loop.hi != build.ceildiv(end, extent):
        return None
    first = build.mul(loop.var, extent)
    moved = tuple(substitute(s, {inner.var.name: build.sub(build.var("%k"), first)}) for s in inner.body)
    return None if any(loop.var.name in names_read(s) for s in moved) else (extent, end, inner)


__all__ = ["CutLoop"]
