"""The state of a run, and what its parts may ask of one another: the value of an expression, the steps of a block."""
from __future__ import annotations

import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from kir.base.diagnostic import error
from kir.interp.numerics.number import Array, some
from kir.interp.numerics.values import Val
from kir.interp.state.cluster import Clusters
from kir.interp.state.coverage import Coverage
from kir.interp.state.findings import Findings
from kir.interp.state.frame import Frame, Operation, Queue
from kir.interp.state.memory import Handle, KeptPlace, Memory
from kir.interp.state.monitor import Monitor
from kir.interp.state.tasks import Mbarrier, NamedBarrier, Steps, Task
from kir.interp.state.tensor_memory import TensorMemory
from kir.ir import nodes as n
from kir.ir.visit import statements


class Machine(Findings, ABC):
    """State of a run. `checker` is there in checking mode only; `lazy` lets asynchronous operations act as late as they may; with
    `compiles` loops of plain mode may be compiled; `backward` starts the last CTA first; with `traffic` checking mode counts sectors and bank
    conflicts. What is evaluated asks for the values of its parts, and what runs for its blocks, by `evaluate` and `block`;
    `kir.interp.evaluation.interpreter` joins them."""

    checker: Monitor

    def __init__(self, program: n.Program, *, lazy: bool = False, most_steps: int = sys.maxsize, coverage: Coverage | None = None,
                 compiles: bool = False, one_error: bool = False, backward: bool = False, traffic: bool = False) -> None:
        super().__init__(program, most_steps, one_error)
        self.compiles, self.backward, self.traffic = compiles, backward, traffic
        self.lazy, self.coverage = lazy, coverage
        self.checking = False
        self.stepping = False
        # names and values
        self.functions = {fn.name: fn for fn in program.functions}
        self.globals: dict[str, Val | Handle] = {}
        self.constants: dict[int, Val] = {}
        self.places: dict[tuple[int, int], KeptPlace] = {}
        self.memories: dict[int, int] = {}
        self.kept: list[n.Node] = []
        # what is known of statements, by identity
        self.fixed: dict[int, tuple[Frame, Val] | None] = {}
        self.invariants: dict[int, tuple[n.Binary, ...]] = {}
        self.waits: dict[int, bool] = {}
        self.split_loops: dict[int, bool] = {}
        self.meets: dict[int, bool] = {}
        self.shortcuts: dict[tuple[int, int, int, int], n.Store | None] = {}
        self.has_views = any(isinstance(s, n.View) and s.at.buffer.space in ("register", "fragment") for k in program.kernels for s in statements(k.body))
        """Whether private memory has several names."""
        self.iterations: dict[int, int] = {}
        self.refused: set[int] = set()
        """Loops that are not compiled."""
        # what runs, and where it meets
        self.tasks: list[Task] = []
        self.queues: list[tuple[Queue, Frame]] = []
        self.cluster_homes: dict[Any, Frame] = {}
        self.clusters = Clusters()
        self.cluster_threads = self.grid_threads = 0
        self.homes: dict[int, weakref.ref[Frame]] = {}
        """Frames whose names stand for memory of their own, or seen from them: each refers to itself."""
        self.forget_barriers()

    def forget_barriers(self) -> None:
        """A new launch: nothing is initialized. `in_flight` are operations that signal an mbarrier and have not acted yet."""
        self.mbarriers: dict[tuple[int, int], Mbarrier] = {}
        self.named: dict[tuple[Any, ...], NamedBarrier] = {}
        self.in_flight: list[Operation] = []
        self.tensor: dict[tuple[int, int], TensorMemory] = {}
        """By frame of CTAs, and lane of it."""

    def is_home(self, f: Frame) -> None:
        """Memory of a frame is named in it."""
        self.homes[id(f)] = weakref.ref(f)

    def leave_homes(self) -> None:
        """A kernel, or the run, has ended: its memory is free now, not when Python next looks for what refers to itself."""
        for home in self.homes.values():
            if (f := home()) is not None:
                f.env.clear()
                f.queues.clear()
                f.queue = None
        self.homes.clear()
        self.queues.clear()
        self.cluster_homes.clear()

    # ---------------------------------------------------------------------------------------------------------------- evaluation
    @abstractmethod
    def evaluate(self, e: n.Expr, f: Frame) -> Val:
        """The value of an expression with one result. Raises KirError KIR-I002 for one that has no meaning here."""

    @abstractmethod
    def evaluate_all(self, e: n.Expr, f: Frame) -> tuple[Val, ...]:
        """The results of an expression, one for each element of a tuple type."""

    @abstractmethod
    def block(self, body: n.Block, f: Frame) -> Steps:
        """The statements of a block, for the lanes that are active."""

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
        if live.size == 0 or some(live != live.reshape(-1)[0]):
            raise error("KIR-I006", "an extent, bound or count that differs between instances of a team",
                        origin=self.site.origin if self.site else None)
        return int(live.reshape(-1)[0])

    def number_of(self, memory: Memory) -> int:
        """A small number for each memory."""
        if id(memory) not in self.memories:
            self.memories[id(memory)] = len(self.memories) + 1
            self.kept.append(memory)  # type: ignore[arg-type]  # only kept alive, so that its id stays its own
        return self.memories[id(memory)]

    # ------------------------------------------------------------------------------------------------------------------ checking
    def meets_all(self) -> bool:
        """Whether the kernel has a barrier() of all its threads."""
        k = self.kernel
        assert k is not None
        if id(k) not in self.meets:
            self.meets[id(k)] = any(isinstance(s, n.Eval) and s.call.fn == "barrier" for s in statements(k.body))
        return self.meets[id(k)]

    def must_converge(self, f: Frame, what: str) -> None:
        """Reports an instruction of whole warps, or warpgroups, that only some lanes reach (KIR-I023)."""
        if self.checking and (f.live is not None or f.diverged or f.split):
            self.checker.must_meet(f, what)

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

    def acquire(self, f: Frame, clock: Any, lanes: list[int] | None = None) -> None:
        """Some lanes, or all active ones, learn what was published."""
        if self.checking and clock is not None:
            self.checker.acquire(f, clock, lanes)


Semantics = Callable[[Machine, n.Call, Frame], Val | tuple[Val, ...]]
"""What a row of the instruction table does, for the active lanes."""
