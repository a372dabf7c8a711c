"""Gives a CTA of one thread many: some loops are distributed to them, everything else every thread computes for itself.

pipeline: `spread-threads{threads=64 spread=[0,1,2]}@main`

```diff
 kir 1
 program histogram
   size N: i32
   in X: i32[N]
   out H: i32[64]
   out T: i32[1]
-kernel main grid (b: 1) threads 1
+kernel main grid (b: 1) threads 64
   shared counts: i32[64]
-  for i in 0..64
-    counts[i] = 0
-  for j in 0..N
-    atomic_add(&counts[X[j] & 63], 1)
-  for k in 0..64
-    H[k] = counts[k]
-  T[0] = N
+  for t in 0..64 parallel thread
+    counts[t] = 0
+    barrier()
+    for j in 0..ceildiv(N - t, 64)
+      atomic_add(&counts[X[j * 64 + t] & 63], 1)
+    barrier()
+    H[t] = counts[t]
+    if t == 0
+      T[0] = N
```
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

from kir.analysis.access import ANYWHERE, buffers_written
from kir.analysis.loops.cyclic_loop import gathered, spread
from kir.analysis.uniform import Names, depends, varying
from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import I32, dtype_of
from kir.ir.visit import names_read, statements, substitute, substitute_buffers, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved
from kir.rewrite.edit import kernel_of, names_in, places, replace_kernel
from kir.rewrite.match import counting, fresh_var, from_zero, matched, matched_as, params_as, whole_warps
from kir.rewrite.match.independence import independent, order_free
from kir.rewrite.match.thread_team import ThreadTeam, is_call, whole_team

from ..grid.groups_per_cta import GroupsPerCta
from ..reductions.partition_reduction import PartitionReduction
from ..reductions.shared_tree import SharedTree
from ._barrier_phases import Items, Nest, Unit, with_barriers

PARTS = (2, 4, 8, 16)
"""Threads of a CTA that is less than a warp."""
NONE = (-1,)
"""No loop is shared."""


class CannotGather(Exception):
    """A statement of a thread that is neither everyone's, nor the first thread's, nor a share of a loop."""


def _independent(program: n.Program, site: Site, context: Context) -> Verdict:
    return _judged(program, site, independent)


def _order_free(program: n.Program, site: Site, context: Context) -> Verdict:
    rounded = params_as(site, SpreadThreads).summed and _summed(kernel_of(program, site.path))  # other CTAs' come in any order already
    return _judged(program, site, partial(order_free, rounded=rounded))


def _judged(program: n.Program, site: Site, rule: object) -> Verdict:
    item = params_as(site, SpreadThreads)
    assert callable(rule)
    verdicts = [rule(program, path, loop) for path, loop in item.loops(program, site.path)] or [proved("no loop is shared")]
    worst = [v for v in verdicts if v.kind == "refuted"] or [v for v in verdicts if not v] or verdicts
    found = matched_as(worst[0], Verdict)
    return found


def _whole_warps(program: n.Program, site: Site, context: Context) -> Verdict:
    threads = params_as(site, SpreadThreads).threads
    if threads in PARTS:  # the first step to several such groups in a CTA
        return proved(f"{threads} threads are a part of a warp")
    return whole_warps(threads, context)


@dataclass(frozen=True)
class SpreadThreads(Pass):
    """`threads` of the CTA; `spread` are the loops that they share, by their number among the kernel's loops in reading order; with
    [-1] they share none, and all compute the same until a loop is distributed. `summed`: sums of floats that CTAs add to tensors may be rounded in another
    order."""

    intent: ClassVar[str] = "multi-threaded-block"
    catalogue: ClassVar[tuple[int, ...]] = (48, 47)
    claim: ClassVar[str] = "Independent iterations run side by side, and neighboring threads touch neighboring elements."
    provides: ClassVar[tuple[str, ...]] = ("threads", "thread-loop", "barrier")
    least: ClassVar[Mapping[str, int]] = {"threads": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P484", "validity", "aliasing", "no iteration of a shared loop touches what another one writes", _independent),
        Precondition("KIR-P485", "validity", "numerics", "the order in which iterations update a place together is free", _order_free),
        Precondition("KIR-P486", "validity", "hardware", "the threads are whole warps that one CTA may have", _whole_warps),
    )

    threads: int = 128
    spread: tuple[int, ...] = ()
    summed: bool = False

    def __post_init__(self) -> None:
        if self.summed:
            object.__setattr__(self, "numerics", "reassociated(updates)")

    def loops(self, program: n.Program, path: Path) -> Iterator[tuple[Path, n.For]]:
        """The loops that are shared, with their paths."""
        every = [(p, s) for p, s in places(program) if p[0] == path[0] and isinstance(s, n.For)]
        yield from (every[k] for k in self.spread if 0 <= k < len(every))

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of one thread, of scalar statements."""
        if not isinstance(node, n.Kernel):
            return None
        if not build.is_const(node.threads, 1):
            return Miss("the CTA has several threads already")
        if not self.spread:
            proposed = _proposal(node)
            return Site(path, replace(self, spread=proposed)) if proposed else Miss("no loop stores what others see")
        loops = [s for s in statements(node.body) if isinstance(s, n.For)]
        numbers = () if self.spread == NONE else self.spread
        if any(k >= len(loops) or k < 0 for k in numbers):
            return Miss(f"the kernel has {len(loops)} loops")
        chosen = [loops[k] for k in numbers]
        if any(s.kind != "serial" or not from_zero(s) for s in chosen):
            return Miss("a loop that is shared counts up from 0")
        front = _shared(node.body)
        rest = node.body[len(front):]
        if any(isinstance(s, (n.While, n.Jump, n.Roles, n.Opaque, n.Hole, n.View, n.Copy, n.Mma)) or (
                isinstance(s, n.Alloc) and s.buffer.space != "register") or (isinstance(s, n.For) and s.kind == "thread")
                for s in statements(rest)):
            return Miss("a statement has no form for one thread of many")
        try:
            _distributed(rest, {id(s) for s in chosen}, n.Var("%t", I32), self.threads)
        except CannotGather as bad:
            return Miss(str(bad))
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over threads around everything but the memory of the CTA."""
        kernel = kernel_of(program, site.path)
        loops = [s for s in statements(kernel.body) if isinstance(s, n.For)]
        t = fresh_var("t", names_in(program, kernel))
        front = _shared(kernel.body)
        chosen = {id(loops[k]) for k in self.spread if k >= 0}
        items = _distributed(kernel.body[len(front):], chosen, t, self.threads)
        team = counting(t, self.threads, with_barriers(items, t), "thread")
        made = replace(kernel, threads=build.const(self.threads), body=(*front, team))
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that is memory of the CTA and one loop over its threads."""
        if not isinstance(node, n.Kernel):
            return None
        front = _shared(node.body)
        team = whole_team(program, (*path, len(front)), node.body[-1]) if len(node.body) == len(front) + 1 else None
        if team is None:
            return None
        if _reduces(program, team):
            return Miss("its threads share a reduction, which goes first")
        if any(isinstance(SharedTree().match_inverse(program, (*team.path, "body", i), s), Site) for i, s in enumerate(team.loop.body)
               if isinstance(s, n.Store)):
            return Miss("its threads reduce in a tree, which goes first")
        if isinstance(GroupsPerCta().match_inverse(program, path, _unpadded(node)), tuple):
            return Miss("its threads are groups, a place along the grid each, which come apart first")
        found: dict[tuple[int, ...], Site] = {}
        reason = ""
        for whole in (False, True):
            try:
                _, numbers = _Gather(team, names_in(program, node), whole).body()
            except CannotGather as bad:
                reason = str(bad)
                continue
            found.setdefault(numbers, Site(path, SpreadThreads(team.threads, numbers or NONE, _summed(node)), {"whole": whole}))
        return tuple(found.values()) or Miss(reason)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """What all threads did, by one."""
        kernel = kernel_of(program, site.path)
        front = _shared(kernel.body)
        team = matched(whole_team(program, (*site.path, len(front)), kernel.body[-1]))
        body, _ = _Gather(team, names_in(program, kernel), bool(site.captures.get("whole"))).body()
        made = replace(kernel, threads=build.const(1), body=(*front, *body))
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)


def _reduces(program: n.Program, team: ThreadTeam) -> bool:
    """Whether a reduction that the threads share, each folding every T-th value, could be one that each does for itself."""
    return any(isinstance(s, n.Alloc) and isinstance(PartitionReduction().match_inverse(program, (*team.path, "body", i), s), Site)
               for i, s in enumerate(team.loop.body))


def _unpadded(kernel: n.Kernel) -> n.Kernel:
    """The kernel with shared arrays that lie row after row."""
    plain = {s.buffer.name: replace(s.buffer, strides=None, layout=None) for s in kernel.body if isinstance(s, n.Alloc) and s.buffer.strides is not None}
    body = tuple(replace(s, buffer=plain.get(s.buffer.name, s.buffer)) if isinstance(s, n.Alloc) else substitute_buffers(s, plain) for s in kernel.body)
    return replace(kernel, body=body) if plain else kernel


def _shared(body: n.Block) -> n.Block:
    """The declarations of shared memory, and other names for tensors with which a kernel begins: of those that are only read, or are touched by that name
    alone."""
    written = buffers_written(body)

    def stands_in_front(s: n.Stmt) -> bool:
        if isinstance(s, n.View):
            names = (s.buffer.name, s.at.buffer.name)
            return s.at.buffer.space == "global" and ANYWHERE not in written and (written.isdisjoint(names) or _is_only_name(s, body))
        return isinstance(s, n.Alloc) and s.buffer.space == "shared"
    return body[:next((i for i, s in enumerate(body) if not stands_in_front(s)), len(body))]


def _is_only_name(view: n.View, body: n.Block) -> bool:
    """Whether a tensor is touched through one view alone."""
    places = [x for s in body if s is not view for x in walk(s) if isinstance(x, n.Region)]
    return not any(x.buffer == view.at.buffer for x in places)


def _proposal(kernel: n.Kernel) -> tuple[int, ...]:
    """The outermost loops that store what others see, and carry nothing of their own along."""
    numbers = {id(s): k for k, s in enumerate(x for x in statements(kernel.body) if isinstance(x, n.For))}
    out: list[int] = []

    def visit(block: n.Block) -> None:
        for s in block:
            match s:
                case n.For() if s.kind == "serial" and _effects(s) and not _carries(s):
                    out.append(numbers[id(s)])
                case n.For():
                    visit(s.body)
                case n.If():
                    visit(s.then)
                    visit(s.orelse)
                case _:
                    pass
    visit(kernel.body)
    return tuple(out)


def _effects(s: n.Stmt) -> bool:
    """Whether a statement writes memory that others see."""
    return any((isinstance(x, n.Store) and x.at.buffer.space != "register") or _is_atomic(x) for x in walk(s))


def _is_atomic(x: n.Node) -> bool:
    return isinstance(x, n.Call) and x.fn.startswith("atomic_")


def _summed(kernel: n.Kernel) -> bool:
    """Whether CTAs add floats to the same tensors, each as it comes."""
    adds = [x.args[0] for x in walk(kernel) if isinstance(x, n.Call) and x.fn == "atomic_add" and x.of is None]
    floats = [a for a in adds if isinstance(a, n.Region) and dtype_of(a.type).is_float]
    return bool(floats) and all(a.buffer.space == "global" for a in floats) and not all(build.is_const(a.extent, 1) for a in kernel.grid)


def _differs(s: n.Stmt, names: Names) -> bool:
    """Whether what a statement does may differ between threads: an atomic whose old value nobody asks for by what it is given alone."""
    if isinstance(s, n.Eval) and s.call.fn.startswith("atomic_"):
        return any(depends(a, names) for a in s.call.args)
    return depends(s, names)


def _waits(s: n.Stmt) -> bool:
    """Whether threads wait for each other inside."""
    return any(is_call(x, "barrier") for x in walk(s) if isinstance(x, n.Stmt))


def _reads(x: n.Node, names: Names) -> bool:
    """Whether anything below mentions a name."""
    return any((isinstance(y, n.Var) and y.name in names) or (isinstance(y, n.Buffer) and y.name in names) for y in walk(x))


def _exchanges(s: n.Stmt) -> bool:
    """Whether threads give each other values, or wait for each other."""
    calls = [x for x in walk(s) if isinstance(x, n.Call)]
    return any(x.of is not None or instruction(x.fn).is_convergent or instruction(x.fn).effect in ("sync", "async") for x in calls)


def _carries(s: n.For) -> bool:
    """Whether a loop writes private memory that lives longer than an iteration."""
    own = set(bound_names(s.body))
    return any(isinstance(x, n.Store) and x.at.buffer.space == "register" and x.at.buffer.name not in own for x in walk(s))


def _distributed(block: n.Block, shared: set[int], t: n.Var, threads: int) -> Items:
    """The items of a block: shared loops as the share of thread `t`, statements with effects left to thread 0."""
    out: list[Unit | Nest] = []
    for s in block:
        match s:
            case n.For() if id(s) in shared:
                if build.int_value(s.hi) == threads:
                    dtype = dtype_of(s.var.type)
                    out.append(Unit(substitute(replace(s, hi=build.const(0, dtype)), {s.var.name: build.cast(t, dtype)}).body))
                else:
                    out.append(Unit((spread(s, t, threads),)))
            case n.For() if _effects(s) or any(id(x) in shared for x in statements(s.body)):
                out.append(Nest(s, (_distributed(s.body, shared, t, threads),)))
            case n.If() if _effects(s) or any(id(x) in shared for x in (*statements(s.then), *statements(s.orelse))):
                out.append(Nest(s, (_distributed(s.then, shared, t, threads), _distributed(s.orelse, shared, t, threads))))
            case n.Let() if _effects(s):
                raise CannotGather("an atomic outside the shared loops gives its old value to one thread only")
            case n.Store() | n.Eval() if _effects(s):
                before = out.pop() if out and isinstance(out[-1], Unit) and out[-1].alone else None
                branch = before.block[0] if isinstance(before, Unit) else None
                then = (*branch.then, s) if isinstance(branch, n.If) else (s,)
                out.append(Unit((n.If(build.compare("eq", t, 0), then),), True))
            case _:
                out.append(Unit((s,)))
    return out


@dataclass(frozen=True)
class _Gather:
    """What all threads of a team do, written for one. `whole`: a loop that each thread runs for itself, with nobody waiting inside, is
    the thread's share as a whole; otherwise what is inside is, where the loop is the same for all."""

    team: ThreadTeam
    taken: set[str]
    whole: bool = False

    def body(self) -> tuple[n.Block, tuple[int, ...]]:
        """The statements, and the numbers of the loops that were shared among the threads."""
        marked: set[str] = set()
        body = self.block(self.team.loop.body, ("body",), varying(self.team.loop), marked)
        loops = [s.var.name for s in statements(body) if isinstance(s, n.For)]
        return body, tuple(k for k, name in enumerate(loops) if name in marked)

    def block(self, block: n.Block, path: Path, known: Mapping[Path, Names], marked: set[str]) -> n.Block:
        """The statements of a block that all threads run alike."""
        t = self.team.thread
        out: list[n.Stmt] = []
        i = 0
        while i < len(block):
            s, names = block[i], known[(*path, i)]
            size = 1
            whole = gathered(s, t, self.team.threads) if isinstance(s, n.For) and s.kind == "serial" and t.name in names_read(s) else None
            if is_call(s, "barrier"):
                pass
            elif isinstance(s, n.If) and s.cond == build.compare("eq", t, 0) and not s.orelse:
                if any(_differs(x, names) for x in s.then):
                    raise CannotGather("the first thread alone uses values of its own")
                out.extend(s.then)
            elif whole is not None and build.int_value(whole.hi) != self.team.threads and not (_reads(whole, names) or _exchanges(whole)):
                marked.add(whole.var.name)
                out.append(whole)
            elif isinstance(s, n.For) and not any(depends(e, names) for e in (s.lo, s.hi, s.step)) and self._meets(s) and not (
                    self.whole and not _waits(s) and depends(s, names)):
                out.append(replace(s, body=self.block(s.body, (*path, i, "body"), known, marked)))
            elif isinstance(s, n.If) and not depends(s.cond, names) and self._meets(s):
                out.append(replace(s, then=self.block(s.then, (*path, i, "then"), known, marked),
                                   orelse=self.block(s.orelse, (*path, i, "orelse"), known, marked)))
            elif self._own(block, i, path, known):
                size = next((k for k in range(1, len(block) - i) if not self._own(block, i + k, path, known)), len(block) - i)
                out.append(self._side_by_side(block[i:i + size], block[i + size:], marked))
            elif isinstance(s, (n.Let, n.Alloc, n.Store, n.For, n.If)) and not _effects(s):
                out.append(s)
            else:
                raise CannotGather("every thread does what one should do")
            i += size
        return tuple(out)

    def _meets(self, s: n.Stmt) -> bool:
        """Whether something inside a loop or branch of all threads is not the same for each."""
        return any((isinstance(x, n.Stmt) and (is_call(x, "barrier") or _effects(x))) or (
            isinstance(x, n.Var) and x.name == self.team.thread.name) for x in walk(s))

    def _own(self, block: n.Block, i: int, path: Path, known: Mapping[Path, Names]) -> bool:
        """Whether a statement is a thread's own: it computes with what varies, or declares what will vary."""
        s = block[i]
        if _waits(s):
            return False
        if isinstance(s, n.If) and s.cond == build.compare("eq", self.team.thread, 0):
            return False
        if depends(s, known[(*path, i)]):
            return True
        ever = frozenset().union(*known.values())
        return isinstance(s, n.Alloc) and s.buffer.name in ever

    def _side_by_side(self, run: n.Block, rest: n.Block, marked: set[str]) -> n.Stmt:
        """Statements that each thread does once, as a loop over what was the thread's number."""
        own = set(bound_names(run))
        if any(_exchanges(s) for s in run):
            raise CannotGather("threads exchange values")
        if any(_reads(s, frozenset(own)) for s in rest):
            raise CannotGather("a thread keeps a value of its own")
        for x in (x for s in run for x in walk(s)):
            if isinstance(x, n.Store) and x.at.buffer.space == "register" and x.at.buffer.name not in own:
                raise CannotGather(f"each thread has its own '{x.at.buffer.name}'")
        var = fresh_var(f"{self.team.thread.name}_item", self.taken)
        marked.add(var.name)
        body = tuple(substitute(s, {self.team.thread.name: var}) for s in run)
        return counting(var, self.team.threads, body)
