"""Gives the copies of a loop to warps of their own, which run ahead as far as there is room, while the others only compute.

pipeline: `warp-specialize@main/rows`

```diff
 kir 1
 program sums
   size M: i32
   in X: f16[M, 64]
   out Y: f16[64]
   map X_map of X box [64, 64]
-kernel main grid (i: 1) threads 128
+kernel main grid (i: 1) threads 256
   shared Xs: f16[64, 64] align 128
-  fragment acc: f32[64] = 0.0
-  @rows for k in 0..ceildiv(M, 64)
-    copy load(X[k * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Xs via tma {descriptor=X_map}
-    acc = acc + reduce(cast(Xs, f32), axis=0, op=sum)
-  Y = cast(acc, f16)
+  shared full: mbarrier[1]
+  shared empty: mbarrier[1]
+  mbar_init(&full[0], 1)
+  mbar_init(&empty[0], 1)
+  fence_mbar_init()
+  roles
+    role producer warps 0..4
+      @rows for k_1 in 0..ceildiv(M, 64)
+        mbar_wait(&empty[0], (k_1 + 1) % 2)
+        mbar_arrive_expect(&full[0], 8192)
+        copy load(X[k_1 * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Xs via tma signal full[0] {descriptor=X_map}
+    role consumer warps 4..8
+      fragment acc: f32[64] = 0.0
+      @rows for k in 0..ceildiv(M, 64)
+        mbar_wait(&full[0], k % 2)
+        acc = acc + reduce(cast(Xs, f32), axis=0, op=sum)
+        mbar_arrive(&empty[0])
+      Y = cast(acc, f16)
```
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.canonical import bound_names, rename
from kir.ir.types import MBARRIER, TileType
from kir.ir.visit import names_read, statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.match import fresh_var, hardware_of, matched_as, node_as, params_as
from kir.rewrite.match.local_buffers import mentions, tile_of
from kir.rewrite.match.materialize import buffers_read, buffers_written

from ._rings import NoRing, Rings, counted, init_at, offset_of, roles_at, started

WARP, WARPGROUP = 32, 128


def is_load(s: n.Stmt) -> bool:
    """Whether a statement copies boxes to shared memory that nobody but the whole team waits for."""
    match s:
        case n.Copy():
            return s.via == "tma" and s.signal is None and not s.grouped and s.dst.buffer.space == "shared" and tile_of(n.Load(s.dst)) is not None
        case n.For():
            trips = (int_value(s.lo), int_value(s.hi), int_value(s.step))
            return s.kind in ("serial", "unroll") and None not in trips and bool(s.body) and all(map(is_load, s.body))
        case _:
            return False


def brought_bytes(s: n.Stmt) -> int:
    """Bytes that such a statement brings."""
    if isinstance(s, n.Copy):
        return math.prod(tile_of(n.Load(s.dst)) or ()) * s.dst.buffer.dtype.bytes
    assert isinstance(s, n.For)
    trips = range(int_value(s.lo) or 0, int_value(s.hi) or 0, int_value(s.step) or 1)
    return len(trips) * sum(map(brought_bytes, s.body))


def _parts(program: n.Program, path: Path, apart: bool = False, after: int = 0) -> tuple[n.Block, n.Block]:
    """The loads that a loop's body begins with after so many statements (`apart`: all of them), views among them left out, and the rest of it."""
    loop = node_as(program, path, n.For)
    if apart:
        return tuple(s for s in loop.body if is_load(s)), tuple(s for s in loop.body if not is_load(s))
    count = next((i for i, s in enumerate(loop.body) if i >= after and not is_load(s) and not isinstance(s, n.View)), len(loop.body))
    return tuple(s for s in loop.body[after:count] if is_load(s)), tuple(
        s for i, s in enumerate(loop.body) if not after <= i < count or not is_load(s))


def filled_by(loads: n.Block) -> set[str]:
    """The shared memory that statements copy to."""
    return {x.dst.buffer.name for s in loads for x in walk(s) if isinstance(x, n.Copy)}


def _room(program: n.Program, site: Site, context: Context) -> Verdict:
    total = (int_value(kernel_of(program, site.path).threads) or 0) + WARPGROUP
    hardware = hardware_of(context, "sm_90a").architecture
    if total > hardware.max_threads_per_cta:
        return refuted(f"{total} threads with the producer's; a CTA of {hardware.name} has at most {hardware.max_threads_per_cta}",
                       f"thread {hardware.max_threads_per_cta} does not exist", needs=f"at most {hardware.max_threads_per_cta - WARPGROUP} threads")
    return proved(f"{total} of the {hardware.max_threads_per_cta} threads that a CTA may have")


def _ahead(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, WarpSpecialize)
    loads, rest = _parts(program, site.path, item.apart, item.after)
    written = buffers_written(rest) | {"*"} & buffers_written(rest)
    for s in loads:
        for x in walk(s):
            if isinstance(x, n.Copy):
                read = buffers_read(x.src) | {x.src.at.buffer.name}
                if read & written:
                    return refuted(f"'{min(read & written)}' is written by those that compute, and read by those that run ahead",
                                   "iteration 1 copies it before iteration 0 has written it", needs="copies of what the loop does not change")
    return proved("what is copied, and where it is, does not depend on what is computed")


def _given_back(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, WarpSpecialize)
    apart = item.apart
    loop, (loads, rest) = node_as(program, site.path, n.For), _parts(program, site.path, apart, item.after)
    names = filled_by(loads)
    for k, s in enumerate(loop.body if apart else ()):
        for name in sorted(filled_by((s,)) if is_load(s) else ()):
            if any(mentions(x, name) for x in loop.body[:k] if not isinstance(x, n.View)):
                return refuted(f"'{name}' is used before it is filled, when its slot of the iteration before is given back already", name,
                               needs=f"'{name}' used after its copy alone")
    inside = {id(x) for x in statements((loop,))}
    for s in statements(kernel_of(program, site.path).body):
        if isinstance(s, n.Alloc) or id(s) in inside or any(id(x) in inside for x in statements((s,)) if x is not s):
            continue
        for name in sorted(names):
            if mentions(s, name):
                return refuted(f"'{name}' is used outside of the loop, where its slot is given back already", s.label or type(s).__name__.lower(),
                               needs=f"'{name}' in the loop alone")
    for name in sorted(names & buffers_written(rest)):
        return refuted(f"'{name}' is written by those that compute, too", "two writers of one slot", needs="memory of its own")
    return proved("a slot is filled by the producer alone, and read between its two mbarriers alone")


@dataclass(frozen=True)
class WarpSpecialize(Pass):
    """One warpgroup in front of the others copies, and there is one stage (`deepen-ring` makes more). The copies that a loop begins with, `after` so
    many declarations, share their mbarriers; `apart`, each copy, wherever it stands, has a ring of its own: it is waited for where it stood, and its slot
    given back after its last use."""

    intent: ClassVar[str] = "warp-specialize"
    catalogue: ClassVar[tuple[int, ...]] = (27,)
    claim: ClassVar[str] = "Copies are issued as soon as there is room, by warps that wait for nothing else and hold no results."
    requires: ClassVar[tuple[str, ...]] = ("tma",)
    provides: ClassVar[tuple[str, ...]] = ("roles",)
    conflicts: ClassVar[tuple[str, ...]] = ("roles",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P750", "validity", "hardware", "the CTA has room for one more warpgroup", _room),
        Precondition("KIR-P751", "validity", "aliasing", "what is copied does not depend on what is computed", _ahead),
        Precondition("KIR-P752", "validity", "pipeline", "what the copies fill is used in the loop alone, after them", _given_back),
    )

    apart: bool = False
    after: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop of the CTA that begins with loads of boxes (`apart`: that has some)."""
        if not (isinstance(node, n.For) and len(path) == 2 and any(map(is_load, node.body))):
            return None
        loads, rest = _parts(program, path, self.apart, self.after)
        if not loads or (self.after and self.apart):
            return Miss("the loop computes before it copies")
        if not _declares(node.body[:self.after], loads):
            return Miss("what stands before the copies does more than declare what they do not depend on")
        kernel = kernel_of(program, path)
        if (int_value(kernel.threads) or 1) % WARP:
            return Miss("the CTA is not of whole warps")
        if not counted(node) or not rest:
            return Miss("the loop does not count from 0 by 1, or only copies")
        if any(isinstance(s, n.Jump) for s in statements(kernel.body)):
            return Miss("a loop may be left early, and the other role would not know")
        if any(isinstance(s, n.Alloc) and s.buffer.dtype == MBARRIER for s in statements(kernel.body)) or roles_at(kernel):
            return Miss("the kernel has mbarriers or roles already")
        if any(is_load(s) for s in statements(rest)):
            return Miss("the loop copies again after it has begun to compute")
        for s in (*kernel.body[:int(path[1])], *kernel.body[int(path[1]) + 1:]):
            if isinstance(s, (n.Let, n.Alloc, n.View)) and not isinstance(s, n.Let) and s.buffer.space == "shared" and kernel.body.index(s) > int(path[1]):
                return Miss("shared memory is declared after the loop")
        both = _shared(kernel, int(path[1]), loads)
        inner = {x for s in kernel.body if s not in both for x in _tiles(s)}
        if any(names_read(s) & inner for s in loads):
            return Miss("what is copied depends on tiles")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Two roles, and an mbarrier each for a full and an empty slot."""
        kernel, i = kernel_of(program, site.path), int(site.path[1])
        loop = matched_as(kernel.body[i], n.For)
        loads, rest = _parts(program, site.path, self.apart, self.after)
        taken = names_in(program, kernel)
        rings = [_Ring(group, *(n.Buffer(fresh(f"{prefix}{x}", taken), MBARRIER, (build.const(1),), "shared") for x in ("full", "empty")))
                 for group, prefix in ([((s,), f"{min(filled_by((s,)))}_") for s in loads] if self.apart else [(loads, "")])]
        both = _shared(kernel, i, loads)
        front = tuple(s for s in kernel.body[:i] if _is_front(s) or s in both)
        before = tuple(s for s in kernel.body[:i] if s not in front)
        own = fresh_var(loop.var.name, taken, loop.var.of)
        again = {loop.var.name: own.name} | {x: fresh(x, taken) for x in bound_names(loads)}
        lead = tuple(x for ring in rings for x in ring.brought(own, again))
        follow: n.Block
        if self.apart:
            follow = _used(loop, rings)
        else:
            follow = (*rest[:self.after], rings[0].awaited(loop.var), *rest[self.after:], rings[0].given_back())
        threads = int_value(kernel.threads) or 0
        first = WARPGROUP // WARP
        roles = n.Roles((n.Role("producer", 0, first, (replace(loop, var=own, body=lead),)),
                         n.Role("consumer", first, first + threads // WARP, (*before, replace(loop, body=follow), *kernel.body[i + 1:]))))
        bars = {b.name: b for ring in rings for b in (ring.full, ring.empty)}
        init = started(dict.fromkeys(bars, 1), bars, 1, "s")
        body = (*front, *map(n.Alloc, bars.values()), *init, roles)
        made = replace(kernel, threads=build.const(threads + WARPGROUP), body=body)
        return Rewritten(replace_kernel(program, kernel.name, made), (kernel.name, len(body) - 1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a producer and a consumer of a ring of one stage."""
        if not (isinstance(node, n.Roles) and len(path) == 2):
            return None
        apart = len(node.roles[0].body) == 1 and isinstance(loop := node.roles[0].body[0], n.For) and sum(
            isinstance(s, n.Eval) and s.call.fn == "mbar_wait" for s in loop.body) > 1
        after = 0 if apart else _before_wait(node.roles[-1])
        item = WarpSpecialize(apart, after)
        try:
            item._merged(program, path)
        except NoRing as why:
            return Miss(str(why))
        return Site(path, item)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One team, which waits for its copies."""
        kernel, at = self._merged(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, kernel), (kernel.name, at))

    def _merged(self, program: n.Program, path: Path) -> tuple[n.Kernel, int]:
        kernel = kernel_of(program, path)
        rings = Rings.of(kernel)
        at, count, counts, _ = init_at(kernel, rings)
        roles = matched_as(kernel.body[int(path[1])], n.Roles)
        if rings.stages != 1 or len(roles.roles) != 2 or (len(rings.bars) != 2 and not self.apart) or set(counts.values()) != {1} or rings.once:
            raise NoRing("more than one stage, two roles, or two mbarriers of one arrival each")
        lead, follow = roles.roles
        if any(r.registers for r in roles.roles) or (lead.lo, lead.hi) != (0, WARPGROUP // WARP) or follow.lo != lead.hi:
            raise NoRing("roles have registers of their own, or the producer is not the first warpgroup")
        if len(lead.body) != 1 or not isinstance(produced := lead.body[0], n.For) or not counted(produced):
            raise NoRing("the producer does more than one loop")
        k = next((i for i, s in enumerate(follow.body) if isinstance(s, n.For) and any(mentions(s, x) for x in rings.bars)), None)
        consumed = follow.body[k] if k is not None else None
        if k is None or not isinstance(consumed, n.For) or (consumed.hi, consumed.kind) != (produced.hi, produced.kind) or not counted(consumed):
            raise NoRing("the consumer's loop is not as long as the producer's")
        rest = self._filled_in(produced, consumed)
        if any(mentions(s, x) for s in (*follow.body[:k], *rest, *follow.body[k + 1:]) for x in rings.bars):
            raise NoRing("the consumer uses its mbarriers elsewhere too")
        front = tuple(s for i, s in enumerate(kernel.body[:-1]) if not (at <= i < at + count) and not (
            isinstance(s, n.Alloc) and s.buffer.name in rings.bars))
        body = (*front, *follow.body[:k], replace(consumed, body=rest), *follow.body[k + 1:])
        threads = WARP * (follow.hi - follow.lo)
        return replace(kernel, threads=build.const(threads), body=body), len(front) + k

    def _filled_in(self, produced: n.For, consumed: n.For) -> n.Block:
        """The consumer's code with the producer's loads, and without its mbarriers. Raises NoRing."""
        waits = [i for i, s in enumerate(produced.body) if isinstance(s, n.Eval) and s.call.fn == "mbar_wait"]
        if not waits or waits[0]:
            raise NoRing("the producer does not wait before it copies")
        body = consumed.body
        for lo, hi in zip(waits, [*waits[1:], len(produced.body)], strict=True):
            if hi - lo < 3:
                raise NoRing("the producer waits, and copies nothing")
            free, expect, *loads = produced.body[lo:hi]
            full, empty = _bar(expect, "mbar_arrive_expect"), _bar(free, "mbar_wait")
            first = next((i for i, s in enumerate(body) if isinstance(s, n.Eval) and s.call.fn == "mbar_wait" and mentions(s, full.buffer.name)), None)
            back = next((i for i, s in enumerate(body) if isinstance(s, n.Eval) and s.call.fn == "mbar_arrive" and mentions(s, empty.buffer.name)), None)
            if first is None or back is None or back < first or full == empty or (_bar(body[first], "mbar_wait"), _bar(body[back], "mbar_arrive")) != (
                    full, empty):
                raise NoRing("roles do not wait for each other in turn")
            late = bool(self.after) and (first != self.after or not _declares(body[:first], tuple(loads)))
            if not self.apart and (back != len(body) - 1 or late or (not self.after and any(
                    not isinstance(s, n.View) for s in body[:first]))):  # views touch nothing
                raise NoRing("the consumer waits late, or gives a slot back early")
            if offset_of(_parity(free), produced.var, 1) != 1 or offset_of(_parity(body[first]), consumed.var, 1) != 0:
                raise NoRing("a role waits for the other phase")
            plain = tuple(silent(rename(s, {produced.var.name: consumed.var.name}), full) for s in loads)
            if not all(map(is_load, plain)) or (self.apart and len(plain) > 1) or _expected(expect) != sum(map(brought_bytes, plain)):
                raise NoRing("other bytes are expected than are copied")
            if self.apart:
                body = (*body[:first], *plain, *body[first + 1:back], *body[back + 1:])
            else:
                body = (*body[:self.after], *plain, *body[self.after:first], *body[first + 1:back])
        return body

    def effect(self, program: n.Program, site: Site) -> Effect:
        """Two mbarriers a ring."""
        return Effect(shared_bytes=16 * (len(_parts(program, site.path, True)[0]) if self.apart else 1))


@dataclass(frozen=True)
class _Ring:
    """Loads, and the mbarriers of their slot."""

    loads: n.Block
    full: n.Buffer
    empty: n.Buffer

    def brought(self, k: n.Var, names: dict[str, str]) -> n.Block:
        """What the producer does in iteration k."""
        total = sum(map(brought_bytes, self.loads))
        return (n.Eval(build.call("mbar_wait", build.region(self.empty, 0), build.mod(build.add(k, 1), 2))),
                n.Eval(build.call("mbar_arrive_expect", build.region(self.full, 0), build.const(total))),
                *(signaling(rename(s, names), build.region(self.full, 0)) for s in self.loads))

    def awaited(self, k: n.Var) -> n.Stmt:
        """The consumer's wait in iteration k."""
        return n.Eval(build.call("mbar_wait", build.region(self.full, 0), build.mod(k, 2)))

    def given_back(self) -> n.Stmt:
        """The consumer is done with the slot."""
        return n.Eval(build.call("mbar_arrive", build.region(self.empty, 0)))


def _used(loop: n.For, rings: list[_Ring]) -> n.Block:
    """A loop's body with a wait for each load, and its slot given back after the last statement that uses it or a view of it."""
    ends: dict[int, list[_Ring]] = {}
    for ring in rings:
        names = filled_by(ring.loads)
        names |= {s.buffer.name for s in loop.body if isinstance(s, n.View) and s.at.buffer.name in names}
        ends.setdefault(max(i for i, s in enumerate(loop.body) if not isinstance(s, n.View) and any(mentions(s, x) for x in names)), []).append(ring)
    out: list[n.Stmt] = []
    for i, s in enumerate(loop.body):
        first = next((r for r in rings if r.loads[0] is s), None)
        out.append(s if first is None else first.awaited(loop.var))
        out += [r.given_back() for r in ends.get(i, ())]
    return tuple(out)


def _declares(block: n.Block, loads: n.Block) -> bool:
    """Whether statements only declare values and fragments that loads do not depend on, from memory that they do not fill."""
    names, filled = set(bound_names(block)), filled_by(loads)
    return all((isinstance(s, n.Let) or (isinstance(s, n.Alloc) and s.buffer.space in ("fragment", "register"))) and not any(
        mentions(s, x) for x in filled) for s in block) and not any(names & names_read(s) for s in loads)


def _before_wait(role: n.Role) -> int:
    """How many statements of a consumer's loop stand before its wait; 0 where they are views alone."""
    for s in role.body:
        if isinstance(s, n.For):
            first = next((i for i, x in enumerate(s.body) if isinstance(x, n.Eval) and x.call.fn == "mbar_wait"), 0)
            return 0 if all(isinstance(x, n.View) for x in s.body[:first]) else first
    return 0


def _is_front(s: n.Stmt) -> bool:
    """Whether a statement stands before the roles: scalars, shared memory, and views of global memory."""
    return (isinstance(s, n.Let) and not isinstance(s.value.type, TileType) and not any(isinstance(x, n.Load) for x in walk(s.value))) or (
        isinstance(s, n.Alloc) and s.buffer.space == "shared" and s.init is None) or (isinstance(s, n.View) and s.buffer.space == "global")


def _shared(kernel: n.Kernel, i: int, loads: n.Block) -> tuple[n.Let, ...]:
    """The scalars before statement `i`, a loop, that are read from memory which the kernel does not write, and what is worked out of them; none, where
    neither the loop's end nor the places of the loads nor what stands before the roles depend on any."""
    written, apart, out = buffers_written(kernel.body), set[str](), list[n.Let]()
    for s in kernel.body[:i]:
        if _is_front(s):
            continue
        if isinstance(s, n.Let) and not isinstance(s.value.type, TileType) and "*" not in written and not apart & names_read(s) and all(
                x.at.buffer.space == "global" and x.at.buffer.name not in written for x in walk(s.value) if isinstance(x, n.Load)):
            out.append(s)
        else:
            apart |= set(bound_names((s,)))
    names = {x for s in out for x in s.names}
    used = (matched_as(kernel.body[i], n.For).hi, *loads, *(s for s in kernel.body[:i] if _is_front(s)))
    return tuple(out) if any(names_read(s) & names for s in used) else ()


def _tiles(s: n.Stmt) -> set[str]:
    """Names of what a consumer alone has."""
    return set(bound_names((s,))) if not _is_front(s) and not isinstance(s, n.For) else set()


def signaling(s: n.Stmt, bar: n.Region) -> n.Stmt:
    """Loads that complete on an mbarrier."""
    if isinstance(s, n.Copy):
        return replace(s, signal=bar)
    assert isinstance(s, n.For)
    return replace(s, body=tuple(signaling(x, bar) for x in s.body))


def silent(s: n.Stmt, bar: n.Region) -> n.Stmt:
    """The same loads without their mbarrier. Raises NoRing for another statement."""
    match s:
        case n.Copy() if s.signal == bar:
            return replace(s, signal=None)
        case n.For():
            return replace(s, body=tuple(silent(x, bar) for x in s.body))
        case _:
            raise NoRing("the producer does more than copy to its ring")


def _bar(s: n.Stmt, fn: str) -> n.Region:
    if not (isinstance(s, n.Eval) and s.call.fn == fn and isinstance(r := s.call.args[0], n.Region) and r.index == (build.const(0),)):
        raise NoRing(f"a role has no '{fn}' where this pass puts it")
    return r


def _parity(s: n.Stmt) -> n.Expr:
    assert isinstance(s, n.Eval)
    e = matched_as(s.call.args[1], n.Expr)
    return e


def _expected(s: n.Stmt) -> int | None:
    return int_value(_parity(s))
