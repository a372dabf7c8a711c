"""A program brought into what a surface can say: optimizations that its compiler decides itself, or has no words for, are taken back.

Each step is the inverse of a registered pass, checked as any other (forward restores the program exactly), so that what is written is the
expert as far as the surface goes, and the steps say what is missing.
First come steps after which the surface refuses less; where no single one
does, the one that is nearest to a refused statement. Where that leads nowhere, the steps of a walk to naive, in its order.
"""

from __future__ import annotations

from collections.abc import Callable

from kir.diagnostic import Diagnostic, KirError
from kir.ir.nodes import Program
from kir.lineage.engine import PassEngine
from kir.lineage.plan import plan
from kir.rewrite import Site, Trace, apply, pass_class, sites
from kir.rewrite.driver import Applied, run_backward
from kir.surface import Backend

Refused = tuple[Diagnostic, ...]
Next = Callable[[Program, PassEngine, Backend, Refused], tuple[Applied, Refused] | None]
"""The next step back from a program, and what the surface then still refuses."""
THREADS = "thread-loop"
"""What passes provide that write a tile program out for its threads."""
MOST_STEPS = 60
"""Steps that may be taken back; each lowers the measure of law 9, so that there is an end anyway."""
MOST_LEVEL = 30
"""Steps in a row after which nothing less is refused."""


def brought(done: Trace, by: Backend) -> tuple[Trace, tuple[Diagnostic, ...]]:
    """The trace with what the surface cannot say taken back, and a note (KIR-B307) for each step. Raises KirError with the refusals that were there
    first, when nothing that is taken back helps."""
    first, engine = by.accepts(done.program), PassEngine()
    if not first:
        return done, ()
    for next_step in (_next, _planned(done.program, engine)):
        found = _taken_back(done, by, engine, first, next_step)
        if found is not None:
            return _on_tensor_cores(found[0], by), found[1]
    raise KirError(*first)


def _taken_back(done: Trace, by: Backend, engine: PassEngine, refused: Refused, next_step: Next) -> tuple[Trace, Refused] | None:
    """Steps until nothing is refused; None where there are no more, or too many in a row that help nothing."""
    notes, level = [], 0
    for _ in range(MOST_STEPS):
        found = next_step(done.program, engine, by, refused)
        if found is None or level > MOST_LEVEL:
            return None
        level = 0 if len(found[1]) < len(refused) else level + 1
        applied, refused = found
        done = done.extended(applied)
        step = applied.record.step
        said = f"{by.surface} has no word for what this pass does here: ~{step.name} at {applied.record.anchor} is taken back"
        notes.append(Diagnostic("KIR-B307", said, subject=f"~{step.name}", anchor=applied.record.anchor, severity="warning"))
        if not refused:
            return done, tuple(notes)
    return None


def _planned(start: Program, engine: PassEngine) -> Next:
    """The steps of a walk to naive, in its order."""
    delayed: list[tuple[str, ...]] = []

    def next_step(program: Program, engine: PassEngine, by: Backend, refused: Refused) -> tuple[Applied, Refused] | None:
        if not delayed:
            delayed.append(tuple(plan(start, engine).delayed))
        for candidate in engine.untried(program, delayed[0]):
            if (made := _back(program, candidate.handle)) is not None:
                return made, by.accepts(made.program)
        return None
    return next_step


def _next(program: Program, engine: PassEngine, by: Backend, refused: Refused) -> tuple[Applied, Refused] | None:
    """The first step after which there are fewer refusals (or as many, where threads become tiles again), else the one nearest to a refused
    statement; None where no pass can be taken back."""
    fallback: list[tuple[int, Site, Refused]] = []
    places = [_place(d.anchor) for d in refused]
    for candidate in engine.untried(program):
        site: Site = candidate.handle
        left = by.accepts(run_backward(program, site)[0])
        if len(left) < len(refused) + (THREADS in site.params.provides):
            if (made := _back(program, site)) is not None:
                return made, left
            continue
        fallback.append((max((_shared(tuple(map(str, site.path)), p) for p in places), default=0), site, left))
    for _, site, left in sorted(fallback, key=lambda each: -each[0]):
        if (made := _back(program, site)) is not None:
            return made, left
    return None


def _back(program: Program, site: Site) -> Applied | None:
    """A step back with every check; None where a precondition does not hold."""
    try:
        return apply(program, site.params, site, "backward")
    except KirError:
        return None


def _place(anchor: str) -> tuple[str, ...]:
    """A diagnostic's structural path."""
    return tuple(anchor.partition(" ")[0].split("/"))


def _shared(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    """How many steps two paths have in common."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def _on_tensor_cores(done: Trace, by: Backend) -> Trace:
    """Products that were left to scalar units, with the surface's own product where it has one."""
    while True:
        for site in sites(pass_class("mma").with_options({}), done.program, "forward"):
            try:
                made = apply(done.program, site.params, site, "forward")
            except KirError:
                continue
            if not by.accepts(made.program):
                done = done.extended(made)
                break
        else:
            return done


__all__ = ["brought"]
