"""Stored pipelines as walks: what a person wrote down from the naive program forwards is as good a lineage as what was walked back from an expert.

Each pipeline is run over its home problem with the first parameters that its space allows, every program that it makes is compared with the problem's
oracle on the CPU, and what comes out has the form of a walk.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress

from kir.base.diagnostic import KirError
from kir.base.store import content_hash as hashed
from kir.gate.cases import problem_tests
from kir.gate.correctness import check, outcome
from kir.gate.cost import program_cost
from kir.gate.cpu import profiled
from kir.hardware.target import Target, target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.corpus.family import family_of
from kir.learning.corpus.lineages import TARGET
from kir.learning.evidence.walked import Transition, Walked
from kir.learning.tune.first import first_trace
from kir.learning.tune.space import Space, shipped_spaces
from kir.lineage.engine import conditions_of
from kir.problem import Problem, load_problem
from kir.rewrite import pass_class
from kir.rewrite.pipelines.pipeline import Trace

PIPELINES = "pipelines"
"""The word for all stored pipelines."""


def forwards(spaces: Iterable[Space], workers: int = 1, advance: Callable[[str], None] = lambda text: None) -> Iterator[Walked]:
    """The walks of pipelines with a home, in the order given, each up to its first program that is wrong. Programs are judged side by side, once each: the
    last of each pipeline at every size that its problem asks for, those on the way at the smallest, with every check for hazards."""
    made = [forward(each) for each in spaces]
    asked = dict.fromkeys((walk.programs[t.after_text], walk.problem, t is walk.transitions[-1]) for walk in made for t in walk.transitions)
    with ProcessPoolExecutor(max(1, workers)) as pool:
        said = dict(zip(asked, pool.map(wrong, *zip(*asked, strict=True)) if asked else (), strict=True))
        for walk in made:
            kept = list[Transition]()
            reason = walk.reason
            for each in walk.transitions:
                reason = reason or said[walk.programs[each.after_text], walk.problem, each is walk.transitions[-1]]
                if not reason:
                    kept.append(each)
            advance(f"{walk.kernel}: {walk.ended}{f', then {reason}' if reason else ''}")
            yield walk.model_copy(update={"transitions": tuple(kept), "reason": reason[:300]})


def stored() -> tuple[Space, ...]:
    """The pipelines that ship."""
    return tuple(each for each in shipped_spaces() if each.kind == "pipeline" and each.home)


def forward(space: Space) -> Walked:
    """One pipeline over its home problem, not yet judged; `failed` where it does not run."""
    problem, aim = load_problem(space.home), target(TARGET)
    kernel, package, surface = f"pipelines/{space.name}", "experts", "" if space.surface == "kir" else space.surface
    start = Walked(kernel=kernel, package=package, family=family_of(f"{space.home}::{space.home}"), surface=surface, problem=space.home, targets=(TARGET,),
                   ended="failed")
    try:
        trace = first_trace(space, problem, aim)
    except KirError as fault:
        return start.model_copy(update={"reason": f"{fault.diagnostics[0].id} {fault.diagnostics[0].message}"[:300]})
    return _walked(start, problem, trace, aim)


def _walked(start: Walked, problem: Problem, trace: Trace, aim: Target) -> Walked:
    texts, transitions = dict[str, str](), list[Transition]()
    seconds = _seconds(trace.base, problem, aim, start.surface)
    base = program_text(trace.base)
    texts[key := _key(base)] = base
    for number, each in enumerate(trace.steps):
        text = program_text(each.after)
        now = _seconds(each.after, problem, aim, start.surface)
        speedups = {name: round(seconds[name] / now[name], 4) for name in seconds if now.get(name)}
        step = each.record.step
        item = pass_class(step.name).with_options(step.options)
        transitions.append(Transition(number=number, intent=item.intent, step={k: v for k, v in step.to_json().items() if k != "residue"},
                                      before=content_hash(each.before), after=content_hash(each.after), before_text=key, after_text=_key(text),
                                      conditions=conditions_of(item, each.record.verdicts), requires=item.requires, numerics=item.numerics,
                                      speedups=speedups))
        texts[_key(text)], key, seconds = text, _key(text), now
    return start.model_copy(update={"programs": dict(sorted(texts.items())), "transitions": tuple(transitions), "ended": "naive"})


def _key(text: str) -> str:
    return hashed(text)[:16]


def wrong(text: str, problem: str, everywhere: bool = True) -> str:
    """What is wrong with a program, by the oracle of a problem at every size that it asks for, or at the smallest; nothing where it is right."""
    program, given = parse_program(text), load_problem(problem)
    tests = problem_tests(program, given, {})
    if not everywhere and tests.checked:
        seen = outcome(program, tests.checked[0], "check")
        return seen.run.reason or ("" if seen.run.ok else "wrong") or "".join(f"{each.id}: {each.message}" for each in seen.errors[:1])
    found = check(program, tests, given.name)
    return "" if found.ok else found.reason or "wrong"


def _seconds(program: Program, problem: Problem, aim: Target, surface: str) -> Mapping[str, float]:
    with suppress(KirError):
        sizes = profiled(program, problem)[0][1]
        return {aim.name: sum(cost.seconds for cost in program_cost(program, sizes, aim, None, surface or "cuda"))}
    return {}
