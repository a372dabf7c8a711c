"""A faster kernel from a script: `kir optimize` as a call, gated and modelled on the CPU."""
from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.faces.api.kernels import Kernel, Shown, Source, emit, read
from kir.gate.gpu.relative import program_problem
from kir.gate.proved.unsaid import require_own
from kir.hardware.target import target as named
from kir.learning.optimize.events import Recorder
from kir.learning.optimize.inputs import Subject, shape_for, sizes_in, subject
from kir.learning.optimize.judge import CpuJudge
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.policy import load
from kir.learning.optimize.report import data, lines
from kir.learning.optimize.search import Budget, Found, Search
from kir.learning.tune.device import with_shape
from kir.problem import load_problem
from kir.rewrite import Trace
from kir.rewrite.residue import Residue
from kir.surface.launches.values import asked_at


@dataclass(frozen=True, repr=False)
class Faster(Shown):
    """What a search came to. `kernel` is the best one, None where nothing is faster; `steps` what was done, in order."""

    found: Found

    @cached_property
    def kernel(self) -> Kernel | None:
        """The best kernel, right under the gate."""
        best = self.found.best
        return None if best is None else Kernel(Trace(best.program), best.program.name, best.surface)

    @property
    def speedup(self) -> float:
        """Modelled seconds of the kernel as given over those of the best; 1 where nothing is faster."""
        return self.found.speedup

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that lead there, as a pipeline writes them."""
        taken = self.found.best.steps if self.found.best is not None else ()
        return tuple(str(replace(step, residue=Residue(), path=None, hash="")) for step in taken)

    @property
    def text(self) -> str:
        """The best kernel as text of its surface; "" where nothing is faster."""
        return emit(self.kernel) if self.kernel is not None else ""

    def __str__(self) -> str:
        return "\n".join(lines(data(self.found)))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": f"<pre>{escape(str(self))}</pre>"}


def optimize(kernel: Source = "", problem: str = "", *, shape: str = "", surface: str = "", target: str = "h200", candidates: int = 20, seconds: float = 180.0,
             compiles: bool = True) -> Faster:
    """A faster kernel, searched for under a budget; every candidate passes the CPU gate, and times are modelled. Without a kernel the naive program of the
    problem is made faster; without a problem the kernel itself says what is right. Raises :class:`KirError` as `kir optimize` does."""
    with asked_at(sizes_in(shape)):
        one = _subject(kernel, problem)
    at = shape_for(one, shape)
    setting = Setting(with_shape(one.problem, at), at, named(target), "" if surface == "any" else surface or one.surface)
    judge = CpuJudge(setting, None, compiles)
    allowed = Budget(candidates=candidates, seconds=seconds)
    return Faster(Search(one.program, setting, judge, policy=load(None), budget=allowed, recorder=Recorder.over(None), given_surface=one.surface).run())


def _subject(kernel: Source, problem: str) -> Subject:
    """What `kir optimize` would begin with."""
    if isinstance(kernel, (str, Path)) and not str(kernel).lstrip().startswith("kir 1"):
        return subject(str(kernel), None, problem)
    held = read(kernel)
    wanted: Any = load_problem(problem) if problem else None
    require_own(held.program, held.unsaid, held.joined, wanted)
    return Subject(held.program, wanted or program_problem(held.program, held.program), "" if held.surface == "kir" else held.surface)
