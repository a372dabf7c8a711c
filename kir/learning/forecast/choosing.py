"""Which forecaster answers, what was spent on it, and candidates put in order by it."""
from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, did_you_mean, error, usage
from kir.hardware.target import Target
from kir.ir.nodes import Program
from kir.learning.forecast.analytic import Analytic
from kir.learning.forecast.distribution import Forecast, Forecaster, Pair
from kir.learning.forecast.features import sized

MODELS = ("analytic", "learned", "language")
REFERENCES = 3
"""Candidates that each other one is compared with, where several are put in order."""


@dataclass
class Spent:
    """What forecasts have cost: how many, seconds, and dollars where a language model was asked."""

    forecasts: int = 0
    seconds: float = 0.0
    dollars: float = 0.0

    def to_json(self) -> dict[str, float]:
        """A JSON object."""
        return {"forecasts": self.forecasts, "seconds": round(self.seconds, 6), "dollars": round(self.dollars, 6)}


@dataclass
class Counted:
    """A forecaster that counts what it costs, for a search to charge to its budget: processor time, which others on the machine do not lengthen, or what passes
    where it `waits` for another machine. `note` says why it is not the one that was hoped for."""

    of: Forecaster
    note: str = ""
    spent: Spent = field(default_factory=Spent)

    @property
    def name(self) -> str:
        """That of the forecaster inside."""
        return self.of.name

    def __call__(self, pair: Pair) -> Forecast:
        """Its forecast, charged. Raises KirError KIR-E007 for sizes that are no launch, KIR-E009 for programs that do not take the same ones."""
        comparable(pair)
        clock = time.perf_counter if getattr(self.of, "waits", False) else time.thread_time
        began = clock()
        try:
            found = self.of(pair)
        finally:
            self.spent.forecasts += 1
            self.spent.seconds += clock() - began
            self.spent.dollars = float(getattr(self.of, "dollars", 0.0))
        return found


def comparable(pair: Pair) -> None:
    """Raises KirError KIR-E007, KIR-E009 for what is no pair."""
    taken = [{p.name for p in program.params if p.role == "size" and p.value is None} for program in (pair.before, pair.after)]
    if taken[0] and taken[1] and taken[0].isdisjoint(taken[1]):
        raise error("KIR-E009", f"'{pair.before.name}' takes sizes {', '.join(sorted(taken[0]))}, and '{pair.after.name}' {', '.join(sorted(taken[1]))}",
                    needs="two programs of one kernel")
    for program in (pair.before, pair.after):
        sized(program, pair.sizes)


def forecaster(name: str = "") -> Counted:
    """A forecaster by name; without one the learned one, or where that cannot be had the analytic one, which says so in `note`.

    Raises UsageError KIR-C005 for another name, KirError KIR-E005 for a named model that does not fit."""
    if name == "analytic":
        return Counted(Analytic())
    if name == "language":
        from kir.learning.forecast.language import Language
        return Counted(Language.of_settings())
    if name not in ("", "learned"):
        raise usage("KIR-C005", f"there is no model '{name}'; {did_you_mean(name, MODELS)}".rstrip("; "), needs=f"one of {', '.join(MODELS)}")
    try:
        from kir.learning.forecast.learned import Learned
        return Counted(Learned())
    except KirError as bad:
        if name:
            raise
        return Counted(Analytic(), f"the analytic model answers: {bad.diagnostics[0].message}")
    except ImportError as bad:
        return Counted(Analytic(), f"the analytic model answers: {bad}")


def in_order(programs: Sequence[Program], sizes: Mapping[str, int], target: Target, ask: Forecaster, surface: str = "cuda") -> list[tuple[float, Forecast]]:
    """What each program is worth beside the others, in their order: the logarithm of its speed over the references', less for what is likely to fail; and
    its forecast against the first reference. References are the first, the last and the middle one; a program of itself is worth nothing more."""
    if not programs:
        return []
    places = sorted({round(i * (len(programs) - 1) / max(1, REFERENCES - 1)) for i in range(REFERENCES)})
    worth = [0.0] * len(programs)
    first: list[Forecast] = []
    offset = 0.0
    for place in places:
        found = [ask(Pair(programs[place], p, sizes, target, "", surface)) for p in programs]
        first = first or found
        offset = _log(found[places[0]])
        for i, each in enumerate(found):
            worth[i] += (_log(each) - offset) / len(places)
    return [(w - FAILING * each.fails, each) for w, each in zip(worth, first, strict=True)]


FAILING = 2.0
"""What a certain failure counts like: so many units of the natural logarithm slower."""


def _log(found: Forecast) -> float:
    return math.log(found.median) if math.isnan(found.speed) else found.speed
