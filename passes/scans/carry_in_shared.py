"""Running sums over pieces: one thread hands on what all pieces so far come to, through shared memory, instead of each thread adding up every piece.

pipeline: `carry-in-shared@main/t/k/all`

```diff
 kir 1
 program sums
   size M: i32
   in X: f32[M, 3, 64]
   out Y: f32[M, 3, 64]
 kernel main grid (row: M) threads 64
   shared slots: f32[64]
+  shared carry_1: f32
   for t in 0..64 parallel thread
-    register carry: f32 = 0.0
+    if t == 0
+      carry_1 = 0.0
+    barrier()
     for k in 0..3
       slots[t] = X[row, k, t]
       barrier()
       register total: f32 = 0.0
       for u in 0..t + 1
         total = total + slots[u]
-      Y[row, k, t] = carry + total
-      @all register all: f32 = 0.0
-      for w in 0..64
-        all = all + slots[w]
-      carry = carry + all
+      Y[row, k, t] = carry_1 + total
       barrier()
+      @all if t == 63
+        carry_1 = carry_1 + total
+      barrier()
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import transform
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, fresh, node_at
from kir.rewrite.match import block_and_index, fresh_var, loads_of, matched, matched_as, names_at, regions_of, splice
from kir.rewrite.match.exchange import REDUCTIONS
from kir.rewrite.match.shared_arrays import declaration, shifted, uses, with_shared, without_shared
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_call, is_in_loop, is_scalar, team_at, whole

from ._scan_forms import Fold, fold_at


@dataclass(frozen=True)
class _Round:
    """The loop over pieces: the carry, what it begins with (the statement number of its declaration), and the folds of a piece: up to a thread's own
    value (its statement number), and of all."""

    carry: n.Buffer
    start: n.Const
    declared: int
    own: Fold
    at: int
    op: str
    flipped: bool
    trailing: int
    """Statements from the fold of all up to the barrier with which the piece ends."""


def _sum_stays(program: n.Program, site: Site, context: Context) -> Verdict:
    block, i = block_and_index(program, site.path)
    found = matched(_everyones(program, site.path, matched(team_at(program, site.path))))
    for b in (found.own.acc, found.own.slots):
        if _writes(block[found.at + 2:i], b):
            return refuted(f"'{b.name}' is written before all values are added up", "what the last thread has is another sum",
                           needs="sums of the same values")
    return proved("the last thread's sum is that of all values, in the same order")


@dataclass(frozen=True)
class CarryInShared(Pass):
    """`leader` is the thread that begins; `flipped`: the sum of a piece stands before what was handed on."""

    intent: ClassVar[str] = "leader-broadcast"
    catalogue: ClassVar[tuple[int, ...]] = (46, 64)
    claim: ClassVar[str] = "The last thread has the sum of all values already: it hands it on, and nobody adds them up again."
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P462", "validity", "pipeline", "all threads of the CTA come to the barriers", everyone_arrives),
        Precondition("KIR-P463", "validity", "storage", "the last thread's sum is that of all values", _sum_stays))

    leader: int = 0
    flipped: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the fold of all values of a piece, which is then added to what each thread carries."""
        team = team_at(program, path)
        if team is None or not is_scalar(node) or len(path) < 6:  # type: ignore[arg-type]  # any place may be asked for
            return None
        found = _everyones(program, path, team)
        if found is None or found.flipped != self.flipped:
            return None
        return Site(path, self) if 0 <= self.leader < team.threads else Miss(f"there is no thread {self.leader}")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The carry in shared memory: the leader begins it, the last thread goes on with it between two barriers."""
        team = matched(team_at(program, site.path))
        found = matched(_everyones(program, site.path, team))
        block, i = block_and_index(program, site.path)
        slot = n.Buffer(fresh(found.carry.name, names_at(program, site.path)), found.carry.dtype, (), "shared")
        last = build.compare("eq", team.thread, team.threads - 1)
        update = n.If(last, (n.Store(n.Region(slot), _joined(found.op, whole(slot), whole(found.own.acc), self.flipped)),), label=block[i].label)
        out = splice(program, site.path, (barrier(), update), 0, found.trailing)
        loop = site.path[:-2]
        begin = n.If(build.compare("eq", team.thread, self.leader), (n.Store(n.Region(slot), found.start),))
        out = splice(out, (*loop[:-1], found.declared), (begin, barrier()))
        out = splice(out, loop, tuple(_renamed(s, found.carry, slot) for s in block_at(out, loop)[int(loop[-1]) + 1:]), 1, None)
        path = (*loop[:-1], int(loop[-1]) + 1, "body", i + 1)
        return Rewritten(with_shared(out, team, slot), shifted(path, int(team.path[1]), 1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the branch in which the last thread goes on with a sum in shared memory."""
        team = team_at(program, path)
        if team is None or len(path) < 6 or not isinstance(node, n.If):
            return None
        found = _one_threads(program, path, team)
        return Site(path, CarryInShared(found[1], found[0].flipped)) if isinstance(found, tuple) else found

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every thread adds up all values of a piece, and carries the sum itself."""
        team, (block, i) = matched(team_at(program, site.path)), block_and_index(program, site.path)
        made = _one_threads(program, site.path, team)
        assert isinstance(made, tuple)
        found, taken = made[0], names_at(program, site.path)
        own = n.Buffer(fresh(found.carry.name, taken), found.carry.dtype, (), "register")
        every = n.Buffer(fresh("all", taken), found.carry.dtype, (), "register")
        alloc, fold = replace(found.own, acc=every, count=build.const(team.threads), fresh=True).statements(fresh_var("w", taken))
        update = n.Store(n.Region(own), _joined(found.op, whole(own), whole(every), self.flipped))
        out = splice(program, site.path, (replace(matched_as(alloc, n.Alloc), label=block[i].label), fold, update), -1, 1)
        loop = site.path[:-2]
        out = splice(out, (*loop[:-1], found.declared), (n.Alloc(own, found.start),), 0, 2)
        at = int(loop[-1]) - 1
        out = splice(out, (*loop[:-1], at), tuple(_renamed(s, found.carry, own) for s in block_at(out, (*loop[:-1], at))[at:]), 0, None)
        out, gone = without_shared(out, str(site.path[0]), found.carry.name)
        return Rewritten(out, shifted((*loop[:-1], at, "body", i - 1), gone, -1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """One slot."""
        node = node_at(program, site.path)
        return Effect(shared_bytes=node.buffer.dtype.bytes) if isinstance(node, n.Alloc) else Effect()


def _joined(op: str, carry: n.Expr, total: n.Expr, flipped: bool) -> n.Expr:
    return build.binary(op, total, carry) if flipped else build.binary(op, carry, total)


def _writes(block: n.Block, b: n.Buffer) -> bool:
    """Whether statements write a buffer, or may."""
    return len(loads_of(block, b.name)) != len(regions_of(block, b.name))


def _renamed(s: n.Stmt, old: n.Buffer, new: n.Buffer) -> n.Stmt:
    """A statement that reads the carry from elsewhere."""
    made: n.Stmt = transform(s, lambda a, b: n.Region(new) if b == n.Region(old) else b)
    return made


def _own_fold(block: n.Block, stop: int, team: ThreadTeam, op: str, acc: n.Buffer | None, slots: n.Buffer | None) -> tuple[int, Fold] | None:
    """The last fold, among the first statements, of the values up to each thread's own, of some scalar or some slots."""
    for k in range(stop - 1, -1, -1):
        found = fold_at(block, k)
        if found is not None and found.op == op and (acc is None or found.acc == acc) and (slots is None or found.slots == slots) and (
                build.is_const(found.base, 0) and found.count == build.add(team.thread, 1)):
            return k, found
    return None


def _updated(s: n.Stmt, carry: n.Buffer) -> tuple[str, n.Expr, bool] | None:
    """(operation, what is added, whether that stands first) of a store that goes on with a carry."""
    if not (isinstance(s, n.Store) and s.at == n.Region(carry) and s.mask is None and isinstance(s.value, n.Binary) and s.value.op in REDUCTIONS):
        return None
    own, v = whole(carry), s.value
    return (v.op, v.b, False) if v.a == own else (v.op, v.a, True) if v.b == own else None


def _everyones(program: n.Program, path: Path, team: ThreadTeam) -> _Round | None:
    """The round whose fold of all values begins at a path, where each thread carries the sum."""
    block, i = block_and_index(program, path)
    every = fold_at(block, i)
    if len(path) < 6 or every is None or not every.fresh or not build.is_const(every.base, 0) or not build.is_const(every.count, team.threads):
        return None
    loop, after = path[:-2], block[i + 2:]
    if len(after) != 2 or not is_call(after[1], "barrier") or not isinstance(after[0], n.Store) or not isinstance(node_at(program, loop), n.For):
        return None
    carry = after[0].at.buffer
    said = _updated(after[0], carry)
    if said is None or said[:2] != (every.op, whole(every.acc)) or carry.space != "register" or carry.shape:
        return None
    own = _own_fold(block, i, team, every.op, None, every.slots)
    outer, at = block_and_index(program, loop)
    declared = next((k for k, s in enumerate(outer[:at]) if isinstance(s, n.Alloc) and s.buffer == carry and isinstance(s.init, n.Const)), None)
    if is_in_loop(program, loop) and regions_of(outer[at + 1:], carry.name):
        return None  # whoever begins it anew might come before another thread's last read
    if own is None or declared is None or not own[1].fresh or any(_writes(b, carry) for b in (outer[declared + 1:at], outer[at + 1:], block[:i])):
        return None
    start = matched_as(matched_as(outer[declared], n.Alloc).init, n.Const)
    return _Round(carry, start, declared, own[1], own[0], every.op, said[2], 3)


def _one_threads(program: n.Program, path: Path, team: ThreadTeam) -> tuple[_Round, int] | Miss | None:
    """The round in which the branch at a path goes on with the carry, and which thread begins it."""
    block, i = block_and_index(program, path)
    branch, loop = matched_as(block[i], n.If), path[:-2]
    if branch.orelse or len(branch.then) != 1 or branch.cond != build.compare("eq", team.thread, team.threads - 1) or not isinstance(branch.then[0], n.Store):
        return None
    carry = branch.then[0].at.buffer
    said = _updated(branch.then[0], carry)
    if carry.space != "shared" or carry.shape or said is None or not isinstance(said[1], n.Load) or not isinstance(node_at(program, loop), n.For):
        return None
    if i + 2 != len(block) or not is_call(block[i + 1], "barrier") or not i or not is_call(block[i - 1], "barrier"):
        return Miss("no barriers stand around it, at the end of a round")
    own = _own_fold(block, i, team, said[0], said[1].at.buffer, None)
    if own is None or not own[1].fresh:
        return Miss("what is added is no sum of the threads' values up to their own")
    outer, at = block_and_index(program, loop)
    begun = [(k, _begins(s, carry, team)) for k, s in enumerate(outer[:at]) if _begins(s, carry, team) is not None]
    home = declaration(program, path, carry.name)
    if len(begun) != 1 or begun[0][1] is None or not is_call(outer[begun[0][0] + 1], "barrier") or home is None or home.init is not None:
        return Miss(f"no one thread begins '{carry.name}', before a barrier")
    reads = sum(len(loads_of((s,), carry.name)) for s in (*outer[begun[0][0] + 2:at], *block[:i - 1], *outer[at + 1:]))
    if uses(program, path, carry.name) != reads + 3:
        return Miss(f"'{carry.name}' is used elsewhere")
    k, (leader, start) = begun[0][0], begun[0][1]
    return _Round(carry, start, k, own[1], own[0], said[0], said[2], 1), leader


def _begins(s: n.Stmt, carry: n.Buffer, team: ThreadTeam) -> tuple[int, n.Const] | None:
    """(which thread, with what) of a statement that begins a carry."""
    if not (isinstance(s, n.If) and not s.orelse and len(s.then) == 1 and isinstance(s.then[0], n.Store) and s.then[0].at == n.Region(carry)):
        return None
    store = s.then[0]
    leader = build.int_value(s.cond.b) if isinstance(s.cond, n.Binary) and s.cond.op == "eq" and s.cond.a == team.thread else None
    return None if leader is None or store.mask is not None or not isinstance(store.value, n.Const) else (leader, store.value)
