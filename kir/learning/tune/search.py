"""Best-first search under a budget of measurements, resumable from its log.

The next candidate is the one that seems fastest: the cost model's seconds, corrected by how wrong the model was on what has been measured,
nearest points counting most. Of candidates that seem alike, the one least like the measured ones goes first.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any, Protocol

from kir.base.dataclass import dataclass
from kir.base.store import Log
from kir.learning.forecast.choosing import Spent
from kir.learning.tune.rank import Candidate, similarity

ALIKE = 0.03
"""Candidates whose estimates differ by less than this are told apart by novelty."""
FAR, APART = 3.0, 4
"""How many times slower than the fastest a candidate may be estimated that is measured because it is unlike all others: one of so many at a time."""
SHARPNESS = 4.0
"""How much faster the weight of a measured point falls than its similarity."""


@dataclass(frozen=True)
class Measured:
    """What one measurement said: seconds with their 95 % interval, or why the gate refused (then `seconds` is infinite)."""

    seconds: float
    low: float = 0.0
    high: float = 0.0
    accepted: bool = True
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object; an infinite time is null."""
        return {k: (None if isinstance(v, float) and math.isinf(v) else v) for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Measured:
        """The inverse of `to_json`."""
        seconds = row["seconds"]
        return cls(math.inf if seconds is None else float(seconds), float(row["low"] or 0), float(row["high"] or 0), bool(row["accepted"]),
                   str(row["reason"]))


SECONDS = 2.0
"""About how long one measurement takes: a gate's runs, and samples of the time."""


def left_after(budget: int, spent: Spent) -> int:
    """The measurements that a budget still holds after forecasts that took so long; at least one, so that something is measured."""
    return max(min(1, budget), budget - int(spent.seconds / SECONDS))


class Measurer(Protocol):
    """What measures: a device through the gate, or something else in tests."""

    @property
    def device(self) -> str:
        """The name under which results are kept."""

    def prepare(self, candidates: Sequence[Candidate]) -> None:
        """What may be done for several at once before they are measured (compiling)."""

    def measure(self, candidate: Candidate) -> Measured:
        """The gate's word on one candidate."""


@dataclass
class Outcome:
    """What a search found: measurements in order (those taken over from the log too), and the best."""

    taken: list[tuple[Candidate, Measured]] = field(default_factory=list)
    resumed: int = 0

    @property
    def best(self) -> tuple[Candidate, Measured] | None:
        """The fastest accepted candidate."""
        right = [x for x in self.taken if x[1].accepted]
        return min(right, key=lambda x: x[1].seconds) if right else None


def search(candidates: Sequence[Candidate], measurer: Measurer, budget: int, log: Log | None = None, about: Mapping[str, Any] | None = None,
           batch: int = 1, told: Callable[[Candidate, Measured], None] | None = None) -> Outcome:
    """Measure up to `budget` candidates, best-first, `batch` at a time between corrections.

    Measurements of the same program for the same `about` (device, problem, sizes) that `log` holds are taken over and count; new ones are
    added to it as they come, so that a killed search goes on where it was."""
    subject = {**(about or {}), "device": measurer.device}
    known = _known(log, subject) if log is not None else {}
    outcome = Outcome()
    left = list(candidates)
    while left and len(outcome.taken) < budget:
        chosen = _next(left, outcome.taken, min(batch, budget - len(outcome.taken)))
        measurer.prepare([c for c in chosen if c.key not in known])
        for c in chosen:
            left.remove(c)
            if c.key in known:
                found = known[c.key]
                outcome.resumed += 1
            else:
                found = measurer.measure(c)
                if log is not None:
                    log.append({"schema": "kir.tune/1", **subject, "program": c.key, "point": dict(c.point), "modelled": c.seconds, **found.to_json()})
            outcome.taken.append((c, found))
            if told is not None:
                told(c, found)
    return outcome


def _known(log: Log, subject: Mapping[str, Any]) -> dict[str, Measured]:
    return {row["program"]: Measured.from_json(row) for row in log.records() if all(row.get(k) == v for k, v in subject.items())}


def _next(left: Sequence[Candidate], taken: Sequence[tuple[Candidate, Measured]], count: int) -> list[Candidate]:
    """The candidates that seem fastest now; of `APART` and more, once some are measured, the last one is that which is least like all of them, for where the
    model is wrong about something that all of the fastest have in common nothing that is like them says so."""
    names = list(left[0].point)
    seen = [(c.point, math.log(m.seconds / c.seconds)) for c, m in taken if m.accepted and math.isfinite(c.seconds) and m.seconds > 0]
    refused = [c.point for c, m in taken if not m.accepted]

    def estimate(c: Candidate) -> float:
        if not seen:
            return c.seconds
        weights = [similarity(c.point, p, names) ** SHARPNESS + 1e-6 for p, _ in seen]
        correction = sum(w * wrong for w, (_, wrong) in zip(weights, seen, strict=True)) / sum(weights)
        return c.seconds * math.exp(correction)

    estimates = {id(c): estimate(c) for c in left}
    chosen: list[Candidate] = []
    points = [*(c.point for c, _ in taken)]
    while len(chosen) < count and len(chosen) < len(left):
        rest = [c for c in left if not any(c is x for x in chosen)]
        best = min(estimates[id(c)] for c in rest)
        if taken and len(chosen) == APART - 1 and math.isfinite(best):
            near = [c for c in rest if estimates[id(c)] <= FAR * best]
            chosen.append(min(near, key=lambda c: (max(similarity(c.point, p, names) for p in points), estimates[id(c)])))
            points.append(chosen[-1].point)
            continue
        alike = [c for c in rest if estimates[id(c)] <= best * (1 + ALIKE)] or rest
        pick = min(alike, key=lambda c: (max((similarity(c.point, p, names) for p in refused), default=0.0) > 0.9,
                                         max((similarity(c.point, p, names) for p in points), default=0.0)))
        chosen.append(pick)
        points.append(pick.point)
    return chosen
