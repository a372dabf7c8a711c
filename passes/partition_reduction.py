"""Spreads a reduction over the threads: each folds every T-th value, then all fold what the threads have.

before:

```kir
kir 1
program row_sums
  size M: i32
  size N: i32
  in X: f32[M, N]
  out S: f32[M]
kernel main grid (row: M) threads 128
  for t in 0..128 parallel thread
    @total register total: f32 = 0.0
    for k in 0..N
      total = total + X[row, k]
    if t == 0
      S[row] = total
```

pipeline: `partition-reduction@main/total`

after:

```kir
kir 1
program row_sums
  size M: i32
  size N: i32
  in X: f32[M, N]
  out S: f32[M]
kernel main grid (row: M) threads 128
  shared slots: f32[128]
  for t in 0..128 parallel thread
    @total register total: f32 = 0.0
    for k in 0..ceildiv(N - t, 128)
      total = total + X[row, k * 128 + t]
    slots[t] = total
    barrier()
    total = 0.0
    for u in 0..128
      total = total + slots[u]
    if t == 0
      S[row] = total
```
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kir.analysis.uniform import depends, varying
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.ir.visit import substitute_buffers
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, edit_block, fresh, kernel_of, names_in

from ._spread_loop import gathered, spread
from ._thread_team import (
    REDUCTIONS,
    Exchange,
    accumulation,
    declaration,
    everyone_arrives,
    exchange_at,
    is_in_loop,
    is_read_later,
    is_scalar,
    shifted,
    slot_array,
    team_at,
    uses,
    with_shared,
    without_shared,
)
from .tree_reduction import identity


def _same_loop(program: n.Program, site: Site, context: Context) -> Verdict:
    team = team_at(program, site.path)
    assert team is not None
    loop = block_at(program, site.path)[int(site.path[-1]) + 1]
    assert isinstance(loop, n.For)
    acc = block_at(program, site.path)[int(site.path[-1])]
    assert isinstance(acc, n.Alloc)
    names = varying(team.loop)[site.path[2:]] - {acc.buffer.name}
    which = sorted(x for x in names if depends(loop, {x}))
    if which or depends(loop, frozenset()):
        return refuted("the threads fold different values", f"the loop depends on {', '.join(which) or 'an exchange between threads'}",
                       needs="a loop that every thread runs alike")
    return proved("every thread folds the same values")


def _folding(block: n.Block, i: int) -> tuple[n.Alloc, n.For, str] | None:
    """(accumulator, loop, operation) of a scalar that starts from the identity and a loop that folds into it."""
    if i + 1 >= len(block):
        return None
    acc, loop = block[i], block[i + 1]
    if not (isinstance(acc, n.Alloc) and is_scalar(acc) and isinstance(loop, n.For)):
        return None
    op = accumulation(loop, acc.buffer)
    return (acc, loop, op) if op is not None and acc.init == identity(REDUCTIONS[op], acc.buffer.dtype) else None


@dataclass(frozen=True)
class PartitionReduction(Pass):
    """`fresh`: the result of the CTA is a scalar of its own; otherwise it replaces the thread's partial one."""

    intent: ClassVar[str] = "partition-reduction"
    catalogue: ClassVar[tuple[int, ...]] = (47,)
    claim: ClassVar[str] = "The values of one reduction are spread over the threads, which neither load nor fold any of them twice."
    numerics: ClassVar[str] = "reassociated(axis)"
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P474", "validity", "pipeline", "all threads of the CTA come to the barrier", everyone_arrives),
        Precondition("KIR-P475", "validity", "storage", "every thread folds the same values", _same_loop),
    )

    fresh: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an accumulator that the next statement, a loop of each thread, folds into."""
        if not isinstance(node, n.Alloc) or team_at(program, path) is None:
            return None
        found = _folding(block_at(program, path), int(path[-1]))
        if found is None:
            return None
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each thread folds its share; then every thread folds the slots of all."""
        block, i, team = block_at(program, site.path), int(site.path[-1]), team_at(program, site.path)
        found = _folding(block, i)
        assert found is not None and team is not None
        acc, loop, op = found
        taken = names_in(program, kernel_of(program, site.path))
        slots = slot_array(fresh("slots", taken), acc.buffer.dtype, team.threads)
        result = replace(acc.buffer, name=fresh(acc.buffer.name, taken)) if self.fresh else acc.buffer
        made = Exchange(slots, team.thread, acc.buffer, "barrier", result, self.fresh, op, build.const(0), team.threads)
        tail = made.statements(n.Var(fresh("u", taken), I32), is_in_loop(program, site.path))
        rest = tuple(substitute_buffers(s, {acc.buffer.name: result}) if self.fresh else s for s in block[i + 2:])
        out = edit_block(program, site.path, lambda b: (*b[:i], acc, spread(loop, team.thread, team.threads), *tail, *rest))
        return Rewritten(with_shared(out, team, slots), shifted(site.path, int(team.path[1]), 1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an accumulator whose loop takes every T-th value, with an exchange after it."""
        team = team_at(program, path)
        if not isinstance(node, n.Alloc) or team is None:
            return None
        block, i = block_at(program, path), int(path[-1])
        found = _folding(block, i)
        made = exchange_at(block, i + 2, is_in_loop(program, path)) if found is not None and i + 2 < len(block) else None
        if found is None or made is None or made[0].value != node.buffer:
            return None
        x = made[0]
        if (x.at, x.sync, x.op, x.count) != (team.thread, "barrier", found[2], team.threads) or not build.is_const(x.base, 0):
            return Miss("the slots are not folded by all threads, or with another operation")
        if gathered(found[1], team.thread, team.threads) is None:
            return Miss("its loop does not take every T-th value")
        home = declaration(program, path, x.slots.name)
        if home is None or home.init is not None or uses(program, path, x.slots.name) > 2:
            return Miss(f"'{x.slots.name}' serves more than the reduction")
        if x.fresh and is_read_later(program, (*path[:-1], i + 2), made[1], x.value.name):
            return Miss("the thread's own value is used afterwards")
        return Site(path, PartitionReduction(x.fresh))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop over all values, which every thread runs."""
        block, i, team = block_at(program, site.path), int(site.path[-1]), team_at(program, site.path)
        found, made = _folding(block, i), exchange_at(block, i + 2, is_in_loop(program, site.path))
        assert found is not None and made is not None and team is not None
        acc, loop, _ = found
        whole_loop = gathered(loop, team.thread, team.threads)
        assert whole_loop is not None
        x, size = made
        rest = tuple(substitute_buffers(s, {x.result.name: acc.buffer}) if x.fresh else s for s in block[i + 2 + size:])
        out = edit_block(program, site.path, lambda b: (*b[:i], acc, whole_loop, *rest))
        out, at = without_shared(out, str(site.path[0]), x.slots.name)
        return Rewritten(out, shifted(site.path, at, -1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """A slot for each thread."""
        team, node = team_at(program, site.path), block_at(program, site.path)[int(site.path[-1])]
        return Effect() if team is None or not isinstance(node, n.Alloc) else Effect(shared_bytes=team.threads * node.buffer.dtype.bytes)
