"""Continues a sum from iteration to iteration instead of starting it over each time.

pipeline: `running-sum@main/loop`

```diff
 kir 1
 program prefix
   size M: i32
   size N: i32
   in X: f32[M, N]
   out Y: f32[M, N]
 kernel main grid (row: M) threads 1
+  register total: f32 = 0.0
   @loop for i in 0..N
-    register total: f32 = 0.0
-    for j in 0..i + 1
-      total = total + X[row, j]
+    total = total + X[row, i]
     Y[row, i] = total
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases, accesses
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.ir.visit import names_read, substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at
from kir.rewrite.match import block_and_index, counting, edited, fresh_var, from_zero, names_at, node_as, sibling, splice
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.materialize import is_pure


def _unwritten(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, aliases = node_as(program, site.path, n.For), Aliases(program)
    alloc, inner = loop.body[:2]
    assert isinstance(alloc, n.Alloc) and isinstance(inner, n.For)
    reads = {a.buffer for a in accesses(inner) if not a.writes} - {alloc.buffer.name}
    for s in loop.body[2:]:
        for a in accesses(s):
            if a.writes and (a.buffer == alloc.buffer.name or a.buffer == "*" or any(aliases.may_be_one(a.buffer, b) for b in reads)):
                return refuted(f"the loop writes '{a.buffer}', which the sum is made of", "an earlier term has changed when the sum is formed anew",
                               needs="terms that stay as they are")
    return proved("the terms of the sum do not change")


@dataclass(frozen=True)
class RunningSum(Pass):
    """No parameters: the site is the loop over ever longer sums."""

    intent: ClassVar[str] = "running-sum"
    catalogue: ClassVar[tuple[int, ...]] = (58,)
    claim: ClassVar[str] = "Each sum is the one before and one more term, in the same order of additions."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P580", "validity", "storage", "nothing changes the terms or the sum between iterations", _unwritten),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over i from 0 that begins with a fold over 0..i + 1."""
        if not isinstance(node, n.For) or node.kind != "serial" or len(node.body) < 3:
            return None
        alloc, inner = node.body[:2]
        if not (isinstance(alloc, n.Alloc) and alloc.buffer.space == "register" and not alloc.buffer.shape and alloc.init is not None
                and isinstance(inner, n.For) and inner.kind == "serial" and len(inner.body) == 1 and not inner.attrs):
            return None
        if not (from_zero(node) and node.var.of == I32):
            return None
        if not from_zero(inner) or inner.hi != build.add(node.var, 1):
            return Miss("the inner loop does not run to the outer one's place")
        if not isinstance(alloc.init, n.Const) or _term(inner.body[0], alloc.buffer) is None:
            return Miss("the inner loop folds nothing into the scalar")
        if node.var.name in names_read(inner.body[0]):
            return Miss("the terms depend on the outer loop")
        if any(isinstance(x, n.Jump) for s in node.body for x in walk(s)):
            return Miss("the body leaves the loop early")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The scalar before the loop, and one more term in each iteration."""
        loop, i = node_as(program, site.path, n.For), int(site.path[-1])
        alloc, inner = loop.body[:2]
        assert isinstance(alloc, n.Alloc) and isinstance(inner, n.For)
        step = substitute(inner.body[0], {inner.var.name: loop.var})
        made = replace(loop, body=(step, *loop.body[2:]))
        after = splice(program, site.path, (alloc, made))
        at = sibling(site.path, 1)
        hints = {site.path: (at,), (*site.path, "body", 0): ((*site.path[:-1], i),),
                 **{(*site.path, "body", k): ((*at, "body", k - 1),) for k in range(1, len(loop.body))}}
        return Rewritten(after, at, hints)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop from 0 that first folds one more term into the scalar declared before it."""
        if not isinstance(node, n.For) or node.kind != "serial" or not int(path[-1]) or len(node.body) < 2 or node.attrs:
            return None
        alloc = block_at(program, path)[int(path[-1]) - 1]
        if not (isinstance(alloc, n.Alloc) and alloc.buffer.space == "register" and not alloc.buffer.shape and isinstance(alloc.init, n.Const)):
            return None
        if not (from_zero(node) and node.var.of == I32) or _term(node.body[0], alloc.buffer) is None:
            return None
        name = alloc.buffer.name
        if not any(mentions(s, name) for s in node.body[1:]) or any(mentions(s, name) for s in block_at(program, path)[int(path[-1]) + 1:]):
            return Miss("only the last sum is used, or it is used after the loop")
        return Site(path, self)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each sum from its first term."""
        block, i = block_and_index(program, site.path)
        alloc, loop = block[i - 1:i + 1]
        assert isinstance(alloc, n.Alloc) and isinstance(loop, n.For)
        var = fresh_var("j", names_at(program, site.path))
        step = substitute(loop.body[0], {loop.var.name: var})
        inner = counting(var, build.add(loop.var, 1), (step,))
        made = replace(loop, body=(alloc, inner, *loop.body[1:]))
        return edited(program, site.path, (made,), -1, at=-1)


def _term(s: n.Stmt, acc: n.Buffer) -> n.Expr | None:
    """What a statement folds into the scalar, on its right side."""
    if not (isinstance(s, n.Store) and s.at == n.Region(acc) and s.mask is None and isinstance(s.value, n.Binary) and is_pure(s.value)):
        return None
    own, v = n.Load(n.Region(acc)), s.value
    if v.op not in ("add", "mul", "max", "min", "or", "and", "xor"):
        return None
    return v.b if v.a == own and own not in walk(v.b) else v.a if v.b == own and own not in walk(v.a) else None
