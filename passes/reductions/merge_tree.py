"""Lets each thread of a CTA take one of the shares that are merged into a state of several scalars, and merges them as a tree in shared memory.

pipeline: `merge-tree@main/t/shares`

```diff
 kir 1
 program first_maximum
   size M: i32
   in X: f32[M, 128]
   out V: f32[M]
   out I: i32[M]
 kernel main grid (row: M) threads 128
+  shared slots: f32[128]
+  shared slots_1: i32[128]
   for t in 0..128 parallel thread
-    register best: f32
-    register at: i32
-    @shares for u in 0..128
-      register best_1: f32 = X[row, u]
-      register at_1: i32 = u
-      if u == 0
-        best = best_1
-        at = at_1
-      else
-        if best_1 > best | best_1 == best & at_1 < at
-          best = best_1
-          at = at_1
+    register best_1: f32 = X[row, t]
+    register at_1: i32 = t
+    @shares slots[t] = best_1
+    slots_1[t] = at_1
+    barrier()
+    for s in 0..7
+      if t < 64 >> s
+        if slots[(64 >> s) + t] > slots[t] | slots[(64 >> s) + t] == slots[t] & slots_1[(64 >> s) + t] < slots_1[t]
+          slots[t] = slots[(64 >> s) + t]
+          slots_1[t] = slots_1[(64 >> s) + t]
+      barrier()
     if t == 0
-      V[row] = best
-      I[row] = at
+      V[row] = slots[0]
+      I[row] = slots_1[0]
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, fresh
from kir.rewrite.match import block_and_index, counting, fresh_var, matched, names_at, splice
from kir.rewrite.match.shared_arrays import declaration, shifted, slot_array, uses, with_shared, without_shared
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_call, is_in_loop, team_at, whole

from ._shares import Shares, any_order, first_declared, inverse_match, is_merge, same_shares, shares_at, where_found


@dataclass(frozen=True)
class _Tree:
    """Statements from a store of a slot on: what each thread holds goes to `slots`, which are merged step by step; `size` of them."""

    values: tuple[n.Buffer, ...]
    slots: tuple[n.Buffer, ...]
    loop: n.For
    merge: n.Block
    size: int


def _reach(team: ThreadTeam, s: n.Var) -> n.Expr:
    """How far off the slot is that a thread merges into its own."""
    return build.binary("shr", build.const(team.threads // 2), s)


def _tree_at(block: n.Block, i: int, team: ThreadTeam) -> _Tree | None:
    """The tree that begins with the store of a slot at statement `i`."""
    values, slots, k = list[n.Buffer](), list[n.Buffer](), i
    while k < len(block) and isinstance(s := block[k], n.Store) and s.at == build.region(s.at.buffer, team.thread) and isinstance(s.value, n.Load):
        if s.at.buffer.space != "shared" or s.value != whole(s.value.at.buffer) or s.mask is not None or s.clip or s.cache:
            return None
        values.append(s.value.at.buffer)
        slots.append(s.at.buffer)
        k += 1
    if len(slots) < 2 or len(set(slots)) != len(slots) or len(set(values)) != len(values) or k + 1 >= len(block) or not is_call(block[k], "barrier"):
        return None
    loop = block[k + 1]
    if not isinstance(loop, n.For) or len(loop.body) != 2 or not isinstance(step := loop.body[0], n.If):
        return None
    if loop != _steps(team, loop.var, step.then) or any(b != slot_array(b.name, b.dtype, team.threads) for b in slots):
        return None
    return _Tree(tuple(values), tuple(slots), loop, step.then, k + 2 - i)


def _steps(team: ThreadTeam, s: n.Var, merge: n.Block) -> n.For:
    """The loop of a tree."""
    return counting(s, team.threads.bit_length() - 1, (n.If(build.compare("lt", team.thread, _reach(team, s)), merge), barrier()))


def _placed(block: n.Block, places: dict[n.Region, n.Region]) -> n.Block:
    """Statements with other places."""
    return tuple(transform(s, lambda _, x: places.get(x, x) if isinstance(x, n.Region) else x) for s in block)


def _halves(program: n.Program, site: Site, context: Context) -> Verdict:
    team, made = matched(team_at(program, site.path)), matched(shares_at(*block_and_index(program, site.path)))
    if made.count != team.threads or team.threads & (team.threads - 1) or team.threads < 2:
        return refuted(f"there are {made.count} shares for {team.threads} threads, or they cannot be halved down to one",
                       needs="one share for each thread, a power of two of them")
    return proved("each thread takes one share")


@dataclass(frozen=True)
class MergeTree(Pass):
    """No parameters: the site is the loop over the shares."""

    intent: ClassVar[str] = "tree-reduction"
    catalogue: ClassVar[tuple[int, ...]] = (44,)
    claim: ClassVar[str] = "A maximum with its place, or moments with their count, come together in the logarithm of the steps."
    numerics: ClassVar[str] = "reassociated(lanes)"
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P976", "validity", "shape", "there is one share for each thread, and the threads can be halved down to one", _halves),
        Precondition("KIR-P977", "validity", "numerics", "shares may be merged in any order", any_order),
        Precondition("KIR-P978", "validity", "storage", "every thread finds the same shares", same_shares),
        Precondition("KIR-P979", "validity", "pipeline", "all threads of the CTA come to the barriers", everyone_arrives),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over shares that are merged, whose result is only read afterwards."""
        if not isinstance(node, n.For) or node.kind != "serial" or team_at(program, path) is None or is_in_loop(program, path):
            return None
        block, i = block_and_index(program, path)
        made = shares_at(block, i)
        if made is None:
            return None
        held = {b.name for b in made.held}
        read = {id(x.at) for s in block[i + 1:] for x in walk(s) if isinstance(x, n.Load) and not x.at.index}
        if any(isinstance(x, n.Region) and x.buffer.name in held and id(x) not in read for s in block[i + 1:] for x in walk(s)):
            return Miss("its result is written again")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each thread finds its own share; then the tree."""
        (block, i), team = block_and_index(program, site.path), matched(team_at(program, site.path))
        made, taken = matched(shares_at(block, i)), names_at(program, site.path)
        found = tuple(substitute(s, {made.var.name: team.thread}) for s in made.found)
        slots = tuple(slot_array(fresh("slots", taken), b.dtype, team.threads) for b in made.held)
        s = fresh_var("s", taken)
        there = build.add(team.thread, _reach(team, s))
        places = {n.Region(b): build.region(to, team.thread) for b, to in zip(made.held, slots, strict=True)}
        places |= {n.Region(b): build.region(to, there) for b, to in zip(made.own, slots, strict=True)}
        stores = tuple(n.Store(build.region(to, team.thread), whole(b), label=None if k else block[i].label)
                       for k, (b, to) in enumerate(zip(made.own, slots, strict=True)))
        rest = _placed(block[i + 1:], {n.Region(b): build.region(to, 0) for b, to in zip(made.held, slots, strict=True)})
        first = i - len(made.held)
        out = splice(program, (*site.path[:-1], first), (*found, *stores, barrier(), _steps(team, s, _placed(made.merge, places)), *rest), 0, None)
        for k, b in enumerate(slots):
            out = with_shared(out, replace(team, path=(team.path[0], int(team.path[1]) + k)), b)
        return Rewritten(out, shifted((*site.path[:-1], first + len(found)), int(team.path[1]), len(slots)))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first store of a slot, of slots that are merged by halving."""
        team = team_at(program, path)
        if team is None or not (isinstance(node, n.Store) and node.at.buffer.space == "shared") or is_in_loop(program, path):
            return None
        block, i = block_and_index(program, path)
        tree = _tree_at(block, i, team)
        if tree is None:
            return None
        rest = block[i + tree.size:]
        if isinstance(why := where_found(block, i, tree.values, block[i + tree.size - 1:]), Miss):
            return why
        ends = {build.region(b, 0) for b in tree.slots}
        read = {id(x.at) for s in rest for x in walk(s) if isinstance(x, n.Load)}
        after = [x for s in rest for x in walk(s) if isinstance(x, n.Region) and x.buffer in tree.slots]
        if any(x not in ends or id(x) not in read for x in after):
            return Miss("more than its result is read afterwards, or the slots are written again")
        for b in tree.slots:
            home = declaration(program, path, b.name)
            inside = sum(isinstance(x, n.Region) and x.buffer == b for s in block[i:] for x in walk(s))
            if home is None or home.init is not None or uses(program, path, b.name) > inside:
                return Miss(f"'{b.name}' serves more than the tree")
        return Site(path, self) if is_merge(_back(program, path, team, tree)) else Miss("more than a share is written before it, or merged in it")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every thread finds all shares and merges them, one after another."""
        (block, i), team = block_and_index(program, site.path), matched(team_at(program, site.path))
        tree = matched(_tree_at(block, i, team))
        made, first = _back(program, site.path, team, tree), matched(first_declared(block, i, tree.values))
        rest = _placed(block[i + tree.size:], {build.region(b, 0): n.Region(to) for b, to in zip(tree.slots, made.held, strict=True)})
        loop = counting(made.var, made.count, made.body, label=block[i].label)
        out = splice(program, (*site.path[:-1], first), (*(n.Alloc(b) for b in made.held), loop, *rest), 0, None)
        path = (*site.path[:-1], first + len(made.held))
        for b in tree.slots:
            out, at = without_shared(out, str(site.path[0]), b.name)
            path = shifted(path, at, -1)
        return Rewritten(out, path)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """Slots for each thread."""
        team, made = team_at(program, site.path), shares_at(*block_and_index(program, site.path))
        return Effect() if team is None or made is None else Effect(shared_bytes=team.threads * sum(b.dtype.bytes for b in made.held))


def _back(program: n.Program, path: Path, team: ThreadTeam, tree: _Tree) -> Shares:
    """The loop over shares that a tree comes from."""
    block, i = block_at(program, path), int(path[-1])
    taken = names_at(program, path)
    held = tuple(replace(b, name=fresh(b.name, taken)) for b in tree.values)
    there = build.add(team.thread, _reach(team, tree.loop.var))

    def merge(own: tuple[n.Buffer, ...]) -> n.Block:
        places = {build.region(b, team.thread): n.Region(to) for b, to in zip(tree.slots, held, strict=True)}
        return _placed(tree.merge, places | {build.region(b, there): n.Region(to) for b, to in zip(tree.slots, own, strict=True)})
    return inverse_match(taken, team, block[matched(first_declared(block, i, tree.values)):i], tree.values, held, team.threads, merge)
