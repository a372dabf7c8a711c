"""Inputs that no test of a problem has, where the problem's own program is right: what is always one value in tests is drawn, a claimed compensation has
something to compensate, a claimed rounding meets numbers that are rounded already.

Only what the problem's own program gets right is held against another one.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kir.base.diagnostic import Diagnostic, KirError
from kir.gate.cases import Case, ProblemCase, tensor_names
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.problem import Problem
from kir.problem.draws import generator, numpy_dtype, unit_roundoff
from kir.problem.schema import Shape

Array = NDArray[Any]
Outputs = Mapping[str, Array]
LONG, SHORT = 512, 2
"""How long a row is that is compensated, and what the other sizes are."""
COMPENSATED, ROUNDED = 8, 4
"""By how many units of the last place a compensated result may be off, beside what the problem's own program is; and two results that should be one."""


def elsewhere(program: n.Program, problem: Problem, names: Mapping[str, str], cases: Sequence[Case], at: Callable[[str], str]) -> Iterator[Diagnostic]:
    """KIR-G143 where an input that tests hold at one value is drawn, and the answer is wrong; KIR-G133 where a claimed compensation or rounding is not seen
    in the values; `at` says where an output is made."""
    first = next((c for c in cases if isinstance(c, ProblemCase)), None)
    try:
        naive = problem.naive
    except (KirError, OSError):
        return
    if first is None:
        return
    yield from _held(program, naive, problem, first, at)
    for step in problem.spec.claims.steps:
        if step.kind == "compensation" and step.of in first.inputs:
            yield from _compensated(program, naive, problem, names, step.of, at)
        elif step.kind == "round" and step.to and step.of in first.inputs:
            yield from _rounded(program, naive, first, step.of, step.to, at)


def _ran(program: n.Program, case: ProblemCase) -> dict[str, Array] | None:
    """Outputs by the problem's names; None where it cannot be run on these inputs."""
    wanted = {p.name for p in program.params}
    try:
        with np.errstate(all="ignore"):
            found = run(program, case.arrays, {k: v for k, v in case.scalars.items() if k in wanted}).outputs
    except (KirError, ArithmeticError):
        return None
    return {case.names[mine]: value for mine, value in found.items() if mine in case.names}


def _own(naive: n.Program, case: ProblemCase) -> ProblemCase:
    """The same case for the problem's own program."""
    return replace(case, names=tensor_names(naive, case.problem, {}))


# -------------------------------------------------------------------------------------------------- what tests hold at one value

def _held(program: n.Program, naive: n.Program, problem: Problem, first: ProblemCase, where: Callable[[str], str]) -> Iterator[Diagnostic]:
    tensors = held_at_one_value(problem, first.at)
    taken = {p.name for p in program.params if isinstance(p.of, DType) and p.of.is_float}
    scalars = [name for name, value in problem.spec.scalars.items() if name in taken and np.isfinite(value)]
    if not tensors and not scalars:
        return
    inputs = dict(first.inputs)
    for name, value in tensors.items():
        random, of = generator(problem.name, name, "drawn"), inputs[name]
        inputs[name] = (value * random.uniform(0.5, 1.5, of.shape) if value else random.standard_normal(of.shape)).astype(of.dtype)
    numbers = {k: v * 1.25 or 0.25 if k in scalars else v for k, v in problem.spec.scalars.items()}
    other = replace(problem, spec=problem.spec.model_copy(update={"scalars": numbers}))
    if scalars and not _answers_differ(problem, other, first):
        scalars, other = [], problem  # its answer comes from elsewhere than from these: from a module that holds a number of its own, say
    if not tensors and not scalars:
        return
    case = replace(first, problem=other, inputs=inputs, distribution="drawn")
    made = _ran(program, case)
    if made is None or (judged := case.problem.compare(made, inputs, case.at)).ok:
        return
    right = _ran(naive, _own(naive, case))
    if right is not None and case.problem.compare(right, inputs, case.at).ok:
        words = " and ".join([*tensors, *scalars])
        yield Diagnostic("KIR-G143", f"every test has one value of {words}; with others the answer is wrong: {judged.reason}", subject=words,
                         anchor=where(judged.where.partition("[")[0]), needs="the step that takes it in, as the problem has it")


def _answers_differ(one: Problem, other: Problem, first: ProblemCase) -> bool:
    """Whether two problems say different things of one case."""
    here, there = one.oracle(first.inputs, first.at), other.oracle(first.inputs, first.at)
    return any(not np.array_equal(here[k], there[k], equal_nan=True) for k in here)


def held_at_one_value(problem: Problem, at: Shape) -> dict[str, float]:
    """The tensors of floats whose elements are one and the same finite number in all that a problem draws, with the number."""
    out: dict[str, float] = {}
    for name in problem.distributions:
        drawn = problem.drawn(at, 0, name)
        for t in problem.spec.tensors:
            if t.name in drawn and unit_roundoff(problem.tensor_dtype(t)):
                of = drawn[t.name].astype(np.float64)
                value = float(of.flat[0]) if of.size else 0.0
                same = of.size > 1 and bool((of == value).all()) and out.get(t.name, value) == value
                out[t.name] = value if same else np.nan
    return {name: value for name, value in out.items() if np.isfinite(value)}


# ----------------------------------------------------------------------------------------------------------------- claimed steps

def _compensated(program: n.Program, naive: n.Program, problem: Problem, names: Mapping[str, str], of: str,
                 where: Callable[[str], str]) -> Iterator[Diagnostic]:
    """One number, and so many behind it that each is lost beside it: a plain sum is off by all of them."""
    tensor = next(t for t in problem.spec.tensors if t.name == of)
    eps = unit_roundoff(problem.tensor_dtype(tensor))
    for axis, extent in enumerate(tensor.shape):
        sizes = {name: LONG if name == extent else SHORT for name in problem.shapes[0].sizes}
        at = Shape(name="a long row", tags=("tail",), sizes=sizes)
        if extent not in sizes or not eps or not problem.admits(at):
            continue
        inputs = problem.inputs(at, 0)
        few = np.full(inputs[of].shape, eps / 2)
        np.moveaxis(few, axis, 0)[0] = 1.0
        inputs[of] = few.astype(inputs[of].dtype)
        case = ProblemCase(problem, at, "what is lost one by one", 0, inputs, names)
        right, made = _ran(naive, _own(naive, case)), _ran(program, case)
        if right is None or made is None:
            continue
        exact = problem.oracle(inputs, at)
        for out in sorted(x for x in set(exact) & set(made) & set(right) if _is_float(made[x])):
            unit = 2 * _unit(made[out]) * np.maximum(np.abs(exact[out]), np.abs(exact[out]).max(initial=0.0) * eps)
            off, own = (np.abs(x[out].astype(np.float64) - exact[out]) for x in (made, right))
            if (own <= COMPENSATED / 2 * unit).all() and (wrong := off > own + COMPENSATED * unit).any():
                worst = float((off / np.where(unit > 0, unit, 1.0)).max())
                yield Diagnostic("KIR-G133", f"the problem says that {out}, from {of}, is compensated: on a row of which a plain sum loses all but one number "
                                 f"it is off by {worst:.0f} units of the last place, at {int(wrong.sum())} of {wrong.size} elements", subject=out,
                                 anchor=where(out))
                return


def _rounded(program: n.Program, naive: n.Program, first: ProblemCase, of: str, to: str, where: Callable[[str], str]) -> Iterator[Diagnostic]:
    """Where the problem's own program makes the same of an input that is rounded before, so does one that rounds it."""
    before = first.inputs[of]
    after = before.astype(numpy_dtype(to)).astype(before.dtype)
    cases = (first, replace(first, inputs={**first.inputs, of: after}))
    if (after == before).all():
        return
    both = [_ran(naive, _own(naive, case)) for case in cases]
    if both[0] is None or both[1] is None or any(both[0][k].tobytes() != both[1][k].tobytes() for k in both[0]):
        return
    made = [_ran(program, case) for case in cases]
    if made[0] is None or made[1] is None:
        return
    for out in sorted(x for x in both[0].keys() & made[0].keys() if _is_float(made[0][x])):
        a, b = (x[out].astype(np.float64) for x in made if x is not None)
        near = ROUNDED * 2 * _unit(made[0][out]) * np.maximum(np.abs(a), np.abs(b))
        if (apart := (np.abs(a - b) > near)).any():
            yield Diagnostic("KIR-G133", f"the problem says that {out} is made of {of} rounded to {to}: with {of} rounded before, {int(apart.sum())} of "
                             f"{apart.size} elements are others", subject=out, anchor=where(out))
            return


def _is_float(a: Array) -> bool:
    return a.dtype.kind not in "iub" or "float" in a.dtype.name


def _unit(a: Array) -> float:
    return float(ml_dtypes.finfo(a.dtype).eps) / 2


__all__ = ["elsewhere", "held_at_one_value"]
