"""Lets stores by the tensor memory accelerator go on while the team does something else: their memory is waited for before it is staged
again, and their end only before the kernel's.

pipeline: `defer-store-wait@main/k/wait`

```diff
 kir 1
 program rows
   size M: i32
   in X: f16[M, 64]
   out Y: f16[M, 64]
   map Y_map of Y box [64, 64]
 kernel main grid (i: 1) threads 128
   shared Ys: f16[64, 64] align 128
   for k in 0..ceildiv(M, 64)
+    @wait bulk_wait(0, read=true)
     Ys = load(X[k * 64 +: 64, 0 +: 64] else 0.0:f16 clip)
     fence_async()
     copy Ys -> Y[k * 64 +: 64, 0 +: 64] via tma clip grouped {descriptor=Y_map}
     bulk_commit()
-    @wait bulk_wait(0)
+  bulk_wait(0)
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, edit_block, kernel_of, node_at
from kir.rewrite.match import block_and_index, matched, node_as
from kir.rewrite.match.materialize import buffers_written

from ._tma_copies import beginning_of_team


def _wait(read: bool = False) -> n.Eval:
    return n.Eval(build.call("bulk_wait", build.const(0), read=True) if read else build.call("bulk_wait", build.const(0)))


def _is(s: n.Stmt, fn: str) -> bool:
    return isinstance(s, n.Eval) and s.call.fn == fn


def _sources(block: n.Block, at: int) -> set[str]:
    """The shared memory that the group before the statement `at` reads."""
    return {x.src.at.buffer.name for x in walk(n.If(build.const(True), block[:at])) if isinstance(x, n.Copy) and x.via == "tma" and x.grouped}


def _first_write(block: n.Block, sources: set[str]) -> int | None:
    return next((i for i, s in enumerate(block) if buffers_written((s,)) & sources), None)


def _only_here(program: n.Program, site: Site, context: Context) -> Verdict:
    block, i = block_and_index(program, site.path)
    sources = _sources(block, i)
    first = _first_write(block, sources)
    inside = {id(x) for x in statements(block[first or 0:i])}
    team = block_at(program, beginning_of_team(program, site.path))
    for s in statements(team):
        if id(s) not in inside and not any(id(x) in inside for x in statements((s,))) and buffers_written((s,)) & sources:
            name = min(buffers_written((s,)) & sources)
            return refuted(f"'{name}' is written elsewhere too, while a copy may still read it", s.label or type(s).__name__.lower(),
                           needs=f"'{name}' staged in one place")
    written = {x.dst.buffer.name for x in walk(n.If(build.const(True), block[:i])) if isinstance(x, n.Copy) and x.via == "tma" and x.grouped}
    for s in statements(kernel_of(program, site.path).body):
        if any(isinstance(x, n.Load) and x.at.buffer.name in written for x in walk(s)) and not isinstance(s, (n.For, n.If, n.Roles)):
            return refuted(f"'{min(written)}' is read in the kernel before its stores are done", s.label or type(s).__name__.lower(),
                           needs="results that the kernel only writes")
    return proved("what is staged is written only after the wait for its last copy, and nobody reads what is stored")


@dataclass(frozen=True)
class DeferStoreWait(Pass):
    """No parameters."""

    intent: ClassVar[str] = "split-phase-barrier"
    catalogue: ClassVar[tuple[int, ...]] = (36, 21)
    claim: ClassVar[str] = "A team begins its next tile while its last result is still on the way out."
    requires: ClassVar[tuple[str, ...]] = ("tma", "group")
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P772", "validity", "pipeline", "what is staged is not written before its copies have read it", _only_here),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the wait for a group of stores that follows its commit, in the block that stages what is stored."""
        if not (isinstance(node, n.Eval) and node == _wait()):
            return None
        block, i = block_and_index(program, path)
        if i == 0 or not _is(block[i - 1], "bulk_commit"):
            return Miss("the wait does not follow the commit of a group")
        sources = _sources(block, i)
        if not sources or _first_write(block[:i], sources) is None:
            return Miss("what the group reads is not staged in the same block")
        if sum(_is(s, "bulk_wait") for s in statements(block_at(program, beginning_of_team(program, path)))) != 1:
            return Miss("the team waits for other groups too")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A wait until the sources have been read, before they are staged; and one for everything, at the team's end."""
        path, (block, i) = site.path, block_and_index(program, site.path)
        node, team = node_at(program, path), beginning_of_team(program, path)
        first = matched(_first_write(block[:i], _sources(block, i)))
        assert isinstance(node, n.Eval)
        early = replace(_wait(read=True), label=node.label, origin=node.origin)
        made = edit_block(program, path, lambda b: (*b[:first], early, *b[first:i], *b[i + 1:]))
        made = edit_block(made, team, lambda b: (*b, _wait()))
        return Rewritten(made, (*path[:-1], first))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At such a wait for sources, where the team ends with a wait for everything."""
        if not (isinstance(node, n.Eval) and node == _wait(read=True)):
            return None
        block, i = block_and_index(program, path)
        last = block_at(program, beginning_of_team(program, path))
        commit = next((k for k in range(i + 1, len(block)) if _is(block[k], "bulk_commit")), None)
        if commit is None or not last or last[-1] != _wait():
            return Miss("no group is committed after it, or the team does not wait for all at its end")
        return Site(path, self, {"commit": commit})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A wait where the group is committed."""
        path, i, commit = site.path, int(site.path[-1]), int(site.captures["commit"])
        node = node_as(program, path, n.Eval)
        late = replace(_wait(), label=node.label, origin=node.origin)
        made = edit_block(program, beginning_of_team(program, path), lambda b: b[:-1])
        made = edit_block(made, path, lambda b: (*b[:i], *b[i + 1:commit + 1], late, *b[commit + 1:]))
        return Rewritten(made, (*path[:-1], commit))
