"""Leaves a warpgroup's product in flight while the next one is issued; its stage is given back an iteration later.

pipeline: `overlap-products@main/roles/consumer/j/dot`

```diff
 kir 1
 program product
   in A: f16[64, K]
   in B: f16[K, 64]
   out C: f32[64, 64]
   size K: i32
   fact K % 8 == 0
   map A_map of A box [64, 64] {swizzle=128}
   map B_map of B box [64, 64] {swizzle=128}
 kernel main grid (i: 1) threads 256
   shared As: f16[2, 64, 64] layout swizzle(3, 4, 3) align 1024
   shared Bs: f16[2, 64, 64] layout swizzle(3, 4, 3) align 1024
   shared full: mbarrier[2]
   shared empty: mbarrier[2]
   for s in 0..2 unroll {factor=2}
     mbar_init(&full[s], 1)
     mbar_init(&empty[s], 1)
   fence_mbar_init()
   roles
     role producer warps 0..4
       for k in 0..ceildiv(K, 64)
         mbar_wait(&empty[k % 2], (k // 2 + 1) % 2)
         mbar_arrive_expect(&full[k % 2], 16384)
         copy load(A[0 +: 64, k * 64 +: 64] else 0.0:f16 clip) -> As[k % 2, 0 +: 64, 0 +: 64] via tma signal full[k % 2] {descriptor=A_map}
         copy load(B[k * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Bs[k % 2, 0 +: 64, 0 +: 64] via tma signal full[k % 2] {descriptor=B_map}
     role consumer warps 4..8
       fragment acc: f32[64, 64] = 0.0
       for j in 0..ceildiv(K, 64)
         mbar_wait(&full[j % 2], j // 2 % 2)
-        @dot mma acc += As[j % 2, 0 +: 64, 0 +: 64] * Bs[j % 2, 0 +: 64, 0 +: 64] via wgmma
-        mbar_arrive(&empty[j % 2])
+        wgmma_fence()
+        @dot mma acc += As[j % 2, 0 +: 64, 0 +: 64] * Bs[j % 2, 0 +: 64, 0 +: 64] via wgmma pending
+        wgmma_commit()
+        wgmma_wait(1)
+        if j > 0
+          mbar_arrive(&empty[(j + 1) % 2])
+      wgmma_wait(0)
+      mbar_arrive(&empty[(ceildiv(K, 64) + 1) % 2])
       C[0 +: 64, 0 +: 64] = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, edit_block, kernel_of, node_at
from kir.rewrite.match import matched, node_as, sibling
from kir.rewrite.match.local_buffers import is_left, mentions, team_threads
from kir.rewrite.match.materialize import buffers_written

from ._rings import NoRing, Rings, counted, slot


def _loop(program: n.Program, path: Path) -> n.For:
    return node_as(program, path[:-2], n.For)


def _two_slots(program: n.Program, site: Site, context: Context) -> Verdict:
    stages = Rings.of(kernel_of(program, site.path)).stages
    if stages < 2:
        return refuted("the only stage is given back when the next product has been issued, which waits for that stage",
                       "iteration 1 waits for a tile that the producer may not copy before iteration 1", needs="two stages or more",
                       attempt="deepen-ring{stages=2}")
    return proved(f"while one of {stages} stages is read, another arrives")


def _untouched(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, s = _loop(program, site.path), node_as(program, site.path, n.Mma)
    for x in loop.body:
        if x is not s and mentions(x, s.acc.buffer.name):
            return refuted(f"'{s.acc.buffer.name}' is used while the product adds to it", x.label or type(x).__name__.lower(),
                           needs="a product whose result is used after the loop")
    read = {y.buffer.name for e in (s.a, s.b) for y in _regions(e)} - set(Rings.of(kernel_of(program, site.path)).filled)
    clash = Aliases(program).aliased(read, buffers_written(loop.body))
    if clash:
        return refuted(f"'{min(clash)}' is written in the loop while a product reads it", "iteration 1 writes what iteration 0's product reads")
    return proved("the result is used after the loop, and what is read stays until it is given back")


def _regions(e: n.Expr) -> list[n.Region]:
    return [x for x in walk(e) if isinstance(x, n.Region)]


def _is_of_warpgroups(s: n.Mma, threads: int | None) -> bool:
    """Whether a product is one warpgroup's, or one of several whose compiler lays the operands out and lets each thread say that it is done."""
    regions = [x.at.buffer for e in (s.a, s.b) for x in walk(e) if isinstance(x, n.Load) and x.at.buffer.space == "shared"]
    left = bool(regions) and all(is_left(b) for b in regions)
    return threads is not None and (threads == 128 or (left and threads % 128 == 0))


@dataclass(frozen=True)
class OverlapProducts(Pass):
    """One product is in flight when the next is issued. `last`: whether the last stage is given back too, for what comes after the loop."""

    intent: ClassVar[str] = "split-phase-barrier"
    catalogue: ClassVar[tuple[int, ...]] = (36,)
    claim: ClassVar[str] = "Tensor cores have the next product before they are done with one, so that they never wait for an issue."
    requires: ClassVar[tuple[str, ...]] = ("wgmma", "ring")
    provides: ClassVar[tuple[str, ...]] = ("group",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P763", "validity", "pipeline", "another stage can arrive while one is held back", _two_slots),
        Precondition("KIR-P765", "validity", "pipeline", "nothing in the loop touches what the product reads and writes", _untouched),
    )

    last: bool = True

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a wgmma of one warpgroup in a counted loop over a ring, after which its stage is given back."""
        if not (isinstance(node, n.Mma) and node.via == "wgmma" and not node.pending and len(path) > 3):
            return None
        loop = node_at(program, path[:-2])
        if not isinstance(loop, n.For) or not counted(loop) or not _is_of_warpgroups(node, team_threads(program, path)):
            return Miss("the product is not that of one warpgroup in a counted loop")
        try:
            rings = Rings.of(kernel_of(program, path))
        except NoRing as why:
            return Miss(str(why))
        i = int(path[-1])
        if i != len(loop.body) - 2 or _given(loop.body[-1], slot(loop.var, rings.stages)) is None:
            return Miss("the loop does not end with the product and the return of its stage")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The product between a fence and its group's commit, a wait for the one before it, and the last one's after the loop."""
        loop, s, path = _loop(program, site.path), node_as(program, site.path, n.Mma), site.path
        stages = Rings.of(kernel_of(program, path)).stages
        bar = matched(_given(loop.body[-1], slot(loop.var, stages)))
        body = (*loop.body[:-2], *_issued(replace(s, pending=True)), *_returned(bar, loop.var, stages))
        at = int(path[-3])
        end = _end(bar, loop.hi, stages, self.last)
        made = edit_block(program, path[:-2], lambda b: (*b[:at], replace(loop, body=body), *end, *b[at + 1:]))
        return Rewritten(made, sibling(path, 1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a product that is left in flight in this way."""
        if not (isinstance(node, n.Mma) and node.via == "wgmma" and node.pending and len(path) > 3):
            return None
        loop, i = node_at(program, path[:-2]), int(path[-1])
        if not isinstance(loop, n.For) or not counted(loop):
            return Miss("the product is in no counted loop")
        try:
            stages = Rings.of(kernel_of(program, path)).stages
        except NoRing as why:
            return Miss(str(why))
        bar = next((r for x in loop.body[i:] if isinstance(x, n.If) and len(x.then) == 1 and (r := _given(x.then[0], None)) is not None), None)
        if bar is None:
            return Miss("its stage is not given back in the loop")
        around, at = block_at(program, path[:-2]), int(path[-3])
        if loop.body[i - 1:] != (*_issued(node), *_returned(bar, loop.var, stages)):
            return Miss("fence, groups and stages are not where this pass puts them")
        for last in (True, False):
            end = _end(bar, loop.hi, stages, last)
            if around[at + 1:at + 1 + len(end)] == end:
                return Site(path, OverlapProducts(last), {"bar": bar})
        return Miss("the last product is not waited for after the loop")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A product that is waited for where it stands."""
        loop, s, path = _loop(program, site.path), node_as(program, site.path, n.Mma), site.path
        stages, i, at = Rings.of(kernel_of(program, path)).stages, int(path[-1]), int(path[-3])
        back = n.Eval(build.call("mbar_arrive", build.region(site.captures["bar"], slot(loop.var, stages))))
        body = (*loop.body[:i - 1], replace(s, pending=False), back)
        count = len(_end(site.captures["bar"], loop.hi, stages, self.last))
        made = edit_block(program, path[:-2], lambda b: (*b[:at], replace(loop, body=body), *b[at + 1 + count:]))
        return Rewritten(made, sibling(path, -1))


def _given(s: n.Stmt, place: n.Expr | None) -> n.Buffer | None:
    """The mbarrier that a statement arrives on, at a place in it (None: at any)."""
    if not (isinstance(s, n.Eval) and s.call.fn == "mbar_arrive" and isinstance(r := s.call.args[0], n.Region) and len(r.index) == 1):
        return None
    return r.buffer if place is None or r.index[0] == place else None


def _issued(s: n.Mma) -> n.Block:
    return (n.Eval(build.call("wgmma_fence")), s, n.Eval(build.call("wgmma_commit")), n.Eval(build.call("wgmma_wait", build.const(1))))


def _returned(bar: n.Buffer, k: n.Var, stages: int) -> n.Block:
    """The stage of the iteration before is given back, where there was one."""
    before = slot(build.add(k, stages - 1), stages)
    return (n.If(build.compare("gt", k, 0), (n.Eval(build.call("mbar_arrive", build.region(bar, before))),)),)


def _end(bar: n.Buffer, trips: n.Expr, stages: int, last: bool) -> n.Block:
    """What follows the loop: the last product, and its stage."""
    at = slot(build.add(trips, stages - 1), stages)
    back: n.Block = (n.Eval(build.call("mbar_arrive", build.region(bar, at))),) if last else ()
    return (n.Eval(build.call("wgmma_wait", build.const(0))), *back)
