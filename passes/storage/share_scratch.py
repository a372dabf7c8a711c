"""Moves a private scalar or array to shared memory, where all threads of a CTA see it.

pipeline: `share-scratch@main/kept`

```diff
 kir 1
 program reverse
   size M: i32
   in X: f32[M, 64]
   out Y: f32[M, 64]
 kernel main grid (row: M) threads 1
-  @kept register kept: f32[64]
+  @kept shared kept: f32[64]
   for i in 0..64
     kept[i] = X[row, i]
   for i1 in 0..64
     Y[row, i1] = kept[63 - i1]
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType
from kir.ir.visit import walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, unknown
from kir.rewrite.base import Effect
from kir.rewrite.edit import kernel_of, node_at
from kir.rewrite.match import node_as, params_as, within_shared
from kir.rewrite.match.local_buffers import byte_count, moved_to


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    node = node_as(program, site.path, n.Alloc)
    sizes = [byte_count(s.buffer) for s in kernel_of(program, site.path).body
             if isinstance(s, n.Alloc) and (s.buffer.space == "shared" or s.buffer == node.buffer)]
    if None in sizes:
        return unknown(f"the size of '{node.buffer.name}' is not known", needs="literal extents")
    return within_shared(sum(x for x in sizes if x is not None), context, "a smaller array")


@dataclass(frozen=True)
class ShareScratch(Pass):
    """`align`: bytes that the shared memory begins at a multiple of, 0 for what its elements ask for."""

    intent: ClassVar[str] = "promote-scratch"
    catalogue: ClassVar[tuple[int, ...]] = (5,)
    claim: ClassVar[str] = "What one thread writes others of its CTA can read, once there are others."
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P055", "validity", "hardware", "shared memory holds it beside what is allocated already", _fits),
    )

    align: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At private memory that the kernel's own body declares, of a CTA with one thread."""
        return self._site(program, path, node, "register")

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At shared memory of a CTA with one thread."""
        return self._site(program, path, node, "shared")

    def _site(self, program: n.Program, path: Path, node: Place, space: str) -> Found:
        if not (isinstance(node, n.Alloc) and node.buffer.space == space and len(path) == 2):
            return None
        kernel = kernel_of(program, path)
        if not build.is_const(kernel.threads, 1):
            return Miss("the CTA has several threads")
        if node.buffer.layout is not None or node.buffer.strides is not None or (node.buffer.align and space == "register"):
            return Miss(f"'{node.buffer.name}' has a layout of its own")
        if node.buffer.dtype.name == "mbarrier" or any(
                isinstance(x, (n.View, n.Address, n.Opaque)) or (isinstance(x, n.Call) and _passes(x, node.buffer)) for x in walk(kernel)):
            return Miss(f"'{node.buffer.name}' is used by reference")
        if any(isinstance(x, n.Copy) and isinstance(x.dst.type, TileType) and node.buffer.name in (x.src.at.buffer.name, x.dst.buffer.name)
               for x in walk(kernel)):
            return Miss(f"'{node.buffer.name}' holds a copy of a tile, and is no scratch")
        return Site(path, self if space == "register" else ShareScratch(node.buffer.align))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Shared memory instead."""
        return Rewritten(moved_to(program, site.path, "shared", params_as(site, ShareScratch).align), site.path)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The thread's own memory instead."""
        return Rewritten(moved_to(program, site.path, "register"), site.path)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """Its bytes come to shared memory."""
        node = node_at(program, site.path)
        return Effect(shared_bytes=byte_count(node.buffer)) if isinstance(node, n.Alloc) else Effect()


def _passes(call: n.Call, b: n.Buffer) -> bool:
    return any(isinstance(a, n.Region) and a.buffer.name == b.name for a in call.args)
