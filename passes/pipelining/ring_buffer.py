"""Gives staged tiles a ring of buffers: a loop stages tiles of later iterations while it computes on earlier ones.

pipeline: `ring-buffer{stages=3 distance=2}@main/k`

```diff
 kir 1
 program sum
   in X: f32[K]
   out Y: f32[128]
   size K: i32
 kernel main grid (i: 1) threads 32
-  shared Xs: f32[128]
+  shared Xs: f32[3, 128]
   fragment acc: f32[128] = 0.0
+  for s in 0..2
+    copy load(X[s * 128 +: 128] else 0.0 clip) -> Xs[s, 0 +: 128]
   @k for k in 0..ceildiv(K, 128)
-    copy load(X[k * 128 +: 128] else 0.0 clip) -> Xs
-    acc = acc + Xs
+    copy load(X[k * 128 + 256 +: 128] else 0.0 clip) -> Xs[(k + 2) % 3, 0 +: 128]
+    acc = acc + Xs[k % 3, 0 +: 128]
   Y = acc
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import region_text
from kir.ir.types import DType
from kir.ir.visit import names_read, statements, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, edit_block, kernel_of, names_in, replace_kernel
from kir.rewrite.match import fits_shared, fresh_var, from_zero, matched_as, node_as, params_as, shared_bytes, sibling, splice
from kir.rewrite.match.local_buffers import byte_count, kind_of_copy, lies_inside, mentions, own_parts

from ._rings import with_slots


def _loop(program: n.Program, site: Site) -> tuple[n.For, RingBuffer]:
    loop, item = node_as(program, site.path, n.For), params_as(site, RingBuffer)
    return loop, item


def _staged(loop: n.For) -> list[n.Copy]:
    """Synchronous copies from global memory to the whole of a shared buffer that move with the loop."""
    return [s for s in loop.body if isinstance(s, n.Copy) and kind_of_copy(s) in ("plain", "vector") and not s.dst.index
            and (s.src.at.buffer.space, s.dst.buffer.space) == ("global", "shared") and loop.var.name in names_read(s.src)]


def _slots_apart(program: n.Program, site: Site, context: Context) -> Verdict:
    _, item = _loop(program, site)
    if item.distance < item.stages:
        return proved(f"iteration k stages slot k + {item.distance} modulo {item.stages}, and computes on slot k")
    return refuted("a slot is filled again while it is read",
                   f"iteration 0 computes on slot 0 and stages slot {item.distance} % {item.stages} = {item.distance % item.stages}",
                   needs=f"a distance below {item.stages}")


def _independent(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, _ = _loop(program, site)
    written = {r.buffer.name for s in statements(loop.body) for r in _written(s)}
    for s in _staged(loop):
        name = s.src.at.buffer.name
        if name in written:
            return refuted(f"'{name}' is written in the loop", f"iteration 0 stages what iteration 1 reads of '{name}', too early")
        for x in walk(s.src):
            if isinstance(x, n.Load) and x is not s.src and x.at.buffer.name in written:
                return refuted(f"the place of '{name}' depends on '{x.at.buffer.name}', which the loop changes",
                               "iteration 1's place is not known in iteration 0")
    return proved("what is staged, and where it is, does not depend on earlier iterations")


def _written(s: n.Stmt) -> Iterator[n.Region]:
    match s:
        case n.Store():
            yield s.at
        case n.Copy():
            yield s.dst
        case n.Mma():
            yield s.acc
        case _:
            pass


def _past_the_end(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, item = _loop(program, site)
    for s in _staged(loop):
        if not (s.src.clip or s.src.mask is not None):
            text = f"the last {item.distance} iterations stage '{s.src.at.buffer.name}' past the end of the loop"
            trips = build.int_value(loop.hi)
            if trips is not None:
                return refuted(text, f"iteration {trips - 1} stages tile {trips - 1 + item.distance} of {trips}",
                               needs="a clipped or masked load")
            return Verdict("unknown", text, (f"iteration {region_text(s.src.at)} of the last trip plus {item.distance}",),
                           needs="a clipped or masked load")
    return proved("tiles past the end are cut off at the edge of their tensors, and never read")


def _first_inside(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, item = _loop(program, site)
    if not item.inside:
        return proved("tiles are cut off at the edges of their tensors")
    known = Facts.at(program, site.path)
    for k in range(item.distance):
        for s in _staged(loop):
            place = substitute(s.src.at, {loop.var.name: build.const(k, _dtype(loop.var))})
            if s.src.clip and not lies_inside(place, known):
                return unknown(f"{region_text(place)} may reach beyond its tensor", needs="facts that say that tiles fill the tensor, of which there is one")
    return proved("the first tiles lie inside their tensors")


def _filled_first(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, _ = _loop(program, site)
    names = {s.dst.buffer.name for s in _staged(loop)}
    for name in sorted(names):
        for s in loop.body:
            if isinstance(s, n.Copy) and s.dst.buffer.name == name:
                break
            if mentions(s, name):
                return refuted(f"'{name}' is read before the iteration stages it", s.label or type(s).__name__.lower(),
                               needs="the copy before every read")
    return proved("an iteration stages a tile before it reads it")


def _capacity(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, item = _loop(program, site)
    names = {s.dst.buffer.name for s in _staged(loop)}
    total = shared_bytes(kernel_of(program, site.path), lambda b: item.stages if b.name in names else 1)
    return fits_shared(total, context, "fewer stages", what=f"{item.stages} stages need {total} bytes")


@dataclass(frozen=True)
class RingBuffer(Pass):
    """`stages` slots; an iteration stages the tiles that are computed on `distance` iterations later. A single slot that is filled before the
    loop may be filled without a loop of its own (`flat`), and what is filled there lies `inside` its tensor or is cut off at its edge."""

    intent: ClassVar[str] = "pipeline"
    catalogue: ClassVar[tuple[int, ...]] = (18,)
    claim: ClassVar[str] = "Tiles are staged several iterations ahead, so that their latency hides behind the arithmetic in between."
    requires: ClassVar[tuple[str, ...]] = ("shared", "panels")
    provides: ClassVar[tuple[str, ...]] = ("ring",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P183", "validity", "pipeline", "a slot is not filled again before it was read", _slots_apart),
        Precondition("KIR-P184", "validity", "pipeline", "what is staged does not depend on earlier iterations", _independent),
        Precondition("KIR-P185", "validity", "shape", "staging past the end of the loop is harmless", _past_the_end),
        Precondition("KIR-P186", "validity", "storage", "all stages fit in shared memory", _capacity),
        Precondition("KIR-P958", "validity", "shape", "what is staged before the loop lies inside its tensor, or is cut off there", _first_inside),
        Precondition("KIR-P187", "validity", "pipeline", "an iteration stages what it reads first", _filled_first),
    )

    stages: int = 3
    distance: int = 2
    flat: bool = False
    inside: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop that stages whole buffers which nothing outside it uses."""
        if not (isinstance(node, n.For) and node.kind == "serial" and _staged(node)):
            return None
        if not from_zero(node):
            return Miss("the loop does not count from 0 by 1")
        if self.stages < 2 or self.distance < 1:
            return Miss("a ring has two slots or more, and a distance of one or more")
        if self.flat and self.distance > 1:
            return Miss("several slots are filled in a loop")
        if isinstance(why := self._private(program, path, node), Miss):
            return why
        return Site(path, self)

    def _private(self, program: n.Program, path: Path, loop: n.For) -> Miss | None:
        staged = _staged(loop)
        inner = set(bound_names(loop.body))
        within = {id(x) for x in statements(loop.body)}
        for s in staged:
            b = s.dst.buffer
            if sum(1 for x in staged if x.dst.buffer.name == b.name) > 1:
                return Miss(f"'{b.name}' is staged twice in an iteration")
            if b.name in inner:
                return Miss(f"'{b.name}' is declared inside the loop")
            if b.strides is not None or b.layout is not None:
                return Miss(f"'{b.name}' has a layout already")
            if names_read(s) & inner:
                return Miss("what is staged depends on names of the loop's body")
            for x in statements(kernel_of(program, path).body):
                if id(x) not in within and not isinstance(x, n.Alloc) and any(mentions(part, b.name) for part in own_parts(x)):
                    return Miss(f"'{b.name}' is used outside the loop")
        return None

    def _slot(self, k: n.Expr) -> n.Expr:
        return build.mod(k, build.const(self.stages, _dtype(k)))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A ring for each staged buffer, a loop that fills its first slots, and the loop itself."""
        loop, _ = _loop(program, site)
        kernel = kernel_of(program, site.path)
        staged = _staged(loop)
        names = {s.dst.buffer.name: with_slots(s.dst.buffer, self.stages) for s in staged}
        ahead = build.add(loop.var, self.distance)
        first = fresh_var("s", names_in(program, kernel), loop.var.of)

        def moved(s: n.Copy, to: n.Expr, slot: n.Expr) -> n.Copy:
            src: n.Load = substitute(s.src, {loop.var.name: to})
            if self.inside and slot is to:
                src = replace(src, clip=False, other=None)
            return replace(s, src=src, dst=_at(names[s.dst.buffer.name], slot, None))

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(old, n.Region) and old.buffer.name in names:
                assert isinstance(new, n.Region)
                return _at(names[old.buffer.name], self._slot(loop.var), new.index or None)
            return new
        body: list[n.Stmt] = []
        for x in loop.body:
            if isinstance(x, n.Copy) and x in staged:
                body.append(moved(x, ahead, self._slot(ahead)))
            else:
                body.append(transform(x, leave))
        zero = build.const(0, _dtype(loop.var))
        fill = n.For(first, zero, build.const(self.distance, _dtype(loop.var)), build.const(1, _dtype(loop.var)),
                     tuple(replace(moved(s, first, first), label=None) for s in staged))
        fills: n.Block = tuple(replace(moved(s, zero, zero), label=None) for s in staged) if self.flat else (fill,)
        i = int(site.path[-1])
        made = splice(program, site.path, (*fills, replace(loop, body=tuple(body))))
        kernel = transform(kernel_of(made, site.path), lambda old, new: replace(new, buffer=names[new.buffer.name]) if isinstance(
            new, n.Alloc) and new.buffer.name in names else new)
        return Rewritten(replace_kernel(made, kernel.name, kernel), (*site.path[:-1], i + len(fills)))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that stages slots of rings which a loop before it began to fill."""
        if not (isinstance(node, n.For) and node.kind == "serial"):
            return None
        rings = {s.dst.buffer.name: s for s in node.body if isinstance(s, n.Copy) and s.dst.buffer.space == "shared"
                 and s.src.at.buffer.space == "global" and s.dst.index and isinstance(s.dst.index[0], n.Binary)
                 and s.dst.index[0].op == "mod"}
        if not rings:
            return None
        if any(kind_of_copy(s) not in ("plain", "vector") for s in rings.values()):
            return Miss("the copies are asynchronous")
        slot = matched_as(next(iter(rings.values())).dst.index[0], n.Binary)
        stages, distance = build.int_value(slot.b), build.int_value(build.sub(slot.a, node.var))
        if stages is None or distance is None or distance < 1:
            return Miss("the slot is not the iteration plus a distance, modulo the stages")
        fill = _fill(block_at(program, path), int(path[-1]), set(rings))
        if fill is None:
            return Miss("no loop before it fills the first slots")
        first, count, flat = fill
        filling = [x for s in block_at(program, path)[first:first + count] for x in statements((s,)) if isinstance(x, n.Copy)]
        inside = all(s.src.clip for s in rings.values()) and not any(s.src.clip for s in filling)
        return Site(path, RingBuffer(stages, distance, flat, inside), {"fill": first, "fills": count, "rings": tuple(rings)})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One buffer each, staged in the iteration that computes on it."""
        loop, _ = _loop(program, site)
        names = set(site.captures["rings"])
        fill, count, i = int(site.captures["fill"]), int(site.captures["fills"]), int(site.path[-1])

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Buffer) and new.name in names:
                return replace(new, shape=new.shape[1:])
            if isinstance(old, n.Region) and old.buffer.name in names and isinstance(new, n.Region):
                return build.region(replace(old.buffer, shape=old.buffer.shape[1:]), *old.index[1:])
            return new
        back = build.sub(loop.var, self.distance)
        body: list[n.Stmt] = []
        for s in loop.body:
            made = transform(s, leave)
            if isinstance(s, n.Copy) and s.dst.buffer.name in names:
                made = replace(made, src=substitute(s.src, {loop.var.name: back}))
            body.append(made)
        out = edit_block(program, site.path, lambda b: (*b[:fill], *b[fill + count:i], replace(loop, body=tuple(body)), *b[i + 1:]))
        kernel = transform(kernel_of(out, site.path), lambda old, new: replace(new, shape=new.shape[1:]) if isinstance(
            new, n.Buffer) and new.name in names and len(new.shape) == _rank(program, site, new.name) else new)
        return Rewritten(replace_kernel(out, kernel.name, kernel), sibling(site.path, -count))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """Shared memory for the further stages."""
        loop, _ = _loop(program, site)
        each = [byte_count(s.dst.buffer) for s in _staged(loop)]
        return Effect(shared_bytes=None if None in each else sum(x for x in each if x is not None) * (self.stages - 1))


def _dtype(e: n.Expr) -> DType:
    assert isinstance(e.type, DType)
    return e.type


def _at(ring: n.Buffer, slot: n.Expr, index: tuple[n.Expr | n.Span, ...] | None) -> n.Region:
    """A place in a slot; the whole slot without an index."""
    return build.region(ring, slot, *(index if index is not None else tuple(build.span(0, d) for d in ring.shape[1:])))


def _fill(block: n.Block, before: int, names: set[str]) -> tuple[int, int, bool] | None:
    """Where the statements stand that only fill those buffers, how many they are, and whether they are no loop."""
    for k in range(before - 1, -1, -1):
        s = block[k]
        if isinstance(s, n.For) and s.kind == "serial" and {x.dst.buffer.name for x in s.body if isinstance(x, n.Copy)} == names and all(
                isinstance(x, n.Copy) for x in s.body):
            return k, 1, False
        count = len(names)
        run = [x for x in block[max(0, k - count + 1):k + 1] if isinstance(x, n.Copy) and x.dst.index and build.is_const(
            x.dst.index[0] if isinstance(x.dst.index[0], n.Expr) else x.dst.index[0].lo, 0)]
        if len(run) == count and {x.dst.buffer.name for x in run} == names:
            return k - count + 1, count, True
    return None


def _rank(program: n.Program, site: Site, name: str) -> int:
    body = kernel_of(program, site.path).body
    return next(len(s.buffer.shape) for s in statements(body) if isinstance(s, n.Alloc) and s.buffer.name == name)
