"""Folds the values of a loop in pieces of a fixed length, the last of which may hang over the end.

pipeline: `strip-mine{extent=16}@main/sum`

```diff
 kir 1
 program row_sums
   in X: f32[M, N]
   out S: f32[M]
   size M: i32
   size N: i32
 kernel main grid (row: M) threads 1
   register total: f32 = 0.0
-  @sum for k in 0..N
-    total = total + X[row, k]
+  @sum for k_tile in 0..ceildiv(N, 16)
+    for i in 0..16
+      total = total + load(X[row, k_tile * 16 + i] else 0.0 clip)
   S[row] = total
```
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis.clipping import divides, settle_clips
from kir.analysis.elements import split_affine
from kir.analysis.facts import Facts
from kir.analysis.order import at_most
from kir.analysis.solver import multiple
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.types import I32
from kir.ir.visit import buffers_named, names_read, statements, substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown, unless
from kir.rewrite.edit import element_name, kernel_of, names_in, node_at, replace_kernel, replace_stmts, tile_name
from kir.rewrite.match import counting, edited, fresh_var, is_counted, matched, matched_as, names_at, node_as, params_as

from ..grid.tile import counted, in_tiles, left_over

Asked = Literal["", "first", "scaled"]
ASKED: tuple[Asked, ...] = ("first", "scaled")


def _adds_nothing(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, item = node_as(program, site.path, n.For), params_as(site, StripMine)
    if item.asked:
        found = matched(_condition(loop, 1))
        for e, what in ((loop.hi, "the number of iterations"), (found[0], "where they begin"), (found[1], f"the end {expr_text(found[1])}")):
            if not divides(item.extent, e, program.facts):
                said = unknown(f"{item.extent} is not known to divide {what}, so a piece may lie on both sides of the end",
                               needs=f"a fact that {item.extent} divides {what}")
                claims = [multiple(x, item.extent) for x in (loop.hi, *found)]
                return unless(build.logical_and(build.logical_and(claims[0], claims[1]), claims[2]), Facts.at(program, site.path), said)
        return proved("a piece lies inside as a whole, or outside")
    if divides(item.extent, loop.hi, program.facts):
        return proved(f"{item.extent} divides the number of iterations")
    if item.floor:
        return left_over(item.extent, "the number of iterations", loop.hi, Facts.at(program, site.path))
    made = node_at(item.optimize(program, site).program, site.path)
    inner = made.body[0] if isinstance(made, n.For) else None
    assert isinstance(inner, n.For) and isinstance(made, n.For)
    value = matched(_folded(inner))
    before = _folded(loop)
    if _is_nothing(value, {made.var.name, inner.var.name}) and before is not None and _leaves(before, loop, Facts.at(program, site.path)):
        return proved("what lies past the end is read as zero, and adds nothing")
    return unless(multiple(loop.hi, item.extent), Facts.at(program, site.path),
                  unknown(f"past the end of the loop, {expr_text(value)} need not be 0", needs=f"a fact that {item.extent} divides the iterations"))


def _is_nothing(e: n.Expr, over: set[str]) -> bool:
    """Whether a value is zero where every load that moves with these names lies outside its tensor."""
    match e:
        case n.Load():
            return e.clip and e.mask is None and isinstance(e.other, n.Const) and e.other.value == 0 and bool(names_read(e.at) & over)
        case n.Cast():
            return _is_nothing(e.x, over)
        case n.Binary(op="mul" | "add" | "sub"):
            return _is_nothing(e.a, over) and _is_nothing(e.b, over)
        case n.Unary(op="neg"):
            return _is_nothing(e.x, over)
        case _:
            return False


def _leaves(e: n.Expr, loop: n.For, known: Facts) -> bool:
    """Whether every load of a value leaves its tensor where the loop ends, and stays outside from there on."""
    for x in walk(e):
        if not isinstance(x, n.Load) or loop.var.name not in names_read(x.at):
            continue
        for i, d in zip(x.at.index, x.at.buffer.shape, strict=False):
            moves = split_affine(i, loop.var) if isinstance(i, n.Expr) and i.type == d.type == loop.hi.type else None
            if moves is not None and (build.int_value(moves[1]) or 0) > 0 and isinstance(i, n.Expr) and at_most(
                    d, substitute(i, {loop.var.name: loop.hi}), known):
                break
        else:
            return False
    return True


def _folded(loop: n.For) -> n.Expr | None:
    """What a loop adds to a private scalar, when that is all it does."""
    s = loop.body[0] if len(loop.body) == 1 else None
    if not (isinstance(s, n.Store) and s.at.buffer.space == "register" and s.at == n.Region(s.at.buffer) and not s.at.buffer.shape and s.mask is None):
        return None
    v = s.value
    added = isinstance(v, n.Binary) and v.op == "add" and v.a == n.Load(s.at) and s.at.buffer.name not in buffers_named(v.b)
    return v.b if added and isinstance(v, n.Binary) else None


def _condition(loop: n.For, step: int) -> tuple[n.Expr, n.Expr] | None:
    """(base, end) of a loop that does nothing but store under a condition `base + step * i < end`, carrying nothing along."""
    s = loop.body[0] if len(loop.body) == 1 else None
    if not (isinstance(s, n.If) and not s.orelse and not s.static and isinstance(s.cond, n.Binary) and s.cond.op == "lt" and s.cond.a.type == I32):
        return None
    base, end = build.sub(s.cond.a, build.mul(loop.var, step)), s.cond.b
    own = {x.buffer.name for x in statements(s.then) if isinstance(x, n.Alloc)}
    if loop.var.name in names_read(base) | names_read(end) or any(
            isinstance(x, n.Store) and x.at.buffer.space == "register" and x.at.buffer.name not in own for x in statements(s.then)):
        return None
    return base, end


def _piece(branch: n.If) -> int | None:
    """The literal number of iterations of the one loop under a branch."""
    inner = branch.then[0] if len(branch.then) == 1 else None
    return build.int_value(inner.hi) if isinstance(inner, n.For) else None


def _part(e: n.Expr, extent: int) -> n.Expr:
    """A sum whose coefficients a number divides, divided by it."""
    return build.from_polynomial({m: c // extent for m, c in build.polynomial(e).items()}, I32)


@dataclass(frozen=True)
class StripMine(Pass):
    """`extent` values in a piece. A loop that stores under a condition `base + i < end` asks it once for each piece: `asked` says whether of
    its first value (`first`), or in numbers of pieces (`scaled`). `floor`: the number of pieces is a quotient, of a loop that the extent divides."""

    intent: ClassVar[str] = "unroll"
    catalogue: ClassVar[tuple[int, ...]] = (52,)
    claim: ClassVar[str] = "Pieces of a fixed length can be staged, unrolled, and moved at once."
    least: ClassVar[Mapping[str, int]] = {"extent": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P914", "validity", "shape", "the pieces divide the loop, or what lies past its end adds nothing", _adds_nothing),)

    extent: int = 16
    asked: Asked = ""
    floor: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that does nothing but add values to a private scalar, or store under a condition."""
        if not (is_counted(node, of=I32, plain=True) and isinstance(node, n.For)) or self.extent < 2:
            return None
        if self.asked:
            found = _condition(node, 1)
            if found is None or build.int_value(node.hi) is None or (build.int_value(node.hi) or 0) <= self.extent:
                return None
            if self.asked == "scaled" and not divides(self.extent, found[0], ()):
                return Miss("its condition has no form in numbers of pieces")
            return Site(path, self)
        if _folded(node) is None:
            return None
        if build.int_value(node.hi) is not None and (build.int_value(node.hi) or 0) <= self.extent:
            return Miss("it has no more iterations than a piece")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the pieces, and one over the values of a piece."""
        loop, kernel = node_as(program, site.path, n.For), kernel_of(program, site.path)
        taken = names_in(program, kernel)
        tile, i = fresh_var(tile_name(loop.var.name), taken), fresh_var("i", taken)
        at = build.add(build.mul(tile, self.extent), i)
        if self.asked:
            return edited(program, site.path, (self._under_one_condition(loop, tile, i),))
        inner = counting(i, self.extent, tuple(substitute(s, {loop.var.name: at}) for s in loop.body))
        made = replace(loop, var=tile, hi=in_tiles(loop.hi, self.extent, self.floor), body=(inner,))
        return self._settled(program, site, made, loop.hi)

    def _under_one_condition(self, loop: n.For, tile: n.Var, i: n.Var) -> n.For:
        """The pieces of a loop that stores under a condition."""
        found, branch = matched(_condition(loop, 1)), matched_as(loop.body[0], n.If)
        base, end = found
        at = build.add(build.mul(tile, self.extent), i)
        first = build.add(base, build.mul(tile, self.extent))
        if self.asked == "scaled":
            first, end = build.add(_part(base, self.extent), tile), build.floordiv(end, self.extent)
        body = tuple(substitute(s, {loop.var.name: at}) for s in branch.then)
        inner = counting(i, self.extent, body)
        return replace(loop, var=tile, hi=build.const((build.int_value(loop.hi) or 0) // self.extent),
                       body=(replace(branch, cond=build.compare("lt", first, end), then=(inner,)),))

    def _apart(self, program: n.Program, path: Path, loop: n.For) -> n.For | None:
        """The loop over the values of all pieces, each under its condition."""
        branch, pieces = loop.body[0], build.int_value(loop.hi)
        inner = branch.then[0] if isinstance(branch, n.If) and len(branch.then) == 1 else None
        found = _condition(loop, 1 if self.asked == "scaled" else self.extent)
        if found is None or not is_counted(inner, of=I32, plain=True) or pieces is None or self.extent < 2 or not isinstance(branch, n.If):
            return None
        base, end = found
        if self.asked == "scaled":
            if not (isinstance(end, n.Binary) and end.op == "floordiv" and build.int_value(end.b) == self.extent):
                return None
            base, end = build.mul(base, self.extent), end.a
        k = fresh_var(element_name(loop.var.name), names_at(program, path))
        body = tuple(substitute(s, {inner.var.name: build.sub(k, build.mul(loop.var, self.extent))}) for s in inner.body)
        if any({loop.var.name, inner.var.name} & names_read(s) for s in body):
            return None
        made = replace(branch, cond=build.compare("lt", build.add(base, k), end), then=body)
        return replace(loop, var=k, hi=build.const(pieces * self.extent), body=(made,))

    def _settled(self, program: n.Program, site: Site, made: n.For, hi: n.Expr) -> Rewritten:
        """The loop in its place; accesses are clipped where the last piece may hang over the end `hi`."""
        before = kernel_of(program, site.path)
        out = replace_stmts(program, site.path, (made,))
        if divides(self.extent, hi, program.facts):
            return Rewritten(out, site.path)
        kernel = settle_clips(kernel_of(out, site.path), out.facts, before)
        return Rewritten(replace_kernel(out, kernel.name, kernel), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over pieces that is one over their values, in which both only number the value."""
        inner = node.body[0] if isinstance(node, n.For) and len(node.body) == 1 else None
        if isinstance(node, n.For) and isinstance(inner, n.If) and is_counted(node, of=I32, plain=True):
            return tuple(Site(path, item) for asked in ASKED if (item := StripMine(_piece(inner) or 0, asked))._apart(program, path, node) is not None) or None
        if not (is_counted(node, of=I32, plain=True) and is_counted(inner, of=I32, plain=True)) or _folded(inner) is None:
            return None
        extent = build.int_value(inner.hi)
        items = counted(node.hi, extent, program.facts) if extent is not None else None
        if extent is None or items is None:
            return None
        if self._single(program, path, node, inner) is None:
            return Miss("piece and place are used beside the number of the value")
        return Site(path, StripMine(extent, floor=items[1]))

    def _single(self, program: n.Program, path: Path, loop: n.For, inner: n.For) -> n.For | None:
        extent = matched(build.int_value(inner.hi))
        items, k = counted(loop.hi, extent, program.facts), fresh_var(element_name(loop.var.name), names_at(program, path))
        body = tuple(substitute(s, {inner.var.name: build.sub(k, build.mul(loop.var, extent))}) for s in inner.body)
        if items is None or any({loop.var.name, inner.var.name} & names_read(s) for s in body):
            return None
        return replace(loop, var=k, hi=items[0], body=body)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop over all values."""
        loop = node_as(program, site.path, n.For)
        if self.asked:
            each = matched(self._apart(program, site.path, loop))
            return edited(program, site.path, (each,))
        assert isinstance(loop.body[0], n.For)
        made = matched(self._single(program, site.path, loop, loop.body[0]))
        return self._settled(program, site, made, made.hi)
