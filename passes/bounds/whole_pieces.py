"""Asks once for a piece whether all of it is there: then it is done as a whole, and otherwise what there is of it, one after another.

pipeline: `whole-pieces{asked=last}@main/piece`

```diff
 kir 1
 program scale
   in X: f32[N]
   out Y: f32[N]
   size N: i32
   fact N <= 1048576
 kernel main grid (b: ceildiv(N, 4)) threads 1
-  @piece for v in 0..4
-    if b * 4 + v < N
+  if b * 4 + 3 < N
+    @piece for v in 0..4
       Y[b * 4 + v] = X[b * 4 + v] * 2.0
+  else
+    for v_1 in 0..N - b * 4
+      Y[b * 4 + v_1] = X[b * 4 + v_1] * 2.0
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.types import I32
from kir.ir.visit import buffers_named, names_read, statements, substitute
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved
from kir.rewrite.edit import node_at
from kir.rewrite.match import edited, fresh_names, fresh_var, is_counted, matched, names_at, node_as
from kir.rewrite.match.materialize import buffers_read, buffers_written
from kir.rewrite.precondition import decided

Asked = Literal["last", "end"]
Edge = Literal["loop", "same"]


def _in_order(program: n.Program, site: Site, context: Context) -> Verdict:
    found = matched(_piece(node_at(program, site.path)))
    _, base, _end, count = found
    low, high = I32.range
    known = Facts.at(program, site.path)
    domain = known.domain(known.expanded(base))
    if domain.lo is not None and domain.hi is not None and domain.lo >= low and domain.hi + count - 1 <= high:
        return proved("no number of an item leaves 32 bits")
    return decided(build.compare("le", base, high - count + 1), known, "no number of an item leaves 32 bits",
                   "the number of the last item of a piece may wrap, and be below the end", needs="a bound on the places")


@dataclass(frozen=True)
class WholePieces(Pass):
    """`asked` says how it is asked whether a piece is whole: whether its `last` item lies before the end, or its `end` does not lie behind it;
    `edge` what is done where it is not: a `loop` over what there is, or the `same` that asks for each item."""

    intent: ClassVar[str] = "specialize-tail"
    catalogue: ClassVar[tuple[int, ...]] = (53,)
    claim: ClassVar[str] = "Nothing asks for the end inside a piece that is whole, so that it can be moved at once."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P932", "validity", "shape", "the numbers of a piece's items do not wrap", _in_order),)

    asked: Asked = "last"
    edge: Edge = "loop"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop of literal length that does nothing but ask for each of its items whether it lies before an end."""
        if not isinstance(node, n.For):
            return None
        return Site(path, self) if _piece(node) is not None else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A branch: the piece as a whole, or what there is of it."""
        loop, found = node_as(program, site.path, n.For), matched(_piece(node_at(program, site.path)))
        branch, base, end, count = found
        cond = build.compare("lt", build.add(base, count - 1), end) if self.asked == "last" else build.compare("le", build.add(base, count), end)
        taken = names_at(program, site.path)
        other = replace(loop, label=None) if self.edge == "same" else replace(loop, hi=build.sub(end, base), body=branch.then, label=None)
        var = fresh_var(loop.var.name, taken)
        names = fresh_names(loop.body, taken)
        rest = rename(replace(other, var=var, body=tuple(substitute(s, {loop.var.name: var}) for s in other.body)), names, labels=False)
        made = n.If(cond, (replace(loop, body=branch.then),), (rest,))
        return edited(program, site.path, (made,))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a branch between a loop and the same one, as far as it goes."""
        if not isinstance(node, n.If) or node.static or len(node.then) != 1 or len(node.orelse) != 1:
            return None
        loop, other = node.then[0], node.orelse[0]
        count = build.int_value(loop.hi) if is_counted(loop, of=I32, plain=True) else None
        cond = node.cond
        if not (isinstance(loop, n.For) and is_counted(other, of=I32, plain=True) and count and isinstance(cond, n.Binary) and cond.a.type == I32):
            return None
        asked: Asked = "last" if cond.op == "lt" else "end"
        if cond.op not in ("lt", "le"):
            return Miss("its condition is not whether a piece ends before an end")
        base, end = build.sub(cond.a, count - 1 if asked == "last" else count), cond.b
        each = replace(loop, body=(n.If(build.compare("lt", build.add(base, loop.var), end), loop.body),))
        edge: Edge = "loop" if build.int_value(other.hi) is None else "same"
        site = Site(path, WholePieces(asked, edge), {"made": each})
        return site if _piece(each) is not None else Miss("its items are not places of their own")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop that asks for each item."""
        return edited(program, site.path, (site.captures["made"],))


def _piece(s: Place) -> tuple[n.If, n.Expr, n.Expr, int] | None:
    """(the branch, base, end, length) of a loop over items that only asks `base + item < end`, which nothing inside changes."""
    branch = s.body[0] if is_counted(s, of=I32, plain=True) and len(s.body) == 1 else None
    count = build.int_value(s.hi) if isinstance(s, n.For) else None
    if not (isinstance(s, n.For) and isinstance(branch, n.If) and not branch.orelse and not branch.static and count is not None and count > 1):
        return None
    cond = branch.cond
    if not (isinstance(cond, n.Binary) and cond.op == "lt" and cond.a.type == I32 and build.polynomial(cond.a).get((s.var,)) == 1):
        return None
    base, end = build.sub(cond.a, s.var), cond.b
    bound = {s.var.name, *bound_names(s.body)}
    if bound & (names_read(base) | names_read(end)) or (buffers_read(base) | buffers_read(end)) & buffers_written(s.body) or buffers_named(cond) & bound:
        return None
    if any(isinstance(x, n.Jump | n.Opaque) for x in statements(branch.then)):
        return None
    return branch, base, end, count
