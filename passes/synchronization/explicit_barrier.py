"""Lets the threads of a CTA meet where they meet anyhow, between two statements of the CTA as a whole.

pipeline: `explicit-barrier@main/write`

```diff
 kir 1
 program reversed
   in X: f32[M, 64]
   out Y: f32[M, 64]
   size M: i32
 kernel main grid (row: M) threads 64
   shared kept: f32[64]
   for t in 0..64 parallel thread
     kept[t] = X[row, t]
+  barrier()
   @write for s in 0..64 parallel thread
     Y[row, s] = kept[63 - s]
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import block_at
from kir.rewrite.match import edited, matched_as, sibling, splice
from kir.rewrite.match.local_buffers import team_level


@dataclass(frozen=True)
class ExplicitBarrier(Pass):
    """No parameters: the site is the statement before which they meet."""

    intent: ClassVar[str] = "explicit-barrier"
    catalogue: ClassVar[tuple[int, ...]] = (36,)
    claim: ClassVar[str] = "The author says where threads wait for each other, and the compiler need not find it out."
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop of the CTA over its threads, or a copy or store of the CTA, after another statement that is one."""
        if not isinstance(node, (n.For, n.Store, n.Copy)) or team_level(program, path) != "cta" or int(path[-1]) == 0:
            return None
        before = block_at(program, path)[int(path[-1]) - 1]
        if isinstance(before, n.Eval) and before.call.fn == "barrier":
            return Miss("they meet here already")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A barrier before the statement."""
        call = matched_as(build.call("barrier"), n.Call)
        made = splice(program, site.path, (n.Eval(call),), 0, 0)
        return Rewritten(made, site.path, {site.path: (sibling(site.path, 1),)})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a barrier of the whole CTA between two of its statements: each of them is done before the next one begins."""
        if not (isinstance(node, n.Eval) and node.call.fn == "barrier" and not node.call.args and not node.call.attrs):
            return None
        if team_level(program, path) != "cta":
            return Miss("it stands in code of single threads, which do not wait for each other otherwise")
        return Site(path, self)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """No barrier."""
        return edited(program, site.path, ())
