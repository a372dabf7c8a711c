"""Computes the running sums of an array of the CTA together, in steps that double their reach, instead of each thread for itself.

before:

```kir
kir 1
program suffix_sums
  size M: i32
  in X: i32[M, 64]
  out Y: i32[M, 64]
kernel main grid (row: M) threads 64
  shared counts: i32[64]
  for t in 0..64 parallel thread
    counts[t] = X[row, t]
    barrier()
    @total register total: i32 = 0
    for u in 0..64 - t
      total = total + counts[t + u]
    Y[row, t] = total
```

pipeline: `parallel-scan{reverse=true}@main/total`

after:

```kir
kir 1
program suffix_sums
  size M: i32
  in X: i32[M, 64]
  out Y: i32[M, 64]
kernel main grid (row: M) threads 64
  shared counts: i32[64]
  shared sums: i32[64]
  for t in 0..64 parallel thread
    counts[t] = X[row, t]
    barrier()
    @total sums[t] = counts[t]
    barrier()
    for s in 0..6
      register other: i32 = 0
      if (1 << s) + t < 64
        other = sums[(1 << s) + t]
      barrier()
      sums[t] = other + sums[t]
      barrier()
    Y[row, t] = sums[t]
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.loops.reductions import identity
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, fresh
from kir.rewrite.match import block_and_index, counting, fresh_var, matched, matched_as, names_at, splice
from kir.rewrite.match.exchange import REDUCTIONS, accumulation, folded
from kir.rewrite.match.shared_arrays import declaration, shifted, slot_array, uses, with_shared, without_shared
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_scalar, team_at, whole


def _written_once(program: n.Program, site: Site, context: Context) -> Verdict:
    block, i = block_and_index(program, site.path)
    acc = matched_as(block[i], n.Alloc)
    if any(isinstance(x, n.Region) and x.buffer.name == acc.buffer.name for s in block[i + 2:] for x in _places_written(s)):
        return refuted(f"'{acc.buffer.name}' is written again", needs="a sum that nothing else writes")
    return proved("nothing writes the sum again")


def _places_written(s: n.Stmt) -> tuple[n.Region, ...]:
    return tuple(x.at if isinstance(x, n.Store) else x.dst for x in walk(s) if isinstance(x, (n.Store, n.Copy)))


@dataclass(frozen=True)
class Running:
    """A running reduction with `op` of `source`, one place for each thread."""

    source: n.Buffer
    op: str


@dataclass(frozen=True)
class ParallelScan(Pass):
    """`reverse`: from each thread's own place to the end; otherwise from the start up to it."""

    intent: ClassVar[str] = "parallel-scan"
    catalogue: ClassVar[tuple[int, ...]] = (64, 45)
    claim: ClassVar[str] = "All running sums are ready after the logarithm of their number in steps."
    numerics: ClassVar[str] = "reassociated(axis)"
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P640", "validity", "pipeline", "all threads of the CTA come to the barriers", everyone_arrives),
        Precondition("KIR-P641", "validity", "storage", "nothing else writes the sum", _written_once),
    )

    reverse: bool = False

    def running(self, program: n.Program, path: Path) -> Running | None:
        """What the accumulator at a path and the loop after it compute, when it is each thread's running reduction."""
        (block, i), team = block_and_index(program, path), team_at(program, path)
        if team is None or i + 1 >= len(block):
            return None
        acc, loop = block[i], block[i + 1]
        if not (isinstance(acc, n.Alloc) and is_scalar(acc) and isinstance(loop, n.For) and len(loop.body) == 1 and not loop.attrs):
            return None
        step = folded(loop.body[0], acc.buffer) if accumulation(loop, acc.buffer) else None
        if step is None or acc.init != identity(REDUCTIONS[step[0]], acc.buffer.dtype):
            return None
        op, source = step
        if not (isinstance(source, n.Load) and source.at.buffer.space == "shared"
                and source.at.buffer.shape == (build.const(team.threads),)):
            return None
        made = _serial(Running(source.at.buffer, op), acc.buffer, loop.var, team, self.reverse)
        return Running(source.at.buffer, op) if made == (acc, loop) else None

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an accumulator that the next loop gives a thread's running reduction."""
        if not isinstance(node, n.Alloc) or team_at(program, path) is None:
            return None
        return Site(path, self) if self.running(program, path) is not None else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Steps of doubling reach over an array of sums."""
        (block, i), team = block_and_index(program, site.path), team_at(program, site.path)
        found = matched(self.running(program, site.path))
        assert team is not None
        acc = matched_as(block[i], n.Alloc)
        taken = names_at(program, site.path)
        sums = slot_array(fresh("sums", taken), acc.buffer.dtype, team.threads)
        s, other = fresh_var("s", taken), n.Buffer(fresh("other", taken), acc.buffer.dtype, (), "register")
        first, *steps = _doubling(found, sums, s, other, team, self.reverse)
        own = n.Load(build.region(sums, team.thread))

        def read(old: n.Node, new: n.Node) -> n.Node:
            return own if isinstance(new, n.Load) and new.at == n.Region(acc.buffer) else new
        rest = tuple(transform(x, read) for x in block[i + 2:])
        assert isinstance(first, n.Store)
        out = splice(program, site.path, (replace(first, label=acc.label), *steps, *rest), 0, None)
        return Rewritten(with_shared(out, team, sums), shifted(site.path, int(team.path[1]), 1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the store that copies a thread's element to an array whose running reductions the next statements compute."""
        team = team_at(program, path)
        if team is None or not (isinstance(node, n.Store) and node.at.buffer.space == "shared" and isinstance(node.value, n.Load)
                                and node.value.at.buffer.space == "shared"):
            return None
        (block, i), sums = block_and_index(program, path), node.at.buffer
        if not (i + 2 < len(block) and isinstance(block[i + 2], n.For)):
            return None
        found = _scan_at(block, i, team)
        if found is None:
            return Miss("its steps are not those of a scan over the threads")
        own = build.region(sums, team.thread)
        rest = sum(isinstance(x, n.Load) and x.at == own for y in block[i + 3:] for x in walk(y))
        inside = sum(isinstance(x, n.Region) and x.buffer == sums for y in block[i:i + 3] for x in walk(y))
        home = declaration(program, path, sums.name)
        if rest + inside != uses(program, path, sums.name) or home is None or home.init is not None:
            return Miss(f"'{sums.name}' is used elsewhere, or by other threads")
        return Site(path, ParallelScan(found[1]))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each thread folds what its sum is made of."""
        (block, i), team = block_and_index(program, site.path), team_at(program, site.path)
        node, scan = matched_as(block[i], n.Store), None if team is None else _scan_at(block, i, team)
        assert team is not None and scan is not None
        found, sums = scan[0], node.at.buffer
        taken = names_at(program, site.path)
        acc = n.Buffer(fresh("total", taken), sums.dtype, (), "register")
        own = build.region(sums, team.thread)

        def read(old: n.Node, new: n.Node) -> n.Node:
            return whole(acc) if isinstance(new, n.Load) and new.at == own else new
        start, fold = _serial(found, acc, fresh_var("u", taken), team, self.reverse)
        rest = tuple(transform(x, read) for x in block[i + 3:])
        out = splice(program, site.path, (replace(start, label=node.label), fold, *rest), 0, None)
        out, at = without_shared(out, str(site.path[0]), sums.name)
        return Rewritten(out, shifted(site.path, at, -1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """A sum for each thread."""
        team, node = team_at(program, site.path), block_at(program, site.path)[int(site.path[-1])]
        return Effect() if team is None or not isinstance(node, n.Alloc) else Effect(shared_bytes=team.threads * node.buffer.dtype.bytes)


def _scan_at(block: n.Block, i: int, team: ThreadTeam) -> tuple[Running, bool] | None:
    """(what is reduced, whether from the end) of a scan whose first statement is `i`."""
    node, loop = block[i], block[i + 2]
    if not (isinstance(node, n.Store) and isinstance(node.value, n.Load) and isinstance(loop, n.For) and len(loop.body) == 5
            and isinstance(loop.body[0], n.Alloc)):
        return None
    for op in REDUCTIONS:
        found = Running(node.value.at.buffer, op)
        for reverse in (False, True):
            if _doubling(found, node.at.buffer, loop.var, loop.body[0].buffer, team, reverse) == block[i:i + 3]:
                return found, reverse
    return None


def _serial(found: Running, acc: n.Buffer, u: n.Var, team: ThreadTeam, reverse: bool) -> tuple[n.Alloc, n.For]:
    """A thread's own running reduction."""
    t, place = team.thread, n.Region(acc)
    index, count = (build.add(t, u), build.sub(build.const(team.threads), t)) if reverse else (u, build.add(t, 1))
    step = n.Store(place, build.binary(found.op, whole(acc), n.Load(build.region(found.source, index))))
    return (n.Alloc(acc, identity(REDUCTIONS[found.op], acc.dtype)),
            counting(u, count, (step,)))


def _doubling(found: Running, sums: n.Buffer, s: n.Var, other: n.Buffer, team: ThreadTeam, reverse: bool) -> n.Block:
    """The copy, the barrier, and the loop of doubling reach."""
    t, reach = team.thread, build.binary("shl", build.const(1), s)
    there = build.add(t, reach) if reverse else build.sub(t, reach)
    exists = build.compare("lt", there, team.threads) if reverse else build.compare("ge", t, reach)
    own = build.region(sums, t)
    body = (n.Alloc(other, identity(REDUCTIONS[found.op], sums.dtype)),
            n.If(exists, (n.Store(n.Region(other), n.Load(build.region(sums, there))),)), barrier(),
            n.Store(own, build.binary(found.op, whole(other), n.Load(own))), barrier())
    steps = build.const((team.threads - 1).bit_length())
    return (n.Store(own, n.Load(build.region(found.source, t))), barrier(), counting(s, steps, body))
