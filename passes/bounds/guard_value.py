"""Puts a value under a condition that always holds there: a mask that costs nothing where panels end with the data.

pipeline: `guard-value{value="X[row, j] * 2.0" when="j < N" other="-inf"}@main/j/fold`

```diff
 kir 1
 program row_max
   in X: f32[M, N]
   out T: f32[M]
   size M: i32
   size N: i32
 kernel main grid (row: M) threads 1
   register top: f32 = -inf
   for j in 0..N
-    @fold top = max(top, X[row, j] * 2.0)
+    @fold top = max(top, select(j < N, X[row, j] * 2.0, -inf))
   T[row] = top
```
"""
from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce
from typing import ClassVar

from kir.analysis.elements import NotElementwise, element
from kir.analysis.facts import Facts
from kir.analysis.solver import decide, fails_at_ends
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import expr_text
from kir.ir.types import BOOL, I32, dtype_of, shape_of
from kir.ir.visit import buffers_named, names_read, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, unknown
from kir.rewrite.edit import enclosing, node_at
from kir.rewrite.match import edited, matched, matched_as, params_as
from kir.rewrite.precondition import decided
from kir.rewrite.view import expression_at, text_of

NEUTRAL = {"add": 0.0, "max": -math.inf, "min": math.inf, "mul": 1.0}
"""What leaves a fold as it was, by its operation."""
EXPONENTIALS = ("exp", "exp2", "exp10", "exp2_approx")


def _claim(program: n.Program, path: Path, made: n.Select) -> tuple[n.Expr, Facts] | None:
    """The condition of one element, with what is known of where elements are; None where it has no elements. Bounds of a tensor are left
    out of it where they guard a load that gives the other value beyond them."""
    cond = made.cond
    known = Facts.at(program, path)
    index: list[n.Expr] = []
    for k, d in enumerate(shape_of(made.type)):
        v = n.Var(f"%{k}", I32)
        index.append(build.const(0) if d == 1 else v)
        known = known.ranging(v, build.const(0), build.const(d) if isinstance(d, int) else d)
    try:
        parts = [c for c in _conjuncts(_element(cond, index)) if c not in _bounds(made, _element(made.a, index))]
    except NotElementwise:
        return None
    claim: n.Expr = build.const(True, BOOL)
    for c in parts:
        claim = build.logical_and(claim, c)
    return claim, known


def _element(e: n.Expr, index: list[n.Expr]) -> n.Expr:
    """The element of an operand that broadcasts to a tile, at an index of the tile."""
    shape = shape_of(e.type)
    own = index[len(index) - len(shape):]
    return element(e, [build.const(0) if d == 1 else i for i, d in zip(own, shape, strict=True)])


def _conjuncts(cond: n.Expr) -> list[n.Expr]:
    if isinstance(cond, n.Binary) and cond.op == "and" and cond.type == BOOL:
        return [*_conjuncts(cond.a), *_conjuncts(cond.b)]
    return [cond]


def _bounds(made: n.Select, value: n.Expr) -> list[n.Expr]:
    """The conditions beyond which an element is the other value anyhow: the bounds of a clipped load that gives it there."""
    if not (isinstance(value, n.Load) and value.clip and value.other is not None and value.other == made.b):
        return []
    places = [(i, d) for i, d in zip(value.at.index, value.at.buffer.shape, strict=True) if isinstance(i, n.Expr)]
    return [build.below(i, d) for i, d in places] + [build.compare("ge", i, 0) for i, _ in places]


def _holds(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, GuardValue)
    made = item.guarded(program, site.path)
    found = _claim(program, site.path, made) if made is not None else None
    if found is None:
        return unknown("the condition is none of single elements")
    return decided(found[0], found[1], f"{item.when} holds for every element", f"{item.when} does not hold",
                   needs="a condition that always holds at the statement, or a load that gives the other value where it does not")


@dataclass(frozen=True)
class GuardValue(Pass):
    """`value` of the statement is guarded by the condition `when`, and is `other` where that does not hold; each is given as its text."""

    intent: ClassVar[str] = "predicate"
    catalogue: ClassVar[tuple[int, ...]] = (54,)
    claim: ClassVar[str] = "Panels may hang over the end of the data: what lies past it counts as nothing."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P866", "validity", "shape",
                     "the condition holds wherever the value is computed, or the value is the other one where it does not", _holds),)

    value: str = ""
    when: str = ""
    other: str = ""

    def guarded(self, program: n.Program, path: Path) -> n.Select | None:
        """The value under the condition."""
        s = node_at(program, path)
        value = next((x for x in _values(s) if expr_text(x) == self.value), None) if isinstance(s, n.Stmt) else None
        cond, other = expression_at(program, path, self.when), expression_at(program, path, self.other)
        if value is None or cond is None or other is None or dtype_of(cond.type) != BOOL or dtype_of(other.type) != dtype_of(value.type):
            return None
        made = build.select(cond, value, other)
        return made if isinstance(made, n.Select) and made.type == value.type else None

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement that computes the value; the other value is given, the condition too, or it is that a loop around has not ended. Of an element that
        is loaded with another value past the end of its tensor, both may be left open: that value, and that no index lies past the end. So they may for what a
        loop folds up: the value of which nothing comes of the fold, and that the loop has not ended."""
        if not isinstance(node, (n.Let, n.Store)) or not self.value:
            return None
        if not self.other:
            within = self._within(program, path, node)
            some = [] if within is None else [within]
            some += [each for other in self._nothing(node) if not self.when for each in self._in_loops(program, path, node, other)]
            return tuple(Site(path, each) for each in some if each.guarded(program, path) is not None) or Miss("it loads no such element, and folds up none")
        if not self.when:
            made = self._in_loops(program, path, node, self.other)
            return tuple(Site(path, each) for each in made if each.guarded(program, path) is not None) or Miss("it computes no such value in a loop")
        return Site(path, self) if self.guarded(program, path) is not None else Miss("it computes no such value, or knows no such condition")

    def _in_loops(self, program: n.Program, path: Path, s: n.Stmt, other: str) -> list[GuardValue]:
        """With the condition that a loop around has not ended, for each whose index the statement reads, or reads what the loop makes of it; loops that whole
        tiles fill need none."""
        read = names_read(s) | buffers_named(s)
        loops = [x for _, x in enclosing(program, path) if isinstance(x, n.For) and x.kind == "serial" and not _fills_tiles(x)
                 and not read.isdisjoint({x.var.name, *bound_names(x.body)})]
        return [replace(self, when=expr_text(build.compare("lt", x.var, x.hi)), other=other) for x in loops]

    def _nothing(self, s: n.Let | n.Store) -> list[str]:
        """What the value may be for a fold of it to stay what it was: the fold's own neutral element where it is folded as it is, nothing in a product, and
        minus infinity in an exponential; of all that is stored to global memory, zero. Whether it is the right one decides what it is good for later, not
        whether the step is right."""
        if isinstance(s, n.Store) and s.at.buffer.space == "global" and expr_text(s.value) == self.value and dtype_of(s.value.type).is_float:
            return [expr_text(build.const(0.0, dtype_of(s.value.type)))]  # past the end nothing is stored
        if not isinstance(s, n.Store) or not isinstance(s.value, n.Binary) or n.Load(s.at) not in (s.value.a, s.value.b):
            return []
        folded = s.value.b if s.value.a == n.Load(s.at) else s.value.a
        around = [x for x in walk(folded) if isinstance(x, n.Expr) and any(expr_text(y) == self.value for y in walk(x) if isinstance(y, n.Expr))]
        if not around or not dtype_of(around[-1].type).is_float:
            return []
        neutral = NEUTRAL.get(s.value.op) if expr_text(folded) == self.value else \
            -math.inf if any(isinstance(x, n.Call) and x.fn in EXPONENTIALS for x in around) else 0.0 if s.value.op == "add" else None
        return [] if neutral is None else [expr_text(build.const(neutral, dtype_of(around[-1].type)))]

    def _within(self, program: n.Program, path: Path, s: n.Let | n.Store) -> GuardValue | None:
        """With the condition and the other value of a load that knows them, of an element or a tile; None where no index may lie past the end."""
        x = next((x for x in _values(s) if expr_text(x) == self.value), None)
        if not isinstance(x, n.Load) or not x.clip or x.other is None or len(x.at.index) != len(x.at.buffer.shape):
            return None
        spans = [i for i in x.at.index if isinstance(i, n.Span)]
        known = Facts.at(program, path)
        open_: list[n.Expr] = []
        for i, d in zip(x.at.index, x.at.buffer.shape, strict=True):
            last = i if isinstance(i, n.Expr) else build.add(i.lo, build.mul(_size(i.step), build.sub(_size(i.extent), 1)))
            if last.type != I32:
                return None
            inside = bool(spans) and isinstance(i, n.Expr)  # of a tile only what hangs over counts
            if inside or build.is_const(claim := build.below(last, d)) or decide(claim, known).kind == "always":
                continue
            at = i if isinstance(i, n.Expr) else _indices(i, len(spans) - 1 - spans.index(i))
            open_.append(build.compare("lt", at, d))
        return replace(self, when=expr_text(reduce(build.logical_and, open_)), other=expr_text(x.other)) if open_ else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The value under the condition, wherever the statement has it."""
        made = matched(self.guarded(program, site.path))
        s = transform(node_at(program, site.path), lambda old, new: made if old == made.a else new)
        return edited(program, site.path, (s,))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement with a value under a condition that always holds."""
        if not isinstance(node, (n.Let, n.Store)):
            return None
        out = []
        for x in _values(node):
            found = _claim(program, path, x) if isinstance(x, n.Select) else None
            if isinstance(x, n.Select) and found is not None and not fails_at_ends(*found) and decide(*found).kind == "always":
                out.append(Site(path, replace(self, value=expr_text(x.a), when=text_of(x.cond), other=text_of(x.b)), {"select": x}))
        return tuple(out)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The value alone."""
        x = matched_as(site.captures["select"], n.Select)
        s = transform(node_at(program, site.path), lambda old, new: x.a if old == x else new)
        return edited(program, site.path, (s,))


def _indices(span: n.Span, axes: int) -> n.Expr:
    """The indices of a range, as a tile that has so many axes after its own."""
    steps: n.Expr = build.iota(span.extent)
    for _ in range(axes):
        steps = build.expand(steps, axis=len(shape_of(steps.type)))
    return build.add(span.lo, build.mul(steps, _size(span.step)))


def _size(e: int | n.Expr) -> n.Expr:
    return build.const(e) if isinstance(e, int) else e


def _fills_tiles(loop: n.For) -> bool:
    """Whether a loop has a power of two of iterations: every tile is whole."""
    trips = build.int_value(loop.hi)
    return loop.lo == build.const(0, dtype_of(loop.var.of)) and trips is not None and trips & (trips - 1) == 0


def _values(s: n.Stmt) -> list[n.Expr]:
    """The expressions that a let or a store computes: its value, and what that is made of."""
    root = s.value if isinstance(s, (n.Let, n.Store)) else None
    return list(dict.fromkeys(x for x in walk(root) if isinstance(x, n.Expr))) if root is not None else []
