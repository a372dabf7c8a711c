"""One thread computes a value that all threads of the CTA need, and hands it on through shared memory.

before:

```kir
kir 1
program normalize
  size M: i32
  in X: f32[M, 64]
  in S: f32[M]
  out Y: f32[M, 64]
kernel main grid (row: M) threads 64
  @threads for t in 0..64 parallel thread
    @scale let scale = rsqrt(S[row] + 1.0)
    Y[row, t] = X[row, t] * scale
```

pipeline: `leader-broadcast@main/threads/scale`

after:

```kir
kir 1
program normalize
  size M: i32
  in X: f32[M, 64]
  in S: f32[M]
  out Y: f32[M, 64]
kernel main grid (row: M) threads 64
  shared scale_slot: f32
  @threads for t in 0..64 parallel thread
    if t == 0
      scale_slot = rsqrt(S[row] + 1.0)
    barrier()
    @scale let scale = scale_slot
    Y[row, t] = X[row, t] * scale
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.uniform import depends, varying
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.types import DType
from kir.ir.visit import walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, edit_block, kernel_of, node_at
from kir.rewrite.match import block_and_index, fresh_at, matched, matched_as, node_as, regions_of, splice
from kir.rewrite.match.materialize import is_pure
from kir.rewrite.match.thread_team import barrier, everyone_arrives, is_call, is_in_loop, team_at


def _same(program: n.Program, site: Site, context: Context) -> Verdict:
    let, team = node_as(program, site.path, n.Let), matched(team_at(program, site.path))
    if depends(let.value, varying(team.loop)[site.path[2:]]):
        return refuted("threads compute different values", f"{expr_text(let.value)} depends on the thread",
                       needs="a value on which all threads agree")
    return proved("all threads compute one value")


@dataclass(frozen=True)
class LeaderBroadcast(Pass):
    """`leader` is the number of the thread that computes the value."""

    intent: ClassVar[str] = "leader-broadcast"
    catalogue: ClassVar[tuple[int, ...]] = (46,)
    claim: ClassVar[str] = "One thread pays for a value that many need; the others wait and read it."
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P460", "validity", "pipeline", "all threads of the CTA come to the barrier", everyone_arrives),
        Precondition("KIR-P461", "validity", "storage", "all threads would compute the same value", _same))

    leader: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a scalar value of a thread that reads memory or takes a function."""
        team = team_at(program, path)
        if team is None or not isinstance(node, n.Let) or len(node.names) != 1 or not isinstance(node.value.type, DType):
            return None
        if not is_pure(node.value) or not any(isinstance(x, (n.Load, n.Call)) for x in walk(node.value)):
            return None
        if isinstance(node.value, n.Load) and node.value.at.buffer.space == "shared" and not node.value.at.index:
            return None
        if not 0 <= self.leader < team.threads:
            return Miss(f"there is no thread {self.leader}")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The leader's store, a barrier, and everybody's load; in a loop a barrier after it too, before the slot is written again."""
        let, team = node_as(program, site.path, n.Let), matched(team_at(program, site.path))
        assert isinstance(let.value.type, DType)
        slot = n.Buffer(fresh_at(program, site.path, f"{let.names[0]}_slot"), let.value.type, (), "shared")
        store = n.If(build.compare("eq", team.thread, self.leader), (n.Store(n.Region(slot), let.value),))
        read = replace(let, value=n.Load(n.Region(slot)))
        made = (store, barrier(), read, *((barrier(),) if is_in_loop(program, site.path) else ()))
        i = int(site.path[-1])
        inner = splice(program, site.path, made)
        top = int(site.path[1])
        outer = splice(inner, site.path[:2], (n.Alloc(slot),), 0, 0)
        at = (site.path[0], top + 1, *site.path[2:-1], i + 2)
        return Rewritten(outer, at, {site.path: (at,)})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a value read from a slot that one thread has just written."""
        team = team_at(program, path)
        if team is None or not isinstance(node, n.Let) or len(node.names) != 1 or not isinstance(node.value, n.Load) or int(path[-1]) < 2:
            return None
        slot, (store, meet) = node.value.at.buffer, block_at(program, path)[int(path[-1]) - 2:int(path[-1])]
        if slot.space != "shared" or slot.shape or not is_call(meet, "barrier") or not isinstance(store, n.If) or store.orelse or len(store.then) != 1:
            return None
        inner = store.then[0]
        if not isinstance(inner, n.Store) or inner.at != n.Region(slot) or inner.mask is not None:
            return None
        leader = _leader(store.cond, team.thread)
        if leader is None:
            return Miss("no one thread writes the slot")
        kernel = kernel_of(program, path)
        if len(regions_of(kernel, slot.name)) != 2:
            return Miss(f"'{slot.name}' is used elsewhere")
        declared = [k for k, s in enumerate(kernel.body) if isinstance(s, n.Alloc) and s.buffer == slot and s.init is None]
        if declared != [int(path[1]) - 1] or (is_in_loop(program, path) and not _meets_again(program, path)):
            return Miss(f"'{slot.name}' is not declared just before the loop over threads, or is written again with no barrier between")
        return Site(path, LeaderBroadcast(leader))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The value computed by every thread."""
        i, top, block = int(site.path[-1]), int(site.path[1]), block_at(program, site.path)
        let, store = matched_as(block[i], n.Let), matched_as(block[i - 2], n.If)
        assert isinstance(store.then[0], n.Store)
        made = replace(let, value=store.then[0].value)
        rest = i + 2 if is_in_loop(program, site.path) else i + 1
        inner = edit_block(program, site.path, lambda b: (*b[:i - 2], made, *b[rest:]))
        outer = splice(inner, site.path[:2], (), -1, 0)
        return Rewritten(outer, (site.path[0], top - 1, *site.path[2:-1], i - 2))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """One slot of shared memory."""
        let = node_at(program, site.path)
        return Effect(shared_bytes=let.value.type.bytes) if isinstance(let, n.Let) and isinstance(let.value.type, DType) else Effect()


def _leader(cond: n.Expr, thread: n.Var) -> int | None:
    if isinstance(cond, n.Binary) and cond.op == "eq" and cond.a == thread:
        return build.int_value(cond.b)
    return None


def _meets_again(program: n.Program, path: Path) -> bool:
    block, i = block_and_index(program, path)
    return i + 1 < len(block) and is_call(block[i + 1], "barrier")
