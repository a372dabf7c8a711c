"""Gives a CTA a larger tile along one axis: each thread keeps more results in registers, and operands are reused more.

pipeline: `grow-tile{extent=128}@main`

```diff
 kir 1
 program product
   in A: f16[M, 64]
   in B: f16[64, 64]
   out C: f32[M, 64]
   size M: i32
-kernel main grid (m: ceildiv(M, 16)) threads 128
-  fragment acc: f32[16, 64] = 0.0
-  let a = load(A[m * 16 +: 16, 0 +: 64] else 0.0:f16 clip)
+kernel main grid (m: ceildiv(M, 128)) threads 128
+  fragment acc: f32[128, 64] = 0.0
+  let a = load(A[m * 128 +: 128, 0 +: 64] else 0.0:f16 clip)
   mma acc += a * B
-  C[m * 16 +: 16, 0 +: 64] = acc clip
+  C[m * 128 +: 128, 0 +: 64] = acc clip
```
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from kir.analysis.clipping import divides, settle_clips
from kir.analysis.tiles.tile_axes import TileAxes
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import names_read, walk
from kir.rewrite import Context, Effect, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import kernel_of, replace_kernel
from kir.rewrite.match import matched_as, params_as

from ._tile_size import CannotResize, resized, tile_of


def _tails(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel, params = kernel_of(program, site.path), params_as(site, GrowTile)
    tiles = matched_as(kernel.grid[params.axis].extent, n.Binary)
    if divides(params.extent, tiles.a, program.facts):
        return proved(f"{params.extent} divides the axis")
    number = build.var(kernel.grid[params.axis].name)
    for s in walk(kernel):
        if not (isinstance(s, n.Store) and s.at.buffer.space == "global"):
            continue
        for i, d in zip(s.at.index, s.at.buffer.shape, strict=False):
            if isinstance(i, n.Span) and number.name in names_read(i.lo) and not (d == tiles.a and s.mask is None):
                size = build.int_value(tiles.a)
                if size is not None:
                    return refuted(f"the last tile ends past the {size} of the axis, and '{s.at.buffer.name}' does not end there",
                                   f"row {size} of '{s.at.buffer.name}' is written")
                return unknown(f"'{s.at.buffer.name}' does not end where the axis ends", needs=f"a fact that {params.extent} divides the axis")
    return proved("every store over the axis ends where it ends, so the overhang is clipped")


@dataclass(frozen=True)
class GrowTile(Pass):
    """`axis` is the position of the grid axis that numbers the tiles, `extent` the larger size, `small` the smaller one."""

    intent: ClassVar[str] = "register-tile"
    catalogue: ClassVar[tuple[int, ...]] = (50,)
    claim: ClassVar[str] = "A larger tile in registers reuses each operand more often."
    requires: ClassVar[tuple[str, ...]] = ("mma",)
    provides: ClassVar[tuple[str, ...]] = ("large",)
    least: ClassVar[Mapping[str, int]] = {"extent": 1, "small": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P500", "validity", "shape", "the larger tile divides the axis, or every store over it ends where it ends", _tails),)

    axis: int = 0
    extent: int = 128
    small: int = 16

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel with tiles of `small` along the axis."""
        return self._site(program, path, node, self.small, self.extent)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel with tensor-core products over tiles that are a multiple of `small`."""
        if not isinstance(node, n.Kernel) or not any(isinstance(s, n.Mma) for s in walk(node)):
            return None
        found: list[Site] = []
        reason: Miss | None = None
        for axis in range(len(node.grid)):
            extent = tile_of(node.grid[axis])
            if extent is not None and extent > self.small and extent % self.small == 0:
                site = replace(self, axis=axis, extent=extent)._site(program, path, node, extent, self.small)
                if isinstance(site, Site):
                    found.append(site)
                elif isinstance(site, Miss):
                    reason = site
        return tuple(found) or reason

    def _site(self, program: n.Program, path: Path, node: Place, now: int, then: int) -> Site | Miss | None:
        if not isinstance(node, n.Kernel) or self.axis >= len(node.grid) or now == then or tile_of(node.grid[self.axis]) != now:
            return None
        try:
            self._resized(program, node, now, then)
        except CannotResize as bad:
            return Miss(str(bad))
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Tiles of `extent`."""
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, self._resized(program, kernel, self.small, self.extent)), site.path)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Tiles of `small`."""
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, self._resized(program, kernel, self.extent, self.small)), site.path)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """Traffic of the operands along the other axes falls with the size; it is not predicted in bytes."""
        return Effect()

    def _resized(self, program: n.Program, kernel: n.Kernel, now: int, then: int) -> n.Kernel:
        return settle_clips(resized(kernel, TileAxes(kernel), self.axis, now, build.const(then)), program.facts, kernel)
