"""Budgets: dollars, tokens, seconds and attempts, for one call, one carrier and one run. Checked against the worst case before each call,
settled afterwards; what would not fit is not begun.

Meters form a chain (call in carrier in run) and share one lock, so that parallel fills cannot overdraw together. Seconds are wall time
since a meter was made.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import field
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error

Clock = Callable[[], float]
NOTHING = Decimal(0)


class Limits(BaseModel):
    """What may be spent; None is no limit. Attempts are requests sent, those that failed included."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    dollars: Decimal | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    seconds: float | None = Field(default=None, ge=0)
    attempts: int | None = Field(default=None, ge=0)


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Spent:
    """An amount: dollars, tokens in and out, attempts."""

    dollars: Decimal = NOTHING
    input: int = 0
    output: int = 0
    attempts: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.dollars + other.dollars, self.input + other.input, self.output + other.output, self.attempts + other.attempts)

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.dollars - other.dollars, self.input - other.input, self.output - other.output, self.attempts - other.attempts)

    @property
    def tokens(self) -> int:
        return self.input + self.output

    def to_json(self) -> dict[str, Any]:
        """A JSON object; dollars as text, exactly."""
        return {"dollars": shown(self.dollars), "input": self.input, "output": self.output, "attempts": self.attempts}


def shown(dollars: Decimal) -> str:
    """An amount as text, without an exponent or idle zeros."""
    text = f"{dollars:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True)
class Entry:
    """One settled call: the carrier's name, what it was, what was set aside, what it cost, and a note on how that is known."""

    meter: str
    what: str
    worst: Spent
    actual: Spent
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"carrier": self.meter, "what": self.what, "worst": self.worst.to_json(), "actual": self.actual.to_json(), "note": self.note}


NO_COST = Spent()


@dataclass
class Reservation:
    """An amount that is set aside until `settle` says what it came to. Settling twice is an error of the caller."""

    meter: Meter
    what: str
    worst: Spent
    open: bool = True

    def settle(self, actual: Spent, note: str = "") -> None:
        """Replace the worst case by what was spent (an attempt counts in any case)."""
        assert self.open, "a reservation is settled once"
        self.open = False
        with self.meter.lock:
            for m in self.meter.chain():
                m.reserved -= self.worst
                m.spent += actual
            self.meter.root.entries.append(Entry(self.meter.name, self.what, self.worst, actual, note))


@dataclass
class Meter:
    """What was spent under some limits, and under those of its parents."""

    name: str
    limits: Limits = NO_LIMITS
    parent: Meter | None = None
    clock: Clock = time.monotonic
    spent: Spent = NO_COST
    reserved: Spent = NO_COST
    entries: list[Entry] = field(default_factory=list)
    begun: float = field(init=False)
    lock: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.clock = self.parent.clock if self.parent is not None else self.clock
        self.lock = self.parent.lock if self.parent is not None else threading.RLock()
        self.begun = self.clock()

    def child(self, name: str, limits: Limits) -> Meter:
        """A meter inside this one."""
        return Meter(name, limits, self)

    def chain(self) -> Iterator[Meter]:
        """This meter and those around it, innermost first."""
        m: Meter | None = self
        while m is not None:
            yield m
            m = m.parent

    @property
    def root(self) -> Meter:
        """The outermost meter, which keeps the entries."""
        return list(self.chain())[-1]

    def seconds_left(self) -> float | None:
        """Until the first deadline of the chain; None without one."""
        left = [m.limits.seconds - (m.clock() - m.begun) for m in self.chain() if m.limits.seconds is not None]
        return min(left) if left else None

    def reserve(self, what: str, worst: Spent) -> Reservation:
        """Set the worst case of a call aside. Raises KirError KIR-H201, with what was spent on what, when a limit of the chain forbids it."""
        with self.lock:
            for m in self.chain():
                m._must_allow(what, worst)
            for m in self.chain():
                m.reserved += worst
        return Reservation(self, what, worst)

    def _must_allow(self, what: str, worst: Spent) -> None:
        held, limits = self.spent + self.reserved, self.limits
        if limits.dollars is not None and held.dollars + worst.dollars > limits.dollars:
            raise self._stop(what, f"may cost ${shown(worst.dollars)}, and ${shown(limits.dollars - held.dollars)} of ${shown(limits.dollars)} is left")
        if limits.tokens is not None and held.tokens + worst.tokens > limits.tokens:
            raise self._stop(what, f"may take {worst.tokens} tokens, and {limits.tokens - held.tokens} of {limits.tokens} are left")
        if limits.attempts is not None and held.attempts + worst.attempts > limits.attempts:
            raise self._stop(what, f"would be attempt {held.attempts + worst.attempts} of {limits.attempts}")
        if limits.seconds is not None and self.clock() - self.begun >= limits.seconds:
            raise self._stop(what, f"comes after the {limits.seconds:g} s that are allowed")

    def _stop(self, what: str, why: str) -> KirError:
        return error("KIR-H201", f"{what} {why}: the budget of the {self.name} ends here", witness=tuple(self.root.lines()),
                     needs="a larger budget, a cheaper model, or a smaller max_tokens")

    def charge(self, what: str, actual: Spent, note: str = "") -> None:
        """Count what was spent before this process began; limits are not asked."""
        with self.lock:
            for m in self.chain():
                m.spent += actual
            self.root.entries.append(Entry(self.name, what, actual, actual, note))

    def lines(self) -> Iterator[str]:
        """What was spent on what, a line each, and the sum."""
        for e in self.entries:
            yield f"{e.meter}: {e.what}: ${shown(e.actual.dollars)}, {e.actual.input} + {e.actual.output} tokens{f' ({e.note})' if e.note else ''}"
        total = self.spent
        yield f"in all: ${shown(total.dollars)}, {total.input} + {total.output} tokens, {total.attempts} attempts"

    def to_json(self) -> dict[str, Any]:
        """A JSON object: limits, the sum, and each entry."""
        return {"limits": self.limits.model_dump(mode="json", exclude_none=True), "spent": self.spent.to_json(),
                "entries": [e.to_json() for e in self.entries]}
