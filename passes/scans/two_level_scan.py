"""Scans over the threads of a CTA in two levels: each lane adds up what its warp has before it, and then what the warps before came to.

pipeline: `two-level-scan@main/exchange`

```diff
 kir 1
 program prefix_sums
   size M: i32
   in X: f32[M, 128]
   out Y: f32[M, 128]
 kernel main grid (row: M) threads 128
   shared slots: f32[128]
+  shared tops: f32[4]
   for t in 0..128 parallel thread
-    @exchange slots[t] = X[row, t]
+    @exchange register own: f32 = X[row, t]
+    slots[t] = own
+    warp_sync()
+    own = 0.0
+    for u in 0..t % 32 + 1
+      own = own + slots[t // 32 * 32 + u]
+    if t % 32 == 31
+      tops[t // 32] = own
     barrier()
-    register total: f32 = 0.0
-    for u in 0..t + 1
-      total = total + slots[u]
-    Y[row, t] = 1.0 + total
+    register before: f32 = 0.0
+    for w in 0..t // 32
+      before = before + tops[w]
+    Y[row, t] = 1.0 + before + own
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Literal

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, fresh
from kir.rewrite.match import block_and_index, fresh_var, matched, matched_as, names_at, splice
from kir.rewrite.match.shared_arrays import declaration, shifted, slot_array, uses, with_shared, without_shared
from kir.rewrite.match.thread_team import ThreadTeam, barrier, is_call, is_in_loop, team_at, warp_sync, whole

from ._scan_forms import WARP, Fold, fold_at, group_of, lane_of

Form = Literal["carried", "front", "back"]
FORMS: tuple[Form, ...] = ("carried", "front", "back")


def _whole_warps(program: n.Program, site: Site, context: Context) -> Verdict:
    team = matched(team_at(program, site.path))
    if team.threads % WARP or team.threads == WARP:
        return refuted(f"{team.threads} threads are not several whole warps", f"thread {team.threads - 1} is lane {(team.threads - 1) % WARP} of its warp",
                       needs=f"a multiple of {WARP} above it")
    return proved(f"{team.threads // WARP} whole warps")


@dataclass(frozen=True)
class _Scan:
    """A scan in one level: statement numbers of its folds, and what they fold."""

    total: Fold
    op: str
    sums: tuple[int, ...]
    """Statements at which folds of all slots begin."""


@dataclass(frozen=True)
class TwoLevelScan(Pass):
    """How a running sum is put together: with `carried` what it is added to comes first, then what the warps before came to, then the
    lane's own; `front` and `back` add the lane's own behind or before the others' on the spot."""

    intent: ClassVar[str] = "warp-scan"
    catalogue: ClassVar[tuple[int, ...]] = (64, 45, 47)
    claim: ClassVar[str] = "The CTA meets over one value of each warp, and no thread adds up more than its warp and the values of the warps."
    numerics: ClassVar[str] = "reassociated(lanes)"
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P649", "validity", "shape", "the CTA is several whole warps", _whole_warps),)

    form: Form = "carried"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the store of a slot, all of which up to its own each thread then folds."""
        team = team_at(program, path)
        if team is None or not (isinstance(node, n.Store) and node.at.buffer.space == "shared"):
            return None
        block, i = block_and_index(program, path)
        found = _one_level(block, i, team)
        if found is None:
            return None
        if declaration(program, path, node.at.buffer.name) is None:
            return Miss("the slots are not declared by the kernel itself")
        return Site(path, self) if _joined(block[i + 4:], found.total.acc, found.op, self.form) else Miss("its sum is not used once, in that form")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A fold within the warp, a value of each warp, and folds of those."""
        team, (block, i) = matched(team_at(program, site.path)), block_and_index(program, site.path)
        found, store = matched(_one_level(block, i, team)), matched_as(block[i], n.Store)
        taken, t, slots = names_at(program, site.path), team.thread, store.at.buffer
        own = n.Buffer(fresh("own", taken), slots.dtype, (), "register")
        before = n.Buffer(fresh("before", taken), slots.dtype, (), "register")
        tops = slot_array(fresh("tops", taken), slots.dtype, max(1, team.threads // WARP))
        u, w = fresh_var("u", taken), fresh_var("w", taken)
        old = matched(_joined(block[i + 4:], found.total.acc, found.op, self.form))
        new = _sum(old[0], whole(before), whole(own), found.op, self.form)
        head = _head(team, slots, tops, own, found.op, store, u, is_in_loop(program, site.path))
        fold = Fold(before, found.op, tops, build.const(0), build.floordiv(t, WARP)).statements(w)
        rest: list[n.Stmt] = []
        for k in range(i + 4, len(block)):
            s = block[k]
            if k - 1 in found.sums:
                assert isinstance(s, n.For)
                acc = matched(fold_at(block, k - 1))
                s = replace(acc, slots=tops, count=tops.shape[0]).statements(s.var)[1]
            rest.append(transform(s, lambda a, b: new if a == old[1] else b))
        out = splice(program, site.path, (*head, *fold, *rest), 0, None)
        return Rewritten(with_shared(out, team, tops), shifted(site.path, int(team.path[1]), 1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the private scalar with which a scan over warps, and then over their values, begins."""
        team = team_at(program, path)
        if team is None or not isinstance(node, n.Alloc) or node.init is None:
            return None
        found = _two_levels(program, path, team)
        if found is None:
            return None
        fold, before, size, sums = found
        block, i = block_and_index(program, path)
        rest = block[i + size:]
        tops = before.slots
        home = declaration(program, path, tops.name)
        if home is None or home.init is not None or uses(program, path, tops.name) != 2 + len(sums):
            return Miss(f"'{tops.name}' is used elsewhere")
        for form in FORMS:
            if _parted(rest, before.acc, fold.acc, fold.op, form) is not None:
                return Site(path, TwoLevelScan(form))
        return Miss("the two parts of the sum are not added once")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every thread folds all slots up to its own."""
        team, (block, i) = matched(team_at(program, site.path)), block_and_index(program, site.path)
        found, first = matched(_two_levels(program, site.path, team)), matched_as(block[i], n.Alloc)
        assert first.init is not None
        fold, before, size, sums = found
        taken = names_at(program, site.path)
        total = n.Buffer(fresh("total", taken), fold.acc.dtype, (), "register")
        part = matched(_parted(block[i + size:], before.acc, fold.acc, fold.op, self.form))
        new = whole(total) if part[0] is None else build.binary(fold.op, part[0], whole(total))
        t = team.thread
        store = n.Store(build.region(fold.slots, t), first.init, label=first.label)
        made = Fold(total, fold.op, fold.slots, build.const(0), build.add(t, 1)).statements(fresh_var("u", taken))
        rest: list[n.Stmt] = []
        for k in range(i + size, len(block)):
            s = block[k]
            if k - 1 in sums:
                assert isinstance(s, n.For)
                acc = matched(fold_at(block, k - 1))
                s = replace(acc, slots=fold.slots, count=build.const(team.threads)).statements(s.var)[1]
            rest.append(transform(s, lambda a, b: new if a == part[1] else b))
        out = splice(program, site.path, (store, barrier(), *made, *rest), 0, None)
        out, at = without_shared(out, str(site.path[0]), before.slots.name)
        return Rewritten(out, shifted(site.path, at, -1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """One value of each warp."""
        team, node = team_at(program, site.path), block_at(program, site.path)[int(site.path[-1])]
        return Effect() if team is None or not isinstance(node, n.Store) else Effect(shared_bytes=team.threads // WARP * node.at.buffer.dtype.bytes)


def _one_level(block: n.Block, i: int, team: ThreadTeam) -> _Scan | None:
    """The scan in one level that begins with the store at statement `i`."""
    store = block[i]
    fold = fold_at(block, i + 2)
    if fold is None or not fold.fresh or not isinstance(store, n.Store) or not is_call(block[i + 1], "barrier"):
        return None
    if store.at != build.region(fold.slots, team.thread) or store.mask is not None or store.clip:
        return None
    if not build.is_const(fold.base, 0) or fold.count != build.add(team.thread, 1):
        return None
    sums = tuple(_sums(block, i + 4, fold.slots, fold.op, build.const(team.threads)))
    return _Scan(fold, fold.op, sums)


def _sums(block: n.Block, start: int, slots: n.Buffer, op: str, count: n.Expr) -> Iterator[int]:
    """Statements at which folds of all values begin."""
    for k in range(start, len(block)):
        found = fold_at(block, k)
        if found is not None and (found.slots, found.op, found.count) == (slots, op, count) and build.is_const(found.base, 0):
            yield k


def _head(team: ThreadTeam, slots: n.Buffer, tops: n.Buffer, own: n.Buffer, op: str, store: n.Store, u: n.Var, trailing: bool) -> n.Block:
    """The scan within the warps, and what each of them comes to."""
    t = team.thread
    fold = Fold(own, op, slots, group_of(t, WARP, team.threads), build.add(lane_of(t, WARP, team.threads), 1), fresh=False)
    publish = n.If(build.compare("eq", lane_of(t, WARP, team.threads), WARP - 1), (
        n.Store(build.region(tops, build.floordiv(t, WARP)), whole(own)),))
    return (n.Alloc(own, store.value, label=store.label), n.Store(build.region(slots, t), whole(own)), warp_sync(), *fold.statements(u),
            *((warp_sync(),) if trailing else ()), publish, barrier())


def _two_levels(program: n.Program, path: Path, team: ThreadTeam) -> tuple[Fold, Fold, int, tuple[int, ...]] | None:
    """(fold within the warp, fold of the warps before, number of statements, where folds of all warps begin) of a scan at a path."""
    block, i = block_and_index(program, path)
    alloc, trailing = block[i], is_in_loop(program, path)
    fold = fold_at(block, i + 3)
    size = 8 if trailing else 7
    before = fold_at(block, i + size)
    if not isinstance(alloc, n.Alloc) or alloc.init is None or fold is None or before is None or not before.fresh or fold.acc != alloc.buffer:
        return None
    loop = matched_as(block[i + 4], n.For)
    store = n.Store(build.region(fold.slots, team.thread), alloc.init)
    if _head(team, fold.slots, before.slots, fold.acc, fold.op, store, loop.var, trailing) != block[i:i + size]:
        return None
    if (before.op, before.count) != (fold.op, build.floordiv(team.thread, WARP)) or not build.is_const(before.base, 0):
        return None
    sums = tuple(_sums(block, i + size + 2, before.slots, fold.op, before.slots.shape[0]))
    return fold, before, size + 2, sums


def _sum(first: n.Expr | None, before: n.Expr, own: n.Expr, op: str, form: Form) -> n.Expr:
    """A running sum from its two parts."""
    if form == "carried" and first is not None:
        return build.binary(op, build.binary(op, first, before), own)
    both = build.binary(op, own, before) if form == "back" else build.binary(op, before, own)
    return both if first is None else build.binary(op, first, both)


def _joined(rest: n.Block, total: n.Buffer, op: str, form: Form) -> tuple[n.Expr | None, n.Expr] | None:
    """(what the sum is added to, the expression to replace) where a sum is read once."""
    reads = [x for s in rest for x in walk(s) if isinstance(x, n.Region) and x.buffer == total]
    if len(reads) != 1:
        return None
    if form != "carried":
        return None, whole(total)
    for s in rest:
        for x in walk(s):
            if isinstance(x, n.Binary) and x.op == op and x.b == whole(total):
                return x.a, x
    return None


def _parted(rest: n.Block, before: n.Buffer, own: n.Buffer, op: str, form: Form) -> tuple[n.Expr | None, n.Expr] | None:
    """The same where the two parts of a sum are read once."""
    if any(sum(isinstance(x, n.Region) and x.buffer == b for s in rest for x in walk(s)) != 1 for b in (before, own)):
        return None
    for s in rest:
        for x in walk(s):
            if not isinstance(x, n.Binary) or x.op != op:
                continue
            if form == "carried":
                if x.b == whole(own) and isinstance(x.a, n.Binary) and x.a.op == op and x.a.b == whole(before):
                    return x.a.a, x
            elif x == _sum(None, whole(before), whole(own), op, form):
                return None, x
    return None
