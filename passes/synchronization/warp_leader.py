"""One warp of the CTA, or its first thread, computes a value that all threads need, and hands it on through shared memory.

pipeline: `warp-leader{slot=warps}@main/t/fold`

```diff
 kir 1
 program row_sums
   size M: i32
   in X: f32[M, 64]
   out Y: f32[M, 64]
 kernel main grid (row: M) threads 64
   shared warps: f32[2]
   for t in 0..64 parallel thread
     if t % 32 == 0
       warps[t // 32] = X[row, t]
     barrier()
-    @fold register sum: f32 = load(warps[t % 32] where t % 32 < 2 else 0.0)
-    for s in 0..5
-      let other = shfl_xor(sum, 16 >> s)
-      sum = sum + other
-    Y[row, t] = sum
+    if t // 32 == 0
+      @fold register sum: f32 = load(warps[t % 32] where t % 32 < 2 else 0.0)
+      for s in 0..5
+        let other = shfl_xor(sum, 16 >> s)
+        sum = sum + other
+      warps[0] = sum
+    barrier()
+    Y[row, t] = warps[0]
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.visit import buffers_named, names_read, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, edit_block, kernel_of
from kir.rewrite.match import block_and_index, fresh_at, matched, node_as, params_as, regions_of, sibling, splice
from kir.rewrite.match.exchange import fold_at
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.materialize import buffers_read, buffers_written, is_pure
from kir.rewrite.match.shared_arrays import declaration
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_call, is_in_loop, team_at, whole
from kir.rewrite.view import expression_at

from ..reductions.shuffle_exchange import WARP
from ..reductions.warp_fold import warp_fold_at


def _folded(block: n.Block, i: int, team: ThreadTeam) -> tuple[n.Buffer, int] | None:
    """(result, number of statements) of a fold of shared values at statement `i`, by each thread or by each warp."""
    found = warp_fold_at(block, i, team.thread)
    if found is not None:
        return found[0].result, found[2]
    plain = fold_at(block, i, from_first=True)
    return (plain[0].result, plain[1]) if plain is not None and not plain[0].onto and build.is_const(plain[0].base, 0) else None


def _alone(program: n.Program, site: Site, context: Context) -> Verdict:
    item, (block, i), team = params_as(site, WarpLeader), block_and_index(program, site.path), matched(team_at(program, site.path))
    found = matched(_folded(block, i, team))
    _, size = found
    if any(buffers_written((s,)) & {x for y in walk(s) if isinstance(y, n.Expr) for x in buffers_read(y)} - {found[0].name} for s in block[i:i + size]):
        return refuted("what the warp reads it writes as well", needs="a fold of memory that others wrote")
    if item.slot and any(mentions(s, item.slot) for s in block[i + size:]):
        return refuted(f"'{item.slot}' is used later, and its first element is overwritten", needs="a slot of its own", attempt="slot=''")
    if item.slot and item.bound != "thread" and warp_fold_at(block, i, team.thread) is None:
        return refuted(f"lanes still read '{item.slot}' when the first of them writes it", "lane 1 reads element 0 after lane 0 has written it",
                       needs="a fold by shuffles, a fold by one thread, or a slot of its own")
    if team.threads % WARP and item.bound != "thread":
        return refuted(f"{team.threads} threads are no whole warps", needs=f"a multiple of {WARP}")
    return proved("all warps would fold the same values, and nothing else touches the slot")


def _of_result(program: n.Program, path: Path, e: n.Expr, result: n.Buffer) -> bool:
    """Whether a value is made of a result and of nothing else but what is the same for all threads: sizes, scalars, the CTA's place."""
    known = {p.name for p in program.params} | {a.name for a in kernel_of(program, path).grid}
    return is_pure(e) and buffers_named(e) == {result.name} and names_read(e) <= known


def _numbered(s: n.Stmt, of: n.Expr, to: n.Expr) -> n.Stmt:
    """A scalar's first value with the slot of one number in place of that of another."""
    first = s.init if isinstance(s, n.Alloc) else s.value if isinstance(s, n.Store) else None
    if not isinstance(first, n.Load) or first.at.index != (of,) or first.at.buffer.space != "shared":
        return s
    begun = replace(first, at=build.region(first.at.buffer, to))
    return replace(s, init=begun) if isinstance(s, n.Alloc) else replace(s, value=begun)  # type: ignore[type-var]  # a store, as matched


@dataclass(frozen=True)
class WarpLeader(Pass):
    """`slot` is the shared array whose first element takes the value ("": a slot of its own), `writers` whether one lane writes it or all
    of the warp do, `bound` whether the warp is told by its number or by those of its threads, or the first thread does it alone; `value` is the text of what
    is made of the result and handed on ("": the result itself); `own`: the first thread begins with the slot of its own number, the first."""

    intent: ClassVar[str] = "leader-broadcast"
    catalogue: ClassVar[tuple[int, ...]] = (46, 83)
    claim: ClassVar[str] = "One warp pays for a value that all need; the others wait and read it."
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P838", "validity", "pipeline", "all threads of the CTA come to the barrier", everyone_arrives),
        Precondition("KIR-P839", "validity", "storage", "all warps would compute the same value, and nothing else touches the slot", _alone),
    )

    slot: str = ""
    writers: Literal["warp", "lane"] = "warp"
    bound: Literal["warp", "threads", "thread"] = "warp"
    value: str = ""
    own: bool = False

    def handed(self, program: n.Program, path: Path, result: n.Buffer, size: int) -> n.Expr | None:
        """What is handed on of the result of a fold of `size` statements: a value that is the same for all threads."""
        if not self.value:
            return whole(result)
        found = expression_at(program, sibling(path, size), self.value)
        return found if found is not None and _of_result(program, path, found, result) else None

    def _guard(self, t: n.Var) -> n.Expr:
        if self.bound == "thread":
            return build.compare("eq", t, 0)
        return build.compare("eq", build.floordiv(t, WARP), 0) if self.bound == "warp" else build.compare("lt", t, WARP)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a fold of shared values, whose result is not written again."""
        team = team_at(program, path)
        if team is None or not isinstance(node, (n.Alloc, n.Store)):
            return None
        block, i = block_and_index(program, path)
        found = _folded(block, i, team)
        if found is None:
            return None
        result, size = found
        if self.bound == "thread" and (self.writers == "lane" or warp_fold_at(block, i, team.thread) is not None):
            return Miss("one thread exchanges nothing with others, and is the one that writes")
        if self.own and (self.bound != "thread" or _numbered(block[i], build.const(0), team.thread) == block[i]):
            return Miss("no fold of one thread begins with the first slot")
        value = self.handed(program, path, result, size)
        if value is None or value.type != result.dtype:
            return Miss("the value is none that is made of the result alone")
        if self.value and not any(x == value for s in block[i + size:] for x in walk(s)):
            return Miss("nothing reads the value later")
        if is_in_loop(program, path) or (len(path) > 4 and isinstance(node, n.Store)):
            return Miss("it is done several times, or its result outlives the branch around it")
        if result.name in buffers_written(block[i + size:]):
            return Miss(f"'{result.name}' is written again")
        if self.slot:
            home = declaration(program, path, self.slot)
            if home is None or home.buffer.dtype != result.dtype or len(home.buffer.shape) != 1:
                return Miss(f"'{self.slot}' is no shared array of {result.dtype}")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The fold under a branch, a store of its result, a barrier, and reads of the slot."""
        (block, i), team = block_and_index(program, site.path), matched(team_at(program, site.path))
        found = matched(_folded(block, i, team))
        result, size = found
        if self.slot:
            home = matched(declaration(program, site.path, self.slot))
            slot = n.Region(home.buffer, (build.const(0),))
        else:
            slot = n.Region(n.Buffer(fresh_at(program, site.path, f"{result.name}_slot"), result.dtype, (), "shared"))
        value = matched(self.handed(program, site.path, result, size))
        write: n.Stmt = n.Store(slot, value)
        if self.writers == "lane":
            write = n.If(build.compare("eq", team.thread, 0), (write,))
        head = _numbered(block[i], build.const(0), team.thread) if self.own else block[i]
        made = n.If(self._guard(team.thread), (head, *block[i + 1:i + size], write))
        read = n.Load(slot)
        rest = tuple(transform(s, lambda old, new: read if old == value else new) for s in block[i + size:])
        out = splice(program, site.path, (made, barrier(), *rest), 0, None)
        top = int(site.path[1])
        at: Path = site.path
        if not self.slot:
            out = edit_block(out, site.path[:2], lambda b: (*b[:top], n.Alloc(slot.buffer), *b[top:]))
            at = (site.path[0], top + 1, *site.path[2:])
        hints = {sibling(site.path, k): ((*at[:-1], i, "then", k),) for k in range(size)}
        return Rewritten(out, at, hints)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a branch of the first warp, or the first thread, around a fold and the store of its result."""
        team = team_at(program, path)
        if team is None or not isinstance(node, n.If) or node.orelse or is_in_loop(program, path) or len(node.then) < 2:
            return None
        if len(path) > 4 and isinstance(node.then[0], n.Store):
            return Miss("its result outlives the branch around it")
        bound = next((b for b in ("warp", "threads", "thread") if node.cond == replace(self, bound=b)._guard(team.thread)), None)
        head = _numbered(node.then[0], team.thread, build.const(0)) if bound == "thread" else node.then[0]
        own, then = head != node.then[0], (head, *node.then[1:])
        found = _folded(then, 0, team)
        if bound is None or found is None or len(node.then) != found[1] + 1:
            return None
        write, (block, i) = node.then[-1], block_and_index(program, path)
        writers = "warp"
        if bound != "thread" and isinstance(write, n.If) and write.cond == build.compare("eq", team.thread, 0) and len(write.then) == 1 and not write.orelse:
            write, writers = write.then[0], "lane"
        if not isinstance(write, n.Store) or write.mask is not None or not is_call(block[i + 1] if i + 1 < len(block) else None, "barrier"):
            return Miss("the result is not stored and waited for")
        value = "" if write.value == whole(found[0]) else expr_text(write.value)
        if value and (not _of_result(program, path, write.value, found[0]) or write.value.type != found[0].dtype):
            return Miss("what is stored is not made of the result alone")
        slot, home = write.at, declaration(program, path, write.at.buffer.name)
        if home is None or home.init is not None:
            return Miss(f"'{slot.buffer.name}' is not declared by the kernel itself")
        later = regions_of(block[i + 2:], slot.buffer.name)
        if any(x != slot for x in later):
            return Miss(f"another element of '{slot.buffer.name}' is used later")
        if any(mentions(s, found[0].name) for s in block[i + 2:]):
            return Miss(f"'{found[0].name}' is used later")
        if slot.index:
            return Site(path, WarpLeader(slot.buffer.name, writers, bound, value, own)) if slot.index == (build.const(0),) else Miss("not the first element")  # type: ignore[arg-type]  # literals above
        if len(regions_of(kernel_of(program, path), slot.buffer.name)) != 1 + len(later):
            return Miss(f"'{slot.buffer.name}' is used before")
        at = next(k for k, s in enumerate(kernel_of(program, path).body) if s is home)
        return Site(path, WarpLeader("", writers, bound, value, own), {"home": at})  # type: ignore[arg-type]  # literals above

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every warp, or every thread, folds and keeps the result."""
        node, (block, i), item = node_as(program, site.path, n.If), block_and_index(program, site.path), params_as(site, WarpLeader)
        write = node.then[-1].then[0] if isinstance(node.then[-1], n.If) else node.then[-1]
        assert isinstance(write, n.Store)
        name, value = write.at.buffer.name, write.value
        rest = tuple(transform(s, lambda old, new: value if isinstance(old, n.Load) and old.at.buffer.name == name else new) for s in block[i + 2:])
        head = _numbered(node.then[0], matched(team_at(program, site.path)).thread, build.const(0)) if item.own else node.then[0]
        out = splice(program, site.path, (head, *node.then[1:-1], *rest), 0, None)
        at: Path = site.path
        if not item.slot:
            k = int(site.captures["home"])
            out = edit_block(out, (site.path[0], k), lambda b: (*b[:k], *b[k + 1:]))
            at = (site.path[0], int(site.path[1]) - (k < int(site.path[1])), *site.path[2:])
        return Rewritten(out, at)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """A slot of shared memory, where it takes one of its own."""
        team = team_at(program, site.path)
        found = _folded(block_at(program, site.path), int(site.path[-1]), team) if team is not None else None
        return Effect(shared_bytes=found[0].dtype.bytes) if found is not None and not self.slot else Effect()
