"""Has the surface hand out the CTAs of a two-dimensional grid in panels: an option of the launch, where `raster-l2` computes the order in the kernel.

pipeline: `panel-order{panel=8}@main`

```diff
 kir 1
 program fill
   out C: f32[M, N]
   size M: i32
   size N: i32
-kernel main grid (col: N, row: M) threads 1
+kernel main grid (col: N, row: M) threads 1 {raster_order="row", raster_panel=8}
   C[row, col] = 1.0
```

TileLang's `T.use_swizzle`. Which CTA is which does not change, only when it runs, which nothing in a kernel may depend on unless its CTAs wait for one another.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.visit import statements, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import kernel_of, replace_kernel

ORDERS = ("row", "column")


@dataclass(frozen=True)
class PanelOrder(Pass):
    """`panel` rows (or columns, as `order` says) of CTAs are run one after another."""

    intent: ClassVar[str] = "raster-l2"
    catalogue: ClassVar[tuple[int, ...]] = (31,)
    claim: ClassVar[str] = "CTAs that run together share rows and columns of the operands, so more of their loads hit L2."
    provides: ClassVar[tuple[str, ...]] = ("raster",)
    least: ClassVar[Mapping[str, int]] = {"panel": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    panel: int = 8
    order: str = "row"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of several grid axes whose CTAs run in the hardware's order."""
        if not isinstance(node, n.Kernel):
            return None
        if len(node.grid) < 2:
            return Miss("the grid has one axis")
        if "raster_panel" in dict(node.attrs):
            return Miss("its CTAs are handed out in panels already")
        if self.order not in ORDERS or self.panel < 1:
            return Miss(f"panels of {self.panel} in order of {self.order}s: order is one of {', '.join(ORDERS)}")
        return Miss(WAITS) if waits(node) else Site(path, self)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose CTAs are handed out in panels."""
        if not isinstance(node, n.Kernel):
            return None
        attrs = dict(node.attrs)
        panel, order = attrs.get("raster_panel"), attrs.get("raster_order", "row")
        if not isinstance(panel, int) or order not in ORDERS or "raster_order" not in attrs:
            return None
        return Miss(WAITS) if waits(node) else Site(path, PanelOrder(panel, str(order)))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The option."""
        kernel = kernel_of(program, site.path)
        made = n.attrs(**{**dict(kernel.attrs), "raster_panel": self.panel, "raster_order": self.order})
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, attrs=made)), site.path)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The hardware's order."""
        kernel = kernel_of(program, site.path)
        made = tuple((k, v) for k, v in kernel.attrs if k not in ("raster_panel", "raster_order"))
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, attrs=made)), site.path)


WAITS = "its CTAs may wait for one another: the order in which they run may matter"


def waits(k: n.Kernel) -> bool:
    """Whether a CTA may wait for what another one does: a loop without a count that reads global memory which the kernel writes, or atomically."""
    written = {x.at.buffer.name for x in statements(k.body) if isinstance(x, n.Store)}
    written |= {x.dst.buffer.name for x in statements(k.body) if isinstance(x, n.Copy)}
    for s in statements(k.body):
        for x in walk(s) if isinstance(s, n.While) else ():
            if isinstance(x, n.Call) and x.fn.startswith("atomic_"):
                return True
            if isinstance(x, n.Load) and x.at.buffer.space == "global" and x.at.buffer.name in written:
                return True
    return False
