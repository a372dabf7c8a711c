"""Updates many places of a tensor at once, one for each element of a tile: a loop of single atomic updates becomes one update by the tile.

pipeline: `update-rows{spread=false}@main/each`

```diff
 kir 1
 program histogram
   in X: i32[M, 64]
   inout H: i32[16]
   size M: i32
 kernel main grid (row: M) threads 1
-  @each for j in 0..64
-    if X[row, j] > 0
-      atomic_add(&H[X[row, j] & 15], 1)
+  @each atomic_add(&H[X[row, 0 +: 64] & 15], 1, X[row, 0 +: 64] > 0)
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.access import Aliases, accesses
from kir.analysis.elements import NotElementwise, element, element_region, tile, tile_place
from kir.analysis.tiles.retile import CannotRetile
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, TileType, dtype_of, shape_of
from kir.ir.visit import walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import kernel_of, names_in
from kir.rewrite.match import counting, edited, fresh_var, is_counted, matched, matched_as, node_as

UPDATES = frozenset({"atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor"})
"""Operations whose order does not matter but for rounding."""


def _reads_nothing_updated(program: n.Program, site: Site, context: Context) -> Verdict:
    found, aliases = matched(_update(node_as(program, site.path, n.For).body[0])), Aliases(program)
    for a in (a for e in (found.value, *([found.mask] if found.mask is not None else []), *(i for i in found.at.index if isinstance(i, n.Expr)))
              for a in accesses(e)):
        if aliases.may_be_one(a.buffer, found.at.buffer.name):
            return refuted(f"an iteration reads '{a.buffer}', which another one updates", "the tile is read before any of it is updated",
                           needs="updates that do not depend on one another")
    return proved("no iteration reads what is updated")


@dataclass(frozen=True)
class _Update:
    """An atomic update of a place by a value, where a mask holds; `call` is all of it."""

    call: n.Call
    at: n.Region
    value: n.Expr
    mask: n.Expr | None

    def made(self, at: n.Region, value: n.Expr, mask: n.Expr | None, label: str | None) -> n.Stmt:
        """The same update of another place: under a branch if it is one element, with a mask if it is several."""
        whole = shape_of(at.type)
        call = replace(self.call, args=(at, value, *((mask,) if mask is not None and whole else ())))
        if mask is None or whole:
            return n.Eval(call, label=label)
        return n.If(mask, (n.Eval(call),), label=label)


def _update(s: Place) -> _Update | None:
    """An update whose old value nobody keeps."""
    if isinstance(s, n.If):
        only = s.then[0] if len(s.then) == 1 and not s.orelse and not s.static else None
        inner = _update(only) if isinstance(only, n.Eval) else None
        return replace(inner, mask=s.cond) if inner is not None and inner.mask is None else None
    if not (isinstance(s, n.Eval) and s.call.of is None and s.call.fn in UPDATES and len(s.call.args) in (2, 3)):
        return None
    at, value, *mask = s.call.args
    if not (isinstance(at, n.Region) and at.buffer.space in ("global", "shared") and at.buffer.shape and isinstance(value, n.Expr)):
        return None
    return _Update(s.call, at, value, mask[0] if mask and isinstance(mask[0], n.Expr) else None)


@dataclass(frozen=True)
class UpdateRows(Pass):
    """The new axis comes first. With `spread`, what is the same along an axis is written out for all of it; with `gather`, neighbors are named one by one."""

    intent: ClassVar[str] = "partition-rows"
    catalogue: ClassVar[tuple[int, ...]] = (47, 49)
    claim: ClassVar[str] = "Updates of many places are under way at once, an element of a tile each."
    numerics: ClassVar[str] = "reassociated(updates)"
    provides: ClassVar[tuple[str, ...]] = ("rows",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P945", "validity", "aliasing", "no iteration reads what is updated", _reads_nothing_updated),
    )

    spread: bool = True
    gather: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop of known length over one update, of a CTA of one thread."""
        if not is_counted(node, plain=True) or len(node.body) != 1 or _update(node.body[0]) is None:
            return None
        if not build.is_const(kernel_of(program, path).threads, 1):
            return Miss("every thread would update")
        if build.int_value(node.hi) is None or node.var.of != I32:
            return Miss("the number of iterations is not known")
        try:
            self._widened(node)
        except (CannotRetile, NotElementwise) as bad:
            return Miss(str(bad))
        return Site(path, self)

    def _widened(self, loop: n.For) -> n.Stmt:
        found, extent = matched(_update(loop.body[0])), matched(build.int_value(loop.hi))
        rest = [(n.Var(f"%{k}", I32), d) for k, d in enumerate(shape_of(found.at.type))]
        axes = [(n.Var(loop.var.name, I32), extent), *rest]
        place = tile_place(element_region(found.at, [v for v, _ in rest]), axes)
        if place is None:
            raise CannotRetile("the place has no form as a tile with this axis")
        if self.gather and (place := _one_by_one(place)) is None:
            raise CannotRetile("the place is no row of neighbors")

        def wide(e: n.Expr) -> n.Expr:
            own = rest[len(rest) - len(shape_of(e.type)):]
            return tile(element(e, [v for v, _ in own]) if shape_of(e.type) else e, axes, self.spread)
        return found.made(place, wide(found.value), None if found.mask is None else wide(found.mask), loop.label)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One update by the whole tile."""
        return edited(program, site.path, (self._widened(node_as(program, site.path, n.For)),))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an update by a tile, of a CTA of one thread."""
        found = _update(node) if isinstance(node, n.Eval) else None
        if found is None or not isinstance(found.at.type, TileType):
            return None
        if not build.is_const(kernel_of(program, path).threads, 1):
            return Miss("the threads update together")
        shape = shape_of(found.at.type)
        if not all(isinstance(d, int) for d in shape):
            return Miss("the extent of the tile is not known")
        try:
            _narrowed(found, n.Var("%j", I32), True, None)
        except (CannotRetile, NotElementwise) as bad:
            return Miss(str(bad))
        gather = len(found.at.index) == len(shape) == 1 and isinstance(found.at.index[0], n.Expr) and any(
            isinstance(x, n.Call) and x.fn == "iota" for x in walk(found.at.index[0])) and not any(isinstance(x, n.Load) for x in walk(found.at.index[0]))
        return Site(path, UpdateRows(shape_of(found.value.type) == shape and (found.mask is None or shape_of(found.mask.type) == shape), gather))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop that updates one place after the other."""
        s = node_as(program, site.path, n.Eval)
        found = matched(_update(s))
        j = fresh_var("j", names_in(program, kernel_of(program, site.path)))
        inner = _narrowed(found, j, self.spread, None)
        return edited(program, site.path, (counting(j, matched_as(shape_of(found.at.type)[0], int), (inner,), label=s.label),))


def _one_by_one(r: n.Region) -> n.Region | None:
    """A row of neighbors, each by its number; None for another place."""
    whole = [n.Span(build.const(0), d) for d in shape_of(r.type)] if not r.index else []
    only = next(iter((*r.index, *whole)), None) if len(r.buffer.shape) == 1 else None
    if not isinstance(only, n.Span) or not isinstance(only.extent, int) or only.step not in (1, build.const(1)):
        return None
    number = build.cast(build.call("iota", build.const(only.extent)), dtype_of(only.lo.type))
    return n.Region(r.buffer, (build.add(number, only.lo),))


def _narrowed(found: _Update, j: n.Var, spread: bool, label: str | None) -> n.Stmt:
    """The update by one slice. Raises CannotRetile, NotElementwise."""
    shape = shape_of(found.at.type)
    rest: list[tuple[n.Var, int | n.Expr]] = [(n.Var(f"%{k}", I32), d) for k, d in enumerate(shape[1:])]
    index: list[n.Expr] = [j, *(v for v, _ in rest)]
    place = tile_place(element_region(found.at, index), rest) if rest else element_region(found.at, index)
    if place is None:
        raise CannotRetile("the place has no single slices")

    def narrow(e: n.Expr) -> n.Expr:
        own = index[len(index) - len(shape_of(e.type)):]
        one = element(e, [build.const(0) if d == 1 else i for i, d in zip(own, shape_of(e.type), strict=True)])
        return tile(one, rest, spread) if rest else one
    return found.made(place, narrow(found.value), None if found.mask is None else narrow(found.mask), label)
