"""Probing around a step: it is tried on variations of a program, alone and in pairs, and where its validity ends is found."""
from __future__ import annotations

from collections.abc import Iterator, Sequence

from kir.base.diagnostic import KirError
from kir.hardware.target import Target
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.printer import program_text
from kir.learning.probes.attempts import attempt
from kir.learning.probes.record import Probe
from kir.learning.probes.vary import Setting, settings
from kir.problem import Problem
from kir.rewrite.pipelines.pipeline import find_site
from kir.rewrite.pipelines.text import Pipeline
from kir.rewrite.step import Step

PAIRS = 12


def probe(program: n.Program, step: Step | str, problem: Problem, target: Target, pairs: int = PAIRS, seed: int = 0,
          most: int | None = None) -> tuple[Probe, ...]:
    """A step tried on a program and on what lies around it: other facts on the sizes, dtype, alignment, stride, target and prior state, one at a time and
    so many `pairs`; with `most`, only so many of the single changes. Each probe says what the pass says, and what was seen of what it makes, forced
    where it refuses.

    Raises UsageError KIR-R001 for a text that is no step; a step that is not found in a variation is a probe, a miss."""
    wanted = Pipeline.parse(step).steps[0] if isinstance(step, str) else step
    return tuple(_tried(each, wanted) for each in settings(program, problem, target, pairs, seed, most))


def _tried(at: Setting, step: Step) -> Probe:
    try:
        _, site = find_site(at.program, step)
    except KirError as bad:
        return Probe(program=program_text(at.program), hash=content_hash(at.program), step=str(step), problem=at.problem.name, target=at.target.name,
                     varied=at.varied, status="miss", reason=bad.diagnostics[0].message)
    return attempt(at.program, site, at.problem, at.target, varied=at.varied)


def boundary(probes: Sequence[Probe]) -> Iterator[tuple[str, Probe]]:
    """Where validity ends: single variations that turn what the pass says of the first, or what is seen, each with a word for it."""
    if not probes:
        return
    base = probes[0]
    for p in probes[1:]:
        if len(p.varied) == 1 and (p.status, p.outcome) != (base.status, base.outcome):
            yield f"{base.status}, {base.outcome} -> {p.status}, {p.outcome}", p


def risks(probes: Sequence[Probe]) -> tuple[Probe, ...]:
    """The counterexamples among probes: places where the step is wrong, which the pass refuses, or should."""
    return tuple(p for p in probes if p.is_counterexample)


def defects(probes: Sequence[Probe]) -> tuple[Probe, ...]:
    """Probes that contradict what the pass declares."""
    return tuple(p for p in probes if p.is_defect)
