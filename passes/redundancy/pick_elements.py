"""Computes a row of values side by side, and takes the elements out of it that are needed one after the other.

pipeline: `pick-elements{value="X[row, 0 +: 64] * 0.5"}@main/each`

```diff
 kir 1
 program weighted
   in X: f32[M, 64]
   in W: f32[M, 64]
   out S: f32[M]
   size M: i32
 kernel main grid (row: M) threads 64
   register sum: f32 = 0.0
+  let kept = X[row, 0 +: 64] * 0.5
   @each for j in 0..64
-    sum = sum + X[row, j] * 0.5 * W[row, j]
+    sum = sum + pick(kept, j) * W[row, j]
   S[row] = sum
```
"""
from __future__ import annotations

from typing import Any, ClassVar

from kir.analysis import Aliases
from kir.analysis.clipping import hangs_over, ranges_of
from kir.analysis.elements import NotElementwise, element
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import expr_text
from kir.ir.types import I32, DType, TileType, shape_of
from kir.ir.visit import names_read, statements, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import enclosing, kernel_of
from kir.rewrite.match import block_and_index, edited, fresh_at, is_counted, matched_as, node_as, params_as
from kir.rewrite.match.materialize import buffers_read, buffers_written, inlined, is_pure, may_lie_outside, suggested_name
from kir.rewrite.match.unify import bound_by, hole
from kir.rewrite.view import expression_at


def _value(program: n.Program, site: Site) -> n.Expr:
    return matched_as(expression_at(program, site.path, params_as(site, PickElements).value), n.Expr)


def _pattern(value: n.Expr) -> n.Expr | None:
    """An element of a tile at holes for its place; None where it has none of its own, or does not depend on each axis."""
    rank = len(shape_of(value.type))
    try:
        made = element(value, [hole(k) for k in range(rank)])
    except NotElementwise:
        return None
    return made if is_pure(made) and all(hole(k).name in names_read(made) for k in range(rank)) else None


def _picked(s: n.Stmt, value: n.Expr, pattern: n.Expr, tile: n.Var) -> n.Stmt:
    """A statement with the elements taken out of a tile, which is named where it is written out."""
    rank = len(shape_of(tile.type))

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if new == value:
            return tile
        at = bound_by(pattern, new, rank) if isinstance(new, n.Expr) and new.type == pattern.type else None
        return new if at is None else build.call("pick", tile, *at)
    made: n.Stmt = transform(s, leave, lambda x: not isinstance(x, n.Buffer))
    return made


def _unchanged(program: n.Program, site: Site, context: Context) -> Verdict:
    (block, i), value, aliases = block_and_index(program, site.path), _value(program, site), Aliases(program)
    pattern = matched_as(_pattern(value), n.Expr)
    last = max(k for k in range(i, len(block)) if _picked(block[k], value, pattern, n.Var("%t", value.type)) != block[k])
    written = buffers_written(block[i:last + 1])
    clash = sorted(r for r in buffers_read(value) if any(w in ("*", r) or aliases.may_be_one(w, r) for w in written))
    if clash:
        return refuted(f"'{clash[0]}' is written before the last element is taken", f"that element has the old '{clash[0]}'")
    return proved("nothing that the row is made of is written while it is kept")


def _inside(program: n.Program, site: Site, context: Context) -> Verdict:
    (block, i), value, ranges = block_and_index(program, site.path), _value(program, site), ranges_of(kernel_of(program, site.path))
    pattern, rank = matched_as(_pattern(value), n.Expr), len(shape_of(value.type))
    if divided := [x for x in walk(value) if isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and build.int_value(x.b) is None]:
        return unknown(f"{expr_text(divided[0])} may divide by zero where no element is taken", needs="a divisor that is a literal")
    taken = [x for s in block[i:] for x in walk(s) if isinstance(x, n.Expr) and x.type == pattern.type and bound_by(pattern, x, rank) is not None]
    always = any(not may_lie_outside(program, site.path, block[i:], x) for x in taken)
    if any(_each_is_taken(program, site, value, pattern, x) for x in taken):
        return proved("each element is taken in any case")
    for x in walk(value):
        if isinstance(x, n.Load) and x.mask is None and not x.clip and x.at.buffer.shape and hangs_over(_along(x.at) if always else x.at, ranges, program.facts,
                                                                                                        sums=True):
            return unknown(f"{expr_text(x)} may lie outside its buffer where no element is taken", needs="facts that keep the whole row inside")
    return proved("the whole row lies inside its buffers")


def _each_is_taken(program: n.Program, site: Site, value: n.Expr, pattern: n.Expr, x: n.Expr) -> bool:
    """Whether loops take every element of a row at some time, as an element is computed that has their numbers for its place."""
    (block, i), shape = block_and_index(program, site.path), shape_of(value.type)
    numbers = bound_by(pattern, x, len(shape)) or ()
    around = {s.var.name: (k, s) for k, (_, s) in enumerate(enclosing(program, site.path)) if isinstance(s, n.For)}
    inside = {s.var.name: s for s in statements(block[i:]) if isinstance(s, n.For)}
    names = [v.name for v in numbers if isinstance(v, n.Var)]
    loops = [around[name][1] if name in around else inside.get(name) for name in names]
    counted = all(loop is not None and is_counted(loop) and build.int_value(loop.hi) == d for loop, d in zip(loops, shape, strict=False))
    if len(set(names)) < len(shape) or not counted or names_read(value) & set(names) or may_lie_outside(program, site.path, block[i:], x):
        return False
    first = min((around[name][0] for name in names if name in around), default=None)
    passed = [s for _, s in enclosing(program, site.path)][first:] if first is not None else []
    run = [(build.int_value(s.lo), build.int_value(s.hi)) for s in passed if isinstance(s, n.For)]
    sure = len(run) == len(passed) and all(lo is not None and hi is not None and lo < hi for lo, hi in run)
    return sure and not names_read(value) & {name for s in passed for name in _declared(s)}


def _declared(s: Place) -> set[str]:
    """Names of values that the body of a loop declares."""
    return {name for x in s.body if isinstance(x, n.Let) for name in x.names} if isinstance(s, n.For) else set()


def _along(at: n.Region) -> n.Region:
    """A row at the start of the axes that it does not go along: each of its elements lies as far in these as any other."""
    if not any(isinstance(i, n.Span) for i in at.index):
        return at
    return build.region(at.buffer, *(i if isinstance(i, n.Span) else build.const(0) for i in at.index))


@dataclass(frozen=True)
class PickElements(Pass):
    """`value` is the text of the row, which gets a name before the statement; all that follows in its block takes elements out of it."""

    intent: ClassVar[str] = "partition-rows"
    catalogue: ClassVar[tuple[int, ...]] = (47,)
    claim: ClassVar[str] = "The threads compute a row side by side, of which single elements are needed in turn."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P891", "validity", "aliasing", "what the row is made of is not written while it is kept", _unchanged),
        Precondition("KIR-P892", "validity", "shape", "the whole row can be read", _inside))

    value: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """Before a statement behind or in which an element of the row is computed."""
        if not self.value or not isinstance(node, n.Stmt):
            return None
        value = expression_at(program, path, self.value)
        pattern = _pattern(value) if value is not None and isinstance(value.type, TileType) and is_pure(value) else None
        if value is None or pattern is None:
            return Miss("that is no row of elements that are computed one by one")
        (block, i), var = block_and_index(program, path), n.Var("%t", value.type)
        if any(names_read(value) & set(bound_names((s,))) for s in block[i:]):
            return Miss("a name of it is bound behind")
        return Site(path, self) if any(_picked(s, value, pattern, var) != s for s in block[i:]) else Miss("no element of it is computed behind")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The row, and elements of it."""
        (block, i), value = block_and_index(program, site.path), _value(program, site)
        pattern, tile = matched_as(_pattern(value), n.Expr), n.Var(fresh_at(program, site.path, suggested_name(value)), value.type)
        made = (n.Let((tile.name,), value), *(_picked(s, value, pattern, tile) for s in block[i:]))
        return edited(program, site.path, made, 0, len(block) - i)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a named row of which single elements are taken."""
        if not (isinstance(node, n.Let) and len(node.names) == 1 and isinstance(node.value.type, TileType) and is_pure(node.value)):
            return None
        (block, i), name = block_and_index(program, path), node.names[0]
        uses = [x for s in block[i + 1:] if name in names_read(s) for x in walk(s) if isinstance(x, n.Var) and x.name == name]
        if not uses or _pattern(node.value) is None:
            return Miss("it is never used, or its elements are not computed one by one")
        taken = [x for s in block[i + 1:] if name in names_read(s) for x in walk(s) if _takes(x, name)]
        return Site(path, PickElements(expr_text(node.value))) if taken else Miss("it is used as a whole")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each element where it is needed."""
        (block, i), node = block_and_index(program, site.path), node_as(program, site.path, n.Let)
        made = tuple(inlined(s, node.names[0], node.value) for s in block[i + 1:])
        return edited(program, site.path, made, 0, len(block) - i)


def _takes(x: Any, name: str) -> bool:
    """Whether an expression takes one element out of a tile of a name."""
    return isinstance(x, n.Call) and x.fn == "pick" and isinstance(x.args[0], n.Var) and x.args[0].name == name and all(
        isinstance(a, n.Expr) and isinstance(a.type, DType) and a.type == I32 for a in x.args[1:])
