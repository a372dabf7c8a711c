"""Computes running sums over the lanes of a warp in a ladder of shuffles, instead of each lane adding up what the lanes before it wrote.

pipeline: `shuffle-scan@main/exchange`

```diff
 kir 1
 program warp_scans
   size M: i32
   in X: f32[M, 64]
   out Y: f32[M, 64]
 kernel main grid (row: M) threads 64
-  shared slots: f32[64]
   for t in 0..64 parallel thread
     register v: f32 = X[row, t]
-    @exchange slots[t] = v
-    warp_sync()
-    v = 0.0
-    for u in 0..t % 32 + 1
-      v = v + slots[t // 32 * 32 + u]
+    @exchange for s in 0..5
+      let other = shfl_up(v, 1 << s)
+      if t % 32 >= 1 << s
+        v = v + other
     Y[row, t] = v
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
from kir.rewrite.edit import fresh, node_at, replace_stmts
from kir.rewrite.match import block_and_index, fresh_var, matched, names_at, node_as
from kir.rewrite.match.shared_arrays import declaration, shifted, slot_array, uses, with_shared, without_shared
from kir.rewrite.match.thread_team import ThreadTeam, is_call, is_in_loop, team_at, warp_sync, warps_arrive, whole

from ._scan_forms import WARP, Fold, Ladder, fold_at, group_of, ladder_of, lane_of


def _one_warp(program: n.Program, site: Site, context: Context) -> Verdict:
    team = matched(team_at(program, site.path))
    found = matched(_exchange(program, site.path, team))
    width = found[1]
    if width > WARP:
        return refuted(f"groups of {width} threads are no lanes of one warp", f"thread {WARP} sees nothing of thread 0",
                       needs=f"groups of up to {WARP} threads")
    return proved(f"each group of {width} are lanes of one warp")


def _private_slots(program: n.Program, site: Site, context: Context) -> Verdict:
    node = node_as(program, site.path, n.Store)
    if uses(program, site.path, node.at.buffer.name) > 2:
        return refuted(f"'{node.at.buffer.name}' is used elsewhere too", needs="slots that only this scan uses")
    return proved("only the scan uses the slots")


def _exchange(program: n.Program, path: Path, team: ThreadTeam) -> tuple[Fold, int, int] | None:
    """(what each lane folds, lanes of a group, number of statements) of a scan over groups that begins at a path."""
    block, i = block_and_index(program, path)
    store, sync = block[i], block[i + 1] if i + 1 < len(block) else None
    fold, t, size = fold_at(block, i + 2), team.thread, 4
    if fold is None or fold.fresh or not (isinstance(store, n.Store) and is_call(sync, "warp_sync")):
        return None
    if store != n.Store(build.region(fold.slots, t), whole(fold.acc)):
        return None
    for width in (2, 4, 8, 16, 32, 64, team.threads):
        if (fold.base, fold.count) == (group_of(t, width, team.threads), build.add(lane_of(t, width, team.threads), 1)):
            break
    else:
        return None
    if is_in_loop(program, path):
        if i + size >= len(block) or not is_call(block[i + size], "warp_sync"):
            return None
        size += 1
    return fold, width, size


@dataclass(frozen=True)
class ShuffleScan(Pass):
    """`flipped`: what comes from the other lane is the left operand."""

    intent: ClassVar[str] = "warp-scan"
    catalogue: ClassVar[tuple[int, ...]] = (45, 43)
    claim: ClassVar[str] = "A lane has its running sum after the logarithm of the lanes in steps, without a trip through shared memory."
    numerics: ClassVar[str] = "reassociated(lanes)"
    provides: ClassVar[tuple[str, ...]] = ("lanes",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P456", "validity", "shape", "each group is lanes of one warp", _one_warp),
        Precondition("KIR-P457", "validity", "pipeline", "all lanes of a warp take part", warps_arrive),
        Precondition("KIR-P458", "validity", "storage", "nothing else reads the slots", _private_slots))

    flipped: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the store of a slot, of which each lane then folds those of its group up to its own."""
        team = team_at(program, path)
        if team is None or not (isinstance(node, n.Store) and node.at.buffer.space == "shared"):
            return None
        found = _exchange(program, path, team)
        if found is None:
            return Miss("no fold of the slots up to the lane's own follows, into the value stored")
        home = declaration(program, path, node.at.buffer.name)
        if home is None or home.init is not None or home.buffer != slot_array(home.buffer.name, found[0].acc.dtype, team.threads):
            return Miss("the slots are not one for each thread")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A ladder of shuffles; the slots are gone."""
        team = matched(team_at(program, site.path))
        found = matched(_exchange(program, site.path, team))
        fold, width, size = found
        taken = names_at(program, site.path)
        s, near = fresh_var("s", taken), fresh("other", taken)
        node = node_as(program, site.path, n.Store)
        made = Ladder(fold.acc, fold.op, width, self.flipped).statement(team.thread, team.threads, s, near, node.label)
        out, at = without_shared(replace_stmts(program, site.path, (made,), size), str(site.path[0]), fold.slots.name)
        return Rewritten(out, shifted(site.path, at, -1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop that is a ladder of shuffles from the lanes before."""
        team = team_at(program, path)
        if team is None or not isinstance(node, n.For):
            return None
        found = ladder_of(node, team.thread, team.threads)
        return None if found is None else Site(path, ShuffleScan(found.flipped))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each lane writes its slot and folds those before it."""
        loop, team = node_as(program, site.path, n.For), matched(team_at(program, site.path))
        found = matched(ladder_of(loop, team.thread, team.threads))
        taken, t = names_at(program, site.path), team.thread
        slots = slot_array(fresh("slots", taken), found.value.dtype, team.threads)
        fold = Fold(found.value, found.op, slots, group_of(t, found.width, team.threads),
                    build.add(lane_of(t, found.width, team.threads), 1), fresh=False)
        first = replace(n.Store(build.region(slots, t), whole(found.value)), label=loop.label)
        trailing: n.Block = (warp_sync(),) if is_in_loop(program, site.path) else ()
        made = (first, warp_sync(), *fold.statements(fresh_var("u", taken)), *trailing)
        return Rewritten(with_shared(replace_stmts(program, site.path, made), team, slots), shifted(site.path, int(team.path[1]), 1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The slots are no longer needed."""
        node, team = node_at(program, site.path), team_at(program, site.path)
        return Effect() if team is None or not isinstance(node, n.Store) else Effect(
            shared_bytes=-team.threads * node.at.buffer.dtype.bytes)
