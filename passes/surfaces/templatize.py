"""Gives a tunable number a name: the program becomes generic in it, with the number as its default.

pipeline: `templatize{slot=tile meta=BLOCK_M}@main; templatize{slot=threads meta=THREADS}@main`

```diff
 kir 1
 program product
+  meta BLOCK_M: int = 128
+  meta THREADS: int = 128
   size M: i32
   in A: f16[M, 64]
   in B: f16[64, 64]
   out C: f32[M, 64]
-kernel main grid (m: ceildiv(M, 128)) threads 128
-  fragment acc: f32[128, 64] = 0.0
-  let a = load(A[m * 128 +: 128, 0 +: 64] else 0.0:f16 clip)
+kernel main grid (m: ceildiv(M, BLOCK_M)) threads THREADS
+  fragment acc: f32[BLOCK_M, 64] = 0.0
+  let a = load(A[BLOCK_M * m +: BLOCK_M, 0 +: 64] else 0.0:f16 clip)
   mma acc += a * B
-  C[m * 128 +: 128, 0 +: 64] = acc clip
+  C[BLOCK_M * m +: BLOCK_M, 0 +: 64] = acc clip
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

from kir.analysis.target.metas import instantiated
from kir.analysis.tiles.tile_axes import TileAxes
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import names_read, transform, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Rewritten, Site
from kir.rewrite.edit import kernel_of, names_in, replace_kernel
from kir.rewrite.match import matched, matched_as

from ..grid._tile_size import CannotResize, resized, tile_of


@dataclass(frozen=True)
class Templatize(Pass):
    """`slot` is what is named: the size of the `tile` that grid axis `axis` numbers, the `threads` of a CTA, or the `stages` of the
    kernel's pipelined loop. `meta` is the name."""

    intent: ClassVar[str] = "templatize"
    catalogue: ClassVar[tuple[int, ...]] = (69,)
    claim: ClassVar[str] = "A number with a name can be tuned; one that is written out in ten places cannot."
    provides: ClassVar[tuple[str, ...]] = ("generic",)

    slot: Literal["tile", "threads", "stages"] = "threads"
    meta: str = "THREADS"
    axis: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel with a literal in the slot."""
        if not isinstance(node, n.Kernel):
            return None
        if self.axis and self.slot != "tile":
            return Miss(f"an axis is that of a tile, and the slot is {self.slot}")
        if self.meta in names_in(program, node):
            return Miss(f"'{self.meta}' is the name of something else")
        if _literal(node, self) is None:
            return Miss("there is no literal in that slot")
        try:
            self._named(node)
        except CannotResize as bad:
            return Miss(str(bad))
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The literal named, wherever it stands for the slot."""
        kernel = kernel_of(program, site.path)
        value = matched(_literal(kernel, self))
        made = replace_kernel(program, kernel.name, self._named(kernel))
        return Rewritten(replace(made, metas=(*made.metas, n.Meta(self.meta, "int", value))), site.path)

    def _named(self, kernel: n.Kernel) -> n.Kernel:
        value, var = matched(_literal(kernel, self)), build.var(self.meta)
        match self.slot:
            case "threads":
                return replace(kernel, threads=var)
            case "stages":
                return _with_stages(kernel, value, self.meta)
            case "tile":
                return resized(kernel, TileAxes(kernel), self.axis, value, var)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that uses a meta with a default in one slot only."""
        if not isinstance(node, n.Kernel):
            return None
        found: list[Site] = []
        for m in program.metas:
            if m.kind != "int" or not isinstance(m.default, int) or m != program.metas[-1]:
                continue
            slots = [Templatize(slot, m.name, axis) for slot, axis in _slots(node, m.name)]
            if len(slots) == 1 and not any(m.name in names_read(k) for k in program.kernels if k != node):
                found.append(Site(path, slots[0]))
        return tuple(found) or None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The default written out."""
        kernel = kernel_of(program, site.path)
        value = matched_as(next(m.default for m in program.metas if m.name == self.meta), int)
        plain = replace(program, metas=tuple(m for m in program.metas if m.name != self.meta))
        return Rewritten(replace_kernel(plain, kernel.name, instantiated(kernel, self.meta, value)), site.path)


def _literal(kernel: n.Kernel, params: Templatize) -> int | None:
    """The number in a slot."""
    match params.slot:
        case "threads":
            return build.int_value(kernel.threads)
        case "stages":
            found = [dict(s.attrs).get("stages") for s in walk(kernel) if isinstance(s, n.For) and s.kind == "pipelined"]
            return found[0] if len(found) == 1 and isinstance(found[0], int) else None
        case "tile":
            return tile_of(kernel.grid[params.axis]) if params.axis < len(kernel.grid) else None


def _slots(kernel: n.Kernel, meta: str) -> list[tuple[Literal["tile", "threads", "stages"], int]]:
    """The slots in which a kernel uses a meta."""
    out: list[tuple[Literal["tile", "threads", "stages"], int]] = []
    if kernel.threads == build.var(meta):
        out.append(("threads", 0))
    if any(dict(s.attrs).get("stages") == meta for s in walk(kernel) if isinstance(s, n.For)):
        out.append(("stages", 0))
    out += [("tile", i) for i, a in enumerate(kernel.grid) if isinstance(a.extent, n.Binary) and a.extent.b == build.var(meta)]
    return out


def _with_stages(kernel: n.Kernel, value: int, meta: str) -> n.Kernel:
    def leave(old: n.Node, new: n.Node) -> Any:
        if isinstance(new, n.For) and new.kind == "pipelined" and dict(new.attrs).get("stages") == value:
            return replace(new, attrs=n.attrs(**{**dict(new.attrs), "stages": meta}))
        return new
    made: n.Kernel = transform(kernel, leave)
    return made
