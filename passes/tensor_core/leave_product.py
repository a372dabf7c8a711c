"""Leaves a product of tiles that no tensor core takes to the surface's compiler, which makes fused multiply-adds of it.

pipeline: `leave-product@main/product`

```diff
 kir 1
 program product
   in A: f32[64, 64]
   in B: f32[64, 64]
   out C: f32[64, 64]
 kernel main grid (i: 1) threads 128
   fragment acc: f32[64, 64] = 0.0
   let a = A
   let b = B
-  @product mma acc += a * b via fma
+  @product mma acc += a * b
   C = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.target.legalize import TENSOR_CORE_PAIRS
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import F32, dtype_of
from kir.rewrite.base import Context, Effect, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.match import edited, node_as
from kir.rewrite.precondition import Verdict, proved, refuted


def _multiplied(program: n.Program, site: Site, context: Context) -> Verdict:
    s = node_as(program, site.path, n.Mma)
    a, b, acc = dtype_of(s.a.type), dtype_of(s.b.type), s.acc.buffer.dtype
    if a == b == acc == F32:
        return proved("compilers of tiles make fused multiply-adds of a product of f32 that asks for no less precision")
    return refuted(f"no compiler of tiles makes multiply-adds of {a} x {b} -> {acc}", f"operands of dtype {a} and {b}, accumulator {acc}",
                   needs="operands and an accumulator of f32")


@dataclass(frozen=True)
class LeaveProduct(Pass):
    """Triton's `tl.dot` of f32 with `input_precision="ieee"`, and TileLang's `T.gemm` of f32."""

    intent: ClassVar[str] = "register-tile"
    catalogue: ClassVar[tuple[int, ...]] = (37,)
    claim: ClassVar[str] = "A compiler that knows its registers chooses the shape of each thread's part of a product."
    numerics: ClassVar[str] = "reassociated(k)"
    requires: ClassVar[tuple[str, ...]] = ("panels",)
    provides: ClassVar[tuple[str, ...]] = ("mma",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P954", "validity", "dtype", "compilers of tiles multiply and add the dtypes without tensor cores", _multiplied),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a product on the scalar units whose operands no tensor core takes as they are."""
        if not (isinstance(node, n.Mma) and node.via == "fma" and node.precision == "ieee"):
            return None
        if dtype_of(node.a.type) == dtype_of(node.b.type) and node.acc.buffer.dtype in TENSOR_CORE_PAIRS.get(dtype_of(node.a.type), frozenset()):
            return Miss("tensor cores take it: mma")
        return Site(path, self)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a product of f32 that is left to a compiler, and complete where it stands."""
        if not (isinstance(node, n.Mma) and node.via == "auto" and node.precision == "ieee" and dtype_of(node.a.type) == F32):
            return None
        return Miss("the product is still pending at its end") if node.pending else Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The same product, as the compiler makes it."""
        return edited(program, site.path, (replace(node_as(program, site.path, n.Mma), via="auto"),))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The same product by fused multiply-adds of tiles."""
        return edited(program, site.path, (replace(node_as(program, site.path, n.Mma), via="fma"),))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """Flops stay; so do the units."""
        return Effect(flops=0)
