"""Gives a stage back as soon as the product that reads it is done, before its result is worked on. What the result is worked on with is read meanwhile.

pipeline: `release-stage@main/roles/consumer/j/dot`

```diff
 kir 1
 program scaled
   in A: f16[64, K]
   in B: f16[K, 64]
   in S: f32[ceildiv(K, 64)]
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
         fragment part: f32[64, 64] = 0.0
         mbar_wait(&full[j % 2], j // 2 % 2)
-        @dot mma part += As[j % 2, 0 +: 64, 0 +: 64] * Bs[j % 2, 0 +: 64, 0 +: 64] via wgmma
+        wgmma_fence()
+        @dot mma part += As[j % 2, 0 +: 64, 0 +: 64] * Bs[j % 2, 0 +: 64, 0 +: 64] via wgmma pending
+        wgmma_commit()
         let scale = S[j]
+        wgmma_wait(0)
+        mbar_arrive(&empty[j % 2])
         acc = acc + part * scale
-        mbar_arrive(&empty[j % 2])
       C[0 +: 64, 0 +: 64] = acc
```

Only the product reads the stage, so that no other thread is waited for before it is given back.
"""
from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import kernel_of, node_at
from kir.rewrite.match import block_and_index, node_as, sibling, splice
from kir.rewrite.match.local_buffers import mentions, team_threads

from ._rings import NoRing, Rings, counted, slot


@cache
def _around() -> tuple[n.Block, n.Block, n.Block]:
    """What stands before a product that is pending, what ends its group, and what waits for it."""
    fence, commit, wait = build.call("wgmma_fence"), build.call("wgmma_commit"), build.call("wgmma_wait", build.const(0))
    return (n.Eval(fence),), (n.Eval(commit),), (n.Eval(wait),)


def _read_once(program: n.Program, site: Site, context: Context) -> Verdict:
    block, i = block_and_index(program, site.path)
    rings = Rings.of(kernel_of(program, site.path))
    for s in (*block[:i], *block[i + 1:-1]):
        for name in rings.filled:
            if mentions(s, name):
                return refuted(f"'{name}' is read beside the product, by threads that nothing waits for", s.label or type(s).__name__.lower(),
                               needs="a stage that the product alone reads")
    return proved("the product alone reads the stage")


@dataclass(frozen=True)
class ReleaseStage(Pass):
    """No parameters: the site is the product."""

    intent: ClassVar[str] = "split-phase-barrier"
    catalogue: ClassVar[tuple[int, ...]] = (36,)
    claim: ClassVar[str] = "The next copies need not wait until a product's result has been worked on, and no barrier stands before them."
    requires: ClassVar[tuple[str, ...]] = ("wgmma", "ring")
    provides: ClassVar[tuple[str, ...]] = ("group",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P361", "validity", "pipeline", "nothing but the product reads the stage", _read_once),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a wgmma of one warpgroup in a counted loop over a ring, whose result is used before its stage is given back at the loop's end."""
        if not (isinstance(node, n.Mma) and node.via == "wgmma" and not node.pending and len(path) > 3):
            return None
        loop, i = node_at(program, path[:-2]), int(path[-1])
        if not isinstance(loop, n.For) or not counted(loop) or team_threads(program, path) != 128:
            return Miss("the product is not that of one warpgroup in a counted loop")
        if i >= len(loop.body) - 2 or not _gives_back(program, path, loop, loop.body[-1]):
            return Miss("its stage is not given back at the end of the loop, after its result is used")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The product between a fence and a wait for its group, and then the return of its stage."""
        s, (block, i) = node_as(program, site.path, n.Mma), block_and_index(program, site.path)
        count, (fence, commit, wait) = _meanwhile(block[i + 1:-1], s), _around()
        made = (*fence, replace(s, pending=True), *commit, *block[i + 1:i + 1 + count], *wait, block[-1], *block[i + 1 + count:-1])
        return Rewritten(splice(program, site.path, made, 0, None), sibling(site.path, len(fence)))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At such a product, behind which its stage is given back."""
        if not (isinstance(node, n.Mma) and node.via == "wgmma" and node.pending and len(path) > 3):
            return None
        loop, i = node_at(program, path[:-2]), int(path[-1])
        if not isinstance(loop, n.For) or not counted(loop):
            return Miss("the product is in no counted loop")
        count = _meanwhile(loop.body[i + 2:], node)
        back = i + 3 + count
        if (loop.body[i - 1:i], loop.body[i + 1:i + 2], loop.body[back - 1:back]) != _around() or not back < len(loop.body) - 1:
            return Miss("the product is not waited for where it stands, or its result is not used in the loop")
        if not _gives_back(program, path, loop, loop.body[back]):
            return Miss("its stage is not given back behind it")
        return Site(path, self, {"back": back})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A product that is waited for where it stands, and its stage given back at the end of the loop."""
        s, (block, i) = node_as(program, site.path, n.Mma), block_and_index(program, site.path)
        back = int(site.captures["back"])
        made = (replace(s, pending=False), *block[i + 2:back - 1], *block[back + 1:], block[back])
        return Rewritten(splice(program, site.path, made, -1, None), sibling(site.path, -1))


def _meanwhile(block: n.Block, s: n.Mma) -> int:
    """How many values at the beginning of a block do not need the product's result."""
    return next((k for k, x in enumerate(block) if not isinstance(x, n.Let) or mentions(x, s.acc.buffer.name)), len(block))


def _gives_back(program: n.Program, path: Path, loop: n.For, s: n.Stmt) -> bool:
    """Whether a statement arrives on the mbarrier of the iteration's stage."""
    try:
        rings = Rings.of(kernel_of(program, path))
    except NoRing:
        return False
    return isinstance(s, n.Eval) and s.call.fn == "mbar_arrive" and isinstance(r := s.call.args[0], n.Region) and (
        r.buffer.name in rings.bars and r.index == (slot(loop.var, rings.stages),))
