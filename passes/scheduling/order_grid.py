"""Launches CTAs in another order: an axis of the grid goes last, and counts from its end, so that the CTAs with the most work come first.

before:

```kir
kir 1
program prefix_sums
  in X: f32[H, N, N]
  out S: f32[H, N]
  size H: i32
  size N: i32
  fact N <= 4096
kernel main grid (i: N, h: H) threads 1
  register total: f32 = 0.0
  for j in 0..i + 1
    total = total + X[h, i, j]
  S[h, i] = total
```

pipeline: `order-grid@main`

after:

```kir
kir 1
program prefix_sums
  in X: f32[H, N, N]
  out S: f32[H, N]
  size H: i32
  size N: i32
  fact N <= 4096
kernel main grid (h: H, i_back: N) threads 1
  let i = N - i_back - 1
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
    if item.axis == len(kernel.grid) - 1:
        return proved("no axis changes its place")
    extent = kernel.grid[item.axis].extent
    return decided(build.compare("le", extent, MOST), Facts.from_program(program), f"the last axis has at most {MOST} CTAs",
                   f"more than {MOST} CTAs along the last axis")


@dataclass(frozen=True)
class OrderGrid(Pass):
    """`axis` is the number of the grid axis that goes last; `back`: whether it counts from its end."""

    intent: ClassVar[str] = "cost-ordered-schedule"
    catalogue: ClassVar[tuple[int, ...]] = (33,)
    claim: ClassVar[str] = "The longest CTAs start first, so that short ones fill the end of the launch."
    provides: ClassVar[tuple[str, ...]] = ("ordered",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P710", "validity", "hardware", "the axis is short enough for the place that it takes", _launchable),)

    axis: int = 0
    back: bool = True

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel with that axis, whose CTAs do not wait for one another."""
        if not isinstance(node, n.Kernel):
            return None
        if not 0 <= self.axis < len(node.grid) or node.cluster or node.attrs:
            return Miss("there is no such axis, or the launch has clusters or an order of its own")
        if self.axis == len(node.grid) - 1 and not self.back:
            return Miss("the axis is the last already")
        return Miss(WAITS) if waits(node) else Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The axis last, and its number first in the body."""
        kernel = kernel_of(program, site.path)
        axis = kernel.grid[self.axis]
        others, body = (*kernel.grid[:self.axis], *kernel.grid[self.axis + 1:]), kernel.body
        if self.back:
            own = replace(axis, name=fresh(f"{axis.name}_back", names_in(program, kernel)))
            body = (n.Let((axis.name,), _back(own)), *body)
            axis = own
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, grid=(*others, axis), body=body)), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose last axis is only counted from its end, or whose first is missing there."""
        if not isinstance(node, n.Kernel) or node.cluster or node.attrs or not node.grid:
            return None
        own, first = node.grid[-1], node.body[0] if node.body else None
        if not (isinstance(first, n.Let) and len(first.names) == 1 and first.value == _back(own)):
            return None
        if any(own.name in names_read(s) for s in node.body[1:]):
            return Miss("the last axis is used as it is, too")
        return Miss(WAITS) if waits(node) else tuple(Site(path, OrderGrid(k)) for k in range(len(node.grid)))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The axis in its place, counting up."""
        kernel = kernel_of(program, site.path)
        *others, own = kernel.grid
        first = matched_as(kernel.body[0], n.Let)
        grid = (*others[:self.axis], replace(own, name=first.names[0]), *others[self.axis:])
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, grid=grid, body=kernel.body[1:])), site.path)


def _back(axis: n.Axis) -> n.Expr:
    return build.sub(build.sub(axis.extent, build.var(axis.name)), 1)
