"""Splits both f32 operands of a product in two parts that tensor cores take: three products in tf32 stand for one in f32.

pipeline: `split-operands@main/product`

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
+  @product mma acc += a * b via fma precision tf32x3
   C = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import F32, dtype_of
from kir.rewrite import Found, Miss, Pass, Path, Place, Rewritten, Site
from kir.rewrite.match import edited, node_as


@dataclass(frozen=True)
class SplitOperands(Pass):
    """No parameters. An operand is the sum of what tf32 has of it and of what tf32 has of the rest, which is right to 22 bits of its 24; of the four products
    the one of both rests is left out, which is as small (Ootomo and Yokota, Recovering single precision accuracy from Tensor Cores, 2022)."""

    intent: ClassVar[str] = "mma"
    catalogue: ClassVar[tuple[int, ...]] = (37,)
    claim: ClassVar[str] = "Tensor cores do three products in tf32 sooner than the scalar units do one in f32, which is hardly more exact."
    numerics: ClassVar[str] = "rounding-moved(operand)"
    walked: ClassVar[bool] = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a product on the scalar units of two f32 operands."""
        if not (isinstance(node, n.Mma) and node.via == "fma" and node.precision == "ieee"):
            return None
        if {dtype_of(node.a.type), dtype_of(node.b.type), node.acc.buffer.dtype} != {F32}:
            return Miss("its operands and its sum are not all f32")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The same product, of operands in two parts."""
        return edited(program, site.path, (replace(node_as(program, site.path, n.Mma), precision="tf32x3"),))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a product on the scalar units whose operands are split."""
        split = isinstance(node, n.Mma) and node.via == "fma" and node.precision == "tf32x3" and dtype_of(node.a.type) == F32
        return Site(path, self) if split else None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The product of the operands as they are."""
        return edited(program, site.path, (replace(node_as(program, site.path, n.Mma), precision="ieee"),))
