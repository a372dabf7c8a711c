"""Tells the caches what an access is worth keeping for.

pipeline: `cache-policy{policy=cs buffer=Y}@main/out`

```diff
 kir 1
 program scale
   in X: f32[M, 128]
   out Y: f32[M, 128]
   size M: i32
 kernel main grid (row: M) threads 128
   let x = X[row, 0 +: 128]
-  @out Y[row, 0 +: 128] = x * 2.0
+  @out Y[row, 0 +: 128] = x * 2.0 cache cs
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.proof.sites import READ_ONLY_CACHES
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.visit import transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved
from kir.rewrite.edit import kernel_of, node_at
from kir.rewrite.match import edited, params_as

from .read_only_load import only_read

STATEMENTS = (n.Let, n.Store, n.Mma, n.Copy)


def _tensor_map(s: n.Stmt | n.Kernel) -> bool:
    """Copies by descriptor take no policy in the instruction's name."""
    return isinstance(s, n.Copy) and s.via in ("tma", "bulk")


def _coherent(program: n.Program, site: Site, context: Context) -> Verdict:
    params = params_as(site, CachePolicy)
    if params.policy not in READ_ONLY_CACHES:
        return proved("the policy is advice: it changes no value")
    return only_read(program, kernel_of(program, site.path), params.buffer)


@dataclass(frozen=True)
class CachePolicy(Pass):
    """`policy` (ca, cg, cs, wb, wt, evict_first, evict_last, nc, ..) is asked for where the statement at the site accesses `buffer`."""

    intent: ClassVar[str] = "cache-policy"
    catalogue: ClassVar[tuple[int, ...]] = (26, 14)
    claim: ClassVar[str] = "Data used once leaves room in the cache for data used again."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P260", "validity", "aliasing", "what is read through the read-only cache is not written meanwhile", _coherent),)

    policy: str = "cs"
    buffer: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement with accesses to the buffer that have no policy yet; without `buffer`, one site for each buffer."""
        if not isinstance(node, STATEMENTS) or _tensor_map(node):
            return None
        if not self.policy:
            return Miss("a policy of no name is the one that accesses have")
        plain = {x.at.buffer.name for x in _accesses(node) if not x.cache}
        marked = {x.at.buffer.name for x in _accesses(node) if x.cache}
        wanted = sorted(plain - marked) if not self.buffer else [self.buffer] if self.buffer in plain - marked else []
        if self.buffer and self.buffer in marked:
            return Miss(f"'{self.buffer}' has a policy here already")
        return tuple(Site(path, replace(self, buffer=b)) for b in wanted) or None

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement with accesses that have a policy."""
        if not isinstance(node, STATEMENTS):
            return None
        return tuple(Site(path, CachePolicy(policy, b)) for b, policy in sorted({(x.at.buffer.name, x.cache) for x in _accesses(node) if x.cache})) or None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The accesses with the policy."""
        return self._with(program, site, "", self.policy)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The accesses without it."""
        return self._with(program, site, self.policy, "")

    def _with(self, program: n.Program, site: Site, old: str, new: str) -> Rewritten:
        def leave(_: n.Node, x: n.Node) -> n.Node:
            if isinstance(x, (n.Load, n.Store)) and x.at.buffer.space == "global" and x.at.buffer.name == self.buffer and x.cache == old:
                return replace(x, cache=new)
            return x
        return edited(program, site.path, (transform(node_at(program, site.path), leave),))


def _accesses(s: n.Node) -> list[n.Load | n.Store]:
    return [x for x in walk(s) if isinstance(x, (n.Load, n.Store)) and x.at.buffer.space == "global"]
