"""Who runs tasks: processes of this machine, as many as asked for, or one for each GPU, which sees that one alone."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as Late
from concurrent.futures.process import BrokenProcessPool
from dataclasses import field
from multiprocessing import get_context
from typing import Any, Protocol

from kir.base.dataclass import dataclass

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
class Devices:
    """One process for each GPU of this machine, which sees that one alone and has one task at a time: what it measures, it measures with nothing beside it."""

    numbers: tuple[int, ...]
    _pools: dict[int, ProcessPoolExecutor] = field(default_factory=dict)
    _waiting: dict[int, int] = field(default_factory=dict)

    @property
    def parallel(self) -> int:
        """As many as GPUs."""
        return len(self.numbers)

    def begin(self, work: Work, task: Any) -> tuple[int, Future[dict[str, Any]]]:
        """Begin a task where the fewest wait."""
        number = min(self.numbers, key=lambda d: (self._waiting.get(d, 0), d))
        if number not in self._pools:
            self._pools[number] = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_sees, initargs=(number,))
        self._waiting[number] = self._waiting.get(number, 0) + 1
        return number, self._pools[number].submit(work, task)

    def result(self, begun: Any, seconds: float) -> dict[str, Any]:
        """What came of it; a process that is lost is replaced by the next task."""
        number, future = begun
        try:
            return future.result(seconds)  # type: ignore[no-any-return]  # a future of this class
        except BrokenProcessPool:
            self._pools.pop(number, None)
            raise Lost(alone=True) from None
        except Late:
            raise TimeoutError from None
        finally:
            self._waiting[number] -= 1

    def again(self) -> bool:
        """What waits for another device goes on; what waited for this one is lost as it is asked for."""
        return False

    def close(self) -> None:
        """End the workers."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._pools.clear()


def _sees(number: int) -> None:
    """In a worker, before anything else: it sees one GPU."""
    known = [x for x in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if x]
    os.environ["CUDA_VISIBLE_DEVICES"] = known[number] if number < len(known) else str(number)


__all__ = ["Devices", "Engine", "Lost", "Processes", "Work"]
