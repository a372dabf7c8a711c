"""Puts an array of shared memory where another one has been whose contents nobody needs any more.

pipeline: `alias-shared-lifetimes{buffer=A meet=true}@main/B`

```diff
 kir 1
 program twice
   size M: i32
   in X: f32[M, 64]
   out Y: f32[M, 64]
 kernel main grid (row: M) threads 64
   shared A: f32[64]
-  @B shared B: f32[64]
+  @B view shared B: f32[64] at A[0]
   for t in 0..64 parallel thread
     A[t] = X[row, t]
     barrier()
     let x = A[63 - t]
+    barrier()
     B[t] = x * 2.0
     barrier()
     Y[row, t] = B[(t + 1) % 64]
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import kernel_of, node_at, replace_kernel
from kir.rewrite.match import matched, matched_as, node_as, params_as, span_of
from kir.rewrite.match.local_buffers import byte_count
from kir.rewrite.match.thread_team import barrier, is_call


def _parts(program: n.Program, site: Site) -> tuple[n.Kernel, n.Buffer, n.Buffer]:
    """The kernel, the array that moves, and the one in whose place it goes."""
    kernel, node, item = kernel_of(program, site.path), node_at(program, site.path), params_as(site, AliasSharedLifetimes)
    assert isinstance(node, (n.Alloc, n.View))
    home = next(s.buffer for s in kernel.body if isinstance(s, n.Alloc) and s.buffer.name == item.buffer)
    return kernel, node.buffer, home


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    _, b, home = _parts(program, site)
    need, have = matched(byte_count(b)), matched(byte_count(home))
    if need > have:
        return refuted(f"'{b.name}' takes {need} bytes, and '{home.name}' has {have}", f"byte {have} of '{b.name}' lies behind it",
                       needs="a larger array, declared before")
    if b.align > max(16, home.align):
        return refuted(f"'{b.name}' is aligned to {b.align} bytes, and '{home.name}' to {max(16, home.align)}", "the first element")
    return proved(f"{need} of {have} bytes")


def _dead(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel, b, home = _parts(program, site)
    block = _block(kernel)
    first, last = span_of(block, b.name), span_of(block, home.name)
    if first is None or last is None:
        return proved("one of them is not used")
    if last[1] < first[0] or first[1] < last[0]:
        return proved("no statement touches one after the other has come into use")
    return refuted(f"'{b.name}' and '{home.name}' are in use at the same time", f"statement {max(first[0], last[0])} of the loop over threads",
                   needs="lifetimes that do not overlap")


def _handed_over(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel, b, home = _parts(program, site)
    item, block = params_as(site, AliasSharedLifetimes), _block(kernel)
    first, last = span_of(block, b.name), span_of(block, home.name)
    if first is None or last is None:
        return proved("one of them is not used")
    lo, hi = (last[1], first[0]) if last[1] < first[0] else (first[1], last[0])
    between = block[lo + 1:hi]
    copies = [s for s in statements(block[:lo + 1]) if isinstance(s, n.Copy) and s.grouped and home.name in (s.dst.buffer.name, s.src.at.buffer.name)]
    if copies and not any(isinstance(s, n.Eval) and s.call.fn in ("async_wait", "bulk_wait") and s.call.args == (build.const(0),)
                          for s in (*block[lo:lo + 1], *between)):
        return refuted(f"copies to '{home.name}' may still be under way", "a copy lands in what has become something else",
                       needs="async_wait(0) between the two")
    if item.meet or any(is_call(s, "barrier") for s in between):
        return proved("all threads meet between the last use of one and the first of the other")
    return refuted(f"a thread may write '{b.name}' while another one still uses '{home.name}'", "no barrier stands between the two",
                   needs="a barrier between them", attempt="meet=true")


@dataclass(frozen=True)
class AliasSharedLifetimes(Pass):
    """`buffer` is the array whose memory is used again; with `meet`, a barrier comes in before the first use of the new one."""

    intent: ClassVar[str] = "alias-shared-lifetimes"
    catalogue: ClassVar[tuple[int, ...]] = (4,)
    claim: ClassVar[str] = "A CTA needs less shared memory, so that more of them fit on a processor, or larger tiles do."
    provides: ClassVar[tuple[str, ...]] = ()
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P040", "validity", "shape", "the array fits into the other one", _fits),
        Precondition("KIR-P041", "validity", "storage", "the two are never in use at the same time", _dead),
        Precondition("KIR-P042", "validity", "pipeline", "threads meet, and copies have landed, between the two", _handed_over))

    buffer: str = ""
    meet: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an array of shared memory of known size; without `buffer`, one site for each array declared before it."""
        if not (isinstance(node, n.Alloc) and _plain(node) and len(path) == 2):
            return None
        kernel, i = kernel_of(program, path), int(path[1])
        if _loop(kernel) is None:
            return None
        homes = [s.buffer.name for s in kernel.body[:i] if isinstance(s, n.Alloc) and _plain(s) and self.buffer in ("", s.buffer.name)]
        if any(isinstance(x, n.Opaque) for x in walk(kernel)):
            return Miss("text that is not understood may use it")
        return tuple(Site(path, replace(self, buffer=home)) for home in homes) or None

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a view of shared memory that starts where an array does."""
        if not (isinstance(node, n.View) and not node.axes and node.buffer.space == "shared" and len(path) == 2):
            return None
        kernel, home = kernel_of(program, path), node.at.buffer
        if _loop(kernel) is None or not all(isinstance(i, n.Expr) and build.is_const(i, 0) for i in node.at.index):
            return None
        first = span_of(_block(kernel), node.buffer.name)
        meets = first is not None and first[0] > 0 and is_call(_block(kernel)[first[0] - 1], "barrier")
        return tuple(Site(path, AliasSharedLifetimes(home.name, meet)) for meet in ((True, False) if meets else (False,)))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A view of the other array."""
        kernel, b, home = _parts(program, site)
        i, node = int(site.path[1]), node_as(program, site.path, n.Alloc)
        corner = n.Region(home, tuple(build.const(0) for _ in home.shape))
        view = n.View(b, corner, label=node.label, origin=node.origin)
        made = replace(kernel, body=(*kernel.body[:i], view, *kernel.body[i + 1:]))
        first = span_of(_block(made), b.name)
        if self.meet and first is not None:
            made = _with_block(made, (*_block(made)[:first[0]], barrier(), *_block(made)[first[0]:]))
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Memory of its own."""
        kernel, b, _ = _parts(program, site)
        i, node = int(site.path[1]), node_as(program, site.path, n.View)
        made = replace(kernel, body=(*kernel.body[:i], n.Alloc(b, label=node.label, origin=node.origin), *kernel.body[i + 1:]))
        first = span_of(_block(made), b.name)
        if self.meet and first is not None:
            made = _with_block(made, (*_block(made)[:first[0] - 1], *_block(made)[first[0]:]))
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """Its bytes are saved."""
        need = byte_count(_parts(program, site)[1])
        return Effect(shared_bytes=None if need is None else -need)


def _plain(s: n.Alloc) -> bool:
    return s.buffer.space == "shared" and s.init is None and s.buffer.dtype.kind != "token" and byte_count(s.buffer) is not None and s.buffer.strides is None


def _loop(kernel: n.Kernel) -> int | None:
    """The kernel's one loop over threads, when nothing but declarations stands beside it."""
    found = [i for i, s in enumerate(kernel.body) if isinstance(s, n.For) and s.kind == "thread"]
    others = [s for i, s in enumerate(kernel.body) if i not in found and not isinstance(s, (n.Alloc, n.View))]
    return found[0] if len(found) == 1 and not others else None


def _block(kernel: n.Kernel) -> n.Block:
    at = _loop(kernel)
    loop = None if at is None else kernel.body[at]
    return loop.body if isinstance(loop, n.For) else ()


def _with_block(kernel: n.Kernel, block: n.Block) -> n.Kernel:
    at = matched(_loop(kernel))
    loop = matched_as(kernel.body[at], n.For)
    return replace(kernel, body=(*kernel.body[:at], replace(loop, body=block), *kernel.body[at + 1:]))
