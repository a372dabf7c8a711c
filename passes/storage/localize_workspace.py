"""Moves scratch memory of which each CTA uses a part of its own from global to shared memory.

pipeline: `localize-workspace{buffer=W}@main`

```diff
 kir 1
 program two_steps
   size M: i32
   in X: f32[M, 64]
   out Y: f32[M, 64]
-  workspace W: f32[M, 64]
 kernel main grid (row: M) threads 64
+  shared W: f32[64]
   for t in 0..64 parallel thread
-    W[row, t] = X[row, t] * 2.0
+    W[t] = X[row, t] * 2.0
     barrier()
-    Y[row, t] = W[row, 63 - t]
+    Y[row, t] = W[63 - t]
```
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import region_text
from kir.ir.types import DType
from kir.ir.visit import transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import kernel_of, replace_kernel
from kir.rewrite.match import hardware_of, matched, params_as, regions_of


def _space(program: n.Program, name: str) -> n.Workspace | None:
    return next((w for w in program.workspaces if w.buffer.name == name), None)


def _own(program: n.Program, site: Site, context: Context) -> Verdict:
    item, kernel = params_as(site, LocalizeWorkspace), kernel_of(program, site.path)
    for r in _places(kernel, item.buffer):
        if _rest(r, kernel) is None:
            return refuted(f"{region_text(r)} is not the part of this CTA", "a CTA touches what another one's shared memory would hold",
                           needs=f"leading indices {', '.join(a.name for a in kernel.grid)}")
    return proved("every place starts with the indices of the CTA")


def _alone(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, LocalizeWorkspace)
    for k in program.kernels:
        if k.name != site.path[0] and _places(k, item.buffer):
            return refuted(f"kernel '{k.name}' uses '{item.buffer}' too", "shared memory does not outlive the kernel")
    return proved("no other kernel uses it")


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    item, kernel = params_as(site, LocalizeWorkspace), kernel_of(program, site.path)
    found = matched(_space(program, item.buffer))
    held = [s.buffer for s in kernel.body if isinstance(s, n.Alloc) and s.buffer.space == "shared"]
    sizes = [_bytes(b.shape, b) for b in held] + [_bytes(found.buffer.shape[len(kernel.grid):], found.buffer)]
    total = sum(x or 0 for x in sizes)
    most = hardware_of(context).architecture.shared_per_cta
    if None in sizes or total > most:
        return refuted(f"{total} bytes of shared memory do not fit", f"a CTA has at most {most}", needs="a smaller part for each CTA")
    return proved(f"{total} of {most} bytes")


def _bytes(shape: tuple[n.Expr, ...], b: n.Buffer) -> int | None:
    sizes = [build.int_value(d) for d in shape]
    return None if None in sizes else math.prod(x for x in sizes if x is not None) * b.dtype.bytes


@dataclass(frozen=True)
class LocalizeWorkspace(Pass):
    """`buffer` is the workspace; without it, one site for each."""

    intent: ClassVar[str] = "promote-scratch"
    catalogue: ClassVar[tuple[int, ...]] = (5,)
    claim: ClassVar[str] = "Intermediate results never leave the processor."
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P056", "validity", "storage", "each CTA uses a part of its own", _own),
        Precondition("KIR-P057", "validity", "storage", "no other kernel uses it", _alone),
        Precondition("KIR-P058", "validity", "hardware", "shared memory holds the part of a CTA", _fits))

    buffer: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that uses a workspace with one part for each CTA, of known size."""
        if not isinstance(node, n.Kernel):
            return None
        out = []
        for w in program.workspaces:
            b, rank = w.buffer, len(node.grid)
            if self.buffer not in ("", b.name) or not _places(node, b.name) or w.init is not None or b.strides is not None or b.layout is not None:
                continue
            if len(b.shape) > rank and b.shape[:rank] == tuple(a.extent for a in node.grid) and _bytes(b.shape[rank:], b) is not None:
                out.append(Site(path, LocalizeWorkspace(b.name)))
        return tuple(out) or (Miss("no workspace has one part of known size for each CTA") if program.workspaces else None)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Shared memory of the part's shape."""
        kernel, found = kernel_of(program, site.path), matched(_space(program, self.buffer))
        local = replace(found.buffer, shape=found.buffer.shape[len(kernel.grid):], space="shared")

        def leave(_: n.Node, x: n.Node) -> n.Node:
            if isinstance(x, n.Region) and x.buffer.name == self.buffer and x.buffer.space == "global":
                index = x.index or tuple(build.span(0, d) for d in x.buffer.shape)
                return build.region(local, *index[len(kernel.grid):])
            return x
        made = transform(kernel, leave)
        made = replace(made, body=(n.Alloc(local), *made.body))
        after = replace(replace_kernel(program, kernel.name, made), workspaces=tuple(w for w in program.workspaces if w is not found))
        return Rewritten(after, site.path, {(kernel.name, i): ((kernel.name, i + 1),) for i in range(len(kernel.body))})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose first statement, but for views, declares shared memory."""
        if not isinstance(node, n.Kernel):
            return None
        first = _first(node)
        if first is None or first.buffer.space != "shared" or first.init is not None or first.buffer.dtype.kind == "token":
            return None
        if first.buffer.layout is not None or any(isinstance(x, n.View) and x.at.buffer.name == first.buffer.name for x in walk(node)):
            return Miss(f"'{first.buffer.name}' has a layout, or is viewed otherwise")
        lanewise = any(isinstance(x, n.For) and x.kind == "thread" for x in walk(node))
        if (program.workspaces and lanewise) or any(isinstance(x, n.Call) and x.fn in ("ldmatrix", "stmatrix") for x in walk(node)):
            return Miss("there are workspaces already, or instructions that need shared memory")
        if any(isinstance(x, n.Copy) and (x.via not in ("plain",) and not x.via.startswith("vector")) for x in walk(node)):
            return Miss("an asynchronous copy needs shared memory")
        return Site(path, LocalizeWorkspace(first.buffer.name))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A workspace with a part for each CTA."""
        kernel = kernel_of(program, site.path)
        first = matched(_first(kernel))
        axes = tuple(n.Var(a.name, a.extent.type) for a in kernel.grid)
        b = replace(first.buffer, shape=(*(a.extent for a in kernel.grid), *first.buffer.shape), space="global")

        def leave(_: n.Node, x: n.Node) -> n.Node:
            if isinstance(x, n.Region) and x.buffer == first.buffer:
                index = x.index or tuple(build.span(0, d) for d in x.buffer.shape)
                return build.region(b, *axes, *index)
            return x
        made = transform(replace(kernel, body=tuple(s for s in kernel.body if s is not first)), leave)
        return Rewritten(replace(replace_kernel(program, kernel.name, made), workspaces=(*program.workspaces, n.Workspace(b))), site.path)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The part of a CTA comes to shared memory."""
        found, kernel = _space(program, self.buffer), kernel_of(program, site.path)
        return Effect() if found is None else Effect(shared_bytes=_bytes(found.buffer.shape[len(kernel.grid):], found.buffer))


def _first(k: n.Kernel) -> n.Alloc | None:
    """What a kernel declares first."""
    found = next((s for s in k.body if not isinstance(s, n.View)), None)
    return found if isinstance(found, n.Alloc) else None


def _places(k: n.Kernel, name: str) -> list[n.Region]:
    return regions_of(k, name)


def _rest(r: n.Region, kernel: n.Kernel) -> tuple[n.Expr | n.Span, ...] | None:
    """The indices behind those of the CTA; None where the place does not start with them."""
    lead = r.index[:len(kernel.grid)]
    axes = tuple(n.Var(a.name, a.extent.type) for a in kernel.grid if isinstance(a.extent.type, DType))
    return r.index[len(kernel.grid):] if lead == axes else None
