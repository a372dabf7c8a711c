"""Tiles a grid axis: one CTA computes `extent` neighbors along it instead of one.

pipeline: `tile{axis=0 extent=128}`

```diff
 kir 1
 program scale
   in X: f32[M]
   out Y: f32[M]
   size M: i32
-kernel main grid (m: M) threads 1
-  let x = X[m]
-  Y[m] = x * 2.0
+kernel main grid (m_tile: ceildiv(M, 128)) threads 1
+  let x = load(X[m_tile * 128 +: 128] else 0.0 clip)
+  Y[m_tile * 128 +: 128] = x * 2.0 clip
```
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from kir.analysis.clipping import divides, settle_clips
from kir.analysis.facts import Facts
from kir.analysis.solver import multiple
from kir.analysis.tiles.retile import CannotRetile, Narrow
from kir.analysis.tiles.tile_axes import AxisClass, TileAxes
from kir.analysis.tiles.widen import Widen
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import I32, TileType, dtype_of
from kir.ir.visit import buffers_named, names_read, statements, transform, walk
from kir.rewrite.base import Context, Effect, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import element_name, fresh, kernel_of, names_in, replace_kernel, tile_name
from kir.rewrite.match import matched, params_as
from kir.rewrite.match.independence import separated
from kir.rewrite.precondition import Verdict, proved, refuted, unknown, unless


def _stores_over(kernel: n.Kernel, axis: n.Axis) -> list[n.Store]:
    """Stores to global memory whose place depends on a grid axis, directly or by what is computed from it."""
    along = _computed_from(kernel, (axis.name,))
    return [s for s in walk(kernel) if isinstance(s, n.Store) and _moves(s.at, along)]


def _tails(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel, params = kernel_of(program, site.path), params_as(site, Tile)
    axis = kernel.grid[params.axis]
    if divides(params.extent, axis.extent, program.facts):
        return proved(f"{params.extent} divides the extent of '{axis.name}'")
    if params.floor:
        return left_over(params.extent, f"the extent of '{axis.name}'", axis.extent, Facts.from_program(program))
    along = _computed_from(kernel, (axis.name,))
    for s in _stores_over(kernel, axis):
        if s.mask is not None and not _clipped(s, axis):
            continue  # its mask ends with the axis, or is made to
        for i, d in zip(s.at.index, s.at.buffer.shape, strict=True):
            if isinstance(i, n.Expr) and not along.isdisjoint(names_read(i) | buffers_named(i)) and not (i == build.var(axis.name) and d == axis.extent):
                size = build.int_value(axis.extent)
                if size is not None:
                    return refuted(f"the last tile ends at {-(-size // params.extent) * params.extent}, past the {size} of '{axis.name}', "
                                   f"and '{s.at.buffer.name}' does not end there", f"'{axis.name}' = {size} writes '{s.at.buffer.name}'",
                                   needs="an extent that divides the axis")
                said = unknown(f"the last tile may hang over '{axis.name}', and '{s.at.buffer.name}' does not end where the axis ends",
                               needs=f"a fact that {params.extent} divides the extent")
                return unless(multiple(axis.extent, params.extent), Facts.from_program(program), said)
    for x in walk(kernel):
        if isinstance(x, n.Load) and x.mask is None and _moves(x.at, along - {axis.name}):
            return unknown(f"the last tile may hang over '{axis.name}', and '{x.at.buffer.name}' is read at places that are computed from it",
                           needs=f"a fact that {params.extent} divides the extent, or a condition that ends with the axis")
    return proved("every store over the axis ends where the axis ends, so the overhang is clipped")


def _clipped(s: n.Store, axis: n.Axis) -> bool:
    """Whether what is stored ends with its tensor, where the axis ends."""
    return s.clip and any(i == build.var(axis.name) and d == axis.extent for i, d in zip(s.at.index, s.at.buffer.shape, strict=True))


def _ended(kernel: n.Kernel, axis: n.Axis, extent: int, facts: Sequence[n.Expr]) -> n.Kernel:
    """A kernel whose masked accesses over an axis end with it, so that tiles may hang over."""
    if divides(extent, axis.extent, facts):
        return kernel
    over, end, along = _stores_over(kernel, axis), build.compare("lt", build.var(axis.name), axis.extent), _computed_from(kernel, (axis.name,))

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Store) and isinstance(old, n.Store) and old in over and new.mask is not None and not _clipped(old, axis):
            return replace(new, mask=build.logical_and(new.mask, end))
        if isinstance(new, n.Load) and isinstance(old, n.Load) and new.mask is not None and _moves(old.at, along) and end not in conjuncts(new.mask):
            return replace(new, mask=build.logical_and(new.mask, end))
        return new
    made: n.Kernel = transform(kernel, leave)
    return made


def _moves(at: n.Region, along: set[str]) -> bool:
    """Whether a place of global memory depends on what is computed from an axis."""
    return at.buffer.space == "global" and any(not along.isdisjoint(names_read(i) | buffers_named(i)) for i in at.index)


def _unended(kernel: n.Kernel, axis: n.Axis) -> n.Kernel:
    """A kernel without conditions that hold along all of an axis."""
    end = build.compare("lt", build.var(axis.name), axis.extent)

    def leave(_: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Load | n.Store) and new.mask is not None and end in (parts := list(conjuncts(new.mask))) and len(parts) > 1:
            rest = [x for x in parts if x != end]
            mask = rest[0]
            for x in rest[1:]:
                mask = build.logical_and(mask, x)
            return replace(new, mask=mask)
        return new
    made: n.Kernel = transform(kernel, leave)
    return made


def conjuncts(e: n.Expr) -> Iterator[n.Expr]:
    """The conditions that hold where `e` does."""
    if isinstance(e, n.Binary) and e.op == "and":
        yield from conjuncts(e.a)
        yield from conjuncts(e.b)
    else:
        yield e


def _private(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel, params = kernel_of(program, site.path), params_as(site, Tile)
    axis = kernel.grid[params.axis]
    written = {s.at.buffer.name for s in walk(kernel) if isinstance(s, n.Store) and s.at.buffer.space == "global"}
    read = {x.at.buffer.name for x in walk(kernel) if isinstance(x, n.Load)}
    both = sorted(written & read)
    for name in both:
        places = {s.at for s in walk(kernel) if isinstance(s, n.Store) and s.at.buffer.name == name}
        reads = {x.at for x in walk(kernel) if isinstance(x, n.Load) and x.at.buffer.name == name}
        if not reads <= places and not separated((*places, *reads), build.var(axis.name), set(bound_names(kernel.body))):
            return unknown(f"'{name}' is read and written at different places, so one row may read what another wrote",
                           needs=f"rows of '{axis.name}' that are independent")
    return proved("no row reads what another writes")


def _defined(program: n.Program, site: Site, context: Context) -> Verdict:
    params = params_as(site, Tile)
    if not params.undefined:
        return proved("elements past the end count as zero")
    return decides_nothing(kernel_of(params.optimize(program, site).program, site.path), params.undefined)


def decides_nothing(kernel: n.Kernel, tensors: tuple[str, ...]) -> Verdict:
    """Whether no place and no condition of a kernel depends on tensors that are undefined somewhere."""
    poison = _computed_from(kernel, tensors)
    for e in _decisions(kernel):
        if used := sorted(poison & (buffers_named(e) | names_read(e))):
            return refuted(f"'{used[0]}' decides where or whether something is read or written, and past the end of the axis it is undefined",
                           f"an address or a condition reads '{used[0]}'", needs="elements that are zero there")
    return proved("what is undefined past the end is computed with, and never stored")


def _computed_from(kernel: n.Kernel, tensors: tuple[str, ...]) -> set[str]:
    """The tensors, and the names and buffers that hold what is computed from them."""
    out, before = set(tensors), 0
    while len(out) != before:
        before = len(out)
        for s in statements(kernel.body):
            match s:
                case n.Let():
                    made, value = set(s.names), s.value
                case n.Store():
                    made, value = {s.at.buffer.name}, s.value
                case n.Alloc(init=n.Expr() as value):
                    made = {s.buffer.name}
                case _:
                    continue
            if out & (buffers_named(value) | names_read(value)):
                out |= made
    return out


def _decisions(kernel: n.Kernel) -> Iterator[n.Expr]:
    """What says where a kernel reads and writes, and whether it does."""
    for x in walk(kernel):
        match x:
            case n.Region():
                yield from (e for i in x.index for e in ((i,) if isinstance(i, n.Expr) else (i.lo,)))
            case n.Load() | n.Store() if x.mask is not None:
                yield x.mask
            case n.If() | n.While():
                yield x.cond
            case n.For():
                yield from (x.lo, x.hi, x.step)
            case _:
                pass


def undefined_loads(kernel: n.Kernel) -> set[str]:
    """Tensors of which something past the end is read, and nothing said of what that is."""
    return {x.at.buffer.name for x in walk(kernel) if isinstance(x, n.Load) and x.clip and x.other is None and x.mask is None}


def clipped_tensors(kernel: n.Kernel) -> set[str]:
    """Tensors of which an access stops at their end."""
    return {x.at.buffer.name for x in walk(kernel) if isinstance(x, n.Load | n.Store) and x.clip and x.at.buffer.space == "global"}


def with_clips(kernel: n.Kernel, tensors: tuple[str, ...]) -> n.Kernel:
    """A kernel in which accesses of tiles of some tensors stop at the end of the tensor."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Load | n.Store) and new.at.buffer.name in tensors and new.mask is None and isinstance(new.at.type, TileType):
            return replace(new, clip=True, other=build.const(0, new.at.buffer.dtype)) if isinstance(new, n.Load) else replace(new, clip=True)
        return new
    made: n.Kernel = transform(kernel, leave)
    return made


@dataclass(frozen=True)
class Tile(Pass):
    """`axis` is the position of the grid axis, `extent` the elements of a tile; `back` puts the new axis of values behind those that
    they have already. Past the end of the axis loads give zero, of the tensors `undefined` anything; accesses of the tensors `needless` stop at the
    end of the tensor though they never come to it. `floor`: the number of tiles is a quotient, of an axis that the extent divides."""

    axis: int = 0
    extent: int = 64
    back: bool = False
    undefined: tuple[str, ...] = ()
    needless: tuple[str, ...] = ()
    floor: bool = False

    intent: ClassVar[str] = "tile"
    catalogue: ClassVar[tuple[int, ...]] = (1,)
    claim: ClassVar[str] = "One CTA computes a tile of neighbors, so that operands that they share are loaded once."
    provides: ClassVar[tuple[str, ...]] = ("tiled",)
    least: ClassVar[Mapping[str, int]] = {"extent": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P010", "validity", "shape", "the tile divides the axis, or every store over the axis ends where it ends", _tails),
        Precondition("KIR-P011", "validity", "aliasing", "no row of the axis reads what another row writes", _private),
        Precondition("KIR-P912", "validity", "storage", "what is undefined past the end decides nothing", _defined),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel, when everything that depends on the axis has a form as a tile."""
        if not isinstance(node, n.Kernel) or self.axis >= len(node.grid):
            return None
        if build.is_const(node.grid[self.axis].extent, 1):
            return Miss("the axis has one element")
        try:
            self._widened(program, node, "%tile")
        except CannotRetile as bad:
            return Miss(str(bad))
        if self.undefined:
            wide, there = (kernel_of(item.optimize(program, Site(path, item)).program, path) for item in (self, replace(self, undefined=())))
            if set(self.undefined) != undefined_loads(wide) - undefined_loads(there) or tuple(sorted(self.undefined)) != self.undefined:
                return Miss("the tensors of which nothing is said past the end are not those whose tiles come to hang over it")
        return Site(path, self)

    def _widened(self, program: n.Program, kernel: n.Kernel, tile: str) -> n.Block:
        at = build.var(kernel.grid[self.axis].name)
        lo = build.mul(build.var(tile), self.extent)
        body = of_tile(kernel.body, at, lo, self.extent)
        return Widen.of(body, at, lo, self.extent, back=self.back).block(body)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Widens the body over the axis; accesses that may hang over are clipped."""
        kernel = kernel_of(program, site.path)
        axis = kernel.grid[self.axis]
        tile = fresh(tile_name(axis.name), names_in(program, kernel))
        made = n.Axis(tile, in_tiles(axis.extent, self.extent, self.floor))
        grid = (*kernel.grid[:self.axis], made, *kernel.grid[self.axis + 1:])
        ended = kernel if self.floor else _ended(kernel, axis, self.extent, program.facts)
        wide = settle_clips(replace(kernel, grid=grid, body=self._widened(program, ended, tile)), program.facts, kernel, self.undefined)
        wide = with_clips(wide, self.needless) if self.needless else wide
        return Rewritten(replace_kernel(program, kernel.name, wide), site.path)

    def inverse_sites_of(self, program: n.Program, kernel: n.Kernel) -> list[tuple[int, AxisClass]]:
        """Grid axes that number tiles, with the class of axes inside the tile."""
        axes = TileAxes(kernel)
        return [(position, c) for position, axis in enumerate(kernel.grid) for c in _numbered_by(axes, axis.name)]

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel with a grid axis that only numbers the tiles of one axis class."""
        if not isinstance(node, n.Kernel):
            return None
        reason: Miss | None = None
        out: list[Site] = []
        for position, c in self.inverse_sites_of(program, node):
            assert isinstance(c.extent, int)
            items = counted_in(node, position, c.extent, program.facts)
            if items is None:
                continue
            floor = items[1]
            try:
                made = Tile(position, c.extent)._narrowed(program, node)
            except CannotRetile as bad:
                reason = Miss(str(bad))
                continue
            undefined = tuple(sorted(undefined_loads(node) - undefined_loads(made)))
            needless = self._needless(program, node, made, replace(self, axis=position, extent=c.extent, undefined=undefined, floor=floor))
            out += [Site(path, Tile(position, c.extent, back, undefined, needless, floor)) for back in (False, True)]
        return tuple(out) or reason

    def _needless(self, program: n.Program, kernel: n.Kernel, narrow: n.Kernel, item: Tile) -> tuple[str, ...]:
        """The tensors whose accesses stop at an end that they never come to: which that is, is known of literal sizes and from facts."""
        clipped = clipped_tensors(kernel)
        if not clipped or (build.int_value(kernel.grid[item.axis].extent) is None and not item.floor):
            return ()
        try:
            again = item.optimize(replace_kernel(program, kernel.name, narrow), Site((kernel.name,), item)).program
        except CannotRetile:
            return ()
        return tuple(sorted(clipped - clipped_tensors(kernel_of(again, (kernel.name,)))))

    def _narrowed(self, program: n.Program, kernel: n.Kernel) -> n.Kernel:
        axes = TileAxes(kernel)
        tile = kernel.grid[self.axis]
        row = build.var(fresh(element_name(tile.name), names_in(program, kernel)))
        lo = build.mul(build.var(tile.name), self.extent)
        found = [c for c in _numbered_by(axes, tile.name) if c.extent == self.extent]
        if len(found) != 1:
            raise CannotRetile(f"{len(found)} axes run over the tiles of '{tile.name}'")
        body = Narrow(axes, found[0], lo, row).block(kernel.body)
        items = matched(counted_in(kernel, self.axis, self.extent, program.facts))
        grid = (*kernel.grid[:self.axis], n.Axis(row.name, items[0]), *kernel.grid[self.axis + 1:])
        narrow = replace(kernel, grid=grid, body=body)
        return settle_clips(_unended(narrow, n.Axis(row.name, items[0])), program.facts, kernel, sums=True)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Narrows the body; the axis counts elements again."""
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, self._narrowed(program, kernel)), site.path)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """No claim: how much traffic falls depends on what the other axes share."""
        return Effect()


def divides_exactly(tiles: n.Expr, extent: int | n.Expr) -> n.Expr | None:
    """How many elements `tiles` tiles of `extent` cover: x of `ceildiv(x, extent)`, or the product of a literal count."""
    if isinstance(tiles, n.Binary) and tiles.op == "ceildiv" and build.int_value(tiles.b) == extent:
        return tiles.a
    count, each = build.int_value(tiles), build.int_value(extent)
    dtype = dtype_of(tiles.type)
    return build.const(count * each, dtype) if count is not None and each is not None else None


def counted(tiles: n.Expr, extent: int, facts: Sequence[n.Expr]) -> tuple[n.Expr, bool] | None:
    """(elements, floor) of a number of tiles: how many elements they cover, and whether it is a quotient that facts say to be exact."""
    exact = divides_exactly(tiles, extent)
    if exact is not None:
        return exact, False
    quotient = isinstance(tiles, n.Binary) and tiles.op == "floordiv" and build.int_value(tiles.b) == extent
    return (tiles.a, True) if isinstance(tiles, n.Binary) and quotient and divides(extent, tiles.a, facts) else None


def counted_in(kernel: n.Kernel, position: int, extent: int, facts: Sequence[n.Expr]) -> tuple[n.Expr, bool] | None:
    """As `counted`, of an axis of a kernel's grid: where a number of tiles is a number, and a store of such a tile stops at an end that is one too, the axis
    ends there."""
    axis = kernel.grid[position]
    tiles = build.int_value(axis.extent)
    for s in walk(kernel) if tiles is not None else ():
        if isinstance(s, n.Store) and s.clip and s.at.buffer.space == "global":
            for i, d in zip(s.at.index, s.at.buffer.shape, strict=True):
                end = build.int_value(d)
                if end is not None and -(-end // extent) == tiles and isinstance(i, n.Span) and i.extent == extent and i.step == 1 and (
                        i.lo == build.mul(build.var(axis.name), extent)):
                    return build.const(end, dtype_of(axis.extent.type)), False
    return counted(axis.extent, extent, facts)


def in_tiles(elements: n.Expr, extent: int, floor: bool) -> n.Expr:
    """The number of tiles of some elements."""
    return build.floordiv(elements, extent) if floor else build.ceildiv(elements, extent)


def left_over(extent: int, what: str, count: n.Expr, known: Facts) -> Verdict:
    """The verdict on a quotient that facts do not say to be exact."""
    return unless(multiple(count, extent), known, unknown(f"the number of tiles is a quotient, and {extent} is not known to divide {what}",
                                                          needs=f"a fact that {extent} divides it", attempt="floor=false"))


def covered(tiles: n.Expr, extent: int, facts: Sequence[n.Expr] = ()) -> tuple[n.Expr, bool] | None:
    """As `counted`, also where the number is a sum or the smaller of two; `tiled` gives it back."""
    exact = counted(tiles, extent, facts)
    if exact is not None:
        return exact
    if isinstance(tiles, n.Binary) and tiles.op == "min":
        a, b = covered(tiles.a, extent, facts), covered(tiles.b, extent, facts)
        return None if a is None or b is None else (build.minimum(a[0], b[0]), a[1] or b[1])
    return (build.mul(tiles, extent), False) if tiles.type == I32 and len(build.polynomial(tiles)) > 1 else None


def tiled(elements: n.Expr, extent: int, floor: bool = False) -> n.Expr:
    """How many tiles of an extent some elements are: without a division where the extent divides each term of their number."""
    if isinstance(elements, n.Binary) and elements.op == "min":
        return build.minimum(tiled(elements.a, extent, floor), tiled(elements.b, extent, floor))
    terms = build.polynomial(elements) if elements.type == I32 else {}
    if len(terms) > 1 and all(c % extent == 0 for c in terms.values()):
        return build.from_polynomial({m: c // extent for m, c in terms.items()}, I32)
    return in_tiles(elements, extent, floor)


def of_tile(body: n.Block, at: n.Var, lo: n.Expr, extent: int) -> n.Block:
    """A body in which the quotient of an element's number by the extent is the number of its tile."""
    (tile,) = (v for v in walk(lo) if isinstance(v, n.Var))
    quotient = build.floordiv(at, extent)
    return tuple(transform(s, lambda _, x: tile if x == quotient else x) for s in body)


def _numbered_by(axes: TileAxes, name: str) -> list[AxisClass]:
    """The classes of axes inside the tiles that an axis of the grid numbers."""
    return axes.over(lambda c: isinstance(c.extent, int) and bool(c.sweeps) and not c.reduced
                     and all(is_tile_of(lo, step, name, c.extent) for lo, step in c.sweeps))


def is_tile_of(lo: n.Expr, step: int | n.Expr, name: str, extent: int | n.Expr) -> bool:
    """Whether elements from `lo` on, `step` apart, are those of a tile, from a place on that is the same for all tiles."""
    apart = step if isinstance(step, int) else build.int_value(step)
    if apart is None or apart < 1 or not isinstance(extent, int) or lo.type != I32:
        return False
    return name not in names_read(build.sub(lo, build.mul(build.var(name), extent * apart)))
