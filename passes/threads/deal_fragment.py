"""Says which thread holds which element of a fragment, and in which register.

pipeline: `deal-fragment{layout="spread([64, 2], [1, 0], [8, 1], [8], [1], [1])"}@main/x`

```diff
 kir 1
 program doubled
   in X: f16[M, 512]
   out Y: f16[M, 512]
   size M: i32
   fact M % 2 == 0
 kernel main grid (i: M // 2) threads 128
-  @x fragment x: f16[2, 512]
+  @x fragment x: f16[2, 512] layout spread([64, 2], [1, 0], [8, 1], [8], [1], [1])
   copy X[i * 2 +: 2, 0 +: 512] -> x
   Y[i * 2 +: 2, 0 +: 512] = x * 2.0:f16
```
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

from kir.analysis.tiles.fragments import extents_of, slot_of, spread
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import SCHEMA, layout_text
from kir.ir.types import I32
from kir.ir.visit import substitute_buffers
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import kernel_of, replace_kernel
from kir.rewrite.match import node_as


@dataclass(frozen=True)
class DealFragment(Pass):
    """`layout` is the text of the layout: extents, axes and steps of the digits of the thread, then of the register."""

    intent: ClassVar[str] = "partition-rows"
    catalogue: ClassVar[tuple[int, ...]] = (47, 11)
    claim: ClassVar[str] = "Each thread holds neighbors that one wide instruction moves, and those that it works on."
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    layout: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a fragment whose layout is open; the layout is given, and distributes each element over the CTA's threads."""
        if not self.layout or not _is_fragment(node):
            return None
        assert isinstance(node, n.Alloc)
        if node.buffer.layout is not None:
            return Miss(f"'{node.buffer.name}' has a layout")
        made = _layout(self.layout)
        reason = "that is no layout" if made is None else _refused(program, path, node.buffer, made)
        return Miss(reason) if reason else Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The fragment with the layout."""
        return _with(program, site, _layout(self.layout))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a fragment that is distributed over the threads by digits."""
        if not _is_fragment(node):
            return None
        assert isinstance(node, n.Alloc)
        if node.buffer.layout is None or node.buffer.layout.name not in ("spread", "blocked"):
            return None
        reason = _refused(program, path, node.buffer, node.buffer.layout)
        return Miss(reason) if reason else Site(path, DealFragment(layout_text(node.buffer.layout)))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The fragment, distributed as the surface likes."""
        return _with(program, site, None)


def _is_fragment(node: Place) -> bool:
    return isinstance(node, n.Alloc) and node.buffer.space == "fragment" and bool(node.buffer.shape)


def _layout(text: str) -> n.Layout | None:
    """The layout of a text; None where it is none."""
    from kir.ir.parser import parse_program

    try:
        made = parse_program(f"kir {SCHEMA}\nprogram p\nkernel k grid (i: 1) threads 1\n  fragment x: f32[1] layout {text}\n", "<layout>")
    except KirError:
        return None
    s = made.kernels[0].body[0]
    return s.buffer.layout if isinstance(s, n.Alloc) else None


def _refused(program: n.Program, path: Path, b: n.Buffer, layout: n.Layout) -> str:
    """Why a layout does not distribute a fragment over the CTA's threads; "" where it does."""
    shape, threads = extents_of(b.shape), build.int_value(kernel_of(program, path).threads)
    if shape is None or threads is None:
        return "an extent is not known"
    try:
        distributed = spread(layout, shape, b.dtype)
        slot_of(layout, shape, b.dtype, [n.Var(f"%{k}", I32) for k in range(len(shape))])
    except KirError as bad:
        return bad.diagnostics[0].message
    count = math.prod(d.extent for d in distributed.threads)
    return "" if count == threads else f"it is for {count} threads, and the CTA has {threads}"


def _with(program: n.Program, site: Site, layout: n.Layout | None) -> Rewritten:
    node, kernel = node_as(program, site.path, n.Alloc), kernel_of(program, site.path)
    made = substitute_buffers(kernel, {node.buffer.name: replace(node.buffer, layout=layout)})
    return Rewritten(replace_kernel(program, kernel.name, made), site.path)
