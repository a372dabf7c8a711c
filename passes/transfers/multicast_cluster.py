"""Lets neighboring CTAs that read the same tiles load them once: they form a cluster, each loads its share, and the hardware writes it to all.

pipeline: `multicast-cluster{size=2}@main/teams`

```diff
 kir 1
 program sums
   in X: f16[M, 64]
   in W: f16[64, 64]
   out Y: f16[M, 64]
   size M: i32
   map X_map of X box [64, 64]
   map W_map of W box [32, 64]
-kernel main grid (i: ceildiv(M, 64)) threads 256
+kernel main grid (i: ceildiv(ceildiv(M, 64), 2) * 2) threads 256 cluster (2)
+  let rank = i % 2
   shared Xs: f16[64, 64] align 128
   shared Ws: f16[2, 32, 64] align 128
   shared full: mbarrier[1]
   shared empty: mbarrier[1]
+  view cluster empty_peers: mbarrier[2, 1] at empty
   mbar_init(&full[0], 1)
-  mbar_init(&empty[0], 1)
+  mbar_init(&empty[0], 2)
   fence_mbar_init()
+  cluster_arrive()
+  cluster_wait()
   @teams roles
     role producer warps 0..4
       for j in 0..2
         mbar_wait(&empty[0], (j + 1) % 2)
         mbar_arrive_expect(&full[0], 16384)
         copy load(X[i * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Xs via tma signal full[0] {descriptor=X_map}
-        for p in 0..2 unroll {factor=2}
-          copy W[p * 32 +: 32, 0 +: 64] -> Ws[p, 0 +: 32, 0 +: 64] via tma signal full[0] {descriptor=W_map}
+        for p in 0..1 unroll {factor=1}
+          copy W[p * 32 + rank * 32 +: 32, 0 +: 64] -> Ws[p + rank, 0 +: 32, 0 +: 64] via tma signal full[0] {descriptor=W_map, multicast=3}
+      cluster_arrive()
+      cluster_wait()
     role consumer warps 4..8
       for k in 0..2
         mbar_wait(&full[0], k % 2)
         Y[i * 64 +: 64, 0 +: 64] = Xs + reshape(Ws, 64, 64) clip
-        mbar_arrive(&empty[0])
+        for r in 0..2 unroll {factor=2}
+          mbar_arrive(&empty_peers[r, 0])
+      cluster_arrive()
+      cluster_wait()
```

A slot is free when the consumers of every CTA have released it, so they arrive on the mbarriers of all; CTAs meet before the first such arrival,
and before any of them ends.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.paths import child_blocks
from kir.ir.types import MBARRIER
from kir.ir.visit import names_read, statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import kernel_of, replace_kernel
from kir.rewrite.match import hardware_of, params_as

from ._clusters import MEET, NoCluster, clustered, dependent, unclustered


def _item(site: Site) -> MulticastCluster:
    return params_as(site, MulticastCluster)


def _hardware(program: n.Program, site: Site, context: Context) -> Verdict:
    hardware, item = hardware_of(context, "sm_90a"), _item(site)
    arch = hardware.architecture
    if not arch.has("cluster") or not arch.has("tma_multicast"):
        return refuted(f"{hardware.name} has no clusters that copies go to", f"a cluster of {item.size} on {hardware.name}", needs="sm_90 or later")
    if item.size > arch.max_cluster:
        return refuted(f"clusters of {hardware.name} have up to {arch.max_cluster} CTAs", f"CTA {arch.max_cluster} of a cluster", needs="a smaller cluster")
    return proved(f"{hardware.name} has clusters of up to {arch.max_cluster} CTAs, and copies to all of them")


def _whole_clusters(program: n.Program, site: Site, context: Context) -> Verdict:
    """A grid of literal extent is launched as it is; another is rounded up, and CTAs past its end must write nothing."""
    kernel, item = kernel_of(program, site.path), _item(site)
    axis = kernel.grid[item.axis]
    extent = int_value(axis.extent)
    if extent is not None:
        if extent % item.size == 0:
            return proved(f"clusters of {item.size} divide the {extent} CTAs of '{axis.name}'")
        return refuted(f"clusters of {item.size} do not divide the {extent} CTAs of '{axis.name}'", f"CTA {extent - 1} has no cluster", needs="another size")
    touched = dependent(kernel, axis.name)
    for s in statements(kernel.body):
        place = s.at if isinstance(s, n.Store) else s.dst if isinstance(s, n.Copy) else None
        if place is None or place.buffer.space != "global":
            continue
        bound = isinstance(s, (n.Store, n.Copy)) and s.clip
        if not bound or not names_read(place) & touched:
            return refuted(f"the CTA past the end of '{axis.name}' writes '{place.buffer.name}' too",
                           f"'{axis.name}' is rounded up to a multiple of {item.size}",
                           needs="stores that are clipped at the edge along that axis, or an extent that the cluster divides")
    return proved(f"what the surplus CTAs of '{axis.name}' would write is clipped")


def _in_step(program: n.Program, site: Site, context: Context) -> Verdict:
    """All CTAs of a cluster run each loop around the shared loads, and around what releases their slots, equally often."""
    kernel, item = kernel_of(program, site.path), _item(site)
    axis = kernel.grid[item.axis].name
    touched = dependent(kernel, axis)
    bars = {s.buffer.name for s in kernel.body if isinstance(s, n.Alloc) and s.buffer.dtype == MBARRIER}
    for s in _around(kernel.body, bars):
        reads = names_read(s.cond) if isinstance(s, n.If) else names_read(s.lo) | names_read(s.hi) | names_read(s.step)
        if reads & touched:
            what = f"loop over '{s.var.name}'" if isinstance(s, n.For) else "branch"
            return refuted(f"a {what} around the ring depends on '{axis}'", f"CTAs {axis} = 0 and {axis} = 1 of a cluster take another number of slots",
                           needs="rings that every CTA of the cluster fills and frees equally often")
    return proved("every CTA of a cluster fills and frees the ring equally often")


def _around(block: n.Block, bars: set[str]) -> Iterator[n.For | n.If]:
    """Loops and branches that mention an mbarrier."""
    for s in block:
        if isinstance(s, (n.For, n.If)) and any(isinstance(x, n.Region) and x.buffer.name in bars for x in walk(s)):
            yield s
        for _, inner in child_blocks(s):
            yield from _around(inner, bars)


@dataclass(frozen=True)
class MulticastCluster(Pass):
    """`size` CTAs along grid axis `axis` form a cluster."""

    intent: ClassVar[str] = "tma-multicast"
    catalogue: ClassVar[tuple[int, ...]] = (22, 35)
    claim: ClassVar[str] = "A tile that several CTAs read crosses from L2 once for all of them."
    requires: ClassVar[tuple[str, ...]] = ("roles",)
    provides: ClassVar[tuple[str, ...]] = ("cluster",)
    conflicts: ClassVar[tuple[str, ...]] = ("cluster",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P220", "validity", "hardware", "the target has such clusters, and copies that go to all of their CTAs", _hardware),
        Precondition("KIR-P221", "validity", "shape", "the grid is made of whole clusters, or CTAs past its end write nothing", _whole_clusters),
        Precondition("KIR-P222", "validity", "pipeline", "CTAs of a cluster fill and free their rings equally often", _in_step),
    )

    size: int = 2
    axis: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At roles of which one loads tiles, in panels, that neighboring CTAs load too."""
        if not (isinstance(node, n.Roles) and len(path) == 2):
            return None
        kernel = kernel_of(program, path)
        if self.size < 2 or not 0 <= self.axis < len(kernel.grid):
            return Miss(f"the grid has {len(kernel.grid)} axes, and a cluster two CTAs or more")
        if kernel.cluster or any(isinstance(s, n.Eval) and s.call.fn in MEET for s in statements(kernel.body)):
            return Miss("its CTAs form clusters already")
        try:
            clustered(program, kernel, self.size, self.axis)
        except NoCluster as why:
            return Miss(str(why))
        return Site(path, self)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the roles of a kernel whose clusters stretch along one axis."""
        if not (isinstance(node, n.Roles) and len(path) == 2):
            return None
        kernel = kernel_of(program, path)
        wide = [(i, c) for i, c in enumerate(kernel.cluster) if c != 1]
        return Site(path, MulticastCluster(wide[0][1], wide[0][0])) if len(wide) == 1 else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Clusters, shares, and arrivals on every CTA's mbarriers."""
        kernel = kernel_of(program, site.path)
        made = clustered(program, kernel, self.size, self.axis)
        return Rewritten(replace_kernel(program, kernel.name, made), (kernel.name, len(made.body) - 1))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """CTAs on their own, each loading all that it reads."""
        kernel = kernel_of(program, site.path)
        made = unclustered(kernel, self.size, self.axis)
        return Rewritten(replace_kernel(program, kernel.name, made), (kernel.name, len(made.body) - 1))

