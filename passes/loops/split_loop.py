"""Splits a loop where its masks begin to matter: the iterations before need none.

pipeline: `split-loop{at="row // 64 * 64" masks=[0]}@main/keys`

```diff
 kir 1
 program causal_sums
   in X: f32[N, N]
   out S: f32[N]
   size N: i32
   fact N % 64 == 0
 kernel main grid (row: N) threads 1
   register total: f32 = 0.0
-  @keys for j in 0..row // 64 * 64 + 64
-    total = total + select(j <= row, X[row, j], 0.0)
+  @keys for j in 0..row // 64 * 64
+    total = total + X[row, j]
+  for j_1 in 0..64
+    total = total + select(j_1 + row // 64 * 64 <= row, X[row, j_1 + row // 64 * 64], 0.0)
   S[row] = total
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any, ClassVar

from kir.analysis.elements import NotElementwise, element
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.printer import expr_text
from kir.ir.types import I32, shape_of
from kir.ir.visit import names_read, statements, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown
from kir.rewrite.match import block_and_index, edited, fresh_names, fresh_var, is_counted, matched, names_at, node_as, params_as
from kir.rewrite.match.materialize import is_pure
from kir.rewrite.precondition import decided
from kir.rewrite.view import expression_at

MOST_MASKS = 3
"""Conditions that are looked for together, at most."""


def _site(program: n.Program, site: Site) -> tuple[n.For, SplitLoop, n.Expr]:
    loop, item = node_as(program, site.path, n.For), params_as(site, SplitLoop)
    at = matched(item.place(program, site.path))
    return loop, item, at


def _inside(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, _, at = _site(program, site)
    claim = build.logical_and(build.compare("ge", at, 0), build.compare("le", at, loop.hi))
    return decided(claim, Facts.at(program, site.path), "the loop is split between its ends", "the loop is split outside of its ends")


def _needless(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, item, at = _site(program, site)
    known = Facts.at(program, site.path).ranging(loop.var, loop.lo, at, loop.step)
    return needless(loop, item.masks, known, "before the split")


def needless(loop: n.For, masks: tuple[int, ...], known: Facts, when: str) -> Verdict:
    """Whether conditions of a loop's body, by their numbers, hold for every element in the iterations that are known of."""
    lets = {s.names[0]: s.value for s in loop.body if isinstance(s, n.Let) and len(s.names) == 1}
    for cond in (conditions(loop.body)[k] for k in masks):
        index, here = list[n.Expr](), known
        for k, d in enumerate(shape_of(cond.type)):
            var = n.Var(f"%{k}", I32)
            index.append(var)
            here = here.ranging(var, build.const(0), d if isinstance(d, n.Expr) else build.const(d), build.const(1))
        try:
            one = element(cond, index, lets)
        except NotElementwise as bad:
            return unknown(f"'{bad}' has no single elements, so whether a mask matters is not known")
        while used := names_read(one) & lets.keys():
            one = substitute(one, {name: lets[name] for name in used})
        found = decided(one, here, f"{when} the mask lets everything pass", f"{when} the mask holds something back")
        if found.kind != "proved":
            return found
    return proved(f"{when} the masks let everything pass")


@dataclass(frozen=True)
class SplitLoop(Pass):
    """`at` is the text of the iteration with which the second loop begins; `masks` are the conditions that the first one does without, by their number
    among those of its selections and masked loads."""

    intent: ClassVar[str] = "specialize-tail"
    catalogue: ClassVar[tuple[int, ...]] = (53,)
    claim: ClassVar[str] = "Most iterations are far from the edge, and do without the masks that the last ones need."
    provides: ClassVar[tuple[str, ...]] = ("peeled",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P941", "validity", "shape", "the loop is split between its ends", _inside),
        Precondition("KIR-P942", "validity", "numerics", "before the split the masks let everything pass", _needless))

    at: str = ""
    masks: tuple[int, ...] = ()

    def place(self, program: n.Program, path: Path) -> n.Expr | None:
        """The iteration at which the loop is split."""
        found = expression_at(program, path, self.at)
        return found if found is not None and found.type == I32 else None

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop from 0 by 1; where it is to be split, and which masks go, is given."""
        if not self.at or not counts(node) or not isinstance(node, n.For):
            return None
        at = self.place(program, path)
        if at is None or at in (node.lo, node.hi):
            return Miss("that is no place inside the loop")
        if any(isinstance(x, n.Jump | n.Opaque | n.Hole) for x in statements(node.body)):
            return Miss("the body may leave early, or is not understood")
        if tuple(sorted(set(self.masks))) != self.masks or any(not 0 <= k < len(conditions(node.body)) for k in self.masks):
            return Miss(f"it has {len(conditions(node.body))} conditions of masks")
        return Site(path, replace(self, at=expr_text(at)))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop without the masks, and one with them."""
        loop, item, at = _site(program, site)
        taken = names_at(program, site.path)
        var = fresh_var(loop.var.name, taken, loop.var.of)
        names = fresh_names(loop.body, taken)
        rest = tuple(moved(rename(s, names), loop.var.name, build.add(var, at)) for s in loop.body)
        first = replace(loop, hi=at, body=without(loop.body, item.masks))
        second = replace(loop, var=var, hi=build.sub(loop.hi, at), body=tuple(rest), label=None)
        return edited(program, site.path, (first, second))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop after which another one goes on with what it does, under masks perhaps."""
        if not counts(node) or not isinstance(node, n.For):
            return None
        block, i = block_and_index(program, path)
        second = block[i + 1] if i + 1 < len(block) else None
        if not isinstance(second, n.For) or not counts(second) or (second.kind, second.attrs) != (node.kind, node.attrs):
            return None
        if not {s.at.buffer.name for s in statements(node.body) if isinstance(s, n.Store)} & {
                s.at.buffer.name for s in statements(second.body) if isinstance(s, n.Store)} - set(bound_names(node.body)):
            return None
        body = tuple(moved(s, second.var.name, build.sub(node.var, node.hi)) for s in second.body)
        found = next((masks for masks in _subsets(len(conditions(body))) if same_up_to_names(node.body, without(body, masks))), None)
        if found is None:
            return Miss("the next loop does something else")
        whole = replace(node, hi=build.add(node.hi, second.hi), body=body)
        return Site(path, SplitLoop(expr_text(node.hi), found), {"whole": whole})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop, masked throughout."""
        return edited(program, site.path, (site.captures["whole"],), 0, 2)


def counts(s: Place) -> bool:
    """Whether a place is a loop from 0 by 1 over i32, pipelined or not."""
    return is_counted(s, ("serial", "pipelined"), I32)


def moved(s: n.Stmt, var: str, to: n.Expr) -> n.Stmt:
    """A statement with another value for a variable."""
    made: Any = substitute(s, {var: to})
    assert isinstance(made, n.Stmt)
    return made


def _subsets(count: int) -> Iterator[tuple[int, ...]]:
    """Which conditions may go, more of them first."""
    for size in reversed(range(min(count, MOST_MASKS) + 1)):
        yield from combinations(range(count), size)


def conditions(body: n.Block) -> list[n.Expr]:
    """The conditions of a body's selections and masked loads, each once."""
    found = (x.cond if isinstance(x, n.Select) else x.mask for s in body for x in walk(s) if isinstance(x, n.Select | n.Load))
    return list(dict.fromkeys(x for x in found if x is not None))


def without(body: n.Block, masks: tuple[int, ...]) -> n.Block:
    """A body without some masks, without names for what has one already, and without lets that only served the masks."""
    known = conditions(body)
    gone = {known[k] for k in masks}
    if not gone:
        return body

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(old, n.Select) and old.cond in gone and isinstance(new, n.Select):
            return new.a
        if isinstance(old, n.Load) and old.mask in gone and isinstance(new, n.Load):
            return replace(new, mask=None, other=None)
        return new
    out: list[n.Stmt] = []
    names: dict[str, n.Expr] = {}
    for s in body:
        made: Any = transform(s, leave)
        if names:
            made = substitute(made, names)
        if isinstance(made, n.Let) and isinstance(made.value, n.Var) and made.value != s.value:  # type: ignore[attr-defined]  # of the same kind
            names[made.names[0]] = made.value
        else:
            out.append(made)
    before = {name for s in body for name in names_read(s)}
    for s in reversed(tuple(out)):
        read = {name for x in out for name in names_read(x)}
        if isinstance(s, n.Let) and is_pure(s.value) and set(s.names) <= before and not set(s.names) & read:
            out.remove(s)
    return tuple(out)


def same_up_to_names(ours: n.Block, theirs: n.Block) -> bool:
    """Whether two bodies are one up to names."""
    if [type(s) for s in ours] != [type(s) for s in theirs]:
        return False
    a, b = list(bound_names(ours)), list(bound_names(theirs))
    return len(a) == len(b) and tuple(rename(s, dict(zip(a, b, strict=True))) for s in ours) == theirs
