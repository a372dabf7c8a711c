"""Who runs tasks: processes of this machine, as many as asked for, or some for each GPU, which see that one alone."""
from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from concurrent.futures.process import BrokenProcessPool
from dataclasses import field
from functools import partial
from multiprocessing import get_context
from threading import Event, RLock
from typing import Any, Protocol

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.hardware.device.client import COMMON, common

FAULTS = 3
"""Workers that a GPU may lose one after another, each with another candidate, before it is taken for broken."""
GONE = ("KIR-G004", "KIR-U035")
"""What a worker says of its GPU, and not of a candidate."""
LACKS = ("out of memory", "memoryerror", "unable to allocate", "sigkill")
"""Words of a refusal for want of memory."""
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
        """What came of it. Raises Lost, TimeoutError after so many seconds, MemoryError where its worker had too little, KirError as the task does."""
        ...

    def done(self, begun: Any) -> bool:
        """Whether `result` would not wait."""
        ...

    def withdraw(self, begun: Any) -> None:
        """Nobody will ask for it: it need not be done, where no worker has begun with it."""
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
    _servers: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

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

    def done(self, begun: Future[dict[str, Any]]) -> bool:
        """Whether it has ended."""
        return begun.done()

    def withdraw(self, begun: Future[dict[str, Any]]) -> None:
        """What waits is not done."""
        begun.cancel()

    def again(self) -> bool:
        """The others are lost too."""
        self.close()
        return True

    def _open(self) -> ProcessPoolExecutor:
        if self._pool is None:
            folder = self._servers.enter_context(common())
            self._pool = ProcessPoolExecutor(self.parallel, mp_context=get_context("spawn"), initializer=_shares, initargs=(folder,))
        return self._pool

    def close(self) -> None:
        """End the workers, also one that hangs."""
        if self._pool is not None:
            _end(self._pool)
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None
        self._servers.close()


@dataclass
class Begun:
    """A task on its way through `Devices`. `said` is what came of it; `late` where nobody waits any more, `single` where it wants a GPU without others."""

    work: Work
    task: Any
    placed: Event = field(default_factory=Event)
    said: Future[dict[str, Any]] = field(default_factory=Future)
    late: bool = False
    single: bool = False


@dataclass
class Devices:
    """`each` processes for each GPU of this machine, which see that one alone and are given a task when they have none; what waits goes to the GPU with the
    fewest. They compile, interpret and compare side by side, and take turns on the GPU (`kir.hardware.device.turns`): none times beside another. A task for
    which the memory of its GPU did not suffice is done once more with no other on one. A GPU that is gone, or that loses `FAULTS` workers one after another,
    is `retired` with the reason."""

    numbers: tuple[int, ...]
    each: int = 1
    retired: dict[int, str] = field(default_factory=dict)
    _pools: dict[tuple[int, int], ProcessPoolExecutor] = field(default_factory=dict)
    _ready: deque[Begun] = field(default_factory=deque)
    _running: dict[tuple[int, int], Begun] = field(default_factory=dict)
    _faults: dict[int, int] = field(default_factory=dict)
    _closed: bool = False
    _servers: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _folder: str = ""
    _lock: RLock = field(default_factory=RLock)
    _after: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "pool"))
    """Does what follows a task. The thread of a process that was lost may not: since Python 3.12 it holds a lock of its executor meanwhile, which the
    last reference to that executor wants."""

    @property
    def parallel(self) -> int:
        """As many as the GPUs that answer have processes."""
        return max(1, len(self._left()) * self.each)

    def begin(self, work: Work, task: Any) -> Begun:
        """Begin a task, on the first process that is free."""
        begun, self._closed = Begun(work, task), False
        with self._lock:
            self._ready.append(begun)
            self._feed()
        return begun

    def _feed(self) -> None:
        """Give what waits to processes that have nothing to do; to none where no GPU is left."""
        if self._closed:
            return
        while self._ready and (place := self._free(self._ready[0].single)) is not None:
            begun = self._ready.popleft()
            if place not in self._pools:
                self._folder = self._folder or self._servers.enter_context(common())
                given = (place[0], self.parallel, self._folder)
                self._pools[place] = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_sees, initargs=given)
            self._running[place] = begun
            begun.placed.set()
            try:
                future = self._pools[place].submit(begun.work, begun.task)
            except BrokenProcessPool as gone:
                future = Future()
                future.set_exception(gone)
            future.add_done_callback(partial(self._follow, place, begun))
        if not self._left():
            for begun in self._ready:
                begun.placed.set()
                begun.said.set_exception(error("KIR-U036", "no GPU is left", needs="; ".join(f"GPU {n}: {why}" for n, why in sorted(self.retired.items()))))
            self._ready.clear()

    def _free(self, single: bool) -> tuple[int, int] | None:
        """A process that has nothing to do, of the GPU with the fewest tasks; where one is to be `single`, of a GPU with none."""
        tasks = {n: [b for (m, _), b in self._running.items() if m == n] for n in self._left()}
        open_to = [n for n, there in tasks.items() if len(there) < (1 if single else self.each) and not any(b.single for b in there)]
        if not open_to:
            return None
        number = min(open_to, key=lambda n: len(tasks[n]))
        return number, next(k for k in range(self.each) if (number, k) not in self._running)

    def _follow(self, place: tuple[int, int], begun: Begun, done: Future[dict[str, Any]]) -> None:
        self._after.submit(self._ended, place, begun, done)

    def _ended(self, place: tuple[int, int], begun: Begun, done: Future[dict[str, Any]]) -> None:
        """A process has done a task, or was lost."""
        with self._lock:
            if self._running.get(place) is not begun:
                return  # withdrawn meanwhile
            del self._running[place]
            number = place[0]
            bad = done.exception()
            if bad is None:
                self._faults[number] = 0
                if self.each > 1 and not begun.single and not begun.late and _crowded(done.result()):
                    begun.single = True
                    self._again(begun)
                else:
                    begun.said.set_result(done.result())
            elif isinstance(bad, BrokenProcessPool):
                self._pools.pop(place, None)
                self._faults[number] = self._faults.get(number, 0) + (not begun.late)
                if self._faults[number] >= FAULTS and len(self._left()) > 1:
                    self._retire(number, f"{FAULTS} workers were lost on it, one after another")
                begun.said.set_exception(Lost(alone=number not in self.retired))
            elif isinstance(bad, MemoryError) and self.each > 1 and not begun.single and not begun.late:
                begun.single = True
                self._again(begun)
            elif isinstance(bad, KirError) and bad.diagnostics[0].id in GONE:
                self._retire(number, bad.diagnostics[0].message)
                self._again(begun)
            else:
                begun.said.set_exception(bad)
            self._feed()

    def _again(self, begun: Begun) -> None:
        begun.placed.clear()
        self._ready.appendleft(begun)

    def result(self, begun: Begun, seconds: float) -> dict[str, Any]:
        """What came of it within so many seconds from when a process had it, and as many before; one that takes longer is ended, and its GPU goes on.
        Raises KirError KIR-U036 where no GPU is left."""
        try:
            if not begun.placed.wait(seconds):
                raise TimeoutError
            return begun.said.result(seconds)
        except Late:
            begun.late = True
            with self._lock:
                if begun in self._ready:
                    self._ready.remove(begun)
                for place in [p for p, running in self._running.items() if running is begun]:
                    _end(self._pools[place])
            raise TimeoutError from None

    def _left(self) -> list[int]:
        return [n for n in self.numbers if n not in self.retired]

    def _retire(self, number: int, why: str) -> None:
        self.retired.setdefault(number, why)

    def done(self, begun: Begun) -> bool:
        """Whether it has ended."""
        return begun.said.done()

    def withdraw(self, begun: Begun) -> None:
        """What waits is not done."""
        with self._lock, contextlib.suppress(ValueError):
            self._ready.remove(begun)

    def again(self) -> bool:
        """What was begun beside it goes on: no two tasks share a process."""
        return False

    def close(self) -> None:
        """End the workers, also one that is at work; what was begun is withdrawn."""
        with self._lock:
            self._closed = True
            pools = [*self._pools.values()]
            self._pools.clear()
            self._ready.clear()
            self._running.clear()
        for pool in pools:
            _end(pool)
            pool.shutdown(wait=False, cancel_futures=True)
        self._servers.close()
        self._folder = ""


def _crowded(said: Mapping[str, Any]) -> bool:
    """Whether a task was refused because memory was lacking, which others may have had: the device's, or the host's, which says so or kills a process."""
    return not said.get("accepted", True) and any(word in str(said.get("reason", "")).lower().replace("_", " ") for word in LACKS)


def _end(pool: ProcessPoolExecutor) -> None:
    """End a pool's processes, also one that hangs."""
    for each in list((pool._processes or {}).values()):
        with contextlib.suppress(ValueError):
            each.kill()


def _shares(folder: str) -> None:
    """In a worker, before anything else: compilers are loaded once for all workers, by servers in a folder; an interruption (Ctrl-C) is for whoever asked, who
    ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ[COMMON] = folder


def _sees(number: int, beside: int, folder: str) -> None:
    """In a worker, before anything else: it sees one GPU, and its share of the cores is what oracles take, where nothing else is said."""
    _shares(folder)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // beside)))
    known = [x for x in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if x]
    os.environ["CUDA_VISIBLE_DEVICES"] = known[number] if number < len(known) else str(number)


__all__ = ["Begun", "Devices", "Engine", "Lost", "Processes", "Work"]
