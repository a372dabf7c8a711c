"""Inputs that no test has, on which what judges a program is right: to bring about what data decide."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.gate.cases import Case, ProblemCase, RelativeCase, elements_of, naive_of, relative_case, right, tensor_names
from kir.gate.claims.flow import lets_of, spelled_out
from kir.gate.claims.ways import Way
from kir.gate.goals import predicted
from kir.gate.inputs.kinds import KINDS, PEAKED
from kir.gate.inputs.sets import stretched
from kir.gate.inputs.turns import about, turns
from kir.gate.inputs.ways import sizes_for
from kir.gate.shapes import of_problem, of_programs, solved
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, DType, dtype_of
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
OTHER = {"ge": "lt", "lt": "ge", "gt": "le", "le": "gt"}
"""What holds where a comparison of whole numbers does not."""
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


def own_of_problem(program: n.Program, problem: Problem, cases: Sequence[Case]) -> Iterator[Case]:
    """A problem's own shapes that were left out for their time, the quickest first, by their usual inputs; then its distributions at sizes of cases that were
    not drawn so, where its own program is right: data that only a large size has room for."""
    own = [c for c in cases if isinstance(c, ProblemCase)]
    ran = {tuple(sorted(c.sizes.items())) for c in own}
    others = [s for s in problem.shapes if own and "timed" not in s.tags and tuple(sorted(s.sizes.items())) not in ran]
    space = of_problem(program, problem, own[0].names) if others else None
    fine = [s for s, may in zip(others, space.allowed([dict(s.sizes) for s in others]), strict=True) if may] if space is not None else []
    seconds = predicted(program, [space.own(s.sizes) for s in fine]).seconds if space is not None and fine else ()
    for at in (fine[i] for i in np.argsort(seconds, kind="stable")):
        yield ProblemCase(problem, at, "normal", 0, problem.inputs(at, 0, "normal"), own[0].names)
    naive, drawn = naive_of(problem), {(tuple(c.sizes.items()), c.distribution.partition(",")[0]) for c in own}
    theirs = tensor_names(naive[0], problem, {}) if naive else {}
    for first in {tuple(c.sizes.items()): c for c in reversed(own)}.values() if naive else ():
        for name in problem.distributions:
            if (tuple(first.sizes.items()), name) not in drawn:
                case = ProblemCase(problem, first.at, name, 0, problem.inputs(first.at, 0, name), first.names)
                if right(naive[0], replace(case, names=theirs)):
                    yield case


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


def never(program: n.Program, problem: Problem, names: Mapping[str, str]) -> Callable[[Way], bool]:
    """Whether no inputs of a problem take a way: on it an element of a tensor that says where parts begin, each not before the last one, is greater than the
    one behind it, or what lies between two of them more than the whole. `names` gives the tensor of a parameter."""
    drawn = {of for of in names.values() for t in problem.spec.tensors if t.name == of and all(
        (draws.get(of) or problem.usual_draw(t)).kind == "partition" for draws in problem.spec.distributions.values())}
    grows = {own for own, of in names.items() if of in drawn}
    lets = lets_of(program) if grows else {}
    totals = {of: d.of for of in drawn for draws in problem.spec.distributions.values() if (d := draws.get(of)) is not None}

    def answer(way: Way) -> bool:
        cond = spelled_out(way.cond, lets.get(way.kernel, {})) if grows else n.Const(False, BOOL)
        known = [x for part in _all_of(cond if way.holds else build.invert(cond)) if (x := _not_negative(part)) is not None]
        return any(impossible(x) for x in (*known, *({m: a.get(m, 0) + b.get(m, 0) for m in {*a, *b}} for a, b in combinations(known, 2))))

    def impossible(terms: Mapping[tuple[n.Expr, ...], int]) -> bool:
        """Whether a sum is negative: an element less the one behind it, or a difference of two less the whole, and a number below zero."""
        loads = {count: x for key, count in terms.items() if len(key) == 1 and isinstance(x := key[0], n.Load)}
        rest = {key: count for key, count in terms.items() if count and key and not isinstance(key[0], n.Load)}
        first, last = loads.get(-1), loads.get(1)
        if first is None or last is None or first.at.buffer != last.at.buffer or first.at.buffer.name not in grows or terms.get((), 0) >= 0:
            return False
        (a, *_), (b, *_) = first.at.index, last.at.index
        step = build.int_value(build.sub(b, a)) if isinstance(a, n.Expr) and isinstance(b, n.Expr) else None
        if not rest:
            return step is not None and step < 0
        of = totals.get(names[first.at.buffer.name], "")
        return [(len(key), getattr(key[0], "name", ""), count) for key, count in rest.items()] == [(1, of, -1)]
    return answer


def _all_of(e: n.Expr) -> tuple[n.Expr, ...]:
    """What all holds where a conjunction does."""
    return (*_all_of(e.a), *_all_of(e.b)) if isinstance(e, n.Binary) and e.op == "and" else (e,)


def _not_negative(e: n.Expr) -> Mapping[tuple[n.Expr, ...], int] | None:
    """The sum that a comparison of whole numbers says is zero or more."""
    if isinstance(e, n.Unary) and e.op == "not" and isinstance(e.x, n.Binary) and e.x.op in OTHER:
        e = replace(e.x, op=OTHER[e.x.op])
    if not (isinstance(e, n.Binary) and e.op in ("ge", "gt", "le", "lt") and getattr(dtype_of(e.a.type), "is_integer", False)):
        return None
    more, less = (e.a, e.b) if e.op in ("ge", "gt") else (e.b, e.a)
    terms = dict(build.polynomial(more))
    for key, count in build.polynomial(less).items():
        terms[key] = terms.get(key, 0) - count
    terms[()] = terms.get((), 0) - (e.op in ("gt", "lt"))
    return {key: count for key, count in terms.items() if count or not key}


__all__ = ["beside_problem", "beside_program", "beside_sizes", "beside_ways", "never", "own_of_problem", "ranges_of", "special_cases"]
