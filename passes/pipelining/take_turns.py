"""Lets the warpgroups that share a CTA's tiles issue their products in turn: while one's are in the tensor cores, the others compute on their results.

pipeline: `take-turns@main/roles/consumer/wg/tiles`

```diff
 kir 1
 program attended
   in Q: f16[128, 64]
   in K: f16[L, 64]
   in V: f16[L, 64]
   out O: f32[128, 64]
   size L: i32
   fact L % 64 == 0
   fact L >= 64
   map K_map of K box [64, 64] {swizzle=128}
   map V_map of V box [64, 64] {swizzle=128}
 kernel main grid (i: 1) threads 384
   shared Qs: f16[128, 64] layout swizzle(3, 4, 3) align 1024
   shared Ks: f16[2, 64, 64] layout swizzle(3, 4, 3) align 1024
   shared Vs: f16[2, 64, 64] layout swizzle(3, 4, 3) align 1024
   shared k_full: mbarrier[2]
   shared k_empty: mbarrier[2]
   shared v_full: mbarrier[2]
   shared v_empty: mbarrier[2]
   for s in 0..2 unroll {factor=2}
     mbar_init(&k_full[s], 1)
     mbar_init(&k_empty[s], 2)
     mbar_init(&v_full[s], 1)
     mbar_init(&v_empty[s], 2)
   fence_mbar_init()
   roles
     role producer warps 0..4
       for k in 0..L // 64
         mbar_wait(&k_empty[k % 2], (k // 2 + 1) % 2)
         mbar_arrive_expect(&k_full[k % 2], 8192)
         copy K[k * 64 +: 64, 0 +: 64] -> Ks[k % 2, 0 +: 64, 0 +: 64] via tma signal k_full[k % 2] {descriptor=K_map}
         mbar_wait(&v_empty[k % 2], (k // 2 + 1) % 2)
         mbar_arrive_expect(&v_full[k % 2], 8192)
         copy V[k * 64 +: 64, 0 +: 64] -> Vs[k % 2, 0 +: 64, 0 +: 64] via tma signal v_full[k % 2] {descriptor=V_map}
     role consumer warps 4..12
       for wg in 0..2 parallel warpgroup
         fragment acc: f32[64, 64] = 0.0
         fragment held: f16[64, 64]
         Qs[wg * 64 +: 64, 0 +: 64] = Q[wg * 64 +: 64, 0 +: 64]
         fence_async()
         fragment first: f32[64, 64] = 0.0
         mbar_wait(&k_full[0], 0)
         mma first += Qs[wg * 64 +: 64, 0 +: 64] * trans(Ks[0, 0 +: 64, 0 +: 64], 1, 0) via wgmma
         mbar_arrive(&k_empty[0])
         held = cast(first * 0.5, f16)
+        if wg == 0
+          named_barrier_arrive(1, 256)
         @tiles for j in 0..L // 64 - 1
           fragment s_1: f32[64, 64] = 0.0
           mbar_wait(&k_full[(j + 1) % 2], (j + 1) // 2 % 2)
+          named_barrier_sync(wg + 1, 256)
           wgmma_fence()
           mma s_1 += Qs[wg * 64 +: 64, 0 +: 64] * trans(Ks[(j + 1) % 2, 0 +: 64, 0 +: 64], 1, 0) via wgmma pending
           wgmma_commit()
           mbar_wait(&v_full[j % 2], j // 2 % 2)
           mma acc += held * Vs[j % 2, 0 +: 64, 0 +: 64] via wgmma pending
           wgmma_commit()
+          named_barrier_arrive((wg + 1) % 2 + 1, 256)
           wgmma_wait(1)
           mbar_arrive(&k_empty[(j + 1) % 2])
           let p = s_1 * 0.5
           wgmma_wait(0)
           mbar_arrive(&v_empty[j % 2])
           acc = acc * 0.5
           held = cast(p, f16)
+        named_barrier_sync(wg + 1, 256)
+        if wg != 1
+          named_barrier_arrive(wg + 2, 256)
         mbar_wait(&v_full[(L // 64 - 1) % 2], (L // 64 - 1) // 2 % 2)
         mma acc += held * Vs[(L // 64 - 1) % 2, 0 +: 64, 0 +: 64] via wgmma
         mbar_arrive(&v_empty[(L // 64 - 1) % 2])
         O[wg * 64 +: 64, 0 +: 64] = acc
```

Each warpgroup has a named barrier at which it waits for the one before it; the first one lets itself in. Without turns all of them would wait for
tensor cores at the same time, and compute at the same time while those have nothing to do (FlashAttention-3, section 3.1).
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.visit import buffers_named, names_read, statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import enclosing, kernel_of
from kir.rewrite.match import block_and_index, edited, is_counted, matched, node_as
from kir.rewrite.match.materialize import buffers_written

WARPGROUP = 128
"""Threads."""
MOST = 7
"""Named barriers for turns; those from 8 on are the code generator's."""


@dataclass(frozen=True)
class _Turns:
    """The loop over warpgroups that a loop stands in, and how many they are."""

    wg: n.Var
    groups: int

    def _call(self, fn: str, barrier: n.Expr) -> n.Stmt:
        return n.Eval(build.call(fn, barrier, build.const(2 * WARPGROUP)))

    @property
    def first(self) -> n.Stmt:
        """The first warpgroup lets itself in."""
        return n.If(build.compare("eq", self.wg, 0), (self._call("named_barrier_arrive", build.const(1)),))

    @property
    def wait(self) -> n.Stmt:
        """For one's turn."""
        return self._call("named_barrier_sync", build.add(self.wg, 1))

    @property
    def on(self) -> n.Stmt:
        """It is the next one's turn."""
        return self._call("named_barrier_arrive", build.add(build.mod(build.add(self.wg, 1), self.groups), 1))

    @property
    def last(self) -> n.Block:
        """The last turns, after which nobody is let in."""
        return self.wait, n.If(build.compare("ne", self.wg, self.groups - 1), (self._call("named_barrier_arrive", build.add(self.wg, 2)),))


def _turns(program: n.Program, path: Path) -> _Turns | None:
    for _, s in reversed(list(enclosing(program, path))):
        if isinstance(s, n.For) and s.kind == "warpgroup":
            groups = int_value(s.hi)
            return _Turns(s.var, groups) if groups is not None and groups > 1 and int_value(s.lo) == 0 else None
    return None


def _products(block: n.Block) -> tuple[int, int] | None:
    """From the fence before the products in flight that a block issues, to after their last commit."""
    def calls(fn: str) -> list[int]:
        return [k for k, s in enumerate(block) if isinstance(s, n.Eval) and s.call.fn == fn]
    fences, commits = calls("wgmma_fence"), calls("wgmma_commit")
    products = [k for k, s in enumerate(block) if isinstance(s, n.Mma) and s.pending]
    if not products or not fences or not commits or not fences[0] < products[0] <= products[-1] < commits[-1]:
        return None
    return None if any(isinstance(s, n.For | n.If | n.While) for s in block[fences[0]:commits[-1]]) else (fences[0], commits[-1] + 1)


def _as_often(program: n.Program, site: Site, context: Context) -> Verdict:
    turns, own = matched(_turns(program, site.path)), set[str]()
    inside = False
    around = [s for _, s in enclosing(program, site.path)]
    for s in (*around, node_as(program, site.path, n.For)):
        if isinstance(s, n.For) and s.var == turns.wg:
            inside, own = True, {s.var.name}
            for x in statements(s.body):
                if isinstance(x, n.Let) and names_read(x.value) & own:
                    own |= set(x.names)
        elif inside and isinstance(s, n.For) and (names_read(s.lo) | names_read(s.hi) | names_read(s.step)) & own:
            return refuted("the warpgroups do not run the loop equally often", "one waits for a turn that another one never ends",
                           needs="as many iterations for each warpgroup")
        elif inside and isinstance(s, n.If) and (names_read(s.cond) & own or not _of_all(program, site.path, s.cond)):
            return unknown("some warpgroups may leave the loop out", needs="a condition that is the same for each warpgroup")
    return proved("each warpgroup has as many turns as the others")


def _of_all(program: n.Program, path: Path, cond: n.Expr) -> bool:
    """Whether a condition reads nothing but values and tensors that do not change."""
    kernel = kernel_of(program, path)
    lets = {name: s.value for s in statements(kernel.body) if isinstance(s, n.Let) for name in s.names}
    fixed, seen, parts = {p.name for p in program.params} - buffers_written(kernel.body), set[str](), [cond]
    while parts:
        e = parts.pop()
        if not buffers_named(e) <= fixed:
            return False
        more = (names_read(e) & lets.keys()) - seen
        seen |= more
        parts += [lets[x] for x in more]
    return True


def _free(program: n.Program, site: Site, context: Context) -> Verdict:
    groups = matched(_turns(program, site.path)).groups
    if groups > MOST:
        return refuted(f"{groups} warpgroups need as many named barriers", f"there are {MOST}", needs=f"at most {MOST} warpgroups")
    for x in walk(kernel_of(program, site.path)):
        if isinstance(x, n.Call) and x.fn.startswith("named_barrier_"):
            return refuted("named barriers are in use", f"barrier {int_value(x.args[0]) if isinstance(x.args[0], n.Expr) else ''}",
                           needs="a kernel without named barriers of its own")
    return proved("no named barrier is in use")


@dataclass(frozen=True)
class TakeTurns(Pass):
    """No parameters."""

    intent: ClassVar[str] = "ping-pong"
    catalogue: ClassVar[tuple[int, ...]] = (29,)
    claim: ClassVar[str] = "One warpgroup computes while the tensor cores work for another."
    requires: ClassVar[tuple[str, ...]] = ("wgmma", "group", "warp-loop")
    provides: ClassVar[tuple[str, ...]] = ("turns",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P960", "validity", "pipeline", "each warpgroup has as many turns as the others", _as_often),
        Precondition("KIR-P961", "validity", "hardware", "the named barriers for turns are free", _free),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop of each warpgroup that issues products and computes while they are in flight."""
        if not is_counted(node) or len(path) < 4:
            return None
        turns = _turns(program, path)
        if turns is None or _products(node.body) is None:
            return Miss("no products are left in flight, in a loop of several warpgroups")
        if any(isinstance(s, n.While) for _, s in enclosing(program, path)):
            return Miss("the loop may be left out by some")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The products of an iteration within a turn."""
        return edited(program, site.path, _with(node_as(program, site.path, n.For), matched(_turns(program, site.path))), at=1)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop whose products are issued in turns."""
        if not is_counted(node) or len(path) < 4:
            return None
        turns = _turns(program, path)
        if turns is None or turns.wait not in node.body:
            return None
        block, i = block_and_index(program, path)
        plain = replace(node, body=tuple(s for s in node.body if s not in (turns.wait, turns.on)))
        if i == 0 or _products(plain.body) is None or block[i - 1:i + 3] != _with(plain, turns):
            return Miss("the turns do not go around")
        return Site(path, self, {"plain": plain})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Products whenever their operands are there."""
        return edited(program, site.path, (site.captures["plain"],), -1, 3, at=-1)


def _with(loop: n.For, turns: _Turns) -> n.Block:
    """What stands before the loop with turns, the loop, and what stands after it."""
    begin, end = matched(_products(loop.body))
    body = (*loop.body[:begin], turns.wait, *loop.body[begin:end], turns.on, *loop.body[end:])
    return turns.first, replace(loop, body=body), *turns.last
