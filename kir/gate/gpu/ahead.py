"""What a verdict will need of processes, started while the program is still being compiled and interpreted.

A process started ahead is confined and holds a context, and nothing of the candidate: that comes to it after the CPU gate has accepted.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from kir.gate.gpu.machine import Gpu
from kir.gate.gpu.oracle import Oracle, Shared
from kir.hardware.device.client import Child, ChildGone
from kir.problem import Problem

T = TypeVar("T")
Opened = tuple[Child, dict[str, Any]]


class Ahead:
    """An oracle with its problem loaded, `processes` for candidates, and waiting sanitizers. Leaving the block ends those not taken, and
    the oracle."""

    def __init__(self, gpu: Gpu, problem: Problem, processes: int, sanitize: bool, shared: Shared | None = None, reuse: bool = False) -> None:
        self.gpu, self.problem, self.sanitize, self.shared, self.reuse = gpu, problem, sanitize, shared, reuse
        self._pool = ThreadPoolExecutor(max_workers=processes + 2)
        self._oracle: Future[tuple[Child, Oracle]] = self._pool.submit(self._loaded)
        self._processes: list[Future[Opened]] = [self._pool.submit(gpu.opened, door, reuse) for door in range(processes)]
        if sanitize:
            gpu.sanitizers.refill()

    def _loaded(self) -> tuple[Child, Oracle]:
        child = self.gpu.oracles.child()
        try:
            return child, Oracle.of(child, self.problem, self.shared)
        except BaseException:
            child.close()
            raise

    def begun(self, work: Callable[[], T]) -> Future[T]:
        """Something else that can be done meanwhile."""
        return self._pool.submit(work)

    def oracle(self) -> Oracle:
        """The oracle. Raises ChildGone."""
        return self._oracle.result()[1]

    def process(self) -> Opened | None:
        """A process that no other has taken; None where none is left or one did not start, so that a new one says why."""
        while self._processes:
            try:
                return self._processes.pop().result()
            except ChildGone:
                continue
        return None

    def quiet(self) -> None:
        """Return once nothing of this is still starting: what follows is timed."""
        if self.sanitize:
            self.gpu.sanitizers.settle()

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(ChildGone):
            self._oracle.result()[0].close()
        for each in self._processes:
            with contextlib.suppress(ChildGone):
                child, about = each.result()
                if self.reuse:
                    self.gpu.keep(child, about)
                else:
                    child.close()
        self._pool.shutdown()
