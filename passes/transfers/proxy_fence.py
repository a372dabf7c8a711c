"""Lets the units that read shared memory on their own (wgmma, TMA, bulk copies) see what the threads have written there.

pipeline: `proxy-fence@main/keep`

```diff
 kir 1
 program doubled
   in X: f32[M, 64]
   out Y: f32[M, 64]
   size M: i32
 kernel main grid (i: M) threads 64
   shared kept: f32[64]
   @keep kept = X[i, 0 +: 64] * 2.0
+  fence_async()
   Y[i, 0 +: 64] = kept[63 - iota(64)]
```

Threads reach memory through the generic proxy, these units through the async proxy; a fence between a write and a read orders the two (PTX ISA, memory
consistency model, proxies). It changes nothing for code in which only threads read: so it can go once no such unit is left, and it must come before one
does.
"""
from __future__ import annotations

from functools import partial
from typing import ClassVar

from kir.analysis.target.warpgroup import DESCRIBED
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import once, statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, refuted, unknown
from kir.rewrite.edit import block_at, kernel_of
from kir.rewrite.match import edited, matched_as, sibling, splice
from kir.rewrite.match.local_buffers import kind_of_copy

UNITS = ("tma", "bulk")


def _written(s: n.Stmt) -> set[str]:
    """Shared memory that the threads write in a statement."""
    out = set()
    for x in statements((s,)):
        at = x.at if isinstance(x, n.Store) else x.dst if isinstance(x, n.Copy) and kind_of_copy(x) not in UNITS else None
        if at is not None and at.buffer.space == "shared":
            out.add(at.buffer.name)
    return out


def _reader(kernel: n.Kernel) -> str:
    """What touches shared memory through the async proxy, or may once a compiler has chosen an instruction; "" when nothing does."""
    for s in statements(kernel.body):
        match s:
            case n.Copy() if kind_of_copy(s) in UNITS:
                return f"a copy via {kind_of_copy(s)}"
            case n.Mma() if s.via in (*DESCRIBED, "auto") and any(isinstance(x, n.Buffer) and x.space == "shared" for e in (s.a, s.b) for x in walk(e)):
                return f"a product via {s.via}"
            case n.Opaque():
                return "opaque text"
            case n.Let() | n.Eval():
                call = s.value if isinstance(s, n.Let) else s.call
                if isinstance(call, n.Call) and call.fn.startswith(("wgmma", "tcgen05", "bulk_", "tma_", "mbar_")):
                    return f"'{call.fn}'"
            case _:
                pass
    return ""


def _wanted(program: n.Program, site: Site, context: Context) -> Verdict:
    hardware = context.target
    if hardware is not None and not hardware.architecture.has("fence_proxy_async"):
        return refuted(f"{hardware.name} has no unit that would read it", "no instruction there goes through the async proxy")
    return unknown("nothing reads it through the async proxy yet")


@dataclass(frozen=True)
class ProxyFence(Pass):
    """No parameters: the site is the statement whose writes are to be seen."""

    intent: ClassVar[str] = "proxy-fence"
    catalogue: ClassVar[tuple[int, ...]] = (38, 21)
    claim: ClassVar[str] = "Tensor cores and TMA see what the threads have written to shared memory."
    requires: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P910", "profit", "pipeline", "something reads shared memory through the async proxy", _wanted),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement in which the threads write shared memory."""
        if not isinstance(node, (n.Store, n.Copy, n.For)) or not _written(node):
            return None
        after = block_at(program, path)[int(path[-1]) + 1:][:1]
        if after and _is_fence(after[0]):
            return Miss("there is a fence already")
        if reader := once(kernel_of(program, path), "_async_reader", partial(_reader, kernel_of(program, path))):
            return Miss(f"{reader} is there already: a fence has its place before anything needs it, so that it can be undone")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A fence behind the statement."""
        call = matched_as(build.call("fence_async"), n.Call)
        made = splice(program, site.path, (n.Eval(call),), 1)
        return Rewritten(made, sibling(site.path, 1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a fence behind such a statement, in a kernel where only threads read shared memory."""
        if not isinstance(node, n.Stmt) or not _is_fence(node):
            return None
        i = int(path[-1])
        before = block_at(program, path)[:i]
        if not before or not isinstance(before[-1], (n.Store, n.Copy, n.For)) or not _written(before[-1]):
            return Miss("nothing is written to shared memory right before it")
        if reader := _reader(kernel_of(program, path)):
            return Miss(f"{reader} may need it")
        return Site(path, self)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """No fence."""
        return edited(program, site.path, (), at=-1)


def _is_fence(s: n.Stmt) -> bool:
    return isinstance(s, n.Eval) and s.call.of is None and s.call.fn == "fence_async" and not s.call.args and not s.call.attrs
