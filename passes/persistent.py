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
kernel main grid (cta: 132) threads 128
  for turn in 0..ceildiv(M - cta, 132)
    Y[turn * 132 + cta, 0 +: 128] = X[turn * 132 + cta, 0 +: 128] * 2.0
```
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType, dtype_of
from kir.ir.visit import names_read, substitute, walk
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
    """`ctas` is the number of CTAs launched."""

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
        axis = kernel.grid[0]
        dtype = dtype_of(axis.extent.type)
        taken = names_in(program, kernel)
        cta, turn = build.var(fresh("pid", taken), dtype), build.var(fresh("turn", taken), dtype)
        tile = build.add(cta, build.mul(turn, self.ctas))
        turns = build.ceildiv(build.sub(axis.extent, cta), self.ctas)
        body = tuple(substitute(s, {axis.name: tile}) for s in kernel.body)
        loop = n.For(turn, build.const(0, dtype), turns, build.const(1, dtype), body)
        made = replace(kernel, grid=(n.Axis(cta.name, build.const(self.ctas, dtype)),), body=(loop,))
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that is one loop over `cta + turn * ctas`."""
        if not (isinstance(node, n.Kernel) and len(node.grid) == 1 and len(node.body) == 1 and isinstance(loop := node.body[0], n.For)):
            return None
        ctas = build.int_value(node.grid[0].extent)
        if ctas is None or loop.kind != "serial" or not (build.is_const(loop.lo, 0) and build.is_const(loop.step, 1)):
            return None
        tiles = _tiles(loop.hi, node.grid[0], ctas)
        if tiles is None:
            return Miss("the loop does not take every tile that is the CTA's own")
        if _over_tiles(loop, node.grid[0], ctas, "%tile") is None:
            return Miss("the body depends on more than the number of the tile")
        return Site(path, Persistent(ctas), {"tiles": tiles})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One CTA for each tile."""
        kernel = kernel_of(program, site.path)
        loop = kernel.body[0]
        assert isinstance(loop, n.For)
        tile = fresh("tile", names_in(program, kernel))
        body = _over_tiles(loop, kernel.grid[0], self.ctas, tile)
        assert body is not None
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, grid=(n.Axis(tile, site.captures["tiles"]),), body=body)), site.path)


def _tiles(hi: n.Expr, axis: n.Axis, ctas: int) -> n.Expr | None:
    """The number of tiles, of a loop end that is `ceildiv(tiles - cta, ctas)`."""
    if isinstance(hi, n.Binary) and hi.op == "ceildiv" and build.int_value(hi.b) == ctas:
        tiles = build.add(hi.a, build.var(axis.name, dtype_of(axis.extent.type)))
        return None if axis.name in names_read(tiles) else tiles
    return None


def _over_tiles(loop: n.For, axis: n.Axis, ctas: int, tile: str) -> n.Block | None:
    """The body with `cta + turn * ctas` read as the tile, or None when something else of the two is left."""
    dtype = dtype_of(axis.extent.type)
    assert isinstance(dtype, DType)
    cta = build.sub(build.var(tile, dtype), build.mul(loop.var, ctas))
    body: n.Block = tuple(substitute(s, {axis.name: cta}) for s in loop.body)
    return None if any({loop.var.name, axis.name} & names_read(s) for s in body) else body
