"""The machine that runs one kernel after another: names, functions, memory, findings; fast or with a checker attached."""
from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kir.diagnostic import error
from kir.interp import evaluate, rendezvous, statements
from kir.interp.asynchrony import Operation, Queue
from kir.interp.calls_matrix import MATRIX
from kir.interp.calls_sync import WAITING
from kir.interp.calls_tile import Combine
from kir.interp.calls_warp import WARP
from kir.interp.cluster import Clusters, in_peer, peer_handle
from kir.interp.coverage import Coverage
from kir.interp.folding import folded, spread
from kir.interp.frame import Frame, Mask, Val, both, lift
from kir.interp.invariants import LEAST, invariants
from kir.interp.lookahead import Lookahead
from kir.interp.memory import Handle, Memory, Place, bytes_needed, fill_poison
from kir.interp.number import Array, storage
from kir.interp.rendezvous import Rendezvous
from kir.interp.result import Access, Counters, Finding
from kir.interp.schedule import Mbarrier, NamedBarrier, Steps, Task
from kir.ir import nodes as n
from kir.ir.build import is_const
from kir.ir.visit import statements as statements_of
from kir.ir.visit import walk

if TYPE_CHECKING:
    from kir.interp.checker import Checker

MOST_FINDINGS = 200
MOST_ITERATIONS = 10_000_000
"""Iterations of one `while` after which it counts as endless."""


class Machine(Rendezvous):
    """State of a run. `checker` is attached in checking mode; `lazy` lets asynchronous operations act as late as they may."""

    def __init__(self, program: n.Program, *, lazy: bool = False, most_steps: int = sys.maxsize, coverage: Coverage | None = None) -> None:
        super().__init__()
        self.program, self.lazy, self.coverage = program, lazy, coverage
        self.most_steps = most_steps
        self.checker_or_none: Checker | None = None
        self.lookahead = Lookahead(self)
        self.checking = False
        self.stepping = False
        self.counters = Counters()
        self.findings: dict[Any, Finding] = {}
        self.functions = {fn.name: fn for fn in program.functions}
        self.globals: dict[str, Val | Handle] = {}
        self.constants: dict[int, Val] = {}
        self.places: dict[int, tuple[Handle, Frame, tuple[Val, ...], Array, n.Region]] = {}
        self.kept: list[n.Node] = []
        self.fixed: dict[int, tuple[Frame, Val] | None] = {}
        self.invariants: dict[int, tuple[n.Binary, ...]] = {}
        self.site: n.Stmt | None = None
        self.task: Task | None = None
        self.tasks: list[Task] = []
        self.kernel: n.Kernel | None = None
        self.anchors: dict[int, str] = {}
        self.waits: dict[int, bool] = {}
        self.split_loops: dict[int, bool] = {}
        self.meets: dict[int, bool] = {}
        self.shortcuts: dict[tuple[int, int, int, int], n.Store | None] = {}
        self.has_views = any(isinstance(s, n.View) for k in program.kernels for s in statements_of(k.body))
        self.iterations: dict[int, int] = {}
        self.memories: dict[int, int] = {}
        self.queues: list[tuple[Queue, Frame]] = []
        self.cluster_homes: dict[Any, Frame] = {}
        self.clusters = Clusters()

    @property
    def checker(self) -> Checker:
        """The checker; only in checking mode."""
        assert self.checker_or_none is not None
        return self.checker_or_none

    # ------------------------------------------------------------------------------------------------------------ values
    def evaluate(self, e: n.Expr, f: Frame) -> Val:
        """The value of an expression."""
        return evaluate.evaluate(self, e, f)

    def evaluate_all(self, e: n.Expr, f: Frame) -> tuple[Val, ...]:
        """The results of an expression."""
        return evaluate.evaluate_all(self, e, f)

    def size(self, e: int | n.Expr, f: Frame) -> int:
        """A number that all lanes agree on. Raises KirError KIR-I006 where they do not."""
        return e if isinstance(e, int) else self.uniform(e, f)

    def uniform(self, e: n.Expr, f: Frame) -> int:
        """As `size`."""
        if isinstance(e, n.Const):
            return int(e.value)
        v = self.evaluate(e, f)
        self.must_be_defined(v, f, "a size")
        live = v.data if v.data.shape[0] == 1 or f.live is None else v.data[f.live]
        if live.size == 0 or (live != live.reshape(-1)[0]).any():
            raise error("KIR-I006", "an extent, bound or count that differs between instances of a team",
                        origin=self.site.origin if self.site else None)
        return int(live.reshape(-1)[0])

    def number_of(self, memory: Memory) -> int:
        """A small number for each memory."""
        if id(memory) not in self.memories:
            self.memories[id(memory)] = len(self.memories) + 1
            self.kept.append(memory)  # type: ignore[arg-type]  # only kept alive, so that its id stays its own
        return self.memories[id(memory)]

    def descriptor(self, s: n.Copy) -> n.TensorMap | None:
        """The tensor map that a copy goes by. Raises KirError KIR-I005 for one that is not there."""
        name = dict(s.attrs).get("descriptor")
        if name is None:
            return None
        found = next((t for t in self.program.tensor_maps if t.name == name), None)
        if found is None:
            raise error("KIR-I005", f"there is no tensor map '{name}'", origin=s.origin)
        return found

    def entered(self, s: n.For, count: int) -> list[int]:
        """A loop of so many iterations begins: from now on what it leaves as it is is known once it is worked out. Gives what `left` takes."""
        if self.stepping or count < LEAST:
            return []
        if id(s) not in self.invariants:
            self.invariants[id(s)] = invariants(s)
            self.kept.append(s)
        mine = [id(e) for e in self.invariants[id(s)] if id(e) not in self.fixed]
        self.fixed.update(dict.fromkeys(mine))
        return mine

    def left(self, mine: list[int]) -> None:
        """The loop has ended."""
        for key in mine:
            del self.fixed[key]

    # --------------------------------------------------------------------------------------------------------- functions
    def may_wait(self, s: n.Let | n.Eval) -> bool:
        """Whether a statement is a call that runs as a coroutine: one that waits, or a device function."""
        found = self.waits.get(id(s))
        if found is None:
            call = s.value if isinstance(s, n.Let) else s.call
            found = isinstance(call, n.Call) and (call.fn in self.functions if call.of is not None else call.fn in WAITING)
            self.waits[id(s)] = found
        return found

    def call(self, e: n.Call, f: Frame) -> tuple[Val, ...]:
        """A device function within an expression. Raises KirError KIR-I002 when it waits."""
        results: list[Val] = []
        for _ in self.call_steps(e, f, results, 0):
            raise error("KIR-I002", f"'{e.fn}' waits for others, so its call stands alone as a statement")
        return tuple(results)

    def call_steps(self, e: n.Call, f: Frame, results: list[Val], branches: int | None = None) -> Steps:
        """Runs a device function for the active lanes and leaves what it returns in `results`."""
        fn = self.functions.get(e.fn)
        if fn is None:
            raise error("KIR-I002", f"there is no function '{e.fn}'")
        inner = f.snapshot(f.agents, f.proxy)
        inner.parent, inner.owner, inner.scope, inner.env, inner.acts_for, inner._maps = f, None, False, {}, None, {}
        inner.team, inner.split, inner.queue, inner.numbers = f.team, f.split, f.queue, None
        inner.branches = f.branches if branches is None else branches
        for p, a in zip(fn.params, e.args, strict=True):
            if isinstance(p, n.Buffer):
                inner.env[p.name] = self._buffer_argument(p, a, f, inner)
            elif isinstance(a, n.Expr):
                inner.env[p.name] = self.evaluate(a, f)
        yield from statements.block(self, fn.body, inner)
        results.extend(inner.results or ())

    def _buffer_argument(self, p: n.Buffer, a: n.Expr | n.Region, f: Frame, inner: Frame) -> Handle:
        region = a if isinstance(a, n.Region) else a.at if isinstance(a, (n.Load, n.Address)) else None
        base = None if region is None else f.find(region.buffer.name) or self.globals.get(region.buffer.name)
        if region is None or not isinstance(base, Handle):
            raise error("KIR-I002", f"parameter '{p.name}' takes a place (&A[i])")
        if not region.index and base.buffer.dtype == p.dtype and len(base.shape) == len(p.shape):
            return Handle(base.buffer, base.memory, base.shape, base.strides, base.swizzles, base.base, base.frame, base.view)
        made = statements.reinterpreted(self, p, region, base, inner if not region.index else f)
        made.frame = f
        return made

    def combiner(self, name: str, f: Frame) -> Combine:
        """A device function of scalars as a combination of tiles, element by element."""
        fn = self.functions.get(name)
        if fn is None:
            raise error("KIR-I002", f"there is no function '{name}' to combine with")

        def combine(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
            parts = np.broadcast_arrays(*a, *b)
            inner = Frame(max(1, parts[0].size), "element", scope=False)
            for p, x in zip(fn.params, parts, strict=True):
                inner.env[p.name] = Val(np.ascontiguousarray(x).reshape(-1))
            for _ in statements.block(self, fn.body, inner):
                raise error("KIR-I002", f"'{name}' waits, so it cannot combine values")
            return tuple(np.broadcast_to(r.data, (inner.lanes,)).reshape(parts[0].shape) for r in inner.results or ())
        return combine

    # ------------------------------------------------------------------------------------------------------------ memory
    def home(self, space: str, f: Frame) -> Frame:
        """The frame that owns a buffer of `space` declared in `f`."""
        if space in ("fragment", "register"):
            return f
        root = f
        while root.parent is not None:
            root = root.parent
        return self.cluster_homes.setdefault(self.cluster_of(root), Frame(1, "cluster")) if space == "cluster" else root

    def cluster_of(self, root: Frame) -> int:
        """The number of the cluster of a CTA's frame."""
        return self.clusters.place(root)[0]

    def peer_handle(self, view: Handle, rank: int, f: Frame) -> Handle:
        """The shared buffer that a view of cluster memory shows, in the CTA of a rank. Reports one that is not there (KIR-I030)."""
        return peer_handle(self, view, rank, f)

    def in_peer(self, place: Place, rank: int, f: Frame) -> Place:
        """The place at the same offset in the shared memory of the CTA of a rank."""
        return in_peer(self, place, rank, f)

    def allocate(self, b: n.Buffer, home: Frame, f: Frame) -> Handle:
        """Memory for a buffer, holding the pattern of undefined values."""
        shape = tuple(self.size(d, f) for d in b.shape)
        strides, swizzles = statements.layout_of(self, b, shape, f)
        size = bytes_needed(shape, strides, swizzles, storage(b.dtype).itemsize)
        memory = Memory(b.name, b.space, 1 if b.space == "cluster" else home.lanes, size, None if b.space == "cluster" else home)
        fill_poison(memory, b.dtype)
        if self.checking:
            self.checker.adopt(memory, b, False)
        return Handle(b, memory, shape, strides, swizzles)

    def undefine(self, handle: Handle, f: Frame) -> None:
        """A declaration starts anew: in checking mode the contents are undefined again."""
        if self.checking:
            self.checker.undefine(handle, f)

    # ----------------------------------------------------------------------------------------------------------- findings
    def anchor(self, s: n.Stmt | None) -> str:
        """The place of a statement as text."""
        name = self.kernel.name if self.kernel is not None else ""
        return self.anchors.get(id(s), name) if s is not None else name

    def thread_name(self, f: Frame | None, lane: int) -> str:
        """How a finding names an instance: `CTA 3, thread 17`."""
        if f is None:
            return self.task.name if self.task is not None else "the CTA"
        cta = f"CTA {int(f.cta[lane])}" if f.cta is not None else "CTA 0"
        own = f" {f.level} {int(f.thread_numbers()[lane])}" if f.level in statements.LEVELS else ""
        role = f" {f.name.split('/', 1)[1]}" if "/" in f.name and f.level != "thread" else ""
        return f"{cta},{own or role}" if own or role else cta

    def report(self, kind: str, severity: Literal["error", "weak"], message: str, f: Frame | None, lane: int = 0, *, id: str,
               buffer: str = "", verb: str = "", accesses: tuple[Access, ...] = ()) -> None:
        """Notes a finding at the current statement; one for each kind, place and other place."""
        s = self.site
        own = Access.at(verb or kind, self.anchor(s), self.thread_name(f, lane), s.origin if s is not None else None)
        seen = accesses if kind == "deadlock" else (own, *accesses)
        key = (id, kind, severity, buffer, tuple((a.verb, a.anchor) for a in seen))
        if key not in self.findings and len(self.findings) < MOST_FINDINGS:
            self.findings[key] = Finding(id, kind, severity, message, self.kernel.name if self.kernel else "", buffer, seen)

    def must_be_defined(self, v: Val, f: Frame, what: str) -> None:
        """Reports an undefined value that reaches an address, a branch or an effect (KIR-I012)."""
        if v.ok is None or v.ok.all():
            return
        bad = np.broadcast_to(~v.ok, v.data.shape if v.data.shape[0] > 1 or f.live is None else (f.lanes, *v.tile))
        bad = np.asarray(bad.reshape(bad.shape[0], -1).any(1))
        if f.live is not None:
            bad = np.logical_and(bad, f.live if bad.shape[0] > 1 else f.live.any())
        if bad.any():
            self.report("poison", "error", f"an undefined value reaches {what}", f, int(bad.argmax()), id="KIR-I012")

    def must_be_true(self, v: Val, f: Frame, what: str) -> None:
        """Reports an assumption or assertion that does not hold (KIR-I013)."""
        bad = np.broadcast_to(~v.data.astype(np.bool_).reshape(v.data.shape[0], -1).all(1), (f.lanes,)) & f.active()
        if bad.any():
            self.report(what, "error", f"the {what} does not hold", f, int(bad.argmax()), id="KIR-I013")

    def must_hold(self, index: Array, extent: int, f: Frame, what: str) -> None:
        """Reports an index of a value that is out of its range (KIR-I010)."""
        if index.size == 0 or (int(index.min()) >= 0 and int(index.max()) < extent):
            return
        bad = ((index < 0) | (index >= extent)).reshape(index.shape[0], -1).any(1)
        bad = np.broadcast_to(bad, (f.lanes,)) & f.active()
        if bad.any():
            self.report("bounds", "error", f"{what} is outside 0..{extent}", f, int(bad.argmax()), id="KIR-I010")

    def must_converge(self, f: Frame, what: str) -> None:
        """Reports an instruction of whole warps that only some lanes reach (KIR-I023)."""
        if f.live is not None and self.checking:
            self.checker.must_meet(f, what)

    def out_of_bounds(self, place: Place, f: Frame, want: Mask, verb: str, inside: Mask) -> None:
        """Reports active elements that are not `inside` their buffer (KIR-I010)."""
        if inside is None:
            return
        rank = max(inside.ndim, 1 if want is None else want.ndim) - 1
        outside = both(~lift(inside, rank), None if want is None else lift(want, rank))
        live = np.ones((1,), np.bool_) if f.live is None else f.live
        bad = np.logical_and(outside, lift(live, rank))
        if not bad.any():
            return
        shape = np.broadcast_shapes(bad.shape, lift(place.index, rank).shape)
        where = np.unravel_index(int(np.broadcast_to(bad, shape).argmax()), shape)
        at = [int(np.broadcast_to(lift(x, rank), shape)[where]) for x in place.indices]
        name = place.handle.buffer.name
        self.report("bounds", "error", f"{verb} of {name}{at} is outside its shape {list(place.handle.shape)}", f,
                    int(where[0]) if bad.shape[0] > 1 else 0, id="KIR-I010", buffer=name, verb=verb, accesses=(self.declaration(name),))

    def declaration(self, name: str) -> Access:
        """Where a buffer comes from, as the other side of an access that leaves it."""
        for k in self.program.kernels:
            for s in statements_of(k.body):
                if isinstance(s, (n.Alloc, n.View)) and s.buffer.name == name:
                    return Access.at("memory declared", self.anchor(s), "", s.origin)
        return Access("memory given", name, "the caller")

    def view_fits(self, b: n.Buffer, start: Array, needed: int, itemsize: int, base: Handle, f: Frame) -> None:
        """Reports a reinterpretation that reaches past the end of its memory (KIR-I010) or is not aligned (KIR-I011)."""
        past, name = start + needed > base.memory.size, b.name
        if past.any():
            self.report("bounds", "error", f"view '{name}' needs {needed} bytes at {int(start[past.argmax()])} of {base.memory.size}", f,
                        id="KIR-I010", buffer=name)
        if (start % itemsize).any():
            self.report("alignment", "error", f"view '{name}' of {b.dtype} starts at byte {int(start.max())}", f, id="KIR-I011",
                        buffer=name)

    def shortcut(self, s: n.For, lo: int, hi: int, step: int) -> n.Store | None:
        """One store with the effect of a loop, where there is one (`kir.interp.folding`). It stands where the loop's own store does."""
        if self.stepping or step < 1:
            return None
        key = id(s), lo, hi, step
        if key not in self.shortcuts:
            alone = self.kernel is not None and is_const(self.kernel.threads, 1) and not self.has_views
            made = spread(s, lo, hi, step) if alone or (not self.checking and not self.has_views) else None
            made = folded(s, lo, hi, step) if made is None and not self.checking else made
            if made is not None:
                inner: n.Stmt = s
                while isinstance(inner, n.For):
                    inner = inner.body[0]
                made = replace(made, origin=inner.origin)
                self.anchors[id(made)] = self.anchor(inner)
            self.shortcuts[key] = made
        return self.shortcuts[key]

    def count_step(self, s: n.Stmt) -> None:
        """Raises KirError KIR-I007 once more statements have run than the caller allows."""
        self.counters.steps += 1
        if self.counters.steps > self.most_steps:
            raise error("KIR-I007", f"more than {self.most_steps} statements have run", origin=s.origin, anchor=self.anchor(s))

    def count_iteration(self, s: n.While) -> None:
        """Raises KirError KIR-I007 for a loop that does not end."""
        self.iterations[id(s)] = self.iterations.get(id(s), 0) + 1
        if self.iterations[id(s)] > MOST_ITERATIONS:
            raise error("KIR-I007", f"a loop has run {MOST_ITERATIONS} times", origin=s.origin, anchor=self.anchor(s))

    # ------------------------------------------------------------------------------------------------------------- teams
    def goes_apart(self, s: n.If, rest: n.Block) -> bool:
        """Whether lanes may wait in a branch while the others go on: there is such a call in it, and neither there nor in the rest of
        the block an operation of whole warps, for which they must stay together."""
        found = self.waits.get(id(s))
        if found is None:
            calls, after = self.operations((s,)), self.operations(rest)
            found = any(fn in WAITING for fn in calls) and not any(fn in WARP or fn in MATRIX or fn == "warp_sync" for fn in (*calls, *after))
            self.waits[id(s)] = found
        return found

    def operations(self, body: n.Block) -> set[str]:
        """The names of the operations of some statements, and of the device functions that they call."""
        found: set[str] = set()
        todo = [body]
        while todo:
            for s in todo.pop():
                for x in walk(s):
                    if isinstance(x, n.Call) and x.fn not in found:
                        found.add(x.fn)
                        todo += [self.functions[x.fn].body] if x.fn in self.functions else []
        return found

    def splits(self, s: n.For) -> bool:
        """Whether the instances of a loop over a level run as coroutines, because they wait for one another."""
        return self.split_loops.get(id(s), False)

    def use_queue(self, f: Frame, s: n.For | n.Role) -> None:
        """Gives a frame the operations in flight of the same instances, if they ran before."""
        assert f.parent is not None
        numbers = f.thread_numbers()
        key = (s.kind if isinstance(s, n.For) else s.name, f.lanes, int(numbers[0]) if len(numbers) else 0)
        f.queue = f.parent.queues.get(key)
        if f.queue is None:
            f.queue = f.parent.queues[key] = Queue()
            self.queues.append((f.queue, f))

    def fork(self, child: Frame, s: n.For) -> None:
        """A team splits: the new instances know what their team knew."""
        if self.checking:
            self.checker.fork(child, f"{s.kind}")

    def fork_roles(self, f: Frame, children: list[Frame], s: n.Roles) -> None:
        """A team splits into roles."""
        if self.checking:
            for i, child in enumerate(children):
                self.checker.fork(child, f"role{i}")

    def join(self, child: Frame, s: n.Stmt) -> None:
        """Sub-teams end, and their team knows what they knew."""
        if self.checking:
            self.checker.join(child)

    def exchange(self, f: Frame) -> None:
        """Lanes of a warp exchange values."""
        if self.checking:
            self.checker.exchange(f)

    def agents_for(self, f: Frame, family: str, grouped: bool) -> tuple[Array | None, Array | None]:
        """Agents that stand for the reading and the writing part of an operation that `f` issues."""
        return self.checker.asynchronous(f, family, grouped) if self.checking else (None, None)

    def observe(self, f: Frame, agents: Array | None, lanes: Array) -> None:
        """The given lanes learn what their own operations did."""
        if self.checking and agents is not None:
            self.checker.observe(f, agents, lanes)

    # ---------------------------------------------------------------------------------------------------------- barriers
    def barriers(self, region: n.Region, f: Frame, verb: str, *, proxy: int = 0, agents: Array | None = None,
                 rank: int | None = None) -> list[Mbarrier]:
        """The mbarrier that each active lane names, of its own CTA or of the one of a rank in its cluster."""
        return rendezvous.barriers(self, region, f, verb, proxy, agents, rank)

    def init_barriers(self, region: n.Region, count: int, f: Frame) -> None:
        """`mbarrier.init`."""
        rendezvous.init_barriers(self, region, count, f)

    def settle(self, b: Mbarrier) -> None:
        """Completes a phase when it is due."""
        rendezvous.settle(self, b)

    def named_barrier(self, f: Frame, key: tuple[str, int]) -> NamedBarrier:
        """A barrier of the CTA or cluster."""
        return rendezvous.named_barrier(self, f, key)

    def arrive_named(self, f: Frame, key: tuple[str, int], expected: int) -> None:
        """Arrives on one."""
        rendezvous.arrive_named(self, f, key, expected)

    def complete_one(self) -> bool:
        """Completes an operation in flight."""
        return rendezvous.complete_one(self)

    def deadlock(self, tasks: list[Task]) -> None:
        """Reports a deadlock."""
        rendezvous.deadlock(self, tasks)

    def published(self, f: Frame, clock: Any) -> Any:
        """`clock` joined with what the active lanes of `f` know."""
        return self.checker.published(f, clock) if self.checking else None

    def release(self, b: Mbarrier, f: Frame, lane: int) -> None:
        """An arrival publishes what its lane knows."""
        if self.checking:
            b.clock = self.checker.release(f, lane, b.clock)

    def publish(self, b: Mbarrier, made: Operation) -> None:
        """A completed operation publishes what it did."""
        if self.checking and made.writer is not None and made.frame is not None:
            b.clock = self.checker.publish(made.frame, made.writer, b.clock)

    def finished(self, f: Frame, agents: Array, lanes: Array, clock: Any) -> Any:
        """`clock` joined with what operations of the given lanes of `f` did."""
        return self.checker.finished(f, agents, lanes, clock) if self.checking else None

    def acquire(self, f: Frame, clock: Any, lane: int | None = None) -> None:
        """One lane, or all active ones, learn what was published."""
        if self.checking and clock is not None:
            self.checker.acquire(f, clock, lane)


