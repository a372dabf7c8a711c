"""NaN and infinities that a kernel asks for and drops, where what judges it carries them on.

Whether a maximum, a clamp, a mask or a guard lets a NaN through differs between programs that are right. One that asks whether a value is finite, and whose
result is finite though it would be another one for each value in its place, has left the value out.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from kir.base.diagnostic import Diagnostic
from kir.gate.cases import Case, ProblemCase, RelativeCase, naive_of, tensor_names
from kir.gate.claims.flow import Flow
from kir.gate.claims.ways import Array, Way, endless, forced, ran_on, ways
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.visit import walk
from kir.problem import Problem
from kir.problem.draws import generator

KINDS: Mapping[str, Array] = {"NaN": np.array([math.nan]), "infinities": np.array([math.inf, -math.inf])}
"""What elements are, in turn."""
OTHERS = (-6.5, -3.5, 5.25, 7.75)
"""What elements are instead, beside what they are and a little more: two on each side, as of those a lesser or a greater of two takes one at most, and none
the other's opposite."""
PLACES, LEAST_ELEMENTS, FLOAT_BITS = 4, 8, 16
"""Elements of a tensor that are no numbers at once; elements of all tensors of a case; and bits of a float from which on it has both kinds."""
Run = Callable[[Mapping[str, Array]], Mapping[str, Array] | None]


def dropped(mine: Run, judge: Run, arrays: Mapping[str, Array], bound: Mapping[str, Collection[str]],
            others: Sequence[tuple[Way, Run]]) -> Iterator[Diagnostic]:
    """The first output in which a program has a finite number where the judge has none, or an infinite one, and where the judge's depends on what is not
    finite in every value that was tried (KIR-G149). `bound` names the kinds that some tensors may not have; `others` are the program without each of its ways
    of what is not finite, one of which is why."""
    for name, usual in arrays.items():
        if usual.dtype.kind in "iub" or usual.dtype.itemsize * 8 < FLOAT_BITS or not usual.size:
            continue
        places = np.unique([0, usual.size - 1, *generator("not finite", name, usual.shape).integers(0, usual.size, PLACES - 2)])
        for kind, value in KINDS.items():
            if kind in bound.get(name, ()):
                continue
            given = {**arrays, name: _put(usual, places, np.resize(value, places.shape))}
            want, got = judge(given), mine(given)
            lost = {} if want is None or got is None else {
                out: np.isfinite(_wide(got[out])) & (np.isnan(_wide(x)) if kind == "NaN" else np.isinf(_wide(x)))
                for out, x in want.items() if x.dtype.kind not in "iub" and out in got and got[out].shape == x.shape}
            depends = _depends(judge, arrays, name, places) if any(at.any() for at in lost.values()) else {}
            for out, at in lost.items():
                at &= depends.get(out, np.zeros_like(at))
                for way, other in others if at.any() else ():
                    assert got is not None and want is not None
                    kept = other(given)
                    if kept is None or not (at & ~np.isfinite(_wide(kept[out]))).any():
                        continue
                    where = np.unravel_index(int(np.argmax(at)), at.shape)
                    said = f"with {kind} among the elements of {name} {out}[{', '.join(map(str, where))}] is {_wide(got[out])[where]:g}, and what judges gives"
                    yield Diagnostic("KIR-G149", f"{said} {_wide(want[out])[where]:g}", getattr(way.stmt, "origin", None), way.anchor, expr_text(way.cond),
                                     needs="what the element is taken into, whatever it is")
                    return


def _depends(judge: Run, arrays: Mapping[str, Array], name: str, places: Array) -> dict[str, Array]:
    """By output, the elements that are finite and another number for each value of some elements of a tensor."""
    usual = arrays[name]
    more = usual.astype(np.float64).reshape(-1)[places] + 0.75
    found = [judge(arrays), *(judge({**arrays, name: _put(usual, places, value)}) for value in (more, *OTHERS))]
    if any(x is None for x in found):
        return {}
    each = [x for x in found if x is not None]
    return {out: np.logical_and.reduce([np.isfinite(_wide(x[out])) for x in each]) & np.logical_and.reduce(
        [_wide(a[out]) != _wide(b[out]) for a, b in combinations(each, 2)]) for out in each[0]}


def _put(usual: Array, places: Array, value: float | Array) -> Array:
    made = usual.copy()
    made.reshape(-1)[places] = np.asarray(value).astype(usual.dtype)
    return made


def _wide(a: Array) -> Array:
    return a.astype(np.float64)


def _telling(cases: Sequence[Case]) -> list[Case]:
    """The case of the fewest elements that has some."""
    def elements(c: Case) -> int:
        return sum(a.size for a in c.arrays.values())
    return sorted((c for c in cases if c.distribution.startswith("normal") and elements(c) >= LEAST_ELEMENTS), key=elements)[:1]


def dropped_beside(program: n.Program, flow: Flow, against: n.Program, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Of a program that another one judges."""
    asked = _asked(program, flow)
    for case in _telling([c for c in cases if isinstance(c, RelativeCase)]) if asked else ():
        same = {name: name for name in case.arrays}
        others = [(way, _called(forced(program, replace(way, holds=not way.holds)), same, case)) for way in asked]
        yield from dropped(_called(program, same, case), _called(against, same, case), case.arrays, {}, others)


def dropped_of(program: n.Program, flow: Flow, problem: Problem, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Of a program that a problem judges, by the problem's own program where it comes with one, of what the problem does not leave out."""
    asked, naive = _asked(program, flow), naive_of(problem)
    for case in _telling([c for c in cases if isinstance(c, ProblemCase)]) if naive and asked else ():
        assert isinstance(case, ProblemCase)
        bound = {name: set(KINDS) if kind == "finite" else {"NaN"} for name, kind in problem.spec.numbers.items()}
        others = [(way, _called(forced(program, replace(way, holds=not way.holds)), case.names, case)) for way in asked]
        yield from dropped(_called(program, case.names, case), _called(naive[0], tensor_names(naive[0], problem, {}), case), case.inputs, bound, others)


def _asked(program: n.Program, flow: Flow) -> list[Way]:
    """The ways of what asks whether numbers are finite."""
    return [way for way in ways(program, flow) if isinstance(way.node, (n.If, n.Select)) and (endless(program, flow, way) or _infinite(way.cond))]


def _infinite(cond: n.Expr) -> bool:
    """Whether something is compared with an infinity."""
    return any(isinstance(x, n.Const) and x.dtype.is_float and math.isinf(x.value) for e in walk(cond) if isinstance(e, n.Binary) and e.op in n.COMPARISONS
               for x in (e.a, e.b))


def _called(program: n.Program, names: Mapping[str, str], case: Case) -> Run:
    """What a program makes of inputs, where its tensors have other `names`."""
    def made(given: Mapping[str, Array]) -> Mapping[str, Array] | None:
        outputs = ran_on(program, {own: given[name] for own, name in names.items() if name in given}, case.scalars)
        return None if outputs is None else {names.get(own, own): x for own, x in outputs.items()}
    return made


__all__ = ["dropped", "dropped_beside", "dropped_of"]
