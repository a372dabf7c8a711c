"""Spreads the elements of a row over the threads: a loop of single stores becomes one store of the whole tile.

pipeline: `partition-rows@main/j`

```diff
 kir 1
 program scale
   in X: f32[M, 256]
   out Y: f32[M, 256]
   size M: i32
 kernel main grid (row: M) threads 128
-  @j for j in 0..256
-    Y[row, j] = X[row, j] * 2.0
+  @j Y[row, 0 +: 256] = X[row, 0 +: 256] * 2.0
```
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from kir.analysis.elements import NotElementwise, element, element_region, split_affine, tile, tile_place, tile_region
from kir.analysis.loops.loop_nest import counted_out
from kir.analysis.tiles.retile import CannotRetile
from kir.analysis.tiles.widen import Widen
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, DType, shape_of
from kir.ir.visit import names_read, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import enclosing, kernel_of, names_in, node_at
from kir.rewrite.match import counting, edited, fresh_var, from_zero, is_counted, matched, matched_as, node_as
from kir.rewrite.match.independence import numbers_told, own_place

SPACES = ("global", "fragment")
"""Where what is stored is spread over the threads."""
OF_ONE = ("shared", "register")
"""Where the one thread of a CTA stores what more of them would share."""


def _only_store(loop: n.For) -> n.Store | None:
    """The single statement of a loop, when it stores to a tensor, or to an array of the CTA's own."""
    if len(loop.body) == 1 and isinstance(s := loop.body[0], n.Store) and s.at.buffer.space in (*SPACES, *OF_ONE) and s.at.index:
        return s
    return None


def _axes(s: n.Store) -> list[tuple[n.Var, int | n.Expr]]:
    """Names for the axes of a stored tile, with their extents."""
    return [(n.Var(f"%{k}", I32), d) for k, d in enumerate(shape_of(s.at.type))]


def _independent(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    s, alone = matched(_only_store(loop)), build.is_const(kernel_of(program, site.path).threads, 1)
    for x in walk(s.value):
        if isinstance(x, n.Load) and x.at.buffer.name == s.at.buffer.name and x.at != s.at and not (alone and _ahead(x.at, s.at, loop.var)):
            return refuted(f"an iteration reads '{s.at.buffer.name}' where another may have written", f"{loop.var.name} = 1 reads what 0 wrote")
    return proved("no iteration reads what another writes")


def _ahead(read: n.Region, written: n.Region, var: n.Var) -> bool:
    """Whether what an iteration reads is what a later one writes, and none before it: the same place but for being further along where the places go."""
    if len(read.index) != len(written.index) or any(isinstance(i, n.Span) for i in (*read.index, *written.index)):
        return False
    along = [(r, w) for r, w in zip(read.index, written.index, strict=True) if isinstance(r, n.Expr) and isinstance(w, n.Expr) and r != w]
    if len(along) != 1 or any(var.name in names_read(i) for i in written.index if i is not along[0][1]):
        return False
    r, w = along[0]
    affine = split_affine(w, var)
    step = build.int_value(affine[1]) if affine is not None else None
    further = build.int_value(build.sub(r, w)) if r.type == w.type else None
    return step is not None and step > 0 and further is not None and further > 0


def distinct(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether each iteration of a loop over one store writes elements of its own."""
    loop = node_as(program, site.path, n.For)
    s, extent = matched(_only_store(loop)), matched(build.int_value(loop.hi))
    rest = _axes(s)
    axes: list[tuple[n.Var, int | n.Expr]] = [(loop.var, extent), *rest]
    names = [v for v, _ in rest]
    place = element_region(s.at, names)
    found = tile_region(place, axes)
    if found is not None and len(found[1]) == len(axes):
        return proved("the place moves along an axis of its own")
    if _told(place.index, loop.var, {v.name for v, _ in axes}):
        return proved("the place tells the iterations apart: a number's quotient and remainder are both in it")
    if all(isinstance(d, int) for _, d in rest) and own_place(program, (*site.path, "body", 0), s.at, loop):
        return proved("each iteration writes at a place of its own")
    counts = [d for _, d in axes if isinstance(d, int)]
    if len(counts) < len(axes):
        return unknown("the extent of the tile is not known", needs="a specialized program")
    moving = {v.name for v, _ in axes}
    index = [i for i in place.index if isinstance(i, n.Expr) and names_read(i) & moving]
    kept = build.const(True) if s.mask is None else element(s.mask, names[len(names) - len(shape_of(s.mask.type)):])
    around = [*((n.Var(a.name, I32), d) for a in kernel_of(program, site.path).grid if (d := build.int_value(a.extent)) is not None),
              *((x.var, d) for _, x in enclosing(program, site.path) if isinstance(x, n.For) and x.kind == "serial"
                and from_zero(x) and (d := build.int_value(x.hi)) is not None)]
    outer = [(v, d) for v, d in around if any(v.name in names_read(e) for e in (*index, kept))]
    every = [*outer, *((v, d) for (v, _), d in zip(axes, counts, strict=True))]
    values = counted_out([v for v, _ in every], [d for _, d in every], [*(v for v, _ in outer), *index, kept])
    if isinstance(values, str):
        return unknown(values, needs="a place that is computed from loops of known length")
    return _once(values[:-1], values[-1].astype(bool), s, loop.var.name, len(outer))


def _told(index: Sequence[n.Expr | n.Span], var: n.Var, moving: set[str]) -> bool:
    """Whether a variable follows from the indices of a place: a number that they tell is it, but for a literal factor and for what all iterations share."""
    return any([m for m in build.polynomial(x) if any(names_read(a) & moving for a in m)] == [(var,)] for x in numbers_told(index, moving))


def _once(points: Sequence[Any], kept: Any, s: n.Store, var: str, outer: int) -> Verdict:
    """Whether no point occurs twice where it is `kept`; `var` counts along axis `outer`."""
    import numpy as np
    inside = np.flatnonzero(kept)
    found = np.stack([v.ravel()[inside] for v in points], axis=-1) if points else np.zeros((len(inside), 1), dtype=np.int64)
    single, times = np.unique(found, axis=0, return_counts=True)
    if len(single) == len(found):
        return proved("no two iterations write one element", scope=f"{len(found)} elements, counted out")
    double = single[int(np.argmax(times > 1))]
    first, second = inside[np.flatnonzero((found == double).all(axis=1))[:2]]
    a, b = (int(np.unravel_index(at, kept.shape)[outer]) for at in (first, second))
    return refuted(f"two iterations write one element of '{s.at.buffer.name}', and only their order says which stays",
                   f"{var} = {a} and {var} = {b} both write at {', '.join(map(str, double[outer:].tolist()))}",
                   needs="a place of its own for each iteration")


@dataclass(frozen=True)
class PartitionRows(Pass):
    """`axis` is the position of the new axis in the stored tile. With `spread`, what is the same along an axis is written out for all of it,
    without it that is left to the store. The tile is stored `by` a store, or moved by a copy."""

    intent: ClassVar[str] = "partition-rows"
    catalogue: ClassVar[tuple[int, ...]] = (47,)
    claim: ClassVar[str] = "All threads of the CTA work on a row side by side."
    provides: ClassVar[tuple[str, ...]] = ("rows",)
    one_of_several: ClassVar[bool] = True
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P471", "validity", "aliasing", "iterations are independent", _independent),
        Precondition("KIR-P911", "validity", "aliasing", "no two iterations write one element", distinct),
    )

    axis: int = 0
    spread: bool = True
    by: Literal["store", "copy"] = "store"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop of known length over one store."""
        if not is_counted(node):
            return None
        only = _only_store(node)
        if only is None:
            return Miss("the loop does more than one store")
        if reason := _elsewhere(program, path, only.at.buffer):
            return Miss(reason)
        if build.int_value(node.hi) is None:
            return Miss("the number of iterations is not known")
        try:
            self.widened(node)
        except (CannotRetile, NotElementwise) as bad:
            return Miss(str(bad))
        return Site(path, self)

    def widened(self, loop: n.For) -> n.Stmt:
        extent, s = matched(build.int_value(loop.hi)), matched(_only_store(loop))
        rest = _axes(s)
        if self.axis > len(rest):
            raise CannotRetile(f"there is no axis {self.axis}")
        axes = [*rest[:self.axis], (n.Var(loop.var.name, loop.var.of), extent), *rest[self.axis:]]
        place = tile_place(element_region(s.at, [v for v, _ in rest]), axes)
        if place is None:
            raise CannotRetile("the place has no form as a tile with this axis")
        zero = build.const(0, loop.var.type if isinstance(loop.var.type, DType) else I32)
        if s.at.buffer.space == "global" and Widen.of(loop.body, loop.var, zero, extent).wide:
            raise CannotRetile("something local is carried along")

        def wide(e: n.Expr) -> n.Expr:
            own = rest[len(rest) - len(shape_of(e.type)):]
            return tile(element(e, [v for v, _ in own]) if shape_of(e.type) else e, axes, self.spread)
        made = replace(s, at=place, value=wide(s.value), mask=None if s.mask is None else wide(s.mask), label=s.label or loop.label)
        if self.by == "store":
            return made
        if not isinstance(made.value, n.Load) or made.cache or made.value.type != made.at.type:
            raise CannotRetile("what is stored is no tile that a copy could move")
        return n.Copy(made.value, made.at, mask=made.mask, clip=made.clip, label=made.label, origin=made.origin)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One store of the whole tile."""
        loop = node_as(program, site.path, n.For)
        return edited(program, site.path, (self.widened(loop),))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store of a tile to a tensor, or to memory of a CTA of one thread; or a copy of one from that memory."""
        s = _moved(node)
        if s is None:
            return None
        if reason := _elsewhere(program, path, s.at.buffer):
            return Miss(reason)
        if s.at.buffer.space == "fragment" and not build.is_const(kernel_of(program, path).threads, 1):
            return Miss("the threads hold parts of the fragment")
        if isinstance(node, n.Copy) and not build.is_const(kernel_of(program, path).threads, 1):
            return Miss("the threads move it together")
        shape = shape_of(s.at.type)
        if not shape or not all(isinstance(d, int) for d in shape):
            return None
        spread = shape_of(s.value.type) == shape and (s.mask is None or shape_of(s.mask.type) == shape)
        by: Literal["store", "copy"] = "copy" if isinstance(node, n.Copy) else "store"
        found, named = [], _apart(s, program, path)
        for axis in range(len(shape)):
            try:
                narrowed(s, axis, n.Var("%j", I32), spread, named)
            except (CannotRetile, NotElementwise):
                continue
            found.append(Site(path, PartitionRows(axis, spread, by)))
        return tuple(found) or Miss("the stored value has no single elements")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop that stores one element (or one slice) after the other."""
        node, kernel = node_at(program, site.path), kernel_of(program, site.path)
        s = matched(_moved(node))
        j = fresh_var("j", names_in(program, kernel))
        extent = matched_as(shape_of(s.at.type)[self.axis], int)
        loop = counting(j, extent, (narrowed(s, self.axis, j, self.spread, _apart(s, program, site.path)),), label=s.label)
        return edited(program, site.path, (loop,))


def _apart(s: n.Store, program: n.Program, path: Path) -> bool:
    """Whether elements of named tiles may be taken: in an array of a CTA of one thread, which has nothing left to share, or of what is stretched along another
    axis in it, and so is not written out where it is stored."""
    stretched = any(isinstance(x, n.Call) and x.fn in ("expand", "broadcast") and isinstance(x.args[0], n.Var) for x in walk(s.value))
    return (s.at.buffer.space != "global" or stretched) and build.is_const(kernel_of(program, path).threads, 1)


def _moved(node: Place) -> n.Store | None:
    """What a store, or a copy out of a CTA's own memory, stores where."""
    match node:
        case n.Store() if node.at.buffer.space in (*SPACES, *OF_ONE):
            return node
        case n.Copy(via="plain", signal=None, grouped=False, attrs=()) if node.src.at.buffer.space != "global":
            return n.Store(node.dst, node.src, node.mask, node.clip, label=node.label, origin=node.origin)
        case _:
            return None


def _elsewhere(program: n.Program, path: Path, b: n.Buffer) -> str:
    """Why elements of a buffer are not stored one after the other by a CTA as a whole ("" when they are)."""
    if b.space in OF_ONE and not build.is_const(kernel_of(program, path).threads, 1):
        return f"'{b.name}' is in {b.space} memory, which the threads write as they like"
    return ""


def narrowed(s: n.Store, axis: int, j: n.Var, spread: bool = True, named: bool = False) -> n.Stmt:
    """The store of one slice. Without `spread`, what is the same along an axis is not written out for all of it; `named` tiles may be taken apart."""
    shape = shape_of(s.at.type)
    rest: list[tuple[n.Var, int | n.Expr]] = [(n.Var(f"%{k}", I32), d) for k, d in enumerate(shape[:axis] + shape[axis + 1:])]
    index: list[n.Expr] = [v for v, _ in rest]
    index.insert(axis, j)
    place = tile_place(element_region(s.at, index), rest)
    if place is None:
        raise CannotRetile("the place has no single slices")

    def at(e: n.Expr) -> n.Expr:
        own = index[len(index) - len(shape_of(e.type)):]
        return element(e, [build.const(0) if d == 1 else i for i, d in zip(own, shape_of(e.type), strict=True)])
    if any(isinstance(x, n.Call) and x.fn == "pick" and not (named and isinstance(x.args[0], n.Var)) for x in walk(at(s.value))):
        raise CannotRetile("the value is a tile of its own")

    def narrow(e: n.Expr) -> n.Expr:
        return tile(at(e), rest, spread)
    return replace(s, at=place, value=narrow(s.value), mask=None if s.mask is None else _of_all(narrow(s.mask)), label=None)


def _of_all(mask: n.Expr) -> n.Expr:
    """A mask; where it is one condition, spread along axes of one element, that condition."""
    ones = isinstance(mask, n.Call) and mask.fn == "broadcast" and all(d == 1 for d in shape_of(mask.type))
    return mask.args[0] if ones and isinstance(mask, n.Call) and isinstance(mask.args[0], n.Expr) else mask
