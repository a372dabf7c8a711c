"""Lets two warpgroups take the tiles of a CTA in turn: while one stores its tile, the tensor cores work on the other's.

pipeline: `ping-pong@main/teams`

```diff
 kir 1
 program product
   in A: f16[M, 128]
   in B: f16[128, 64]
   out C: f32[M, 64]
   size M: i32
   fact M % 64 == 0
   map Am of A box [64, 64] {swizzle=128}
   map Bm of B box [64, 64] {swizzle=128}
-kernel main grid (pid: 1) threads 256
+kernel main grid (pid: 1) threads 384
   shared As: f16[2, 64, 64] layout swizzle(3, 4, 3) align 1024
   shared Bs: f16[2, 64, 64] layout swizzle(3, 4, 3) align 1024
   shared full: mbarrier[2]
   shared empty: mbarrier[2]
+  shared turn: mbarrier[1]
   for s in 0..2 unroll {factor=2}
     mbar_init(&full[s], 1)
     mbar_init(&empty[s], 1)
+  mbar_init(&turn[0], 1)
   fence_mbar_init()
   @teams roles
     role producer warps 0..4
       for i in 0..M // 64
         for k in 0..2
           mbar_wait(&empty[(i * 2 + k) % 2], ((i * 2 + k) // 2 + 1) % 2)
           mbar_arrive_expect(&full[(i * 2 + k) % 2], 16384)
           copy A[i * 64 +: 64, k * 64 +: 64] -> As[(i * 2 + k) % 2, 0 +: 64, 0 +: 64] via tma signal full[(i * 2 + k) % 2] {descriptor=Am}
           copy B[k * 64 +: 64, 0 +: 64] -> Bs[(i * 2 + k) % 2, 0 +: 64, 0 +: 64] via tma signal full[(i * 2 + k) % 2] {descriptor=Bm}
-    role consumer warps 4..8
-      for j in 0..M // 64
-        fragment acc: f32[64, 64] = 0.0
-        for l in 0..2
-          mbar_wait(&full[(j * 2 + l) % 2], (j * 2 + l) // 2 % 2)
-          mma acc += As[(j * 2 + l) % 2, 0 +: 64, 0 +: 64] * Bs[(j * 2 + l) % 2, 0 +: 64, 0 +: 64] via wgmma
-          mbar_arrive(&empty[(j * 2 + l) % 2])
-        C[j * 64 +: 64, 0 +: 64] = acc
+    role consumer warps 4..12
+      for wg in 0..2 parallel warpgroup
+        for j in wg..M // 64 step 2
+          fragment acc: f32[64, 64] = 0.0
+          mbar_wait(&turn[0], (j + 1) % 2)
+          for l in 0..2
+            mbar_wait(&full[(j * 2 + l) % 2], (j * 2 + l) // 2 % 2)
+            mma acc += As[(j * 2 + l) % 2, 0 +: 64, 0 +: 64] * Bs[(j * 2 + l) % 2, 0 +: 64, 0 +: 64] via wgmma
+            mbar_arrive(&empty[(j * 2 + l) % 2])
+          mbar_arrive(&turn[0])
+          C[j * 64 +: 64, 0 +: 64] = acc
```

The turn is one mbarrier, whose phase j ends when tile j has taken its last slot; tile j + 1 waits for that. It is more than an order: a parity tells a
phase from its neighbors alone, so that a warpgroup may wait for a slot's phase only when the one before it is over, and those are the other's.
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.target.legalize import registers_refusal
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import MBARRIER, dtype_of
from kir.ir.visit import statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.match import counting, fresh_var, hardware_of, matched, matched_as, node_as, params_as
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.materialize import buffers_written

from ._rings import NoRing, Rings, counted

WARPS, THREADS = 4, 128
"""Warps and threads of a warpgroup."""


@dataclass(frozen=True)
class _Turns:
    """A role that walks over tiles: what it does before (`front`) and after (`back`), the loop over them, and the statement of the loop's body that
    takes the slots of the rings."""

    at: int
    role: n.Role
    front: n.Block
    loop: n.For
    back: n.Block
    ring: int


def _turns(roles: n.Roles, name: str, body: n.Block | None, bars: set[str]) -> _Turns:
    """The parts of a role (`body`: of one of its warpgroups). Raises NoRing."""
    at = next((i for i, r in enumerate(roles.roles) if r.name == name), None)
    if at is None:
        raise NoRing(f"there is no role '{name}'")
    role = roles.roles[at]
    block = role.body if body is None else body
    walks = [i for i, s in enumerate(block) if isinstance(s, n.For) and s.kind == "serial"]
    if len(walks) != 1 or not isinstance(loop := block[walks[0]], n.For):
        raise NoRing(f"'{name}' does not walk over tiles in one loop")
    waiting = [i for i, s in enumerate(loop.body) if any(mentions(s, x) for x in bars) and any(
        isinstance(x, n.Call) and x.fn == "mbar_wait" for x in walk(s))]
    if len(waiting) != 1 or not isinstance(loop.body[waiting[0]], n.For):
        raise NoRing(f"'{name}' does not take the slots of a tile in one loop")
    if any(mentions(s, x) for x in bars for s in (*block[:walks[0]], *block[walks[0] + 1:])):
        raise NoRing(f"'{name}' uses its rings outside of the tiles")
    return _Turns(at, role, block[:walks[0]], loop, block[walks[0] + 1:], waiting[0])


def _found(program: n.Program, site: Site) -> tuple[n.Kernel, n.Roles, _Turns]:
    kernel, roles, item = kernel_of(program, site.path), node_as(program, site.path, n.Roles), params_as(site, PingPong)
    return kernel, roles, _turns(roles, item.role, None, set(Rings.of(kernel).bars))


def _room(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel, roles, found = _found(program, site)
    hardware = hardware_of(context, "sm_90a").architecture
    total = (int_value(kernel.threads) or 0) + THREADS
    if total > hardware.max_threads_per_cta:
        return refuted(f"{total} threads with another warpgroup; a CTA of {hardware.name} has at most {hardware.max_threads_per_cta}",
                       f"thread {hardware.max_threads_per_cta} does not exist", needs=f"at most {hardware.max_threads_per_cta - THREADS} threads")
    wider = replace(roles, roles=tuple(replace(r, hi=r.hi + WARPS) if i == found.at else r for i, r in enumerate(roles.roles)))
    if reason := registers_refusal(replace(kernel, threads=build.const(total)), wider, hardware):
        return refuted(reason, "a warpgroup that asks for more waits until others have given theirs back, for ever",
                       needs="registers for another warpgroup", attempt="redistribute-registers after ping-pong")
    return proved(f"{total} of the {hardware.max_threads_per_cta} threads that a CTA may have, and registers for all")


def _apart(program: n.Program, site: Site, context: Context) -> Verdict:
    """What a tile leaves in registers is not what the next one starts from."""
    _, _, found = _found(program, site)
    outside = {s.buffer.name for s in found.front if isinstance(s, n.Alloc)}
    carried = outside & buffers_written(found.loop.body)
    if carried:
        name = min(carried)
        return refuted(f"'{name}' goes on from tile to tile, and each warpgroup would have its own", f"tile 1 starts from what '{name}' was at first",
                       needs=f"'{name}' declared for each tile")
    return proved("a tile starts from nothing that another left")


def _staged(program: n.Program, site: Site, context: Context) -> Verdict:
    """Memory that the role fills by itself would be filled by both warpgroups."""
    kernel, _, found = _found(program, site)
    shared = {s.buffer.name for s in statements(kernel.body) if isinstance(s, n.Alloc) and s.buffer.space == "shared"} - Rings.of(kernel).names
    clash = shared & buffers_written(found.loop.body)
    if clash:
        name = min(clash)
        return refuted(f"both warpgroups would fill '{name}'", f"tile 1 is staged in '{name}' while tile 0 leaves it",
                       needs="memory of its own for each", attempt="ping-pong first, then stage-epilogue")
    return proved("what both fill is in their registers")


@dataclass(frozen=True)
class PingPong(Pass):
    """`role` is the name of the role, one warpgroup before and two after."""

    intent: ClassVar[str] = "ping-pong"
    catalogue: ClassVar[tuple[int, ...]] = (29,)
    claim: ClassVar[str] = "The tensor cores have work while a finished tile is stored, for another warpgroup has its next tile under way."
    requires: ClassVar[tuple[str, ...]] = ("roles", "persistent")
    provides: ClassVar[tuple[str, ...]] = ("warp-loop",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P886", "validity", "pipeline", "a tile starts from nothing that the one before it left", _apart),
        Precondition("KIR-P887", "validity", "aliasing", "the warpgroups fill no shared memory that both have", _staged),
        Precondition("KIR-P888", "validity", "hardware", "the CTA has threads and registers for one more warpgroup", _room),
    )

    role: str = "consumer"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At roles of which one is a warpgroup that walks over tiles whose slots it takes in one loop."""
        if not (isinstance(node, n.Roles) and len(path) == 2):
            return None
        kernel = kernel_of(program, path)
        try:
            rings = Rings.of(kernel)
            found = _turns(node, self.role, None, set(rings.bars))
        except NoRing as why:
            return Miss(str(why))
        role = found.role
        if role.hi - role.lo != WARPS or any(isinstance(s, n.For) and s.kind in ("warpgroup", "warp", "thread") for s in statements(role.body)):
            return Miss(f"'{role.name}' is not one warpgroup")
        if any(r.lo >= role.hi for r in node.roles) or int_value(kernel.threads) != 32 * role.hi:
            return Miss(f"'{role.name}' is not the last role, or threads follow it")
        if not counted(found.loop) or any(not isinstance(s, (n.Alloc, n.Let)) for s in found.front):
            return Miss(f"'{role.name}' does not count its tiles from 0 by 1, or does more before them")
        if any(isinstance(s, n.Jump) for s in statements(role.body)):
            return Miss("a tile may be left early, and the turn would not be passed on")
        if _fence(kernel) is None:
            return Miss("the mbarriers are not initialized before the roles")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Two warpgroups, of which each waits for its turn before it takes the slots of a tile."""
        kernel, roles, found = _found(program, site)
        taken = names_in(program, kernel)
        wg, turn = fresh_var("wg", taken, dtype_of(found.loop.var.of)), n.Buffer(fresh("turn", taken), MBARRIER, (build.const(1),), "shared")
        bar, tile = build.region(turn, 0), found.loop.var
        mine = (*found.loop.body[:found.ring], n.Eval(build.call("mbar_wait", bar, build.mod(build.add(tile, 1), 2))), found.loop.body[found.ring],
                n.Eval(build.call("mbar_arrive", bar)), *found.loop.body[found.ring + 1:])
        walked = replace(found.loop, lo=wg, step=build.const(2, wg.of), body=mine)  # type: ignore[arg-type]  # an integer dtype
        split = counting(wg, 2, (*found.front, walked, *found.back), "warpgroup")
        made = replace(found.role, hi=found.role.hi + WARPS, body=(split,))
        fence = matched(_fence(kernel))
        last = max(i for i, s in enumerate(kernel.body) if isinstance(s, n.Alloc) and s.buffer.dtype == MBARRIER)
        body = list(kernel.body[:-1])
        body.insert(fence, n.Eval(build.call("mbar_init", bar, build.const(1))))
        body.insert(last + 1, n.Alloc(turn))
        after = replace(roles, roles=(*roles.roles[:found.at], made))
        threads = build.const((int_value(kernel.threads) or 0) + THREADS)
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, threads=threads, body=(*body, after))), (kernel.name, len(body)))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At roles of which the last is two warpgroups that take tiles in turn."""
        if not (isinstance(node, n.Roles) and len(path) == 2):
            return None
        last = node.roles[-1]
        split = last.body[0] if len(last.body) == 1 else None
        if last.hi - last.lo != 2 * WARPS or not isinstance(split, n.For) or split.kind != "warpgroup":
            return None
        try:
            self._one(program, path)
        except NoRing as why:
            return Miss(str(why))
        return Site(path, PingPong(last.name))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One warpgroup, which takes all tiles."""
        kernel = self._one(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, kernel), (kernel.name, len(kernel.body) - 1))

    def _one(self, program: n.Program, path: Path) -> n.Kernel:
        kernel, roles = kernel_of(program, path), node_as(program, path, n.Roles)
        last = roles.roles[-1]
        split = matched_as(last.body[0], n.For)
        every = {s.buffer.name for s in kernel.body if isinstance(s, n.Alloc) and s.buffer.dtype == MBARRIER}
        turn = next((x for x in every if _takes_turns(split.body, x)), None)
        if turn is None:
            raise NoRing("no mbarrier passes a turn from tile to tile")
        found = _turns(roles, last.name, split.body, every - {turn})
        loop, k = found.loop, found.ring
        if loop.lo != split.var or not build.is_const(loop.step, 2) or not 0 < k < len(loop.body) - 1:
            raise NoRing("the warpgroups do not take every other tile")
        wait, arrive = loop.body[k - 1], loop.body[k + 1]
        if not _calls(wait, "mbar_wait", turn, build.mod(build.add(loop.var, 1), 2)) or not _calls(arrive, "mbar_arrive", turn):
            raise NoRing("the turn is not waited for before the slots of a tile, and passed on after them")
        plain = replace(loop, lo=build.const(0, dtype_of(loop.var.of)), step=build.const(1, dtype_of(loop.var.of)),
                        body=(*loop.body[:k - 1], loop.body[k], *loop.body[k + 2:]))
        block = (*found.front, plain, *found.back)
        body = tuple(s for s in kernel.body[:-1] if not (isinstance(s, n.Alloc) and s.buffer.name == turn) and not _calls(s, "mbar_init", turn))
        made = replace(roles, roles=(*roles.roles[:-1], replace(last, hi=last.hi - WARPS, body=block)))
        if any(split.var.name in _names(s) for s in block) or any(mentions(s, turn) for s in (*body, made)):
            raise NoRing("the warpgroups differ in more than the tiles that they take")
        return replace(kernel, threads=build.const((int_value(kernel.threads) or 0) - THREADS), body=(*body, made))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """One mbarrier."""
        return Effect(shared_bytes=8)


def _fence(kernel: n.Kernel) -> int | None:
    """Where the fence after the initialization of mbarriers stands."""
    return next((i for i, s in enumerate(kernel.body[:-1]) if isinstance(s, n.Eval) and s.call.fn == "fence_mbar_init"), None)


def _takes_turns(block: n.Block, name: str) -> bool:
    """Whether a walk over tiles waits on an mbarrier itself, not in a loop inside."""
    return any(_calls(x, "mbar_wait", name) for s in block if isinstance(s, n.For) for x in s.body)


def _calls(s: n.Stmt, fn: str, bar: str, parity: n.Expr | None = None) -> bool:
    """Whether a statement is a call on the first mbarrier of a name."""
    if not (isinstance(s, n.Eval) and s.call.fn == fn and isinstance(r := s.call.args[0], n.Region)):
        return False
    return r.buffer.name == bar and r.index == (build.const(0),) and (parity is None or s.call.args[1] == parity)


def _names(s: n.Stmt) -> set[str]:
    return {x.name for x in walk(s) if isinstance(x, n.Var)}
