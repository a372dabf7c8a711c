"""Lets a team end once its last stores by the tensor memory accelerator have read what they store: that they are written is the end of the kernel.

pipeline: `end-on-read@main/wait`

```diff
 kir 1
 program rows
   size M: i32
   in X: f16[M, 64]
   out Y: f16[M, 64]
   map Y_map of Y box [64, 64]
 kernel main grid (i: ceildiv(M, 64)) threads 128
   shared Ys: f16[64, 64] align 128
   Ys = load(X[i * 64 +: 64, 0 +: 64] else 0.0:f16 clip)
   fence_async()
   copy Ys -> Y[i * 64 +: 64, 0 +: 64] via tma clip grouped {descriptor=Y_map}
   bulk_commit()
-  @wait bulk_wait(0)
+  @wait bulk_wait(0, read=true)
```

Shared memory may go once it is read (PTX ISA, "cp.async.bulk.wait_group", `.read`). Nothing in the kernel comes after the wait, so that nobody there can
rely on it; what a kernel stores is there for the kernels after it when it has ended.
"""
from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.paths import enclosing
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import edit_block
from kir.rewrite.match import block_and_index

TEAMS = frozenset({"warp", "warpgroup"})


@cache
def _wait(read: bool) -> n.Call:
    """The wait for all groups of stores: until they are done, or have been read."""
    call = build.call("bulk_wait", build.const(0), read=True) if read else build.call("bulk_wait", build.const(0))
    assert isinstance(call, n.Call)
    return call


@dataclass(frozen=True)
class EndOnRead(Pass):
    """No parameters."""

    intent: ClassVar[str] = "split-phase-barrier"
    catalogue: ClassVar[tuple[int, ...]] = (36, 21)
    claim: ClassVar[str] = "A CTA makes room for the next one while its last result is still on the way out."
    requires: ClassVar[tuple[str, ...]] = ("tma", "group")
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the wait for all groups of stores with which a team ends, as its kernel does."""
        return self._at_end(program, path, node, _wait(read=False))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At such a wait until they have been read."""
        return self._at_end(program, path, node, _wait(read=True))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The wait until they have been read."""
        return _with(program, site, _wait(read=True))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The wait until they are written."""
        return _with(program, site, _wait(read=False))

    def _at_end(self, program: n.Program, path: Path, node: Place, call: n.Call) -> Found:
        if not (isinstance(node, n.Eval) and node.call == call):
            return None
        around = enclosing(program, path)
        if any(not isinstance(s, n.Roles) and not (isinstance(s, n.For) and s.kind in TEAMS) for _, s in around):
            return Miss("the team goes on after it, or waits in a branch")
        for at in (path, *(p for p, _ in around)):
            block, i = block_and_index(program, at)
            if i != len(block) - 1:
                return Miss("the team or the kernel goes on after it")
        return Site(path, self)


def _with(program: n.Program, site: Site, call: n.Call) -> Rewritten:
    block, i = block_and_index(program, site.path)
    s = block[i]
    assert isinstance(s, n.Eval)
    made: n.Stmt = replace(s, call=call)
    return Rewritten(edit_block(program, site.path, lambda b: (*b[:i], made, *b[i + 1:])), site.path)
