"""Runs a tile product on tensor cores.

pipeline: `mma@main/mma`

```diff
 kir 1
 program product
   in A: f16[64, 64]
   in B: f16[64, 64]
   out C: f32[64, 64]
 kernel main grid (i: 1) threads 128
   fragment acc: f32[64, 64] = 0.0
   let a = A
   let b = B
-  @mma mma acc += a * b via fma
+  @mma mma acc += a * b
   C = acc
```
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis.target.legalize import TENSOR_CORE_PAIRS
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import F32, dtype_of, shape_of
from kir.rewrite.base import Context, Effect, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import edited, node_as
from kir.rewrite.precondition import Verdict, proved, refuted, unknown

MOST_PRODUCTS = 4096
"""Multiply-adds of one thread in one product, beyond which the scalar form is not proposed: compilers unroll it whole."""


def _products_a_thread(kernel: n.Kernel, s: n.Mma) -> int | None:
    """Multiply-adds that each thread of a kernel does in one product; None where an extent is symbolic."""
    threads = build.int_value(kernel.threads)
    shape = (*shape_of(s.a.type), shape_of(s.b.type)[-1])
    if threads is None or not all(isinstance(d, int) for d in shape):
        return None
    return math.prod(d for d in shape if isinstance(d, int)) // threads


def _policy(s: n.Mma) -> str:
    """How the surface is asked to distribute a product to warps; "" where it is not."""
    return str(dict(s.attrs).get("policy", ""))


def _dtypes(program: n.Program, site: Site, context: Context) -> Verdict:
    s = node_as(program, site.path, n.Mma)
    a, b, acc = dtype_of(s.a.type), dtype_of(s.b.type), s.acc.buffer.dtype
    if a == F32 and s.precision.startswith(("tf32", "bf16")):
        return proved(f"f32 operands run as {s.precision}")
    if a == b and acc in TENSOR_CORE_PAIRS.get(a, frozenset()):
        return proved(f"{a} x {b} -> {acc} is a tensor-core product")
    return refuted(f"there is no tensor-core product {a} x {b} -> {acc}", f"operands of dtype {a} and {b}, accumulator {acc}",
                   needs="f16, bf16, fp8 or i8 operands of one dtype, or precision tf32")


def _tiles(program: n.Program, site: Site, context: Context) -> Verdict:
    s = node_as(program, site.path, n.Mma)
    a, b = shape_of(s.a.type), shape_of(s.b.type)
    m, k, cols = a[-2], a[-1], b[-1]
    if not (isinstance(m, int) and isinstance(k, int) and isinstance(cols, int)):
        return unknown("the tile has a symbolic extent")
    depth = max(8, 256 // dtype_of(s.a.type).bits)
    if m % 16 or cols % 8 or k % depth:
        return refuted(f"the tile {m} x {cols} x {k} is not made of whole 16 x 8 x {depth} products",
                       f"row {m - m % 16} has no full product", needs=f"m a multiple of 16, n of 8, k of {depth}")
    return proved(f"{m} x {cols} x {k} is made of 16 x 8 x {depth} products")


@dataclass(frozen=True)
class TensorCores(Pass):
    """`via` says which instruction it becomes; `auto` leaves that to the target. `policy` is how the surface is asked to distribute it to warps."""

    name: ClassVar[str] = "mma"
    intent: ClassVar[str] = "mma"
    catalogue: ClassVar[tuple[int, ...]] = (37,)
    claim: ClassVar[str] = "Tensor cores do a tile's products in one instruction for 16 x 8 of them."
    numerics: ClassVar[str] = "reassociated(k)"
    requires: ClassVar[tuple[str, ...]] = ("panels",)
    provides: ClassVar[tuple[str, ...]] = ("mma",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P370", "validity", "dtype", "the operand and accumulator dtypes are a tensor-core pair", _dtypes),
        Precondition("KIR-P371", "validity", "shape", "the tile is made of whole instructions", _tiles),
    )

    via: Literal["auto", "mma_sync"] = "auto"
    policy: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Site | Miss | None:
        """At a product on the scalar units."""
        return Site(path, self) if isinstance(node, n.Mma) and node.via == "fma" and not (self.policy and _policy(node)) else None

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Site | Miss | None:
        """At a product on tensor cores that completes where it stands."""
        if not (isinstance(node, n.Mma) and node.via in ("auto", "mma_sync")):
            return None
        via: Literal["auto", "mma_sync"] = "auto" if node.via == "auto" else "mma_sync"
        if node.pending:
            return Miss("the product is still pending at its end")
        return Site(path, TensorCores(via, _policy(node)))

    def inverse_sites(self, program: n.Program) -> Iterator[Site]:
        """Products on tensor cores, but none so large that no compiler unrolls its scalar form in good time: `grow-tile` goes first."""
        for site in super().inverse_sites(program):
            each = _products_a_thread(kernel_of(program, site.path), node_as(program, site.path, n.Mma))
            if each is None or each <= MOST_PRODUCTS:
                yield site

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The same product on tensor cores."""
        s = node_as(program, site.path, n.Mma)
        options = n.attrs(**{**dict(s.attrs), "policy": self.policy}) if self.policy else s.attrs
        return edited(program, site.path, (replace(s, via=self.via, attrs=options),))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The same product by fused multiply-adds."""
        s = node_as(program, site.path, n.Mma)
        options = tuple((k, v) for k, v in s.attrs if k != "policy")
        return edited(program, site.path, (replace(s, via="fma", attrs=options),))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """Flops stay; the units change."""
        return Effect(flops=0)
