"""Gives a CTA more threads: what it computes is spread over them.

pipeline: `multi-threaded-block{threads=128}@main`

```diff
 kir 1
 program scale
   in X: f32[M, 256]
   out Y: f32[M, 256]
   size M: i32
-kernel main grid (row: M) threads 1
+kernel main grid (row: M) threads 128
   let x = X[row, 0 +: 256]
   Y[row, 0 +: 256] = x * 2.0
```
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from kir.analysis.target.warpgroup import DESCRIBED
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict
from kir.rewrite.edit import kernel_of, replace_kernel
from kir.rewrite.match import params_as, whole_warps


def _whole_warps(program: n.Program, site: Site, context: Context) -> Verdict:
    return whole_warps(params_as(site, MultiThreadedBlock).threads, context)


@dataclass(frozen=True)
class MultiThreadedBlock(Pass):
    """`threads` of the CTA."""

    intent: ClassVar[str] = "multi-threaded-block"
    catalogue: ClassVar[tuple[int, ...]] = (48,)
    claim: ClassVar[str] = "More threads share what tiles the CTA has, so that each holds less and more memory requests are in flight."
    numerics: ClassVar[str] = "reassociated(lanes)"
    provides: ClassVar[tuple[str, ...]] = ("threads",)
    least: ClassVar[Mapping[str, int]] = {"threads": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P480", "validity", "hardware", "the threads are whole warps that one CTA may have", _whole_warps),
    )

    threads: int = 128

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of one thread per CTA, written for the CTA as a whole."""
        if not isinstance(node, n.Kernel):
            return None
        if not build.is_const(node.threads, 1):
            return Miss("the CTA has several threads already")
        if any(isinstance(s, n.Opaque) for s in walk(node)):
            return Miss("opaque text may count its threads")
        return Site(path, self)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of several threads whose statements all belong to the CTA."""
        threads = build.int_value(node.threads) if isinstance(node, n.Kernel) else None
        if threads is None or threads <= 1:
            return None
        if any(isinstance(s, n.Roles) or (isinstance(s, n.For) and s.kind in ("warpgroup", "warp", "thread")) for s in walk(node)):
            return Miss("some statements belong to single threads or warps")
        if any((isinstance(s, n.Mma) and s.via in DESCRIBED) or (isinstance(s, n.Copy) and s.via == "tma") for s in walk(node)):
            return Miss("a product of whole warpgroups, or boxes that a team waits for")
        return Site(path, MultiThreadedBlock(threads))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The kernel with `threads` threads."""
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, threads=build.const(self.threads))), site.path)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The kernel with one thread."""
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, threads=build.const(1))), site.path)
