"""Lets only the threads that need the result of a reduction fold the slots of all: the others go on without it.

pipeline: `leader-fold@main/sum`

```diff
 kir 1
 program row_sums
   size M: i32
   in X: f32[M, 8]
   out S: f32[M]
 kernel main grid (row: M) threads 8
   shared slots: f32[8]
   for t in 0..8 parallel thread
     slots[t] = X[row, t]
     barrier()
-    @sum register sum: f32 = 0.0
-    for u in 0..8
-      sum = sum + slots[u]
     if t == 0
+      @sum register sum: f32 = 0.0
+      for u in 0..8
+        sum = sum + slots[u]
       S[row] = sum
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.visit import buffers_named, names_read
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at
from kir.rewrite.match import block_and_index, edited, matched, matched_as
from kir.rewrite.match.exchange import fold_at
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.thread_team import is_in_loop, team_at


def _only_there(program: n.Program, site: Site, context: Context) -> Verdict:
    block, i = block_and_index(program, site.path)
    found = matched(fold_at(block, i))
    name = found[0].result.name
    again = any(mentions(s, name) for s in block[i + found[1] + 1:]) or (not found[0].fresh and is_in_loop(program, site.path))
    if again:
        return refuted(f"'{name}' is read behind the branch", "a thread that does not take it has not folded anything", needs="readers in the branch alone")
    return proved("nobody but those that take the branch reads the result")


@dataclass(frozen=True)
class LeaderFold(Pass):
    """The site is where the fold begins, with a branch behind it. `outside`: the scalar begins before the branch all the same."""

    intent: ClassVar[str] = "tree-reduction"
    catalogue: ClassVar[tuple[int, ...]] = (44,)
    claim: ClassVar[str] = "One thread reads the slots, where all would read the same."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P449", "validity", "storage", "only those that take the branch read the result", _only_there),)

    outside: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a fold of shared values by each thread, before a branch that reads the result."""
        if not isinstance(node, (n.Alloc, n.Store)) or team_at(program, path) is None:
            return None
        block, i = block_and_index(program, path)
        found = fold_at(block, i)
        branch = _branch(block, i + 2)
        if found is None or found[1] != 2 or found[0].slots.space != "shared" or branch is None:
            return None
        name = found[0].result.name
        if name in buffers_named(branch.cond) | names_read(branch.cond) or not any(mentions(s, name) for s in branch.then):
            return Miss("the branch asks for the result, or does not read it")
        if not self.outside and not found[0].fresh:
            return Miss("the scalar is there already (outside=true)")
        if not self.outside and any(mentions(s, name) for s in block[i + 3:]):
            return Miss("the scalar is used behind the branch")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The fold in the branch."""
        block, i = block_and_index(program, site.path)
        head, loop, branch = block[i], block[i + 1], matched(_branch(block, i + 2))
        made = (head, replace(branch, then=(loop, *branch.then))) if self.outside else (replace(branch, then=(head, loop, *branch.then)),)
        return edited(program, site.path, made, 0, 3)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a branch that begins with a fold of shared values, or at the scalar before it."""
        if not isinstance(node, (n.Alloc, n.Store, n.If)) or team_at(program, path) is None:
            return None
        block, i = block_and_index(program, path)
        outside = not isinstance(node, n.If)
        branch = _branch(block, i + outside)
        if branch is None or len(branch.then) < 3 - outside:
            return None
        fold = (node, branch.then[0]) if outside else branch.then[:2]
        found = fold_at(tuple(matched_as(s, n.Stmt) for s in fold), 0)
        if found is None or found[1] != 2 or found[0].slots.space != "shared" or not (outside or found[0].fresh):
            return None
        return Site(path, LeaderFold(outside))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The fold before the branch, by every thread."""
        block, i = block_at(program, site.path), int(site.path[-1])
        branch = matched(_branch(block, i + self.outside))
        fold, rest = ((block[i], branch.then[0]), branch.then[1:]) if self.outside else (branch.then[:2], branch.then[2:])
        return edited(program, site.path, (*fold, replace(branch, then=rest)), 0, 1 + self.outside)


def _branch(block: n.Block, i: int) -> n.If | None:
    s = block[i] if i < len(block) else None
    return s if isinstance(s, n.If) and not s.orelse and not s.static else None


__all__ = ["LeaderFold"]
