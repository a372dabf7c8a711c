"""NaN and infinities that a kernel drops, where what judges it carries them on.

Whether a maximum, a mask or a guard lets a NaN through differs between programs that are right. Where a result is another one for each value of an element
it does not: a finite number there is made without the element.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from kir.base.diagnostic import Diagnostic
from kir.gate.cases import Case, ProblemCase, RelativeCase, naive_of, tensor_names
from kir.gate.claims.ways import Array, ran_on
from kir.ir import nodes as n
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


def dropped(mine: Run, judge: Run, arrays: Mapping[str, Array], bound: Mapping[str, Collection[str]]) -> Iterator[Diagnostic]:
    """The first output in which a program has a finite number where the judge has none, or an infinite one, and where the judge's depends on what is not
    finite in every value that was tried (KIR-G149); `bound` names the kinds that some tensors may not have."""
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
                out: np.isfinite(_wide(got[out])) & ~np.isfinite(_wide(x)) & (np.isnan(_wide(x)) if kind == "NaN" else np.isinf(_wide(x)))
                for out, x in want.items() if x.dtype.kind not in "iub" and out in got and got[out].shape == x.shape}
            if any(at.any() for at in lost.values()):
                depends = _depends(judge, arrays, name, places)
                for out, at in lost.items():
                    if out in depends and (at & depends[out]).any():
                        assert got is not None and want is not None
                        where = np.unravel_index(int(np.argmax(at & depends[out])), at.shape)
                        yield Diagnostic("KIR-G149", f"with {kind} among the elements of {name} {out}[{', '.join(map(str, where))}] is "
                                         f"{_wide(got[out])[where]:g}, and what judges gives {_wide(want[out])[where]:g}", subject=out,
                                         needs="what the element is taken into")
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


def dropped_beside(program: n.Program, against: n.Program, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Of a program that another one judges."""
    for case in _telling([c for c in cases if isinstance(c, RelativeCase)]):
        same = {name: name for name in case.arrays}
        yield from dropped(_called(program, same, case), _called(against, same, case), case.arrays, {})


def dropped_of(program: n.Program, problem: Problem, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Of a program that a problem judges, by the problem's own program where it comes with one, of what the problem does not leave out."""
    naive = naive_of(problem)
    for case in _telling([c for c in cases if isinstance(c, ProblemCase)]) if naive else ():
        assert isinstance(case, ProblemCase)
        bound = {name: set(KINDS) if kind == "finite" else {"NaN"} for name, kind in problem.spec.numbers.items()}
        yield from dropped(_called(program, case.names, case), _called(naive[0], tensor_names(naive[0], problem, {}), case), case.inputs, bound)


def _called(program: n.Program, names: Mapping[str, str], case: Case) -> Run:
    """What a program makes of inputs, where its tensors have other `names`."""
    def made(given: Mapping[str, Array]) -> Mapping[str, Array] | None:
        outputs = ran_on(program, {own: given[name] for own, name in names.items() if name in given}, case.scalars)
        return None if outputs is None else {names.get(own, own): x for own, x in outputs.items()}
    return made


__all__ = ["dropped", "dropped_beside", "dropped_of"]
