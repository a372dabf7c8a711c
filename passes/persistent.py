"""Launches as many CTAs as fit on the device, each of which walks over tiles, instead of one CTA for each tile.

before:

```kir
kir 1
program scale
  in X: f32[M, 128]
  out Y: f32[M, 128]
  size M: i32
kernel main grid (tile: M) threads 128
  Y[tile, 0 +: 128] = X[tile, 0 +: 128] * 2.0
```

pipeline: `persistent{ctas=132}@main`

after:

```kir
kir 1
program scale
  in X: f32[M, 128]
  out Y: f32[M, 128]
  size M: i32
kernel main grid (pid: 132) threads 128
  for tile in pid..M step 132
    Y[tile, 0 +: 128] = X[tile, 0 +: 128] * 2.0
```
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import names_read, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel


def _independent(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel = kernel_of(program, site.path)
    written = {s.at.buffer.name for s in walk(kernel) if isinstance(s, n.Store) and s.at.buffer.space == "global"}
    for x in walk(kernel):
        if isinstance(x, n.Call) and any(isinstance(a, n.Region) and a.buffer.space == "global" for a in x.args):
            return unknown(f"'{x.fn}' on global memory may tie tiles together", needs="tiles that do not wait for one another")
        if isinstance(x, n.Load) and x.at.buffer.name in written and not any(
                isinstance(s, n.Store) and s.at == x.at for s in walk(kernel)):
            return unknown(f"a tile reads '{x.at.buffer.name}' where another may have written", needs="independent tiles")
    return proved("tiles write different memory and read none that others write")


def _leaves(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel = kernel_of(program, site.path)
    for s in walk(kernel):
        if isinstance(s, n.Jump) and s.kind == "return":
            return refuted("a tile that returns early would end the walk over the others", "tile 0 returns, and tile 132 is never computed")
    return proved("every tile runs to its end")


@dataclass(frozen=True)
class Persistent(Pass):
    """`ctas` is the number of CTAs launched; with `capped`, no more than there are tiles."""

    intent: ClassVar[str] = "persistent"
    catalogue: ClassVar[tuple[int, ...]] = (30,)
    claim: ClassVar[str] = "CTAs that stay pay for their start once, and the order of tiles is the program's own."
    conflicts: ClassVar[tuple[str, ...]] = ("persistent",)
    provides: ClassVar[tuple[str, ...]] = ("persistent",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P300", "validity", "aliasing", "tiles are independent of one another", _independent),
        Precondition("KIR-P301", "validity", "pipeline", "no tile leaves the kernel early", _leaves),
    )

    ctas: int = 132
    capped: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel with one grid axis."""
        if not isinstance(node, n.Kernel):
            return None
        if len(node.grid) != 1 or node.cluster:
            return Miss("the grid has not one plain axis")
        if any(isinstance(s, n.Alloc) and s.buffer.space == "shared" for s in node.body):
            return Miss("shared memory would be declared once for each tile")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop over the tiles of a CTA."""
        kernel = kernel_of(program, site.path)
        tile = kernel.grid[0]
        dtype = dtype_of(tile.extent.type)
        ctas: n.Expr = build.const(self.ctas, dtype)
        ctas = build.minimum(tile.extent, ctas) if self.capped else ctas
        pid = build.var(fresh("pid", names_in(program, kernel)), dtype)
        loop = n.For(build.var(tile.name, dtype), pid, tile.extent, ctas, kernel.body)
        made = replace(kernel, grid=(n.Axis(pid.name, ctas),), body=(loop,))
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that is one loop from the CTA's number by the number of CTAs."""
        if not (isinstance(node, n.Kernel) and len(node.grid) == 1 and len(node.body) == 1 and isinstance(loop := node.body[0], n.For)):
            return None
        axis = node.grid[0]
        pid = build.var(axis.name, dtype_of(axis.extent.type))
        if loop.kind != "serial" or loop.lo != pid or loop.step != axis.extent:
            return Miss("the loop does not take every tile that is the CTA's own")
        if axis.name in names_read(loop.hi) or any(axis.name in names_read(s) for s in loop.body):
            return Miss("the body depends on more than the number of the tile")
        literal = build.int_value(axis.extent)
        if literal is not None:
            return Site(path, Persistent(literal))
        for part in (axis.extent.a, axis.extent.b) if isinstance(axis.extent, n.Binary) and axis.extent.op == "min" else ():
            most = build.int_value(part)
            if most is not None and axis.extent == build.minimum(loop.hi, most):
                return Site(path, Persistent(most, True))
        return Miss("the number of CTAs is neither a literal nor capped by the number of tiles")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One CTA for each tile."""
        kernel = kernel_of(program, site.path)
        loop = kernel.body[0]
        assert isinstance(loop, n.For)
        made = replace(kernel, grid=(n.Axis(loop.var.name, loop.hi),), body=loop.body)
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)
