"""Launches CTAs in another order: an axis of the grid goes last, and counts from its end, so that the CTAs with the most work come first.

pipeline: `order-grid@main`

```diff
 kir 1
 program prefix_sums
   in X: f32[H, N, N]
   out S: f32[H, N]
   size H: i32
   size N: i32
   fact N <= 4096
-kernel main grid (i: N, h: H) threads 1
+kernel main grid (h: H, i_back: N) threads 1
+  let i = N - i_back - 1
   register total: f32 = 0.0
   for j in 0..i + 1
     total = total + X[h, i, j]
   S[h, i] = total
```

A tail of short CTAs fills the multiprocessors that run dry; one long CTA at the end would leave them idle.
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import names_read
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.match import matched_as, params_as
from kir.rewrite.precondition import decided

from .panel_order import WAITS, waits

MOST = 65535
"""CTAs along the second and third axis of a grid (CUDA C++ programming guide, compute capabilities)."""


def _launchable(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel, item = kernel_of(program, site.path), params_as(site, OrderGrid)
    if item.axis == len(kernel.grid) - 1 or not item.last:
        return proved("no axis changes its place")
    extent = kernel.grid[item.axis].extent
    return decided(build.compare("le", extent, MOST), Facts.from_program(program), f"the last axis has at most {MOST} CTAs",
                   f"more than {MOST} CTAs along the last axis")


@dataclass(frozen=True)
class OrderGrid(Pass):
    """`axis` is the number of a grid axis, which goes last, or stays where it is (`last`); `back`: whether it counts from its end."""

    intent: ClassVar[str] = "cost-ordered-schedule"
    catalogue: ClassVar[tuple[int, ...]] = (33,)
    claim: ClassVar[str] = "The longest CTAs start first, so that short ones fill the end of the launch."
    provides: ClassVar[tuple[str, ...]] = ("ordered",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P710", "validity", "hardware", "the axis is short enough for the place that it takes", _launchable),)

    axis: int = 0
    back: bool = True
    last: bool = True

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel with that axis, whose CTAs do not wait for one another."""
        if not isinstance(node, n.Kernel):
            return None
        if not 0 <= self.axis < len(node.grid) or node.cluster or node.attrs:
            return Miss("there is no such axis, or the launch has clusters or an order of its own")
        if not self.back and (self.axis == len(node.grid) - 1 or not self.last):
            return Miss("the axis is in its place already")
        return Miss(WAITS) if waits(node) else Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The axis in its new place, and its number first in the body."""
        kernel = kernel_of(program, site.path)
        item = params_as(site, OrderGrid)
        axis = kernel.grid[item.axis]
        before, after, body = kernel.grid[:item.axis], kernel.grid[item.axis + 1:], kernel.body
        if item.back:
            own = replace(axis, name=fresh(f"{axis.name}_back", names_in(program, kernel)))
            body = (n.Let((axis.name,), _back(own)), *body)
            axis = own
        grid = (*before, *after, axis) if item.last else (*before, axis, *after)
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, grid=grid, body=body)), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of which an axis only counts from its end; that the last one was elsewhere before is possible as well."""
        if not isinstance(node, n.Kernel) or node.cluster or node.attrs or not node.grid:
            return None
        first = node.body[0] if node.body else None
        at = next((k for k, own in enumerate(node.grid) if isinstance(first, n.Let) and len(first.names) == 1 and first.value == _back(own)), None)
        if at is None:
            return None
        if any(node.grid[at].name in names_read(s) for s in node.body[1:]):
            return Miss("the axis is used as it is, too")
        if waits(node):
            return Miss(WAITS)
        return (Site(path, OrderGrid(at, last=False)), *(Site(path, OrderGrid(k)) for k in range(len(node.grid)) if at == len(node.grid) - 1))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The axis in its place, counting up."""
        kernel, item = kernel_of(program, site.path), params_as(site, OrderGrid)
        at = len(kernel.grid) - 1 if item.last else item.axis
        first = matched_as(kernel.body[0], n.Let)
        others = (*kernel.grid[:at], *kernel.grid[at + 1:])
        grid = (*others[:item.axis], replace(kernel.grid[at], name=first.names[0]), *others[item.axis:])
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, grid=grid, body=kernel.body[1:])), site.path)


def _back(axis: n.Axis) -> n.Expr:
    return build.sub(build.sub(axis.extent, build.var(axis.name)), 1)
