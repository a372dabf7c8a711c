"""Runs a product on warpgroups: wgmma reads both operands from shared memory through descriptors of how they lie there.

pipeline: `wgmma@main/dot`

```diff
 kir 1
 program product
   in A: f16[64, 64]
   in B: f16[64, 64]
   out C: f32[64, 64]
 kernel main grid (i: 1) threads 128
   shared As: f16[64, 64] layout swizzle(3, 4, 3) align 1024
   shared Bs: f16[64, 64] layout swizzle(3, 4, 3) align 1024
   fragment acc: f32[64, 64] = 0.0
   copy A -> As
   copy B -> Bs
-  @dot mma acc += As * Bs
+  @dot mma acc += As * Bs via wgmma
   C = acc
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kir.analysis.target.warpgroup import along_k, operand_refusal, product_refusal
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import edited, hardware_of, node_as
from kir.rewrite.match.local_buffers import is_left, team_threads

from ..pipelining._rings import NoRing, Rings

PAIRS = frozenset({("f16", "f32"), ("bf16", "f32")})
"""Operand and accumulator dtypes that wgmma takes with either axis contiguous (PTX ISA, wgmma.mma_async)."""
ALONG_K = frozenset({("f8e4m3", "f32"), ("f8e5m2", "f32")})
"""Those that it takes with the k axis contiguous in both operands."""


def _hardware(program: n.Program, site: Site, context: Context) -> Verdict:
    hardware = hardware_of(context, "sm_90a")
    if hardware.architecture.has("wgmma"):
        return proved(f"{hardware.name} has wgmma")
    return refuted(f"{hardware.name} has no wgmma", "the product at " + (node_as(program, site.path, n.Mma).label or "this place"), needs="sm_90a",
                   attempt="mma{via=mma_sync}")


def _dtypes(program: n.Program, site: Site, context: Context) -> Verdict:
    s = node_as(program, site.path, n.Mma)
    a, b, acc = dtype_of(s.a.type), dtype_of(s.b.type), s.acc.buffer.dtype
    if a == b and (a.name, acc.name) in PAIRS:
        return proved(f"{a} x {b} -> {acc} is a product of wgmma")
    if a == b and (a.name, acc.name) in ALONG_K:
        if along_k(s):
            return proved(f"{a} x {b} -> {acc} is a product of wgmma of operands that lie along k")
        return refuted(f"wgmma reads operands of {a} along k alone", "an operand whose other axis is contiguous", needs="A as [m, k] and B as [n, k]")
    return refuted(f"wgmma has no product {a} x {b} -> {acc} with operands in any order", f"operands of {a} and {b}, accumulator {acc}",
                   needs="f16 or bf16 operands of one dtype, accumulated in f32")


def _shape(program: n.Program, site: Site, context: Context) -> Verdict:
    s, threads = node_as(program, site.path, n.Mma), team_threads(program, site.path)
    reason = product_refusal(s, threads)
    if reason:
        return refuted(reason, f"a team of {threads} threads", needs="64 rows for each warpgroup, up to 256 columns, whole steps of k")
    return proved(f"each of {(threads or 128) // 128} warpgroups computes whole blocks of 64 rows")


def _descriptors(program: n.Program, site: Site, context: Context) -> Verdict:
    s, kernel = node_as(program, site.path, n.Mma), kernel_of(program, site.path)
    shared = [x.at.buffer for e in (s.a, s.b) for x in walk(e) if isinstance(x, n.Load) and x.at.buffer.space == "shared"]
    if shared and all(is_left(b) for b in shared):
        return proved("how the operands lie is left to the compiler of a surface, which makes the descriptors too")
    for e, left in ((s.a, True), (s.b, False)):
        reason = operand_refusal(kernel, e, left)
        if reason:
            return refuted(reason, "descriptors know swizzles of 32, 64 and 128 bytes, and rows of that length",
                           needs="swizzled shared memory in panels", attempt="pack-panels, then swizzle-shared{align=1024}")
    return proved("both operands lie in rows as long as the span of their swizzle, at aligned places")


@dataclass(frozen=True)
class Wgmma(Pass):
    """No parameters: each warpgroup of the team takes its share of the rows."""

    intent: ClassVar[str] = "wgmma"
    catalogue: ClassVar[tuple[int, ...]] = (38,)
    claim: ClassVar[str] = "Four warps multiply together at twice the rate of mma.sync, and operands need no registers and no ldmatrix."
    numerics: ClassVar[str] = "reassociated(k)"
    requires: ClassVar[tuple[str, ...]] = ("mma", "shared", "swizzle")
    provides: ClassVar[tuple[str, ...]] = ("wgmma",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P778", "validity", "hardware", "the target has wgmma", _hardware),
        Precondition("KIR-P779", "validity", "dtype", "wgmma multiplies these dtypes", _dtypes),
        Precondition("KIR-P780", "validity", "shape", "the product is made of whole instructions of whole warpgroups", _shape),
        Precondition("KIR-P781", "validity", "layout", "a descriptor describes how each operand lies in shared memory", _descriptors),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a product of two dimensions that leaves its instruction open, into a whole fragment."""
        if not (isinstance(node, n.Mma) and node.via == "auto"):
            return None
        if node.pending or node.acc.index or node.acc.buffer.space != "fragment" or node.precision != "ieee" or node.attrs:
            return Miss("the product is pending, or adds to a part of a fragment, or has options")
        return Site(path, self)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a product by wgmma that completes where it stands."""
        if not (isinstance(node, n.Mma) and node.via == "wgmma"):
            return None
        return Miss("the product is still pending at its end") if node.pending else Site(path, self)

    def inverse_sites(self, program: n.Program) -> Iterator[Site]:
        """Products by wgmma, but none that a ring feeds: what a ring is worth shows only beside tensor cores, so it is undone first."""
        for site in super().inverse_sites(program):
            try:
                Rings.of(kernel_of(program, site.path))
            except NoRing:
                yield site

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The same product by wgmma."""
        return edited(program, site.path, (replace(node_as(program, site.path, n.Mma), via="wgmma"),))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The same product by whichever instruction the target has."""
        return edited(program, site.path, (replace(node_as(program, site.path, n.Mma), via="auto"),))
