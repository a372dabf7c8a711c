"""Stored pipelines as walks: what a person wrote down from the naive program forwards is as good a lineage as what was walked back from an expert.

Each pipeline is run over its home problem with the first parameters that its space allows, every program that it makes is compared with the problem's
oracle on the CPU, and what comes out has the form of a walk.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import suppress
from multiprocessing.process import BaseProcess

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
"""The word for all stored pipelines, and the folder that their walks are named by."""
LATE = "not judged in the time"
_Asked = tuple[str, str, bool]
"""The text of a program, its problem, and whether it is compared at every size."""


def forwards(spaces: Iterable[Space], workers: int = 1, advance: Callable[[str], None] = lambda text: None, known: Iterable[Walked] = (),
             within: float = 0.0) -> Iterator[Walked]:
    """The walks of pipelines with a home, in the order given, each up to its first program that is wrong, or is not judged `within` so many seconds
    (0: no limit). Programs are judged side by side, once each, and not again where `known` walks hold them: the last of each pipeline at every size that
    its problem asks for, those on the way at the smallest, with every check for hazards."""
    begun, judged = time.monotonic(), _judged(known)
    pool = ProcessPoolExecutor(max(1, workers))
    try:
        made = list(pool.map(forward, spaces))
        asked = [each for each in dict.fromkeys(_asked(walk, t) for walk in _most_news(made, judged) for t in walk.transitions) if not _among(each, judged)]
        asked.sort(key=lambda each: each[2])  # what is compared at every size takes longest
        futures = {pool.submit(wrong, *each): each for each in asked}
        said: dict[_Asked, str] = {}
        left = max(0.0, within - (time.monotonic() - begun)) if within else None
        with suppress(TimeoutError):
            for done in as_completed(futures, timeout=left):
                fault = done.exception()  # what one program meets is its own verdict
                said[futures[done]] = done.result() if fault is None else f"{type(fault).__name__}: {fault}"
    finally:
        pool.shutdown(wait=not within, cancel_futures=True)
        for process in _processes(pool) if within else ():
            process.kill()
    for walk in made:
        kept = list[Transition]()
        reason = walk.reason
        for each in walk.transitions:
            place = _asked(walk, each)
            reason = reason or ("" if _among(place, judged) else said.get(place, LATE))
            if not reason:
                kept.append(each)
        advance(f"{walk.kernel}: {len(kept)} of {len(walk.transitions)} steps{f', then {reason}' if reason else ''}")
        yield walk.model_copy(update={"transitions": tuple(kept), "reason": reason[:300]})


def _processes(pool: Executor) -> Iterable[BaseProcess]:
    """The processes of a pool that still work."""
    return list((getattr(pool, "_processes", None) or {}).values())


def _asked(walk: Walked, each: Transition) -> _Asked:
    return walk.programs[each.after_text], walk.problem, each is walk.transitions[-1]


def _judged(known: Iterable[Walked]) -> frozenset[_Asked]:
    """The programs that walks along pipelines hold: those on the way were right at the smallest sizes, the last of one that ended at every size."""
    return frozenset((walk.programs[t.after_text], walk.problem, t is walk.transitions[-1] and not walk.reason)
                     for walk in known if walk.kernel.startswith(f"{PIPELINES}/") for t in walk.transitions)


def _among(each: _Asked, judged: frozenset[_Asked]) -> bool:
    text, problem, everywhere = each
    return (text, problem, True) in judged or (not everywhere and (text, problem, False) in judged)


def _most_news(made: Sequence[Walked], judged: frozenset[_Asked]) -> list[Walked]:
    """Walks in the order in which they are judged: at each turn the one with the most passes that none before it, and none that is judged, has."""
    seen = {t.name for walk in made for t in walk.transitions if _among(_asked(walk, t), judged)}
    left, out = list(made), list[Walked]()
    while left:
        out.append(left.pop(max(range(len(left)), key=lambda k: len({t.name for t in left[k].transitions} - seen))))
        seen |= {t.name for t in out[-1].transitions}
    return out


def stored() -> tuple[Space, ...]:
    """The pipelines that ship."""
    return tuple(each for each in shipped_spaces() if each.kind == "pipeline" and each.home)


def forward(space: Space) -> Walked:
    """One pipeline over its home problem, not yet judged; `failed` where it does not run."""
    problem, aim = load_problem(space.home), target(TARGET)
    kernel, package, surface = f"{PIPELINES}/{space.name}", "experts", "" if space.surface == "kir" else space.surface
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
