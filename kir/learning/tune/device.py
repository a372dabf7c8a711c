"""Measuring candidates on a device: each goes through the GPU gate, without the interpreter's runs and without the panel."""
from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.learning.tune.rank import Candidate
from kir.learning.tune.search import Measured
from kir.problem import Problem, Shape

if TYPE_CHECKING:
    from kir.gate import Verdict
    from kir.gate.gpu import Gpu
    from kir.gate.gpu.oracle import Shared

BUDGET = 0.3
"""Seconds for the samples of one candidate; the winner is measured again, longer, with the panel beside it."""


@dataclass
class DeviceMeasurer:
    """A device that measures candidates of a problem at one shape."""

    gpu: Gpu
    problem: Problem
    shape: Shape
    surface: str
    budget: float = BUDGET
    judged: Shape | None = None
    """Where the oracle cannot compute `shape`: the shape at which the winner is gated in its place; at `shape` candidates are timed alone."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """What the whole gate said at `judged`, by the hash of the program: measurers of several shapes may have it in common."""
    shared: Shared | None = None
    """What the gates of one search have in common; the winner's stands alone."""
    spent: dict[str, float] = field(default_factory=dict)
    """Seconds of all gates by their stages, compiling side by side before them (`prepare`), and the whole gates of winners (`winner`)."""

    @property
    def device(self) -> str:
        """The device's name, as the target table has it."""
        return self.gpu.target.device.name

    def prepare(self, candidates: Sequence[Candidate]) -> None:
        """Compile side by side what the gate will ask for; what does not compile is left to the gate to refuse."""
        from kir.surface import backend

        by, begun = backend(self.surface), time.perf_counter()
        texts = []
        for c in candidates:
            with contextlib.suppress(KirError):
                texts.append(by.launched_with(by.emit(c.program), self.shape.sizes))
        with contextlib.suppress(KirError):
            self.gpu.compiled(by, texts)
        self._took("prepare", time.perf_counter() - begun)

    def measure(self, candidate: Candidate) -> Measured:
        """The gate's word: correctness at secret shapes, then time at the shape."""
        from kir.gate.gpu import Options, gate_gpu

        options = Options(shapes=(self.shape.name,), panel=False, sanitize=False, budget=self.budget, interpret=False, replay=self.judged is None,
                          shared=self.shared, reuse=self.shared is not None)
        verdict = gate_gpu(self.gpu, candidate.program, self.problem, self.surface, options=options)
        for stage, seconds in (verdict.device.seconds if verdict.device else {}).items():
            self._took(stage, seconds)
        return told(verdict, self.shape)

    def gated(self, candidate: Candidate) -> Verdict:
        """The whole gate for the winner: interpreter, compute-sanitizer, panel of references; at `judged`, where it is given, without the panel."""
        from kir.gate.gpu import Options, gate_gpu

        begun = time.perf_counter()
        try:
            if self.judged is None:
                return gate_gpu(self.gpu, candidate.program, self.problem, self.surface, options=Options(shapes=(self.shape.name,)))
            if candidate.key not in self.verdicts:
                options = Options(shapes=(self.judged.name,), panel=False)
                self.verdicts[candidate.key] = gate_gpu(self.gpu, candidate.program, with_shape(self.problem, self.judged), self.surface, options=options)
            return self.verdicts[candidate.key]
        finally:
            self._took("winner", time.perf_counter() - begun)

    def _took(self, stage: str, seconds: float) -> None:
        self.spent[stage] = self.spent.get(stage, 0.0) + seconds


def told(verdict: Verdict, shape: Shape) -> Measured:
    """A verdict as a measurement."""
    row = next((r for r in verdict.profile if r.kind == "measured" and r.shape == shape.name), None)
    if not verdict.accepted or row is None or row.interval is None:
        return Measured(math.inf, accepted=False, reason=verdict.reason)
    return Measured(row.seconds, *row.interval)


def with_shape(problem: Problem, shape: Shape) -> Problem:
    """The problem with one shape more, where it does not list it."""
    if any(s.name == shape.name for s in problem.shapes):
        return problem
    return replace(problem, spec=problem.spec.model_copy(update={"shapes": (*problem.shapes, shape)}))
