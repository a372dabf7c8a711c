"""Keeps several iterations of a loop in flight: loads of later iterations run while earlier ones compute.

pipeline: `pipeline{stages=3}@main/k`

```diff
 kir 1
 program product
   in A: f16[64, K]
   in B: f16[K, 64]
   out C: f32[64, 64]
   size K: i32
   fact K % 64 == 0
 kernel main grid (i: 1) threads 128
   fragment acc: f32[64, 64] = 0.0
-  @k for k in 0..ceildiv(K, 64)
+  @k for k in 0..ceildiv(K, 64) pipelined {stages=3}
     let a = A[0 +: 64, k * 64 +: 64]
     let b = B[k * 64 +: 64, 0 +: 64]
     mma acc += a * b
   C = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.target.legalize import loop_bytes, staged_loads
from kir.base.dataclass import dataclass
from kir.hardware.target import Target
from kir.ir import nodes as n
from kir.ir.build import polynomial
from kir.ir.types import DType
from kir.ir.visit import statements, walk
from kir.rewrite.base import Context, Effect, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.match import edited, hardware_of, node_as, params_as
from kir.rewrite.precondition import Verdict, proved, refuted, unknown


def _carried(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    written = {s.at.buffer.name for s in walk(loop) if isinstance(s, n.Store)} | {
        s.dst.buffer.name for s in walk(loop) if isinstance(s, n.Copy)}
    for x in staged_loads(loop):
        if x.at.buffer.name in written and not _its_own(x.at, loop):
            return refuted(f"'{x.at.buffer.name}' is written in the loop, so a later iteration's load may not run early",
                           f"iteration 1 loads '{x.at.buffer.name}' before iteration 0 has written it")
        touched = {y.at.buffer.name for y in walk(x) if isinstance(y, n.Load) and y is not x and y.at.buffer.name in written}
        if touched:
            return refuted(f"the address of '{x.at.buffer.name}' depends on '{sorted(touched)[0]}', which the loop changes",
                           "iteration 1 computes its address before iteration 0 ends")
    return proved("what is loaded, and where, does not depend on earlier iterations")


def _its_own(at: n.Region, loop: n.For) -> bool:
    """Whether all that the loop writes of a buffer is, in each iteration, the very part that this iteration loads, and no other iteration's."""
    parts = [s.at for s in walk(loop) if isinstance(s, n.Store)] + [s.dst for s in walk(loop) if isinstance(s, n.Copy)]
    inside = {name for s in statements(loop.body) for name in (s.names if isinstance(s, n.Let) else (s.var.name,) if isinstance(s, n.For) else ())}

    def moves(i: n.Expr | n.Span) -> bool:
        first, extent = (i.lo, i.extent) if isinstance(i, n.Span) else (i, 1)
        if not isinstance(first.type, DType) or not isinstance(extent, int) or (isinstance(i, n.Span) and i.step != 1):
            return False
        terms = polynomial(first)
        others = {x.name for m in terms if m != (loop.var,) for e in m for x in walk(e) if isinstance(x, n.Var)}
        return abs(terms.get((loop.var,), 0)) >= extent and not others & ({loop.var.name} | inside)
    return all(p.index == at.index for p in parts if p.buffer.name == at.buffer.name) and any(moves(i) for i in at.index)


def _capacity(program: n.Program, site: Site, context: Context) -> Verdict:
    params = params_as(site, Pipeline)
    each = loop_bytes(node_as(program, site.path, n.For))
    hardware: Target = hardware_of(context)
    if each is None:
        return unknown("the tiles have symbolic extents", needs="a specialized program")
    limit = hardware.architecture.shared_per_cta
    if each * params.stages > limit:
        return refuted(f"{params.stages} stages of {each} bytes are {each * params.stages} bytes; {hardware.name} has {limit} a CTA",
                       f"stage {limit // each} does not fit", needs=f"at most {limit // each} stages")
    return proved(f"{params.stages} stages of {each} bytes fit in the {limit} bytes of {hardware.name}")


def _overlap(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    if any(isinstance(s, n.Mma) for s in walk(loop)):
        return proved("the loop computes on what it loads")
    return unknown("the loop has no tile product to overlap with its loads")


@dataclass(frozen=True)
class Pipeline(Pass):
    """`stages` is the number of iterations whose operands are in flight."""

    stages: int = 3

    intent: ClassVar[str] = "pipeline"
    catalogue: ClassVar[tuple[int, ...]] = (18,)
    claim: ClassVar[str] = "The latency of loads hides behind the arithmetic of earlier iterations."
    requires: ClassVar[tuple[str, ...]] = ("panels",)
    provides: ClassVar[tuple[str, ...]] = ("pipelined",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P180", "validity", "pipeline", "an iteration's loads do not depend on earlier iterations", _carried),
        Precondition("KIR-P181", "validity", "storage", "all stages fit in shared memory", _capacity),
        Precondition("KIR-P182", "profit", "pipeline", "there is arithmetic to hide the loads behind", _overlap),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Site | Miss | None:
        """At a serial loop that loads tiles."""
        if not (isinstance(node, n.For) and node.kind == "serial"):
            return None
        return Site(path, self) if staged_loads(node) else Miss("the loop loads no tile that changes with its iteration")

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Site | Miss | None:
        """At a pipelined loop."""
        if not (isinstance(node, n.For) and node.kind == "pipelined"):
            return None
        stages = dict(node.attrs).get("stages", 1)
        return Site(path, Pipeline(int(stages)))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop, pipelined."""
        loop = node_as(program, site.path, n.For)
        made = replace(loop, kind="pipelined", attrs=n.attrs(**{**dict(loop.attrs), "stages": self.stages}))
        return edited(program, site.path, (made,))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop, one iteration after the other."""
        loop = node_as(program, site.path, n.For)
        made = replace(loop, kind="serial", attrs=tuple((k, v) for k, v in loop.attrs if k != "stages"))
        return edited(program, site.path, (made,))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """Shared memory for the further stages."""
        each = loop_bytes(node_as(program, site.path, n.For))
        return Effect(shared_bytes=None if each is None else each * (self.stages - 1))
