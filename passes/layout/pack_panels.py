"""Lays a staged tile out in panels of neighboring columns, each dense by itself, as units that move or read rows of a fixed length want it.

pipeline: `pack-panels{width=64}@main/Bs`

```diff
 kir 1
 program product
   in A: f16[64, 64]
   in B: f16[64, 128]
   out C: f32[64, 128]
 kernel main grid (i: 1) threads 128
   shared As: f16[64, 64]
-  shared Bs: f16[64, 128]
+  shared Bs: f16[2, 64, 64]
   fragment acc: f32[64, 128] = 0.0
   copy A -> As
-  copy B[0 +: 64, 0 +: 128] -> Bs
-  mma acc += As * Bs
+  for p in 0..2 unroll {factor=2}
+    copy B[0 +: 64, p * 64 +: 64] -> Bs[p, 0 +: 64, 0 +: 64]
+  view shared Bs_whole(row, column): f16[64, 128] at Bs[column // 64, row, column % 64]
+  mma acc += As * Bs_whole
   C = acc
```
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.paths import child_blocks, with_block
from kir.ir.visit import statements, substitute_buffers, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import kernel_of, names_in, replace_kernel
from kir.rewrite.match import fresh_var, matched, matched_as, node_as, params_as
from kir.rewrite.match.local_buffers import kind_of_copy, mentions, own_parts, sizes
from kir.rewrite.match.slices import NoSlice, panel_view, part, whole


def _buffer(program: n.Program, site: Site) -> n.Buffer:
    node = node_as(program, site.path, n.Alloc)
    return node.buffer


def _whole_panels(program: n.Program, site: Site, context: Context) -> Verdict:
    b, item = _buffer(program, site), params_as(site, PackPanels)
    columns = (sizes(b) or (0, 0))[1]
    if columns % item.width:
        return refuted(f"{columns} columns do not divide into panels of {item.width}",
                       f"column {columns - columns % item.width} of '{b.name}' is in no panel", needs=f"a divisor of {columns}")
    return proved(f"{columns // item.width} panels of {item.width} columns, each element in one")


@dataclass(frozen=True)
class PackPanels(Pass):
    """`width` is the number of columns of a panel; `unrolled` says that the loops over panels are unrolled."""

    intent: ClassVar[str] = "pack-panels"
    catalogue: ClassVar[tuple[int, ...]] = (8,)
    claim: ClassVar[str] = "Rows of a panel are as long as a swizzle spans, so that panels are boxes and matrix operands that hardware addresses itself."
    requires: ClassVar[tuple[str, ...]] = ("shared",)
    provides: ClassVar[tuple[str, ...]] = ("view",)
    least: ClassVar[Mapping[str, int]] = {"width": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P782", "validity", "layout", "the width divides the columns", _whole_panels),)

    width: int = 64
    unrolled: bool = True

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a declaration of dense shared memory of two dimensions, which is filled and multiplied as a whole."""
        if not (isinstance(node, n.Alloc) and node.buffer.space == "shared" and node.init is None):
            return None
        b, shape = node.buffer, sizes(node.buffer)
        if shape is None or len(shape) != 2 or b.layout is not None or b.strides is not None or b.align:
            return Miss(f"'{b.name}' is no dense matrix of known extents")
        if not 0 < self.width <= shape[1]:
            return Miss(f"there are {shape[1]} columns, and panels have no more")
        for s in statements(kernel_of(program, path).body):
            if s is node or not any(mentions(x, b.name) for x in own_parts(s)):
                continue
            if not (_fills(s, b) or _multiplies(s, b)):
                return Miss(f"'{b.name}' is not only filled and multiplied as a whole")
            if isinstance(s, n.Copy) and _fills(s, b):
                try:
                    part(s.src, 1, build.const(0), self.width)
                except NoSlice as why:
                    return Miss(f"what fills '{b.name}' is not taken panel by panel: {why}")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Panels, a loop for each copy, and a view of the whole before each product."""
        kernel, b = kernel_of(program, site.path), _buffer(program, site)
        shape = matched(sizes(b))
        rows, columns = shape
        count, taken = columns // self.width, names_in(program, kernel)
        panels = replace(b, shape=(build.const(count), build.const(rows), build.const(self.width)))

        def rewritten(s: n.Stmt) -> n.Block:
            if _fills(s, b):
                assert isinstance(s, n.Copy)
                p = fresh_var("p", taken)
                src = matched_as(part(s.src, 1, build.mul(p, self.width), self.width), n.Load)
                dst = build.region(panels, p, build.span(0, rows), build.span(0, self.width))
                return (n.For(p, build.const(0), build.const(count), build.const(1), (replace(s, src=src, dst=dst),),
                              *(("unroll", n.attrs(factor=count)) if self.unrolled else ())),)
            if _multiplies(s, b):
                view = panel_view(b, panels, self.width, taken)
                swap = {n.Load(n.Region(b)): n.Load(n.Region(view.buffer))}
                return (view, transform(s, lambda old, new: swap.get(new, new) if isinstance(new, n.Load) else new))
            if isinstance(s, n.Alloc) and s.buffer == b:
                return (replace(s, buffer=panels),)
            return (s,)
        made = replace(kernel, body=_mapped(kernel.body, rewritten))
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a declaration of panels that loops fill and views read."""
        if not (isinstance(node, n.Alloc) and node.buffer.space == "shared" and len(node.buffer.shape) == 3):
            return None
        shape, b = sizes(node.buffer), node.buffer
        if shape is None or b.layout is not None or b.strides is not None or b.align:
            return Miss(f"'{b.name}' has a layout, or symbolic extents")
        if not any(isinstance(s, n.View) and s.at.buffer == b for s in statements(kernel_of(program, path).body)):
            return Miss(f"'{b.name}' is not seen as a whole")
        loops = [s.kind for s in statements(kernel_of(program, path).body) if isinstance(s, n.For) and len(s.body) == 1 and isinstance(
            c := s.body[0], n.Copy) and c.dst.buffer == b]
        item = PackPanels(shape[2], "unroll" in loops)
        try:
            item._unpacked(program, path, b)
        except NoSlice as why:
            return Miss(str(why))
        return Site(path, item)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One matrix."""
        return Rewritten(self._unpacked(program, site.path, _buffer(program, site)), site.path)

    def _unpacked(self, program: n.Program, path: Path, b: n.Buffer) -> n.Program:
        kernel, shape = kernel_of(program, path), matched(sizes(b))
        count, rows, width = shape
        flat = replace(b, shape=(build.const(rows), build.const(count * width)))
        views = {s.buffer.name: flat for s in statements(kernel.body) if isinstance(s, n.View) and s.at.buffer == b}

        def rewritten(s: n.Stmt) -> n.Block:
            match s:
                case n.View() if s.buffer.name in views:
                    return ()
                case n.Alloc() if s.buffer == b:
                    return (replace(s, buffer=flat),)
                case n.For(body=(n.Copy() as c,)) if s.kind == ("unroll" if self.unrolled else "serial") and c.dst == build.region(
                        b, s.var, build.span(0, rows), build.span(0, width)):
                    src = matched_as(whole(c.src, 1, build.mul(s.var, width), count * width), n.Load)
                    return (replace(c, src=src, dst=n.Region(flat), label=c.label or s.label),)
                case _:
                    if any(mentions(x, b.name) for x in own_parts(s)):
                        raise NoSlice(f"'{b.name}' is used panel by panel")
                    return (s,)
        body = tuple(substitute_buffers(s, views) for s in _mapped(kernel.body, rewritten))
        return replace_kernel(program, kernel.name, replace(kernel, body=body))


def _fills(s: n.Stmt, b: n.Buffer) -> bool:
    """Whether a statement copies a tile from global memory to the whole buffer."""
    return (isinstance(s, n.Copy) and s.dst == n.Region(b) and kind_of_copy(s) in ("plain", "vector") and s.mask is None and s.signal is None
            and s.src.mask is None and s.src.at.buffer.space == "global")


def _multiplies(s: n.Stmt, b: n.Buffer) -> bool:
    """Whether a statement is a product that reads the whole buffer and nothing else of it."""
    uses = [x for x in walk(s) if isinstance(x, n.Region) and x.buffer == b]
    return isinstance(s, n.Mma) and bool(uses) and all(x == n.Region(b) for x in uses) and s.acc.buffer != b


def _mapped(block: n.Block, rewritten: object) -> n.Block:
    """A block with each statement replaced, those inside first."""
    assert callable(rewritten)
    out: list[n.Stmt] = []
    for s in block:
        made = rewritten(s)
        if made != (s,):
            out += made
            continue
        for steps, inner in child_blocks(s):
            s = with_block(s, steps, _mapped(inner, rewritten))
        out.append(s)
    return tuple(out)
