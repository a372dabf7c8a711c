"""Spreads a reduction over the threads: each folds every T-th value, then all fold what the threads have.

pipeline: `partition-reduction@main/total`

```diff
 kir 1
 program row_sums
   size M: i32
   size N: i32
   in X: f32[M, N]
   out S: f32[M]
 kernel main grid (row: M) threads 128
+  shared slots: f32[128]
   for t in 0..128 parallel thread
     @total register total: f32 = 0.0
-    for k in 0..N
-      total = total + X[row, k]
+    for k in 0..ceildiv(N - t, 128)
+      total = total + X[row, k * 128 + t]
+    slots[t] = total
+    barrier()
+    total = 0.0
+    for u in 0..128
+      total = total + slots[u]
     if t == 0
       S[row] = total
```
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis.access import buffers_written
from kir.analysis.loops.cyclic_loop import gathered, spread
from kir.analysis.loops.reductions import identity
from kir.analysis.normal.normal_form import is_pure
from kir.analysis.uniform import depends, varying
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import region_text
from kir.ir.visit import names_read, substitute, substitute_buffers, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, fresh
from kir.rewrite.match import block_and_index, counting, fresh_var, matched, matched_as, names_at, params_as, splice
from kir.rewrite.match.exchange import IDEMPOTENT, REDUCTIONS, Exchange, accumulation, exchange_at, folded, is_read_later
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.shared_arrays import declaration, shifted, slot_array, uses, with_shared, without_shared
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_call, is_in_loop, is_scalar, team_at

Distribution = Literal["every", "turn", "once", "begun"]
MOST_AROUND = 4
"""Loops of a nest that are looked at, at most."""


def _same_loop(program: n.Program, site: Site, context: Context) -> Verdict:
    team = matched(team_at(program, site.path))
    item, i = params_as(site, PartitionReduction), int(site.path[-1])
    loop = matched_as(block_at(program, site.path)[i + (2 if item.own else 1)], n.For)
    acc = matched_as(block_at(program, site.path)[i], n.Alloc)
    names = varying(team.loop)[site.path[2:]] - {acc.buffer.name}
    which = sorted(x for x in names if depends(loop, {x}))
    if which or depends(loop, frozenset()):
        on = f"the loop depends on {', '.join(which) or 'an exchange between threads'}"
        if matched(_folding(block_at(program, site.path), i, item.own))[2] in IDEMPOTENT:  # any bound from above may do, as for a softmax
            return unknown(f"the threads fold different values: {on}", needs="a loop that every thread runs alike")
        return refuted("the threads fold different values", on, needs="a loop that every thread runs alike")
    return proved("every thread folds the same values")


def _folding(block: n.Block, i: int, own: bool = False) -> tuple[n.Alloc, n.For, str] | None:
    """(accumulator, loop, operation) of a scalar that starts from the identity, or for maxima and minima (which may take it several times) any
    literal, and a loop that folds into it; `own`: with a barrier between the two."""
    k = i + 2 if own else i + 1
    if k >= len(block) or (own and not is_call(block[i + 1], "barrier")):
        return None
    acc, loop = block[i], block[k]
    if not (isinstance(acc, n.Alloc) and is_scalar(acc) and isinstance(loop, n.For)):
        return None
    op = accumulation(loop, acc.buffer, fused=True)
    begun = op is not None and (acc.init == identity(REDUCTIONS[op], acc.buffer.dtype) or (op in IDEMPOTENT and isinstance(acc.init, n.Const)))
    return (acc, loop, op) if op is not None and begun else None


def _own_values(program: n.Program, site: Site, context: Context) -> Verdict:
    item, (block, i), team = params_as(site, PartitionReduction), block_and_index(program, site.path), matched(team_at(program, site.path))
    if not item.own:
        return proved("the barrier before the fold stays")
    found = matched(_folding(block, i, True))
    part = _share(item, found[1], team)
    for x in walk(part):
        if isinstance(x, n.Load) and x.at.buffer.space in ("shared", "global") and _writes(block[:i], x.at.buffer) and not _wrote(block[:i], x.at, part):
            return refuted(f"a thread folds elements of '{x.at.buffer.name}' that others write", region_text(x.at),
                           needs="the barrier between the writes and the fold", attempt="own=false")
    return proved("each thread folds what it wrote itself")


def _own_places(program: n.Program, site: Site, context: Context) -> Verdict:
    item, (block, i), team = params_as(site, PartitionReduction), block_and_index(program, site.path), matched(team_at(program, site.path))
    if not item.behind:
        return proved("what stands behind the fold stays there")
    acc, loop, _ = matched(_folding(block, i, item.own))
    part, start = _share(item, loop, team), i + 3 + item.own
    over = block[start:start + _overwriting(block[start:], acc.buffer.name)]
    folded_from = {x.at.buffer for x in walk(part) if isinstance(x, n.Load) and x.at.buffer.space in ("shared", "global")}
    for s in over:
        for b in folded_from:
            places = _canonical(s, b.name, n.Store)
            if places and not places <= _canonical(part, b.name, n.Load):
                return refuted(f"a thread writes elements of '{b.name}' that others fold", "they may not have done so yet", needs="the barrier behind the fold",
                               attempt="behind=false")
    for x in (x for s in over for x in walk(s)):
        if isinstance(x, n.Load) and (b := x.at.buffer).space in ("shared", "global") and _writes(block[:i], b) and not _published(block[:i], b.name):
            return refuted(f"what stands behind the fold reads '{b.name}', which other threads write before it", region_text(x.at),
                           needs="the barrier behind the fold", attempt="behind=false")
    return proved("each thread writes over what it folded itself")


def _stored_anew(block: n.Block, acc: n.Buffer) -> int | None:
    """The first statement of a block that gives a scalar another value; None where that is in a branch or a loop, or nowhere."""
    k = next((k for k, s in enumerate(block) if any(isinstance(x, n.Store) and x.at.buffer.name == acc.name for x in walk(s))), None)
    s = block[k] if k is not None else None
    return k if isinstance(s, n.Store) and s.at == n.Region(acc) and s.mask is None else None


def _taken_over(block: n.Block, acc: n.Buffer, result: n.Buffer) -> bool:
    """Whether a scalar is written anew before it is read, by the last statement, if any, that reads the result of all."""
    k = _stored_anew(block, acc)
    return k is not None and not any(mentions(s, acc.name) for s in block[:k]) and not mentions(matched_as(block[k], n.Store).value, acc.name) and (
        not any(mentions(s, result.name) for s in block[k + 1:]))


def _renamed(block: n.Block, old: n.Buffer, new: n.Buffer, anew: n.Buffer | None) -> n.Block:
    """A block in which a scalar has the place of another: all of it, or, where a scalar is written `anew`, up to that statement's value."""
    k = _stored_anew(block, anew) if anew is not None else None
    if k is None:
        return tuple(substitute_buffers(s, {old.name: new}) for s in block)
    last = matched_as(block[k], n.Store)
    return (*(substitute_buffers(s, {old.name: new}) for s in block[:k]), replace(last, value=substitute_buffers(last.value, {old.name: new})), *block[k + 1:])


def _overwriting(block: n.Block, acc: str) -> int:
    """How many statements from the start of a block on have nothing to do with an accumulator, and are loops or stores without any barrier."""
    def apart(s: n.Stmt) -> bool:
        return isinstance(s, (n.For, n.Store, n.If)) and not mentions(s, acc) and not any(isinstance(x, (n.Eval, n.Jump, n.Copy, n.View)) for x in walk(s))
    return next((k for k, s in enumerate(block) if not apart(s)), len(block))


def _up_to_barrier(block: n.Block) -> n.Block:
    """The statements before the first at which all threads synchronize."""
    return block[:next((k for k, s in enumerate(block) if is_call(s, "barrier")), len(block))]


def _writes(block: n.Block, b: n.Buffer) -> bool:
    return any(isinstance(y, n.Store) and y.at.buffer.name == b.name for s in block for y in walk(s))


def _published(block: n.Block, name: str) -> bool:
    """Whether all threads synchronize after the last statement that writes an array."""
    writers = [k for k, s in enumerate(block) if any(isinstance(y, n.Store) and y.at.buffer.name == name for y in walk(s))]
    return bool(writers) and any(is_call(s, "barrier") for s in block[writers[-1] + 1:])


def _wrote(block: n.Block, at: n.Region, part: n.Stmt) -> bool:
    """Whether the last statement that writes the buffer writes, iteration by iteration, the places that a loop (or the one value of a thread) reads."""
    writers = [s for s in block if any(isinstance(y, n.Store) and y.at.buffer.name == at.buffer.name for y in walk(s))]
    last = writers[-1] if writers else None
    return isinstance(last, (n.For, n.Store)) and _canonical(last, at.buffer.name, n.Store) == _canonical(part, at.buffer.name, n.Load) != frozenset()


def _canonical(part: n.Stmt, buffer: str, kind: type[n.Load] | type[n.Store]) -> frozenset[object]:
    """The places that a statement reads or writes, with its counters numbered."""
    out: set[object] = set()

    def visit(s: n.Stmt, names: dict[str, n.Expr], bounds: tuple[object, ...]) -> None:
        if isinstance(s, n.For):
            var = n.Var(f"%{len(names)}", s.var.of)
            bounds = (*bounds, (substitute(s.lo, names), substitute(s.hi, names), substitute(s.step, names)))
            for inner in s.body:
                visit(inner, {**names, s.var.name: var}, bounds)
            return
        for x in walk(s):
            if isinstance(x, kind) and isinstance(x, (n.Load, n.Store)) and x.at.buffer.name == buffer:
                out.add((bounds, substitute(x.at, names), isinstance(s, n.If)))
    visit(part, {}, ())
    return frozenset(out)


def _share(item: PartitionReduction, loop: n.For, team: ThreadTeam) -> n.Stmt:
    """A thread's part of the loop."""
    if item.distribution == "once":
        (only,) = loop.body
        made: n.Stmt = substitute(only, {loop.var.name: team.thread})
        return made
    if item.distribution == "turn":
        return matched(_turn(loop, team))
    return matched(_inside(loop, item.inner, lambda inner: spread(inner, team.thread, team.threads)))


def _inside(loop: n.For, depth: int, change: Callable[[n.For], n.For | None]) -> n.For | None:
    """A nest of loops with another one at a depth of it; None where that is none, or is not changed."""
    if not depth:
        return change(loop)
    inner = loop.body[0]
    made = _inside(inner, depth - 1, change) if len(loop.body) == 1 and isinstance(inner, n.For) else None
    return None if made is None else replace(loop, body=(made,))


def _turn(loop: n.For, team: ThreadTeam) -> n.For | None:
    """The iteration of a thread's number, of a loop of as many loops as there are threads."""
    inner = loop.body[0]
    if build.int_value(loop.hi) != team.threads or len(loop.body) != 1 or loop.attrs or loop.var.of != team.thread.of or not isinstance(inner, n.For):
        return None
    made: n.For = substitute(replace(inner, label=loop.label), {loop.var.name: team.thread})
    return made


def _all_turns(loop: n.For, team: ThreadTeam, var: n.Var) -> n.For | None:
    """The loop of which a thread's loop is its turn: one that its number has a say in."""
    if not depends(loop, {team.thread.name}):
        return None
    return counting(var, team.threads, (substitute(replace(loop, label=None), {team.thread.name: var}),), label=loop.label)


def _is_once(acc: n.Alloc, loop: n.For, op: str, team: ThreadTeam) -> bool:
    """Whether a loop folds one value for each thread, which are not there yet, so that a thread's own is all that it has."""
    return build.int_value(loop.hi) == team.threads and len(loop.body) == 1 and not loop.attrs and loop.var.of == team.thread.of and (
        folded(loop.body[0], acc.buffer) is not None) and acc.init == identity(REDUCTIONS[op], acc.buffer.dtype)


def _once(block: n.Block, i: int, op: str, team: ThreadTeam, var: n.Var) -> tuple[n.Alloc, n.For] | None:
    """The accumulator and the loop from which a thread's one value comes, with which a scalar is declared."""
    acc = block[i]
    if not (isinstance(acc, n.Alloc) and is_scalar(acc) and acc.init is not None and depends(acc.init, {team.thread.name}) and is_pure(acc.init)):
        return None
    value: n.Expr = substitute(acc.init, {team.thread.name: var})
    fold = n.Store(n.Region(acc.buffer), build.binary(op, n.Load(n.Region(acc.buffer)), value))
    found = _folding((made := replace(acc, init=identity(REDUCTIONS[op], acc.buffer.dtype)), loop := counting(var, team.threads, (fold,))), 0)
    return None if found is None or not _is_once(made, loop, op, team) else (made, loop)


def _begun_turn(acc: n.Alloc, loop: n.For, op: str, team: ThreadTeam) -> n.Block | None:
    """What a thread does in its turn of a loop of T rounds that fold several values each: a scalar that begins with the first of them, and the rest."""
    if build.int_value(loop.hi) != team.threads or loop.attrs or loop.var.of != team.thread.of or len(loop.body) < 2:
        return None
    first = folded(loop.body[0], acc.buffer)
    begun = acc.init if first is None else first[1]
    if (first is not None and first[0] != op) or acc.init != identity(REDUCTIONS[op], acc.buffer.dtype):
        return None
    own: n.Block = (replace(acc, init=begun), *loop.body[first is not None:])
    return tuple(substitute(s, {loop.var.name: team.thread}) for s in own)


def _begun(block: n.Block, i: int, at: int, op: str, team: ThreadTeam, var: n.Var) -> tuple[n.Alloc, n.For] | None:
    """The accumulator and the loop of T rounds of which the statements from `i` up to `at` are a thread's turn."""
    acc = block[i]
    if not (isinstance(acc, n.Alloc) and is_scalar(acc) and acc.init is not None and is_pure(acc.init)):
        return None
    start = identity(REDUCTIONS[op], acc.buffer.dtype)
    own = n.Load(n.Region(acc.buffer))
    first: n.Block = () if acc.init == start else (n.Store(n.Region(acc.buffer), build.binary(op, own, acc.init)),)
    body = tuple(substitute(s, {team.thread.name: var}) for s in (*first, *block[i + 1:at]))
    made, loop = replace(acc, init=start), counting(var, team.threads, body)
    if any(set(bound_names((s,))) & names_read(x) for s in block[i + 1:at] for x in block[at:]) or accumulation(loop, acc.buffer) != op:
        return None
    return (made, loop) if depends(loop, {var.name}) and _begun_turn(made, loop, op, team) == block[i:at] else None


def _exchange_after(block: n.Block, i: int, behind: int = 2) -> int | None:
    """The statement after the loop at `i + 1` that writes a thread's result to shared memory; what stands between has nothing to do with it."""
    acc = matched_as(block[i], n.Alloc)
    for k in range(i + behind, len(block)):
        s = block[k]
        if isinstance(s, n.Store) and s.value == n.Load(n.Region(acc.buffer)) and s.at.buffer.space == "shared":
            return k
        if mentions(s, acc.buffer.name) or not isinstance(s, (n.For, n.If, n.Store, n.Alloc)) or any(isinstance(x, (n.Eval, n.Jump)) for x in walk(s)):
            return None
    return None


@dataclass(frozen=True)
class PartitionReduction(Pass):
    """`fresh`: the result of the CTA is a scalar of its own; otherwise it replaces the thread's partial one. `own`: the barrier before the
    fold goes, since each thread then folds only what it wrote itself. `distribution`: each thread takes `every` T-th iteration; or its `turn`, the one of its
    number, of a loop of T loops; or its value of T, `once`, with which its scalar is declared; or its turn of T rounds of several values, with the first of
    which its scalar has `begun`. `inner`: how many loops are around that of which it takes
    every T-th iteration. `behind`: the barrier after the fold goes, since each thread then writes only over what it folded itself. `met`: it goes, since
    that of the exchange stands between the threads' shares and what is written behind them. `anew`: with a `fresh` result, the thread's own scalar takes
    another value afterwards, which is what is read of it from then on."""

    intent: ClassVar[str] = "partition-reduction"
    catalogue: ClassVar[tuple[int, ...]] = (47, 84)
    claim: ClassVar[str] = "The values of one reduction are spread over the threads, which neither load nor fold any of them twice."
    numerics: ClassVar[str] = "reassociated(axis)"
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P474", "validity", "pipeline", "all threads of the CTA come to the barrier", everyone_arrives),
        Precondition("KIR-P475", "validity", "storage", "every thread folds the same values", _same_loop),
        Precondition("KIR-P842", "validity", "pipeline", "without a barrier before the fold, each thread folds what it wrote itself", _own_values),
        Precondition("KIR-P981", "validity", "storage", "without a barrier behind the fold, each thread writes over what it folded itself", _own_places),
    )

    fresh: bool = False
    own: bool = False
    distribution: Distribution = "every"
    inner: int = 0
    behind: bool = False
    met: bool = False
    anew: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an accumulator that the next statement, a loop of each thread, folds into."""
        if not isinstance(node, n.Alloc) or team_at(program, path) is None:
            return None
        found = _folding(block_at(program, path), int(path[-1]), self.own)
        if found is None or (self.own and is_in_loop(program, path)):
            return None
        behind = block_at(program, path)[int(path[-1]) + (3 if self.own else 2):]
        if (self.behind or self.met) and not (behind and is_call(behind[0], "barrier")):
            return Miss("no barrier stands behind the fold")
        if self.met and (self.behind or is_in_loop(program, path)):
            return Miss("what stands behind the fold is moved, or comes again")
        if self.anew and (not self.fresh or self.behind or is_in_loop(program, path) or _stored_anew(behind, found[0].buffer) is None):
            return Miss("the scalar is not written anew behind the fold")
        if self.distribution == "turn" and _turn(found[1], matched(team_at(program, path))) is None:
            return Miss("it is no loop of as many loops as there are threads")
        if self.distribution == "once" and not _is_once(*found, matched(team_at(program, path))):
            return Miss("it does not fold one value for each thread")
        if self.distribution == "begun" and (self.own or self.behind or _begun_turn(*found, matched(team_at(program, path))) is None):
            return Miss("it is no loop of as many rounds of several values as there are threads")
        if self.inner and (self.distribution != "every" or not 0 < self.inner < MOST_AROUND or _inside(found[1], self.inner, lambda x: x) is None):
            return Miss(f"it is no nest with {self.inner} loops around another")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each thread folds its share; then every thread folds the slots of all."""
        (block, i), team = block_and_index(program, site.path), team_at(program, site.path)
        found = matched(_folding(block, i, self.own))
        assert team is not None
        acc, loop, op = found
        taken = names_at(program, site.path)
        slots = slot_array(fresh("slots", taken), acc.buffer.dtype, team.threads)
        result = replace(acc.buffer, name=fresh(acc.buffer.name, taken)) if self.fresh else acc.buffer
        made = Exchange(slots, team.thread, acc.buffer, "barrier", result, self.fresh, op, build.const(0), team.threads)
        tail = made.statements(fresh_var("u", taken), is_in_loop(program, site.path))
        between: n.Block = ()
        if self.behind:
            start = i + 3 + self.own
            between = block[start:start + _overwriting(block[start:], acc.buffer.name)]
        done = i + 2 + self.own + (self.behind or self.met) + len(between)
        rest = _renamed(block[done:], acc.buffer, result, acc.buffer if self.anew else None) if self.fresh else block[done:]
        share = loop if self.distribution == "begun" else _share(self, loop, team)
        own: n.Block = (acc, share)
        if self.distribution == "begun":
            own = matched(_begun_turn(acc, loop, op, team))
        elif self.distribution == "once":
            own = (replace(acc, init=matched(folded(share, acc.buffer))[1]),)
        out = splice(program, site.path, (*own, *between, *tail, *rest), 0, None)
        return Rewritten(with_shared(out, team, slots), shifted(site.path, int(team.path[1]), 1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an accumulator whose loop takes every T-th value, with an exchange after it."""
        team = team_at(program, path)
        if not isinstance(node, n.Alloc) or team is None:
            return None
        block, i = block_and_index(program, path)
        back = _inverse_match(program, path, team)
        if back is None or back.made.value != node.buffer:
            return None
        x = back.made
        if (x.at, x.sync, x.op, x.count) != (team.thread, "barrier", back.op, team.threads) or not build.is_const(x.base, 0):
            return Miss("the slots are not folded by all threads, or with another operation")
        if back.distribution == "turn" and _all_turns(back.share, team, team.thread) is None:
            return Miss("its loop takes no values of the thread's own")
        home = declaration(program, path, x.slots.name)
        if home is None or home.init is not None or uses(program, path, x.slots.name) > 2:
            return Miss(f"'{x.slots.name}' serves more than the reduction")
        anew = x.fresh and is_read_later(program, (*path[:-1], back.at), back.size, x.value.name)
        if anew and (is_in_loop(program, path) or not _taken_over(block[back.at + back.size:], back.acc.buffer, x.result)):
            return Miss("the thread's own value is used afterwards")
        read = {y.at.buffer.name for y in walk(back.share) if isinstance(y, n.Load) and (
            y.at.buffer.space == "shared" or (y.at.buffer.space == "global" and _writes(block[:i], y.at.buffer)))}
        own = not is_in_loop(program, path) and not all(_published(block[:i], name) for name in read)
        if own and back.distribution == "begun":
            return Miss("what it folds is written before, and not waited for")
        between = block[i + _taking(back.distribution, back.at - i):back.at]
        reads = {y.at.buffer.name for y in walk(back.share) if isinstance(y, n.Load)}
        behind = not reads.isdisjoint(buffers_written(between))
        if behind and (own or is_in_loop(program, path) or _overwriting(between, back.acc.buffer.name) != len(between)):
            return Miss("what it folds is written over before the threads synchronize, in another way than here")
        after = _up_to_barrier(block[back.at + back.size:])
        met = any(isinstance(y, n.Load) and y.at.buffer.space in ("shared", "global") and _writes(after, y.at.buffer) for y in walk(back.share))
        if met and (behind or is_in_loop(program, path)):
            return Miss("what all would fold is written behind the exchange, with no barrier that would stand between")
        if anew and behind:
            return Miss("the thread's own value is used afterwards")
        return Site(path, PartitionReduction(x.fresh, own, back.distribution, back.inner, behind, met, anew))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop over all values, which every thread runs."""
        (block, i), team = block_and_index(program, site.path), matched(team_at(program, site.path))
        back, item = matched(_inverse_match(program, site.path, team)), params_as(site, PartitionReduction)
        loop = back.share
        every: n.For | None = loop
        if item.distribution == "turn":
            every = _all_turns(loop, team, fresh_var("u", names_at(program, site.path)))
        elif item.distribution == "every":
            every = _inside(loop, item.inner, lambda x: gathered(x, team.thread, team.threads))
        x = back.made
        rest = block[back.at + back.size:]
        if x.fresh:
            rest = _renamed(rest, x.result, back.acc.buffer, back.acc.buffer if item.anew else None)
        between = block[i + _taking(item.distribution, back.at - i):back.at]
        fold = (back.acc, *((barrier(),) if item.own else ()), matched(every))
        made = (*fold, barrier(), *between) if item.behind else (*between, *fold, *((barrier(),) if item.met else ()))
        out = splice(program, site.path, (*made, *rest), 0, None)
        out, home = without_shared(out, str(site.path[0]), x.slots.name)
        return Rewritten(out, shifted((*site.path[:-1], i + (0 if item.behind else len(between))), home, -1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """A slot for each thread."""
        team, node = team_at(program, site.path), block_at(program, site.path)[int(site.path[-1])]
        return Effect() if team is None or not isinstance(node, n.Alloc) else Effect(shared_bytes=team.threads * node.buffer.dtype.bytes)


@dataclass(frozen=True)
class _Back:
    """A thread's share of a reduction: the accumulator, its loop (of one value for each thread, the loop of all), the operation, its `distribution`;
    and the exchange at `at`, of `size` statements."""

    acc: n.Alloc
    share: n.For
    op: str
    distribution: Distribution
    made: Exchange
    at: int
    size: int
    inner: int = 0


def _inverse_match(program: n.Program, path: Path, team: ThreadTeam) -> _Back | None:
    """What the statements from a place on are, as a thread's share and the exchange after it."""
    (block, i), trailing = block_and_index(program, path), is_in_loop(program, path)
    found = _folding(block, i)
    at = _exchange_after(block, i, 1 if found is None else 2)
    made = exchange_at(block, at, trailing) if at is not None else None
    if at is None:
        return _begun_back(program, path, team)
    if made is None:
        return None
    if found is not None:
        acc, share, op = found
        for depth in range(MOST_AROUND):
            if _inside(share, depth, lambda x: gathered(x, team.thread, team.threads)) is not None:
                return _Back(acc, share, op, "every", made[0], at, made[1], depth)
        return _Back(acc, share, op, "turn", made[0], at, made[1])
    once = _once(block, i, made[0].op, team, fresh_var("u", names_at(program, path)))
    return _begun_back(program, path, team) if once is None else _Back(*once, made[0].op, "once", made[0], at, made[1])


def _begun_back(program: n.Program, path: Path, team: ThreadTeam) -> _Back | None:
    """A share that is all that stands between a scalar and the exchange of it."""
    block, i = block_and_index(program, path)
    acc = matched_as(block[i], n.Alloc)
    at = next((k for k in range(i + 1, len(block)) if _gives(block[k], acc.buffer)), None)
    made = exchange_at(block, at, is_in_loop(program, path)) if at is not None else None
    if at is None or made is None or at < i + 2 or any(isinstance(x, (n.Eval, n.Jump)) for s in block[i:at] for x in walk(s)):
        return None
    begun = _begun(block, i, at, made[0].op, team, fresh_var("u", names_at(program, path)))
    return None if begun is None else _Back(*begun, made[0].op, "begun", made[0], at, made[1])


def _gives(s: n.Stmt, acc: n.Buffer) -> bool:
    """Whether a statement writes a scalar to shared memory."""
    return isinstance(s, n.Store) and s.value == n.Load(n.Region(acc)) and s.at.buffer.space == "shared"


def _taking(distribution: Distribution, all_: int) -> int:
    """How many statements a thread's share has, of `all_` before the exchange."""
    return {"once": 1, "begun": all_}.get(distribution, 2)
