"""Walks back by registered passes, without a gate: what they end in, and the steps they take; and a law of each pass on one program."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.measures.measure import decreases
from kir.ir.measures.naive import is_naive
from kir.lineage.engine import PassEngine
from kir.problem import Problem
from kir.rewrite import Applied, Pass, Site, apply, each_site, judge
from kir.rewrite.driver import rejection_reason

MOST = 12
"""Sites tried of each pass in each program that ships (`test_laws.py`); of those after them only whether they apply (`test_meaning.py`)."""


@dataclass(frozen=True)
class Item:
    """A work item of the predicate N."""

    kind: str
    axes: tuple[str, ...]


@dataclass(frozen=True)
class State:
    """The private array that attention may keep."""

    name: str = "acc"
    dtype: str = "f32"
    shape: tuple[str, ...] = ("64",)


@dataclass(frozen=True)
class Walked:
    """Where a walk ends, and the names and intents of its steps."""

    program: n.Program
    names: tuple[str, ...]
    intents: tuple[str, ...]


def walked(engine: PassEngine, program: n.Program, last: tuple[str, ...]) -> Walked:
    """The walk that an engine's candidates lead, the passes `last` undone last."""
    names, intents = list[str](), list[str]()
    while engine.violations(program):
        for candidate in engine.candidates(program, last):
            try:
                made = engine.backward(program, candidate).program
            except KirError:
                continue
            if engine.measure(made) < engine.measure(program):
                break
        else:
            break
        program = made
        names.append(candidate.name)
        intents.append(candidate.intent)
    return Walked(program, tuple(names), tuple(intents))


def lineage_of(p: n.Program, problem: Problem, order: Sequence[type[Pass]], assume: frozenset[str] = frozenset(),
               refusals: Callable[[str], bool] = lambda id: id[4] == "P") -> tuple[tuple[n.Program, Applied], ...]:
    """Each step with the program that it was taken from, the expert's first: the inverse of the first pass in order that decreases the measure. Whatever
    else refuses has an id of `refusals`."""
    out = []
    while is_naive(p, problem.work_item, problem.state):
        done = _first(p, order, assume, refusals)
        if done is None:
            break
        out.append((p, done))
        p = done.program
    return tuple(out)


def _first(p: n.Program, order: Sequence[type[Pass]], assume: frozenset[str], refusals: Callable[[str], bool]) -> Applied | None:
    for item in order:
        for site in each_site(item.with_options({}), p, "backward"):
            try:
                done = apply(p, site.params, site, "backward", assume=assume & {each.id for each in item.preconditions})
            except KirError as refused:
                assert all(refusals(d.id) for d in refused.diagnostics), refused
                continue
            if decreases(p, done.program):
                return done
    return None


def parts(names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """A quarter of the passes each. A test goes through one part on one program: a test for each pair would cost more than what it tests."""
    every = tuple(names)
    return {f"passes {i + 1} of 4": every[i::4] for i in range(4)}


def held(law: Callable[[str, str], None], names: Sequence[str], program: str) -> None:
    """The law for each of these passes on a program; what breaks it is told of each."""
    broken: list[Exception] = []
    for name in names:
        try:
            law(name, program)
        except (AssertionError, KirError) as fault:
            fault.add_note(f"{name} in {program}")
            broken.append(fault)
    if broken:
        raise ExceptionGroup(f"{len(broken)} of {len(names)} passes break a law on {program}", broken)


def refused_rightly(p: n.Program, site: Site) -> bool:
    """Whether a forward site that `apply` refuses has a precondition that does not hold, or one that a trial refuses."""
    validity = {each.id for each in site.params.preconditions if each.kind == "validity"}
    return not all(v for id_, v in judge(p, site) if id_ in validity) or rejection_reason(p, site) != ""
