"""Computes the running sums of an array of the CTA together, in steps that double their reach, instead of each thread for itself.

pipeline: `parallel-scan{reverse=true}@main/total`

```diff
 kir 1
 program suffix_sums
   size M: i32
   in X: i32[M, 64]
   out Y: i32[M, 64]
 kernel main grid (row: M) threads 64
   shared counts: i32[64]
+  shared sums: i32[64]
   for t in 0..64 parallel thread
     counts[t] = X[row, t]
     barrier()
-    @total register total: i32 = 0
-    for u in 0..64 - t
-      total = total + counts[t + u]
-    Y[row, t] = total
+    @total sums[t] = counts[t]
+    barrier()
+    for s in 0..6
+      register other: i32 = 0
+      if (1 << s) + t < 64
+        other = sums[(1 << s) + t]
+      barrier()
+      sums[t] = other + sums[t]
+      barrier()
+    Y[row, t] = sums[t]
```
"""
from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import ClassVar

from kir.analysis.loops.reductions import identity
from kir.analysis.uniform import varying
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType
from kir.ir.visit import buffers_named, names_read, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, fresh, kernel_of
from kir.rewrite.match import block_and_index, counting, fresh_var, matched, matched_as, names_at, params_as, splice
from kir.rewrite.match.exchange import REDUCTIONS, accumulation, folded
from kir.rewrite.match.materialize import is_pure
from kir.rewrite.match.shared_arrays import declaration, shifted, slot_array, uses, with_shared, without_shared
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_scalar, team_at, whole


def _written_once(program: n.Program, site: Site, context: Context) -> Verdict:
    block, i = block_and_index(program, site.path)
    acc = matched_as(block[i], n.Alloc)
    if any(isinstance(x, n.Region) and x.buffer.name == acc.buffer.name for s in block[i + 2:] for x in _places_written(s)):
        return refuted(f"'{acc.buffer.name}' is written again", needs="a sum that nothing else writes")
    return proved("nothing writes the sum again")


def _same_for_all(program: n.Program, site: Site, context: Context) -> Verdict:
    team, item = matched(team_at(program, site.path)), params_as(site, ParallelScan)
    found = matched(item.running(program, site.path))
    private = sorted((names_read(found.value) | buffers_named(found.value)) & (varying(team.loop)[site.path[2:]] - {team.thread.name}))
    if private:
        return refuted(f"another thread has another '{private[0]}'", "thread 1 adds what it holds itself in place of what thread 0 put in",
                       needs="values that follow from a thread's number")
    written = {x.buffer.name for s in kernel_of(program, site.path).body for x in _places_written(s)}
    loads = [x.at.buffer for x in walk(found.value) if isinstance(x, n.Load)]
    if any(b.space == "global" and b.name in written for b in loads):
        return unknown("what is added up is read from memory that the kernel writes", needs="tensors that are only read")
    return proved("what each thread puts in follows from its number")


def _places_written(s: n.Stmt) -> tuple[n.Region, ...]:
    return tuple(x.at if isinstance(x, n.Store) else x.dst for x in walk(s) if isinstance(x, (n.Store, n.Copy)))


@dataclass(frozen=True)
class Running:
    """A running reduction with `op` of `value`, what the thread of a number `t` puts in; `flipped`: what comes from the other thread stands behind a
    thread's own, and `late`: only threads that there is another for add up."""

    value: n.Expr
    op: str
    flipped: bool = False
    late: bool = False

    def of(self, t: n.Var, other: n.Expr) -> n.Expr:
        """What another thread puts in."""
        made: n.Expr = substitute(self.value, {t.name: other})
        return made


@dataclass(frozen=True)
class ParallelScan(Pass):
    """`reverse`: from each thread's own place to the end; otherwise from the start up to it. `flipped`: a thread adds what comes from the other one to its
    own, not its own to that; `late`: only threads for which there is another add up in a step."""

    intent: ClassVar[str] = "parallel-scan"
    catalogue: ClassVar[tuple[int, ...]] = (64, 45)
    claim: ClassVar[str] = "All running sums are ready after the logarithm of their number in steps."
    numerics: ClassVar[str] = "reassociated(axis)"
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P640", "validity", "pipeline", "all threads of the CTA come to the barriers", everyone_arrives),
        Precondition("KIR-P641", "validity", "storage", "nothing else writes the sum", _written_once),
        Precondition("KIR-P955", "validity", "storage", "a thread may compute what another puts in", _same_for_all),
    )

    reverse: bool = False
    flipped: bool = False
    late: bool = False

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
        at = n.Var("%at", team.thread.of)
        value = substitute(source, {loop.var.name: build.sub(at, team.thread) if self.reverse else at})
        if not _is_put_in(value):
            return None
        found = Running(substitute(value, {at.name: team.thread}), op, self.flipped, self.late)
        return found if _serial(found, acc.buffer, loop.var, team, self.reverse) == (acc, loop) else None

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
        if team is None or not (isinstance(node, n.Store) and node.at.buffer.space == "shared" and _is_put_in(node.value)):
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
        return Site(path, ParallelScan(found[1], found[0].flipped, found[0].late))

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
    if not (isinstance(node, n.Store) and isinstance(loop, n.For) and len(loop.body) == 5
            and isinstance(loop.body[0], n.Alloc)):
        return None
    for op, flipped, late, reverse in product(REDUCTIONS, (False, True), (False, True), (False, True)):
        found = Running(node.value, op, flipped, late)
        if _doubling(found, node.at.buffer, loop.var, loop.body[0].buffer, team, reverse) == (replace(node, label=None, origin=None), *block[i + 1:i + 3]):
            return found, reverse
    return None


def _is_put_in(value: n.Expr) -> bool:
    """Whether a value is one that a thread may put in: an element of shared memory, or something made of tensors."""
    loads = [x for x in walk(value) if isinstance(x, n.Load)]
    shared = isinstance(value, n.Load) and value.at.buffer.space == "shared"
    return is_pure(value) and not isinstance(value.type, TileType) and bool(loads) and (shared or all(x.at.buffer.space == "global" for x in loads))


def _serial(found: Running, acc: n.Buffer, u: n.Var, team: ThreadTeam, reverse: bool) -> tuple[n.Alloc, n.For]:
    """A thread's own running reduction."""
    t, place = team.thread, n.Region(acc)
    index, count = (build.add(t, u), build.sub(build.const(team.threads), t)) if reverse else (u, build.add(t, 1))
    step = n.Store(place, build.binary(found.op, whole(acc), found.of(t, index)))
    return (n.Alloc(acc, identity(REDUCTIONS[found.op], acc.dtype)),
            counting(u, count, (step,)))


def _doubling(found: Running, sums: n.Buffer, s: n.Var, other: n.Buffer, team: ThreadTeam, reverse: bool) -> n.Block:
    """The copy, the barrier, and the loop of doubling reach."""
    t, reach = team.thread, build.binary("shl", build.const(1), s)
    there = build.add(t, reach) if reverse else build.sub(t, reach)
    exists = build.compare("lt", there, team.threads) if reverse else build.compare("ge", t, reach)
    own = build.region(sums, t)
    both = build.binary(found.op, n.Load(own), whole(other)) if found.flipped else build.binary(found.op, whole(other), n.Load(own))
    adding: n.Stmt = n.Store(own, both)
    body = (n.Alloc(other, identity(REDUCTIONS[found.op], sums.dtype)),
            n.If(exists, (n.Store(n.Region(other), n.Load(build.region(sums, there))),)), barrier(),
            n.If(exists, (adding,)) if found.late else adding, barrier())
    steps = build.const((team.threads - 1).bit_length())
    return (n.Store(own, found.value), barrier(), counting(s, steps, body))
