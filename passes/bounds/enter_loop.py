"""Says of a loop over products that it runs at least once, as is known of it.

A compiler that does not know writes a way around the loop, on which the sum is set to zero beside products that are under way; nvcc's assembler then
waits for each product before it begins the next (C7515), where it would wait for those of a round together.

pipeline: `enter-loop@main/k`

```diff
 kir 1
 program product
   size K: i32
   in A: f16[64, K]
   in B: f16[K, 64]
   out C: f32[64, 64]
   fact K >= 1
 kernel main grid (i: 1) threads 128
   fragment acc: f32[64, 64] = 0.0
-  @k for k in 0..ceildiv(K, 16)
+  @k for k in 0..max(ceildiv(K, 16), 1)
     let a = A[0 +: 64, k * 16 +: 16]
     let b = B[k * 16 +: 16, 0 +: 64]
     mma acc += a * b
   C = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, TypeGuard

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.types import I32
from kir.rewrite import Context, Found, Pass, Path, Place, Precondition, Rewritten, Site, Verdict
from kir.rewrite.match import edited, is_counted, node_as
from kir.rewrite.precondition import decided


def _runs(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether the loop has an iteration."""
    loop = node_as(program, site.path, n.For)
    return decided(build.compare("ge", loop.hi, 1), Facts.at(program, site.path), "the loop runs at least once",
                   f"{expr_text(loop.hi)} iterations may be none")


@dataclass(frozen=True)
class EnterLoop(Pass):
    """No parameters."""

    intent: ClassVar[str] = "pipeline"
    catalogue: ClassVar[tuple[int, ...]] = (17,)
    claim: ClassVar[str] = "Products of a round are begun one behind the other, and waited for together."
    requires: ClassVar[tuple[str, ...]] = ("mma",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (Precondition("KIR-P987", "validity", "shape", "the loop runs at least once", _runs),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a counted loop over products whose end is no number."""
        return Site(path, self) if _over_products(node) and not isinstance(node.hi, n.Const) and _entered(node.hi) is None else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """No fewer than one iteration."""
        loop = node_as(program, site.path, n.For)
        return edited(program, site.path, (replace(loop, hi=build.maximum(loop.hi, 1)),))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At such a loop of no fewer than one iteration."""
        return Site(path, self) if _over_products(node) and _entered(node.hi) is not None else None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """As many iterations as there are."""
        loop = node_as(program, site.path, n.For)
        end = _entered(loop.hi)
        assert end is not None
        return edited(program, site.path, (replace(loop, hi=end),))


def _over_products(node: Place) -> TypeGuard[n.For]:
    """Whether a place is a counted loop with a product of matrices in an iteration."""
    return is_counted(node, ("serial", "pipelined"), I32) and any(isinstance(s, n.Mma) for s in node.body)


def _entered(end: n.Expr) -> n.Expr | None:
    """Of the end of a loop that runs at least once: how many iterations there are."""
    if not isinstance(end, n.Binary) or end.op != "max":
        return None
    return next((x for x, one in ((end.a, end.b), (end.b, end.a)) if build.is_const(one, 1)), None)


__all__ = ["EnterLoop"]
