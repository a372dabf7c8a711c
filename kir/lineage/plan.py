"""Looking ahead: in which order passes are undone so that the walk does not end in a dead end.

Taking a pass back is cheap, the gate is not. So the walk is first gone through without the gate. Where the order that the
declarations give ends before naive, passes are put off, beginning where the walk came nearest to naive (fewest violations of N, then
the smallest measure), and the best order is kept. The search is bounded in descents and depends on nothing but the program.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Protocol

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir.nodes import Program
from kir.lineage.candidates import Candidate
from kir.lineage.records.record import Violation
from kir.lineage.walk import Move

MOST_PROGRAMS = 600
"""Distinct programs that the search goes through at most: each has its sites looked for once, and that is what takes time."""
MOST_DESCENTS = 1000
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


def plan(program: Program, engine: Ground, most: int = MOST_PROGRAMS, told: Callable[[str], None] = lambda text: None,
         late: Callable[[], bool] = lambda: False, first: Collection[str] = ()) -> Descent:
    """The best order found: passes named in ``delayed`` are undone only when no other can be, the last of them last.

    What to put off beside what is put off already is asked first of the descents that came nearest to naive. A pass that a descent did
    not use is not put off in it: that would change nothing. Passes named in ``first`` are put off before others. The search ends when ``most`` programs
    have been seen, or it is ``late``.
    """
    seen: set[str] = set()
    best = descend(program, engine, (), seen, late)
    waiting: list[tuple[tuple[int, tuple[int, ...]], int, int, Descent]] = [(best.score, 0, 0, best)]
    tried: set[tuple[str, ...]] = {()}
    while best.violations and waiting:
        *_, parent = heappop(waiting)
        for names in _more(parent, first):
            if names in tried or len(seen) >= most or len(tried) >= MOST_DESCENTS or late():
                continue
            tried.add(names)
            found = descend(program, engine, names, seen, late)
            told(f"put off {', '.join(names)}: {found.violations} violations left")
            if found.score < best.score:
                best = found
            if not best.violations:
                return best
            if len(names) < MOST_DELAYED:
                heappush(waiting, (found.score, len(names), len(tried), found))
    return best


def _more(parent: Descent, first: Collection[str]) -> Iterator[tuple[str, ...]]:
    """What a descent put off, and one pass more that it used, at each place in the order. What it used last is asked first, behind those named in ``first``:
    what only hardware explains is worth something while the rest is there, and is undone before the rest if it can be."""
    last_first = parent.used[::-1]
    for name in (*(name for name in last_first if name in first), *(name for name in last_first if name not in first)):
        if name not in parent.delayed:
            yield from ((*parent.delayed[:at], name, *parent.delayed[at:]) for at in reversed(range(len(parent.delayed) + 1)))


def descend(program: Program, engine: Ground, delayed: tuple[str, ...], visited: set[str] | None = None,
            late: Callable[[], bool] = lambda: False) -> Descent:
    """Take passes back, the first that can be each time, until none can or it is ``late``. Contents of the programs gone through are added to
    ``visited``."""
    seen = {engine.content(program)}
    used: dict[str, None] = {}
    for _ in range(MOST_STEPS):
        if not engine.violations(program) or late():
            break
        step = _first(program, engine, delayed, seen)
        if step is None:
            break
        name, program = step
        used.setdefault(name)
        seen.add(engine.content(program))
    if visited is not None:
        visited |= seen
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
