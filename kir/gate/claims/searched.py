"""Inputs that no test has, on which what judges a program is right: to bring about what data decide."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.gate.cases import Case, ProblemCase, RelativeCase, elements_of, naive_of, relative_case, right, tensor_names
from kir.gate.claims.ways import Way
from kir.gate.goals import predicted
from kir.gate.inputs.kinds import KINDS, PEAKED
from kir.gate.inputs.sets import stretched
from kir.gate.inputs.turns import about, turns
from kir.gate.inputs.ways import sizes_for
from kir.gate.shapes import MOST_ELEMENTS, of_problem, of_programs, solved
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import substitute, walk
from kir.problem import Problem
from kir.problem.draws import TIMES, draw, generator, times
from kir.problem.ordering import INDEPENDENT

Array = NDArray[Any]
SECONDS = 1.5
"""How long runs of the problem's own program are foreseen to take together."""
ONE = (2.0, 2.25, 2.5, 3.0)
"""How many times as large one slice is as all others."""
LONG = 8192
"""A size along which something little is much together."""
MISSING_SECONDS, NAMED = 12.0, 2
"""Seconds, as they are foreseen, of runs at sizes that were left out before; and sizes for one way."""
LISTED_SECONDS = 12.0
"""The same of runs at shapes of a problem that were left out for their time, where something would be refused that they may show."""
POWERS = (4, 8, 12, -8, -16, 16, 24)
"""Powers of two that inputs are multiplied by."""


def beside_problem(program: n.Program, problem: Problem, cases: Sequence[Case]) -> Iterator[Case]:
    """Cases of a problem that its own program is right on: inputs of one value, of each distribution, with values about numbers of the program, and usual
    ones multiplied by powers of two, with and without their signs, of the sizes of the first; and of one slice against many, of those of the largest."""
    own = [c for c in cases if isinstance(c, ProblemCase)]
    naive = naive_of(problem)
    if not own or not naive:
        return
    special = special_cases(problem, cases)
    yield from (c for c in special if c.sizes == own[0].sizes)
    theirs = tensor_names(naive[0], problem, {})
    spent = 0.0
    largest = max(own, key=lambda c: sum(a.size for a in c.inputs.values()))
    far = _peaked(problem, largest) if _exponentials(naive[0]) else ()
    for first, label, inputs in (*((own[0], *x) for x in _variants(program, problem, own[0])), *((largest, *x) for x in (*_one_slice(problem, largest), *far))):
        spent += float(predicted(naive[0], [dict(first.at.sizes)]).seconds[0])
        if spent > SECONDS:
            return
        case = ProblemCase(problem, first.at, label, 0, inputs, first.names)
        if _finite(inputs) and right(naive[0], replace(case, names=theirs)):
            yield case
    yield from (c for c in special if c.sizes != own[0].sizes)


def own_of_problem(problem: Problem, cases: Sequence[Case]) -> Iterator[Case]:
    """A problem's distributions at sizes of cases that were not drawn so, where its own program is right: data that only a large size has room for."""
    own = [c for c in cases if isinstance(c, ProblemCase)]
    naive, drawn = naive_of(problem), {(tuple(c.sizes.items()), c.distribution.partition(",")[0]) for c in own}
    theirs = tensor_names(naive[0], problem, {}) if naive else {}
    for first in {tuple(c.sizes.items()): c for c in reversed(own)}.values() if naive else ():
        for name in problem.distributions:
            if (tuple(first.sizes.items()), name) not in drawn:
                case = ProblemCase(problem, first.at, name, 0, problem.inputs(first.at, 0, name), first.names)
                if right(naive[0], replace(case, names=theirs)):
                    yield case


def listed(program: n.Program, problem: Problem, cases: Sequence[Case]) -> Iterator[Case]:
    """A problem's distributions at shapes of its own that no case has, those first that are foreseen to be quick, as far as `LISTED_SECONDS` go."""
    own = [c for c in cases if isinstance(c, ProblemCase)]
    had = {tuple(sorted(c.sizes.items())) for c in own}
    left = [s for s in problem.shapes_for(program) if own and "timed" not in s.tags and elements_of(problem, s) <= MOST_ELEMENTS
            and tuple(sorted(s.sizes.items())) not in had]
    sizes = of_problem(program, problem, own[0].names) if left else None
    foreseen = predicted(program, [sizes.own(dict(s.sizes)) for s in left]).seconds if sizes is not None else ()
    spent, quick_first = 0.0, sorted(zip(map(float, foreseen), left, strict=True), key=lambda one: one[0])
    for name, (seconds, s) in product(problem.distributions, quick_first):
        if (spent := spent + seconds) > LISTED_SECONDS:
            return
        yield ProblemCase(problem, s, name, 0, problem.drawn(s, 0, name), own[0].names)


def special_cases(problem: Problem, cases: Sequence[Case]) -> list[Case]:
    """The first case of a problem, and that of most elements (data below a size are below none at 1), with inputs of the same values everywhere, where its
    own program, if it has one, is right."""
    drawn = [c for c in cases if isinstance(c, ProblemCase)]
    if not drawn or not (naive := naive_of(problem)):
        return []
    names = tensor_names(naive[0], problem, {})
    out: list[Case] = []
    widest = max(range(len(drawn)), key=lambda i: elements_of(problem, drawn[i].at))
    for case, kind in ((drawn[i], kind) for i in dict.fromkeys((0, widest)) for kind in ("least", "most", "zeros", "ones")):
        inputs = dict(case.inputs)
        for t in problem.spec.tensors:
            how = problem.usual_draw(t)
            if t.name in inputs and (how.kind == "integers" or (inputs[t.name].dtype.kind not in "iub" and how.kind != "partition")):
                low, high = (how.low, how.high - 1) if how.kind == "integers" else (-2.0**10, 2.0**10)
                value = {"least": low, "most": high, "zeros": min(max(0.0, low), high), "ones": min(max(1.0, low), high)}[kind]
                inputs[t.name] = np.full_like(inputs[t.name], value)
        ours, theirs = (ProblemCase(problem, case.at, f"inputs all {kind}", 0, inputs, which) for which in (case.names, names))
        if right(naive[0], theirs):
            out.append(ours)
    return out


def _variants(program: n.Program, problem: Problem, first: ProblemCase) -> Iterator[tuple[str, Mapping[str, Array]]]:
    usual = problem.inputs(first.at, 0)
    floats = _floats(problem, usual)
    for power in POWERS if floats else ():
        yield f"{TIMES}{2.0 ** power!r}", {**usual, **{name: times(usual[name], 2.0 ** power) for name in floats}}
    for power in POWERS if floats else ():
        for sign, word in ((1.0, "positive"), (-1.0, "negative")):
            yield f"{word} {TIMES}{2.0 ** power!r}", {**usual, **{name: times(np.abs(usual[name]), sign * 2.0 ** power) for name in floats}}
    for name in (*problem.distributions, *turns(program, first.names), *(about(program) if problem.widest_drawn(usual) else ())):
        yield name, problem.inputs(first.at, 0, name)


def _finite(arrays: Mapping[str, Array]) -> bool:
    return all(a.dtype.kind in "iub" or bool(np.isfinite(a.astype(np.float64)).all()) for a in arrays.values())


def _floats(problem: Problem, usual: Mapping[str, Array]) -> list[str]:
    return [t.name for t in problem.spec.tensors if t.name in usual and usual[t.name].dtype.kind not in "iub" and problem.usual_draw(t).kind in INDEPENDENT]


def _one_slice(problem: Problem, at: ProblemCase) -> Iterator[tuple[str, Mapping[str, Array]]]:
    usual = problem.inputs(at.at, 0)
    floats = _floats(problem, usual)
    for axis, by in product(range(max((usual[name].ndim for name in floats), default=0)), ONE):
        yield f"one slice along {axis} {by!r} times all others", {**usual, **{
            name: _one_against_many(usual[name], axis, by, name) if usual[name].ndim > axis else np.ones_like(usual[name]) for name in floats}}


def _peaked(problem: Problem, at: ProblemCase) -> Iterator[tuple[str, Mapping[str, Array]]]:
    usual = problem.inputs(at.at, 0)
    for name, how in PEAKED.items():
        yield name, {**usual, **{x: draw(how, usual[x].shape, "f64", generator(name, x)).astype(usual[x].dtype) for x in _floats(problem, usual)}}


def _exponentials(program: n.Program) -> bool:
    return any(isinstance(x, n.Call) and x.fn in ("exp", "exp2") for x in walk(program))


def _one_against_many(a: Array, axis: int, by: float, name: str) -> Array:
    """Ones, or nearly, but for a first slice that is so many times as large: what is little by itself is much together."""
    out = generator(name, "one against many").uniform(0.97, 1.03, a.shape)
    out[(slice(None),) * axis + (0,)] *= by
    return out.astype(a.dtype)


def beside_program(program: n.Program, against: n.Program, cases: Sequence[Case]) -> Iterator[Case]:
    """Cases of the sizes of the first, and far below a peak along one long axis, judged by another program, where that gives what it gives in float64."""
    first = next((c for c in cases if isinstance(c, RelativeCase)), None)
    if first is None:
        return
    more = (*(f"{TIMES}{2.0 ** power!r}" for power in POWERS), *turns(program), *about(program))
    own, lengths = [first.sizes], _long(program, against, first.sizes) if _exponentials(against) else []
    for sizes, name in (*product(own, KINDS), *product(lengths, PEAKED), *product(own, more)):
        if (case := relative_case(against, dict(sizes), name, 1)) is not None and _finite(case.inputs):
            yield case


def beside_sizes(program: n.Program, against: n.Program) -> Iterator[Case]:
    """Cases of sizes of which one is large, judged by another program."""
    yield from (case for sizes in stretched(program) if (case := relative_case(against, sizes, "normal", 1)) is not None and _finite(case.inputs))


def beside_ways(program: n.Program, against: n.Program, ways: Sequence[Way], cases: Sequence[Case]) -> Iterator[Case]:
    """Cases of sizes that were left out and may take some ways, judged by another program: those that the solver names, and those of the plan, the quickest
    first, as many as there is time for."""
    space = of_programs(program, against)
    plan = solved(program, space, (against,))
    if plan is None or not ways:
        return
    conds = [(way.cond if way.holds else build.invert(way.cond), way.path) for way in ways]
    named = [at for cond, path in conds for at in islice(sizes_for(program, cond, path, space, plan), NAMED)]
    pool: list[dict[str, int]] = []
    for at in (*named, *plan.shapes, *plan.far, *plan.edges):
        if at not in pool and not any(dict(c.sizes) == at for c in cases):
            pool.append(at)
    seconds = sum((predicted(p, pool).most for p in (program, against)), np.zeros(len(pool))) if pool else np.zeros(0)
    left = MISSING_SECONDS
    for i in np.argsort(seconds, kind="stable"):
        left -= float(seconds[i])
        if left < 0:
            return
        if (case := relative_case(against, pool[i], "normal", 1)) is not None:
            yield case


def _long(program: n.Program, against: n.Program, sizes: Mapping[str, int]) -> list[dict[str, int]]:
    """Sizes of which one is long, as far as the facts of both programs allow it: of an exponential there are as many as it takes to count."""
    out = []
    for name in sizes:
        at = {**sizes, name: max(LONG, sizes[name])}
        known = [(f, {p.name: build.const(at[p.name], p.of) for p in of.params if p.name in at and isinstance(p.of, DType)})
                 for of in (program, against) for f in of.facts]
        if all(build.is_const(substitute(f, values), True) for f, values in known):
            out.append(at)
    return out


def ranges_of(problem: Problem) -> dict[str, tuple[float, float]]:
    """Between which numbers the elements of a tensor lie in all that a problem draws, where that is said of them: of a number that they all are, as far as it
    is varied (`kir.gate.claims.elsewhere`)."""
    out: dict[str, tuple[float, float]] = {}
    for t in problem.spec.tensors:
        how = [d.get(t.name) or d.get("*") or problem.usual_draw(t) for d in problem.spec.distributions.values()] if t.role != "out" else []
        if how and all(d.kind in ("uniform", "integers") or (d.kind == "constant" and d.low) for d in how):
            ends = [x for d in how for x in ((d.low * 0.5, d.low * 1.5) if d.kind == "constant" else (d.low, d.high - (d.kind == "integers")))]
            out[t.name] = min(ends), max(ends)
    return out


__all__ = ["beside_problem", "beside_program", "beside_sizes", "beside_ways", "ranges_of", "special_cases"]
