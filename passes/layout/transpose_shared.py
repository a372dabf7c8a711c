"""Stores an array of shared memory with its two axes exchanged, so that the threads of a warp touch neighbors where they touched a column.

pipeline: `transpose-shared@main/S`

```diff
 kir 1
 program columns
   in X: f32[32, 32]
   out Y: f32[32]
 kernel main grid (b: 1) threads 32
-  @S shared S: f32[32, 32]
+  @S shared S: f32[32, 32] layout strides(1, 32)
   for t in 0..32 parallel thread
     for i in 0..32
       S[t, i] = X[i, t]
     register total: f32 = 0.0
     for j in 0..32
       total = total + S[t, j]
     Y[t] = total
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import substitute_buffers, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import kernel_of, replace_kernel
from kir.rewrite.match import node_as


def _scalar(program: n.Program, site: Site, context: Context) -> Verdict:
    node, kernel = node_as(program, site.path, n.Alloc), kernel_of(program, site.path)
    for x in walk(kernel):
        if isinstance(x, n.Copy) and node.buffer.name in (x.src.at.buffer.name, x.dst.buffer.name) and x.via != "plain":
            return refuted(f"a copy via {x.via} moves neighbors of '{node.buffer.name}' together", "elements 0 and 1 of a row lie apart",
                           needs="plain copies, or loads and stores of elements")
        if isinstance(x, n.Call) and x.fn in ("ldmatrix", "stmatrix", "wgmma") and any(
                isinstance(a, n.Region) and a.buffer.name == node.buffer.name for a in x.args):
            return refuted(f"{x.fn} reads rows of 16 bytes of '{node.buffer.name}'", "elements 0 and 1 of a row lie apart",
                           needs="loads of elements")
        if isinstance(x, n.View) and x.at.buffer.name == node.buffer.name:
            return refuted(f"'{x.buffer.name}' views the bytes of '{node.buffer.name}'", "its elements would be others")
    return proved("the array is read and written element by element")


@dataclass(frozen=True)
class TransposeShared(Pass):
    """No parameters: the site is the array."""

    intent: ClassVar[str] = "transpose-shared"
    catalogue: ClassVar[tuple[int, ...]] = (9,)
    claim: ClassVar[str] = "A column that a warp walks down becomes a row, whose elements lie in different banks."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P090", "validity", "layout", "nothing moves or reinterprets neighbors of a row together", _scalar),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a row-major array of shared memory with two axes of known size."""
        if not (isinstance(node, n.Alloc) and node.buffer.space == "shared" and len(node.buffer.shape) == 2):
            return None
        if node.buffer.layout is not None or node.buffer.strides is not None or node.buffer.dtype.kind == "token":
            return Miss("it has a layout already")
        if any(build.int_value(d) is None for d in node.buffer.shape):
            return Miss("its size is not known")
        return Site(path, self)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an array stored by columns."""
        if not (isinstance(node, n.Alloc) and node.buffer.space == "shared" and len(node.buffer.shape) == 2 and node.buffer.layout is not None):
            return None
        return Site(path, self) if node.buffer.layout == _by_columns(node.buffer) else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Stored by columns."""
        return self._with(program, site, forward=True)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Stored by rows."""
        return self._with(program, site, forward=False)

    def _with(self, program: n.Program, site: Site, *, forward: bool) -> Rewritten:
        node, kernel = node_as(program, site.path, n.Alloc), kernel_of(program, site.path)
        made = replace(node.buffer, layout=_by_columns(node.buffer) if forward else None)
        return Rewritten(replace_kernel(program, kernel.name, substitute_buffers(kernel, {made.name: made})), site.path)


def _by_columns(b: n.Buffer) -> n.Layout | None:
    rows = build.int_value(b.shape[0])
    return None if rows is None else n.Layout("strides", (1, rows))
