"""Who runs tasks: processes of this machine, as many as asked for, or one for each GPU, which sees that one alone."""
from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as Late
from concurrent.futures.process import BrokenProcessPool
from dataclasses import field
from functools import partial
from multiprocessing import get_context
from threading import Event, RLock
from typing import Any, Protocol

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error

FAULTS = 3
"""Workers that a GPU may lose one after another, each with another candidate, before it is taken for broken."""
GONE = ("KIR-G004", "KIR-U035")
"""What a worker says of its GPU, and not of a candidate."""
Work = Callable[[Any], dict[str, Any]]


class Lost(Exception):
    """A worker ended before its task did; `alone` where nothing else was with it, so that it was the task."""

    def __init__(self, alone: bool) -> None:
        super().__init__("a worker was lost")
        self.alone = alone


class Engine(Protocol):
    """Runs tasks somewhere else."""

    @property
    def parallel(self) -> int:
        """How many at once."""
        ...

    def begin(self, work: Work, task: Any) -> Any:
        """Begin a task; what `result` takes."""
        ...

    def result(self, begun: Any, seconds: float) -> dict[str, Any]:
        """What came of it. Raises Lost, TimeoutError after so many seconds, KirError as the task does."""
        ...

    def again(self) -> bool:
        """After a loss: whether what had been begun beside it is lost too, and must be begun again."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


@dataclass
class Processes:
    """`parallel` processes of this machine. One that ends takes down what the others had begun; they are replaced."""

    parallel: int
    _pool: ProcessPoolExecutor | None = None

    def begin(self, work: Work, task: Any) -> Future[dict[str, Any]]:
        """Begin a task; in a new pool where this one was broken since."""
        try:
            return self._open().submit(work, task)
        except BrokenProcessPool:
            self.close()
            return self._open().submit(work, task)

    def result(self, begun: Any, seconds: float) -> dict[str, Any]:
        """What came of it."""
        try:
            return begun.result(seconds)  # type: ignore[no-any-return]  # a future of this class
        except BrokenProcessPool:
            raise Lost(self.parallel == 1) from None
        except Late:
            raise TimeoutError from None

    def again(self) -> bool:
        """The others are lost too."""
        self.close()
        return True

    def _open(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.parallel, mp_context=get_context("spawn"))
        return self._pool

    def close(self) -> None:
        """End the workers, also one that hangs."""
        if self._pool is not None:
            _end(self._pool)
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None


@dataclass
class Begun:
    """A task on its way through `Devices`: compiled ahead, then measured on one of them. `said` is what came of it; `late` where nobody waits any more."""

    work: Work
    task: Any
    placed: Event = field(default_factory=Event)
    said: Future[dict[str, Any]] = field(default_factory=Future)
    late: bool = False


@dataclass
class Devices:
    """One process for each GPU of this machine, which sees that one alone and is given a task when it has none: what it measures, it measures with no other
    candidate on its GPU, and what waits goes to the GPU that is free first. With `ahead`, `compilers` further processes do that with a task before a GPU is
    asked, so that no GPU waits for a compiler. A GPU that is gone, or that loses `FAULTS` workers one after another, is `retired` with the reason."""

    numbers: tuple[int, ...]
    ahead: Callable[[Any], Any] | None = None
    compilers: int = 0
    retired: dict[int, str] = field(default_factory=dict)
    _pools: dict[int, ProcessPoolExecutor] = field(default_factory=dict)
    _compiling: ProcessPoolExecutor | None = None
    _ready: deque[Begun] = field(default_factory=deque)
    _running: dict[int, Begun] = field(default_factory=dict)
    _faults: dict[int, int] = field(default_factory=dict)
    _closed: bool = False
    _lock: RLock = field(default_factory=RLock)

    @property
    def parallel(self) -> int:
        """As many as GPUs that answer, and as many again as are compiled meanwhile."""
        return max(1, len(self._left())) + self.compilers

    def begin(self, work: Work, task: Any) -> Begun:
        """Begin a task: with compiling where that is done ahead, else on the first GPU that is free."""
        begun, self._closed = Begun(work, task), False
        if self.ahead is None or not self.compilers:
            self._queue(begun)
            return begun
        if self._compiling is None:
            self._compiling = ProcessPoolExecutor(self.compilers, mp_context=get_context("spawn"), initializer=_sees_none)
        try:
            ready = self._compiling.submit(self.ahead, task)
        except BrokenProcessPool:  # the compiler's own fault: the GPU's worker compiles, and says what is wrong with it
            self._compiling = None
            self._queue(begun)
            return begun
        ready.add_done_callback(lambda done: None if done.cancelled() else self._queue(begun))
        return begun

    def _queue(self, begun: Begun) -> None:
        with self._lock:
            self._ready.append(begun)
            self._feed()

    def _feed(self) -> None:
        """Give what waits to GPUs that have nothing to do; to no GPU where none is left."""
        if self._closed:
            return
        for number in [n for n in self._left() if n not in self._running]:
            if not self._ready:
                return
            begun = self._ready.popleft()
            if number not in self._pools:
                self._pools[number] = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_sees, initargs=(number,))
            self._running[number] = begun
            begun.placed.set()
            try:
                future = self._pools[number].submit(begun.work, begun.task)
            except BrokenProcessPool as gone:
                future = Future()
                future.set_exception(gone)
            future.add_done_callback(partial(self._ended, number, begun))
        if not self._left():
            for begun in self._ready:
                begun.placed.set()
                begun.said.set_exception(error("KIR-U036", "no GPU is left", needs="; ".join(f"GPU {n}: {why}" for n, why in sorted(self.retired.items()))))
            self._ready.clear()

    def _ended(self, number: int, begun: Begun, done: Future[dict[str, Any]]) -> None:
        """A GPU has done a task, or lost the worker that did."""
        with self._lock:
            if self._running.get(number) is not begun:
                return  # withdrawn meanwhile
            del self._running[number]
            bad = done.exception()
            if bad is None:
                self._faults[number] = 0
                begun.said.set_result(done.result())
            elif isinstance(bad, BrokenProcessPool):
                self._pools.pop(number, None)
                self._faults[number] = self._faults.get(number, 0) + (not begun.late)
                if self._faults[number] >= FAULTS and len(self._left()) > 1:
                    self._retire(number, f"{FAULTS} workers were lost on it, one after another")
                begun.said.set_exception(Lost(alone=number not in self.retired))
            elif isinstance(bad, KirError) and bad.diagnostics[0].id in GONE:
                self._retire(number, bad.diagnostics[0].message)
                begun.placed.clear()
                self._ready.appendleft(begun)
            else:
                begun.said.set_exception(bad)
            self._feed()

    def result(self, begun: Begun, seconds: float) -> dict[str, Any]:
        """What came of it within so many seconds from when a GPU had it, and as many before; a worker that takes longer is ended, and its GPU goes on. Raises
        KirError KIR-U036 where no GPU is left."""
        try:
            if not begun.placed.wait(seconds):
                raise TimeoutError
            return begun.said.result(seconds)
        except Late:
            begun.late = True
            with self._lock:
                if begun in self._ready:
                    self._ready.remove(begun)
                for number in [n for n, running in self._running.items() if running is begun]:
                    _end(self._pools[number])
            raise TimeoutError from None

    def _left(self) -> list[int]:
        return [n for n in self.numbers if n not in self.retired]

    def _retire(self, number: int, why: str) -> None:
        self.retired.setdefault(number, why)

    def again(self) -> bool:
        """What was begun beside it goes on: no two tasks share a worker."""
        return False

    def close(self) -> None:
        """End the workers, also one that is at work; what was begun is withdrawn."""
        with self._lock:
            self._closed = True
            pools = [*self._pools.values(), *([self._compiling] if self._compiling is not None else [])]
            self._pools.clear()
            self._ready.clear()
            self._running.clear()
            self._compiling = None
        for pool in pools:
            _end(pool)
            pool.shutdown(wait=False, cancel_futures=True)


def _end(pool: ProcessPoolExecutor) -> None:
    """End a pool's processes, also one that hangs."""
    for each in list((pool._processes or {}).values()):
        with contextlib.suppress(ValueError):
            each.kill()


def _sees_none() -> None:
    """In a compiler's process: no GPU, so that none has a context of it."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def _sees(number: int) -> None:
    """In a worker, before anything else: it sees one GPU."""
    known = [x for x in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if x]
    os.environ["CUDA_VISIBLE_DEVICES"] = known[number] if number < len(known) else str(number)


__all__ = ["Begun", "Devices", "Engine", "Lost", "Processes", "Work"]
