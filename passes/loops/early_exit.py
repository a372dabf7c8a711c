"""Lets a thread with nothing to do end, instead of standing under a branch around all the rest.

pipeline: `early-exit@main/t/inside`

```diff
 kir 1
 program doubled
   in X: f32[N]
   out Y: f32[N]
   size N: i32
 kernel main grid (b: ceildiv(N, 128)) threads 128
   for t in 0..128 parallel thread
-    @inside if b * 128 + t < N
-      let x = X[b * 128 + t]
-      Y[b * 128 + t] = x * 2.0
+    @inside if b * 128 + t >= N
+      return
+    let x = X[b * 128 + t]
+    Y[b * 128 + t] = x * 2.0
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.facts import Facts
from kir.analysis.uniform import depends, of_whole_groups, varying
from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import statements, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import block_at, enclosing, kernel_of
from kir.rewrite.match import block_and_index, edited, matched_as
from kir.rewrite.match.thread_team import is_call, team_at

OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


def opposite(e: n.Expr) -> n.Expr:
    """A condition that holds where another does not: comparisons of integers turned round, conjunctions as disjunctions."""
    if isinstance(e, n.Binary) and e.op in ("and", "or") and dtype_of(e.type).is_bool:
        return build.binary("or" if e.op == "and" else "and", opposite(e.a), opposite(e.b))
    if isinstance(e, n.Binary) and e.op in OPPOSITE and dtype_of(e.a.type).is_integer:
        return build.compare(OPPOSITE[e.op], e.a, e.b)
    return build.invert(e)


@dataclass(frozen=True)
class EarlyExit(Pass):
    """No parameters: the site is the branch. Of a branch with two sides the threads of the first end behind it, and the others go on without a branch."""

    intent: ClassVar[str] = "predicate"
    catalogue: ClassVar[tuple[int, ...]] = (54,)
    claim: ClassVar[str] = "Threads without work are gone, and the rest needs no branch around it."
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a branch that is the last thing a thread comes to."""
        if not isinstance(node, n.If) or node.static or not self._is_last(program, path):
            return None
        block, i = block_and_index(program, path)
        if i != len(block) - 1:
            return None
        if any(isinstance(s, n.Jump) and s.kind == "return" for s in statements((*node.then, *node.orelse))) or not node.then:
            return Miss("a thread ends inside it already")
        if node.orelse:
            return _together(program, path, node.cond, (*node.then, *node.orelse)) or Site(path, self)
        if opposite(opposite(node.cond)) != node.cond:
            return Miss("its condition has no opposite")
        return _together(program, path, node.cond, node.then) or Site(path, self)

    def _is_last(self, program: n.Program, path: Path) -> bool:
        """Whether a path leads to a statement of the loop over threads, or of branches with which it ends, behind which the kernel ends."""
        if team_at(program, path) is None or int(path[1]) != len(kernel_of(program, path).body) - 1:
            return False
        above = [(p, s) for p, s in enclosing(program, path) if len(p) > 2]
        return all(isinstance(s, n.If) and int(p[-1]) == len(block_at(program, p)) - 1 for p, s in above)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """An exit under the opposite condition, and the rest without a branch."""
        i, block = int(site.path[-1]), block_at(program, site.path)
        s = matched_as(block[i], n.If)
        if s.orelse:
            return edited(program, site.path, (replace(s, then=(*s.then, n.Jump("return")), orelse=()), *s.orelse), 0, None)
        leave = replace(s, cond=opposite(s.cond), then=(n.Jump("return"),))
        return edited(program, site.path, (leave, *s.then), 0, None)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an exit of a thread, with more code behind it."""
        if not isinstance(node, n.If) or node.orelse or not node.then or node.then[-1] != n.Jump("return") or not self._is_last(program, path):
            return None
        if any(isinstance(s, n.Jump) for s in statements(node.then[:-1])):
            return Miss("a thread ends inside it elsewhere, too")
        if int(path[-1]) == len(block_at(program, path)) - 1:
            return Miss("nothing follows it")
        return _together(program, path, node.cond, (*node.then[:-1], *block_at(program, path)[int(path[-1]) + 1:])) or Site(path, self)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A branch around what follows."""
        i, block = int(site.path[-1]), block_at(program, site.path)
        s = matched_as(block[i], n.If)
        if len(s.then) > 1:
            return edited(program, site.path, (replace(s, then=s.then[:-1], orelse=block[i + 1:]),), 0, None)
        around = replace(s, cond=opposite(s.cond), then=block[i + 1:])
        return edited(program, site.path, (around,), 0, None)


def _together(program: n.Program, path: Path, cond: n.Expr, rest: n.Block) -> Miss | None:
    """Why threads that go on would wait for some that do not: all of the CTA meet there, or lanes of one warp exchange values."""
    team = team_at(program, path)
    calls = [instruction(x.fn) for s in rest for x in walk(s) if isinstance(x, n.Call) and x.of is None]
    if team is None or any(isinstance(x, n.Call) and x.of is not None for s in rest for x in walk(s)):
        return Miss("what follows calls a function")
    if any(is_call(x, "barrier") for s in rest for x in walk(s) if isinstance(x, n.Stmt)):
        return Miss("all threads synchronize in what follows")
    lanes = any(row.is_convergent or row.effect in ("sync", "async") for row in calls)
    if lanes and depends(of_whole_groups(Facts.at(program, path).expanded(cond), team.thread.name, 32), varying(team.loop)[path[2:]]):
        return Miss("lanes of a warp that part there meet in what follows")
    return None
