"""One thread computes a value that all threads of the CTA need, and hands it on through shared memory.

pipeline: `leader-broadcast@main/threads/scale`

```diff
 kir 1
 program normalize
   size M: i32
   in X: f32[M, 64]
   in S: f32[M]
   out Y: f32[M, 64]
 kernel main grid (row: M) threads 64
+  shared scale_slot: f32
   @threads for t in 0..64 parallel thread
-    @scale let scale = rsqrt(S[row] + 1.0)
+    if t == 0
+      scale_slot = rsqrt(S[row] + 1.0)
+    barrier()
+    @scale let scale = scale_slot
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
from kir.ir.canonical import bound_names
from kir.ir.printer import expr_text
from kir.ir.types import DType, dtype_of
from kir.ir.visit import buffers_named, names_read, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, edit_block, kernel_of, node_at
from kir.rewrite.match import block_and_index, fresh_at, matched, matched_as, node_as, params_as, regions_of, splice
from kir.rewrite.match.materialize import is_pure
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_call, is_in_loop, team_at


def _same(program: n.Program, site: Site, context: Context) -> Verdict:
    let, team = node_as(program, site.path, n.Let), matched(team_at(program, site.path))
    if depends(let.value, varying(team.loop)[site.path[2:]]):
        return refuted("threads compute different values", f"{expr_text(let.value)} depends on the thread",
                       needs="a value on which all threads agree")
    return proved("all threads compute one value")


@dataclass(frozen=True)
class LeaderBroadcast(Pass):
    """`leader` is the number of the thread that computes the value. `direct`: whoever needs it reads the slot, without a name for what is read. `beside`: where
    in the branch that the leader takes anyway it writes the slot (-1: in one of its own). `under`: how many declarations stand between the slot's and
    the threads."""

    intent: ClassVar[str] = "leader-broadcast"
    catalogue: ClassVar[tuple[int, ...]] = (46,)
    claim: ClassVar[str] = "One thread pays for a value that many need; the others wait and read it."
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P460", "validity", "pipeline", "all threads of the CTA come to the barrier", everyone_arrives),
        Precondition("KIR-P461", "validity", "storage", "all threads would compute the same value", _same))

    leader: int = 0
    direct: bool = False
    beside: int = -1
    under: int = 0

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
        if not self.direct:
            return Site(path, self) if (self.beside, self.under) == (-1, 0) else Miss("only a slot that is read directly has a place of its own")
        block, i = block_and_index(program, path)
        if is_in_loop(program, path) or not any(names_read(s) & set(node.names) for s in block[i + 1:]):
            return Miss("nobody reads the slot afterwards, or it is written again")
        top = int(path[1])
        if not 0 <= self.under <= top or not all(isinstance(s, n.Alloc) for s in kernel_of(program, path).body[top - self.under:top]):
            return Miss(f"there are no {self.under} declarations before the threads")
        branch = block[i + 1] if i + 1 < len(block) else None
        if self.beside >= 0 and not (isinstance(branch, n.If) and not branch.orelse and _leader(branch.cond, team.thread) == self.leader
                                     and self.beside <= len(branch.then)):
            return Miss(f"no branch that thread {self.leader} takes follows")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The leader's store, a barrier, and everybody's load; in a loop a barrier after it too, before the slot is written again."""
        let, team = node_as(program, site.path, n.Let), matched(team_at(program, site.path))
        assert isinstance(let.value.type, DType)
        slot = n.Buffer(fresh_at(program, site.path, f"{let.names[0]}_slot"), let.value.type, (), "shared")
        if self.direct:
            return self._directly(program, site, let, slot, team)
        store = n.If(build.compare("eq", team.thread, self.leader), (n.Store(n.Region(slot), let.value),))
        read = replace(let, value=n.Load(n.Region(slot)))
        made = (store, barrier(), read, *((barrier(),) if is_in_loop(program, site.path) else ()))
        i = int(site.path[-1])
        inner = splice(program, site.path, made)
        top = int(site.path[1])
        outer = splice(inner, site.path[:2], (n.Alloc(slot),), 0, 0)
        at = (site.path[0], top + 1, *site.path[2:-1], i + 2)
        return Rewritten(outer, at, {site.path: (at,)})

    def _directly(self, program: n.Program, site: Site, let: n.Let, slot: n.Buffer, team: ThreadTeam) -> Rewritten:
        i, top = int(site.path[-1]), int(site.path[1])
        write = n.Store(n.Region(slot), let.value)

        def handed(b: n.Block) -> n.Block:
            rest = tuple(substitute(s, {let.names[0]: n.Load(n.Region(slot))}) for s in b[i + 1:])
            store = n.If(build.compare("eq", team.thread, self.leader), (write,), label=let.label)
            if self.beside >= 0:
                branch, rest = matched_as(rest[0], n.If), rest[1:]
                store = replace(branch, then=(*branch.then[:self.beside], write, *branch.then[self.beside:]))
            return (*b[:i], store, barrier(), *rest)
        inner = edit_block(program, site.path, handed)
        outer = splice(inner, (site.path[0], top - self.under), (n.Alloc(slot),), 0, 0)
        return Rewritten(outer, (site.path[0], top + 1, *site.path[2:]))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a value read from a slot that one thread has just written; or at the branch in which it writes one that others read directly."""
        team = team_at(program, path)
        if team is not None and isinstance(node, n.If):
            return _read_directly(program, path, node, team)
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
        if params_as(site, LeaderBroadcast).direct:
            return _computed_by_all(program, site)
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


def _handed_on(program: n.Program, path: Path, node: n.If) -> tuple[int, n.Store] | None:
    """Where in a branch, that a barrier follows, a slot is written of which all reads come after, and the store."""
    block, i = block_and_index(program, path)
    for j, s in enumerate(node.then):
        if not (isinstance(s, n.Store) and s.at.buffer.space == "shared" and s.mask is None and not s.clip and not s.at.buffer.shape):
            continue
        after = (*node.then[j + 1:], *block[i + 2:])
        reads = sum(isinstance(x, n.Load) and x.at == s.at and x.mask is None for each in after for x in walk(each))
        before = node.then[:j]
        apart = is_pure(s.value) and not (set(bound_names(before)) & names_read(s.value)) and not (
            {x.at.buffer.name for b in before for x in walk(b) if isinstance(x, n.Store)} & buffers_named(s.value))
        if reads and apart and reads + 1 == len(regions_of(kernel_of(program, path), s.at.buffer.name)):
            return j, s
    return None


def _read_directly(program: n.Program, path: Path, node: n.If, team: ThreadTeam) -> Found:
    """At a branch of one thread that writes a slot, with a barrier behind it."""
    block, i = block_and_index(program, path)
    leader = _leader(node.cond, team.thread)
    if leader is None or node.orelse or i + 1 >= len(block) or not is_call(block[i + 1], "barrier") or is_in_loop(program, path):
        return None
    found = _handed_on(program, path, node)
    if found is None:
        return None
    j, store = found
    name = store.at.buffer.name
    top, body = int(path[1]), kernel_of(program, path).body
    at = next((k for k, s in enumerate(body) if isinstance(s, n.Alloc) and s.buffer.name == name and s.init is None), None)
    if at is None or at >= top or not all(isinstance(s, n.Alloc) for s in body[at:top]) or not isinstance(store.value.type, DType):
        return Miss(f"'{name}' is not declared before the threads")
    return Site(path, LeaderBroadcast(leader, True, -1 if len(node.then) == 1 else j, top - at - 1), {"store": store})


def _computed_by_all(program: n.Program, site: Site) -> Rewritten:
    item, store = params_as(site, LeaderBroadcast), matched_as(site.captures["store"], n.Store)
    i, top = int(site.path[-1]), int(site.path[1])
    value = n.Var(fresh_at(program, site.path, "value"), dtype_of(store.value.type))
    read = n.Load(store.at)

    def by_all(b: n.Block) -> n.Block:
        branch = matched_as(b[i], n.If)
        left: n.Block = (replace(branch, then=tuple(s for s in branch.then if s != store)),) if item.beside >= 0 else ()
        rest = tuple(transform(s, lambda _, new: value if new == read else new) for s in (*left, *b[i + 2:]))
        return (*b[:i], n.Let((value.name,), store.value, label=branch.label if item.beside < 0 else None), *rest)
    inner = edit_block(program, site.path, by_all)
    outer = splice(inner, (site.path[0], top - item.under - 1), (), 0, 1)
    return Rewritten(outer, (site.path[0], top - 1, *site.path[2:]))


def _leader(cond: n.Expr, thread: n.Var) -> int | None:
    if isinstance(cond, n.Binary) and cond.op == "eq" and cond.a == thread:
        return build.int_value(cond.b)
    return None


def _meets_again(program: n.Program, path: Path) -> bool:
    block, i = block_and_index(program, path)
    return i + 1 < len(block) and is_call(block[i + 1], "barrier")
