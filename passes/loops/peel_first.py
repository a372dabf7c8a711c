"""Writes the first iteration of a loop out before it: those that follow do without the masks that it alone needs.

pipeline: `peel-first{masks=[0]}@main/tiles`

```diff
 kir 1
 program row_sums
   in X: f32[M, N]
   out S: f32[M]
   size M: i32
   size N: i32
   fact N >= 1
 kernel main grid (row: M) threads 32
   fragment total: f32[64] = 0.0
-  @tiles for j in 0..ceildiv(N, 64)
-    let x = select(iota(64) + j * -64 + ceildiv(N, 64) * 64 - 64 < N, load(X[row, j * -64 + ceildiv(N, 64) * 64 - 64 +: 64] else 0.0 clip), 0.0)
+  let x_1 = select(iota(64) + ceildiv(N, 64) * 64 - 64 < N, load(X[row, ceildiv(N, 64) * 64 - 64 +: 64] else 0.0 clip), 0.0)
+  total = total + x_1
+  @tiles for j in 0..ceildiv(N, 64) - 1
+    let x = load(X[row, j * -64 + ceildiv(N, 64) * 64 - 128 +: 64] else 0.0 clip)
     total = total + x
   S[row] = reduce(total, axis=0, op=sum)
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.canonical import bound_names, rename
from kir.ir.types import I32
from kir.ir.visit import statements, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved
from kir.rewrite.match import block_and_index, edited, fresh_names, is_counted, names_at, node_as, params_as
from kir.rewrite.precondition import decided

from .split_loop import conditions, moved, needless, without


def _there(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    return decided(build.compare("ge", loop.hi, 1), Facts.at(program, site.path), "the loop has a first iteration", "the loop may have no iteration")


def _later(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, item = node_as(program, site.path, n.For), params_as(site, PeelFirst)
    return _needless(program, site.path, loop, item.masks) if item.masks else proved("every iteration keeps its masks")


def _needless(program: n.Program, path: Path, loop: n.For, masks: tuple[int, ...]) -> Verdict:
    known = Facts.at(program, path).ranging(loop.var, build.const(1), loop.hi, loop.step)
    return needless(loop, masks, known, "after the first iteration")


@dataclass(frozen=True)
class PeelFirst(Pass):
    """`masks` are the conditions that the later iterations do without, by their number among those of the loop's selections and masked loads."""

    intent: ClassVar[str] = "specialize-first"
    catalogue: ClassVar[tuple[int, ...]] = (53,)
    claim: ClassVar[str] = "Only the first iteration meets the edge, and what all later ones do is free of it."
    provides: ClassVar[tuple[str, ...]] = ("peeled",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P714", "validity", "shape", "the loop has a first iteration", _there),
        Precondition("KIR-P715", "validity", "numerics", "after the first iteration the masks let everything pass", _later))

    masks: tuple[int, ...] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop from 0 by 1; which masks go is given."""
        if not is_counted(node, of=I32) or len(path) < 2:
            return None
        if any(isinstance(x, n.Jump | n.Opaque | n.Hole) for x in statements(node.body)):
            return Miss("the body may leave early, or is not understood")
        if tuple(sorted(set(self.masks))) != self.masks or any(not 0 <= k < len(conditions(node.body)) for k in self.masks):
            return Miss(f"it has {len(conditions(node.body))} conditions of masks")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One iteration with all masks, and a loop over the rest."""
        loop, item = node_as(program, site.path, n.For), params_as(site, PeelFirst)
        names = fresh_names(loop.body, names_at(program, site.path))
        first = tuple(replace(moved(rename(s, names), loop.var.name, loop.lo), label=None) for s in loop.body)  # type: ignore[type-var]  # of a dataclass
        body = tuple(moved(s, loop.var.name, build.add(loop.var, 1)) for s in without(loop.body, item.masks))
        return edited(program, site.path, (*first, replace(loop, hi=build.sub(loop.hi, 1), body=body)), at=len(first))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop before which stands what its iteration before the first would be, under masks perhaps."""
        if not is_counted(node, of=I32) or len(path) < 2:
            return None
        block, i = block_and_index(program, path)
        count = len(node.body)
        if count > i:
            return None
        first, body = block[i - count:i], tuple(moved(s, node.var.name, build.sub(node.var, 1)) for s in node.body)
        ours, theirs = list(bound_names(first)), list(bound_names(body))
        if len(ours) != len(theirs) or [type(s) for s in first] != [type(s) for s in body]:
            return None
        plain = tuple(rename(s, dict(zip(ours, theirs, strict=True))) for s in first)
        hi = build.add(node.hi, 1)
        for whole in _masked(plain, body, node.var):
            loop = replace(node, hi=hi, body=whole)
            masks = tuple(k for k, c in enumerate(conditions(whole)) if c not in conditions(body))
            if tuple(moved(s, node.var.name, node.lo) for s in whole) == plain and without(whole, masks) == body and (
                    not masks or _needless(program, path, loop, masks).kind == "proved"):
                return Site(path, PeelFirst(masks), {"loop": loop, "count": count})
        return Miss("what stands before the loop is not its first iteration")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop."""
        count = int(site.captures["count"])
        return edited(program, site.path, (site.captures["loop"],), -count, 1, at=-count)


def _masked(first: n.Block, body: n.Block, var: n.Var) -> Iterator[n.Block]:
    """Bodies whose iteration 0 is `first`, and which are `body` without masks that `first` alone has: how such a mask moves along with the
    iterations is guessed from the length of its tile."""
    only = [c for c in conditions(first) if c not in {moved_condition(x, var) for x in conditions(body)}]
    for moves in product(*(list(_moving(c, var)) for c in only)):
        known = dict(zip(only, moves, strict=True))
        made = tuple(_merged(a, b, known) for a, b in zip(first, body, strict=True))
        if all(s is not None for s in made):
            yield tuple(s for s in made if s is not None)


def moved_condition(c: n.Expr, var: n.Var) -> n.Expr:
    """A condition in iteration 0."""
    made: Any = moved(n.Let(("%",), c), var.name, build.const(0))
    return made.value  # type: ignore[no-any-return]  # of a Let


def _moving(cond: n.Expr, var: n.Var) -> Iterator[n.Expr]:
    """What a condition on one tile may be in all iterations: its positions move down, or up, by their number."""
    for x in dict.fromkeys(x for x in walk(cond) if isinstance(x, n.Call) and x.fn == "iota"):
        count = int_value(x.args[0]) if isinstance(x.args[0], n.Expr) else None
        for step in (-count, count) if count else ():
            yield _shifted(cond, x, build.mul(var, step))


def _shifted(cond: n.Expr, iota: n.Call, by: n.Expr) -> n.Expr:
    """A condition with positions shifted: at the outermost sum that they are in."""
    sums = [x for x in walk(cond) if isinstance(x, n.Binary) and x.op in ("add", "sub") and iota in (x, *walk(x))]
    at = sums[0] if sums else iota

    def leave(old: n.Node, new: n.Node) -> n.Node:
        return build.add(new, by) if old == at and isinstance(new, n.Expr) else new
    made: n.Expr = transform(cond, leave)
    return made


def _merged(first: n.Stmt, later: n.Stmt, known: dict[n.Expr, n.Expr]) -> n.Stmt | None:
    """A later iteration's statement with the masks that the first one's has; None where more is different."""
    def merged(a: Any, b: Any) -> Any:
        if isinstance(a, n.Select) and a.cond in known and not (isinstance(b, n.Select) and b.cond == a.cond):
            return build.select(known[a.cond], merged(a.a, b), a.b)
        if isinstance(a, n.Load) and a.mask is not None and a.mask in known and isinstance(b, n.Load) and b.mask is None:
            return replace(merged(replace(a, mask=None, other=None), b), mask=known[a.mask], other=a.other)
        if isinstance(a, n.Node) and type(a) is type(b):
            changes = {name: merged(getattr(a, name), getattr(b, name)) for name in a.compared_fields}
            return b if all(changes[name] is getattr(b, name) for name in changes) else replace(b, **changes)  # type: ignore[type-var]  # every Node is a dataclass
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            made = tuple(merged(x, y) for x, y in zip(a, b, strict=True))
            return b if all(x is y for x, y in zip(made, b, strict=True)) else made
        return b
    out = merged(first, later)
    return out if isinstance(out, n.Stmt) else None
