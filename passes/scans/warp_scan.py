"""Computes running sums within each warp by shuffles, and across the warps from one value of each, instead of in shared memory.

pipeline: `warp-scan@main/threads/total`

```diff
 kir 1
 program prefix_sums
   size M: i32
   in X: i32[M, 64]
   out Y: i32[M, 64]
 kernel main grid (row: M) threads 64
   shared counts: i32[64]
   shared sums: i32[64]
+  shared tops: i32[2]
   @threads for t in 0..64 parallel thread
     counts[t] = X[row, t]
     barrier()
-    @total sums[t] = counts[t]
+    @total register own: i32 = counts[t]
+    for s in 0..5 unroll {factor=5}
+      let near = shfl_up(own, 1 << s)
+      if t % 32 >= 1 << s
+        own = near + own
+    if t % 32 == 31
+      tops[t // 32] = own
     barrier()
-    for s in 0..6
-      register other: i32 = 0
-      if t >= 1 << s
-        other = sums[-(1 << s) + t]
-      barrier()
-      sums[t] = other + sums[t]
-      barrier()
+    for w in 0..2 unroll {factor=2}
+      if w < t // 32
+        own = tops[w] + own
+    sums[t] = own
+    barrier()
     Y[row, t] = sums[t]
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, fresh
from kir.rewrite.match import block_and_index, fresh_var, matched, matched_as, names_at, splice
from kir.rewrite.match.exchange import REDUCTIONS
from kir.rewrite.match.shared_arrays import declaration, shifted, slot_array, uses, with_shared, without_shared
from kir.rewrite.match.thread_team import ThreadTeam, barrier, team_at, whole

from .parallel_scan import Running, _doubling, _scan_at

WARP, SIZE = 32, 7
"""Lanes of a warp, and statements of the scan that this pass writes."""


def _whole_warps(program: n.Program, site: Site, context: Context) -> Verdict:
    team = matched(team_at(program, site.path))
    if team.threads % WARP:
        return refuted(f"{team.threads} threads are no whole warps", f"lanes {team.threads % WARP} to 31 of the last warp do not exist",
                       needs=f"a multiple of {WARP} threads")
    return proved(f"{team.threads // WARP} whole warps")


@dataclass(frozen=True)
class WarpScan(Pass):
    """No parameters: the site is the store with which a scan over the threads of a CTA begins."""

    intent: ClassVar[str] = "warp-scan"
    catalogue: ClassVar[tuple[int, ...]] = (45,)
    claim: ClassVar[str] = "Most steps of a scan need no barrier and no trip through shared memory."
    numerics: ClassVar[str] = "reassociated(lanes)"
    requires: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P455", "validity", "shape", "the CTA is whole warps", _whole_warps),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first statement of a scan in shared memory."""
        team = team_at(program, path)
        if team is None or not isinstance(node, n.Store) or node.at.buffer.space != "shared":
            return None
        block, i = block_and_index(program, path)
        if i + 2 >= len(block) or not isinstance(block[i + 2], n.For) or (found := _scan_at(block, i, team)) is None:
            return None
        running = found[0]
        if running.flipped or running.late or not _is_own(running.value, team):
            return Miss("shuffles take each thread's element of shared memory, and what comes from the other thread first")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Shuffles within warps, then the sums of the warps before."""
        (block, i), team = block_and_index(program, site.path), team_at(program, site.path)
        node, scan = matched_as(block[i], n.Store), None if team is None else _scan_at(block, i, team)
        assert team is not None and scan is not None
        taken, sums = names_at(program, site.path), node.at.buffer
        tops = slot_array(fresh("tops", taken), sums.dtype, max(1, team.threads // WARP))
        own = n.Buffer(fresh("own", taken), sums.dtype, (), "register")
        loop = matched_as(block[i + 2], n.For)
        made = _levels(*scan, sums, tops, own, loop.var, fresh_var("near", taken, sums.dtype), fresh_var("w", taken), team)
        first = matched_as(made[0], n.Alloc)
        out = splice(program, site.path, (replace(first, label=node.label), *made[1:]), 0, 3)
        return Rewritten(with_shared(out, team, tops), shifted(site.path, int(team.path[1]), 1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the private scalar with which a scan in two levels begins."""
        team = team_at(program, path)
        if team is None or not isinstance(node, n.Alloc) or node.buffer.space != "register" or not isinstance(node.init, n.Load):
            return None
        found = _found(block_at(program, path), int(path[-1]), team)
        if found is None:
            return None
        tops, own = found[3], node.buffer
        home = declaration(program, path, tops.name)
        if home is None or home.init is not None or uses(program, path, tops.name) != 2:
            return Miss(f"'{tops.name}' is used elsewhere")
        if uses(program, path, own.name) != 7:
            return Miss(f"'{own.name}' is read later")
        return Site(path, self)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Steps of doubling reach in shared memory."""
        (block, i), team = block_and_index(program, site.path), team_at(program, site.path)
        found = None if team is None else _found(block, i, team)
        assert team is not None and found is not None
        running, reverse, sums, tops = found
        taken, shuffles = names_at(program, site.path), matched_as(block[i + 1], n.For)
        other = n.Buffer(fresh("other", taken), sums.dtype, (), "register")
        first, *rest = _doubling(running, sums, shuffles.var, other, team, reverse)
        assert isinstance(first, n.Store)
        out = splice(program, site.path, (replace(first, label=block[i].label), *rest), 0, SIZE)
        out, at = without_shared(out, str(site.path[0]), tops.name)
        return Rewritten(out, shifted(site.path, at, -1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """One value of each warp."""
        team, node = team_at(program, site.path), block_at(program, site.path)[int(site.path[-1])]
        return Effect() if team is None or not isinstance(node, n.Store) else Effect(shared_bytes=team.threads // WARP * node.at.buffer.dtype.bytes)


def _levels(running: Running, reverse: bool, sums: n.Buffer, tops: n.Buffer, own: n.Buffer, s: n.Var, near: n.Var, w: n.Var,
            team: ThreadTeam) -> n.Block:
    """The seven statements of a scan in two levels."""
    t, reach = team.thread, build.binary("shl", build.const(1), s)
    lane, warp = build.mod(t, WARP), build.floordiv(t, WARP)
    inside = build.compare("lt", build.add(lane, reach), WARP) if reverse else build.compare("ge", lane, reach)
    shuffle = n.Let((near.name,), build.call("shfl_down" if reverse else "shfl_up", whole(own), reach))
    step = n.If(inside, (n.Store(n.Region(own), build.binary(running.op, near, whole(own))),))
    count = build.int_value(tops.shape[0]) or 1
    before = build.compare("gt", w, warp) if reverse else build.compare("lt", w, warp)
    add = n.If(before, (n.Store(n.Region(own), build.binary(running.op, n.Load(build.region(tops, w)), whole(own))),))
    zero, one = build.const(0), build.const(1)
    return (n.Alloc(own, running.value),
            n.For(s, zero, build.const(5), one, (shuffle, step), "unroll", n.attrs(factor=5)),
            n.If(build.compare("eq", lane, 0 if reverse else WARP - 1), (n.Store(build.region(tops, warp), whole(own)),)),
            barrier(),
            n.For(w, zero, build.const(count), one, (add,), "unroll", n.attrs(factor=count)),
            n.Store(build.region(sums, t), whole(own)),
            barrier())


def _is_own(value: n.Expr, team: ThreadTeam) -> bool:
    """Whether a value is the thread's element of an array in shared memory."""
    return isinstance(value, n.Load) and value.at.buffer.space == "shared" and value == n.Load(build.region(value.at.buffer, team.thread))


def _found(block: n.Block, i: int, team: ThreadTeam) -> tuple[Running, bool, n.Buffer, n.Buffer] | None:
    """(what is reduced, whether from the end, where the results go, the values of the warps) of a scan that begins at `i`."""
    if i + SIZE > len(block):
        return None
    alloc, shuffles, publish, _, warps, store, _ = block[i:i + SIZE]
    if not (isinstance(alloc, n.Alloc) and alloc.init is not None and _is_own(alloc.init, team) and isinstance(shuffles, n.For) and isinstance(warps, n.For)
            and isinstance(publish, n.If) and isinstance(store, n.Store) and len(shuffles.body) == 2):
        return None
    near, inner = shuffles.body[0], publish.then[0] if publish.then else None
    if not (isinstance(near, n.Let) and isinstance(inner, n.Store)):
        return None
    for op in REDUCTIONS:
        for reverse in (False, True):
            running = Running(alloc.init, op)
            made = _levels(running, reverse, store.at.buffer, inner.at.buffer, alloc.buffer, shuffles.var,
                           n.Var(near.names[0], near.value.type), warps.var, team)
            if made == block[i:i + SIZE]:
                return running, reverse, store.at.buffer, inner.at.buffer
    return None
