"""Looking ahead: in which order passes are taken back so that the walk does not end in a dead end.

Taking a pass back is cheap, the gate is not. So the walk is first gone through without the gate. Where the order that the
declarations give ends before naive, sets of passes are put off, small ones first, and the order that comes nearest to naive is
kept: fewest violations of N, then the smallest measure. The search is bounded in descents and depends on nothing but the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

from kir.diagnostic import KirError
from kir.ir.nodes import Program
from kir.lineage.record import Violation
from kir.lineage.walk import Candidate, Move

MOST_DESCENTS = 120
MOST_DELAYED = 4
MOST_STEPS = 400


class Ground(Protocol):
    """What a descent needs of the engine."""

    def candidates(self, program: Program, delayed: Sequence[str] = ()) -> Iterable[Candidate]: ...
    def backward(self, program: Program, candidate: Candidate) -> Move: ...
    def content(self, program: Program) -> str: ...
    def measure(self, program: Program) -> tuple[int, ...]: ...
    def violations(self, program: Program) -> Sequence[Violation]: ...


@dataclass(frozen=True)
class Descent:
    """Where one order leads: the passes used, in order of first use, and how far from naive the last program is."""

    delayed: tuple[str, ...]
    used: tuple[str, ...]
    violations: int
    measure: tuple[int, ...]

    @property
    def score(self) -> tuple[int, tuple[int, ...]]:
        """Smaller is nearer to naive."""
        return self.violations, self.measure


def plan(program: Program, engine: Ground, most: int = MOST_DESCENTS, told: Callable[[str], None] = lambda text: None) -> Descent:
    """The best order found: passes named in ``delayed`` are taken back only when no other can be.

    Sets of passes to put off are tried by size, those used in the best descent so far first.
    """
    best = descend(program, engine, ())
    known = list(best.used)
    tried: set[tuple[str, ...]] = {()}
    spent, size = 1, 1
    while best.violations and spent < most and size <= min(MOST_DELAYED, len(known)):
        for names in combinations(known, size):
            if names in tried or spent >= most:
                continue
            tried.add(names)
            spent += 1
            found = descend(program, engine, names)
            known += [name for name in found.used if name not in known]
            told(f"put off {', '.join(names)}: {found.violations} violations left")
            if found.score < best.score:
                best = found
            if not best.violations:
                return best
        size += 1
    return best


def descend(program: Program, engine: Ground, delayed: tuple[str, ...]) -> Descent:
    """Take passes back, the first that can be each time, until none can."""
    seen = {engine.content(program)}
    used: dict[str, None] = {}
    for _ in range(MOST_STEPS):
        if not engine.violations(program):
            break
        step = _first(program, engine, delayed, seen)
        if step is None:
            break
        name, program = step
        used.setdefault(name)
        seen.add(engine.content(program))
    return Descent(delayed, tuple(used), len(engine.violations(program)), engine.measure(program))


def _first(program: Program, engine: Ground, delayed: Sequence[str], seen: set[str]) -> tuple[str, Program] | None:
    measure = engine.measure(program)
    for candidate in engine.candidates(program, delayed):
        try:
            made = engine.backward(program, candidate).program
        except KirError:
            # A pass that refuses here is no step of this descent; the walk proper records the refusal.
            continue
        if engine.measure(made) < measure and engine.content(made) not in seen:
            return candidate.name, made
    return None
