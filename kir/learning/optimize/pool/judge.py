"""The gate's word from a pool: what is begun for several candidates at once, what is known by its key, what ends the workers that judge it."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, cast

from kir.base.dataclass import dataclass
from kir.ir.nodes import Program
from kir.learning.optimize.pool.engines import Engine, Lost, Work
from kir.learning.optimize.pool.tasks import Job, judged
from kir.learning.tune.search import Measured

LIVES = 2
"""Workers that one candidate may end before it is refused for it."""
PATIENCE = 600.0
"""Seconds that one candidate may take, compiling included."""


@dataclass
class PoolJudge:
    """The gate on an engine. `task` makes a candidate what is sent, `work` is what a worker does with it. What `prepare` is given is begun at once, so that
    a search should name several. Where a worker ends, the candidate is begun again; one that ended `LIVES` of them with nothing beside it is refused."""

    engine: Engine
    task: Callable[[Program, str], Job]
    work: Work = judged
    name: str = "cpu"
    measures: bool = False
    patience: float = PATIENCE
    known: dict[str, Measured] = field(default_factory=dict)
    lost: int = 0
    """Workers that were lost so far."""
    _begun: dict[str, Any] = field(default_factory=dict)

    @property
    def parallel(self) -> int:
        """Candidates that may be judged at once."""
        return self.engine.parallel

    def prepare(self, programs: Sequence[tuple[Program, str]]) -> None:
        """Begin with several."""
        for program, surface in programs:
            self._begin(self.task(program, surface))

    def judge(self, program: Program, surface: str) -> Measured:
        """The word on one, begun now or before. Raises KirError where the whole engine is gone."""
        return self._said(self.task(program, surface))

    def again(self, program: Program, surface: str) -> Measured:
        """The word on one that was right before. What else was begun is not asked for any more: a search ends with this. Raises as `judge` does."""
        for begun in self._begun.values():
            self.engine.withdraw(begun)
        self._begun.clear()
        return self._said(replace(cast(Any, self.task(program, surface)), again=True))

    def _said(self, task: Job) -> Measured:
        key, ended = task.key, 0
        while key not in self.known:
            self._begin(task)
            try:
                self.known[key] = Measured.from_json(self.engine.result(self._begun.pop(key), self.patience))
            except TimeoutError:
                self.known[key] = _refused(f"it takes more than {self.patience:g} s to judge")
                if self.engine.again():
                    self._begun.clear()
            except MemoryError:  # its worker lives: others may have had the memory
                ended += 1
                if ended >= LIVES or self.engine.parallel == 1:
                    self.known[key] = _refused("the process that judges it runs out of memory")
            except Lost as gone:
                self.lost += 1
                ended += gone.alone or not self._begun
                if self.engine.again():
                    self._begun.clear()
                if ended >= LIVES:
                    self.known[key] = _refused("it ends the process that judges it")
        return self.known[key]

    def _begin(self, task: Job) -> None:
        if task.key not in self._begun and task.key not in self.known:
            self._begun[task.key] = self.engine.begin(self.work, task)

    def close(self) -> None:
        """End the workers."""
        self._begun.clear()
        self.engine.close()


def _refused(reason: str) -> Measured:
    return Measured(math.inf, accepted=False, reason=reason)
