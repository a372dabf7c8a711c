"""Reduces over the threads of a CTA as a tree in shared memory: in each step half of the threads add what the other half has.

before:

```kir
kir 1
program row_sums
  size M: i32
  in X: f32[M, 128]
  out S: f32[M]
kernel main grid (row: M) threads 128
  shared slots: f32[128]
  for t in 0..128 parallel thread
    @exchange slots[t] = X[row, t]
    barrier()
    register total: f32 = 0.0
    for u in 0..128
      total = total + slots[u]
    if t == 0
      S[row] = total
```

pipeline: `shared-tree@main/exchange`

after:

```kir
kir 1
program row_sums
  size M: i32
  in X: f32[M, 128]
  out S: f32[M]
kernel main grid (row: M) threads 128
  shared slots: f32[128]
  for t in 0..128 parallel thread
    @exchange slots[t] = X[row, t]
    barrier()
    for s in 0..7
      if t < 64 >> s
        slots[t] = slots[t] + slots[(64 >> s) + t]
      barrier()
    if t == 0
      S[row] = slots[0]
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import fresh
from kir.rewrite.match import block_and_index, counting, edited, fresh_var, matched, matched_as, names_at
from kir.rewrite.match.exchange import REDUCTIONS
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_call, is_in_loop, team_at, whole

from ..scans._scan_forms import Fold, fold_at


def _halves(program: n.Program, site: Site, context: Context) -> Verdict:
    team = matched(team_at(program, site.path))
    if team.threads & (team.threads - 1):
        return refuted(f"{team.threads} threads cannot be halved down to one", f"slot {team.threads - 1} is added by nobody",
                       needs="a power of two")
    return proved(f"{team.threads} threads are halved {team.threads.bit_length() - 1} times")


def _kept(program: n.Program, site: Site, context: Context) -> Verdict:
    block, i = block_and_index(program, site.path)
    fold = matched(fold_at(block, i + 2))
    if not fold.fresh:
        if is_in_loop(program, site.path) and not any(is_call(s, "barrier") for s in block[i + 4:]):
            return refuted("the next iteration writes the slots while some threads still read the sum there",
                           "no barrier stands between the fold and the end of the iteration", needs="a barrier after it")
        return proved("each thread takes the sum as soon as it is complete")
    reads = [k for k in range(i + 4, len(block)) if mentions(block[k], fold.acc.name)]
    for k in range(i + 4, (reads[-1] if reads else i + 4) + 1):
        if mentions(block[k], fold.slots.name):
            return refuted(f"'{fold.slots.name}' is used again while the sum is still needed", "the sum stands in slot 0",
                           needs="slots of its own for the next exchange")
    last = reads[-1] if reads else i + 3
    if is_in_loop(program, site.path) and not any(is_call(s, "barrier") for s in block[last + 1:]):
        return refuted("the next iteration writes the slots while some threads still read the sum there",
                       "no barrier stands between the last use of the sum and the end of the iteration", needs="a barrier after the last use")
    return proved("the sum stays in its slot until it was used for the last time")


@dataclass(frozen=True)
class SharedTree(Pass):
    """No parameters: the site is the store of a slot. A fold into a scalar that is there already leaves a load of the sum into it."""

    intent: ClassVar[str] = "tree-reduction"
    catalogue: ClassVar[tuple[int, ...]] = (44,)
    claim: ClassVar[str] = "The logarithm of the threads in steps instead of one addition after the other."
    numerics: ClassVar[str] = "reassociated(lanes)"
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P446", "validity", "shape", "the threads can be halved down to one", _halves),
        Precondition("KIR-P447", "validity", "storage", "the sum stays in its slot as long as it is needed", _kept),
        Precondition("KIR-P448", "validity", "pipeline", "all threads of the CTA come to the barriers", everyone_arrives))

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the store of a slot, all of which every thread then folds."""
        team = team_at(program, path)
        if team is None or not (isinstance(node, n.Store) and node.at.buffer.space == "shared"):
            return None
        block, i = block_and_index(program, path)
        fold = fold_at(block, i + 2)
        if fold is None or i + 1 >= len(block) or not is_call(block[i + 1], "barrier"):
            return None
        if node.at != build.region(fold.slots, team.thread) or node.mask is not None or node.clip or not _of_all(fold, team):
            return Miss("it is not the slots of all threads that are folded")
        if fold.fresh and any(isinstance(x, n.Store) and x.at.buffer == fold.acc for s in block[i + 4:] for x in walk(s)):
            return Miss(f"'{fold.acc.name}' is written again")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Steps of halving, and the sum in slot 0."""
        team, (block, i) = team_at(program, site.path), block_and_index(program, site.path)
        fold = matched(fold_at(block, i + 2))
        assert team is not None
        s = fresh_var("s", names_at(program, site.path))
        sum_, own = n.Load(build.region(fold.slots, 0)), whole(fold.acc)
        if not fold.fresh:
            made = (_tree(fold.slots, fold.op, team, s), n.Store(n.Region(fold.acc), sum_, label=block[i + 2].label))
            return edited(program, site.path, made, 2, 4)
        rest = tuple(transform(x, lambda old, new: sum_ if old == own else new) for x in block[i + 4:])
        return edited(program, site.path, (_tree(fold.slots, fold.op, team, s), *rest), 2, None)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the store of a slot after which the slots are reduced by halving, and slot 0 is read."""
        team = team_at(program, path)
        if team is None or not (isinstance(node, n.Store) and node.at.buffer.space == "shared"):
            return None
        block, i = block_and_index(program, path)
        if i + 2 >= len(block) or not is_call(block[i + 1], "barrier") or not isinstance(loop := block[i + 2], n.For):
            return None
        op = next((o for o in REDUCTIONS if _tree(node.at.buffer, o, team, loop.var) == loop), None)
        if op is None or node.at != build.region(node.at.buffer, team.thread):
            return None
        uses = [x for s in block[i + 3:] for x in walk(s) if isinstance(x, n.Region) and x.buffer == node.at.buffer]
        if not uses or any(r != build.region(node.at.buffer, 0) for r in uses[:1]):
            return Miss("slot 0 is not what is read next")
        return Site(path, self, {"op": op})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every thread folds all slots."""
        team, (block, i) = team_at(program, site.path), block_and_index(program, site.path)
        store = matched_as(block[i], n.Store)
        assert team is not None
        slots, taken = store.at.buffer, names_at(program, site.path)
        acc = n.Buffer(fresh("total", taken), slots.dtype, (), "register")
        u = fresh_var("u", taken)
        took = _taken(block, i + 3, slots)
        if took is not None:
            first, loop = Fold(took.at.buffer, site.captures["op"], slots, build.const(0), build.const(team.threads), False).statements(u)
            assert isinstance(first, n.Store)
            both = (replace(first, label=took.label), loop)
            return edited(program, site.path, both, 2, 4)
        fold = Fold(acc, site.captures["op"], slots, build.const(0), build.const(team.threads))
        sum_, own = n.Load(build.region(slots, 0)), whole(acc)
        rest: list[n.Stmt] = []
        over = False
        for s in block[i + 3:]:
            over = over or any(isinstance(x, n.Store) and x.at.buffer == slots for x in walk(s))
            rest.append(s if over else transform(s, lambda old, new: own if old == sum_ else new))
        made = fold.statements(u)
        return edited(program, site.path, (*made, *rest), 2, None)


def _taken(block: n.Block, k: int, slots: n.Buffer) -> n.Store | None:
    """The statement that loads slot 0 into a scalar of the thread."""
    s = block[k] if k < len(block) else None
    scalar = isinstance(s, n.Store) and s.at.buffer.space == "register" and not s.at.buffer.shape and s.mask is None
    return s if scalar and isinstance(s, n.Store) and s.value == n.Load(build.region(slots, 0)) else None


def _of_all(fold: Fold, team: ThreadTeam) -> bool:
    """Whether a fold is of one slot for each thread."""
    return build.is_const(fold.base, 0) and build.is_const(fold.count, team.threads) and fold.slots.shape == (build.const(team.threads),)


def _tree(slots: n.Buffer, op: str, team: ThreadTeam, s: n.Var) -> n.For:
    """The steps, each with a barrier behind it."""
    t, reach = team.thread, build.binary("shr", build.const(team.threads // 2), s)
    own = build.region(slots, t)
    step = n.Store(own, build.binary(op, n.Load(own), n.Load(build.region(slots, build.add(t, reach)))))
    body = (n.If(build.compare("lt", t, reach), (step,)), barrier())
    return counting(s, team.threads.bit_length() - 1, body)
