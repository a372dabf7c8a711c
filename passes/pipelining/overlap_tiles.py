"""Issues the product that begins a tile beside the one that ends the tile before, and computes on its result while the other is in flight.

Between the two a warpgroup waits for the first product alone: what is computed on its result (a softmax) runs while tensor cores work on the
second one.

pipeline: `overlap-tiles@main/roles/consumer/tiles/old`

```diff
 kir 1
 program attended
   in Q: f16[64, 64]
   in K: f16[L, 64]
   in V: f16[L, 64]
   out O: f32[64, 64]
   size L: i32
   fact L % 64 == 0
   fact L >= 64
   map K_map of K box [64, 64] {swizzle=128}
   map V_map of V box [64, 64] {swizzle=128}
 kernel main grid (i: 1) threads 256
   shared Qs: f16[64, 64] layout swizzle(3, 4, 3) align 1024
   shared Ks: f16[2, 64, 64] layout swizzle(3, 4, 3) align 1024
   shared Vs: f16[2, 64, 64] layout swizzle(3, 4, 3) align 1024
   shared k_full: mbarrier[2]
   shared k_empty: mbarrier[2]
   shared v_full: mbarrier[2]
   shared v_empty: mbarrier[2]
   for s in 0..2 unroll {factor=2}
     mbar_init(&k_full[s], 1)
     mbar_init(&k_empty[s], 1)
     mbar_init(&v_full[s], 1)
     mbar_init(&v_empty[s], 1)
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
     role consumer warps 4..8
       fragment acc: f32[64, 64] = 0.0
       fragment held: f16[64, 64]
       Qs[0 +: 64, 0 +: 64] = Q
       fence_async()
       fragment first: f32[64, 64] = 0.0
       mbar_wait(&k_full[0], 0)
       mma first += Qs * trans(Ks[0, 0 +: 64, 0 +: 64], 1, 0) via wgmma
       mbar_arrive(&k_empty[0])
       held = cast(first * 0.5, f16)
       @tiles for j in 0..L // 64 - 1
-        mbar_wait(&v_full[j % 2], j // 2 % 2)
-        @old mma acc += held * Vs[j % 2, 0 +: 64, 0 +: 64] via wgmma
-        mbar_arrive(&v_empty[j % 2])
         fragment s_1: f32[64, 64] = 0.0
         mbar_wait(&k_full[(j + 1) % 2], (j + 1) // 2 % 2)
-        mma s_1 += Qs * trans(Ks[(j + 1) % 2, 0 +: 64, 0 +: 64], 1, 0) via wgmma
+        wgmma_fence()
+        mma s_1 += Qs * trans(Ks[(j + 1) % 2, 0 +: 64, 0 +: 64], 1, 0) via wgmma pending
+        wgmma_commit()
+        mbar_wait(&v_full[j % 2], j // 2 % 2)
+        @old mma acc += held * Vs[j % 2, 0 +: 64, 0 +: 64] via wgmma pending
+        wgmma_commit()
+        wgmma_wait(1)
         mbar_arrive(&k_empty[(j + 1) % 2])
         let p = s_1 * 0.5
+        wgmma_wait(0)
+        mbar_arrive(&v_empty[j % 2])
         acc = acc * 0.5
         held = cast(p, f16)
       mbar_wait(&v_full[(L // 64 - 1) % 2], (L // 64 - 1) // 2 % 2)
       mma acc += held * Vs[(L // 64 - 1) % 2, 0 +: 64, 0 +: 64] via wgmma
       mbar_arrive(&v_empty[(L // 64 - 1) % 2])
       O = acc
```
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, edit_block, kernel_of, node_at
from kir.rewrite.match import matched, matched_as
from kir.rewrite.match.local_buffers import mentions, team_threads

from ._rings import NoRing, Rings, roles_at


@dataclass(frozen=True)
class Tile:
    """A product of a tile in a ring: what is declared for it, the wait for its slot, the views that it reads, the product, and the slot's return."""

    made: n.Block
    wait: n.Stmt
    views: n.Block
    product: n.Mma
    back: n.Stmt

    @property
    def code(self) -> n.Block:
        """Its statements."""
        return (*self.made, self.wait, *self.views, self.product, self.back)

    def changed(self, change: Callable[[n.Block], n.Block]) -> Tile:
        """The same with other statements, one for one."""
        made, k = change(self.code), len(self.made)
        return Tile(made[:k], made[k], made[k + 1:-2], matched_as(made[-2], n.Mma), made[-1])


def calls(s: n.Stmt, fn: str) -> bool:
    """Whether a statement is a call of a function."""
    return isinstance(s, n.Eval) and s.call.fn == fn


def tile_at(block: n.Block, i: int) -> Tile | None:
    """The product that begins at a place."""
    k = i
    while k < len(block) and isinstance(block[k], n.Alloc):
        k += 1
    wait = block[k] if k < len(block) else None
    if wait is None or not calls(wait, "mbar_wait"):
        return None
    k += 1
    views = k
    while k < len(block) and isinstance(block[k], n.View):
        k += 1
    product, back = (*block[k:k + 2], None, None)[:2]
    if isinstance(product, n.Mma) and product.via == "wgmma" and not product.pending and isinstance(back, n.Stmt) and calls(back, "mbar_arrive"):
        return Tile(block[i:views - 1], wait, block[views:k], product, back)
    return None


def in_flight(new: Tile, old: Tile, turn: n.Block = (), onward: n.Block = ()) -> n.Block:
    """Both products in flight, up to where the new one has ended. Warpgroups take turns by `turn` and `onward`, before the first and behind both."""
    first, second = (replace(t.product, pending=True) for t in (new, old))
    return (*new.made, new.wait, *new.views, *turn, _call("wgmma_fence"), first, _call("wgmma_commit"), *old.made, old.wait, *old.views, second,
            _call("wgmma_commit"), *onward, _call("wgmma_wait", 1), new.back)


def ended(old: Tile) -> n.Block:
    """The end of the product that is still in flight."""
    return _call("wgmma_wait", 0), old.back


def _call(fn: str, *args: int) -> n.Stmt:
    return n.Eval(build.call(fn, *map(build.const, args)))


def _issued(old: Tile, new: Tile, rest: n.Block, at: int) -> n.Block:
    """Both products in flight, and what follows them: up to statement `at` of the rest nothing needs the old one."""
    return (*in_flight(new, old), *rest[:at], *ended(old), *rest[at:])


def _first_use(old: Tile, rest: n.Block) -> int:
    """The first statement that uses what the old product reads or writes."""
    touched = {x.buffer.name for s in (*old.views, old.product) for x in walk(s) if isinstance(x, n.Region)}
    return next((k for k, s in enumerate(rest) if any(mentions(s, x) for x in touched) or isinstance(s, n.Eval)), len(rest))


def _two(block: n.Block) -> tuple[Tile, Tile, n.Block] | None:
    """The product that a block begins with, the one after it, and the rest."""
    old = tile_at(block, 0)
    new = tile_at(block, len(old.code)) if old is not None else None
    return (old, new, block[len(old.code) + len(new.code):]) if old is not None and new is not None else None


def _apart(program: n.Program, site: Site, context: Context) -> Verdict:
    old, new, _ = matched(_two(block_at(program, site.path)))
    written = {old.product.acc.buffer.name, new.product.acc.buffer.name}
    read = {x.buffer.name for p in (old.product, new.product) for e in (p.a, p.b) for x in walk(e) if isinstance(x, n.Region)}
    clash = written & read
    if clash:
        return refuted(f"'{min(clash)}' is written by one product while the other uses it", min(clash), needs="products that do not need each other")
    return proved("neither product needs the other's result")


def _no_circle(program: n.Program, site: Site, context: Context) -> Verdict:
    old, new, _ = matched(_two(block_at(program, site.path)))
    kernel = kernel_of(program, site.path)
    stages = Rings.of(kernel).stages
    _, roles = matched(roles_at(kernel))
    order = named_by(roles.roles[0], "mbar_arrive_expect")
    first, second = (barrier_of(t.wait) for t in (new, old))
    if first in order and second in order and (stages > 1 or order.index(first) < order.index(second)):
        return proved("the tile that is waited for is brought before the slot that is held back is filled again")
    return refuted("the next tile is waited for while a slot is held back that must be filled before it",
                   "the producer waits for that slot, and this warpgroup for the producer", needs="two stages", attempt="deepen-ring{stages=2}")


def named_by(role: n.Role, fn: str) -> list[str]:
    """The barriers that a role's calls of a function name, in their order."""
    return [x.args[0].buffer.name for x in walk(role) if isinstance(x, n.Call) and x.fn == fn and isinstance(x.args[0], n.Region)]


def barrier_of(s: n.Stmt) -> str:
    """The barrier that a statement names first."""
    assert isinstance(s, n.Eval)
    return matched_as(s.call.args[0], n.Region).buffer.name


@dataclass(frozen=True)
class OverlapTiles(Pass):
    """No parameters."""

    intent: ClassVar[str] = "split-phase-barrier"
    catalogue: ClassVar[tuple[int, ...]] = (36,)
    claim: ClassVar[str] = "Tensor cores have a product to work on while a warpgroup computes on the result of the other."
    requires: ClassVar[tuple[str, ...]] = ("wgmma", "ring", "rotated")
    provides: ClassVar[tuple[str, ...]] = ("group",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P717", "validity", "pipeline", "neither product needs the other's result", _apart),
        Precondition("KIR-P718", "validity", "pipeline", "the producer does not wait for the slot that is held back", _no_circle),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the product of a slot with which a loop of one warpgroup begins, where another one's follows."""
        if not (isinstance(node, n.Mma) and node.via == "wgmma" and not node.pending and len(path) > 3 and isinstance(
                loop := node_at(program, path[:-2]), n.For)):
            return None
        found = _two(loop.body)
        if found is None or found[0].product is not node:
            return Miss("the loop does not begin with this product and another one, each between the wait for its slot and the slot's return")
        try:
            Rings.of(kernel_of(program, path))
        except NoRing as why:
            return Miss(str(why))
        return Site(path, self) if team_threads(program, path) == 128 else Miss("the products are not those of one warpgroup")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Both issued, the new one waited for first."""
        old, new, rest = matched(_two(block_at(program, site.path)))
        return _with(program, site.path, _issued(old, new, rest, _first_use(old, rest)))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the second of two products that are in flight in a loop which begins with them."""
        if not (isinstance(node, n.Mma) and node.pending and len(path) > 3 and isinstance(loop := node_at(program, path[:-2]), n.For)):
            return None
        made = _taken_apart(loop.body)
        pending = [s for s in loop.body if isinstance(s, n.Mma) and s.pending]
        return Site(path, self, {"made": made}) if made is not None and node is pending[-1] else None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One after the other."""
        return _with(program, site.path, site.captures["made"])


def _with(program: n.Program, path: Path, block: n.Block) -> Rewritten:
    """The loop with another body; the path of the product of the old tile in it, the second one in flight or the first."""
    products = [k for k, s in enumerate(block) if isinstance(s, n.Mma) and s.via == "wgmma"]
    at = products[1] if isinstance(first := block[products[0]], n.Mma) and first.pending else products[0]
    return Rewritten(edit_block(program, path, lambda _: block), (*path[:-1], at))


def _taken_apart(block: n.Block) -> n.Block | None:
    """The inverse of `_issued`; None for another block."""
    products = [k for k, s in enumerate(block) if isinstance(s, n.Mma) and s.pending]
    waits = [k for k, s in enumerate(block) if calls(s, "wgmma_wait")]
    if len(products) != 2 or len(waits) != 2 or waits[0] + 1 >= len(block) or waits[1] + 1 >= len(block):
        return None
    a, b = products
    first, second = block[a], block[b]
    assert isinstance(first, n.Mma) and isinstance(second, n.Mma)
    barriers = [k for k, s in enumerate(block[:b]) if calls(s, "mbar_wait")]
    if len(barriers) != 2 or not barriers[0] < a < barriers[1]:
        return None
    i, j = barriers
    new = Tile(block[:i], block[i], block[i + 1:a - 1], replace(first, pending=False), block[waits[0] + 1])
    old = Tile(block[a + 2:j], block[j], block[j + 1:b], replace(second, pending=False), block[waits[1] + 1])
    rest = (*block[waits[0] + 2:waits[1]], *block[waits[1] + 2:])
    plain = all(isinstance(s, n.Alloc | n.View) for s in (*new.made, *old.made, *new.views, *old.views))
    if not plain or _issued(old, new, rest, waits[1] - waits[0] - 2) != block:
        return None
    return (*old.code, *new.code, *rest)
