"""Gives a ring between roles more stages: the producer runs that many tiles ahead of those who compute.

pipeline: `deepen-ring{stages=3}@main/teams`

```diff
 kir 1
 program sums
   size M: i32
   in X: f16[M, 64]
   out Y: f16[64]
   map X_map of X box [64, 64]
 kernel main grid (i: 1) threads 256
-  shared Xs: f16[64, 64] align 128
-  shared full: mbarrier[1]
-  shared empty: mbarrier[1]
-  mbar_init(&full[0], 1)
-  mbar_init(&empty[0], 1)
+  shared Xs: f16[3, 64, 64] align 128
+  shared full: mbarrier[3]
+  shared empty: mbarrier[3]
+  for s in 0..3 unroll {factor=3}
+    mbar_init(&full[s], 1)
+    mbar_init(&empty[s], 1)
   fence_mbar_init()
   @teams roles
     role producer warps 0..4
       for j in 0..ceildiv(M, 64)
-        mbar_wait(&empty[0], (j + 1) % 2)
-        mbar_arrive_expect(&full[0], 8192)
-        copy load(X[j * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Xs via tma signal full[0] {descriptor=X_map}
+        mbar_wait(&empty[j % 3], (j // 3 + 1) % 2)
+        mbar_arrive_expect(&full[j % 3], 8192)
+        copy load(X[j * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Xs[j % 3, 0 +: 64, 0 +: 64] via tma signal full[j % 3] {descriptor=X_map}
     role consumer warps 4..8
       fragment acc: f32[64] = 0.0
       for k in 0..ceildiv(M, 64)
-        mbar_wait(&full[0], k % 2)
-        acc = acc + reduce(cast(Xs, f32), axis=0, op=sum)
-        mbar_arrive(&empty[0])
+        mbar_wait(&full[k % 3], k // 3 % 2)
+        acc = acc + reduce(cast(Xs[k % 3, 0 +: 64, 0 +: 64], f32), axis=0, op=sum)
+        mbar_arrive(&empty[k % 3])
       Y = cast(acc, f16)
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import MBARRIER
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.match import fits_shared, matched_as, params_as, shared_bytes
from kir.rewrite.match.local_buffers import byte_count

from ._rings import NoRing, Rings, deepened, in_ring_loops, init_at, started, with_slots

BAR_BYTES = 8
"""Bytes of an mbarrier."""


def _capacity(program: n.Program, site: Site, context: Context) -> Verdict:
    item, kernel = params_as(site, DeepenRing), kernel_of(program, site.path)
    rings = Rings.of(kernel)
    total = shared_bytes(kernel, lambda b: item.stages if b.name in rings.names else 1, lambda b: BAR_BYTES if b.dtype == MBARRIER else byte_count(b))
    return fits_shared(total, context, "fewer stages, or smaller tiles", usual="sm_90a", what=f"{item.stages} stages need {total} bytes of shared memory",
                       held=f"{item.stages} stages take {total}")


def _whole_slots(program: n.Program, site: Site, context: Context) -> Verdict:
    for b in Rings.of(kernel_of(program, site.path)).filled.values():
        size = byte_count(b)
        if size is None or (b.align and size % b.align):
            return refuted(f"a slot of '{b.name}' has {size} bytes, and slots begin at multiples of {b.align}",
                           f"slot 1 begins at byte {size}", needs=f"a multiple of {b.align} bytes a slot")
    return proved("each slot begins as aligned as the first")


@dataclass(frozen=True)
class DeepenRing(Pass):
    """`stages` is the number of slots."""

    intent: ClassVar[str] = "pipeline"
    catalogue: ClassVar[tuple[int, ...]] = (18,)
    claim: ClassVar[str] = "Tiles arrive several iterations before they are needed, so that memory's latency hides behind the arithmetic in between."
    requires: ClassVar[tuple[str, ...]] = ("roles",)
    provides: ClassVar[tuple[str, ...]] = ("ring",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P760", "validity", "storage", "all stages fit in shared memory", _capacity),
        Precondition("KIR-P761", "validity", "layout", "slots begin where their layout lets them", _whole_slots),
    )

    stages: int = 4

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At roles that pass tiles through one slot."""
        if not (isinstance(node, n.Roles) and len(path) == 2):
            return None
        if self.stages < 2:
            return Miss("a ring has two stages or more")
        try:
            rings = Rings.of(kernel_of(program, path))
            if rings.stages != 1:
                return Miss(f"the ring has {rings.stages} stages already")
            self._resized(program, path, rings, self.stages)
        except NoRing as why:
            return Miss(str(why))
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A slot for each stage."""
        return self._resized(program, site.path, Rings.of(kernel_of(program, site.path)), self.stages)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At roles that pass tiles through several slots."""
        if not (isinstance(node, n.Roles) and len(path) == 2):
            return None
        try:
            rings = Rings.of(kernel_of(program, path))
            if rings.stages < 2:
                return None
            self._resized(program, path, rings, 1)
        except NoRing as why:
            return Miss(str(why))
        return Site(path, DeepenRing(rings.stages))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One slot."""
        return self._resized(program, site.path, Rings.of(kernel_of(program, site.path)), 1)

    def _resized(self, program: n.Program, path: Path, rings: Rings, stages: int) -> Rewritten:
        kernel = kernel_of(program, path)
        if rings.peers:
            raise NoRing("CTAs of a cluster free the slots of one another")
        flat = {k: b if rings.stages == 1 else replace(b, shape=b.shape[1:]) for k, b in rings.filled.items()}
        made = Rings({k: b if stages == 1 else with_slots(b, stages) for k, b in flat.items()},
                     {k: with_slots(replace(b, shape=()), stages) for k, b in rings.bars.items()}, stages)
        at, count, arrivals, label = init_at(kernel, rings)
        roles = matched_as(kernel.body[int(path[1])], n.Roles)
        parts = tuple(replace(r, body=in_ring_loops(r.body, rings.names, lambda s: deepened(s, rings, made))) for r in roles.roles)
        init = started(arrivals, made.bars, stages, fresh("s", names_in(program, kernel)))
        if label is not None and stages > 1:
            init = (replace(init[0], label=label), *init[1:])  # type: ignore[type-var]  # every Stmt is a dataclass
        buffers = {**made.filled, **made.bars}
        front = [replace(s, buffer=buffers.get(s.buffer.name, s.buffer)) if isinstance(s, n.Alloc) else s for s in kernel.body[:-1]]
        body = (*front[:at], *init, *front[at + count:], replace(roles, roles=parts))
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, body=body)), (kernel.name, len(body) - 1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """Shared memory for the further stages."""
        rings = Rings.of(kernel_of(program, site.path))
        each = [byte_count(b) for b in rings.filled.values()]
        return Effect(shared_bytes=None if None in each else (self.stages - 1) * (sum(x for x in each if x is not None) + 8 * len(rings.bars)))
