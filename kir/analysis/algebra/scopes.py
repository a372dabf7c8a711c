"""What names stand for while a program runs with symbols, what counts who has come, and what leaves a block early."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kir.analysis.algebra.memory import Array
from kir.analysis.algebra.terms import Undecided, Value
from kir.base.dataclass import dataclass


class Jumped(Exception):
    """A break, continue or return on its way."""

    def __init__(self, kind: str, values: tuple[Value, ...] = ()) -> None:
        self.kind, self.values = kind, values


@dataclass(eq=False)
class Scope:
    """What names stand for in one instance of a team; `number` is its own among its siblings, `told` results of calls that others take part in."""

    parent: Scope | None = None
    names: dict[str, Any] = field(default_factory=dict)
    level: str = "cta"
    number: int = 0
    told: dict[int, Value] = field(default_factory=dict)
    shared: dict[int, Array] = field(default_factory=dict)
    """Shared memory of the CTA, by declaration."""

    def find(self, name: str) -> Any:
        """What a name stands for. Raises Undecided for one that is not known."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        raise Undecided(f"'{name}' is not known")

    def child(self, names: Mapping[str, Any] | None = None, level: str = "", number: int = -1) -> Scope:
        """A scope inside."""
        return Scope(self, dict(names or {}), level or self.level, self.number if number < 0 else number, self.told if not level else {}, self.shared)


@dataclass(eq=False)
class Counter:
    """An mbarrier, or a named barrier."""

    expected: int
    pending: int
    bytes: int = 0
    phase: int = 0

    def settle(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = self.phase + 1, self.expected
