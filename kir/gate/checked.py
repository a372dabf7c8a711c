"""What `kir run --check` runs: a program on each shape and distribution of its problem that fits a budget, until one of them shows a fault."""
from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic
from kir.gate.cases import ProblemCase, problem_cases, tensor_names
from kir.gate.correctness import steps
from kir.interp import Result, run
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.problem import Comparison, Problem, Shape

MOST_CHECKED = 24_000
"""Statements times CTAs that all checked cases of one command may take together (one to two milliseconds each at 256 threads)."""
_PLACE = re.compile(r"(\w+)\[([0-9, ]+?)(, \.\.)?\]")
"""An element of an output, or a row of one (`V[0, ..]`), of which the first element stands for all."""


@dataclass(frozen=True)
class Checked:
    """One case as it ran; `wrong` is the diagnostic of a value that the oracle refuses, at the statement that stored it."""

    case: ProblemCase
    result: Result
    verdict: Comparison
    wrong: Diagnostic | None = None

    @property
    def ok(self) -> bool:
        """Whether the outputs are right and no finding is an error."""
        return self.verdict.ok and not self.result.errors

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The findings, and the wrong value."""
        return (*(f.diagnostic() for f in self.result.findings), *((self.wrong,) if self.wrong is not None else ()))


def cases(program: n.Program, problem: Problem) -> tuple[list[ProblemCase], list[ProblemCase]]:
    """Which cases of a problem are checked, the first shape with a tail in front, then the gate's other shapes, distributions and seeds
    from the quick to the slow; and those that are left out since they take too long."""
    every = list(problem_cases(program, problem, {}))
    if not every:
        return [], []
    costs = {id(c): steps(program, c.sizes) * _ctas(program, c.sizes) for c in every}
    first = next((c for c in every if "tail" in c.at.tags and "one" not in c.at.tags), every[0])
    kept, left, spent = [first], [], costs[id(first)]
    for c in sorted((c for c in every if c is not first), key=lambda c: costs[id(c)]):
        if spent + costs[id(c)] <= MOST_CHECKED:
            kept.append(c)
            spent += costs[id(c)]
        else:
            left.append(c)
    return kept, left


def one(program: n.Program, problem: Problem, at: Shape, distribution: str, seed: int) -> ProblemCase:
    """A case that is asked for."""
    return ProblemCase(problem, at, distribution, seed, problem.inputs(at, seed, distribution), tensor_names(program, problem, {}))


def named(c: ProblemCase) -> str:
    """A case in words: shape and distribution, and the seed where it is another than 0."""
    return f"{c.shape} {c.distribution}" + (f" seed {c.seed}" if c.seed else "")


def checked(program: n.Program, chosen: Sequence[ProblemCase], given: Mapping[str, int | float] | None = None,
            traffic: bool = False) -> Iterator[Checked]:
    """The cases in turn, ending with the first that is not right. `given` are scalars that stand for the problem's; `traffic` is that of a run.
    Raises KirError as the interpreter does, of a program that cannot be run."""
    wanted = {p.name for p in program.params if isinstance(p.of, DType)}
    for case in chosen:
        scalars = {k: v for k, v in {**case.scalars, **(given or {})}.items() if k in wanted}
        result = run(program, case.arrays, scalars, mode="check", traffic=traffic)
        verdict = case.compare(result.outputs)
        found = Checked(case, result, verdict, None if verdict.ok or result.errors else _wrong(case, result, verdict))
        yield found
        if not found.ok:
            return


def _wrong(case: ProblemCase, result: Result, verdict: Comparison) -> Diagnostic:
    """Where the value that is wrong was stored, and what it should have been."""
    base = Diagnostic("KIR-I031", verdict.reason, subject=f"case {named(case)}")
    place = _PLACE.fullmatch(verdict.where)
    if place is None:
        return base
    mine = next((mine for mine, theirs in case.names.items() if theirs == place.group(1)), place.group(1))
    access = result.writer(mine, (*(int(i) for i in place.group(2).split(",")), *((0,) if place.group(3) else ())))
    if access is None:
        return base
    return replace(base, origin=access.origin, anchor=access.anchor,
                   witness=(access.placed, f"read by the caller at {verdict.where}, compared with the problem's oracle"))


def _ctas(program: n.Program, sizes: Mapping[str, int]) -> int:
    values: dict[str, n.Expr] = {p.name: const(sizes[p.name], p.of) for p in program.params if p.name in sizes and isinstance(p.of, DType)}
    return sum(math.prod(int_value(substitute(a.extent, values)) or 1 for a in k.grid) for k in program.kernels)
