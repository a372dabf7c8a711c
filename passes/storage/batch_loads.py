"""Issues the loads of several iterations before the first of their values is used.

pipeline: `batch-loads@main/threads/loop`

```diff
 kir 1
 program scale
   size N: i32
   in X: f32[N]
   out Y: f32[N]
   fact N % 512 == 0
 kernel main grid (b: N // 512) threads 128
   @threads for t in 0..128 parallel thread
-    @loop for i in 0..4
-      let x = X[b * 512 + i * 128 + t]
+    register xs: f32[4]
+    for i_1 in 0..4 unroll {factor=4}
+      xs[i_1] = X[b * 512 + i_1 * 128 + t]
+    @loop for i in 0..4 unroll {factor=4}
+      let x = xs[i]
       Y[b * 512 + i * 128 + t] = x * 2.0
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases, Facts, accesses
from kir.analysis.access import conflict
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType, dtype_of
from kir.ir.visit import names_read, substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, fresh, node_at
from kir.rewrite.match import edited, fresh_var, from_zero, names_at, node_as, sibling, splice
from kir.rewrite.match.materialize import is_pure

MOST = 64
"""Registers that a batch may take."""


def _untouched(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, known, aliases = node_as(program, site.path, n.For), Facts.at(program, site.path), Aliases(program)
    reads = [a for a in accesses(loop.body[0]) if not a.writes]
    for s in loop.body[1:]:
        for w in accesses(s):
            if w.sync:
                return unknown("the loop synchronizes, and a load may not pass that", needs="an iteration that only computes and stores")
            clash = next((a for a in reads if w.writes and aliases.may_be_one(a.buffer, w.buffer) and conflict(
                replace(a, at=None), replace(w, at=None), known, aliases)), None)
            if clash is not None:
                return refuted(f"the loop writes '{w.buffer}', which a later iteration may load",
                               f"iteration 1 would load '{clash.buffer}' before iteration 0 has stored it",
                               needs="loads of memory that the loop does not write")
    return proved("no iteration writes what another one loads")


@dataclass(frozen=True)
class BatchLoads(Pass):
    """No parameters: the site is a loop of a known number of iterations that begins with a load."""

    intent: ClassVar[str] = "batch-loads"
    catalogue: ClassVar[tuple[int, ...]] = (25,)
    claim: ClassVar[str] = "Several loads are in flight at once, so that their latency is paid once."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P250", "validity", "aliasing", "no iteration writes what a later one loads", _untouched),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over 0..n that first reads global memory into a scalar."""
        if not isinstance(node, n.For) or node.kind not in ("serial", "unroll") or len(node.body) < 2:
            return None
        first, count = node.body[0], build.int_value(node.hi)
        if not (isinstance(first, n.Let) and len(first.names) == 1 and is_pure(first.value) and isinstance(first.value.type, DType)):
            return None
        if not any(isinstance(x, n.Load) and x.at.buffer.space == "global" for x in walk(first.value)):
            return None
        if count is None or not from_zero(node):
            return Miss("the number of iterations is not known")
        if not 2 <= count <= MOST or node.kind != "serial":
            return Miss(f"{count} values are too many, or too few, for registers" if node.kind == "serial" else "the loop is unrolled already")
        if any(isinstance(x, n.Jump) for s in node.body for x in walk(s)):
            return Miss("the body leaves the loop early")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop that loads, and a loop that computes."""
        loop, i, taken = node_as(program, site.path, n.For), int(site.path[-1]), names_at(program, site.path)
        assert isinstance(loop.body[0], n.Let)
        first, factor = loop.body[0], build.int_value(loop.hi) or 1
        held = n.Buffer(fresh(f"{first.names[0]}s", taken), dtype_of(first.value.type), (loop.hi,), "register")
        var = fresh_var(loop.var.name, taken, loop.var.of)
        options = n.attrs(**{**dict(loop.attrs), "factor": factor})
        load = n.Store(build.region(held, var), substitute(first.value, {loop.var.name: var}))
        ahead = n.For(var, loop.lo, loop.hi, loop.step, (load,), "unroll", options, origin=loop.origin)
        use = replace(loop, kind="unroll", attrs=options, body=(replace(first, value=n.Load(build.region(held, loop.var))), *loop.body[1:]))
        after = splice(program, site.path, (n.Alloc(held), ahead, use))
        return Rewritten(after, sibling(site.path, 2), {(*site.path, "body", 0): ((*site.path[:-1], i + 1, "body", 0),
                                                                                      (*site.path[:-1], i + 2, "body", 0))})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that reads its element of an array, which the loop before it has filled."""
        if not isinstance(node, n.For) or node.kind != "unroll" or int(path[-1]) < 2 or not node.body:
            return None
        alloc, ahead = block_at(program, path)[int(path[-1]) - 2:int(path[-1])]
        first = node.body[0]
        if not (isinstance(alloc, n.Alloc) and alloc.buffer.space == "register" and isinstance(ahead, n.For) and isinstance(first, n.Let)):
            return None
        own = alloc.buffer.name
        if first.value != n.Load(build.region(alloc.buffer, node.var)) or len(ahead.body) != 1 or not isinstance(ahead.body[0], n.Store):
            return None
        if ahead.body[0].at != build.region(alloc.buffer, ahead.var) or any(own in _buffers(s) for s in node.body[1:]):
            return Miss(f"'{own}' is used otherwise")
        if any(own in _buffers(s) for s in block_at(program, path)[int(path[-1]) + 1:]):
            return Miss(f"'{own}' is used after the loop")
        return Site(path, self)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop that loads where it needs the value."""
        i = int(site.path[-1])
        _, ahead, loop = block_at(program, site.path)[i - 2:i + 1]
        assert isinstance(ahead, n.For) and isinstance(loop, n.For) and isinstance(ahead.body[0], n.Store) and isinstance(loop.body[0], n.Let)
        value = substitute(ahead.body[0].value, {ahead.var.name: loop.var})
        plain = tuple((k, v) for k, v in loop.attrs if k != "factor")
        made = replace(loop, kind="serial", attrs=plain, body=(replace(loop.body[0], value=value), *loop.body[1:]))
        return edited(program, site.path, (made,), -2, at=-2)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The values of a batch stay in registers."""
        loop = node_at(program, site.path)
        count = build.int_value(loop.hi) if isinstance(loop, n.For) else None
        return Effect(registers=count)


def _buffers(s: n.Stmt) -> set[str]:
    return {x.name for x in walk(s) if isinstance(x, n.Buffer)} | names_read(s)
