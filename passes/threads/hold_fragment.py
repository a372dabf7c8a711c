"""Spreads a private array over the registers of a whole CTA, which has one thread so far.

pipeline: `hold-fragment@main/kept`

```diff
 kir 1
 program scaled
   size M: i32
   in X: f32[M, 64]
   out Y: f32[M, 64]
 kernel main grid (row: M) threads 1
-  @kept register kept: f32[64]
+  @kept fragment kept: f32[64]
   for i in 0..64
     kept[i] = X[row, i]
   for j in 0..64
     Y[row, j] = kept[j] * 2.0
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType
from kir.ir.visit import walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import kernel_of
from kir.rewrite.match.local_buffers import moved_to


@dataclass(frozen=True)
class HoldFragment(Pass):
    """The site is the declaration; `scalar`: of a single value, which all threads hold."""

    intent: ClassVar[str] = "promote-scratch"
    catalogue: ClassVar[tuple[int, ...]] = (5, 47)
    claim: ClassVar[str] = "Each thread holds a part of the array once there are several, and each does its share."
    provides: ClassVar[tuple[str, ...]] = ("rows",)
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    scalar: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a private array of a CTA with one thread, or at a private value where that is asked for."""
        return self._site(program, path, node, "register") if isinstance(node, n.Alloc) and self.scalar != bool(node.buffer.shape) else None

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a fragment of a CTA with one thread."""
        return self._site(program, path, node, "fragment")

    def _site(self, program: n.Program, path: Path, node: Place, space: str) -> Found:
        if not (isinstance(node, n.Alloc) and node.buffer.space == space):
            return None
        kernel = kernel_of(program, path)
        if not build.is_const(kernel.threads, 1):
            return Miss("the CTA has several threads")
        name = node.buffer.name
        if node.buffer.layout is not None or node.buffer.strides is not None or node.buffer.align:
            return Miss(f"'{name}' has a layout of its own")
        by_reference = any((isinstance(x, n.View) and x.at.buffer.name == name) or (isinstance(x, n.Address) and x.at.buffer.name == name)
                           or (isinstance(x, n.Call) and any(isinstance(a, n.Region) and a.buffer.name == name for a in x.args))
                           or isinstance(x, n.Opaque) for x in walk(kernel))
        if by_reference:
            return Miss(f"'{name}' is used by reference")
        if any(isinstance(x, n.Region) and x.buffer.name == name and isinstance(x.type, TileType) for x in walk(kernel)):
            return Miss(f"'{name}' is used as a whole")
        return Site(path, HoldFragment(not node.buffer.shape))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A fragment instead."""
        return Rewritten(moved_to(program, site.path, "fragment"), site.path)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A private array instead."""
        return Rewritten(moved_to(program, site.path, "register"), site.path)
