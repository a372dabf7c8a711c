"""Takes the last iteration out of a loop, so that the loop itself needs no masks.

pipeline: `specialize-tail@main/k`

```diff
 kir 1
 program sums
   in X: f32[K, 64]
   out S: f32[64]
   size K: i32
   fact K >= 1
 kernel main grid (i: 1) threads 128
   fragment acc: f32[64] = 0.0
-  @k for k in 0..ceildiv(K, 32)
-    let x = load(X[k * 32 +: 32, 0 +: 64] else 0.0 clip)
+  @k for k in 0..ceildiv(K, 32) - 1
+    let x = X[k * 32 +: 32, 0 +: 64]
     let s = reduce(x, axis=0, op=sum)
     acc = acc + s
+  let x_1 = load(X[ceildiv(K, 32) * 32 - 32 +: 32, 0 +: 64] else 0.0 clip)
+  let s_1 = reduce(x_1, axis=0, op=sum)
+  acc = acc + s_1
   S = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.clipping import settle_clips
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import rename
from kir.ir.types import dtype_of
from kir.ir.visit import substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, decided, refuted
from kir.rewrite.edit import kernel_of, names_in, replace_stmts
from kir.rewrite.match import block_and_index, edited, fresh_names, is_counted, matched_as, node_as


def _runs(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    known = Facts.at(program, site.path)
    trips = known.domain(known.expanded(loop.hi))
    if trips.hi is not None and trips.hi < 1:
        return refuted("the loop never runs, so it has no last iteration", f"its end is {trips}")
    return decided(build.binary("ge", loop.hi, build.const(1, dtype_of(loop.hi.type))), known, "the loop has an iteration",
                   "the loop has no iteration at all", needs="a fact that it has at least one")


@dataclass(frozen=True)
class SpecializeTail(Pass):
    """No parameters: the last iteration is the one."""

    intent: ClassVar[str] = "specialize-tail"
    catalogue: ClassVar[tuple[int, ...]] = (53,)
    claim: ClassVar[str] = "Only the last iteration can hang over the edge, so only it is masked."
    provides: ClassVar[tuple[str, ...]] = ("peeled",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P530", "validity", "shape", "the loop runs at least once", _runs),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over tiles whose accesses hang over the edge only in its last iteration."""
        if not is_counted(node, ("serial", "pipelined")):
            return None
        if any(isinstance(x, (n.Jump, n.Alloc)) for s in node.body for x in walk(s)):
            return Miss("the body leaves early, or declares memory of its own")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop without its last iteration, and that iteration behind it."""
        loop, kernel = node_as(program, site.path, n.For), kernel_of(program, site.path)
        taken = names_in(program, kernel)
        names = fresh_names(loop.body, taken)
        last = {loop.var.name: build.sub(loop.hi, 1)}
        tail = tuple(replace(copy, label=None) for s in loop.body  # type: ignore[type-var]  # every Stmt is a dataclass
                     if isinstance(copy := substitute(rename(s, names), last), n.Stmt))
        made = replace_stmts(program, site.path, (replace(loop, hi=build.sub(loop.hi, 1)), *tail))
        return self._settled(made, site)

    def _settled(self, made: n.Program, site: Site) -> Rewritten:
        """What is clipped inside the loop need not be where its new range shows that it stays inside."""
        loop = node_as(made, site.path, n.For)
        bare = matched_as(settle_clips(replace(kernel_of(made, site.path), body=(loop,)), made.facts).body[0], n.For)
        settled = _with_clips(loop, [new if old.clip else old for old, new in zip(_accesses(loop), _accesses(bare), strict=True)])
        return edited(made, site.path, (settled,))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that is followed by one more copy of its body."""
        if not is_counted(node, ("serial", "pipelined")):
            return None
        (block, i), size = block_and_index(program, path), len(node.body)
        tail = block[i + 1:i + 1 + size]
        if len(tail) != size or [type(s) for s in tail] != [type(s) for s in node.body]:
            return None
        return Site(path, self)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop with the iteration behind it put back in."""
        loop = node_as(program, site.path, n.For)
        (block, i), size = block_and_index(program, site.path), len(loop.body)
        tail = replace(loop, body=block[i + 1:i + 1 + size])
        whole = _with_clips(replace(loop, hi=build.add(loop.hi, 1)), _accesses(tail))
        return edited(program, site.path, (whole,), 0, 1 + size)


def _accesses(loop: n.For) -> list[n.Load | n.Store]:
    """The loads and stores of a loop, in one order."""
    out: list[n.Load | n.Store] = []

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(old, (n.Load, n.Store)):
            out.append(old)
        return new
    transform(loop, leave)
    return out


def _with_clips(loop: n.For, said: list[n.Load | n.Store]) -> n.For:
    """The loop with each access clipped as its counterpart of `said` is."""
    if [(type(x), x.at.buffer.space) for x in said] != [(type(x), x.at.buffer.space) for x in _accesses(loop)]:
        return loop  # no copy of it, then: the result does not lead back
    like = iter(said)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Load():
                model = matched_as(next(like), n.Load)
                return new if new.clip == model.clip else replace(new, clip=model.clip, other=model.other)
            case n.Store():
                return replace(new, clip=next(like).clip)
            case _:
                return new
    made: n.For = transform(loop, leave)
    return made
