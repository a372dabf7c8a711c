"""Lets two trees over the threads go down together: each step folds slots of both arrays, and threads wait once for it.

pipeline: `share-tree@main/t/first`

```diff
 kir 1
 program two_sums
   size M: i32
   in X: f32[M, 128]
   out Y: f32[M]
 kernel main grid (row: M) threads 128
   shared A: f32[128]
   shared B: f32[128]
   for t in 0..128 parallel thread
     @first A[t] = X[row, t]
+    B[t] = X[row, t] * X[row, t]
     barrier()
     for s in 0..7
       if t < 64 >> s
         A[t] = A[t] + A[(64 >> s) + t]
-      barrier()
-    B[t] = X[row, t] * X[row, t]
-    barrier()
-    for r in 0..7
-      if t < 64 >> r
-        B[t] = B[t] + B[(64 >> r) + t]
+        B[t] = B[t] + B[(64 >> s) + t]
       barrier()
     if t == 0
       Y[row] = A[0] * B[0]
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, NamedTuple

from kir.analysis import Aliases, Facts
from kir.analysis.access import ANYWHERE, accesses, independent
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.match import block_and_index, edited, fresh_var, matched, names_at
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.thread_team import barrier, is_call, team_at


class _Tree(NamedTuple):
    """Stores of slots, and the loop behind the barrier after them, of which each round is one branch and a barrier; how many statements that is."""

    stores: tuple[n.Store, ...]
    loop: n.For
    branch: n.If
    size: int


def _tree_at(block: n.Block, i: int) -> _Tree | None:
    """The tree whose first store stands at a place."""
    k = i
    while k < len(block) and _is_slot(block[k]):
        k += 1
    loop = block[k + 1] if k + 1 < len(block) else None
    if k == i or not is_call(block[k], "barrier") or not isinstance(loop, n.For) or len(loop.body) != 2:
        return None
    branch = loop.body[0]
    counted = loop.kind == "serial" and not loop.attrs and build.is_const(loop.lo, 0) and build.is_const(loop.step, 1) and build.int_value(loop.hi)
    if not counted or not is_call(loop.body[1], "barrier") or not isinstance(branch, n.If) or branch.orelse or branch.static:
        return None
    plain = all(isinstance(s, n.Store) for s in branch.then) and not any(isinstance(x, n.Load) for x in walk(branch.cond))
    return _Tree(tuple(s for s in block[i:k] if isinstance(s, n.Store)), loop, branch, k + 2 - i) if plain else None


def _is_slot(s: n.Stmt) -> bool:
    """Whether a statement stores to shared memory."""
    return isinstance(s, n.Store) and s.at.buffer.space == "shared"


def _two(block: n.Block, i: int) -> tuple[_Tree, _Tree] | None:
    """Two trees, one after the other, which go down alike; the second of one array, with the counter of the first."""
    first = _tree_at(block, i)
    second = _tree_at(block, i + first.size) if first is not None else None
    if first is None or second is None or len(second.stores) != 1:
        return None
    branch: n.If = substitute(second.branch, {second.loop.var.name: first.loop.var})
    alike = (first.loop.hi, first.loop.var.of, first.branch.cond) == (second.loop.hi, second.loop.var.of, branch.cond)
    return (first, second._replace(branch=branch)) if alike else None


def _apart(program: n.Program, site: Site, context: Context) -> Verdict:
    first, second = matched(_two(*block_and_index(program, site.path)))
    if not independent((*first.stores, *first.branch.then), (*second.stores, *second.branch.then), Facts.at(program, site.path), Aliases(program)):
        return refuted("one tree uses what the other one writes", "a step of the second reads a slot that a step of the first writes",
                       needs="arrays of their own, and values that do not come out of the first tree")
    return proved("neither tree uses what the other one writes")


def _unused(program: n.Program, site: Site, context: Context) -> Verdict:
    block, i = block_and_index(program, site.path)
    _, second = matched(_two(block, i))
    start = next((k for k in reversed(range(i)) if is_call(block[k], "barrier")), 0)
    aliases, own = Aliases(program), {a.buffer for s in second.stores for a in accesses(s) if a.writes}
    for a in (a for s in block[start:i] for a in accesses(s)):
        if not (a.sync and a.buffer == ANYWHERE) and any(a.buffer == ANYWHERE or aliases.may_be_one(a.buffer, name) for name in own):
            return refuted(f"with one barrier less, a thread may write '{min(own)}' while another one still uses it",
                           "only the barrier of the first tree stands between the two", needs="a barrier before the first tree")
    return proved("nobody uses the second array since the barrier before")


@dataclass(frozen=True)
class ShareTree(Pass):
    """At the first store of slots: those of the trees that go down together, then those of the one that follows and joins them."""

    intent: ClassVar[str] = "fuse"
    catalogue: ClassVar[tuple[int, ...]] = (55, 44)
    claim: ClassVar[str] = "Threads wait once in each step of several trees, where they went down one after the other."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P984", "validity", "storage", "neither tree uses what the other one writes", _apart),
        Precondition("KIR-P985", "validity", "pipeline", "nobody uses the second array since the barrier before the first tree", _unused))

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first store of a tree behind which another one of one array follows, among a team's own statements."""
        found = self._begins(program, path, node)
        return None if not found else Site(path, self) if _two(*block_and_index(program, path)) is not None else None

    def _begins(self, program: n.Program, path: Path, node: Place) -> bool:
        """Whether a statement is the first of several stores of slots, among a team's own statements."""
        team = team_at(program, path)
        if team is None or len(path) != len(team.path) + 2 or not isinstance(node, n.Store) or not _is_slot(node):
            return False
        block, i = block_and_index(program, path)
        return not i or not _is_slot(block[i - 1])

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop."""
        first, second = matched(_two(*block_and_index(program, site.path)))
        loop = replace(first.loop, body=(replace(first.branch, then=(*first.branch.then, *second.branch.then)), first.loop.body[1]))
        return edited(program, site.path, (*first.stores, *second.stores, barrier(), loop), 0, first.size + second.size)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first of several stores of slots, of which the steps of a tree fold those of the last array by themselves."""
        if not self._begins(program, path, node):
            return None
        tree = _tree_at(*block_and_index(program, path))
        if tree is None or len(tree.stores) < 2:
            return None
        name, steps = tree.stores[-1].at.buffer.name, tree.branch.then
        own = [mentions(s, name) for s in steps]
        if own != sorted(own) or all(own) or not any(own) or any(mentions(s, name) for s in tree.stores[:-1]):
            return Miss(f"the steps of '{name}' do not stand behind those of the other arrays")
        return Site(path, self, {"tree": tree, "own": sum(own)})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A tree of the other arrays, then one of the last."""
        tree: _Tree = site.captures["tree"]
        cut, var = len(tree.branch.then) - int(site.captures["own"]), fresh_var("s", names_at(program, site.path))
        first = replace(tree.loop, body=(replace(tree.branch, then=tree.branch.then[:cut]), tree.loop.body[1]))
        second: n.For = substitute(replace(tree.loop, label=None, body=(replace(tree.branch, then=tree.branch.then[cut:], label=None), barrier())),
                                   {tree.loop.var.name: var})
        second = replace(second, var=var)
        return edited(program, site.path, (*tree.stores[:-1], barrier(), first, tree.stores[-1], barrier(), second), 0, tree.size)
