"""A program brought into what a surface can say: optimizations that its compiler decides itself, or has no words for, are taken back.

Each step is the inverse of a registered pass, checked as any other (forward restores the program exactly), so that what is written is the
expert as far as the surface goes, and the steps say what is missing.
A program of roles that the surface cannot say is refused as it stands. First come steps after which the surface refuses less; where no single one
does, the one that a walk to naive would take first.
"""

from __future__ import annotations

from kir.diagnostic import Diagnostic, KirError
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.measure import measure
from kir.ir.nodes import Program
from kir.ir.visit import statements
from kir.lineage.engine import PassEngine
from kir.rewrite import Site, Trace, apply, pass_class, sites
from kir.rewrite.driver import Applied
from kir.surface import Backend

MOST_STEPS = 60
"""Steps that may be taken back; each lowers the measure of law 9, so that there is an end anyway."""
MOST_LEVEL = 10
"""Steps in a row after which nothing less is refused."""


def brought(done: Trace, by: Backend) -> tuple[Trace, tuple[Diagnostic, ...]]:
    """The trace with what the surface cannot say taken back, and a note (KIR-B307) for each step. Raises KirError with the refusals that were there
    first, when nothing that is taken back helps."""
    first = refused = by.accepts(done.program)
    if refused and any(isinstance(x, n.Roles) for k in done.program.kernels for x in statements(k.body)):
        raise KirError(*first)  # what its roles do side by side is the program: without them it would be another expert
    engine, notes, level = PassEngine(), [], 0
    for _ in range(MOST_STEPS):
        if not refused or level > MOST_LEVEL:
            break
        found = _next(done.program, engine, by, refused)
        if found is None:
            raise KirError(*first)
        level = 0 if len(found[1]) < len(refused) else level + 1
        applied, refused = found
        done = done.extended(applied)
        step = applied.record.step
        said = f"{by.surface} has no word for what this pass does here: ~{step.name} at {applied.record.anchor} is taken back"
        notes.append(Diagnostic("KIR-B307", said, subject=f"~{step.name}", anchor=applied.record.anchor, severity="warning"))
    if refused:
        raise KirError(*first)
    return (_on_tensor_cores(done, by) if notes else done), tuple(notes)


def _next(program: Program, engine: PassEngine, by: Backend, refused: tuple[Diagnostic, ...]) -> tuple[Applied, tuple[Diagnostic, ...]] | None:
    """The first step after which there are fewer refusals, else the one nearest to a refused statement; None where no pass can be taken back."""
    fallback: list[tuple[int, Applied, tuple[Diagnostic, ...]]] = []
    before, here = measure(program), content_hash(program)
    places = [_place(d.anchor) for d in refused]
    for candidate in engine.candidates(program):
        site: Site = candidate.handle
        try:
            made = apply(program, site.params, site, "backward")
        except KirError:
            continue  # it cannot be taken back here
        if not measure(made.program) < before or content_hash(made.program) == here:
            continue
        left = by.accepts(made.program)
        if len(left) < len(refused):
            return made, left
        fallback.append((max((_shared(tuple(map(str, site.path)), p) for p in places), default=0), made, left))
    if not fallback:
        return None
    _, made, left = max(fallback, key=lambda each: each[0])
    return made, left


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
