"""Lets one warp scan the values of all warps once, instead of every thread adding up those before its own.

pipeline: `scan-by-warp{named=[0]}@main/before`

```diff
 kir 1
 program offsets
   size M: i32
   in X: f32[M, 128]
   out Y: f32[M, 128]
 kernel main grid (row: M) threads 128
   shared tops: f32[4]
   for t in 0..128 parallel thread
     if t % 32 == 31
       tops[t // 32] = X[row, t]
     barrier()
-    @before register before: f32 = 0.0
-    for w in 0..t // 32
-      before = before + tops[w]
+    if t // 32 == 0
+      register own: f32 = load(tops[t % 32] where t % 32 < 4 else 0.0)
+      for s in 0..5
+        let other = shfl_up(own, 1 << s)
+        if t % 32 >= 1 << s
+          own = own + other
+      if t % 32 < 4
+        tops[t % 32] = own
+    barrier()
+    @before let before = load(tops[t // 32 - 1] where t // 32 > 0 else 0.0)
     Y[row, t] = before
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kir.analysis.loops.reductions import identity
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import statements, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, edit_block, fresh
from kir.rewrite.match import block_and_index, fresh_var, loads_of, matched, matched_as, names_at
from kir.rewrite.match.exchange import REDUCTIONS
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_call, team_at, whole

from ._scan_forms import WARP, Fold, Ladder, fold_at, ladder_of, lane_of


def _one_warp(program: n.Program, site: Site, context: Context) -> Verdict:
    fold = matched(fold_at(block_at(program, site.path), int(site.path[-1])))
    count = build.int_value(fold.slots.shape[0]) or 0
    if count > WARP:
        return refuted(f"'{fold.slots.name}' has {count} values, and a warp {WARP} lanes", f"value {WARP} is not scanned",
                       needs=f"at most {WARP} values")
    return proved(f"a lane for each of the {count} values")


def _only_folded(program: n.Program, site: Site, context: Context) -> Verdict:
    block, i = block_and_index(program, site.path)
    fold = matched(fold_at(block, i))
    b, places = fold.slots, {k for k, _ in _folds(block, i, fold)}
    for k in range(i, len(block)):
        if k in places or k - 1 in places:
            continue
        for x in walk(block[k]):
            if isinstance(x, n.Region) and x.buffer == b:
                return refuted(f"'{b.name}' is used in another way before the iteration ends",
                               "a running sum stands where a value of one warp is expected", needs="folds from the first value on alone")
    return proved("everything that reads the values folds them from the first on")


@dataclass(frozen=True)
class ScanByWarp(Pass):
    """`flipped`: what comes from the other lane is the left operand of a step; `named`: which of the results have a name."""

    intent: ClassVar[str] = "parallel-scan"
    catalogue: ClassVar[tuple[int, ...]] = (64, 45)
    claim: ClassVar[str] = "Each thread reads one running sum instead of adding up all values before its own."
    numerics: ClassVar[str] = "reassociated(lanes)"
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P646", "validity", "shape", "one warp has a lane for each value", _one_warp),
        Precondition("KIR-P647", "validity", "storage", "everything that reads the values folds them from the first on", _only_folded),
        Precondition("KIR-P648", "validity", "pipeline", "all threads of the CTA come to the barriers", everyone_arrives))

    flipped: bool = False
    named: tuple[int, ...] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first of the folds of values in shared memory, just after a barrier."""
        team = team_at(program, path)
        if team is None or not isinstance(node, n.Alloc) or team.threads < WARP:
            return None
        block, i = block_and_index(program, path)
        fold = fold_at(block, i)
        if fold is None:
            return None
        if not i or not is_call(block[i - 1], "barrier") or build.int_value(fold.slots.shape[0]) is None:
            return Miss("no barrier stands before the fold")
        every = list(_folds(block, i, fold))
        if not every or every[0][0] != i:
            return Miss("it does not fold from the first value on")
        for number, (k, each) in enumerate(every):
            reads = _reads(block[k + 2:], each.acc.name)
            if reads is None or (number not in self.named and not (reads == 1 and k + 2 < len(block) and _reads(block[k + 2:k + 3], each.acc.name) == 1)):
                return Miss(f"'{each.acc.name}' is written again, or read later than in the next statement")
        return Site(path, self) if all(k < len(every) for k in self.named) else Miss(f"there are {len(every)} folds")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The scan by the first warp, a barrier, and reads of its results."""
        team, (block, i) = team_at(program, site.path), block_and_index(program, site.path)
        fold = matched(fold_at(block, i))
        assert team is not None
        taken = names_at(program, site.path)
        own = n.Buffer(fresh("own", taken), fold.slots.dtype, (), "register")
        s, near = fresh_var("s", taken), fresh("other", taken)
        out: list[n.Stmt] = [*block[:i], _scan(team, fold.slots, Ladder(own, fold.op, WARP, self.flipped), s, near), barrier()]
        at, every = len(out), {k: (number, f) for number, (k, f) in enumerate(_folds(block, i, fold))}
        values: dict[str, n.Expr] = {}
        k = i
        while k < len(block):
            if k in every:
                number, each = every[k]
                first = block[k]
                value = _result(fold.slots, each.op, each.count)
                if number in self.named:
                    values[each.acc.name] = n.Var(each.acc.name, each.acc.dtype)
                    out.append(n.Let((each.acc.name,), value, label=first.label, origin=first.origin))
                else:
                    values[each.acc.name] = value
                k += 2
                continue
            out.append(transform(block[k], lambda old, new: values[old.at.buffer.name]
                                 if isinstance(old, n.Load) and old.at.buffer.name in values else new))
            k += 1
        return Rewritten(edit_block(program, site.path, lambda b: tuple(out)), (*site.path[:-1], at - 2))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a branch of the first warp that scans an array of shared memory in place."""
        team, block, i = team_at(program, path), block_at(program, path) if len(path) > 1 else (), int(path[-1]) if len(path) > 1 else 0
        if team is None or not isinstance(node, n.If):
            return None
        found = _scan_at(node, team)
        if found is None:
            return None
        if not i or not is_call(block[i - 1], "barrier") or i + 1 >= len(block) or not is_call(block[i + 1], "barrier"):
            return Miss("no barriers stand around it")
        b, ladder = found
        named = tuple(k for k, (_, _, name) in enumerate(_uses(block, i + 2, b, ladder.op)) if name)
        return Site(path, ScanByWarp(ladder.flipped, named), {"array": b, "op": ladder.op})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every thread folds what its sum is made of."""
        b, op = site.captures["array"], site.captures["op"]
        block, i = block_and_index(program, site.path)
        taken = names_at(program, site.path)
        out: list[n.Stmt] = list(block[:i])
        values: dict[str, n.Expr] = {}
        uses = list(_uses(block, i + 2, b, op))
        for k in range(i + 2, len(block)):
            s = block[k]
            for at, load, name in uses:
                if at != k:
                    continue
                acc = n.Buffer(name or fresh("all", taken), b.dtype, (), "register")
                index = matched_as(load.at.index[0], n.Expr)
                fold = Fold(acc, op, b, build.const(0), build.add(index, 1))
                first, loop = fold.statements(fresh_var("w", taken))
                out += (replace(first, label=s.label) if name and isinstance(first, n.Alloc) else first, loop)
                if name:
                    values[name] = whole(acc)
                else:
                    s = _instead(s, load, whole(acc))
            if isinstance(s, n.Let) and s.names[0] in values:
                continue
            out.append(transform(s, lambda old, new: values[old.name] if isinstance(old, n.Var) and old.name in values else new))
        return Rewritten(edit_block(program, site.path, lambda x: tuple(out)), site.path)


def _folds(block: n.Block, i: int, like: Fold) -> Iterator[tuple[int, Fold]]:
    """The folds of the same values, from the first on, that a block has from statement `i` on."""
    for k in range(i, len(block) - 1):
        found = fold_at(block, k)
        if found is not None and found.fresh and (found.slots, found.op) == (like.slots, like.op) and build.is_const(found.base, 0):
            yield k, found


def _instead(s: n.Stmt, old: n.Node, new: n.Node) -> n.Stmt:
    made: n.Stmt = transform(s, lambda a, b: new if a == old else b)
    return made


def _reads(block: n.Block, name: str) -> int | None:
    """How often a scalar is read in statements; None where it is written."""
    if any(isinstance(x, n.Store) and x.at.buffer.name == name for x in statements(block)):
        return None
    return len(loads_of(block, name))


def _result(slots: n.Buffer, op: str, count: n.Expr) -> n.Load:
    """The running reduction of the first `count` values."""
    place = build.region(slots, build.sub(count, 1))
    if build.int_value(count):
        return n.Load(place)
    return n.Load(place, build.compare("gt", count, 0), identity(REDUCTIONS[op], slots.dtype))


def _scan(team: ThreadTeam, slots: n.Buffer, ladder: Ladder, s: n.Var, near: str) -> n.If:
    """The branch in which the first warp scans an array in place."""
    t, count = team.thread, build.int_value(slots.shape[0]) or 0
    lane = lane_of(t, WARP, team.threads)
    there = None if count >= WARP else build.compare("lt", lane, count)
    place = build.region(slots, lane)
    read = n.Load(place) if there is None else n.Load(place, there, identity(REDUCTIONS[ladder.op], slots.dtype))
    write = n.Store(place, whole(ladder.value))
    last: n.Stmt = write if there is None else n.If(there, (write,))
    first: n.Expr = build.compare("eq", build.floordiv(t, WARP), 0)
    return n.If(first, (n.Alloc(ladder.value, read), ladder.statement(t, team.threads, s, near), last))


def _scan_at(node: n.If, team: ThreadTeam) -> tuple[n.Buffer, Ladder] | None:
    """(array, ladder) of a branch in which the first warp scans an array in place."""
    if len(node.then) != 3 or node.orelse:
        return None
    first, loop, _ = node.then
    ladder = ladder_of(loop, team.thread, team.threads)
    if ladder is None or not (isinstance(first, n.Alloc) and isinstance(first.init, n.Load) and isinstance(loop, n.For)):
        return None
    near = matched_as(loop.body[0], n.Let)
    b = first.init.at.buffer
    if b.space != "shared" or len(b.shape) != 1 or build.int_value(b.shape[0]) is None:
        return None
    return (b, ladder) if _scan(team, b, ladder, loop.var, near.names[0]) == node else None


def _uses(block: n.Block, start: int, b: n.Buffer, op: str) -> Iterator[tuple[int, n.Load, str]]:
    """(statement, load, name or "") of each read of a scanned array, in order."""
    for k in range(start, len(block)):
        s = block[k]
        for x in walk(s):
            if isinstance(x, n.Load) and x.at.buffer == b and len(x.at.index) == 1:
                name = s.names[0] if isinstance(s, n.Let) and s.value == x else ""
                index = matched_as(x.at.index[0], n.Expr)
                if x == _result(b, op, build.add(index, 1)):
                    yield k, x, name
