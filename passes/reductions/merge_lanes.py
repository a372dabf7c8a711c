"""Lets each lane of a warp take one of the shares that are merged into a state of several scalars, and merges the lanes' in a ladder of shuffles.

before:

```kir
kir 1
program first_maximum
  size M: i32
  in X: f32[M, 32]
  out V: f32[M]
  out I: i32[M]
kernel main grid (row: M) threads 32
  for t in 0..32 parallel thread
    register best: f32
    register at: i32
    @shares for u in 0..32
      register best_1: f32 = X[row, u]
      register at_1: i32 = u
      if u == 0
        best = best_1
        at = at_1
      else
        if best_1 > best | best_1 == best & at_1 < at
          best = best_1
          at = at_1
    if t == 0
      V[row] = best
      I[row] = at
```

pipeline: `merge-lanes@main/t/shares`

after:

```kir
kir 1
program first_maximum
  size M: i32
  in X: f32[M, 32]
  out V: f32[M]
  out I: i32[M]
kernel main grid (row: M) threads 32
  for t in 0..32 parallel thread
    register best: f32 = X[row, t]
    register at: i32 = t
    @shares for s in 0..5
      let other = shfl_xor(best, 16 >> s)
      let other_1 = shfl_xor(at, 16 >> s)
      if other > best | other == best & other_1 < at
        best = other
        at = other_1
    if t == 0
      V[row] = best
      I[row] = at
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import rename
from kir.ir.visit import substitute, transform
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at
from kir.rewrite.match import block_and_index, counting, fresh_var, from_zero, matched, names_at, params_as, splice
from kir.rewrite.match.thread_team import ThreadTeam, team_at, warps_arrive, whole

from ._result_readers import Readers
from ._shares import Shares, any_order, first_declared, is_merge, same_shares, shares_at, taken_back, where_found

WARP = 32


def _ladder(loop: n.Stmt | None) -> tuple[tuple[n.Buffer, ...], tuple[str, ...], n.Block, bool, bool, int] | None:
    """(what is held, names of what comes, the merge, rising, down, lanes) of a ladder of shuffles of several scalars."""
    if not (isinstance(loop, n.For) and loop.kind == "serial" and from_zero(loop) and not loop.attrs):
        return None
    held, names, merge = [], [], list(loop.body)
    fn = ""
    distance: n.Expr | n.Region | None = None
    while merge and isinstance(s := merge[0], n.Let) and isinstance(v := s.value, n.Call) and v.fn in ("shfl_xor", "shfl_down") and len(v.args) == 2:
        source = v.args[0]
        if v.attrs or (fn and (v.fn, v.args[1]) != (fn, distance)) or not (isinstance(source, n.Load) and source.mask is None and not source.at.index):
            return None
        fn, distance = v.fn, v.args[1]
        held.append(source.at.buffer)
        names.append(s.names[0])
        merge.pop(0)
    steps = build.int_value(loop.hi)
    if not steps or steps > 5 or len(held) < 2 or len(set(held)) != len(held) or any(b.space != "register" or b.shape for b in held):
        return None
    rising = next((up for up in (False, True) if distance == _distance(loop.var, 1 << steps, up)), None)
    return None if rising is None else (tuple(held), tuple(names), tuple(merge), rising, fn == "shfl_down", 1 << steps)


def _distance(s: n.Var, lanes: int, rising: bool) -> n.Expr:
    return build.binary("shl", build.const(1), s) if rising else build.binary("shr", build.const(lanes // 2), s)


def _one_warp(program: n.Program, site: Site, context: Context) -> Verdict:
    team, made = matched(team_at(program, site.path)), matched(shares_at(*block_and_index(program, site.path)))
    if made.count != team.threads or made.count > WARP or made.count < 2 or made.count & (made.count - 1):
        return refuted(f"there are {made.count} shares for {team.threads} threads", needs=f"one share for each lane of the CTA's one warp, up to {WARP}")
    return proved("each lane takes one share")


def _first_lane_reads(program: n.Program, site: Site, context: Context) -> Verdict:
    item, team, made = params_as(site, MergeLanes), matched(team_at(program, site.path)), matched(shares_at(*block_and_index(program, site.path)))
    if not item.down:
        return proved("every lane has the result")
    for b in made.held:
        reader = Readers(program, team, b.name, lambda t: t % WARP == 0).after(site.path, 1)
        if reader is not None:
            return refuted(f"only the first lane has the result, and {reader} reads '{b.name}'", "lane 1 has merged what lies above it",
                           needs="a branch of the first lane around every reader", attempt="down=false")
    return proved("only the first lane reads the result")


@dataclass(frozen=True)
class MergeLanes(Pass):
    """`rising`: lanes at distance 1 come first, otherwise those furthest apart. `down`: each lane takes from those above it alone, so that only
    the first has the result."""

    intent: ClassVar[str] = "shuffle-exchange"
    catalogue: ClassVar[tuple[int, ...]] = (43, 44)
    claim: ClassVar[str] = "A maximum with its place, or moments with their count, come together in the logarithm of the steps."
    numerics: ClassVar[str] = "reassociated(lanes)"
    provides: ClassVar[tuple[str, ...]] = ("lanes",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P971", "validity", "shape", "there is one share for each lane of the CTA's one warp", _one_warp),
        Precondition("KIR-P972", "validity", "numerics", "shares may be merged in any order", any_order),
        Precondition("KIR-P973", "validity", "storage", "every thread finds the same shares", same_shares),
        Precondition("KIR-P974", "validity", "storage", "where only the first lane has the result, nobody else reads it", _first_lane_reads),
        Precondition("KIR-P975", "validity", "pipeline", "all lanes of the warp take part", warps_arrive),
    )

    rising: bool = False
    down: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over shares that are merged."""
        if not isinstance(node, n.For) or node.kind != "serial" or team_at(program, path) is None:
            return None
        return None if shares_at(*block_and_index(program, path)) is None else Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each lane finds its own share; then the ladder."""
        (block, i), team = block_and_index(program, site.path), matched(team_at(program, site.path))
        made, loop = matched(shares_at(block, i)), block[i]
        names = {of.name: to.name for of, to in zip(made.own, made.held, strict=True)}
        found = tuple(rename(substitute(s, {made.var.name: team.thread}), names) for s in made.found)
        taken = names_at(program, site.path)
        s = fresh_var("s", taken)
        others = {b.name: fresh_var("other", taken, b.dtype) for b in made.own}
        near = tuple(n.Let((other.name,), build.call("shfl_down" if self.down else "shfl_xor", whole(b), _distance(s, made.count, self.rising)))
                     for other, b in zip(others.values(), made.held, strict=True))
        merge = tuple(transform(x, lambda _, e: others.get(e.at.buffer.name, e) if isinstance(e, n.Load) else e) for x in made.merge)
        ladder = counting(s, made.count.bit_length() - 1, (*near, *merge), label=loop.label)
        first = i - len(made.held)
        out = splice(program, (*site.path[:-1], first), (*found, ladder), 0, len(made.held) + 1)
        return Rewritten(out, (*site.path[:-1], first + len(found)))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a ladder of shuffles of several scalars, which the statements before it have found."""
        team = team_at(program, path)
        if team is None or (ladder := _ladder(node if isinstance(node, n.For) else None)) is None:
            return None
        held, _, _, rising, down, lanes = ladder
        block, i = block_and_index(program, path)
        if lanes != team.threads:
            return Miss("its lanes are not all threads of the CTA")
        if isinstance(why := where_found(block, i, held, block[i:], held), Miss):
            return why
        return Site(path, MergeLanes(rising, down)) if is_merge(_taken_back(program, path, team)) else Miss("more than a share is written before it")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every thread finds all shares and merges them, one after another."""
        block, i = block_and_index(program, site.path)
        made = _taken_back(program, site.path, matched(team_at(program, site.path)))
        first = matched(first_declared(block, i, made.held))
        declared = tuple(n.Alloc(b) for b in made.held)
        loop = counting(made.var, made.count, made.body, label=block[i].label)
        out = splice(program, (*site.path[:-1], first), (*declared, loop), 0, i - first + 1)
        return Rewritten(out, (*site.path[:-1], first + len(declared)))


def _taken_back(program: n.Program, path: Path, team: ThreadTeam) -> Shares:
    """The loop over shares that a ladder comes from."""
    block, i = block_at(program, path), int(path[-1])
    held, names, merge, _, _, lanes = matched(_ladder(block[i]))
    lane = block[matched(first_declared(block, i, held)):i]
    return taken_back(names_at(program, path), team, lane, held, held, lanes,
                      lambda own: tuple(substitute(s, {name: whole(b) for name, b in zip(names, own, strict=True)}) for s in merge))
