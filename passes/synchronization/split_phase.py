"""Splits a barrier into arriving and waiting, with work in between that needs nothing of the other threads.

pipeline: `split-phase{count=1}@main/threads/loop/meet`

```diff
 kir 1
 program blocks
   size M: i32
   in X: f32[M, 4, 64]
   out Y: f32[M, 64]
 kernel main grid (row: M) threads 64
   shared S: f32[2, 64]
+  shared met: mbarrier[1]
   @threads for t in 0..64 parallel thread
+    if t == 0
+      mbar_init(&met[0], 64)
+    barrier()
     register total: f32 = 0.0
     register w: f32 = 0.0
     @loop for k in 0..4
       S[k % 2, t] = X[row, k, t]
-      @meet barrier()
+      @meet mbar_arrive(&met[0])
       w = w + exp(X[row, k, t])
+      mbar_wait(&met[0], k % 2)
       total = total + S[k % 2, 63 - t]
     Y[row, t] = total * w
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases, accesses
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, MBARRIER
from kir.ir.visit import once, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, edit_block, kernel_of, node_at
from kir.rewrite.match import block_and_index, fresh_at, from_zero, matched_as, params_as
from kir.rewrite.match.thread_team import ThreadTeam, barrier, is_call, team_at

PRIVATE = ("register", "fragment")


def _apart(program: n.Program, site: Site, context: Context) -> Verdict:
    item, (block, i) = params_as(site, SplitPhase), block_and_index(program, site.path)
    kernel, aliases = kernel_of(program, site.path), Aliases(program)
    private = once(kernel, "_private", lambda: {b.name for b in walk(kernel) if isinstance(b, n.Buffer) and b.space in PRIVATE})
    written = {a.buffer for a in accesses(kernel) if a.writes} - private
    for s in block[i + 1:i + 1 + item.count]:
        for a in accesses(s):
            if a.buffer in private:
                continue
            if a.sync or a.writes:
                return refuted(f"what stands between writes '{a.buffer}', or synchronizes itself", "another thread is not past its arrival yet",
                               needs="work on private memory and on tensors that the kernel only reads")
            other = next((w for w in written if w != "*" and aliases.may_be_one(w, a.buffer)), None)
            if other is not None:
                return refuted(f"what stands between reads '{a.buffer}', which other threads write", "it is read before they have arrived",
                               needs="work on private memory and on tensors that the kernel only reads")
    return proved("what stands between touches only private memory and what nobody writes")


@dataclass(frozen=True)
class SplitPhase(Pass):
    """`count` statements after the barrier come between arriving and waiting."""

    intent: ClassVar[str] = "split-phase-barrier"
    catalogue: ClassVar[tuple[int, ...]] = (36,)
    claim: ClassVar[str] = "Threads that are early do something useful instead of waiting for the last one."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P360", "validity", "pipeline", "what comes between needs nothing of other threads, and they nothing of it", _apart),)

    count: int = 1

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a barrier of all threads, executed once or once in each iteration of a counted loop."""
        team = team_at(program, path)
        if team is None or not isinstance(node, n.Stmt) or not is_call(node, "barrier"):
            return None
        if _parity(program, path, team) is None:
            return Miss("how often it is executed is not counted by one loop from 0")
        if not 1 <= self.count < len(block_at(program, path)) - int(path[-1]):
            return Miss(f"{self.count} statements do not follow it")
        if once(team.loop, "_jumps", lambda: any(isinstance(x, n.Jump) for x in walk(team.loop))):
            return Miss("a thread may leave early")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The mbarrier, its initialization, arrival and wait."""
        team, (block, i) = team_at(program, site.path), block_and_index(program, site.path)
        parity = None if team is None else _parity(program, site.path, team)
        node = matched_as(block[i], n.Eval)
        assert team is not None and parity is not None
        met = n.Buffer(fresh_at(program, site.path, "met"), MBARRIER, (build.const(1),), "shared")
        place = build.region(met, 0)
        arrive = replace(node, call=build.call("mbar_arrive", place))
        wait = n.Eval(build.call("mbar_wait", place, parity))
        inner = edit_block(program, site.path, lambda b: (*b[:i], arrive, *b[i + 1:i + 1 + self.count], wait, *b[i + 1 + self.count:]))
        inner = edit_block(inner, (*team.path, "body", 0), lambda b: (*_start(team, place), *b))
        top = int(team.path[1])
        outer = edit_block(inner, team.path, lambda b: (*b[:top], n.Alloc(met), *b[top:]))
        at = (site.path[0], top + 1, "body", int(site.path[3]) + 2, *site.path[4:])
        return Rewritten(outer, at, {site.path: (at,)})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an arrival whose wait follows in the same block, on an mbarrier that counts all threads and serves nothing else."""
        team = team_at(program, path)
        if team is None or not isinstance(node, n.Eval) or node.call.fn != "mbar_arrive" or not isinstance(node.call.args[0], n.Region):
            return None
        place, (block, i) = node.call.args[0], block_and_index(program, path)
        parity, top = _parity(program, path, team), int(team.path[1])
        waits = [k for k in range(i + 1, len(block)) if parity is not None and block[k] == n.Eval(build.call("mbar_wait", place, parity))]
        kernel = kernel_of(program, path)
        declared = top > 0 and kernel.body[top - 1] == n.Alloc(place.buffer)
        if not waits or not declared or team.loop.body[:2] != _start(team, place):
            return Miss("its wait, or its start with the count of all threads, is not where this pass puts it")
        if sum(isinstance(x, n.Region) and x.buffer == place.buffer for x in walk(kernel)) != 3 or waits[0] == i + 1:
            return Miss(f"'{place.buffer.name}' serves something else too")
        return Site(path, SplitPhase(waits[0] - i - 1))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One barrier."""
        team, (block, i) = team_at(program, site.path), block_and_index(program, site.path)
        node = matched_as(block[i], n.Eval)
        assert team is not None
        top = int(team.path[1])
        made = replace(barrier(), label=node.label, origin=node.origin)  # type: ignore[type-var]  # every Stmt is a dataclass
        rest = i + 1 + self.count
        inner = edit_block(program, site.path, lambda b: (*b[:i], made, *b[i + 1:rest], *b[rest + 1:]))
        inner = edit_block(inner, (*team.path, "body", 0), lambda b: b[2:])
        outer = edit_block(inner, team.path, lambda b: (*b[:top - 1], *b[top:]))
        return Rewritten(outer, (site.path[0], top - 1, "body", int(site.path[3]) - 2, *site.path[4:]))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """One mbarrier."""
        return Effect(shared_bytes=8)


def _parity(program: n.Program, path: Path, team: ThreadTeam) -> n.Expr | None:
    """The phase of the barrier at a path: 0 where it is executed once, the iteration's number modulo 2 in a loop; else None."""
    if len(path) == len(team.path) + 2:
        return build.const(0)
    if len(path) != len(team.path) + 4:
        return None
    loop = node_at(program, path[:-2])
    if not isinstance(loop, n.For) or loop.kind not in ("serial", "unroll") or path[-2] != "body":
        return None
    if not from_zero(loop) or loop.var.of != I32:
        return None
    return build.mod(loop.var, 2)


def _start(team: ThreadTeam, place: n.Region) -> n.Block:
    """Thread 0 sets the count, and all threads see it."""
    first = n.If(build.compare("eq", team.thread, 0), (n.Eval(build.call("mbar_init", place, build.const(team.threads))),))
    return (first, barrier())
