"""Puts what each thread of a CTA needs of the others' values, the sum up to its own, together in steps of any form, instead of each for itself.

pipeline: `team-fold{steps="shared A: f32[2]\\nA[t] = given\\nbarrier()\\nlet a = A[0]\\nbarrier()\\nlet v = A[t] + select(t > 0, a, 0.0)" result=v}@main/t/put`

```diff
 kir 1
 program sums
   size M: i32
   in X: f32[M, 2]
   out Y: f32[M, 2]
 kernel main grid (row: M) threads 2
-  shared slots: f32[2]
+  shared A: f32[2]
   for t in 0..2 parallel thread
-    @put slots[t] = X[row, t]
+    @put A[t] = X[row, t]
     barrier()
-    register total: f32 = 0.0
-    for u in 0..t + 1
-      total = total + slots[u]
-    Y[row, t] = total
+    let a = A[0]
+    barrier()
+    let v = A[t] + select(t > 0, a, 0.0)
+    Y[row, t] = v
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.printer import expr_text
from kir.ir.visit import substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, fresh
from kir.rewrite.match import block_and_index, fresh_var, matched, matched_as, names_at, params_as, splice
from kir.rewrite.match.shared_arrays import declaration, shifted, slot_array, uses, with_shared, without_shared
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_call, is_in_loop, is_scalar, team_at, whole

from ._scan_forms import Fold, fold_at
from ._team_steps import KINDS, Steps, computed, found_steps, hazards, parsed
from .parallel_scan import ParallelScan


def _item(site: Site) -> TeamFold:
    return params_as(site, TeamFold)


@dataclass(frozen=True)
class _Folds:
    """A store of a slot, and each thread's fold of slots: how many statements they are, of which kind (`KINDS`), what it is added to, and the sum; and
    the statement at which a fold of all slots begins."""

    store: n.Store
    fold: Fold
    kind: str
    size: int
    first: n.Expr | None
    sum: n.Expr
    every: int | None


def _folds(program: n.Program, path: Path, team: ThreadTeam, steps: Steps) -> _Folds | None:
    """Those that begin with the store at a path, which steps could take the place of."""
    block, i = block_and_index(program, path)
    store, fold = block[i], fold_at(block, i + 2)
    if fold is None or not fold.fresh or not isinstance(store, n.Store) or not is_call(block[i + 1], "barrier") or not build.is_const(fold.base, 0):
        return None
    if store.at != build.region(fold.slots, team.thread) or store.mask is not None or store.clip or fold.slots != slot_array(
            fold.slots.name, fold.slots.dtype, team.threads):
        return None
    kind = next((k for k in KINDS if fold.count == _count(k, team)), None)
    loop = is_in_loop(program, path)
    if kind is None or (loop and not (i + 4 < len(block) and is_call(block[i + 4], "barrier"))):
        return None
    total, size, every = whole(fold.acc), 4 + loop, None
    if steps.every is not None:
        alike = replace(fold, count=build.const(team.threads))
        every = next((k for k in range(i + size, len(block)) if (x := fold_at(block, k)) is not None and x == replace(alike, acc=x.acc)), None)
        if every is None:
            return None
    if not steps.begins_with_first:
        return _Folds(store, fold, kind, size, None, total, every)
    sums = {x for s in block[i + size:] for x in walk(s) if isinstance(x, n.Binary) and x.op == fold.op and x.b == total}
    made = next(iter(sums)) if len(sums) == 1 else None
    first = made.a if made is not None else None
    if not isinstance(first, n.Load) or first != whole(first.at.buffer) or first.at.buffer.space != "shared":
        return None
    assert made is not None
    return _Folds(store, fold, kind, size, first, made, every)


def _count(kind: str, team: ThreadTeam) -> n.Expr:
    """How many slots a thread folds."""
    return {"own": build.add(team.thread, 1), "before": team.thread}[kind]


def _alike(program: n.Program, site: Site, context: Context) -> Verdict:
    item, team = _item(site), matched(team_at(program, site.path))
    found, steps = matched(item.folds(program, site.path, team)), matched(item.parsed(program, site.path))
    said = computed(steps, found.kind, found.fold.op)
    return proved(f"{said.elements} values, one for each thread, are the same sums") if said.status == "proved" else refuted(
        f"the steps are not shown to compute what the threads fold: {said.why}", needs="steps that leave each thread the same")


def _no_hazard(program: n.Program, site: Site, context: Context) -> Verdict:
    item = _item(site)
    steps = matched(item.parsed(program, site.path))
    block, i = block_and_index(program, site.path)
    found = matched(item.folds(program, site.path, matched(team_at(program, site.path))))
    said = hazards(steps, is_in_loop(program, site.path), any(is_call(s, "barrier") for s in block[i + found.size:]))
    return refuted(said, needs="barriers between what threads write and read of each other") if said else proved("nothing races, in a run of its own")


@dataclass(frozen=True)
class TeamFold(Pass):
    """`steps` are the statements, of the value `given` and the thread `t`, with the memory that they share; `result` what a thread then has,
    and `every` what all values come to, where it has that too.
    `inplace`: the value is in a private scalar, which the steps begin to change."""

    intent: ClassVar[str] = "parallel-scan"
    catalogue: ClassVar[tuple[int, ...]] = (64, 44, 45)
    claim: ClassVar[str] = "Running sums are ready after few steps that the threads take together."
    numerics: ClassVar[str] = "reassociated(axis)"
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P994", "validity", "numerics", "the steps compute, over the reals, what the threads fold", _alike),
        Precondition("KIR-P995", "validity", "pipeline", "nothing races in the steps", _no_hazard),
        Precondition("KIR-P991", "validity", "pipeline", "all threads of the CTA come to the barriers", everyone_arrives),
    )

    steps: str = ""
    result: str = ""
    inplace: bool = False
    every: str = ""

    def parsed(self, program: n.Program, path: Path) -> Steps | None:
        """The steps, for the team and the dtype at a path."""
        team = team_at(program, path)
        s = block_at(program, path)[int(path[-1])]
        return parsed(self.steps, self.result, team.threads, s.at.buffer.dtype, self.every) if team is not None and isinstance(s, n.Store) else None

    def folds(self, program: n.Program, path: Path, team: ThreadTeam) -> _Folds | None:
        """What stands in their place, at a path."""
        steps = self.parsed(program, path)
        return None if steps is None else _folds(program, path, team, steps)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the store of a slot, of which each thread then folds some."""
        team = team_at(program, path)
        if not self.steps or team is None or not (isinstance(node, n.Store) and node.at.buffer.space == "shared"):
            return None
        if self.parsed(program, path) is None:
            return Miss("the steps are no statements of a thread")
        found = self.folds(program, path, team)
        if found is None:
            return None
        if declaration(program, path, found.store.at.buffer.name) is None or uses(program, path, found.store.at.buffer.name) != 2 + (found.every is not None):
            return Miss("the slots serve more than the fold")
        if self.inplace and not (isinstance(found.store.value, n.Load) and found.store.value == whole(found.store.value.at.buffer)):
            return Miss("the value is not in a private scalar")
        rest = block_at(program, path)[int(path[-1]) + found.size:]
        if any(isinstance(x, n.Store) and x.at.buffer == found.fold.acc for s in rest for x in walk(s)):
            return Miss("the sum is written again")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The steps, and their result wherever the sum was read."""
        team, (block, i) = matched(team_at(program, site.path)), block_and_index(program, site.path)
        found, steps = matched(self.folds(program, site.path, team)), matched(self.parsed(program, site.path))
        taken = names_at(program, site.path) - {found.fold.acc.name, found.store.at.buffer.name}
        names = {name: fresh(name, taken) for name in (*(b.name for b in steps.shared), *bound_names(steps.body))}
        body, shared = tuple(rename(s, names) for s in steps.body), [replace(b, name=names[b.name]) for b in steps.shared]
        result, every = rename(steps.result, names), rename(steps.every, names) if steps.every is not None else None
        if self.inplace:
            own, value = matched_as(body[0], n.Alloc).buffer, matched_as(found.store.value, n.Load)
            body, result = tuple(rename(s, {own.name: value.at.buffer.name}) for s in body[1:]), rename(result, {own.name: value.at.buffer.name})
        at = {"given": found.store.value, "t": team.thread, **({} if found.first is None else {"first": found.first})}
        body, result = tuple(substitute(s, at) for s in body), substitute(result, at)
        after, reads = block[i + found.size:], {found.sum: result}
        if found.every is not None and every is not None:
            reads[whole(matched_as(block[found.every], n.Alloc).buffer)] = substitute(every, at)
            after = (*block[i + found.size:found.every], *block[found.every + 2:])
        first = replace(body[0], label=found.store.label) if found.store.label else body[0]  # type: ignore[type-var]  # every Stmt is a dataclass
        rest = tuple(transform(s, lambda a, b: reads.get(b, b) if isinstance(b, n.Expr) else b) for s in after)
        out = splice(program, site.path, (first, *body[1:], *rest), 0, None)
        out, gone = without_shared(out, str(site.path[0]), found.store.at.buffer.name)
        path = shifted(site.path, gone, -1)
        for k, b in enumerate(shared):
            home = (team.path[0], int(path[1]) + k)
            out = with_shared(out, replace(team, path=home), b)
        return Rewritten(out, shifted(path, int(path[1]), len(shared)))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the statement with which threads begin to put their values together."""
        team = team_at(program, path)
        if team is None or not isinstance(node, (n.Store, n.Alloc, n.For)) or (isinstance(node, n.Alloc) and not is_scalar(node)):
            return None
        block, i = block_and_index(program, path)
        if (isinstance(node, n.Store) and fold_at(block, i + 2) is not None) or isinstance(
                ParallelScan().match_inverse(program, path, node), Site) or (found := found_steps(program, path, team)) is None:
            return None  # what it makes, what has a pass of its own, or nothing of the kind
        every = "" if found.steps.every is None else expr_text(found.steps.every)
        return Site(path, TeamFold(found.steps.text, expr_text(found.steps.result), found.inplace, every), {"found": found})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every thread folds the values that it needs."""
        team, (block, i) = matched(team_at(program, site.path)), block_and_index(program, site.path)
        found = matched(found_steps(program, site.path, team))
        taken = names_at(program, site.path)
        slots = slot_array(fresh("slots", taken), found.steps.dtype, team.threads)
        acc = n.Buffer(fresh("total", taken), found.steps.dtype, (), "register")
        store = n.Store(build.region(slots, team.thread), found.value, label=block[i].label)
        fold = Fold(acc, found.op, slots, build.const(0), _count(found.kind, team)).statements(fresh_var("u", taken))
        total = whole(acc) if found.first is None else build.binary(found.op, found.first, whole(acc))
        rest = tuple(transform(s, lambda a, b: total if b == found.result else b) for s in block[i + found.size:])
        if found.every is not None:
            at, read = next(k for k, s in enumerate(rest) if found.every in walk(s)), found.every
            every = n.Buffer(fresh("all", taken), found.steps.dtype, (), "register")
            folds = Fold(every, found.op, slots, build.const(0), build.const(team.threads)).statements(fresh_var("w", taken))
            rest = (*rest[:at], *folds, *(transform(s, lambda a, b: whole(every) if b == read else b) for s in rest[at:]))
        last = (barrier(),) if is_in_loop(program, site.path) else ()
        out, path = splice(program, site.path, (store, barrier(), *fold, *last, *rest), 0, None), site.path
        for b in found.shared:
            out, at = without_shared(out, str(site.path[0]), b.name)
            path = shifted(path, at, -1)
        out = with_shared(out, replace(team, path=(team.path[0], int(path[1]))), slots)
        return Rewritten(out, shifted(path, int(path[1]), 1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """What the steps share, less the slots."""
        steps, team = self.parsed(program, site.path), team_at(program, site.path)
        if steps is None or team is None:
            return Effect()
        held = sum((build.int_value(b.shape[0]) or 0) * b.dtype.bytes for b in steps.shared if b.shape)
        return Effect(shared_bytes=held - team.threads * steps.dtype.bytes)
