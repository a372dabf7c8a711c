"""What a search looks at, a candidate, and what it comes to."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from kir.base.dataclass import dataclass
from kir.ir.nodes import Program
from kir.learning.forecast import Forecast
from kir.learning.forecast.choosing import Spent
from kir.learning.optimize.lift import Left
from kir.learning.optimize.plan import Plan, Setting
from kir.learning.optimize.policy import Trust, promise
from kir.learning.optimize.starts import Start
from kir.learning.tune.search import Measured
from kir.rewrite import Step


@dataclass
class Candidate:
    """A program that a plan gave. `forecast` is over the kernel as given; `left` are the steps that could not be taken."""

    key: str
    program: Program
    surface: str
    start: Start
    plan: Plan
    steps: tuple[Step, ...]
    left: tuple[Left, ...]
    seconds: float
    forecast: Forecast
    features: Mapping[str, float]
    number: int = 0
    measured: Measured | None = None
    parent: str = ""
    off: float = 1.0  # what the forecast was multiplied with: what those of the family were wrong by elsewhere

    @property
    def share(self) -> float:
        """The part of the plan's steps that was taken, 0 to 1."""
        return len(self.steps) / max(1, len(self.steps) + len(self.left))

    @property
    def time(self) -> float:
        """Seconds as they were gated, else as they are forecast."""
        return self.measured.seconds if self.measured is not None else self.seconds


@dataclass
class Found:
    """What a search came to: the baseline, the best (None where nothing is faster), every candidate that was gated, and why it ended."""

    setting: Setting
    baseline: Candidate
    best: Candidate | None
    tried: list[Candidate] = field(default_factory=list)
    built: int = 0
    pruned: Mapping[str, int] = field(default_factory=dict)
    ended: str = ""
    events: Sequence[Mapping[str, Any]] = ()
    spent: Spent = field(default_factory=Spent)
    measures: bool = False
    """Whether times were measured, and not modelled."""
    unjudged: Candidate | None = None
    """Where nothing is known to be faster: what would have been judged next, and seems to be."""
    slight: Candidate | None = None
    """Where nothing is faster by as much as a modelled time may err: what was right, and is faster by less."""

    took: tuple[float, float] = (0.0, 0.0)
    """Seconds of this run, and those of them that compilers, the gate and the device took."""
    trust: Trust | None = None
    """Where times were modelled: how long kernels by plans like that of the best took on a device."""

    @property
    def speedup(self) -> float:
        """Seconds of the kernel as given over those of the best; 1 where nothing is faster."""
        return self.baseline.time / self.best.measured.seconds if self.best is not None and self.best.measured is not None else 1.0


def seeming(c: Candidate) -> tuple[int, int]:
    """What candidates are ordered by before any is gated."""
    return promise(c.seconds, c.share, c.number)


__all__ = ["Candidate", "Found", "seeming"]
