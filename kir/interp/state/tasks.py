"""Coroutines, and the barriers at which they wait: of teams, named barriers, mbarriers."""
from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import field
from typing import Any

import numpy as np

from kir.base.dataclass import dataclass
from kir.interp.numerics.number import Array
from kir.ir.nodes import Stmt


@dataclass
class Wait:
    """A coroutine goes on once `ready()` holds; `what` says what it waits for."""

    ready: Callable[[], bool]
    what: str
    spinning: bool = False


Steps = Generator[Wait, None, None]


@dataclass(eq=False)
class Task:
    """A running coroutine: a CTA, a role, a warp."""

    name: str
    steps: Steps
    wait: Wait | None = None
    done: bool = False
    site: Stmt | None = None


@dataclass
class Team:
    """Threads split into coroutines that meet at `barrier()`: it opens when all that have not left have arrived."""

    size: int
    left: int = 0
    arrived: int = 0
    generation: int = 0
    agents: list[Array] = field(default_factory=list)

    def arrive(self, count: int, agents: Array | None) -> int:
        """`count` threads arrive; returns the generation to wait out."""
        self.arrived += count
        if agents is not None:
            self.agents.append(agents)
        return self.generation


@dataclass
class NamedBarrier:
    """A hardware barrier 0 .. 15, or a cluster's: opens when `expected` threads have arrived."""

    expected: int = 0
    arrived: int = 0
    generation: int = 0
    clock: Any = None
    opened: Any = None


@dataclass
class Mbarrier:
    """A shared-memory barrier object (PTX ISA 9.7.13.15): the phase completes when no arrivals and no bytes are outstanding.
    `clock` gathers what arrivals publish in this phase; `completed` is what the last completed phases published."""

    name: str
    expected: int
    pending: int
    tx: int = 0
    phase: int = 0
    clock: Any = None
    completed: Any = None
    flying: int = 0

    def settle(self) -> None:
        """Completes the phase if nothing is outstanding."""
        if self.pending == 0 and self.tx == 0:
            self.phase += 1
            self.pending = self.expected
            self.completed, self.clock = self.clock, None

    def passed(self, parity: int) -> bool:
        """Whether the phase of that parity has completed: what `mbarrier.try_wait.parity` tests."""
        return self.phase & 1 != parity & 1


def groups_of(numbers: Array, size: int) -> list[Array]:
    """Positions of lanes by the group of `size` consecutive numbers that they belong to (restarting wherever numbers restart)."""
    keys = np.cumsum(np.concatenate([[0], (numbers[1:] <= numbers[:-1]).astype(np.int64)])) * (1 << 20) + numbers // size
    return [np.flatnonzero(keys == k) for k in np.unique(keys)]
