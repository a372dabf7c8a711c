"""Lets one iteration of a loop work on a tile of neighbors instead of on one element.

pipeline: `tile-loop{extent=256}@main/columns`

```diff
 kir 1
 program doubled
   in X: f32[M, N]
   out Y: f32[M, N]
   size M: i32
   size N: i32
 kernel main grid (row: M) threads 128
-  @columns for i in 0..N
-    let x = X[row, i]
-    Y[row, i] = x * 2.0
+  @columns for i_tile in 0..ceildiv(N, 256)
+    let x = load(X[row, i_tile * 256 +: 256] else 0.0 clip)
+    Y[row, i_tile * 256 +: 256] = x * 2.0 clip
```
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from kir.analysis.access import Aliases
from kir.analysis.clipping import divides, settle_clips
from kir.analysis.facts import Facts
from kir.analysis.solver import decide, multiple
from kir.analysis.tiles.retile import CannotRetile, Narrow
from kir.analysis.tiles.tile_axes import AxisClass, TileAxes
from kir.analysis.tiles.widen import Widen
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType, dtype_of
from kir.ir.visit import names_read, once, statements, walk
from kir.rewrite.base import Context, Effect, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import element_name, kernel_of, names_in, replace_kernel, replace_stmts, tile_name
from kir.rewrite.match import fresh_var, is_counted, matched, node_as, params_as
from kir.rewrite.match.independence import last_write
from kir.rewrite.precondition import Verdict, proved, refuted, unknown, unless

from ..grid.tile import counted, decides_nothing, in_tiles, is_tile_of, left_over, undefined_loads


def _loop(program: n.Program, site: Site) -> tuple[n.For, TileLoop]:
    loop, item = node_as(program, site.path, n.For), params_as(site, TileLoop)
    return loop, item


def _tails(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, item = _loop(program, site)
    if item.undefined and not (found := decides_nothing(kernel_of(item.optimize(program, site).program, site.path), item.undefined)):
        return found
    if divides(item.extent, loop.hi, program.facts):
        return proved(f"{item.extent} divides the number of iterations")
    if item.floor:
        return left_over(item.extent, "the number of iterations", loop.hi, Facts.at(program, site.path))
    beyond = Facts.at(program, site.path).ranging(loop.var, loop.hi, build.add(loop.hi, item.extent))
    for s in statements(loop.body):
        if isinstance(s, n.Store) and s.at.buffer.space == "global" and s.at.index:
            ends = [build.cast(d, dtype_of(loop.var.of)) == loop.hi for i, d in zip(s.at.index, s.at.buffer.shape, strict=True) if i == loop.var]
            if True not in ends and not _is_past(s.at, loop, beyond):
                size, end = build.int_value(loop.hi), [build.int_value(d) for d in s.at.buffer.shape]
                stores = [x for k in program.kernels for x in statements(k.body)
                          if (isinstance(x, n.Store) and x.at.buffer == s.at.buffer) or (isinstance(x, n.Copy) and x.dst.buffer == s.at.buffer)]
                if size is not None and None not in end and ends and s in loop.body and stores == [s]:  # else the overhang may be another's, or kept away
                    return refuted(f"the last tile ends at {-(-size // item.extent) * item.extent}, past the {size} iterations",
                                   f"'{s.at.buffer.name}' does not end there", needs="an extent that divides the iterations")
                said = unknown(f"the last tile may hang over, and '{s.at.buffer.name}' does not end where the loop does",
                               needs=f"a fact that {item.extent} divides the iterations")
                return unless(multiple(loop.hi, item.extent), Facts.at(program, site.path), said)
    return proved("every store ends where the loop ends, so the overhang is clipped")


def _is_past(r: n.Region, loop: n.For, beyond: Facts) -> bool:
    """Whether a place lies past the end of its tensor wherever the loop's variable is past its own: a tensor that ends before the loop does."""
    return any(isinstance(i, n.Expr) and loop.var.name in names_read(i) and decide(build.below(i, d), beyond).kind == "never"
               for i, d in zip(r.index, r.buffer.shape, strict=True))


def _independent(program: n.Program, site: Site, context: Context) -> Verdict:
    (loop, _), aliases = _loop(program, site), Aliases(program)
    writes = tuple(dict.fromkeys(s.at for s in statements(loop.body) if isinstance(s, n.Store) and s.at.buffer.space == "global"))
    for x in walk(loop):
        if isinstance(x, n.Load) and x.at not in writes and any(aliases.may_be_one(x.at.buffer.name, w.buffer.name) for w in writes):
            return unknown(f"'{x.at.buffer.name}' is read and written at different places, so one iteration may read what another wrote",
                           needs="iterations that are independent")
    disputed = last_write(program, site.path, loop)
    return disputed if disputed is not None else proved("no iteration touches what another writes")


@dataclass(frozen=True)
class TileLoop(Pass):
    """`extent` elements in an iteration; `back` puts the new axis of values behind those that they have already. Past the end loads give zero, of
    the tensors `undefined` anything. `floor`: the number of tiles is a quotient, of a loop that the extent divides."""

    extent: int = 128
    back: bool = False
    undefined: tuple[str, ...] = ()
    floor: bool = False

    intent: ClassVar[str] = "tile"
    catalogue: ClassVar[tuple[int, ...]] = (1, 52)
    claim: ClassVar[str] = "Neighbors move and are computed together, by threads side by side."
    least: ClassVar[Mapping[str, int]] = {"extent": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P918", "validity", "shape", "what lies past the last iteration is never stored, and where it is undefined decides nothing", _tails),
        Precondition("KIR-P919", "validity", "aliasing", "no iteration touches what another writes", _independent),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop from 0 that carries nothing from one iteration to the next, when its statements have a form as tiles."""
        if not (_counts(node) and isinstance(node, n.For)) or self.extent < 2:
            return None
        own = {s.buffer.name for s in statements(node.body) if isinstance(s, n.Alloc)}
        stores = [s for s in statements(node.body) if isinstance(s, n.Store)]
        if not any(s.at.buffer.space == "global" for s in stores):
            return Miss("it stores nothing to global memory")
        if any(s.at.buffer.space != "global" and s.at.buffer.name not in own for s in stores):
            return Miss("it carries a value from one iteration to the next")
        if any(isinstance(s, (n.Copy, n.Mma, n.Eval, n.While, n.Jump, n.View, n.Opaque, n.Hole, n.Roles)) or (
                isinstance(s, n.For) and s.kind not in ("serial", "unroll")) for s in statements(node.body)):
            return Miss("a statement of it has no form as a tile")
        if any(isinstance(s, n.For) and s.kind in ("thread", "warp", "warpgroup") for s in statements(kernel_of(program, path).body)):
            return Miss("the kernel is written for each thread")
        try:
            made = self._widened(node, node.var.name)
        except CannotRetile as bad:
            return Miss(str(bad))
        if made == node.body:
            return Miss("nothing in it depends on the iteration")
        if self.undefined:
            wide, there = (kernel_of(item.optimize(program, Site(path, item)).program, path) for item in (self, replace(self, undefined=())))
            if set(self.undefined) != undefined_loads(wide) - undefined_loads(there) or tuple(sorted(self.undefined)) != self.undefined:
                return Miss("the tensors of which nothing is said past the end are not those whose tiles come to hang over it")
        return Site(path, self)

    def _widened(self, loop: n.For, tile: str) -> n.Block:
        lo = build.mul(n.Var(tile, loop.var.of), self.extent)
        return Widen.of(loop.body, loop.var, lo, self.extent, back=self.back).block(loop.body)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Widens the loop's body over its variable."""
        (loop, _), kernel = _loop(program, site), kernel_of(program, site.path)
        tile = fresh_var(tile_name(loop.var.name), names_in(program, kernel), loop.var.of)
        made = replace(loop, var=tile, hi=in_tiles(loop.hi, self.extent, self.floor), body=self._widened(loop, tile.name))
        return self._settled(replace_stmts(program, site.path, (made,)), site, kernel)

    def _settled(self, made: n.Program, site: Site, before: n.Kernel) -> Rewritten:
        kernel = settle_clips(kernel_of(made, site.path), made.facts, before, self.undefined)
        return Rewritten(replace_kernel(made, kernel.name, kernel), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over tiles, one axis of whose values numbers their elements."""
        if not (_counts(node) and isinstance(node, n.For)) or not once(node, "_has_tiles", lambda: any(
                isinstance(x, n.Expr) and isinstance(x.type, TileType) for x in walk(node))):
            return None
        reason: Miss | None = None
        out: list[Site] = []
        for c in _numbering(TileAxes(kernel_of(program, path)), node):
            assert isinstance(c.extent, int)
            items = counted(node.hi, c.extent, program.facts)
            if items is None:
                continue
            item = TileLoop(c.extent)
            try:
                made = item.deoptimize(program, Site(path, item)).program
            except CannotRetile as bad:
                reason = Miss(str(bad))
                continue
            gone = tuple(sorted(undefined_loads(kernel_of(program, path)) - undefined_loads(kernel_of(made, path))))
            out += [Site(path, TileLoop(c.extent, back, gone, items[1])) for back in (False, True)]
        return tuple(out) or reason

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Narrows the loop's body to one element."""
        (loop, _), kernel = _loop(program, site), kernel_of(program, site.path)
        axes = TileAxes(kernel)
        found = [c for c in _numbering(axes, loop) if c.extent == self.extent]
        if len(found) != 1:
            raise CannotRetile(f"{len(found)} axes run over the tiles of '{loop.var.name}'")
        row = fresh_var(element_name(loop.var.name), names_in(program, kernel), loop.var.of)
        items = matched(counted(loop.hi, self.extent, program.facts))
        body = Narrow(axes, found[0], build.mul(loop.var, self.extent), row)
        made = replace(loop, var=row, hi=items[0], body=body.block(loop.body))
        return self._settled(replace_stmts(program, site.path, (made,)), site, kernel)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """No claim."""
        return Effect()


def _counts(node: Place) -> bool:
    return is_counted(node, plain=True)


def _numbering(axes: TileAxes, loop: n.For) -> list[AxisClass]:
    """The classes of axes that number the elements of a loop's tiles."""
    return axes.over(lambda c: isinstance(c.extent, int) and bool(c.sweeps) and not c.reduced
                     and all(loop.var.name in names_read(lo) and is_tile_of(lo, step, loop.var.name, c.extent) for lo, step in c.sweeps))
