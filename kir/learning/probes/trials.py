"""What becomes of a program that a refused step has made: the verifier, the hardware's rules, and runs at several shapes with tails, in checking mode too.

The problem's oracle judges at the sizes that the problem allows, the program before the step where a size is 0.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kir.analysis.target.legalize import legalize
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.gate.cases import ProblemCase, named_shape, problem_tests, tensor_names
from kir.gate.goals import predicted
from kir.hardware.target import Target
from kir.interp import Result, run
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.rules.verify import verify
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.problem import Problem
from kir.rewrite.meaning import difference, draw

Array = NDArray[Any]
Outcome = Literal["right", "wrong", "hardware", "not run"]
SECONDS, CHECKED_SECONDS = 1.0, 0.25
"""Interpreted time that one case may take, as it is foreseen: plainly, and for one that is checked."""
MOST_CASES, MOST_CHECKED = 6, 2
STEPS = 400_000
"""Statements that one run may take: what runs longer than the program before did does not end."""


@dataclass(frozen=True)
class Seen:
    """How a program came out. `by` is what saw it (`verifier`, `target`, `checker`, `values`, `run`), `said` its words, `sizes`, `seed` and
    `distribution` where; `shapes` are the sizes that were tried."""

    outcome: Outcome
    by: str = ""
    said: str = ""
    sizes: tuple[tuple[str, int], ...] = ()
    distribution: str = "normal"
    seed: int = 0
    shapes: tuple[tuple[tuple[str, int], ...], ...] = ()


@dataclass(frozen=True)
class Trials:
    """The trials of what is made of one program that solves a problem."""

    program: n.Program
    problem: Problem
    target: Target

    def of(self, made: n.Program, first: Sequence[Mapping[str, int]] = ()) -> Seen:
        """What is seen of a program made by a step; the sizes `first` are tried before others."""
        bad = [d for d in verify(made) if d.severity == "error"]
        if bad:
            return Seen("wrong", "verifier", f"{bad[0].id}: {bad[0].message}")
        known = {d.id for d in legalize(self.program, self.target.architecture)}
        if lacks := [d for d in legalize(made, self.target.architecture) if d.id not in known]:
            return Seen("hardware", "target", f"{lacks[0].id}: {lacks[0].message}")
        shapes: list[tuple[tuple[str, int], ...]] = []
        for seen in self._runs(made, first):
            if seen.outcome == "wrong":
                return seen
            shapes.append(seen.sizes)
        return Seen("right" if shapes else "not run", shapes=tuple(dict.fromkeys(shapes)))

    def _runs(self, made: n.Program, first: Sequence[Mapping[str, int]]) -> Iterator[Seen]:
        checked = 0
        for case in self._cases(made, first):
            seconds = float(predicted(made, [self._own(case.sizes)]).seconds[0])
            if seconds > SECONDS:
                continue
            mode = checked < MOST_CHECKED and seconds <= CHECKED_SECONDS
            checked += mode
            yield self.at(made, case, mode)
        for sizes in self.empty:
            yield self.beside(made, sizes)

    def _cases(self, made: n.Program, first: Sequence[Mapping[str, int]]) -> list[ProblemCase]:
        given = [self.case(at) for at in first]
        out = [c for c in given if c is not None]
        found = [c for c in problem_tests(made, self.problem, {}, (self.program,)).cases if isinstance(c, ProblemCase)]
        return [*out, *sorted(found, key=lambda c: math.prod(c.sizes.values()))[:MOST_CASES]]

    def case(self, sizes: Mapping[str, int], distribution: str = "normal", seed: int = 0) -> ProblemCase | None:
        """The problem at sizes, where it can be posed there for the program before the step."""
        names = list(self.problem.shapes[0].sizes)
        at = {k: int(sizes[k]) for k in names if k in sizes}
        if len(at) != len(names) or not self._allowed(at):
            return None
        shape = named_shape(self.problem, at)
        inputs = self.problem.inputs(shape, seed, distribution)
        return ProblemCase(self.problem, shape, distribution, seed, inputs, tensor_names(self.program, self.problem, {}))

    def _allowed(self, at: Mapping[str, int]) -> bool:
        from kir.gate.shapes import of_problem
        return bool(of_problem(self.program, self.problem, tensor_names(self.program, self.problem, {})).allowed([dict(at)])[0])

    def _own(self, at: Mapping[str, int]) -> dict[str, int]:
        from kir.gate.shapes import of_problem
        return of_problem(self.program, self.problem, tensor_names(self.program, self.problem, {})).own(dict(at))

    def at(self, made: n.Program, case: ProblemCase, checked: bool) -> Seen:
        """A run of one case."""
        where: dict[str, Any] = {"sizes": tuple(case.sizes.items()), "distribution": case.distribution, "seed": case.seed}
        wanted = {p.name for p in made.params}
        try:
            with np.errstate(all="ignore"):
                result = run(made, case.arrays, {k: v for k, v in case.scalars.items() if k in wanted}, mode="check" if checked else "fast", most_steps=STEPS)
        except KirError as refused:
            return Seen("wrong", "run", f"{refused.diagnostics[0].id}: {refused.diagnostics[0].message}", **where)
        if result.errors:
            d = result.errors[0].diagnostic()
            return Seen("wrong", "checker", f"{d.id}: {d.message}", **where)
        verdict = case.compare(result.outputs)
        return Seen("right", **where) if verdict.ok else Seen("wrong", "values", verdict.reason, **where)

    @cached_property
    def empty(self) -> tuple[dict[str, int], ...]:
        """Sizes with a 0 among them at which the program before the step may be called, and runs."""
        names = [p.name for p in self.program.params if p.role == "size" and p.value is None and isinstance(p.of, DType)]
        out = []
        for name in names:
            sizes = {**dict.fromkeys(names, 2), name: 0}
            if self._holds(sizes) and isinstance(_beside(self.program, sizes), Result):
                out.append(sizes)
        return tuple(out)

    def _holds(self, sizes: Mapping[str, int]) -> bool:
        values = {p.name: const(sizes[p.name], p.of) for p in self.program.params if isinstance(p.of, DType) and p.name in sizes}
        return all(int_value(substitute(f, values)) != 0 and getattr(substitute(f, values), "value", None) is True for f in self.program.facts)

    def beside(self, made: n.Program, sizes: Mapping[str, int]) -> Seen:
        """A run beside the program before, in checking mode."""
        first, second = _beside(self.program, sizes), _beside(made, sizes)
        at = tuple(sizes.items())
        if isinstance(first, str):
            return Seen("not run", "run", first, at)
        if isinstance(second, str):
            return Seen("wrong", "run", second, at)
        if second.errors and not first.errors:
            d = second.errors[0].diagnostic()
            return Seen("wrong", "checker", f"{d.id}: {d.message}", at)
        apart = difference(first, second, "approximate")
        return Seen("wrong", "values", apart, at) if apart else Seen("right", sizes=at)


def _beside(program: n.Program, sizes: Mapping[str, int]) -> Result | str:
    scalars: dict[str, int | float] = {p.name: sizes[p.name] for p in program.params if isinstance(p.of, DType) and p.name in sizes}
    for p in program.params:
        if p.role == "scalar" and p.value is None and isinstance(p.of, DType):
            scalars[p.name] = 0.5 if p.of.is_float else 1
    try:
        with np.errstate(all="ignore"):
            return run(program, draw(program, sizes), scalars, mode="check", most_steps=STEPS)
    except KirError as refused:
        return f"{refused.diagnostics[0].id}: {refused.diagnostics[0].message}"
