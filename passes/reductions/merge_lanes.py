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

from dataclasses import replace
from typing import ClassVar

from kir.analysis.access import ANYWHERE, buffers_written
from kir.analysis.normal.normal_form import is_pure
from kir.analysis.uniform import depends, varying
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.visit import names_mentioned, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import block_at, fresh, kernel_of
from kir.rewrite.match import block_and_index, counting, fresh_names, fresh_var, from_zero, matched, names_at, params_as, splice
from kir.rewrite.match.thread_team import ThreadTeam, is_scalar, team_at, warps_arrive, whole

from ._merge_order import Merge, NotExact, in_any_order
from ._result_readers import Readers

WARP = 32


@dataclass(frozen=True)
class Shares:
    """A loop over shares: statements that find one (`own` holds it, of the share `var`), and those that merge it into what is `held`."""

    var: n.Var
    count: int
    found: n.Block
    own: tuple[n.Buffer, ...]
    held: tuple[n.Buffer, ...]
    merge: n.Block

    @property
    def body(self) -> n.Block:
        """The loop's: the first share is taken, each later one is merged."""
        taken = tuple(n.Store(n.Region(to), whole(of)) for to, of in zip(self.held, self.own, strict=True))
        return (*self.found, n.If(build.compare("eq", self.var, 0), taken, self.merge))


def shares_at(block: n.Block, i: int) -> Shares | None:
    """The loop over shares at a place of a block, after the declarations of what is held."""
    loop = block[i]
    if not (isinstance(loop, n.For) and loop.kind == "serial" and from_zero(loop) and not loop.attrs and loop.body):
        return None
    count, last = build.int_value(loop.hi), loop.body[-1]
    if count is None or not (isinstance(last, n.If) and last.then and last.cond == build.compare("eq", loop.var, 0) and not last.static):
        return None
    pairs = [(s.at.buffer, s.value.at.buffer) for s in last.then if isinstance(s, n.Store) and not s.at.index and isinstance(s.value, n.Load)]
    held, own = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
    made = Shares(loop.var, count, loop.body[:-1], own, held, last.orelse)
    if len(pairs) != len(last.then) or made.body != loop.body or not _declared(block, i, held):
        return None
    return made if _is_merge(made) else None


def _declared(block: n.Block, i: int, held: tuple[n.Buffer, ...]) -> bool:
    """Whether the statements before one declare what is held, in order, and nothing in it."""
    before = block[max(0, i - len(held)):i]
    return tuple(s.buffer for s in before if isinstance(s, n.Alloc) and is_scalar(s) and s.init is None) == held


def _is_merge(made: Shares) -> bool:
    """Whether a share is found by what is its own alone, and the merge reads and writes what is held, the share's parts, and what it declares."""
    bound = set(bound_names(made.found))
    inside = {s.buffer.name for s in made.found if isinstance(s, n.Alloc)}
    if not {b.name for b in made.own} <= inside or not _private(made.found, bound) or not made.merge:
        return False
    local = set(bound_names(made.merge)) | {b.name for b in made.held}
    read = local | {b.name for b in made.own}
    return _private(made.merge, local) and all(
        x.name in local if isinstance(x, n.Var) else x.at.buffer.name in read if isinstance(x, n.Load) else True for s in made.merge for x in walk(s))


def _private(block: n.Block, names: set[str]) -> bool:
    """Whether statements write nothing but scalars and arrays of the thread among some names, and no thread waits in them."""
    for s in block:
        for x in walk(s):
            match x:
                case n.Store() if x.at.buffer.name not in names or x.at.buffer.space not in ("register", "fragment"):
                    return False
                case n.Copy() | n.Mma() | n.Eval() | n.Opaque() | n.Hole() | n.Jump() | n.While() | n.Roles() | n.View() | n.Address():
                    return False
                case n.Alloc() if x.buffer.space != "register":
                    return False
                case n.Call() if not is_pure(x) or x.of is not None or x.fn.startswith("shfl"):
                    return False
                case _:
                    pass
    return True


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


def _first(block: n.Block, i: int, held: tuple[n.Buffer, ...]) -> int | None:
    """Where the statements begin that find a lane's share: at the first declaration of what is held."""
    at = [k for k, s in enumerate(block[:i]) if isinstance(s, n.Alloc) and s.buffer in held]
    return min(at) if len(at) == len(held) else None


def _one_warp(program: n.Program, site: Site, context: Context) -> Verdict:
    team, made = matched(team_at(program, site.path)), matched(shares_at(*block_and_index(program, site.path)))
    if made.count != team.threads or made.count > WARP or made.count < 2 or made.count & (made.count - 1):
        return refuted(f"there are {made.count} shares for {team.threads} threads", needs=f"one share for each lane of the CTA's one warp, up to {WARP}")
    return proved("each lane takes one share")


def _any_order(program: n.Program, site: Site, context: Context) -> Verdict:
    made = matched(shares_at(*block_and_index(program, site.path)))
    try:
        same, why = in_any_order(Merge(made.merge, made.held, made.own), made.found)
    except NotExact as bad:
        return unknown(f"whether shares may be merged in any order is not computed: {bad}", needs="sums, products, quotients, maxima and choices")
    return proved(why) if same else refuted("the order in which shares are merged shows in the result", why, needs="a merge that takes them in any order")


def _same_shares(program: n.Program, site: Site, context: Context) -> Verdict:
    team, made = matched(team_at(program, site.path)), matched(shares_at(*block_and_index(program, site.path)))
    names = varying(team.loop)[site.path[2:]]
    for s in made.found:
        if depends(s, names):
            which = sorted(x for x in names if depends(s, {x}))
            return refuted("the threads find different shares", f"the loop depends on {', '.join(which)}", needs="a loop that every thread runs alike")
    written = buffers_written(kernel_of(program, site.path).body)
    read = {x.at.buffer for s in made.found for x in walk(s) if isinstance(x, n.Load) and x.at.buffer.space in ("shared", "global")}
    bad = sorted(b.name for b in read if b.space == "shared" or b.name in written or ANYWHERE in written)
    if bad:
        return unknown(f"a share reads '{bad[0]}', which the kernel writes", needs="shares of what the kernel only reads")
    return proved("every thread finds the same shares")


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
        Precondition("KIR-P972", "validity", "numerics", "shares may be merged in any order", _any_order),
        Precondition("KIR-P973", "validity", "storage", "every thread finds the same shares", _same_shares),
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
        first = _first(block, i, held)
        if lanes != team.threads:
            return Miss("its lanes are not all threads of the CTA")
        if first is None or any(isinstance(s, n.Alloc) and s.buffer in held and not is_scalar(s) for s in block[first:i]):
            return Miss("what it merges is not declared in its block")
        local = set(bound_names(block[first:i])) - {b.name for b in held}
        if any(local & names_mentioned(s) for s in block[i:]):
            return Miss("something that finds a share is used afterwards")
        return Site(path, MergeLanes(rising, down)) if _is_merge(_taken_back(program, path, team)) else Miss("more than a share is written before it")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every thread finds all shares and merges them, one after another."""
        block, i = block_and_index(program, site.path)
        made = _taken_back(program, site.path, matched(team_at(program, site.path)))
        first = matched(_first(block, i, made.held))
        declared = tuple(n.Alloc(b) for b in made.held)
        loop = counting(made.var, made.count, made.body, label=block[i].label)
        out = splice(program, (*site.path[:-1], first), (*declared, loop), 0, i - first + 1)
        return Rewritten(out, (*site.path[:-1], first + len(declared)))


def _taken_back(program: n.Program, path: Path, team: ThreadTeam) -> Shares:
    """The loop over shares that a ladder comes from."""
    block, i = block_at(program, path), int(path[-1])
    held, names, merge, _, _, lanes = matched(_ladder(block[i]))
    taken = names_at(program, path)
    u = fresh_var("u", taken)
    lane = block[matched(_first(block, i, held)):i]
    renamed = {b.name: fresh(b.name, taken) for b in held}
    others = {x: y for x, y in fresh_names(lane, taken).items() if x not in renamed}
    found = tuple(rename(substitute(s, {team.thread.name: u}), {**renamed, **others}) for s in lane)
    own = tuple(replace(b, name=renamed[b.name]) for b in held)
    parts = {name: whole(b) for name, b in zip(names, own, strict=True)}
    return Shares(u, lanes, found, own, held, tuple(substitute(s, parts) for s in merge))
