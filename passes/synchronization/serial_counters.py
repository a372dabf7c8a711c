"""Gives a CTA of one thread counters of its own in shared memory, and adds them to the global ones once behind the loop that counts.

pipeline: `serial-counters{buffer=H}@main/each`

```diff
 kir 1
 program histogram
   size N: i32
   in X: i32[N]
   inout H: i32[256]
 kernel main grid (b: ceildiv(N, 1024)) threads 1
+  shared H_own: i32[256]
+  for i in 0..256
+    H_own[i] = 0
   @each for j in 0..1024
     if b * 1024 + j < N
-      atomic_add(&H[X[b * 1024 + j] & 255], 1)
+      atomic_add(&H_own[X[b * 1024 + j] & 255], 1)
+  for i_1 in 0..256
+    atomic_add(&H[i_1], H_own[i_1])
```
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.ir.visit import transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown
from kir.rewrite.edit import fresh, kernel_of
from kir.rewrite.match import counting, edited, fresh_var, is_counted, matched, names_at, node_as, params_as, regions_of, within_shared

from .privatize_atomics import NEUTRAL, neutral, used_alone


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    buffer = matched(used_alone(node_as(program, site.path, n.For), params_as(site, SerialCounters).buffer))[0]
    held = [s.buffer for s in kernel_of(program, site.path).body if isinstance(s, n.Alloc) and s.buffer.space == "shared"]
    return within_shared(sum(math.prod(build.int_value(d) or 0 for d in b.shape) * b.dtype.bytes for b in (*held, buffer)), context, "fewer counters")


def _exact(program: n.Program, site: Site, context: Context) -> Verdict:
    buffer, fn = matched(used_alone(node_as(program, site.path, n.For), params_as(site, SerialCounters).buffer))
    if buffer.dtype.is_float and fn == "atomic_add":
        return unknown("sums of floats are rounded in another order", needs="integers, or a tolerance that allows it")
    return proved("the order of updates does not matter")


@dataclass(frozen=True)
class SerialCounters(Pass):
    """`buffer` is the array of counters in global memory; without it, one site for each."""

    intent: ClassVar[str] = "atomics"
    catalogue: ClassVar[tuple[int, ...]] = (49,)
    claim: ClassVar[str] = "Updates meet in the CTA's own memory, and global memory sees each counter once a CTA."
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P498", "validity", "hardware", "shared memory holds the counters", _fits),
        Precondition("KIR-P499", "profit", "numerics", "the order of the updates does not change the result", _exact))

    buffer: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop of a CTA of one thread, in no other, that only updates an array of known size, by one operation whose results nobody keeps."""
        if not isinstance(node, n.For) or len(path) != 2 or not build.is_const(kernel_of(program, path).threads, 1):
            return None
        names = dict.fromkeys(a.buffer.name for x in walk(node) if isinstance(x, n.Call) and x.fn in NEUTRAL
                              for a in x.args if isinstance(a, n.Region) and a.buffer.space == "global")
        found = [b for b in names if self.buffer in ("", b) and used_alone(node, b) is not None]
        return tuple(Site(path, SerialCounters(b)) for b in found) or (Miss("an array is used otherwise, or its size is not known") if names else None)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Cleared, counted and added counters."""
        loop, taken = node_as(program, site.path, n.For), names_at(program, site.path)
        old, fn = matched(used_alone(loop, self.buffer))
        own = n.Buffer(fresh(f"{old.name}_own", taken), old.dtype, old.shape, "shared")
        first, second = (fresh_var("i", taken, I32) for _ in range(2))
        made = (n.Alloc(own), _cleared(fn, own, first), _by_others(loop, fn, old, own), _added(fn, old, own, second))
        top = int(site.path[1])
        return edited(program, site.path, made, at=2, hints={site.path: ((site.path[0], top + 2),)})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop between one that clears an array of shared memory and one that adds it to an array in global memory."""
        if not isinstance(node, n.For) or len(path) != 2 or not build.is_const(kernel_of(program, path).threads, 1):
            return None
        body, top = kernel_of(program, path).body, int(path[1])
        if top < 2 or top + 1 == len(body):
            return None
        alloc, clear, add = body[top - 2], body[top - 1], body[top + 1]
        if not (isinstance(alloc, n.Alloc) and alloc.buffer.space == "shared" and alloc.init is None and is_counted(clear, plain=True)
                and is_counted(add, plain=True)):
            return None
        own, used = alloc.buffer, used_alone(node, alloc.buffer.name)
        last = next((x for x in walk(add) if isinstance(x, n.Call) and x.fn in NEUTRAL and isinstance(x.args[0], n.Region)), None)
        if used is None or last is None or not isinstance(at := last.args[0], n.Region):
            return Miss("the array is used otherwise")
        if at.buffer.space != "global" or last.fn != used[1] or own != n.Buffer(own.name, at.buffer.dtype, at.buffer.shape, "shared"):
            return Miss("it is added to an array of another kind")
        if clear != _cleared(used[1], own, clear.var) or add != _added(used[1], at.buffer, own, add.var):
            return Miss("not all counters are cleared first, and added at the end")
        others = [*body[:top - 2], *body[top + 2:]]
        if any(regions_of(s, own.name) for s in others):
            return Miss("the array is used elsewhere")
        return Site(path, SerialCounters(at.buffer.name), {"own": own.name})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Updates of global memory."""
        loop, add = node_as(program, site.path, n.For), kernel_of(program, site.path).body[int(site.path[1]) + 1]
        own, fn = matched(used_alone(loop, str(site.captures["own"])))
        place = next(x.args[0].buffer for x in walk(add) if isinstance(x, n.Call) and x.fn == fn and isinstance(x.args[0], n.Region))
        return edited(program, site.path, (_by_others(loop, fn, own, place),), -2, 2, at=-2)


def _cleared(fn: str, own: n.Buffer, i: n.Var) -> n.For:
    return counting(i, own.shape[0], (n.Store(build.region(own, i), matched(neutral(fn, own))),))


def _added(fn: str, to: n.Buffer, own: n.Buffer, i: n.Var) -> n.For:
    return counting(i, own.shape[0], (n.Eval(build.call(fn, build.region(to, i), n.Load(build.region(own, i)))),))


def _by_others(loop: n.For, fn: str, old: n.Buffer, new: n.Buffer) -> n.For:
    """The loop with the updates of one array made to another."""
    def leave(_: n.Node, x: n.Node) -> n.Node:
        if isinstance(x, n.Call) and x.fn == fn and isinstance(x.args[0], n.Region) and x.args[0].buffer.name == old.name:
            return replace(x, args=(n.Region(new, x.args[0].index), *x.args[1:]))
        return x
    return replace(loop, body=tuple(transform(s, leave) for s in loop.body))
