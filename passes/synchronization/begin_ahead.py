"""Begins a tile beside the end of the one before it: its first product, and what is computed on that, while the last product of the other is in flight.

pipeline: `begin-ahead@main/roles/consumer/tiles`

```diff
 kir 1
 program attended
   size M: i32
   size L: i32
   in Q: f16[M, 64, 64]
   in K: f16[L, 64]
   in V: f16[L, 64]
   out O: f32[M, 64, 64]
   fact L % 64 == 0
   fact L >= 64
   map Q_map of Q box [1, 64, 64] {swizzle=128}
   map K_map of K box [64, 64] {swizzle=128}
   map V_map of V box [64, 64] {swizzle=128}
 kernel main grid (pid: 2) threads 256
   shared Qs: f16[64, 64] layout swizzle(3, 4, 3) align 1024
   shared Ks: f16[2, 64, 64] layout swizzle(3, 4, 3) align 1024
   shared Vs: f16[2, 64, 64] layout swizzle(3, 4, 3) align 1024
   shared q_full: mbarrier
   shared q_empty: mbarrier
   shared k_full: mbarrier[2]
   shared k_empty: mbarrier[2]
   shared v_full: mbarrier[2]
   shared v_empty: mbarrier[2]
   mbar_init(&q_full, 1)
   mbar_init(&q_empty, 1)
   for s in 0..2 unroll {factor=2}
     mbar_init(&k_full[s], 1)
     mbar_init(&k_empty[s], 1)
     mbar_init(&v_full[s], 1)
     mbar_init(&v_empty[s], 1)
   fence_mbar_init()
   roles
     role producer warps 0..4
       for i in 0..ceildiv(M - pid, 2)
         mbar_wait(&q_empty, (i + 1) % 2)
         mbar_arrive_expect(&q_full, 8192)
         copy Q[i * 2 + pid, 0 +: 64, 0 +: 64] -> Qs via tma signal q_full {descriptor=Q_map}
         for k in 0..L // 64
           mbar_wait(&k_empty[(L // 64 * i + k) % 2], ((L // 64 * i + k) // 2 + 1) % 2)
           mbar_arrive_expect(&k_full[(L // 64 * i + k) % 2], 8192)
           copy K[k * 64 +: 64, 0 +: 64] -> Ks[(L // 64 * i + k) % 2, 0 +: 64, 0 +: 64] via tma signal k_full[(L // 64 * i + k) % 2] {descriptor=K_map}
           mbar_wait(&v_empty[(L // 64 * i + k) % 2], ((L // 64 * i + k) // 2 + 1) % 2)
           mbar_arrive_expect(&v_full[(L // 64 * i + k) % 2], 8192)
           copy V[k * 64 +: 64, 0 +: 64] -> Vs[(L // 64 * i + k) % 2, 0 +: 64, 0 +: 64] via tma signal v_full[(L // 64 * i + k) % 2] {descriptor=V_map}
     role consumer warps 4..8
+      fragment acc: f32[64, 64] = 0.0
+      fragment held: f16[64, 64]
+      if 0 < ceildiv(M - pid, 2)
+        mbar_wait(&q_full, 0)
+        fragment first: f32[64, 64] = 0.0
+        mbar_wait(&k_full[0], 0)
+        mma first += Qs * trans(Ks[0, 0 +: 64, 0 +: 64], 1, 0) via wgmma
+        mbar_arrive(&k_empty[0])
+        held = cast(first * 0.5, f16)
       @tiles for i_1 in 0..ceildiv(M - pid, 2)
-        fragment acc: f32[64, 64] = 0.0
-        fragment held: f16[64, 64]
-        mbar_wait(&q_full, i_1 % 2)
-        fragment first: f32[64, 64] = 0.0
-        mbar_wait(&k_full[L // 64 * i_1 % 2], L // 64 * i_1 // 2 % 2)
-        mma first += Qs * trans(Ks[L // 64 * i_1 % 2, 0 +: 64, 0 +: 64], 1, 0) via wgmma
-        mbar_arrive(&k_empty[L // 64 * i_1 % 2])
-        held = cast(first * 0.5, f16)
         for j in 0..L // 64 - 1
           mbar_wait(&v_full[(L // 64 * i_1 + j) % 2], (L // 64 * i_1 + j) // 2 % 2)
           mma acc += held * Vs[(L // 64 * i_1 + j) % 2, 0 +: 64, 0 +: 64] via wgmma
           mbar_arrive(&v_empty[(L // 64 * i_1 + j) % 2])
           fragment s_1: f32[64, 64] = 0.0
           mbar_wait(&k_full[(L // 64 * i_1 + j + 1) % 2], (L // 64 * i_1 + j + 1) // 2 % 2)
           mma s_1 += Qs * trans(Ks[(L // 64 * i_1 + j + 1) % 2, 0 +: 64, 0 +: 64], 1, 0) via wgmma
           mbar_arrive(&k_empty[(L // 64 * i_1 + j + 1) % 2])
           held = cast(s_1 * 0.5, f16)
         mbar_arrive(&q_empty)
-        mbar_wait(&v_full[(L // 64 + L // 64 * i_1 - 1) % 2], (L // 64 + L // 64 * i_1 - 1) // 2 % 2)
-        mma acc += held * Vs[(L // 64 + L // 64 * i_1 - 1) % 2, 0 +: 64, 0 +: 64] via wgmma
-        mbar_arrive(&v_empty[(L // 64 + L // 64 * i_1 - 1) % 2])
-        O[i_1 * 2 + pid, 0 +: 64, 0 +: 64] = acc
+        if i_1 + 1 < ceildiv(M - pid, 2)
+          mbar_wait(&q_full, (i_1 + 1) % 2)
+          fragment first_1: f32[64, 64] = 0.0
+          mbar_wait(&k_full[(L // 64 + L // 64 * i_1) % 2], (L // 64 + L // 64 * i_1) // 2 % 2)
+          wgmma_fence()
+          mma first_1 += Qs * trans(Ks[(L // 64 + L // 64 * i_1) % 2, 0 +: 64, 0 +: 64], 1, 0) via wgmma pending
+          wgmma_commit()
+          mbar_wait(&v_full[(L // 64 + L // 64 * i_1 - 1) % 2], (L // 64 + L // 64 * i_1 - 1) // 2 % 2)
+          mma acc += held * Vs[(L // 64 + L // 64 * i_1 - 1) % 2, 0 +: 64, 0 +: 64] via wgmma pending
+          wgmma_commit()
+          wgmma_wait(1)
+          mbar_arrive(&k_empty[(L // 64 + L // 64 * i_1) % 2])
+          wgmma_wait(0)
+          mbar_arrive(&v_empty[(L // 64 + L // 64 * i_1 - 1) % 2])
+          held = cast(first_1 * 0.5, f16)
+          O[i_1 * 2 + pid, 0 +: 64, 0 +: 64] = acc
+          acc = 0.0
+        else
+          mbar_wait(&v_full[(L // 64 + L // 64 * i_1 - 1) % 2], (L // 64 + L // 64 * i_1 - 1) // 2 % 2)
+          mma acc += held * Vs[(L // 64 + L // 64 * i_1 - 1) % 2, 0 +: 64, 0 +: 64] via wgmma
+          mbar_arrive(&v_empty[(L // 64 + L // 64 * i_1 - 1) % 2])
+          O[i_1 * 2 + pid, 0 +: 64, 0 +: 64] = acc
```

What a CTA that stays computes at the beginning and at the end of each tile has no product beside it otherwise.
"""
from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import ClassVar

from kir.analysis.access import written
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.types import I32, MBARRIER
from kir.ir.visit import names_read, substitute
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import fresh, kernel_of
from kir.rewrite.match import block_and_index, edited, fresh_names, fresh_var, is_counted, matched, matched_as, names_at, node_as
from kir.rewrite.match.local_buffers import mentions, team_threads

from ..loops.split_loop import moved, same_up_to_names
from ..pipelining._rings import roles_at
from ..pipelining.overlap_tiles import barrier_of, ended, in_flight, named_by
from ..pipelining.take_turns import _Turns, _turns
from ._tile_parts import Parts, parts_of, read_by, tile_of, touched, up_to, values_first
from .keep_turns import closed


def _times(p: Parts) -> list[int]:
    """For each statement that computes on the first product whether it can go before the wait for the last product (0), right behind that (1), or only
    behind the rest of the other tile (2)."""
    rest, tail = touched(p.rest), touched((*p.last.code, *p.rest))
    out: list[int] = []
    late: list[set[str]] = [set(), set(), set()]
    for s in p.soft:
        here, read = touched((s,)), names_read(s)
        when = 2 if here & rest else 1 if here & tail else 0
        when = max([when, *(k for k in (1, 2) if late[k] & (here | read))])
        out.append(when)
        if isinstance(s, n.Let):
            late[when] |= set(s.names)
        else:
            late[when] |= here & tail
    return out


def _begun(p: Parts, out: str) -> n.Block:
    """Fragments that begin with a value, of which the other tile's tail uses none (`early`) or some (`late`)."""
    tail = touched((*p.last.code, *p.rest))
    return tuple(n.Store(n.Region(s.buffer), s.init) for s in p.made
                 if isinstance(s, n.Alloc) and s.init is not None and (s.buffer.name in tail) == (out == "late"))


def _both(p: Parts, of: Parts) -> list[n.Block]:
    """The tail of a tile (`p`), and beside it the head of the next (`of`), in pieces."""
    times = _times(of)
    early, between, late = (tuple(s for s, t in zip(of.soft, times, strict=True) if t == when) for when in range(3))
    return [_begun(of, "early"), of.once, in_flight(of.first, p.last, p.turn[:1], p.onward), early, ended(p.last), between, p.rest, _begun(of, "late"), late]


def _named(block: n.Block, names: dict[str, str]) -> n.Block:
    return tuple(rename(s, names) for s in block)


def _beside(p: Parts, needed: n.Block, loop: n.For, to: n.Expr, taken: set[str]) -> tuple[dict[str, str], n.Block]:
    """The values of tile `to`, and its head beside the tail of this one; and the names that they have there."""
    names = fresh_names((*needed, *p.head), taken)
    tail = fresh_names(p.tail, taken)

    def put(block: n.Block) -> n.Block:
        return tuple(rename(moved(s, loop.var.name, to), names) for s in block)
    of = replace(p, once=put(p.once), first=p.first.changed(put), soft=put(p.soft))
    other = replace(p, turn=_named(p.turn, tail), last=p.last.changed(lambda code: _named(code, tail)), rest=_named(p.rest, tail))
    return names, (*put(needed), *chain(*_both(other, of)))


def _ahead(loop: n.For, taken: set[str], turns: _Turns | None) -> n.Block:
    """What a loop over whole tiles becomes."""
    under, p = matched(tile_of(loop))
    made = _made(loop, p, taken) if under is None else _made_under(loop, under, p, taken)
    return (*made, closed(turns)) if turns is not None and p.turn else made


def _made(loop: n.For, p: Parts, taken: set[str]) -> n.Block:
    """Fragments, the head of the first tile where there is one, and the loop in which each tile's tail has the next one's head beside it."""
    zero, on = build.const(0), build.add(loop.var, 1)
    before = _named(tuple(moved(s, loop.var.name, zero) for s in (*p.needed, *p.head)), fresh_names(p.needed, taken))
    branch = n.If(build.compare("lt", on, loop.hi), _beside(p, p.needed, loop, on, taken)[1], _alone(p))
    made = replace(loop, body=(*p.lets, p.middle[-1], *p.given, *p.counts, branch))
    return (*p.made, *p.grant, n.If(build.compare("lt", zero, loop.hi), before), made)


def _alone(p: Parts) -> n.Block:
    """A tail that nothing stands beside: it gives its turn on too."""
    return replace(p, turn=(*p.turn[:1], *p.onward)).tail


def _made_under(loop: n.For, under: n.If, p: Parts, taken: set[str]) -> n.Block:
    """The same where only some tiles have code: whether a tile was begun beside the one before is kept, and one that was not begins by itself."""
    outer, following = loop.body[:-1], build.add(loop.var, 1)
    begun = n.Region(n.Buffer(fresh("begun", taken), I32, (), "register"))
    number = fresh_var("following", taken, I32)
    needed = read_by((*outer, *p.lets), (*p.head, under.cond))
    names, beside = _beside(p, needed, loop, number, taken)
    on = build.compare("lt", following, loop.hi)
    cond = matched_as(rename(substitute(under.cond, {loop.var.name: number}), names), n.Expr)
    lets, both = beside[:len(needed)], (*beside[len(needed):], n.Store(begun, build.const(1)))
    branch = n.If(build.logical_and(on, cond), both, (*_alone(p), n.Store(begun, build.const(0))))
    start = n.If(build.compare("eq", n.Load(begun), 0), (*p.begins, *p.head))
    to = n.Let((number.name,), build.select(on, following, loop.var))
    code = (*p.lets, start, p.middle[-1], *p.given, *p.counts, to, *lets, branch)
    return *p.made, n.Alloc(begun.buffer, build.const(0)), *p.grant, replace(loop, body=(*outer, replace(under, then=code)))


def _original_under(block: n.Block, at: int, turns: _Turns | None) -> tuple[n.For, int] | None:
    """The loop of whole tiles that such a loop at a place was made of, and how many statements before it are its fragments and what is kept."""
    loop = matched_as(block[at], n.For)
    under = loop.body[-1] if loop.body else None
    grant = _granted(block[at - 1:at], turns)
    at -= len(grant)
    if not (at and isinstance(kept := block[at - 1], n.Alloc) and kept.buffer.space == "register" and isinstance(under, n.If) and under.then):
        return None
    made, code, a = _fragments(block[:at - 1]), under.then, values_first(under.then)
    inner = code[-1]
    if not (a + 1 < len(code) and isinstance(start := code[a], n.If) and isinstance(code[a + 1], n.For) and isinstance(inner, n.If) and inner.orelse):
        return None
    front = start.then[sum(isinstance(s, n.Alloc) and s.init is not None for s in made):]
    b = up_to(code, a + 2, n.Eval, ("mbar_arrive",))
    c = up_to(code, b, n.Store)
    body = (*code[:a], *made, *front, *grant, *code[a + 1:b], *_last_turn(inner.orelse[:-1], grant, turns), *code[b:c])
    whole = replace(loop, body=(*loop.body[:-1], replace(under, then=body)))
    return (whole, len(made) + 1 + len(grant)) if parts_of(body) is not None else None


def _granted(before: n.Block, turns: _Turns | None) -> n.Block:
    """The statement by which the first warpgroup lets itself in, if it is that."""
    return before if turns is not None and before == (turns.first,) else ()


def _fragments(before: n.Block) -> n.Block:
    """The fragments that are declared last."""
    count = 0
    while count < len(before) and isinstance(s := before[len(before) - 1 - count], n.Alloc) and s.buffer.space == "fragment":
        count += 1
    return before[len(before) - count:]


def _last_turn(tail: n.Block, grant: n.Block, turns: _Turns | None) -> n.Block:
    """A tail after which nobody is let in."""
    return (tail[0], *turns.last[1:], *tail[2:]) if grant and turns is not None else tail


def _original(block: n.Block, at: int, turns: _Turns | None) -> tuple[n.For, int] | None:
    """The loop of whole tiles that a loop at a place was made of, and how many statements before it are its fragments and the first head."""
    loop, guard = matched_as(block[at], n.For), block[at - 1] if at else None
    if not (isinstance(guard, n.If) and not guard.orelse and loop.body and isinstance(branch := loop.body[-1], n.If) and branch.orelse):
        return None
    grant = _granted(block[at - 2:at - 1], turns)
    made = _fragments(block[:at - 1 - len(grant)])
    a, lets = values_first(guard.then), values_first(loop.body)
    front, inner, tail = guard.then[a:], loop.body[lets:-1], _last_turn(branch.orelse, grant, turns)
    z = len(inner)
    while z and isinstance(inner[z - 1], n.Store):
        z -= 1
    counts = inner[z:]
    shown = parts_of((*made, *front, *grant, *inner[:z], *tail, *counts))  # the first head, and the tail of each
    if shown is None:
        return None
    own, pieces, k = branch.then[:a], list[n.Block](), a
    for length in map(len, _both(shown, shown)):
        pieces.append(branch.then[k:k + length])
        k += length
    _, once, flying, early, _, between, _, _, late = pieces
    at = len(shown.first.code) + len(shown.turn[:1]) - 1  # of the first product, behind a fence
    if len(branch.then) != k or not isinstance(product := flying[at], n.Mma):
        return None
    computed = [iter(early), iter(between), iter(late)]
    front_again = flying[:len(shown.first.code) - 2]
    head = (*once, *front_again, replace(product, pending=False), flying[-1], *(next(computed[t]) for t in _times(shown)))
    needed = _needed(loop.body[:lets], own, loop.var)
    if needed is None:
        return None
    back = tuple(moved(s, loop.var.name, build.sub(loop.var, 1)) for s in _named(head, needed))
    body = (*loop.body[:lets], *made, *back, *shown.middle, *shown.given, *tail, *counts)
    return (replace(loop, body=body), len(made) + len(grant) + 1) if parts_of(body) is not None else None


def _needed(lets: n.Block, own: n.Block, i: n.Var) -> dict[str, str] | None:
    """What the values of the next tile are called in this one."""
    names: dict[str, str] = {}
    for s in own:
        here = matched_as(moved(matched_as(rename(s, names), n.Stmt), i.name, build.sub(i, 1)), n.Let)
        same = next((x for x in lets if isinstance(x, n.Let) and x.value == here.value), None)
        if same is None:
            return None
        names[here.names[0]] = same.names[0]
    return names


def _apart(program: n.Program, site: Site, context: Context) -> Verdict:
    _, p = matched(tile_of(node_as(program, site.path, n.For)))
    bars = {s.buffer.name for s in kernel_of(program, site.path).body if isinstance(s, n.Alloc) and s.buffer.dtype == MBARRIER}
    early = [s for s, t in zip(p.soft, _times(p), strict=True) if t == 0]
    head, tail = (*p.once, *p.first.code, *early), (*p.last.code, *p.rest)
    clash = ((written(head) & touched(tail)) | (written(tail) & touched(head))) - bars
    if clash:
        return refuted(f"'{min(clash)}' is written by the end of a tile or by the beginning of the next, and used by the other", min(clash),
                       needs="tiles that do not need each other")
    return proved("the beginning of a tile uses nothing that the end of the one before writes, nor writes what that uses")


def _no_circle(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel = kernel_of(program, site.path)
    _, p = matched(tile_of(node_as(program, site.path, n.For)))
    _, roles = matched(roles_at(kernel))
    back = {barrier_of(s) for s in p.given}
    waits, fills = (named_by(roles.roles[0], fn) for fn in ("mbar_wait", "mbar_arrive_expect"))
    wanted, held = [barrier_of(s) for s in (*p.once, p.first.wait)], barrier_of(p.last.back)
    if set(wanted) <= set(fills) and {*back, held} <= set(waits) and back:
        until = max(fills.index(x) for x in wanted)
        if waits.index(held) > until:
            return proved("what the next tile begins with is brought before the slot that is held back is filled again")
    return refuted("the next tile is waited for while a slot is held back that must be filled before it",
                   "the producer waits for that slot, and this warpgroup for the producer", needs="a producer that brings the first product's operands first")


@dataclass(frozen=True)
class BeginAhead(Pass):
    """No parameters."""

    intent: ClassVar[str] = "rotate-loop"
    catalogue: ClassVar[tuple[int, ...]] = (18, 36)
    claim: ClassVar[str] = "Tensor cores have the first product of the next tile to work on while a tile ends, and no softmax is without a product beside it."
    requires: ClassVar[tuple[str, ...]] = ("wgmma", "ring", "persistent")
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P366", "validity", "pipeline", "a tile's beginning and the end of the one before are apart", _apart),
        Precondition("KIR-P367", "validity", "pipeline", "what a tile begins with is brought before what the one before holds is waited for", _no_circle),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over tiles of one warpgroup, each of which begins with a product, has a loop, and ends with a product."""
        if not is_counted(node, of=I32) or len(path) < 4 or not isinstance(node, n.For):
            return None
        found = tile_of(node)
        if found is None:
            return Miss("its body is not a product, a loop and another product with what is computed on them") if any(
                isinstance(s, n.Mma) for s in node.body) else None
        under, p = found
        if {x for s in (*p.given, *p.tail) for x in names_read(s)} & set(bound_names(p.head)):
            return Miss("the end of a tile uses what its beginning declares")
        values = (*node.body[:-1], *p.lets, *p.counts) if under is not None else (*p.lets, *p.counts)
        if any(mentions(s, x.buffer.name) for s in values for x in p.made if isinstance(x, n.Alloc)):
            return Miss("the values of a tile are read from its fragments")
        turns = _turns(program, path)
        if (p.turn or p.grant) and (turns is None or p.turn != turns.last or p.grant != (turns.first,)):
            return Miss("warpgroups take turns in another way")
        if roles_at(kernel_of(program, path)) is None or team_threads(program, path) != 128:
            return Miss("the products are not those of one warpgroup of a role")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The first head before the loop, each other one beside the tail of the tile before."""
        made = _ahead(node_as(program, site.path, n.For), names_at(program, site.path), _turns(program, site.path))
        return edited(program, site.path, made, at=max(k for k, s in enumerate(made) if isinstance(s, n.For)))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over tiles whose tails have the next one's head beside them."""
        if not is_counted(node, of=I32) or len(path) < 4 or not isinstance(node, n.For):
            return None
        block, at = block_and_index(program, path)
        turns = _turns(program, path)
        found = _original(block, at, turns) or _original_under(block, at, turns)
        if found is None:
            return None
        loop, count = found
        made = _ahead(loop, names_at(program, path), turns)
        if not same_up_to_names(made, block[at - count:at - count + len(made)]):
            return None
        return Site(path, self, {"loop": loop, "count": count, "after": len(made) - count})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each tile whole."""
        count = site.captures["count"]
        return edited(program, site.path, (site.captures["loop"],), -count, site.captures["after"], at=-count)
