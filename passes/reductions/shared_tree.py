"""Reduces over the threads of a CTA as a tree in shared memory: in each step half of the threads add what the other half has.

pipeline: `shared-tree@main/exchange`

```diff
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
-    register total: f32 = 0.0
-    for u in 0..128
-      total = total + slots[u]
+    for s in 0..7
+      if t < 64 >> s
+        slots[t] = slots[t] + slots[(64 >> s) + t]
+      barrier()
     if t == 0
-      S[row] = total
+      S[row] = slots[0]
```
"""
from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import ClassVar, Literal

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import fresh
from kir.rewrite.match import block_and_index, counting, edited, fresh_var, matched, matched_as, names_at, params_as
from kir.rewrite.match.exchange import REDUCTIONS
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_call, is_in_loop, is_scalar, team_at, whole

from ..scans._scan_forms import Fold, fold_at

WARP = 32
Order = Literal["halves", "pairs", "multiples"]
Meet = Literal["after", "before"]
Tail = Literal["", "down", "xor"]
ORDERS: tuple[Order, ...] = ("halves", "pairs", "multiples")
SHUFFLES: dict[Tail, str] = {"down": "shfl_down", "xor": "shfl_xor"}


def _halves(program: n.Program, site: Site, context: Context) -> Verdict:
    team = matched(team_at(program, site.path))
    if team.threads & (team.threads - 1):
        return refuted(f"{team.threads} threads cannot be halved down to one", f"slot {team.threads - 1} is added by nobody",
                       needs="a power of two")
    return proved(f"{team.threads} threads are halved {team.threads.bit_length() - 1} times")


def _kept(program: n.Program, site: Site, context: Context) -> Verdict:
    item, team = params_as(site, SharedTree), matched(team_at(program, site.path))
    block, i = block_and_index(program, site.path)
    fold = matched(fold_at(block, i + 2))
    rest = block[i + 4:]
    if item.held or item.tail:
        if not _of_first_thread(rest, fold.acc.name, team):
            return refuted(f"'{fold.acc.name}' is read where only thread 0 has the sum", "thread 1 has a part of it", needs="a use by thread 0 alone")
        return proved("thread 0 has the sum, and no other thread reads it")
    if item.meet == "before" and not _of_first_thread(_up_to_barrier(rest), fold.acc.name, team):
        return refuted(f"'{fold.acc.name}' is read before all threads wait for thread 0", "thread 1 reads slot 0 before the last step",
                       needs="a barrier, or a use by thread 0 alone", attempt="meet='after'")
    if not fold.fresh:
        if is_in_loop(program, site.path) and not any(is_call(s, "barrier") for s in rest):
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
    """The site is the store of a slot. A fold into a scalar that is there already leaves a load of the sum into it. `order`: in each step a thread adds
    the slot of half the threads further on (`halves`), or of its neighbor twice as far in each step, threads that add being those whose number divides
    (`pairs`) or the first ones, at multiples of it (`multiples`). `meet`: whether threads wait after each step or before it. `held`: a thread keeps its part
    in a register, too. `written`: the steps stand one by one, not in a loop. `turned`: what comes from the other slot stands first. `tail`: the first warp
    does the last steps by shuffles (`down` or `xor`), behind that step in shared memory whose distance is `last`; `inside`: what thread 0 does with the sum
    stands in the warp's branch; `spelled`: its shuffles stand one by one."""

    intent: ClassVar[str] = "tree-reduction"
    catalogue: ClassVar[tuple[int, ...]] = (44,)
    claim: ClassVar[str] = "The logarithm of the threads in steps instead of one addition after the other."
    numerics: ClassVar[str] = "reassociated(lanes)"
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P446", "validity", "shape", "the threads can be halved down to one", _halves),
        Precondition("KIR-P447", "validity", "storage", "the sum stays in its slot as long as it is needed", _kept),
        Precondition("KIR-P448", "validity", "pipeline", "all threads of the CTA come to the barriers", everyone_arrives))

    order: Order = "halves"
    meet: Meet = "after"
    held: bool = False
    written: bool = False
    turned: bool = False
    tail: Tail = ""
    last: int = 1
    inside: bool = False
    spelled: bool = False

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
        return self._form(program, path, fold, team) or Site(path, self)

    def _form(self, program: n.Program, path: Path, fold: Fold, team: ThreadTeam) -> Miss | None:
        """Why the parameters say no form of the tree."""
        block, i = block_and_index(program, path)
        store = matched_as(block[i], n.Store)
        if self.last != 1 if not self.tail else self.last not in (WARP, 2 * WARP) or 2 * self.last > team.threads or self.order != "halves":
            return Miss("a warp takes over behind the step of distance 32 or 64, and nobody elsewhere")
        if (self.order != "halves" and self.held) or ((self.inside or self.spelled) and not self.tail):
            return Miss("only what is halved is held, and only a warp has a branch of its own")
        if (self.held or self.tail) and is_in_loop(program, path):
            return Miss("the sum is left in one thread, and the next iteration needs it of all")
        if (self.held or (self.tail and not self.inside)) and fold.fresh:
            return Miss("no scalar is there that the sum could be left in")
        if self.held and store.value != whole(fold.acc):
            return Miss("what is stored is not what the scalar has")
        if self.inside and not (i + 4 < len(block) and _is_first(block[i + 4], team)
                                and not (fold.fresh and any(mentions(s, fold.acc.name) for s in block[i + 5:]))):
            return Miss("no branch of thread 0 follows")
        return None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The steps, and the sum in slot 0, or in a register of thread 0."""
        team, (block, i) = team_at(program, site.path), block_and_index(program, site.path)
        fold = matched(fold_at(block, i + 2))
        assert team is not None
        taken = names_at(program, site.path)
        made = self._steps(fold.slots, fold.op, team, fresh_var("s", taken), fold.acc)
        start = 2 if self.meet == "after" else 1
        if self.tail:
            led = (block[i + 4],) if self.inside else ()
            names = tuple(fresh("other", taken) for _ in range(5 if self.spelled else 1))
            warp = self._tail(fold, team, fresh_var("s", taken), names, led)
            return edited(program, site.path, (*made, *warp), start, 4 + len(led))
        if self.held:
            return edited(program, site.path, made, start, 4)
        sum_, own = n.Load(build.region(fold.slots, 0)), whole(fold.acc)
        if not fold.fresh:
            return edited(program, site.path, (*made, n.Store(n.Region(fold.acc), sum_, label=block[i + 2].label)), start, 4)
        rest = tuple(transform(x, lambda old, new: sum_ if old == own else new) for x in block[i + 4:])
        return edited(program, site.path, (*made, *rest), start, None)

    def _steps(self, slots: n.Buffer, op: str, team: ThreadTeam, s: n.Var, acc: n.Buffer) -> n.Block:
        """The steps in shared memory, with the barriers between them."""
        count = team.threads.bit_length() - self.last.bit_length()
        if self.written:
            half = team.threads // 2
            reaches = [half >> k if self.order == "halves" else 1 << k for k in range(count)]
            return tuple(x for r in reaches for x in self._step(slots, op, team, build.const(r), acc))
        reach = build.binary("shr", build.const(team.threads // 2), s) if self.order == "halves" else build.binary("shl", build.const(1), s)
        return (counting(s, count, self._step(slots, op, team, reach, acc)),)

    def _step(self, slots: n.Buffer, op: str, team: ThreadTeam, reach: n.Expr, acc: n.Buffer) -> n.Block:
        t = team.thread
        at: n.Expr = t
        match self.order:
            case "halves":
                adds = build.compare("lt", t, reach)
            case "pairs":
                adds = build.compare("eq", build.mod(t, build.mul(reach, 2)), 0)
            case "multiples":
                at = build.mul(build.mul(reach, t), 2)
                adds = build.compare("lt", at, team.threads)
        own, other = build.region(slots, at), n.Load(build.region(slots, build.add(at, reach)))

        def both(x: n.Expr) -> n.Expr:
            return build.binary(op, other, x) if self.turned else build.binary(op, x, other)
        if self.held:
            step: n.Block = (n.Store(n.Region(acc), both(whole(acc))), n.Store(own, whole(acc)))
        else:
            step = (n.Store(own, both(n.Load(own))),)
        branch = n.If(adds, step)
        return (branch, barrier()) if self.meet == "after" else (barrier(), branch)

    def _tail(self, fold: Fold, team: ThreadTeam, s: n.Var, others: tuple[str, ...], led: n.Block) -> n.Block:
        """The branch of the first warp, behind a barrier where none stands there yet."""
        t, acc = team.thread, fold.acc
        own = whole(acc) if self.held else n.Load(build.region(fold.slots, t))
        begin: n.Block = ()
        if self.last == 2 * WARP or not self.held:
            value = build.binary(fold.op, own, n.Load(build.region(fold.slots, build.add(t, WARP)))) if self.last == 2 * WARP else own
            begin = (n.Alloc(acc, value) if fold.fresh else n.Store(n.Region(acc), value),)

        def step(other: str, reach: n.Expr) -> n.Block:
            shuffle = n.Let((other,), build.call(SHUFFLES[self.tail], whole(acc), reach))
            return shuffle, n.Store(n.Region(acc), build.binary(fold.op, whole(acc), n.Var(other, acc.dtype)))
        if self.spelled:
            ladder: n.Block = tuple(x for k, other in enumerate(others) for x in step(other, build.const(WARP // 2 >> k)))
        else:
            ladder = (counting(s, 5, step(others[0], build.binary("shr", build.const(WARP // 2), s))),)
        branch = n.If(build.compare("lt", t, WARP), (*begin, *ladder, *led))
        return (branch,) if self.meet == "after" else (barrier(), branch)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the store of a slot after which the slots are reduced in steps, and slot 0 or thread 0's register is read."""
        team = team_at(program, path)
        if team is None or not (isinstance(node, n.Store) and node.at == build.region(node.at.buffer, team.thread) and node.at.buffer.space == "shared"):
            return None
        block, i = block_and_index(program, path)
        found = _tree_at(block, i, team)
        if found is None:
            return None
        item, op, acc, size = found
        if item.held or item.tail:
            loose = is_in_loop(program, path) or not _of_first_thread(block[i + size:], acc.name, team) or (item.held and node.value != whole(acc))
            return Miss("not only thread 0 uses the sum") if loose else Site(path, item, {"op": op, "acc": acc, "size": size})
        after = block[i + size:]
        uses = [x for s in after for x in walk(s) if isinstance(x, n.Region) and x.buffer == node.at.buffer]
        if not uses or any(r != build.region(node.at.buffer, 0) for r in uses[:1]):
            return Miss("slot 0 is not what is read next")
        if item.meet == "before" and not _of_first_thread(_up_to_barrier(after), node.at.buffer.name, team):
            return Miss("others than thread 0 read slot 0 before a barrier")
        return Site(path, item, {"op": op, "acc": acc, "size": size})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every thread folds all slots."""
        team, (block, i), item = team_at(program, site.path), block_and_index(program, site.path), params_as(site, SharedTree)
        store = matched_as(block[i], n.Store)
        assert team is not None
        slots, taken, size = store.at.buffer, names_at(program, site.path), int(site.captures["size"])
        u, all_ = fresh_var("u", taken), build.const(team.threads)
        if item.held or item.tail:
            warp = matched_as(block[i + size - 1], n.If) if item.tail else None
            acc: n.Buffer = site.captures["acc"]
            inside = any(is_scalar(s) for s in warp.then) if warp is not None else False
            made = Fold(acc, site.captures["op"], slots, build.const(0), all_, inside).statements(u)
            led = warp.then[-1:] if warp is not None and item.inside else ()
            return edited(program, site.path, (barrier(), *made, *led), 1, size)
        took = _taken(block, i + size, slots)
        if took is not None:
            first, loop = Fold(took.at.buffer, site.captures["op"], slots, build.const(0), all_, False).statements(u)
            assert isinstance(first, n.Store)
            return edited(program, site.path, (barrier(), replace(first, label=took.label), loop), 1, size + 1)
        acc = n.Buffer(fresh("total", taken), slots.dtype, (), "register")
        fold = Fold(acc, site.captures["op"], slots, build.const(0), all_)
        sum_, own = n.Load(build.region(slots, 0)), whole(acc)
        rest: list[n.Stmt] = []
        over = False
        for s in block[i + size:]:
            over = over or any(isinstance(x, n.Store) and x.at.buffer == slots for x in walk(s))
            rest.append(s if over else transform(s, lambda old, new: own if old == sum_ else new))
        return edited(program, site.path, (barrier(), *fold.statements(u), *rest), 1, None)


def _taken(block: n.Block, k: int, slots: n.Buffer) -> n.Store | None:
    """The statement that loads slot 0 into a scalar of the thread."""
    s = block[k] if k < len(block) else None
    scalar = isinstance(s, n.Store) and s.at.buffer.space == "register" and not s.at.buffer.shape and s.mask is None
    return s if scalar and isinstance(s, n.Store) and s.value == n.Load(build.region(slots, 0)) else None


def _of_all(fold: Fold, team: ThreadTeam) -> bool:
    """Whether a fold is of one slot for each thread."""
    return build.is_const(fold.base, 0) and build.is_const(fold.count, team.threads) and fold.slots.shape == (build.const(team.threads),)


def _is_first(s: n.Stmt, team: ThreadTeam) -> bool:
    """Whether a statement is a branch that thread 0 alone takes."""
    return isinstance(s, n.If) and not s.orelse and not s.static and s.cond == build.compare("eq", team.thread, 0)


def _of_first_thread(block: n.Block, name: str, team: ThreadTeam) -> bool:
    """Whether none but thread 0 touches a buffer in some statements."""
    return all(_is_first(s, team) or not mentions(s, name) for s in block)


def _up_to_barrier(block: n.Block) -> n.Block:
    """The statements before the first barrier among them."""
    k = next((k for k, s in enumerate(block) if is_call(s, "barrier")), len(block))
    return block[:k]


def _tree_at(block: n.Block, i: int, team: ThreadTeam) -> tuple[SharedTree, str, n.Buffer, int] | None:
    """(form, operation, register that is held or that the sum is left in, number of statements) of the tree behind the store of a slot at `i`."""
    slots = matched_as(block[i], n.Store).at.buffer
    meet: Meet = "after" if i + 1 < len(block) and is_call(block[i + 1], "barrier") else "before"
    k = i + 2 if meet == "after" else i + 1
    loop = block[k] if k < len(block) else None
    written = not isinstance(loop, n.For)
    first = _first_step(loop.body if isinstance(loop, n.For) else block[i + 1:i + 3], slots)
    if first is None:
        return None
    op, acc = first
    most = team.threads.bit_length() - 1
    waits: tuple[Meet, ...] = ("after", "before") if written else (meet,)
    for order in ORDERS:
        for wait, turned in product(waits, (False, True)):
            item = SharedTree(order, wait, acc is not None, written, turned)
            start = i + 2 if wait == "after" else i + 1
            var = loop.var if isinstance(loop, n.For) else n.Var("%s", team.thread.type)
            for last in (1, WARP, 2 * WARP) if order == "halves" else (1,):
                if 2 * last > team.threads or most < last.bit_length():
                    continue
                steps = replace(item, last=last)._steps(slots, op, team, var, acc or slots)
                if block[start:start + len(steps)] != steps:
                    continue
                if last == 1:
                    return item, op, acc or slots, start + len(steps) - i
                found = _tail_at(block, start + len(steps), replace(item, last=last), slots, op, acc, team)
                if found is not None:
                    return found[0], op, found[1], found[2] - i
    return None


def _first_step(block: n.Block, slots: n.Buffer) -> tuple[str, n.Buffer | None] | None:
    """(operation, register that is held) of the first branch in a block that folds one slot into another."""
    branch = next((s for s in block if isinstance(s, n.If)), None)
    if branch is None or not branch.then or not isinstance(s := branch.then[0], n.Store) or not isinstance(s.value, n.Binary) or s.value.op not in REDUCTIONS:
        return None
    if s.at.buffer == slots:
        return s.value.op, None
    return (s.value.op, s.at.buffer) if s.at.buffer.space == "register" and not s.at.buffer.shape else None


def _tail_at(block: n.Block, k: int, item: SharedTree, slots: n.Buffer, op: str, held: n.Buffer | None,
             team: ThreadTeam) -> tuple[SharedTree, n.Buffer, int] | None:
    """(form, register of the sum, statement behind it) of the first warp's branch from statement `k` on."""
    k += item.meet == "before"
    warp = block[k] if k < len(block) else None
    if not isinstance(warp, n.If):
        return None
    ladder = next((s for s in warp.then if isinstance(s, n.For)), None)
    names = tuple(s.names[0] for s in (warp.then if ladder is None else ladder.body) if isinstance(s, n.Let))
    steps = [s for s in (warp.then if ladder is None else ladder.body) if isinstance(s, n.Store)]
    if len(names) != (5 if ladder is None else 1) or not steps:
        return None
    acc, inside = steps[-1].at.buffer, isinstance(warp.then[-1], n.If)
    if (held is not None and acc != held) or acc.shape or acc.space != "register" or (inside and not _is_first(warp.then[-1], team)):
        return None
    fresh_ = isinstance(warp.then[0], n.Alloc) and warp.then[0].buffer == acc
    fold = Fold(acc, op, slots, build.const(0), build.const(team.threads), fresh_)
    var = ladder.var if ladder is not None else n.Var("%s", team.thread.type)
    for tail in SHUFFLES:
        made = replace(item, tail=tail, inside=inside, spelled=ladder is None)
        wanted = made._tail(fold, team, var, names, warp.then[-1:] if inside else ())
        if wanted == block[k + 1 - len(wanted):k + 1] and not (fresh_ and not inside):
            return made, acc, k + 1
    return None
