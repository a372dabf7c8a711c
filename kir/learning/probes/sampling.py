"""Steps of all passes with parameters drawn at random, on many programs: what is offered is applied, and some of what is refused is forced."""
from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.learning.probes.attempts import attempt
from kir.learning.probes.draws import drawn, seeded
from kir.learning.probes.record import Probe
from kir.learning.probes.subjects import Subject
from kir.learning.probes.trials import Trials
from kir.rewrite.base import Pass, Site
from kir.rewrite.driver import apply, offered, refuses
from kir.rewrite.registry import passes
from kir.rewrite.verdict import Context

MOST_SITES = 6
"""Sites of one pass with one choice of parameters that are looked at."""
AMONG = 12
"""Passes of which one step is drawn."""


@dataclass
class Tally:
    """What became of the sites that patterns found, by pass: judged, `applied` of those that are `offered`, and `near` misses with their reasons. `faults`
    are sites that were offered and refused, and passes that failed."""

    matched: Counter[str] = field(default_factory=Counter)
    offered: Counter[str] = field(default_factory=Counter)
    applied: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    near: Counter[str] = field(default_factory=Counter)
    reasons: dict[tuple[str, str], int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Take in what became of others."""
        for name in ("matched", "offered", "applied", "refused", "near"):
            getattr(self, name).update(getattr(other, name))
        for key, count in other.reasons.items():
            self.reasons[key] = self.reasons.get(key, 0) + count
        self.faults += other.faults


def sampled(subject: Subject, among: Sequence[type[Pass]] = (), count: int = 4, seed: int = 0) -> tuple[Tally, list[tuple[Site, tuple[str, ...]]]]:
    """Every pass on a program with its defaults and `count` draws of its parameters: the tally, and the sites that preconditions refuse, with their ids."""
    tally, context = Tally(), Context(subject.target)
    refused: list[tuple[Site, tuple[str, ...]]] = []
    for cls in among or probed():
        seen: set[tuple[object, str]] = set()
        for item in drawn(cls, subject.program, count, seed):
            try:
                found = offered(item, subject.program, context, MOST_SITES)
            except Exception as fault:  # a pass that fails where it only looks
                tally.faults.append(f"{subject.name}: {item}: {type(fault).__name__}: {fault}")
                continue
            for site, ids in ((s, refuses(s.params, v)) for s, v in found.refused):
                if _new(site, seen):
                    tally.matched[cls.name] += 1
                    tally.refused[cls.name] += 1
                    refused.append((site, ids))
            for site, why in found.near:
                if _new(site, seen):
                    tally.matched[cls.name] += 1
                    tally.near[cls.name] += 1
                    key = cls.name, why.partition("is not exact here: ")[2] or why
                    tally.reasons[key] = tally.reasons.get(key, 0) + 1
            for site in found.sites:
                if _new(site, seen):
                    tally.matched[cls.name] += 1
                    tally.offered[cls.name] += 1
                    _apply(subject, site, context, tally)
    return tally, refused


def _new(site: Site, seen: set[tuple[object, str]]) -> bool:
    """Whether a site has not been seen; it has now."""
    key = site.path, str(site.params)
    if key in seen:
        return False
    seen.add(key)
    return True


def _apply(subject: Subject, site: Site, context: Context, tally: Tally) -> None:
    try:
        apply(subject.program, site.params, site, context=context)
        tally.applied[site.params.name] += 1
    except KirError as bad:
        tally.faults.append(f"{subject.name}: {site.params}: {bad.diagnostics[0].id}: {bad.diagnostics[0].message}")


def forced(subject: Subject, refused: Sequence[tuple[Site, tuple[str, ...]]], most: int = 3, taken: Counter[tuple[str, ...]] | None = None) -> Iterator[Probe]:
    """Refused sites forced and run, at most so many of a program for each set of refusing preconditions; `taken` counts them over programs."""
    trials, here = Trials(subject.program, subject.problem, subject.target), Counter[tuple[str, ...]]()
    for site, ids in refused:
        if here[ids] >= most:
            continue
        here[ids] += 1
        if taken is not None:
            taken[ids] += 1
        yield attempt(subject.program, site, subject.problem, subject.target, trials)


def states(subject: Subject, count: int, depth: int, seed: int = 0) -> Iterator[Subject]:
    """The program, and `count` others that so many steps drawn at random lead to."""
    yield subject
    known = {content_hash(subject.program)}
    for k in range(count):
        program = subject.program
        rng = seeded("states", subject.name, seed, k)
        for _ in range(depth):
            step = one_step(program, Context(subject.target), rng)
            program = program if step is None else apply(program, step.params, step, context=Context(subject.target)).program
        if content_hash(program) not in known:
            known.add(content_hash(program))
            yield replace(subject, name=f"{subject.name} +{k + 1}", program=program)


def one_step(program: n.Program, context: Context, rng: random.Random) -> Site | None:
    """A step that applies to a program, drawn at random: of a few passes the first that has one."""
    for cls in rng.sample(probed(), AMONG):
        for item in drawn(cls, program, 1, rng.randrange(1 << 30)):
            try:
                found = offered(item, program, context, MOST_SITES)
            except KirError:
                continue
            if found.sites:
                return rng.choice(found.sites)
    return None


def probed() -> list[type[Pass]]:
    """The passes that are probed: all but those whose step asks a carrier for an answer, and those that leave compile-time parameters open, which nothing
    interprets."""
    return [cls for cls in passes() if getattr(cls, "carrier", None) is None and "generic" not in cls.provides and cls.name not in ("autotune",)]


