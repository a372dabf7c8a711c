"""Spreads the elements of a row over the threads: a loop of single stores becomes one store of the whole tile.

before:

```kir
kir 1
program scale
  in X: f32[M, 256]
  out Y: f32[M, 256]
  size M: i32
kernel main grid (row: M) threads 128
  @j for j in 0..256
    Y[row, j] = X[row, j] * 2.0
```

pipeline: `partition-rows@main/j`

after:

```kir
kir 1
program scale
  in X: f32[M, 256]
  out Y: f32[M, 256]
  size M: i32
kernel main grid (row: M) threads 128
  @j Y[row, 0 +: 256] = X[row, 0 +: 256] * 2.0
```
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kir.analysis.elements import NotElementwise, element, element_region, tile, tile_region
from kir.analysis.retile import CannotRetile, Widen
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, DType, shape_of
from kir.ir.visit import walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import fresh, kernel_of, names_in, node_at, replace_stmts

SPACES = ("global", "fragment")
"""Where what is stored is spread over the threads."""


def _only_store(loop: n.For) -> n.Store | None:
    """The single statement of a loop, when it stores to a tensor, or to an array of the CTA's own."""
    if len(loop.body) == 1 and isinstance(s := loop.body[0], n.Store) and s.at.buffer.space in SPACES and s.at.index:
        return s
    return None


def _independent(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_at(program, site.path)
    assert isinstance(loop, n.For)
    s = _only_store(loop)
    assert s is not None
    for x in walk(s.value):
        if isinstance(x, n.Load) and x.at.buffer.name == s.at.buffer.name and x.at != s.at:
            return refuted(f"an iteration reads '{s.at.buffer.name}' where another may have written", f"{loop.var.name} = 1 reads what 0 wrote")
    return proved("no iteration reads what another writes")


@dataclass(frozen=True)
class PartitionRows(Pass):
    """`axis` is the position of the new axis in the stored tile."""

    intent: ClassVar[str] = "partition-rows"
    catalogue: ClassVar[tuple[int, ...]] = (47,)
    claim: ClassVar[str] = "All threads of the CTA work on a row side by side."
    provides: ClassVar[tuple[str, ...]] = ("rows",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P471", "validity", "aliasing", "iterations are independent", _independent),
    )

    axis: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop of known length over one store."""
        if not (isinstance(node, n.For) and node.kind == "serial" and build.is_const(node.lo, 0) and build.is_const(node.step, 1)):
            return None
        if _only_store(node) is None:
            return Miss("the loop does more than one store")
        if build.int_value(node.hi) is None:
            return Miss("the number of iterations is not known")
        try:
            self._widened(node)
        except (CannotRetile, NotElementwise) as bad:
            return Miss(str(bad))
        return Site(path, self)

    def _widened(self, loop: n.For) -> n.Stmt:
        extent, s = build.int_value(loop.hi), _only_store(loop)
        assert extent is not None and s is not None
        shape = shape_of(s.at.type)
        if self.axis > len(shape):
            raise CannotRetile(f"there is no axis {self.axis}")
        rest = [(n.Var(f"%{k}", I32), d) for k, d in enumerate(shape)]
        axes = [*rest[:self.axis], (n.Var(loop.var.name, loop.var.of), extent), *rest[self.axis:]]
        found = tile_region(element_region(s.at, [v for v, _ in rest]), axes)
        if found is None or found[1] != list(range(len(axes))):
            raise CannotRetile("the place has no form as a tile with this axis")
        zero = build.const(0, loop.var.type if isinstance(loop.var.type, DType) else I32)
        if s.at.buffer.space == "global" and Widen.of(loop.body, loop.var, zero, extent).wide:
            raise CannotRetile("something local is carried along")

        def wide(e: n.Expr) -> n.Expr:
            return tile(element(e, [v for v, _ in rest]) if shape_of(e.type) else e, axes)
        return replace(s, at=found[0], value=wide(s.value), mask=None if s.mask is None else wide(s.mask), label=s.label or loop.label)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One store of the whole tile."""
        loop = node_at(program, site.path)
        assert isinstance(loop, n.For)
        return Rewritten(replace_stmts(program, site.path, (self._widened(loop),)), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store of a tile to a tensor, or to a fragment of a CTA of one thread."""
        if not (isinstance(node, n.Store) and node.at.buffer.space in SPACES):
            return None
        if node.at.buffer.space == "fragment" and not build.is_const(kernel_of(program, path).threads, 1):
            return Miss("the threads hold parts of the fragment")
        shape = shape_of(node.at.type)
        if not shape or not all(isinstance(d, int) for d in shape):
            return None
        found = []
        for axis in range(len(shape)):
            try:
                narrowed(node, axis, n.Var("%j", I32))
            except (CannotRetile, NotElementwise):
                continue
            found.append(Site(path, PartitionRows(axis)))
        return tuple(found) or Miss("the stored value has no single elements")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop that stores one element (or one slice) after the other."""
        node, kernel = node_at(program, site.path), kernel_of(program, site.path)
        assert isinstance(node, n.Store)
        j = n.Var(fresh("j", names_in(program, kernel)), I32)
        extent = shape_of(node.at.type)[self.axis]
        assert isinstance(extent, int)
        loop = n.For(j, build.const(0), build.const(extent), build.const(1), (narrowed(node, self.axis, j),), label=node.label)
        return Rewritten(replace_stmts(program, site.path, (loop,)), site.path)


def narrowed(s: n.Store, axis: int, j: n.Var) -> n.Stmt:
    """The store of one slice."""
    shape = shape_of(s.at.type)
    rest = [(n.Var(f"%{k}", I32), d) for k, d in enumerate(shape[:axis] + shape[axis + 1:])]
    index: list[n.Expr] = [v for v, _ in rest]
    index.insert(axis, j)
    found = tile_region(element_region(s.at, index), rest)
    if found is None:
        raise CannotRetile("the place has no single slices")
    if any(isinstance(x, n.Call) and x.fn == "pick" for x in walk(element(s.value, index))):
        raise CannotRetile("the value is a tile of its own")

    def narrow(e: n.Expr) -> n.Expr:
        own = index[len(index) - len(shape_of(e.type)):]
        return tile(element(e, [build.const(0) if d == 1 else i for i, d in zip(own, shape_of(e.type), strict=True)]), rest)
    return replace(s, at=found[0], value=narrow(s.value), mask=None if s.mask is None else narrow(s.mask), label=None)
