"""Computes before a loop what every iteration would compute the same way.

pipeline: `invariant-hoist@main/j/s`

```diff
 kir 1
 program scale
   in X: f32[M, N]
   in S: f32[M]
   out Y: f32[M, N]
   size M: i32
   size N: i32
 kernel main grid (row: M) threads 1
+  @s let s = S[row]
   @j for j in 0..N
-    @s let s = S[row]
     Y[row, j] = X[row, j] * s
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.visit import names_read, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import node_at
from kir.rewrite.match import block_and_index, edited, matched_as, node_as, splice
from kir.rewrite.match.materialize import buffers_read, buffers_written, is_pure


def _around(program: n.Program, path: Path) -> n.For:
    return node_as(program, path[:-2], n.For)


def _unwritten(program: n.Program, site: Site, context: Context) -> Verdict:
    let, loop = node_as(program, site.path, n.Let), _around(program, site.path)
    written = buffers_written(loop.body)
    clash = sorted(Aliases(program).aliased(buffers_read(let.value), written))
    if clash:
        return refuted(f"the loop writes '{clash[0]}', which the value reads", f"iteration 1 reads what iteration 0 wrote to '{clash[0]}'")
    if "*" in written:
        return unknown("opaque text in the loop may write what the value reads")
    return proved("the loop writes nothing that the value reads")


def _safe(program: n.Program, site: Site, context: Context) -> Verdict:
    let = node_as(program, site.path, n.Let)
    risky = [x for x in walk(let.value) if isinstance(x, n.Load) and any(isinstance(y, n.Load) for i in x.at.index for y in walk(i))]
    divides = [x for x in walk(let.value) if isinstance(x, n.Binary) and x.op in ("floordiv", "mod", "tdiv", "trem") and not isinstance(x.b, n.Const)]
    if risky or divides:
        return unknown("computed where no iteration runs, the value may trap (an address read from memory, or a division)",
                       needs="a loop that runs at least once")
    return proved("computing the value where no iteration runs does no harm")


@dataclass(frozen=True)
class InvariantHoist(Pass):
    """No parameters: the site is the value that moves."""

    intent: ClassVar[str] = "invariant-hoist"
    catalogue: ClassVar[tuple[int, ...]] = (51, 3)
    claim: ClassVar[str] = "What does not change from iteration to iteration is computed once."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P513", "validity", "storage", "the loop writes nothing that the value reads", _unwritten),
        Precondition("KIR-P514", "validity", "shape", "computing the value does no harm where the loop never runs", _safe),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first statement of a loop, a value that reads nothing of the loop."""
        if not (isinstance(node, n.Let) and len(path) >= 4 and path[-2] == "body" and path[-1] == 0 and is_pure(node.value)):
            return None
        loop = node_at(program, path[:-2])
        if not isinstance(loop, n.For) or loop.kind in ("warpgroup", "warp", "thread"):
            return None
        own = {loop.var.name, *bound_names(loop.body)}
        if names_read(node.value) & own or any(isinstance(x, n.Load) and x.at.buffer.name in own for x in walk(node.value)):
            return Miss("the value changes with the iteration")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The value before the loop."""
        outer = site.path[:-2]
        let, loop = node_as(program, site.path, n.Let), node_as(program, outer, n.For)
        return edited(program, outer, (let, replace(loop, body=loop.body[1:])))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a value that only one loop of the same block reads."""
        if not (isinstance(node, n.Let) and is_pure(node.value)):
            return None
        block, i = block_and_index(program, path)
        users = [k for k in range(i + 1, len(block)) if set(node.names) & names_read(block[k])]
        if len(users) != 1:
            return Miss(f"{len(users)} statements read the value") if users else None
        loop = block[users[0]]
        if not isinstance(loop, n.For) or loop.kind in ("warpgroup", "warp", "thread"):
            return None
        if set(node.names) & (names_read(loop.lo) | names_read(loop.hi) | names_read(loop.step)):
            return Miss("the loop's bounds depend on the value")
        if Aliases(program).aliased(buffers_read(node.value), buffers_written(block[i + 1:users[0]])):
            return Miss("what the value reads is written before the loop")
        return Site(path, self, {"loop": users[0]})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The value in each iteration."""
        (block, i), let, k = block_and_index(program, site.path), node_as(program, site.path, n.Let), int(site.captures["loop"])
        loop = matched_as(block[k], n.For)
        made = splice(program, site.path, (*block[i + 1:k], replace(loop, body=(let, *loop.body))), 0, k + 1 - i)
        return Rewritten(made, (*site.path[:-1], k - 1, "body", 0))
