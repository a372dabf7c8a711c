"""Fetches a kernel's tensor maps before it needs them, so that the first copies do not wait for their descriptors.

pipeline: `prefetch-descriptors@main`

```diff
 kir 1
 program double
   size M: i32
   in X: f16[M, 64]
   out Y: f16[M, 64]
   map X_map of X box [64, 64]
 kernel main grid (i: ceildiv(M, 64)) threads 128
+  prefetch_descriptor(descriptor=X_map)
   shared Xs: f16[64, 64] align 128
   copy load(X[i * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Xs via tma {descriptor=X_map}
   Y[i * 64 +: 64, 0 +: 64] = Xs clip
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import kernel_of, replace_kernel

from ._tensor_descriptor import has_tma


@dataclass(frozen=True)
class PrefetchDescriptors(Pass):
    """No parameters: every map that the kernel copies by, in the program's order."""

    intent: ClassVar[str] = "descriptor-prefetch"
    catalogue: ClassVar[tuple[int, ...]] = (23,)
    claim: ClassVar[str] = "The first copy finds its descriptor in the cache."
    requires: ClassVar[tuple[str, ...]] = ("tma", "tensor-map")
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P230", "profit", "hardware", "the target copies boxes in hardware", has_tma),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that copies by tensor maps, which stand in its parameters."""
        if not isinstance(node, n.Kernel) or not _maps(program, node):
            return None
        if any(isinstance(x, n.Call) and x.fn == "prefetch_descriptor" for x in walk(node)):
            return Miss("the kernel fetches descriptors already")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A fetch of each map at the kernel's start."""
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, body=(*_fetched(program, kernel), *kernel.body))), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that fetches its maps at its start."""
        if not isinstance(node, n.Kernel):
            return None
        wanted = [s for s in node.body if isinstance(s, n.Eval) and s.call.fn == "prefetch_descriptor"]
        if not wanted:
            return None
        return Site(path, self) if sorted(map(repr, wanted)) == sorted(map(repr, _fetched(program, node))) else Miss(
            "other descriptors are fetched than are used")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """No fetches."""
        kernel = kernel_of(program, site.path)
        body = tuple(s for s in kernel.body if not (isinstance(s, n.Eval) and s.call.fn == "prefetch_descriptor"))
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, body=body)), site.path)


def _maps(program: n.Program, kernel: n.Kernel) -> list[str]:
    """The maps that a kernel copies by, in the program's order."""
    used = {dict(x.attrs).get("descriptor") for x in walk(kernel) if isinstance(x, n.Copy)}
    return [t.name for t in program.tensor_maps if t.name in used]


def _fetched(program: n.Program, kernel: n.Kernel) -> n.Block:
    return tuple(n.Eval(build.call("prefetch_descriptor", descriptor=name)) for name in _maps(program, kernel))
