"""Issues the products of two iterations of a loop before the result of either is used.

A warpgroup that computes on each product's result (scales it, and adds it to a sum in f32) lets tensor cores idle meanwhile, unless another has one for
them. Of a pair of products, the second is in flight while the first one's result is used.

pipeline: `pair-products@main/roles/consumer/blocks`

```diff
 kir 1
 program scaled
   in A: f16[64, K]
   in B: f16[K, 64]
   in S: f32[ceildiv(K, 64)]
   out C: f32[64, 64]
   size K: i32
   fact K % 8 == 0
   fact K >= 1
   map A_map of A box [64, 64] {swizzle=128}
   map B_map of B box [64, 64] {swizzle=128}
 kernel main grid (i: 1) threads 256
   shared As: f16[2, 64, 64] layout swizzle(3, 4, 3) align 1024
   shared Bs: f16[2, 64, 64] layout swizzle(3, 4, 3) align 1024
   shared full: mbarrier[2]
   shared empty: mbarrier[2]
   for s in 0..2 unroll {factor=2}
     mbar_init(&full[s], 1)
     mbar_init(&empty[s], 1)
   fence_mbar_init()
   roles
     role producer warps 0..4
       for k in 0..ceildiv(K, 64)
         mbar_wait(&empty[k % 2], (k // 2 + 1) % 2)
         mbar_arrive_expect(&full[k % 2], 16384)
         copy load(A[0 +: 64, k * 64 +: 64] else 0.0:f16 clip) -> As[k % 2, 0 +: 64, 0 +: 64] via tma signal full[k % 2] {descriptor=A_map}
         copy load(B[k * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Bs[k % 2, 0 +: 64, 0 +: 64] via tma signal full[k % 2] {descriptor=B_map}
     role consumer warps 4..8
       fragment acc: f32[64, 64] = 0.0
-      @blocks for j in 0..ceildiv(K, 64)
+      for pair in 0..ceildiv(K, 64) // 2
+        fragment part_1: f32[64, 64] = 0.0
+        mbar_wait(&full[pair * 2 % 2], pair * 2 // 2 % 2)
+        wgmma_fence()
+        mma part_1 += As[pair * 2 % 2, 0 +: 64, 0 +: 64] * Bs[pair * 2 % 2, 0 +: 64, 0 +: 64] via wgmma pending
+        wgmma_commit()
+        fragment part_2: f32[64, 64] = 0.0
+        mbar_wait(&full[(pair * 2 + 1) % 2], (pair * 2 + 1) // 2 % 2)
+        wgmma_fence()
+        mma part_2 += As[(pair * 2 + 1) % 2, 0 +: 64, 0 +: 64] * Bs[(pair * 2 + 1) % 2, 0 +: 64, 0 +: 64] via wgmma pending
+        wgmma_commit()
+        let scale_1 = S[pair * 2]
+        wgmma_wait(1)
+        mbar_arrive(&empty[pair * 2 % 2])
+        acc = acc + part_1 * scale_1
+        let scale_2 = S[pair * 2 + 1]
+        wgmma_wait(0)
+        mbar_arrive(&empty[(pair * 2 + 1) % 2])
+        acc = acc + part_2 * scale_2
+      @blocks for j in ceildiv(K, 64) // 2 * 2..ceildiv(K, 64)
         fragment part: f32[64, 64] = 0.0
         mbar_wait(&full[j % 2], j // 2 % 2)
         wgmma_fence()
         mma part += As[j % 2, 0 +: 64, 0 +: 64] * Bs[j % 2, 0 +: 64, 0 +: 64] via wgmma pending
         wgmma_commit()
         let scale = S[j]
         wgmma_wait(0)
         mbar_arrive(&empty[j % 2])
         acc = acc + part * scale
-      C[0 +: 64, 0 +: 64] = acc
+      C = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.types import I32
from kir.ir.visit import buffers_named, names_read, statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.match import block_and_index, edited, fresh_names, fresh_var, is_counted, names_at, node_as
from kir.rewrite.match.materialize import buffers_written
from kir.rewrite.precondition import decided

from ..loops.split_loop import moved


def _counts(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    return decided(build.compare("ge", loop.hi, 0), Facts.at(program, site.path), "the loop's end does not lie before its beginning",
                   "the loop may end before it begins")


def _arrives(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    for s in _parts(loop)[0]:
        if (r := _bar(s, "mbar_wait")) is None:
            continue
        stages = build.int_value(r.buffer.shape[0])
        if stages is None or not _next_slot(r.index[0], loop.var, stages):
            return unknown(f"'{r.buffer.name}' is waited for at a place that is no slot of a ring", needs="slots in turn")
        if stages < 2:
            return refuted("the only stage is given back after the second product has been issued, which waits for that stage",
                           "iteration 1 waits for a tile that may not be copied before iteration 0 has given its stage back", needs="two stages or more")
    return proved("while one stage is held back, the next arrives")


def _apart(program: n.Program, site: Site, context: Context) -> Verdict:
    head, tail = _parts(node_as(program, site.path, n.For))
    own = {s.buffer.name for s in head if isinstance(s, n.Alloc)}
    made = own | {x for s in head if isinstance(s, n.Let) for x in s.names}
    bars = {r.buffer.name for s in tail if (r := _bar(s, "mbar_arrive")) is not None}
    late = buffers_written(tail) | {x for s in tail if isinstance(s, n.Let) for x in s.names}
    used = {x for s in head for x in (*names_read(s), *buffers_named(s))}
    if clash := (late & used) - made:
        return refuted(f"what is issued reads '{min(clash)}', which the iteration before computes after its product",
                       "iteration 1 reads it before iteration 0 has", needs="a product that needs no other's result")
    if late & own or bars & used:
        return unknown("what is computed on a result is written where the next product reads", needs="memory of their own")
    if clash := buffers_written(head) - own - {r.buffer.name for s in head if (r := _bar(s, "mbar_wait")) is not None}:
        return unknown(f"'{min(clash)}' is written before the product is issued", needs="writes of the product alone")
    return proved("the second product needs nothing of the first one's result")


@dataclass(frozen=True)
class PairProducts(Pass):
    """No parameters."""

    intent: ClassVar[str] = "split-phase-barrier"
    catalogue: ClassVar[tuple[int, ...]] = (36,)
    claim: ClassVar[str] = "Tensor cores have a product to work on while a warpgroup computes on the result of another."
    requires: ClassVar[tuple[str, ...]] = ("wgmma", "ring")
    provides: ClassVar[tuple[str, ...]] = ("paired",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P996", "validity", "shape", "the loop's end does not lie before its beginning", _counts),
        Precondition("KIR-P997", "validity", "pipeline", "the second stage can arrive while the first is held back", _arrives),
        Precondition("KIR-P998", "validity", "aliasing", "neither product needs the other's result", _apart),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop from 0 by 1, each iteration of which waits for a product of its own, and then computes on the result."""
        if not is_counted(node, of=I32) or len(path) < 2 or not isinstance(node, n.For):
            return None
        head, tail = _parts(node)
        if not head or any(isinstance(x, n.Jump | n.Opaque | n.Hole | n.Roles | n.While) for x in statements(node.body)):
            return Miss("an iteration issues no product whose result it waits for")
        acc = next(s.acc.buffer.name for s in head if isinstance(s, n.Mma))
        waits = [s for s in statements(tail) if _is(s, "wgmma_wait")]
        if len(waits) != 1 or waits[0] not in tail or waits[0] != _wait(0) or sum(isinstance(s, n.Mma) for s in statements(node.body)) != 1:
            return Miss("an iteration has several products, or waits for none or several")
        if not any(isinstance(s, n.Alloc) and s.buffer.name == acc for s in head):
            return Miss("the product adds to what other iterations left")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over pairs, and one over an iteration that is left."""
        loop = node_as(program, site.path, n.For)
        pairs, rest = _paired(loop, names_at(program, site.path))
        return edited(program, site.path, (pairs, rest), at=1)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the loop over an iteration that is left of pairs."""
        if not isinstance(node, n.For) or len(path) < 2 or node.lo != _even(node.hi) or not int(path[-1]):
            return None
        block, i = block_and_index(program, path)
        before, loop = block[i - 1], replace(node, lo=build.const(0))
        if not isinstance(before, n.For) or not all(_parts(loop)):
            return Miss("no loop over pairs stands before it")
        made, _ = _paired(loop, names_at(program, path))
        theirs, ours = (list(dict.fromkeys((x.var.name, *bound_names(x.body)))) for x in (made, before))
        if len(theirs) != len(ours) or rename(made, dict(zip(theirs, ours, strict=True)), labels=False) != rename(before, {}, labels=False):
            return Miss("what stands before it is no loop over pairs of its iterations")
        return Site(path, PairProducts(), {"loop": loop})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop, each product waited for before the next."""
        return edited(program, site.path, (site.captures["loop"],), -1, 1, at=-1)


def _paired(loop: n.For, taken: set[str]) -> tuple[n.For, n.For]:
    """A loop over pairs of iterations, and over one that is left."""
    pair = fresh_var("pair", taken)
    halves = []
    for k in range(2):
        names = fresh_names(loop.body, taken)
        one = replace(loop, body=tuple(moved(rename(s, names, labels=False), loop.var.name, build.add(build.mul(pair, 2), k)) for s in loop.body))
        halves.append(_parts(one))
    (head, tail), (other, late) = halves
    first = tuple(_wait(1) if s == _wait(0) else s for s in tail)
    body = (*head, *other, *first, *late)
    return (n.For(pair, build.const(0), build.floordiv(loop.hi, 2), build.const(1), body), replace(loop, lo=_even(loop.hi)))


def _even(trips: n.Expr) -> n.Expr:
    """Iterations that have a partner."""
    return build.mul(build.floordiv(trips, 2), 2)


def _parts(loop: n.For) -> tuple[n.Block, n.Block]:
    """What an iteration does up to the product's commit, and what it does on; nothing where no product is in flight."""
    at = next((i for i, s in enumerate(loop.body) if isinstance(s, n.Mma) and s.via == "wgmma" and s.pending), None)
    if at is None or at + 1 >= len(loop.body) or not _is(loop.body[at + 1], "wgmma_commit"):
        return (), ()
    return loop.body[:at + 2], loop.body[at + 2:]


def _is(s: n.Stmt, fn: str) -> bool:
    return isinstance(s, n.Eval) and s.call.fn == fn


def _wait(pending: int) -> n.Stmt:
    return n.Eval(build.call("wgmma_wait", build.const(pending)))


def _bar(s: n.Stmt, fn: str) -> n.Region | None:
    """The slot of a ring's barriers that a statement waits for or arrives on."""
    region = s.call.args[0] if isinstance(s, n.Eval) and s.call.fn == fn else None
    return region if isinstance(region, n.Region) and len(region.index) == 1 else None


def _next_slot(index: n.Expr | n.Span, var: n.Var, stages: int) -> bool:
    """Whether a slot is that of a count, which goes on by one with each iteration, modulo so many."""
    if stages == 1:
        return True
    if not (isinstance(index, n.Binary) and index.op == "mod" and build.int_value(index.b) == stages):
        return False
    terms = build.polynomial(index.a)
    return terms.get((var,)) == 1 and not any(var.name in {x.name for e in m for x in walk(e) if isinstance(x, n.Var)} for m in terms if m != (var,))
