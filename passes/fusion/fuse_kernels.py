"""Runs two kernels as one, where each CTA of the second needs only what the same CTA of the first has made.

pipeline: `fuse-kernels{kernel=second at=1}@first`

```diff
 kir 1
 program scale_then_shift
   size M: i32
   in X: f32[M, 64]
   out Y: f32[M, 64]
   workspace W: f32[M, 64]
 kernel first grid (i: M) threads 64
   for t in 0..64 parallel thread
     W[i, t] = X[i, t] * 2.0
-kernel second grid (row: M) threads 64
   for u in 0..64 parallel thread
-    Y[row, u] = W[row, 63 - u] + 1.0
+    Y[i, u] = W[i, 63 - u] + 1.0
```
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases
from kir.analysis.access import Access, accesses
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.printer import region_text
from kir.ir.visit import buffers_named, names_read, substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.base import Effect
from kir.rewrite.edit import kernel_of, names_in, replace_kernel
from kir.rewrite.match import fresh_names, params_as, within_shared


def _next(program: n.Program, site: Site) -> tuple[n.Kernel, n.Kernel]:
    item = params_as(site, FuseKernels)
    return kernel_of(program, site.path), kernel_of(program, (item.kernel,))


def _own(program: n.Program, site: Site, context: Context) -> Verdict:
    first, second = _next(program, site)
    aliases, ours, theirs = Aliases(program), accesses_of(first), accesses_of(second)
    for a in ours:
        for b in theirs:
            if not (a.writes or b.writes) or not aliases.may_be_one(a.buffer, b.buffer):
                continue
            if a.buffer == "*" or b.buffer == "*":
                return unknown("text that is not understood may touch anything")
            for found, kernel in ((a, first), (b, second)):
                if found.at is None or not _starts_with_axes(found.at, kernel):
                    shown = found.buffer if found.at is None else region_text(found.at)
                    return refuted(f"{shown} in '{kernel.name}' is not the CTA's own part", "a CTA goes on before another one has come that far",
                                   needs=f"places that start with {', '.join(x.name for x in kernel.grid)}")
    return proved("what one CTA hands on, the same CTA takes")


def accesses_of(k: n.Kernel) -> list[Access]:
    """Accesses of a kernel to memory that outlives it."""
    local = {b.name for b in walk(k) if isinstance(b, n.Buffer) and b.space != "global"}
    return [a for s in k.body for a in accesses(s) if a.buffer not in local and not (a.sync and a.buffer == "*")]


def _leaves_pending(s: n.Stmt) -> bool:
    """Whether a statement begins what is waited for later."""
    return any((isinstance(x, n.Copy) and (x.grouped or x.signal is not None)) or (isinstance(x, n.Mma) and x.pending)
               or (isinstance(x, n.Call) and x.fn in ("wgmma", "named_barrier_arrive")) for x in walk(s))


def _waits(s: n.Stmt) -> bool:
    return any(isinstance(x, n.Call) and x.fn in ("async_wait", "bulk_wait", "wgmma_wait", "mbar_wait", "named_barrier_sync") for x in walk(s))


def _meets(s: n.Stmt) -> int:
    """How many arrivals at the barrier of the cluster a statement has more than waits for it."""
    return sum({"cluster_arrive": 1, "cluster_wait": -1}.get(x.fn, 0) for x in walk(s) if isinstance(x, n.Call))


def _starts_with_axes(r: n.Region, k: n.Kernel) -> bool:
    return r.index[:len(k.grid)] == tuple(n.Var(a.name, a.extent.type) for a in k.grid)


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    first, second = _next(program, site)
    held = [s.buffer for k in (first, second) for s in walk(k) if isinstance(s, n.Alloc) and s.buffer.space == "shared"]
    sizes = [math.prod(build.int_value(d) or 0 for d in b.shape) * b.dtype.bytes for b in held]
    return within_shared(sum(sizes), context, attempt="alias-shared-lifetimes first")


@dataclass(frozen=True)
class FuseKernels(Pass):
    """`kernel` is the second kernel, which comes after the first `at` statements of the fused one."""

    intent: ClassVar[str] = "fuse-kernels"
    catalogue: ClassVar[tuple[int, ...]] = (57,)
    claim: ClassVar[str] = "One launch less, and what the kernels share is still in the caches, or in the CTA itself."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P570", "validity", "storage", "each CTA of the second kernel uses only what its own CTA of the first has made", _own),
        Precondition("KIR-P571", "validity", "hardware", "shared memory holds what both kernels need", _fits))

    kernel: str = "second"
    at: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that is followed by one of the same grid and size."""
        if not isinstance(node, n.Kernel) or program.plan:
            return None
        names = [k.name for k in program.kernels]
        i = names.index(node.name)
        if i + 1 >= len(names):
            return None
        other = program.kernels[i + 1]
        if (other.threads, other.cluster, other.attrs) != (node.threads, node.cluster, node.attrs):
            return Miss("the kernels have different numbers of threads, or options")
        if tuple(a.extent for a in other.grid) != tuple(a.extent for a in node.grid):
            return Miss("the kernels have different grids")
        if any(isinstance(x, n.Jump) and x.kind == "return" for x in walk(node)):
            return Miss(f"threads of '{node.name}' return early")
        return Site(path, FuseKernels(other.name, len(node.body)))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Both bodies, one after the other."""
        first, second = _next(program, site)
        taken = names_in(program, first)
        names = fresh_names(second.body, taken)
        axes = {b.name: n.Var(a.name, a.extent.type) for a, b in zip(first.grid, second.grid, strict=True)}
        body = tuple(substitute(rename(s, names), axes) for s in second.body)
        made = replace(first, body=(*first.body, *body))
        hints: dict[Path, tuple[Path, ...]] = {(second.name, i): ((first.name, len(first.body) + i),) for i in range(len(body))}
        after = replace_kernel(program, first.name, made)
        return Rewritten(replace(after, kernels=tuple(k for k in after.kernels if k.name != second.name)), site.path, hints)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of several statements; one site for each place where nothing but memory connects what comes before and after."""
        if not isinstance(node, n.Kernel) or program.plan or self.kernel in {k.name for k in program.kernels}:
            return None
        out, before = [], set[str]()
        behind = [frozenset[str]()]
        for s in reversed(node.body):
            behind.append(behind[-1] | names_read(s) | buffers_named(s))
        pending, open_ = tuple(_leaves_pending(s) for s in node.body), 0
        for i in range(1, len(node.body)):
            before |= set(bound_names(node.body[i - 1:i]))
            open_ += _meets(node.body[i - 1])
            if open_ or (any(pending[:i]) and any(_waits(s) for s in node.body[i:])):
                continue  # what the first part has begun would be waited for by nobody
            if not before & behind[len(node.body) - i] and not isinstance(node.body[i - 1], (n.Alloc, n.Let, n.View)):
                out.append(Site(path, FuseKernels(self.kernel, i)))
        return tuple(out) or None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Two kernels."""
        whole = kernel_of(program, site.path)
        first, second = replace(whole, body=whole.body[:self.at]), replace(whole, name=self.kernel, body=whole.body[self.at:], label=None)
        after = replace_kernel(program, whole.name, first)
        i = [k.name for k in after.kernels].index(whole.name) + 1
        return Rewritten(replace(after, kernels=(*after.kernels[:i], second, *after.kernels[i:])), site.path)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """No claim beyond the launch that is saved."""
        return Effect()
