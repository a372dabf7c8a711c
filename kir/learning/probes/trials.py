"""What becomes of a program that a step has made: the verifier, the hardware's rules, and runs at several sizes with tails, in checking mode too.

The problem's oracle judges at the sizes that the problem allows, the program before the step where a size is 0. A pass that says it changes no bit must
give the bits of the program before.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kir.analysis.target.legalize import legalize
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.gate.cases import ProblemCase, named_shape, problem_tests, tensor_names
from kir.gate.goals import holding, predicted
from kir.gate.shapes import MOST_ELEMENTS, of_problem
from kir.hardware.target import Target
from kir.interp import Result, run
from kir.ir import nodes as n
from kir.ir.rules.verify import verify
from kir.ir.types import DType
from kir.problem import Problem
from kir.rewrite.meaning import difference, draw
from kir.surface.launches.values import evaluated

Array = NDArray[Any]
Sizes = tuple[tuple[str, int], ...]
Outcome = Literal["right", "wrong", "hardware", "not run"]
"""How a program came out: `hardware` where a rule of the target refuses it, and no run can tell."""
By = Literal["", "verifier", "target", "checker", "values", "bits", "run", "rewrite"]
SECONDS, CHECKED_SECONDS, WITNESS_SECONDS = 1.5, 0.25, 4.0
"""Interpreted time that the cases of one program may take, as it is foreseen, one that is checked, and one that a refusal names."""
MOST_CASES, MOST_CHECKED = 5, 2
SEEDS = (11, 12)
"""Further inputs for the first two cases, where there is time."""
STEPS = 400_000
"""Statements that one run may take: what runs longer does not end."""


@dataclass(frozen=True)
class Seen:
    """How a program came out. `by` is what saw it, `said` its words, at `sizes` with inputs of a `distribution` and `seed`; `tried` are the sizes of all
    runs that were right."""

    outcome: Outcome
    by: By = ""
    said: str = ""
    sizes: Sizes = ()
    distribution: str = "normal"
    seed: int = 0
    tried: tuple[Sizes, ...] = ()


@dataclass(frozen=True)
class Trials:
    """The trials of what is made of one program that solves a problem."""

    program: n.Program
    problem: Problem
    target: Target
    _before: dict[tuple[Sizes, str, int], Result | str] = field(default_factory=dict, compare=False, repr=False)

    def of(self, made: n.Program, first: Sequence[Sizes] = (), numerics: str = "bitwise") -> Seen:
        """What is seen of a program made by a step of some numerics; the sizes `first` are tried before others, those that they leave open as
        small as may be."""
        if (fault := self._fault(made)) is not None:
            return fault
        tried: list[Sizes] = []
        for seen in self._runs(made, first, numerics):
            if seen.outcome == "wrong":
                return replace(seen, tried=tuple(dict.fromkeys(tried)))
            if seen.outcome == "right":
                tried.append(seen.sizes)
        some = any(all(v > 0 for _, v in at) for at in tried)
        return Seen("right" if some else "not run", tried=tuple(dict.fromkeys(tried)))

    def at(self, made: n.Program, sizes: Sizes, distribution: str, seed: int, numerics: str = "bitwise") -> Seen:
        """What is seen of a program at one place, in checking mode: how a record is shown again."""
        if (fault := self._fault(made)) is not None:
            return fault
        case = self._case(dict(sizes), distribution, seed)
        return self._beside(made, dict(sizes)) if case is None else self._run(made, case, True, numerics)

    def _fault(self, made: n.Program) -> Seen | None:
        """What is wrong with a program before it is run."""
        if bad := [d for d in verify(made) if d.severity == "error"]:
            return Seen("wrong", "verifier", _said(bad[0]))
        known = {(d.id, d.message) for d in legalize(self.program, self.target.architecture)}
        if lacks := [d for d in legalize(made, self.target.architecture) if (d.id, d.message) not in known]:
            return Seen("hardware", "target", _said(lacks[0]))
        return None

    def _runs(self, made: n.Program, first: Sequence[Sizes], numerics: str) -> Iterator[Seen]:
        """The runs in turn, as long as there is time: where the step is said to fail, where its structure says, where nothing is."""
        spent, checked = 0.0, 0
        posed = list(self._witnesses(first))
        yield from self._without_problem(made, [dict(at) for at in first] if not posed else [])
        planned = self._planned(made)
        again = [replace(c, seed=seed, inputs=self.problem.inputs(c.at, seed, c.distribution)) for seed in SEEDS for c in planned[:2]]
        for case in (*posed, *planned, *again):
            seconds = float(predicted(made, [self._own(case.sizes)]).seconds[0])
            if spent + seconds > (WITNESS_SECONDS if any(case is c for c in posed) else SECONDS):
                continue
            is_checked = checked < MOST_CHECKED and seconds <= CHECKED_SECONDS
            spent, checked = spent + seconds, checked + is_checked
            yield self._run(made, case, is_checked, numerics)
        yield from self._without_problem(made, self._empty)

    def _without_problem(self, made: n.Program, places: Sequence[Mapping[str, int]]) -> Iterator[Seen]:
        """Runs beside the program before, at sizes of its own; those that a place leaves open are small."""
        for at in places:
            own = {name: at.get(name, 2) for name in self._names}
            if self._holds(own) and not _is_large(made, own) and float(predicted(made, [own]).seconds[0]) <= CHECKED_SECONDS:
                yield self._beside(made, own)

    def _witnesses(self, first: Sequence[Sizes]) -> Iterator[ProblemCase]:
        """The problem's cases at sizes of which only some are said."""
        for at in first:
            said = dict(at)
            for others in (2, 3, 8, 16, 64):
                case = self._case({name: said.get(name, others) for name in self.problem.shapes[0].sizes}, "normal", 0)
                if case is not None:
                    yield case
                    break

    def _planned(self, made: n.Program) -> list[ProblemCase]:
        return [c for c in problem_tests(made, self.problem, {}, (self.program,)).cases if isinstance(c, ProblemCase)][:MOST_CASES]

    @cached_property
    def _space(self) -> Any:
        return of_problem(self.program, self.problem, tensor_names(self.program, self.problem, {}))

    def _own(self, at: Mapping[str, int]) -> dict[str, int]:
        """The program's sizes at those of the problem."""
        return dict(self._space.own(dict(at)))

    def _case(self, sizes: Mapping[str, int], distribution: str, seed: int) -> ProblemCase | None:
        """The problem at sizes, where it can be posed there for the program before the step."""
        names = list(self.problem.shapes[0].sizes)
        at = {name: int(sizes[name]) for name in names if name in sizes}
        if len(at) != len(names) or min(at.values(), default=1) < 1 or not self._space.allowed([at])[0]:
            return None
        shape = named_shape(self.problem, at)
        if not self.problem.admits(shape):
            return None
        inputs = self.problem.inputs(shape, seed, distribution)
        return ProblemCase(self.problem, shape, distribution, seed, inputs, tensor_names(self.program, self.problem, {}))

    def _run(self, made: n.Program, case: ProblemCase, checked: bool, numerics: str) -> Seen:
        """A run of one case against the oracle, and where no bit may change, beside the program before."""
        right = Seen("right", "", "", tuple(case.sizes.items()), case.distribution, case.seed)
        result = _ran(made, case, checked)
        if isinstance(result, str):
            return replace(right, outcome="wrong", by="run", said=result)
        key = (right.sizes, case.distribution, case.seed)
        before = self._before[key] if key in self._before else self._before.setdefault(key, _ran(self.program, case, False))
        if result.errors:
            return replace(right, outcome="wrong", by="checker", said=_said(result.errors[0].diagnostic()))
        verdict = case.compare(result.outputs)
        if not verdict.ok:
            if isinstance(before, Result) and not case.compare(before.outputs).ok:
                return replace(right, outcome="not run", said="the program before is not right there either")
            return replace(right, outcome="wrong", by="values", said=verdict.reason)
        if numerics == "bitwise" and isinstance(before, Result) and (apart := difference(before, result)):
            return replace(right, outcome="wrong", by="bits", said=f"{apart}, and the pass says that no bit changes")
        return right

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.program.params if p.role == "size" and p.value is None and isinstance(p.of, DType))

    @cached_property
    def _empty(self) -> tuple[dict[str, int], ...]:
        """Sizes with a 0 among them at which the program before the step may be called, and runs."""
        found = [{**dict.fromkeys(self._names, 2), name: 0} for name in self._names]
        return tuple(at for at in found if self._holds(at) and isinstance(_alone(self.program, at), Result))

    def _holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the facts of the program hold at sizes of its own."""
        return bool(holding(self.program, [dict(sizes)], self.program.facts)[0])

    def _beside(self, made: n.Program, sizes: Mapping[str, int]) -> Seen:
        """A checked run beside the program before."""
        at = tuple(sizes.items())
        first, second = _alone(self.program, sizes), _alone(made, sizes)
        if isinstance(first, str) or first.errors:
            return Seen("not run", "run", first if isinstance(first, str) else _said(first.errors[0].diagnostic()), at)
        if isinstance(second, str):
            return Seen("wrong", "run", second, at)
        if second.errors:
            return Seen("wrong", "checker", _said(second.errors[0].diagnostic()), at)
        apart = difference(first, second, "approximate")
        return Seen("wrong", "values", apart, at) if apart else Seen("right", sizes=at)


def _is_large(program: n.Program, sizes: Mapping[str, int]) -> bool:
    """Whether a tensor has more elements at these sizes than a run is given."""
    return any(math.prod(evaluated(d, sizes) or 0 for d in p.of.shape) > MOST_ELEMENTS for p in program.params if isinstance(p.of, n.Buffer))


def _said(d: Diagnostic) -> str:
    return f"{d.id}: {d.message}"


def _ran(program: n.Program, case: ProblemCase, checked: bool) -> Result | str:
    """A run of a case, or why there is none."""
    wanted = {p.name for p in program.params}
    scalars = {k: v for k, v in case.scalars.items() if k in wanted}
    try:
        with np.errstate(all="ignore"):
            return run(program, case.arrays, scalars, mode="check" if checked else "fast", most_steps=STEPS)
    except KirError as refused:
        return _said(refused.diagnostics[0])


def _alone(program: n.Program, sizes: Mapping[str, int]) -> Result | str:
    """A checked run on drawn inputs, or why there is none."""
    scalars: dict[str, int | float] = dict(sizes)
    scalars |= {p.name: 0.5 if p.of.is_float else 1 for p in program.params if p.role == "scalar" and p.value is None and isinstance(p.of, DType)}
    try:
        with np.errstate(all="ignore"):
            return run(program, draw(program, sizes), scalars, mode="check", most_steps=STEPS)
    except KirError as refused:
        return _said(refused.diagnostics[0])
