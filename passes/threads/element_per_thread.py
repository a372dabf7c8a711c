"""Gives each thread of the CTA the element of every tile that has its number, with what threads give each other as shuffles.

pipeline: `element-per-thread{guards=[2,1,0]}@main`

```diff
 kir 1
 program sums
   size M: i32
   in X: f32[M, 32]
   out Y: f32[M, 32]
 kernel main grid (row: M) threads 32
-  let x = X[row, 0 +: 32]
-  fragment total: f32[32] = 0.0
-  total = x
-  for s in 0..5
-    let other = gather(total, iota(32) ^ 16 >> s, axis=0)
-    total = total + other
-  let inside = x > 0.0
-  Y[row, 0 +: 32] = x / total where inside
+  for t in 0..32 parallel thread
+    let x = X[row, t]
+    register total: f32 = 0.0
+    total = x
+    for s in 0..5
+      let other = shfl_xor(total, 16 >> s)
+      total = total + other
+    if x > 0.0
+      Y[row, t] = x / total
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import names_mentioned, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict
from kir.rewrite.edit import kernel_of, names_in, replace_kernel
from kir.rewrite.match import counting, fresh_var, matched, matched_as, params_as, whole_warps
from kir.rewrite.match.thread_team import whole_team

from ._race_check import ordered
from ._simt_to_tile import SimtToTile
from ._thread_ownership import CannotDeal
from ._tile_to_simt import TileToSimt


def _ordered(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, ElementPerThread)
    kernel = item.optimize(program, site).program.kernels
    made = next(k for k in kernel if k.name == site.path[0])
    team = matched_as(made.body[-1], n.For)
    return ordered(team, Facts.at(program, site.path[:1]), Aliases(program))


def _whole_warps(program: n.Program, site: Site, context: Context) -> Verdict:
    return whole_warps(build.int_value(kernel_of(program, site.path).threads) or 0, context)


@dataclass(frozen=True)
class ElementPerThread(Pass):
    """`guards` are the conditions that become branches and ends of loops, three numbers for each: which of the kernel's lets it is, in reading
    order; how many statements the branch has (0: threads that do not meet it return; -1: it says which threads are still in the loop around it);
    how many its other branch has."""

    intent: ClassVar[str] = "multi-threaded-block"
    catalogue: ClassVar[tuple[int, ...]] = (48,)
    claim: ClassVar[str] = "Threads keep their values in registers and leave branches and loops early, where a tile waits for all of its elements."
    provides: ClassVar[tuple[str, ...]] = ("threads", "thread-loop")
    walked: ClassVar[bool] = False
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P936", "validity", "pipeline", "threads meet at a barrier before one touches what another has written", _ordered),
        Precondition("KIR-P937", "validity", "hardware", "the threads are whole warps that one CTA may have", _whole_warps),
    )

    guards: tuple[int, ...] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose tiles have an element for each of its threads."""
        if not isinstance(node, n.Kernel):
            return None
        threads = build.int_value(node.threads)
        if threads is None or threads < 2:
            return Miss("the CTA has one thread, or nobody knows how many")
        try:
            distributed = self._distributed(program, node, threads)
        except (CannotDeal, KirError, TypeError) as bad:
            return Miss(str(bad))
        return Site(path, self, {"distributed": distributed})

    def _distributed(self, program: n.Program, kernel: n.Kernel, threads: int) -> n.Kernel:
        front = _shared(kernel.body)
        if len(self.guards) % 3 or len(front) == len(kernel.body):
            raise CannotDeal("guards come in threes" if len(self.guards) % 3 else "nothing is done")
        triples = {self.guards[i]: (self.guards[i + 1], self.guards[i + 2]) for i in range(0, len(self.guards), 3)}
        t = fresh_var("t", names_of(kernel) | names_in(program, kernel))
        body = TileToSimt(t, threads, triples).body(kernel.body[len(front):])
        team = counting(t, threads, body, "thread")
        return _reshaped(replace(kernel, body=(*front, team)), False)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the threads around everything but the memory of the CTA."""
        kernel = kernel_of(program, site.path)
        made = site.captures.get("distributed") or self._distributed(program, kernel, build.int_value(kernel.threads) or 0)
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that is memory of the CTA and one loop over its threads, with scalars alone."""
        if not isinstance(node, n.Kernel):
            return None
        front = _shared(node.body)
        team = whole_team(program, (*path, len(front)), _reshaped(node, True).body[-1]) if len(node.body) == len(front) + 1 else None
        if team is None:
            return None
        gathered = SimtToTile(team.loop, team.threads, names_in(program, node))
        try:
            body = gathered.body()
        except (CannotDeal, KirError, TypeError) as bad:
            return Miss(str(bad))
        return Site(path, ElementPerThread(tuple(gathered.guards)), {"body": body})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Tiles of what each thread had."""
        kernel = _reshaped(kernel_of(program, site.path), True)
        front = _shared(kernel.body)
        team = matched(whole_team(program, (*site.path, len(front)), kernel.body[-1]))
        body = site.captures.get("body") or SimtToTile(team.loop, team.threads, names_in(program, kernel)).body()
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, body=(*front, *body))), site.path)


def _shared(body: n.Block) -> n.Block:
    """What is declared for the CTA before its threads begin."""
    count = next((i for i, s in enumerate(body) if not (isinstance(s, n.Alloc) and s.buffer.space == "shared") and not isinstance(s, n.View)), len(body))
    return body[:count]


def _reshaped(k: n.Kernel, lists: bool) -> n.Kernel:
    """The kernel with single values in shared memory as arrays of one, of which tiles can write an element; or the way back."""
    before, after = ((), (build.const(1),)) if lists else ((build.const(1),), ())
    alone = {s.buffer.name for s in k.body if isinstance(s, n.Alloc) and s.buffer.space == "shared" and s.buffer.shape == before and s.init is None
             and s.buffer.dtype.kind != "token"}
    if any(isinstance(x, n.Address) and x.at.buffer.name in alone for x in walk(k)):
        return k

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Buffer() if new.name in alone and new.shape == before:
                return replace(new, shape=after)
            case n.Region() if new.buffer.name in alone:
                return n.Region(new.buffer, (build.const(0),) if lists else ())
            case _:
                return new
    made: n.Kernel = transform(k, leave) if alone else k
    return made


def names_of(kernel: n.Kernel) -> set[str]:
    """Names that a kernel uses anywhere."""
    return set(names_mentioned(kernel))
