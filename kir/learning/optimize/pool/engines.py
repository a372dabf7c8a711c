"""Who runs tasks: processes of this machine, as many as asked for, or one for each GPU, which sees that one alone."""
from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as Late
from concurrent.futures.process import BrokenProcessPool
from dataclasses import field
from multiprocessing import get_context
from threading import Event, Lock
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
            running = list((self._pool._processes or {}).values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for each in running:
                with contextlib.suppress(ValueError):
                    each.kill()
        self._pool = None


@dataclass
class Begun:
    """A task on its way through `Devices`: compiled ahead, then measured on one of them. `number` is None until it has one."""

    work: Work
    task: Any
    number: int | None = None
    future: Future[dict[str, Any]] | None = None
    placed: Event = field(default_factory=Event)


@dataclass
class Devices:
    """One process for each GPU of this machine, which sees that one alone and has one task at a time: what it measures, it measures with no other candidate
    on its GPU. With `ahead`, `compilers` further processes do that with a task before a GPU is asked, so that no GPU waits for a compiler. A GPU that is
    gone, or that loses `FAULTS` workers one after another, is `retired` with the reason, and what it had goes to the others."""

    numbers: tuple[int, ...]
    ahead: Callable[[Any], Any] | None = None
    compilers: int = 0
    retired: dict[int, str] = field(default_factory=dict)
    _pools: dict[int, ProcessPoolExecutor] = field(default_factory=dict)
    _compiling: ProcessPoolExecutor | None = None
    _waiting: dict[int, int] = field(default_factory=dict)
    _faults: dict[int, int] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def parallel(self) -> int:
        """As many as GPUs that answer, and as many again as are compiled meanwhile."""
        return max(1, len(self._left())) + self.compilers

    def begin(self, work: Work, task: Any) -> Begun:
        """Begin a task: with compiling where that is done ahead, else where the fewest wait."""
        begun = Begun(work, task)
        if self.ahead is None or not self.compilers:
            self._place(begun)
            return begun
        if self._compiling is None:
            self._compiling = ProcessPoolExecutor(self.compilers, mp_context=get_context("spawn"), initializer=_sees_none)
        try:
            ready = self._compiling.submit(self.ahead, task)
        except BrokenProcessPool:  # the compiler's own fault: the GPU's worker compiles, and says what is wrong with it
            self._compiling = None
            self._place(begun)
            return begun
        ready.add_done_callback(lambda done: self._compiled(done, begun))
        return begun

    def _compiled(self, done: Future[Any], begun: Begun) -> None:
        if not done.cancelled():
            self._place(begun)

    def _place(self, begun: Begun) -> None:
        """Give a task to the device where the fewest wait."""
        with self._lock:
            left = self._left()
            if not left:
                begun.placed.set()
                return
            number = min(left, key=lambda d: (self._waiting.get(d, 0), d))
            if number not in self._pools:
                self._pools[number] = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_sees, initargs=(number,))
            try:
                begun.future = self._pools[number].submit(begun.work, begun.task)
            except BrokenProcessPool as gone:
                begun.future = Future()
                begun.future.set_exception(gone)
            begun.number = number
            self._waiting[number] = self._waiting.get(number, 0) + 1
            begun.placed.set()

    def result(self, begun: Begun, seconds: float) -> dict[str, Any]:
        """What came of it; a process that is lost is replaced by the next task. Raises KirError of the last device where all are gone."""
        until = time.monotonic() + seconds
        if not begun.placed.wait(seconds):
            raise TimeoutError
        while True:
            if begun.future is None or begun.number is None:
                raise error("KIR-U036", "no GPU is left", needs="; ".join(f"GPU {n}: {why}" for n, why in sorted(self.retired.items())))
            number = begun.number
            try:
                said = begun.future.result(max(0.0, until - time.monotonic()))
                self._faults[number] = 0
                return said
            except BrokenProcessPool:
                self._pools.pop(number, None)
                self._faults[number] = self._faults.get(number, 0) + 1
                if self._faults[number] >= FAULTS and len(self._left()) > 1:
                    self._retire(number, f"{FAULTS} workers were lost on it, one after another")
                raise Lost(alone=number not in self.retired) from None
            except Late:
                raise TimeoutError from None
            except KirError as bad:
                if bad.diagnostics[0].id not in GONE:
                    raise
                self._retire(number, bad.diagnostics[0].message)
                begun.future = begun.number = None
                self._place(begun)
            finally:
                self._waiting[number] -= 1

    def _left(self) -> list[int]:
        return [n for n in self.numbers if n not in self.retired]

    def _retire(self, number: int, why: str) -> None:
        self.retired.setdefault(number, why)

    def again(self) -> bool:
        """What waits for another device goes on; what waited for this one is lost as it is asked for."""
        return False

    def close(self) -> None:
        """End the workers."""
        for pool in (*self._pools.values(), *([self._compiling] if self._compiling is not None else [])):
            pool.shutdown(wait=False, cancel_futures=True)
        self._pools.clear()
        self._compiling = None


def _sees_none() -> None:
    """In a compiler's process: no GPU, so that none has a context of it."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def _sees(number: int) -> None:
    """In a worker, before anything else: it sees one GPU."""
    known = [x for x in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if x]
    os.environ["CUDA_VISIBLE_DEVICES"] = known[number] if number < len(known) else str(number)


__all__ = ["Begun", "Devices", "Engine", "Lost", "Processes", "Work"]
