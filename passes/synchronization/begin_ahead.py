"""Begins a tile beside the end of the one before it: its first product, and what is computed on that, while the last product of the other is in flight.

before:

```kir
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
      @tiles for i_1 in 0..ceildiv(M - pid, 2)
        fragment acc: f32[64, 64] = 0.0
        fragment held: f16[64, 64]
        mbar_wait(&q_full, i_1 % 2)
        fragment first: f32[64, 64] = 0.0
        mbar_wait(&k_full[L // 64 * i_1 % 2], L // 64 * i_1 // 2 % 2)
        mma first += Qs * trans(Ks[L // 64 * i_1 % 2, 0 +: 64, 0 +: 64], 1, 0) via wgmma
        mbar_arrive(&k_empty[L // 64 * i_1 % 2])
        held = cast(first * 0.5, f16)
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
        mbar_wait(&v_full[(L // 64 + L // 64 * i_1 - 1) % 2], (L // 64 + L // 64 * i_1 - 1) // 2 % 2)
        mma acc += held * Vs[(L // 64 + L // 64 * i_1 - 1) % 2, 0 +: 64, 0 +: 64] via wgmma
        mbar_arrive(&v_empty[(L // 64 + L // 64 * i_1 - 1) % 2])
        O[i_1 * 2 + pid, 0 +: 64, 0 +: 64] = acc
```

pipeline: `begin-ahead@main/roles/consumer/tiles`

after:

```kir
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
      fragment acc: f32[64, 64] = 0.0
      fragment held: f16[64, 64]
      if 0 < ceildiv(M - pid, 2)
        mbar_wait(&q_full, 0)
        fragment first: f32[64, 64] = 0.0
        mbar_wait(&k_full[0], 0)
        mma first += Qs * trans(Ks[0, 0 +: 64, 0 +: 64], 1, 0) via wgmma
        mbar_arrive(&k_empty[0])
        held = cast(first * 0.5, f16)
      @tiles for i_1 in 0..ceildiv(M - pid, 2)
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
        if i_1 + 1 < ceildiv(M - pid, 2)
          mbar_wait(&q_full, (i_1 + 1) % 2)
          fragment first_1: f32[64, 64] = 0.0
          mbar_wait(&k_full[(L // 64 + L // 64 * i_1) % 2], (L // 64 + L // 64 * i_1) // 2 % 2)
          wgmma_fence()
          mma first_1 += Qs * trans(Ks[(L // 64 + L // 64 * i_1) % 2, 0 +: 64, 0 +: 64], 1, 0) via wgmma pending
          wgmma_commit()
          mbar_wait(&v_full[(L // 64 + L // 64 * i_1 - 1) % 2], (L // 64 + L // 64 * i_1 - 1) // 2 % 2)
          mma acc += held * Vs[(L // 64 + L // 64 * i_1 - 1) % 2, 0 +: 64, 0 +: 64] via wgmma pending
          wgmma_commit()
          wgmma_wait(1)
          mbar_arrive(&k_empty[(L // 64 + L // 64 * i_1) % 2])
          wgmma_wait(0)
          mbar_arrive(&v_empty[(L // 64 + L // 64 * i_1 - 1) % 2])
          held = cast(first_1 * 0.5, f16)
          O[i_1 * 2 + pid, 0 +: 64, 0 +: 64] = acc
          acc = 0.0
        else
          mbar_wait(&v_full[(L // 64 + L // 64 * i_1 - 1) % 2], (L // 64 + L // 64 * i_1 - 1) // 2 % 2)
          mma acc += held * Vs[(L // 64 + L // 64 * i_1 - 1) % 2, 0 +: 64, 0 +: 64] via wgmma
          mbar_arrive(&v_empty[(L // 64 + L // 64 * i_1 - 1) % 2])
          O[i_1 * 2 + pid, 0 +: 64, 0 +: 64] = acc
```

What a CTA that stays computes at the beginning and at the end of each tile has no product beside it otherwise.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.types import I32, MBARRIER
from kir.ir.visit import names_read, substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import fresh, kernel_of
from kir.rewrite.match import block_and_index, edited, fresh_var, is_counted, matched, matched_as, names_at, node_as
from kir.rewrite.match.local_buffers import mentions, team_threads

from ..loops.split_loop import moved, same_up_to_names
from ..pipelining._rings import roles_at
from ..pipelining.overlap_tiles import _bar, _Tile
from ..pipelining.take_turns import _Turns, _turns
from ._tile_parts import Parts, code_of, parts_of, read_by, tile_of, touched, up_to, values_first
from .keep_turns import closed


def _times(p: Parts) -> list[int]:
    """For each statement that computes on the first product whether it can go before the wait for the last product (0), right behind that (1), or only
    behind the rest of the other tile (2)."""
    rest, tail = touched(p.rest), touched((*code_of(p.last), *p.rest))
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
    tail = touched((*code_of(p.last), *p.rest))
    return tuple(n.Store(n.Region(s.buffer), s.init) for s in p.made
                 if isinstance(s, n.Alloc) and s.init is not None and (s.buffer.name in tail) == (out == "late"))


def _call(fn: str, *args: int) -> n.Stmt:
    return n.Eval(build.call(fn, *map(build.const, args)))


def _both(p: Parts, of: Parts) -> n.Block:
    """The tail of a tile (`p`), and beside it the head of the next (`of`)."""
    times = _times(of)

    def at(when: int) -> n.Block:
        return tuple(s for s, t in zip(of.soft, times, strict=True) if t == when)
    t, u = of.first, p.last
    return (*_begun(of, "early"), *of.once, *t.made, t.wait, *t.views, *p.turn[:1], _call("wgmma_fence"), replace(t.product, pending=True),
            _call("wgmma_commit"), *u.made, u.wait, *u.views, replace(u.product, pending=True), _call("wgmma_commit"), *p.onward,
            _call("wgmma_wait", 1), t.back, *at(0), _call("wgmma_wait", 0), u.back, *at(1), *p.rest, *_begun(of, "late"), *at(2))


def _named(block: n.Block, names: dict[str, str]) -> n.Block:
    return tuple(matched_as(rename(s, names), n.Stmt) for s in block)


def _ahead(loop: n.For, taken: set[str], turns: _Turns | None) -> n.Block:
    """What a loop over whole tiles becomes."""
    under, p = matched(tile_of(loop))
    made = _made(loop, p, taken) if under is None else _made_under(loop, under, p, taken)
    return (*made, closed(turns)) if turns is not None and p.turn else made


def _made(loop: n.For, p: Parts, taken: set[str]) -> n.Block:
    """Fragments, the head of the first tile where there is one, and the loop in which each tile's tail has the next one's head beside it."""
    def again(block: n.Block) -> dict[str, str]:
        return {x: fresh(x, taken) for x in dict.fromkeys(bound_names(block))}
    i, needed, head = loop.var, p.needed, p.head
    zero, on = build.const(0), build.add(i, 1)
    before = _named(tuple(moved(s, i.name, zero) for s in (*needed, *head)), again(needed))
    names = again((*needed, *head))
    lets, of = _renamed(p, needed, names, i, on)
    tail = again(p.tail)
    other = replace(p, turn=_named(p.turn, tail), last=_tile_named(p.last, tail), rest=_named(p.rest, tail))
    then = (*lets, *_both(other, of))
    branch = n.If(build.compare("lt", on, loop.hi), then, _alone(p))
    made = replace(loop, body=(*p.lets, p.middle[-1], *p.given, *p.counts, branch))
    return (*p.made, *p.grant, n.If(build.compare("lt", zero, loop.hi), before), made)


def _alone(p: Parts) -> n.Block:
    """A tail that nothing stands beside: it gives its turn on too."""
    return replace(p, turn=(*p.turn[:1], *p.onward)).tail


def _made_under(loop: n.For, under: n.If, p: Parts, taken: set[str]) -> n.Block:
    """The same where only some tiles have code: whether a tile was begun beside the one before is kept, and one that was not begins by itself."""
    def again(block: n.Block) -> dict[str, str]:
        return {x: fresh(x, taken) for x in dict.fromkeys(bound_names(block))}
    i, outer = loop.var, loop.body[:-1]
    begun = n.Region(n.Buffer(fresh("begun", taken), I32, (), "register"))
    following = fresh_var("following", taken, I32)
    needed = read_by((*outer, *p.lets), (*p.head, under.cond))
    names = again((*needed, *p.head))
    lets, of = _renamed(p, needed, names, i, following)
    tail = again(p.tail)
    other = replace(p, turn=_named(p.turn, tail), last=_tile_named(p.last, tail), rest=_named(p.rest, tail))
    cond = matched_as(rename(substitute(under.cond, {i.name: following}), names), n.Expr)
    on = build.compare("lt", build.add(i, 1), loop.hi)
    both = n.If(build.logical_and(on, cond), (*_both(other, of), n.Store(begun, build.const(1))),
                (*_alone(p), n.Store(begun, build.const(0))))
    start = n.If(build.compare("eq", n.Load(begun), 0), (*p.begins, *p.head))
    to = n.Let((following.name,), build.select(on, build.add(i, 1), i))
    code = (*p.lets, start, p.middle[-1], *p.given, *p.counts, to, *lets, both)
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


def _tile_named(t: _Tile, names: dict[str, str]) -> _Tile:
    made = _named(code_of(t), names)
    k = len(t.made)
    return _Tile(made[:k], made[k], made[k + 1:-2], matched_as(made[-2], n.Mma), made[-1])


def _renamed(p: Parts, needed: n.Block, names: dict[str, str], i: n.Var, to: n.Expr) -> tuple[n.Block, Parts]:
    """The values and the head of another tile, under other names."""
    def put(block: n.Block) -> n.Block:
        return _named(tuple(moved(s, i.name, to) for s in block), names)
    t = p.first
    made = put(code_of(t))
    k = len(t.made)
    first = _Tile(made[:k], made[k], made[k + 1:-2], matched_as(made[-2], n.Mma), made[-1])
    return put(needed), replace(p, once=put(p.once), first=first, soft=put(p.soft))


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
    then, times = branch.then, _times(shown)
    own = then[:a]
    sizes = [len(_begun(shown, "early")), len(shown.once), len(code_of(shown.first)) - 2, len(shown.turn[:1]), 1, 1, 1, len(code_of(shown.last)) - 2, 1, 1,
             len(shown.onward), 1, 1, times.count(0), 1, 1, times.count(1), len(shown.rest), len(_begun(shown, "late")), times.count(2)]
    if len(then) != a + sum(sizes):
        return None
    pieces, k = [], a
    for size in sizes:
        pieces.append(then[k:k + size])
        k += size
    by = {0: list(pieces[13]), 1: list(pieces[16]), 2: list(pieces[19])}
    if not isinstance(product := pieces[5][0], n.Mma):
        return None
    head = (*pieces[1], *pieces[2], replace(product, pending=False), pieces[12][0], *(by[t].pop(0) for t in times))
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
    head, tail = (*p.once, *code_of(p.first), *early), (*code_of(p.last), *p.rest)
    clash = ((_written(head) & touched(tail)) | (_written(tail) & touched(head))) - bars
    if clash:
        return refuted(f"'{min(clash)}' is written by the end of a tile or by the beginning of the next, and used by the other", min(clash),
                       needs="tiles that do not need each other")
    return proved("the beginning of a tile uses nothing that the end of the one before writes, nor writes what that uses")


def _written(block: Iterable[n.Stmt]) -> set[str]:
    """The buffers that statements write."""
    out = set[str]()
    for s in block:
        for x in walk(s):
            if isinstance(x, n.Store):
                out.add(x.at.buffer.name)
            elif isinstance(x, n.Copy):
                out.add(x.dst.buffer.name)
            elif isinstance(x, n.Mma):
                out.add(x.acc.buffer.name)
            elif isinstance(x, n.Alloc):
                out.add(x.buffer.name)
    return out


def _no_circle(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel = kernel_of(program, site.path)
    _, p = matched(tile_of(node_as(program, site.path, n.For)))
    _, roles = matched(roles_at(kernel))
    back = {_bar(s) for s in p.given}
    freed = {_bar(s) for s in (*p.given, p.last.back)}
    waits = [x.args[0].buffer.name for x in walk(roles.roles[0]) if isinstance(x, n.Call) and x.fn == "mbar_wait" and isinstance(x.args[0], n.Region)]
    fills = [x.args[0].buffer.name for x in walk(roles.roles[0]) if isinstance(x, n.Call) and x.fn == "mbar_arrive_expect" and isinstance(x.args[0], n.Region)]
    wanted = [*map(_bar, p.once), _bar(p.first.wait)]
    if set(wanted) <= set(fills) and waits and freed <= set(waits) and back:
        until = max(fills.index(x) for x in wanted)
        if waits.index(_bar(p.last.back)) > until:
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
