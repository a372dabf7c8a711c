"""Holds an accumulator in tensor memory: one thread asks for the product, which reads both operands from shared memory through descriptors.

pipeline: `tcgen05@main/dot`

```diff
 kir 1
 program product
   in A: f16[128, 64]
   in B: f16[64, 64]
   out C: f32[128, 64]
 kernel main grid (i: 1) threads 128
   shared As: f16[128, 64] layout swizzle(3, 4, 3) align 1024
   shared Bs: f16[64, 64] layout swizzle(3, 4, 3) align 1024
   fragment acc: f32[128, 64] = 0.0
   copy A -> As
   copy B -> Bs
-  @dot mma acc += As * Bs
+  @dot mma acc += As * Bs via tcgen05
   C = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.target.tensor_memory import COLUMNS, accumulator_refusal, allocated, product_refusal
from kir.analysis.target.warpgroup import operand_refusal
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import edited, hardware_of, node_as
from kir.rewrite.match.local_buffers import team_threads


def _hardware(program: n.Program, site: Site, context: Context) -> Verdict:
    hardware = hardware_of(context, "sm_100a")
    if hardware.architecture.has("tcgen05"):
        return proved(f"{hardware.name} has tensor memory")
    return refuted(f"{hardware.name} has no tensor memory", "the product at " + (node_as(program, site.path, n.Mma).label or "this place"), needs="sm_100a",
                   attempt="wgmma, or mma{via=mma_sync}")


def _shape(program: n.Program, site: Site, context: Context) -> Verdict:
    s, threads = node_as(program, site.path, n.Mma), team_threads(program, site.path)
    if reason := product_refusal(s, threads):
        return refuted(reason, f"a team of {threads} threads", needs="128 threads and rows, f16 or bf16 into f32, columns and k in whole steps of 16")
    return proved("128 threads each read a row of 128")


def _descriptors(program: n.Program, site: Site, context: Context) -> Verdict:
    s, kernel = node_as(program, site.path, n.Mma), kernel_of(program, site.path)
    for e, left in ((s.a, True), (s.b, False)):
        inner = e.args[0] if isinstance(e, n.Call) and e.of is None and e.fn == "trans" else e
        shared = isinstance(inner, n.Load) and inner.at.buffer.space == "shared"
        if reason := operand_refusal(kernel, e, left) if shared else "an operand does not lie in shared memory":
            return refuted(reason, "descriptors know swizzles of 32, 64 and 128 bytes, and rows of that length",
                           needs="swizzled shared memory in panels", attempt="pack-panels, then swizzle-shared{align=1024}")
    return proved("both operands lie in rows as long as the span of their swizzle, at aligned places")


def _accumulator(program: n.Program, site: Site, context: Context) -> Verdict:
    s = node_as(program, site.path, n.Mma)
    made = kernel_of(_via(program, site, "tcgen05"), site.path)
    if reason := accumulator_refusal(made, s.acc.buffer):
        return refuted(reason, "what lies in tensor memory is updated by its products alone, and loaded to be read", needs="a fragment that starts at zero")
    if (columns := allocated(made)) > COLUMNS:
        return refuted(f"the accumulators take {columns} columns of tensor memory; a CTA has {COLUMNS}", f"'{s.acc.buffer.name}'", needs="smaller tiles")
    return proved("products alone add to the accumulator, from zero")


def _via(program: n.Program, site: Site, via: str) -> n.Program:
    return edited(program, site.path, (replace(node_as(program, site.path, n.Mma), via=via),)).program


@dataclass(frozen=True)
class Tcgen05(Pass):
    """No parameters: each thread of the CTA reads a row of the result."""

    intent: ClassVar[str] = "tcgen05"
    catalogue: ClassVar[tuple[int, ...]] = (38,)
    claim: ClassVar[str] = "One thread starts a product of the whole CTA, and its accumulators take no registers."
    numerics: ClassVar[str] = "reassociated(k)"
    requires: ClassVar[tuple[str, ...]] = ("mma", "shared", "swizzle")
    provides: ClassVar[tuple[str, ...]] = ("tcgen05",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P723", "validity", "hardware", "the target has tensor memory", _hardware),
        Precondition("KIR-P724", "validity", "shape", "the product is made of whole instructions of these dtypes, and its rows are the threads", _shape),
        Precondition("KIR-P725", "validity", "layout", "a descriptor describes how each operand lies in shared memory", _descriptors),
        Precondition("KIR-P726", "validity", "storage", "tensor memory has room for an accumulator that only its products write", _accumulator),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a product of two dimensions that leaves its instruction open, into a whole fragment."""
        if not (isinstance(node, n.Mma) and node.via == "auto"):
            return None
        if node.pending or node.acc.index or node.acc.buffer.space != "fragment" or node.precision != "ieee" or node.attrs:
            return Miss("the product is pending, or adds to a part of a fragment, or has options")
        return Site(path, self)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a product into tensor memory."""
        return Site(path, self) if isinstance(node, n.Mma) and node.via == "tcgen05" else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The same product into tensor memory."""
        return edited(program, site.path, (replace(node_as(program, site.path, n.Mma), via="tcgen05"),))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The same product by whichever instruction the target has."""
        return edited(program, site.path, (replace(node_as(program, site.path, n.Mma), via="auto"),))
