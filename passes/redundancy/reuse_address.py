"""Computes once what several places have in common, and adds to it what each has of its own.

pipeline: `reuse-address{value="b * 8 + r"}@main/rows/c`

```diff
 kir 1
 program shifted
   in X: f32[L, 64]
   out Y: f32[M, 64]
   size M: i32
   size L: i32
   fact L >= M + 2
 kernel main grid (b: M // 8) threads 1
   @rows for r in 0..8
+    let at = b * 8 + r
     for c in 0..63
-      Y[b * 8 + r, c] = X[b * 8 + r + 2, c + 1]
+      Y[at, c] = X[at + 2, c + 1]
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.analysis.integers.integer_sums import Terms, in_sums, replaced
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import I32
from kir.ir.visit import names_read, substitute, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import block_at, edit_block
from kir.rewrite.match import fresh_var, matched, matched_as, names_at, node_as
from kir.rewrite.view import expression_at, text_of


@dataclass(frozen=True)
class ReuseAddress(Pass):
    """`value` is the text of the sum that gets a name before the statement at the site, for all that follow it in its block."""

    intent: ClassVar[str] = "reuse-address"
    catalogue: ClassVar[tuple[int, ...]] = (15, 51)
    claim: ClassVar[str] = "What the places of several accesses have in common is computed once."
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    value: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """Before statements that compute sums which contain the value."""
        if not self.value or not isinstance(node, n.Stmt):
            return None
        value = expression_at(program, path, self.value)
        if value is None or not _is_sum(value):
            return Miss("it is no sum of indices here")
        rest = block_at(program, path)[int(path[-1]):]
        if names_read(value) & set(bound_names(rest)):
            return Miss("what it is made of changes in what follows")
        named = [_named(s, value, n.Var("%at", I32)) for s in rest]
        return Site(path, self) if any(_is_added_to(x, "%at") for s in named for x in walk(s)) else Miss("nothing that follows adds anything to it")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The sum under a name, and the name wherever a sum contains it."""
        value, i = matched(expression_at(program, site.path, self.value)), int(site.path[-1])
        at = fresh_var("at", names_at(program, site.path))
        return Rewritten(edit_block(program, site.path, lambda b: (
            *b[:i], n.Let((at.name,), value), *(_named(s, value, at) for s in b[i:]))), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a named sum to which something is added where it is used."""
        if not (isinstance(node, n.Let) and len(node.names) == 1 and _is_sum(node.value)):
            return None
        rest = block_at(program, path)[int(path[-1]) + 1:]
        if not any(node.names[0] in names_read(s) for s in rest):
            return Miss("the value is never used")
        if not any(_is_added_to(x, node.names[0]) for s in rest for x in walk(s)):
            return Miss("nothing is added to the value")
        return Site(path, ReuseAddress(text_of(node.value)))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each place with its whole sum."""
        let, i = node_as(program, site.path, n.Let), int(site.path[-1])
        return Rewritten(edit_block(program, site.path, lambda b: (*b[:i], *(substitute(s, {let.names[0]: let.value}) for s in b[i + 1:]))), site.path)


def _is_sum(e: n.Expr) -> bool:
    """Whether an expression is a sum of indices that reads no memory."""
    return e.type == I32 and len(build.polynomial(e)) > 1 and not any(isinstance(x, (n.Load, n.Call)) for x in walk(e))


def _named(s: n.Stmt, value: n.Expr, at: n.Var) -> n.Stmt:
    """A statement in which the name stands for the sum."""
    part = build.polynomial(value)

    def change(terms: Terms) -> Terms | None:
        return replaced(terms, ((part, at),))
    made = matched_as(in_sums(s, change), n.Stmt)
    return made


def _is_added_to(x: n.Node, name: str) -> bool:
    """Whether an expression is a sum, of which a name is one term."""
    return isinstance(x, n.Binary) and x.op in ("add", "sub") and x.type == I32 and any(
        len(m) == 1 and isinstance(m[0], n.Var) and m[0].name == name for m in build.polynomial(x))
