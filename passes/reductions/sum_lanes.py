"""Folds the values of a short loop with one another first, and then all of them at once into what they are folded into.

pipeline: `sum-lanes@main/lanes`

```diff
 kir 1
 program row_sums
   in X: f32[M, 4]
   out S: f32[M]
   size M: i32
 kernel main grid (row: M) threads 1
   register total: f32 = 0.0
-  @lanes for v in 0..4
-    total = total + X[row, v] * X[row, v]
+  @lanes total = total + (X[row, 0] * X[row, 0] + X[row, 1] * X[row, 1] + X[row, 2] * X[row, 2] + X[row, 3] * X[row, 3])
   S[row] = total
```
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import ClassVar, Literal

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, dtype_of
from kir.ir.visit import buffers_named, names_read, substitute, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.match import counting, edited, fresh_var, is_counted, matched, names_at, node_as
from kir.rewrite.match.materialize import is_pure

from ..loops.write_out import Unlike, between

Form = Literal["chain", "pairs"]
FORMS: tuple[Form, ...] = ("chain", "pairs")
FOLDS = ("add", "max", "min")
MOST = 16


@dataclass(frozen=True)
class SumLanes(Pass):
    """`form`: the values are folded in a `chain`, one after the other, or in `pairs`, neighbors first."""

    intent: ClassVar[str] = "tree-reduction"
    catalogue: ClassVar[tuple[int, ...]] = (44, 52)
    claim: ClassVar[str] = "What is carried along waits for one operation and not for several, one after the other."
    numerics: ClassVar[str] = "reassociated(lanes)"
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    form: Form = "chain"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a short loop that does nothing but fold a value into a private scalar."""
        found = _folded(node)
        if found is None or not isinstance(node, n.For):
            return None
        count = build.int_value(node.hi) or 0
        if self.form == "pairs" and (count < 4 or count & (count - 1)):
            return Miss(f"{count} values are no pairs of pairs")
        return Site(path, self) if self._lanes(*self._together(node)) is not None else Miss("its values are none that a loop gives back")

    def _together(self, loop: n.For) -> tuple[n.Store, n.Expr]:
        """The one store, and what it folds in."""
        store = matched(_folded(loop))
        assert isinstance(store.value, n.Binary)
        op, value = store.value.op, store.value.b
        lanes = [substitute(value, {loop.var.name: build.const(k)}) for k in range(build.int_value(loop.hi) or 0)]
        whole = _fold(op, lanes, self.form)
        return replace(store, value=n.Binary(op, store.value.a, whole), label=loop.label), whole

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One store."""
        loop = node_as(program, site.path, n.For)
        return edited(program, site.path, (self._together(loop)[0],))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store that folds in several values, each a copy of the one before with integers that grow evenly from 0."""
        if not (isinstance(node, n.Store) and isinstance(node.value, n.Binary)):
            return None
        return tuple(Site(path, SumLanes(form), {"lanes": made}) for form in FORMS if (made := SumLanes(form)._lanes(node, node.value.b)) is not None) or None

    def _lanes(self, s: n.Store, whole: n.Expr) -> tuple[n.Expr, int] | None:
        """What lane `%v` folds in, and how many lanes there are."""
        v = s.value
        if not (isinstance(v, n.Binary) and v.op in FOLDS and dtype_of(v.type).is_float and v.a == n.Load(s.at) and _is_scalar(s)):
            return None
        var = n.Var("%v", I32)
        for lanes in _parts(whole, v.op, self.form):
            try:
                one: n.Expr = between(lanes[0], lanes[1], var)
            except (Unlike, TypeError, ValueError):
                continue
            if var.name in names_read(one) and is_pure(one) and not _of_vectors(one) and s.at.buffer.name not in buffers_named(one) and all(
                    substitute(one, {var.name: build.const(k)}) == x for k, x in enumerate(lanes)):
                return one, len(lanes)
        return None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the lanes."""
        s, (one, count) = node_as(program, site.path, n.Store), site.captures["lanes"]
        assert isinstance(s.value, n.Binary)
        var = fresh_var("v", names_at(program, site.path))
        step = replace(s, value=build.binary(s.value.op, s.value.a, substitute(one, {"%v": var})), label=None)
        loop = counting(var, count, (step,), label=s.label)
        return edited(program, site.path, (loop,))


def _of_vectors(e: n.Expr) -> bool:
    """Whether a value is made of elements that are picked from vectors."""
    return any(isinstance(x, n.Call) and x.fn == "pick" for x in walk(e))


def _is_scalar(s: n.Store) -> bool:
    return s.at.buffer.space == "register" and not s.at.buffer.shape and s.mask is None and not s.clip


def _folded(s: Place) -> n.Store | None:
    """The store of a short loop that does nothing but fold values into a private scalar, which they do not depend on."""
    if not (is_counted(s, plain=True) and len(s.body) == 1):
        return None
    store, count = s.body[0], build.int_value(s.hi)
    if not (isinstance(store, n.Store) and isinstance(store.value, n.Binary) and count is not None and 1 < count <= MOST and s.var.of == I32):
        return None
    v = store.value
    folds = v.op in FOLDS and dtype_of(v.type).is_float and v.a == n.Load(store.at) and store.at.buffer.name not in buffers_named(v.b)
    return store if folds and _is_scalar(store) and is_pure(v.b) and s.var.name in names_read(v.b) else None


def _fold(op: str, lanes: Sequence[n.Expr], form: Form) -> n.Expr:
    """The values folded with one another."""
    if form == "chain":
        return reduce(lambda a, b: build.binary(op, a, b), lanes)
    while len(lanes) > 1:
        lanes = [build.binary(op, a, b) for a, b in zip(lanes[::2], lanes[1::2], strict=True)]
    return lanes[0]


def _parts(e: n.Expr, op: str, form: Form) -> Iterator[tuple[n.Expr, ...]]:
    """The values that an expression folds with one another, as many as can be first."""
    def inside(x: n.Expr) -> tuple[n.Expr, n.Expr] | None:
        return (x.a, x.b) if isinstance(x, n.Binary) and x.op == op else None
    if form == "chain":
        lanes: list[n.Expr] = []
        while (pair := inside(e)) is not None:
            e = pair[0]
            lanes.insert(0, pair[1])
        if lanes:
            yield e, *lanes
        return
    level: list[n.Expr] = [e]
    found = []
    while all((pair := inside(x)) is not None for x in level):
        level = [y for x in level for y in (inside(x) or ())]
        if len(level) >= 4:
            found.append(tuple(level))
    yield from reversed(found)
