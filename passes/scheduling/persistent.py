"""Launches as many CTAs as fit on the device, each of which walks over tiles, instead of one CTA for each tile.

pipeline: `persistent{ctas=132}@main`

```diff
 kir 1
 program scale
   in X: f32[M, 128]
   out Y: f32[M, 128]
   size M: i32
-kernel main grid (tile: M) threads 128
-  Y[tile, 0 +: 128] = X[tile, 0 +: 128] * 2.0
+kernel main grid (pid: 132) threads 128
+  for tile in pid..M step 132
+    Y[tile, 0 +: 128] = X[tile, 0 +: 128] * 2.0
```
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import expr_text
from kir.ir.types import dtype_of
from kir.ir.visit import names_read, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.match import matched_as, params_as
from kir.rewrite.match.independence import separated

from ..pipelining._rings import NoRing, roles_at
from ._persistent_roles import every_tile_ends, of_tile, quotient, standing, trips, walking


def _independent(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel = kernel_of(program, site.path)
    written = {s.at.buffer.name for s in walk(kernel) if isinstance(s, n.Store) and s.at.buffer.space == "global"}
    for x in walk(kernel):
        if isinstance(x, n.Call) and any(isinstance(a, n.Region) and a.buffer.space == "global" for a in x.args):
            return unknown(f"'{x.fn}' on global memory may tie tiles together", needs="tiles that do not wait for one another")
        if isinstance(x, n.Load) and x.at.buffer.name in written and not _of_one_tile(kernel, x.at):
            return unknown(f"a tile reads '{x.at.buffer.name}' where another may have written", needs="independent tiles")
    return proved("tiles write different memory and read none that others write")


def _of_one_tile(kernel: n.Kernel, at: n.Region) -> bool:
    """Whether a place is one that the tile itself writes, or no tile writes what another reads of its tensor."""
    stores = [s.at for s in walk(kernel) if isinstance(s, n.Store) and s.at.buffer.name == at.buffer.name]
    axis = kernel.grid[0]
    return at in stores or separated((*stores, at), build.var(axis.name, dtype_of(axis.extent.type)), set(bound_names(kernel.body)))


def _in_step(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel = kernel_of(program, site.path)
    found = roles_at(kernel)
    if found is None:
        return proved("the team takes one tile after the other")
    carried = params_as(site, Persistent).carried
    tile, counts = kernel.grid[0].name, trips(kernel, found[1], carried)
    names = {r.name: counts[i] for i, r in enumerate(found[1].roles) if i in counts}
    dependent = {tile} | {x for s in of_tile(kernel, tile).lets for x in s.names}
    for name, e in names.items():
        if names_read(e) & dependent and not carried:
            return refuted(f"'{name}' takes {expr_text(e)} slots for a tile, which is not the same for all", "the next tile begins in another slot",
                           needs="as many iterations for each tile, or slots that are added up", attempt="persistent{carried=true}")
    if len(set(names.values())) > 1:
        (a, x), (b, y) = list(names.items())[:2]
        return refuted(f"'{a}' takes {expr_text(x)} slots for a tile, and '{b}' {expr_text(y)}", "in the second tile they wait for different slots",
                       needs="as many iterations in each role")
    return proved("each role adds up the slots of its tiles" if carried else "each role takes the same slots for each tile")


def _whole_clusters(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel, item = kernel_of(program, site.path), params_as(site, Persistent)
    size = max(kernel.cluster, default=1)
    if item.ctas % size:
        return refuted(f"clusters of {size} do not divide {item.ctas} CTAs", f"CTA {item.ctas - 1} has no cluster", needs=f"a multiple of {size}",
                       attempt=f"persistent{{ctas={item.ctas // size * size}}}")
    return proved(f"{item.ctas} CTAs are {item.ctas // size} clusters" if size > 1 else "CTAs form no clusters")


@dataclass(frozen=True)
class Persistent(Pass):
    """`ctas` is the number of CTAs launched; with `capped`, no more than there are tiles. `named`: where roles walk, the number of a CTA's tiles is a
    value that they share. `carried`: each role adds up the slots of rings that its tiles take, which may so be of different lengths.
    `snake`: every second round goes backward over the CTAs, so that whoever had a long tile has a short one next."""

    intent: ClassVar[str] = "persistent"
    catalogue: ClassVar[tuple[int, ...]] = (30,)
    claim: ClassVar[str] = "CTAs that stay pay for their start once, and the order of tiles is the program's own."
    conflicts: ClassVar[tuple[str, ...]] = ("persistent",)
    provides: ClassVar[tuple[str, ...]] = ("persistent",)
    least: ClassVar[Mapping[str, int]] = {"ctas": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P885", "validity", "shape", "the CTAs that stay are whole clusters", _whole_clusters),
        Precondition("KIR-P300", "validity", "aliasing", "tiles are independent of one another", _independent),
        Precondition("KIR-P301", "validity", "pipeline", "no tile leaves the kernel early", every_tile_ends),
        Precondition("KIR-P766", "validity", "pipeline", "roles take as many slots of their rings for each tile", _in_step),
    )

    ctas: int = 132
    capped: bool = False
    named: bool = False
    carried: bool = False
    snake: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel with one grid axis."""
        if not isinstance(node, n.Kernel):
            return None
        if len(node.grid) != 1:
            return Miss("the grid has not one axis")
        if node.cluster and (roles_at(node) is None or quotient(node.grid[0].extent, node.cluster[0]) is None):
            return Miss("CTAs of a cluster that have no roles, or a grid of no whole number of clusters")
        if roles_at(node) is not None:
            try:
                walking(program, node, node.grid[0], self._ctas(node), self.named, self.carried, self.snake)
            except NoRing as why:
                return Miss(str(why))
            return Site(path, self)
        if len(node.body) == 1 and isinstance(loop := node.body[0], n.For) and loop.lo == build.var(node.grid[0].name, dtype_of(node.grid[0].extent.type)) and (
                loop.step == node.grid[0].extent):
            return Miss("its CTAs stay already, and further ones would have nothing to do")
        if self.named:
            return Miss("it has no roles that would share the number of tiles (named=false)")
        if self.carried or self.snake:
            return Miss("it has no roles that would add up slots, or go backward (carried=false snake=false)")
        if any(isinstance(s, n.Alloc) and s.buffer.space == "shared" for s in node.body):
            return Miss("shared memory would be declared once for each tile")
        return Site(path, self)

    def _ctas(self, kernel: n.Kernel) -> n.Expr:
        tile, size = kernel.grid[0], max(kernel.cluster, default=1)
        dtype, each = dtype_of(tile.extent.type), quotient(tile.extent, size)
        if not self.capped:
            return build.const(self.ctas, dtype)
        if each is None or self.ctas % size:
            return build.minimum(tile.extent, build.const(self.ctas, dtype))
        return build.mul(build.minimum(each, build.const(self.ctas // size, dtype)), size)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop over the tiles of a CTA, in each role where it has roles."""
        kernel = kernel_of(program, site.path)
        tile = kernel.grid[0]
        dtype, ctas = dtype_of(tile.extent.type), self._ctas(kernel)
        if roles_at(kernel) is not None:
            return Rewritten(replace_kernel(program, kernel.name, walking(program, kernel, tile, ctas, self.named, self.carried, self.snake)), site.path)
        pid = build.var(fresh("pid", names_in(program, kernel)), dtype)
        loop = n.For(build.var(tile.name, dtype), pid, tile.extent, ctas, kernel.body)
        made = replace(kernel, grid=(n.Axis(pid.name, ctas),), body=(loop,))
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that is one loop from the CTA's number by the number of CTAs, or whose roles are such loops."""
        if isinstance(node, n.Kernel) and roles_at(node) is not None:
            try:
                _, tiles, ctas, named, carried, snake = standing(program, node)
            except NoRing as why:
                return Miss(str(why))
            return self._launched(path, ctas, tiles.extent, named, max(node.cluster, default=1), carried, snake)
        if not (isinstance(node, n.Kernel) and not node.cluster and len(node.grid) == 1 and len(node.body) == 1 and isinstance(loop := node.body[0], n.For)):
            return None
        axis = node.grid[0]
        pid = build.var(axis.name, dtype_of(axis.extent.type))
        if loop.kind != "serial" or loop.lo != pid or loop.step != axis.extent:
            return Miss("the loop does not take every tile that is the CTA's own")
        if axis.name in names_read(loop.hi) or any(axis.name in names_read(s) for s in loop.body):
            return Miss("the body depends on more than the number of the tile")
        return self._launched(path, axis.extent, loop.hi, False)

    def _launched(self, path: Path, ctas: n.Expr, tiles: n.Expr, named: bool, size: int = 1, carried: bool = False,
                  snake: bool = False) -> Found:
        literal = build.int_value(ctas)
        if literal is not None:
            return Site(path, Persistent(literal, False, named, carried, snake))
        clusters, each = quotient(ctas, size), quotient(tiles, size)
        for part in (clusters.a, clusters.b) if isinstance(clusters, n.Binary) and clusters.op == "min" and each is not None else ():
            most = build.int_value(part)
            if most is not None and each is not None and clusters == build.minimum(each, most):
                return Site(path, Persistent(most * size, True, named, carried, snake))
        return Miss("the number of CTAs is neither a literal nor capped by the number of tiles")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One CTA for each tile."""
        kernel = kernel_of(program, site.path)
        if roles_at(kernel) is not None:
            return Rewritten(replace_kernel(program, kernel.name, standing(program, kernel)[0]), site.path)
        loop = matched_as(kernel.body[0], n.For)
        made = replace(kernel, grid=(n.Axis(loop.var.name, loop.hi),), body=loop.body)
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)
