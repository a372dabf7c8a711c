"""How a figure is taken: the best of several runs, each timed alone, and what it is held against."""

from __future__ import annotations

import os
import pickle
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

P = TypeVar("P")
T = TypeVar("T")


def cores() -> str:
    """The processors that this runs on: how many of how many, and their name."""
    info = Path("/proc/cpuinfo")
    names = [x.partition(":")[2].strip() for x in info.read_text(encoding="utf-8").splitlines() if x.startswith("model name")] if info.exists() else []
    own, all_of_them = len(os.sched_getaffinity(0)), os.cpu_count()
    return f"{own}{f' of {all_of_them}' if own != all_of_them else ''} cores of {names[0] if names else platform.machine()}"


@dataclass(frozen=True)
class Figure:
    """One row of the table. ``value`` in ``unit``; ``bound`` is what is asked for, ``most`` whether it is an upper bound.

    ``note`` says what was measured, or, with ``value`` None, why it was not.
    """

    what: str
    value: float | None
    unit: str
    bound: float | None = None
    most: bool = True
    note: str = ""

    @property
    def met(self) -> str:
        """``yes``, ``no``, or nothing where there is no bound or no value."""
        if self.value is None or self.bound is None:
            return ""
        return "yes" if (self.value <= self.bound if self.most else self.value >= self.bound) else "no"

    def row(self) -> str:
        """The row in Markdown."""
        asked = "" if self.bound is None else f"{'under' if self.most else 'at least'} {self.bound:,g} {self.unit}"
        value = "not measured" if self.value is None else f"{self.value:,.0f} {self.unit}" if self.value >= 1000 else f"{self.value:.4g} {self.unit}"
        return f"| {self.what} | {value} | {asked} | {self.met} | {self.note} |"


def best_of_new(action: Callable[[P], T], program: P, runs: int = 5, clock: Callable[[], float] = time.perf_counter) -> tuple[float, T]:
    """As `best`, of an action on a program: each run gets a copy that nothing was worked out for."""
    copies = [pickle.loads(pickle.dumps(program)) for _ in range(runs)]
    return best(lambda: action(copies.pop()), runs, clock)


def best(action: Callable[[], T], runs: int = 5, clock: Callable[[], float] = time.perf_counter) -> tuple[float, T]:
    """Seconds of the fastest of several runs, and the last run's value. ``clock`` may be ``time.process_time``, for work of one thread that
    waits for nothing: on a machine that others use too, only that is the work's own."""
    fastest, value = float("inf"), None
    for _ in range(runs):
        start = clock()
        value = action()
        fastest = min(fastest, clock() - start)
    assert value is not None or runs
    return fastest, value  # type: ignore[return-value]  # at least one run was made
