"""Stages no tiles past the end of a loop: the copies that fill a ring ahead stand under a condition.

pipeline: `guard-prefetch@main/k`

```diff
 kir 1
 program sum
   in X: f32[K]
   out Y: f32[128]
   size K: i32
   fact K >= 128
   fact K <= 1048576
   fact K % 128 == 0
 kernel main grid (i: 1) threads 32
   shared Xs: f32[2, 128]
   fragment acc: f32[128] = 0.0
   for s in 0..1
     copy load(X[s * 128 +: 128] else 0.0 clip) -> Xs[s, 0 +: 128]
   @k for k in 0..K // 128
-    copy load(X[k * 128 + 128 +: 128] else 0.0 clip) -> Xs[(k + 1) % 2, 0 +: 128]
+    if k + 1 < K // 128
+      copy X[k * 128 + 128 +: 128] -> Xs[(k + 1) % 2, 0 +: 128]
     acc = acc + Xs[k % 2, 0 +: 128]
   Y = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import region_text
from kir.ir.types import I32, dtype_of
from kir.ir.visit import statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import block_and_index, edited, is_counted, matched, matched_as, node_as, params_as
from kir.rewrite.match.local_buffers import lies_inside, mentions

IN_FLIGHT = "copies past the end would be in flight when the threads end: nothing waits for all groups after them"


@dataclass(frozen=True)
class Ahead:
    """Copies `first` up to `last` of a loop's body, which fill slots `distance` iterations ahead of rings of `stages`."""

    first: int
    last: int
    distance: int
    stages: int


def _ahead(loop: n.For, block: n.Block, first: int) -> Ahead | None:
    """The run of copies that fill slots ahead, from a place of a block on."""
    last, found = first, set[tuple[int, int]]()
    while last < len(block) and (slot := _slot(loop, block[last])) is not None:
        found.add(slot)
        last += 1
    if len(found) != 1:
        return None
    (distance, stages), = found
    return Ahead(first, last, distance, stages)


def _slot(loop: n.For, s: n.Stmt) -> tuple[int, int] | None:
    """Of a copy from global memory to slot `(k + distance) % stages` of a ring in shared memory: distance and stages."""
    if not (isinstance(s, n.Copy) and s.signal is None and (s.src.at.buffer.space, s.dst.buffer.space) == ("global", "shared") and s.dst.index):
        return None
    at = s.dst.index[0]
    if not (isinstance(at, n.Binary) and at.op == "mod" and at.a.type == loop.var.type):
        return None
    distance, stages = build.int_value(build.sub(at.a, loop.var)), build.int_value(at.b)
    return None if distance is None or stages is None or distance < 1 else (distance, stages)


def _run(loop: n.For) -> Ahead | None:
    return next((found for k in range(len(loop.body)) if (found := _ahead(loop, loop.body, k)) is not None), None)


def _waits_for_all(body: n.Block, loop: n.For, at: int) -> bool:
    """Whether every group of copies is over before the threads end: a wait for all stands behind the copies, in the loop or after it."""
    order = list(statements(body))
    behind = {id(s) for s in statements(loop.body[at + 1:])} | {id(s) for s in order[next(k for k, s in enumerate(order) if s is loop) + 1:]}
    behind -= {id(s) for s in statements(loop.body[:at + 1])}
    return any(isinstance(s, n.Eval) and s.call.fn == "async_wait" and s.call.args == (n.Const(0, I32),) for s in order if id(s) in behind)


def _committed(program: n.Program, path: Path, loop: n.For) -> bool:
    """Whether what was copied in groups before a loop was committed there, so that no group of the loop holds it."""
    block, at = block_and_index(program, path)
    commit = max((k for k, s in enumerate(block[:at]) if isinstance(s, n.Eval) and s.call.fn == "async_commit"), default=None)
    order = list(statements(kernel_of(program, path).body))
    since = statements(block[commit + 1:at]) if commit is not None else order[:next(k for k, s in enumerate(order) if s is loop)]
    return not any(isinstance(s, n.Copy) and s.grouped for s in since)


def _wait(loop: n.For, copies: n.Block, last: int, left: int) -> int | None:
    """Where in a loop's body the wait for all groups but `left` stands, if `copies`, which end before statement `last`, are the loop's only ones in groups,
    and the one commit and the one wait of an iteration stand behind them. A wait for all but 1 leaves the group of its own iteration."""
    groups = ("async_commit", "async_wait")
    calls = [s for s in statements(loop.body) if isinstance(s, n.Eval) and s.call.fn in groups]
    flat = [k for k, s in enumerate(loop.body) if k >= last and any(s is x for x in calls)]
    own = {id(s) for s in copies}
    if any(isinstance(s, n.Copy) and s.grouped and id(s) not in own for s in statements(loop.body)) or [s.call.fn for s in calls] != list(groups) or (
            len(flat) != len(calls)):
        return None
    return flat[1] if calls[1].call.args == (n.Const(left, I32),) else None


def _waiting(body: n.Block, at: int, left: int) -> n.Block:
    """A loop's body whose wait is for all groups but `left`."""
    return (*body[:at], n.Eval(n.Call("async_wait", (n.Const(left, I32),))), *body[at + 1:])


def _guard(loop: n.For, distance: int) -> n.Expr:
    return build.compare("lt", build.add(loop.var, build.const(distance, dtype_of(loop.var.type))), loop.hi)


def _never_read(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    found = matched(_run(loop))
    if found.distance >= found.stages:
        return refuted("a slot that is filled past the end is the one that is computed on",
                       f"slot {found.distance} of {found.stages}", needs="a distance below the number of slots")
    copies = loop.body[found.first:found.last]
    names = {s.dst.buffer.name for s in copies if isinstance(s, n.Copy)}
    own = {id(x) for s in copies for x in walk(s)}
    inside = {id(s) for s in statements(loop.body)}
    now = build.mod(loop.var, build.const(found.stages, dtype_of(loop.var.type)))
    before = True
    for s in statements(kernel_of(program, site.path).body):
        if s is loop:
            before = False
        elif id(s) not in inside and not isinstance(s, n.Alloc) and not before and any(mentions(s, x) for x in names):
            used = next((region_text(x) for x in walk(s) if isinstance(x, n.Region) and x.buffer.name in names), s.label or "")
            return refuted("a slot is used after the loop", used, needs="rings that only the loop uses")
    for s in loop.body:
        for x in walk(s):
            if isinstance(x, n.Region) and x.buffer.name in names and id(x) not in own and not (x.index and x.index[0] == now):
                return refuted("a slot is used that may have been filled past the end", region_text(x), needs=f"uses of slot k % {found.stages} alone")
    return proved(f"iteration k uses slot k % {found.stages}, and none past the end comes to what was filled for it")


def _within(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, item = node_as(program, site.path, n.For), params_as(site, GuardPrefetch)
    found = matched(_run(loop))
    if item.clipped:
        return proved("the copies stay cut off at the edges of their tensors")
    known = Facts.at(program, (*site.path, "body", found.first)).knowing(_guard(loop, found.distance))
    for s in loop.body[found.first:found.last]:
        assert isinstance(s, n.Copy)
        if not s.src.clip:
            continue
        if not lies_inside(s.src.at, known):
            return unknown(f"{region_text(s.src.at)} may reach beyond its tensor", needs="facts that say that tiles fill the tensor",
                           attempt="guard-prefetch{clipped=true}")
    return proved("what is copied before the end lies inside its tensor")


@dataclass(frozen=True)
class GuardPrefetch(Pass):
    """The copies under the condition are still `clipped` at the edges of their tensors, or not; with `overlaps`, an iteration waits for all groups but its
    own, where it waited for that too: under the condition nothing is left in flight behind the loop."""

    intent: ClassVar[str] = "pipeline"
    catalogue: ClassVar[tuple[int, ...]] = (18,)
    claim: ClassVar[str] = "Tiles past the end of a loop, which nothing uses, are not loaded."
    requires: ClassVar[tuple[str, ...]] = ("ring",)
    provides: ClassVar[tuple[str, ...]] = ("guarded-prefetch",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P956", "validity", "pipeline", "nothing uses what is staged past the end", _never_read),
        Precondition("KIR-P957", "validity", "shape", "what is staged before the end lies inside its tensor, or is cut off there", _within),
    )

    clipped: bool = False
    overlaps: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that fills slots of rings ahead."""
        if not is_counted(node):
            return None
        found = _run(node)
        if found is None:
            return None
        if not all(isinstance(s, n.Copy) and s.src.clip and s.src.mask is None and s.mask is None for s in node.body[found.first:found.last]):
            return Miss("the copies are not cut off at the edges of their tensors")
        grouped = any(isinstance(s, n.Copy) and s.grouped for s in node.body[found.first:found.last])
        if grouped and not _waits_for_all(kernel_of(program, path).body, node, found.last - 1):
            return Miss(IN_FLIGHT)
        if self.overlaps and (not grouped or _wait(node, node.body[found.first:found.last], found.last, 0) is None):
            return Miss("an iteration does not commit these copies alone, and wait for them once")
        if self.overlaps and not _committed(program, path, node):
            return Miss("a group of the loop holds what was copied before it")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The copies in a branch."""
        loop = node_as(program, site.path, n.For)
        found = matched(_run(loop))
        copies = loop.body[found.first:found.last]
        if not self.clipped:
            copies = tuple(replace(s, src=replace(s.src, clip=False, other=None)) for s in copies if isinstance(s, n.Copy))
        branch = n.If(_guard(loop, found.distance), copies)
        body = loop.body
        if self.overlaps:
            body = _waiting(body, matched(_wait(loop, body[found.first:found.last], found.last, 0)), 1)
        made = replace(loop, body=(*body[:found.first], branch, *body[found.last:]))
        return edited(program, site.path, (made,))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop with a branch that fills slots ahead as long as there are iterations for them."""
        if not is_counted(node):
            return None
        if _run(node) is not None:
            return None
        for k, s in enumerate(node.body):
            if not (isinstance(s, n.If) and not s.orelse and not s.static):
                continue
            found = _ahead(node, s.then, 0)
            if found is None:
                continue
            if found.last != len(s.then):
                return Miss("the branch does more than fill slots ahead")
            if s.cond != _guard(node, found.distance):
                return Miss("the condition is not that an iteration is left for what is staged")
            clips = {x.src.clip for x in s.then if isinstance(x, n.Copy)}
            if len(clips) != 1 or any(isinstance(x, n.Copy) and (x.mask is not None or x.src.mask is not None) for x in s.then):
                return Miss("the copies are cut off in different ways")
            overlaps = any(isinstance(x, n.Copy) and x.grouped for x in s.then) and not _waits_for_all(kernel_of(program, path).body, node, k)
            if overlaps and (_wait(node, s.then, k + 1, 1) is None or not _committed(program, path, node)):
                return Miss(IN_FLIGHT)
            return Site(path, GuardPrefetch(clips.pop(), overlaps), {"at": k})
        return None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The copies in every iteration, cut off at the edges of their tensors."""
        loop, at = node_as(program, site.path, n.For), int(site.captures["at"])
        branch = matched_as(loop.body[at], n.If)
        copies = branch.then
        if not self.clipped:
            copies = tuple(replace(s, src=replace(s.src, clip=True, other=build.const(0, s.src.at.buffer.dtype)))
                           for s in copies if isinstance(s, n.Copy))
        body = loop.body
        if self.overlaps:
            body = _waiting(body, matched(_wait(loop, branch.then, at + 1, 1)), 0)
        made = replace(loop, body=(*body[:at], *copies, *body[at + 1:]))
        return edited(program, site.path, (made,))
