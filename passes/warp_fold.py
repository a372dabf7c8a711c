"""Lets each warp fold a few shared values in its registers: a lane takes one, and a ladder of shuffles does the rest.

before:

```kir
kir 1
program row_sums
  size M: i32
  in X: f32[M, 128]
  out Y: f32[M, 128]
kernel main grid (row: M) threads 128
  shared warps: f32[4]
  for t in 0..128 parallel thread
    if t % 32 == 0
      warps[t // 32] = X[row, t]
    barrier()
    @fold register sum: f32 = 0.0
    for w in 0..4
      sum = sum + warps[w]
    Y[row, t] = sum
```

pipeline: `warp-fold@main/t/fold`

after:

```kir
kir 1
program row_sums
  size M: i32
  in X: f32[M, 128]
  out Y: f32[M, 128]
kernel main grid (row: M) threads 128
  shared warps: f32[4]
  for t in 0..128 parallel thread
    if t % 32 == 0
      warps[t // 32] = X[row, t]
    barrier()
    @fold register sum: f32 = load(warps[t % 32] where t % 32 < 4 else 0.0)
    for s in 0..5
      let other = shfl_xor(sum, 16 >> s)
      sum = sum + other
    Y[row, t] = sum
```
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, edit_block, fresh, kernel_of, names_in

from ._thread_team import REDUCTIONS, Exchange, fold_at, is_scalar, team_at, warps_arrive, whole
from .shuffle_exchange import WARP, ladder_of
from .tree_reduction import identity


def _one_each(program: n.Program, site: Site, context: Context) -> Verdict:
    team, found = team_at(program, site.path), fold_at(block_at(program, site.path), int(site.path[-1]))
    assert team is not None and found is not None
    if found[0].count > WARP:
        return refuted(f"a warp has {WARP} lanes for {found[0].count} values", f"value {WARP} is left out", needs=f"at most {WARP} values")
    if team.threads % WARP:
        return refuted(f"{team.threads} threads are no whole warps", "lanes of the last warp do not exist", needs=f"a multiple of {WARP} threads")
    return proved(f"{found[0].count} values for the {WARP} lanes of each warp")


def warp_fold_at(block: n.Block, i: int, t: n.Var) -> tuple[Exchange, bool, int] | None:
    """(the fold, rising, number of statements) of a warp's fold that begins with statement `i`."""
    first, loop = block[i], block[i + 1] if i + 1 < len(block) else None
    if isinstance(first, n.Alloc) and is_scalar(first) and first.init is not None:
        result, value, fresh_ = first.buffer, first.init, True
    elif isinstance(first, n.Store) and not first.at.index and first.mask is None and first.at.buffer.space == "register":
        result, value, fresh_ = first.at.buffer, first.value, False
    else:
        return None
    if not isinstance(loop, n.For) or loop.kind != "serial" or len(loop.body) != 2:
        return None
    ladder = ladder_of(loop)
    if ladder is None or ladder[0] != result or ladder[3] != WARP or not isinstance(value, n.Load):
        return None
    made = Exchange(value.at.buffer, build.const(0), result, "", result, fresh_, ladder[1], build.const(0), build.int_value(value.at.buffer.shape[0]) or 0
                    if value.at.buffer.shape else 0)
    count = _values(value, t)
    if count is None:
        return None
    made = replace(made, count=count)
    return (made, ladder[2], 2) if value == _own(made, t) else None


def _values(e: n.Load, t: n.Var) -> int | None:
    """How many values a warp's lanes load, one each."""
    if e.mask is None:
        return WARP
    return build.int_value(e.mask.b) if isinstance(e.mask, n.Binary) and e.mask.op == "lt" else None


def _own(made: Exchange, t: n.Var) -> n.Load:
    """What a lane takes: its value, or (beyond them) the identity."""
    lane = build.mod(t, WARP)
    place = build.region(made.slots, lane)
    if made.count == WARP:
        return n.Load(place)
    return n.Load(place, build.compare("lt", lane, made.count), identity(REDUCTIONS[made.op], made.result.dtype))


@dataclass(frozen=True)
class WarpFold(Pass):
    """`rising`: lanes at distance 1 come first, otherwise those furthest apart."""

    intent: ClassVar[str] = "tree-reduction"
    catalogue: ClassVar[tuple[int, ...]] = (44, 83)
    claim: ClassVar[str] = "A few shared values are folded in five steps of a warp, each of them read once."
    numerics: ClassVar[str] = "reassociated(lanes)"
    provides: ClassVar[tuple[str, ...]] = ("lanes",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P836", "validity", "shape", "there are no more values than lanes, and all lanes exist", _one_each),
        Precondition("KIR-P837", "validity", "pipeline", "all lanes of a warp take part", warps_arrive),
    )

    rising: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a fold of shared values that each thread does for itself."""
        team = team_at(program, path)
        if team is None or not isinstance(node, (n.Alloc, n.Store)):
            return None
        found = fold_at(block_at(program, path), int(path[-1]))
        if found is None or found[0].slots.space != "shared":
            return None
        if found[0].onto or not build.is_const(found[0].base, 0) or len(found[0].slots.shape) != 1:
            return Miss("the fold does not begin with the first value")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A load of each lane's value, and the ladder."""
        block, i, team = block_at(program, site.path), int(site.path[-1]), team_at(program, site.path)
        found = fold_at(block, i)
        assert found is not None and team is not None
        made, size = found
        taken = names_in(program, kernel_of(program, site.path))
        s, other = n.Var(fresh("s", taken), I32), n.Var(fresh("other", taken), made.result.dtype)
        place, own = n.Region(made.result), _own(made, team.thread)
        distance = build.binary("shl", build.const(1), s) if self.rising else build.binary("shr", build.const(WARP // 2), s)
        body = (n.Let((other.name,), build.call("shfl_xor", whole(made.result), distance)),
                n.Store(place, build.binary(made.op, whole(made.result), other)))
        first: n.Stmt = n.Alloc(made.result, own, label=block[i].label) if made.fresh else n.Store(place, own, label=block[i].label)
        ladder = n.For(s, build.const(0), build.const(WARP.bit_length() - 1), build.const(1), body)
        return Rewritten(edit_block(program, site.path, lambda b: (*b[:i], first, ladder, *b[i + size:])), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a load of each lane's value, with a ladder of shuffles over the warp after it."""
        team = team_at(program, path)
        if team is None or not isinstance(node, (n.Alloc, n.Store)):
            return None
        found = warp_fold_at(block_at(program, path), int(path[-1]), team.thread)
        return None if found is None else Site(path, WarpFold(found[1]))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every thread folds all values."""
        block, i, team = block_at(program, site.path), int(site.path[-1]), team_at(program, site.path)
        assert team is not None
        found = warp_fold_at(block, i, team.thread)
        assert found is not None
        made, _, size = found
        first, *rest = made.fold(n.Var(fresh("w", names_in(program, kernel_of(program, site.path))), I32))
        assert isinstance(first, (n.Alloc, n.Store))
        stmts = (replace(first, label=block[i].label), *rest)
        return Rewritten(edit_block(program, site.path, lambda b: (*b[:i], *stmts, *b[i + size:])), site.path)
