"""Reduces over the threads of a CTA in two levels: each warp for itself, then one thread's worth of warp results.

pipeline: `two-level-reduction@main/exchange`

```diff
 kir 1
 program row_sums
   size M: i32
   in X: f32[M, 128]
   out S: f32[M]
 kernel main grid (row: M) threads 128
   shared slots: f32[128]
+  shared warps: f32[4]
   for t in 0..128 parallel thread
     register total: f32 = X[row, t]
     @exchange slots[t] = total
+    warp_sync()
+    total = 0.0
+    for u in 0..32
+      total = total + slots[t // 32 * 32 + u]
+    if t % 32 == 0
+      warps[t // 32] = total
     barrier()
     register sum: f32 = 0.0
-    for u in 0..128
-      sum = sum + slots[u]
+    for w in 0..4
+      sum = sum + warps[w]
     if t == 0
       S[row] = sum
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, fresh, replace_stmts
from kir.rewrite.match import block_and_index, fresh_var, matched, names_at
from kir.rewrite.match.exchange import IDEMPOTENT, Exchange, exchange_at, fold_at, is_read_later
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.shared_arrays import declaration, shifted, slot_array, uses, with_shared, without_shared
from kir.rewrite.match.thread_team import ThreadTeam, barrier, is_call, is_in_loop, team_at, whole

WARP = 32


def _whole_warps(program: n.Program, site: Site, context: Context) -> Verdict:
    team = matched(team_at(program, site.path))
    if team.threads % WARP or team.threads == WARP:
        return refuted(f"{team.threads} threads are not several whole warps", needs=f"a multiple of {WARP} above it")
    return proved(f"{team.threads // WARP} whole warps")


def _partial_is_done(program: n.Program, site: Site, context: Context) -> Verdict:
    found = matched(exchange_at(block_at(program, site.path), int(site.path[-1]), is_in_loop(program, site.path)))
    made, size = found
    if made.fresh and is_read_later(program, site.path, size, made.value.name):
        return refuted(f"'{made.value.name}' is read later, and the warp's result replaces it", needs="a copy for what follows")
    return proved("nothing reads the thread's own value afterwards")


def _levels(program: n.Program, path: Path) -> tuple[Exchange, Exchange, bool, int, n.If | None] | None:
    """(warp's exchange, fold over the warps, whether all lanes publish the warp's result, number of statements, the branch that the last of them is where
    only its threads fold over the warps) at a store of a slot."""
    (block, i), trailing, team = block_and_index(program, path), is_in_loop(program, path), team_at(program, path)
    found = exchange_at(block, i, trailing)
    if found is None or team is None:
        return None
    warp, size = found
    t = team.thread
    if warp.fresh or (warp.at, warp.sync, warp.base, warp.count) != (t, "warp_sync", build.mul(build.floordiv(t, WARP), WARP), WARP):
        return None
    publish, sync = (block[i + size + k] if i + size + k < len(block) else None for k in range(2))
    top, led = fold_at(block, i + size + 2, from_first=True), None
    if top is None and not trailing:
        led = _branch(block, i + size + 2)
        top = fold_at(led.then, 0, from_first=True) if led is not None else None
    if top is None or not is_call(sync, "barrier"):
        return None
    made, length = top
    if led is not None:
        if not made.fresh or length == len(led.then):
            return None
        led, length = replace(led, then=led.then[length:]), 1
    everyone = isinstance(publish, n.Store)
    wanted = _publish(team, made.slots, warp.result, everyone)
    if publish != wanted or made.op != warp.op or made.count != team.threads // WARP or not build.is_const(made.base, 0):
        return None
    if not made.fresh and (made.result != warp.result or (made.onto and made.op not in IDEMPOTENT)):
        return None
    size += 2 + length
    if trailing:
        if i + size >= len(block) or not is_call(block[i + size], "barrier"):
            return None
        size += 1
    return warp, made, everyone, size, led


def _branch(block: n.Block, i: int) -> n.If | None:
    """The branch without another side that statement `i` is."""
    s = block[i] if i < len(block) else None
    return s if isinstance(s, n.If) and not s.orelse and not s.static else None


def _publish(team: ThreadTeam, warps: n.Buffer, value: n.Buffer, everyone: bool) -> n.Stmt:
    """Lane 0 of each warp writes the warp's result, or all its lanes write it."""
    t = team.thread
    store = n.Store(build.region(warps, build.floordiv(t, WARP)), whole(value))
    return store if everyone else n.If(build.compare("eq", build.mod(t, WARP), 0), (store,))


@dataclass(frozen=True)
class TwoLevelReduction(Pass):
    """The first level is the warp. `everyone`: all its lanes write its result to one slot, otherwise the first one does. `room` is the number
    of slots (0: one for each warp). `anew`: the second level of a maximum begins with the identity, not with the warp's own. `first`: it begins with
    the first warp's. `led`: only the threads that take the branch behind it, which alone need the result, fold over the warps."""

    intent: ClassVar[str] = "tree-reduction"
    catalogue: ClassVar[tuple[int, ...]] = (44,)
    claim: ClassVar[str] = "Only warps meet at the barrier with one value each, and each level is short."
    numerics: ClassVar[str] = "reassociated(lanes)"
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P444", "validity", "shape", "the CTA is several whole warps", _whole_warps),
        Precondition("KIR-P445", "validity", "storage", "nothing reads the thread's own value afterwards", _partial_is_done),
    )

    everyone: bool = False
    room: int = 0
    anew: bool = False
    first: bool = False
    led: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the store of a slot, all of which every thread then folds."""
        if not (isinstance(node, n.Store) and node.at.buffer.space == "shared"):
            return None
        team = team_at(program, path)
        if team is None:
            return None
        found = exchange_at(block_at(program, path), int(path[-1]), is_in_loop(program, path))
        if found is None or (found[0].at, found[0].sync, found[0].count) != (team.thread, "barrier", team.threads) or not build.is_const(
                found[0].base, 0):
            return Miss("no fold of the slots of all threads follows")
        if self.anew and (found[0].fresh or found[0].op not in IDEMPOTENT):
            return Miss("its second level begins with the identity anyhow")
        if self.anew and self.first:
            return Miss("its second level begins once")
        if 0 < self.room <= team.threads // WARP:
            return Miss(f"{self.room} slots are not more than the {team.threads // WARP} that are needed")
        block, after = block_at(program, path), int(path[-1]) + found[1]
        branch, result = _branch(block, after), found[0].result.name
        if self.led and not (branch is not None and found[0].fresh and not is_in_loop(program, path) and any(mentions(s, result) for s in branch.then)
                             and not mentions(branch.cond, result) and not any(mentions(s, result) for s in block[after + 1:])):
            return Miss("no branch follows whose threads alone need the result")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The fold of a warp's slots, its publication, and the fold of what the warps published."""
        (block, i), trailing = block_and_index(program, site.path), is_in_loop(program, site.path)
        found, team = matched(exchange_at(block, i, trailing)), matched(team_at(program, site.path))
        made, size = found
        taken = names_at(program, site.path)
        t, value = team.thread, made.value
        warps = slot_array(fresh("warps", taken), made.result.dtype, self.room or team.threads // WARP)
        warp = replace(made, sync="warp_sync", result=value, fresh=False, base=build.mul(build.floordiv(t, WARP), WARP), count=WARP)
        top = replace(made, slots=warps, count=team.threads // WARP, first=self.first,
                      onto=not (made.fresh or self.anew or self.first) and made.op in IDEMPOTENT)
        first, *lower = warp.statements(fresh_var("u", taken), trailing)
        upper = top.fold(fresh_var("w", taken))
        if self.led:
            branch = matched(_branch(block, i + size))
            upper, size = (replace(branch, then=(*upper, *branch.then)),), size + 1
        stmts = (replace(_store(first), label=block[i].label), *lower, _publish(team, warps, value, self.everyone), barrier(), *upper,
                 *((barrier(),) if trailing else ()))
        out = replace_stmts(program, site.path, stmts, size)
        return Rewritten(with_shared(out, team, warps), shifted(site.path, int(team.path[1]), 1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the store of a slot that begins a reduction in two levels."""
        if not (isinstance(node, n.Store) and node.at.buffer.space == "shared") or team_at(program, path) is None:
            return None
        found = _levels(program, path)
        if found is None:
            return None
        warps = found[1].slots
        home = declaration(program, path, warps.name)
        if home is None or home.init is not None or uses(program, path, warps.name) > 2 + found[1].first:
            return Miss(f"'{warps.name}' serves more than the reduction")
        top, team = found[1], team_at(program, path)
        room = build.int_value(warps.shape[0]) if len(warps.shape) == 1 else None
        if room is None or team is None:
            return None
        anew = not (top.fresh or top.onto or top.first) and top.op in IDEMPOTENT
        return Site(path, TwoLevelReduction(found[2], 0 if room == team.threads // WARP else room, anew, top.first, found[4] is not None))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One fold of all slots."""
        found, trailing = matched(_levels(program, site.path)), is_in_loop(program, site.path)
        warp, top, _, size, led = found
        (block, i), team = block_and_index(program, site.path), matched(team_at(program, site.path))
        made = replace(top, slots=warp.slots, at=warp.at, value=warp.value, sync="barrier", count=team.threads, onto=False, first=False)
        taken = names_at(program, site.path)
        first, *rest = made.statements(fresh_var("u", taken), trailing)
        out = replace_stmts(program, site.path, (replace(_store(first), label=block[i].label), *rest, *((led,) if led is not None else ())), size)
        out, at = without_shared(out, str(site.path[0]), top.slots.name)
        return Rewritten(out, shifted(site.path, at, -1))


def _store(s: n.Stmt) -> n.Store:
    assert isinstance(s, n.Store)
    return s
