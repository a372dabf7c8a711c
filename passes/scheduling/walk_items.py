"""Lets a CTA walk over items, one after another, instead of one CTA for each item.

pipeline: `walk-items@main`

```diff
 kir 1
 program doubled
   in X: f32[M, N]
   out Y: f32[M, N]
   size M: i32
   size N: i32
-kernel main grid (column: N, row: M) threads 1
-  Y[row, column] = X[row, column] * 2.0
+kernel main grid (row: M) threads 1
+  for column in 0..N
+    Y[row, column] = X[row, column] * 2.0
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.ir.visit import names_read, statements, substitute
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict
from kir.rewrite.edit import element_name, fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.match import counting, fresh_var, from_zero, matched, matched_as, node_as
from kir.rewrite.match.independence import independent


def _apart(program: n.Program, site: Site, context: Context) -> Verdict:
    made = site.params.optimize(program, site).program
    path = (*site.path, 0)
    loop = node_as(made, path, n.For)
    return independent(made, path, loop)


@dataclass(frozen=True)
class WalkItems(Pass):
    """`axis` is the position of the grid axis. With `ctas` there are so many CTAs, each of which takes every so-manieth item; without, one takes all
    of them, and the axis goes."""

    axis: int = 0
    ctas: int = 0

    intent: ClassVar[str] = "persistent"
    catalogue: ClassVar[tuple[int, ...]] = (30,)
    claim: ClassVar[str] = "CTAs pay for their start once, and what their items have in common is computed once."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P920", "validity", "aliasing", "no item touches what another one writes", _apart),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of one thread, with a grid axis."""
        if not isinstance(node, n.Kernel) or self.axis >= len(node.grid) or not build.is_const(node.threads, 1) or node.cluster:
            return None
        if self.ctas < 2 and (self.ctas or not node.grid):
            return Miss("no CTAs would be left")
        if build.is_const(node.grid[self.axis].extent, 1) or names_read(node.grid[self.axis].extent) & {a.name for a in node.grid}:
            return Miss("the axis has one element")
        if any(isinstance(s, (n.Opaque, n.Roles, n.View, n.Jump)) or (isinstance(s, n.Alloc) and s.buffer.space != "register")
               for s in statements(node.body)):
            return Miss("the CTA has memory of its own, ends early, or has code that is not understood")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the items around the body."""
        kernel = kernel_of(program, site.path)
        axis, taken = kernel.grid[self.axis], names_in(program, kernel)
        rest = (kernel.grid[:self.axis], kernel.grid[self.axis + 1:])
        if not self.ctas:
            loop = counting(build.var(axis.name), axis.extent, kernel.body)
            return self._made(program, site, (*rest[0], *rest[1]), loop)
        cta, k = n.Axis(fresh("cta", taken), build.const(self.ctas)), fresh_var("k", taken)
        at = build.add(build.var(cta.name), build.mul(k, self.ctas))
        body = tuple(substitute(s, {axis.name: at}) for s in kernel.body)
        loop = counting(k, _share(axis.extent, build.var(cta.name), self.ctas), body)
        return self._made(program, site, (*rest[0], cta, *rest[1]), loop)

    def _made(self, program: n.Program, site: Site, grid: tuple[n.Axis, ...], *body: n.Stmt) -> Rewritten:
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, grid=grid, body=body)), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of one thread that is one loop, over items or over those of a CTA."""
        loop = node.body[0] if isinstance(node, n.Kernel) and len(node.body) == 1 and build.is_const(node.threads, 1) and not node.cluster else None
        if not (isinstance(node, n.Kernel) and isinstance(loop, n.For) and loop.kind == "serial" and not loop.attrs and loop.var.of == I32
                and from_zero(loop)):
            return None
        if not names_read(loop.hi) & {a.name for a in node.grid}:
            if not any(isinstance(s, n.Store) and s.at.buffer.space == "global" and any(
                    i == loop.var and d == loop.hi for i, d in zip(s.at.index, s.at.buffer.shape, strict=False)) for s in statements(node.body)):
                return Miss("its count is no place along a whole axis of what it stores")
            if len(node.grid) > 2:
                return Miss("a grid has at most three axes")
            return tuple(Site(path, WalkItems(k)) for k in range(len(node.grid) + 1))
        for k, axis in enumerate(node.grid):
            ctas = build.int_value(axis.extent)
            if ctas is not None and self._items(node, loop, k) is not None:
                return Site(path, WalkItems(k, ctas))
        return Miss("how many items a CTA has is not what is left to it")

    def _items(self, kernel: n.Kernel, loop: n.For, k: int) -> tuple[n.Expr, n.Block] | None:
        """The number of items of all CTAs along an axis, and the body for the item `%item`."""
        axis = kernel.grid[k]
        ctas, cta = build.int_value(axis.extent), build.var(axis.name)
        hi = loop.hi
        if ctas is None or not (isinstance(hi, n.Binary) and hi.op == "ceildiv" and build.int_value(hi.b) == ctas):
            return None
        extent = build.add(hi.a, cta)
        number = build.sub(n.Var("%item", I32), build.mul(loop.var, ctas))
        body = tuple(substitute(s, {axis.name: number}) for s in loop.body)
        return None if axis.name in names_read(extent) or any(loop.var.name in names_read(s) for s in body) else (extent, body)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A CTA for each item."""
        kernel = kernel_of(program, site.path)
        loop = matched_as(kernel.body[0], n.For)
        if not self.ctas:
            grid = (*kernel.grid[:self.axis], n.Axis(loop.var.name, loop.hi), *kernel.grid[self.axis:])
            return self._made(program, site, grid, *loop.body)
        found = matched(self._items(kernel, loop, self.axis))
        extent, body = found
        axis = n.Axis(fresh(element_name(kernel.grid[self.axis].name), names_in(program, kernel)), extent)
        grid = (*kernel.grid[:self.axis], axis, *kernel.grid[self.axis + 1:])
        return self._made(program, site, grid, *(substitute(s, {"%item": build.var(axis.name)}) for s in body))


def _share(extent: n.Expr, cta: n.Expr, ctas: int) -> n.Expr:
    """How many items a CTA has."""
    return build.ceildiv(build.sub(extent, cta), ctas)

