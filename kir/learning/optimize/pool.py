"""Candidates gated by several processes of this machine: one task a candidate, results by content hash, workers lost and replaced."""
from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.optimize.judge import CpuJudge
from kir.learning.optimize.plan import Setting
from kir.learning.tune.device import with_shape
from kir.learning.tune.search import Measured
from kir.problem import Shape, load_problem

LIVES = 2
"""Workers that one candidate may end before it is refused for it."""


@dataclass(frozen=True)
class Task:
    """One candidate, as what crosses to another process: texts and names."""

    text: str
    surface: str
    problem: str
    shape: tuple[str, tuple[tuple[str, int], ...]]
    target: str
    compiles: bool
    cache: str

    @property
    def key(self) -> str:
        """The content hash of the program, and its surface: what results are kept by."""
        return f"{content_hash(parse_program(self.text))} {self.surface}"


def judged(task: Task) -> dict[str, Any]:
    """What a worker does: the CPU gate's word on a task, as JSON."""
    from kir.gate.artifacts import ArtifactCache

    name, sizes = task.shape
    shape = Shape(name=name, tags=("timed", "asked"), sizes=dict(sizes))
    problem = with_shape(load_problem(task.problem), shape)
    setting = Setting(problem, problem.shape(name), target(task.target), task.surface)
    cache = ArtifactCache(Path(task.cache)) if task.cache else None
    return CpuJudge(setting, cache, task.compiles).judge(parse_program(task.text), task.surface).to_json()


@dataclass
class PoolJudge:
    """The CPU gate in `workers` processes. What `prepare` is given is begun at once, so that the search should name several; `work` is what a worker
    does (another in tests). A worker that ends takes down what others had begun with it: that is begun again, and the candidate which was there each
    time is refused after `LIVES` workers."""

    setting: Setting
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    compiles: bool = True
    cache: str = ""
    work: Callable[[Task], dict[str, Any]] = judged
    name: str = "cpu"
    measures: bool = False
    _pool: ProcessPoolExecutor | None = None
    _begun: dict[str, Future[dict[str, Any]]] = field(default_factory=dict)
    _known: dict[str, Measured] = field(default_factory=dict)

    @property
    def parallel(self) -> int:
        """Candidates that may be judged at once."""
        return self.workers

    def prepare(self, programs: Sequence[tuple[Program, str]]) -> None:
        """Begin with several."""
        for program, surface in programs:
            self._submit(self._task(program, surface))

    def judge(self, program: Program, surface: str) -> Measured:
        """The word on one, begun now or before."""
        task = self._task(program, surface)
        key = task.key
        lost = 0
        while key not in self._known:
            self._submit(task)
            try:
                self._known[key] = Measured.from_json(self._begun.pop(key).result())
            except BrokenProcessPool:
                self._restart()
                lost += 1
                if lost >= LIVES:
                    self._known[key] = self._alone(task)
        return self._known[key]

    def _alone(self, task: Task) -> Measured:
        """A candidate in a process with nothing beside it: one that ends this one too is refused."""
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as one:
            try:
                return Measured.from_json(one.submit(self.work, task).result())
            except BrokenProcessPool:
                return Measured(math.inf, accepted=False, reason="it ends the process that judges it")

    def _task(self, program: Program, surface: str) -> Task:
        s = self.setting
        return Task(program_text(program), surface, str(s.problem.name), (s.shape.name, tuple(s.shape.sizes.items())), s.target.name, self.compiles, self.cache)

    def _submit(self, task: Task) -> None:
        key = task.key
        if key in self._begun or key in self._known:
            return
        try:
            self._begun[key] = self._open().submit(self.work, task)
        except BrokenProcessPool:
            self._restart()
            self._begun[key] = self._open().submit(self.work, task)

    def _open(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.workers, mp_context=get_context("spawn"))
        return self._pool

    def _restart(self) -> None:
        """Another pool; what was begun in the broken one is forgotten, and begun again when it is asked for."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None
        self._begun.clear()

    def close(self) -> None:
        """End the workers."""
        self._restart()
