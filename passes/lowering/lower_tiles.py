"""Writes a kernel of tiles as the code of one of its threads: tiles in registers, reductions by shuffles, barriers where threads synchronize.

pipeline: `lower-tiles@main`

```diff
 kir 1
 program softmax
   size M: i32
   in X: f32[M, 256]
   out Y: f32[M, 256]
 kernel main grid (row: M) threads 64
-  let x = X[row, 0 +: 256]
-  let top = reduce(x, axis=0, op=max)
-  let e = exp(x - top)
-  let total = reduce(e, axis=0, op=sum)
-  Y[row, 0 +: 256] = e / total
+  shared scratch_f32: f32[2] align 16
+  @thread_loop for t in 0..64 parallel thread
+    register x: f32[4]
+    for i in 0..4 unroll {factor=4}
+      x[i] = X[row, i * 64 + t]
+    register top_part: f32 = -inf
+    for i_1 in 0..4 unroll {factor=4}
+      top_part = max(top_part, x[i_1])
+    for s in 0..5 unroll {factor=5}
+      let other = shfl_xor(top_part, 16 >> s)
+      top_part = max(top_part, other)
+    if t % 32 == 0
+      scratch_f32[t // 32] = top_part
+    barrier()
+    top_part = scratch_f32[0]
+    for w in 1..2 unroll {factor=1}
+      top_part = max(top_part, scratch_f32[w])
+    let top = top_part
+    register e: f32[4]
+    for i_2 in 0..4 unroll {factor=4}
+      e[i_2] = exp(x[i_2] - top)
+    register total_part: f32 = 0.0
+    for i_3 in 0..4 unroll {factor=4}
+      total_part = total_part + e[i_3]
+    for s_1 in 0..5 unroll {factor=5}
+      let other_1 = shfl_xor(total_part, 16 >> s_1)
+      total_part = total_part + other_1
+    barrier()
+    if t % 32 == 0
+      scratch_f32[t // 32] = total_part
+    barrier()
+    total_part = scratch_f32[0]
+    for w_1 in 1..2 unroll {factor=1}
+      total_part = total_part + scratch_f32[w_1]
+    let total = total_part
+    for i_4 in 0..4 unroll {factor=4}
+      Y[row, i_4 * 64 + t] = e[i_4] / total
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import statements
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import kernel_of, replace_kernel
from kir.rewrite.match import hardware_of


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel = kernel_of(program, site.path)
    threads, most = build.int_value(kernel.threads) or 0, hardware_of(context).architecture.max_threads_per_cta
    if threads > most:
        return refuted(f"a CTA of {threads} threads", f"a CTA has at most {most}", needs=f"at most {most} threads")
    return proved(f"{threads} threads of one CTA")


@dataclass(frozen=True)
class LowerTiles(Pass):
    """Without parameters: how tiles are distributed follows from the program."""

    intent: ClassVar[str] = "lower-tiles"
    catalogue: ClassVar[tuple[int, ...]] = (47, 80)
    claim: ClassVar[str] = "Each thread's part of a tile program is written out: what it keeps, what it asks of others, where it waits."
    numerics: ClassVar[str] = "reassociated(threads)"
    provides: ClassVar[tuple[str, ...]] = ("thread-loop",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P800", "validity", "hardware", "one CTA may have that many threads", _fits),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of tile statements, all of which have a form for threads."""
        if not isinstance(node, n.Kernel):
            return None
        from kir.surface.lowering import is_tiled, lowered_kernel
        from kir.surface.lowering.registers.plan import planned

        if not is_tiled(node):
            return None
        if any(isinstance(s, n.Mma) and s.via != "fma" for s in statements(node.body)):
            return Miss("a product that may run on tensor cores: lower-mma writes those")
        if any(isinstance(s, n.Copy) and s.via == "tma" and "fragment" in (s.src.at.buffer.space, s.dst.buffer.space) for s in statements(node.body)):
            return Miss("a tensor descriptor moves values that are in registers: they go through shared memory first")
        if planned(program, node) != node:
            return Miss("a reduction or another exchange of threads stands inside an expression: it needs a name of its own")
        try:
            return Site(path, self, {"made": lowered_kernel(program, node)[0]})
        except KirError as refused:
            return Miss(refused.diagnostics[0].message)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that is shared memory and one loop over its threads, all of it the lowering of tile statements."""
        if not isinstance(node, n.Kernel) or not any(isinstance(s, n.For) and s.kind == "thread" for s in node.body):
            return None
        from kir.surface.lowering.raising import raised_kernel
        from kir.surface.lowering.registers.anchors import NotRaised

        try:
            return Site(path, self, {"tiles": raised_kernel(program, node)})
        except NotRaised as why:
            return Miss(str(why))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The code of the kernel's threads."""
        from kir.surface.lowering import lowered_kernel

        made = site.captures.get("made") or lowered_kernel(program, kernel_of(program, site.path))[0]
        return Rewritten(replace_kernel(program, made.name, made), site.path)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The tile kernel whose lowering this is."""
        from kir.surface.lowering.raising import raised_kernel

        made = site.captures.get("tiles") or raised_kernel(program, kernel_of(program, site.path))
        return Rewritten(replace_kernel(program, made.name, made), site.path)
