"""A recorded call on the CPU: the first two CTAs and the last of each axis of the grid, by the kernel as given and by a candidate, on the same inputs.

Recorded calls have the sizes of real use, which no interpreter runs whole. CTAs that do not wait for one another do the same alone as among all.
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.gate.artifacts import ArtifactCache
from kir.gate.cases import FRESH, RelativeCase, Tests, expected_of
from kir.gate.correctness import check
from kir.gate.cost import program_cost
from kir.gate.cpu import gate_cpu
from kir.gate.inputs.kinds import OTHER
from kir.hardware.target import Target, target
from kir.interp.launch import polls
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.parser import parse_program
from kir.ir.types import DType
from kir.ir.visit import substitute, walk
from kir.learning.tune.search import Measured
from kir.problem.draws import draw, generator
from kir.problem.schema import Draw

LARGEST = 1 << 26
"""Elements of the largest tensor of a call that is interpreted."""
MOST_CTAS = 3
"""CTAs of each axis of the grid that are run."""
DISTRIBUTIONS = ("normal", "positive", "sparse")
"""How the inputs of the cases are drawn."""
Array = NDArray[Any]


def sampled(program: n.Program) -> n.Program:
    """The program with at most `MOST_CTAS` CTAs along each axis of every grid, the last of them where the last was. Raises ValueError for a grid that is
    not known, and for CTAs that wait for one another. Outputs hold something before, since most of them is written by no CTA that is left."""
    params = tuple(replace(p, role="inout") if p.role == "out" else p for p in program.params)
    return replace(program, params=params, kernels=tuple(map(_fewer, program.kernels)))


def _fewer(kernel: n.Kernel) -> n.Kernel:
    if any(isinstance(x, n.While) and polls(x) for x in walk(kernel)) or kernel.cluster:
        raise ValueError("its CTAs wait for one another")
    grid, moved = [], {}
    for axis in kernel.grid:
        extent = build.int_value(axis.extent)
        if extent is None:
            raise ValueError("its grid is not known")
        if extent > MOST_CTAS:
            kind = axis.extent.type
            assert isinstance(kind, DType)
            at = n.Var(axis.name, kind)
            last = build.compare("eq", at, build.const(MOST_CTAS - 1, kind))
            moved[axis.name] = build.select(last, build.const(extent - 1, kind), at)
            axis = replace(axis, extent=build.const(MOST_CTAS, kind))
        grid.append(axis)
    return replace(kernel, grid=tuple(grid), body=tuple(substitute(s, moved) for s in kernel.body))


@dataclass
class CallJudge:
    """What the gate says of a program in the place of a recorded call: compiled whole, right on the CTAs that are run by what `given` makes of the same
    inputs, its time modelled. `ctas` is how many those are."""

    given: n.Program
    target: Target
    cache: ArtifactCache | None = None
    compiles: bool = True
    name: str = "cpu"
    measures: bool = False
    _cases: list[RelativeCase] = field(default_factory=list)

    def prepare(self, programs: object) -> None:
        """Nothing."""

    def judge(self, program: n.Program, surface: str) -> Measured:
        """The word on one, with the cost model's seconds."""
        return self._said(program, surface, self._cases, 0)

    def again(self, program: n.Program, surface: str) -> Measured:
        """The word on one that was right before, on other draws."""
        return self._said(program, surface, [], FRESH)

    def _said(self, program: n.Program, surface: str, drawn: list[RelativeCase], fresh: int) -> Measured:
        verdict = gate_cpu(program, None, surface if self.compiles else "kir", [self.target] if self.compiles else [], self.given, cache=self.cache,
                           interpret=False)
        if not verdict.accepted:
            return Measured(math.inf, accepted=False, reason=verdict.reason)
        if why := self._wrong(program, drawn, fresh):
            return Measured(math.inf, accepted=False, reason=why)
        made = next((a for a in verdict.artifacts if a.kernels), None)
        return Measured(float(f"{sum(c.seconds for c in program_cost(program, {}, self.target, made, surface)):.6g}"))

    def wrong(self, program: n.Program) -> str:
        """Why a program is not right in the place of the call ("" where it is)."""
        return self._wrong(program, self._cases, 0)

    def _wrong(self, program: n.Program, drawn: list[RelativeCase], fresh: int) -> str:
        try:
            drawn += [] if drawn else cases(self.given, fresh)
            right = check(sampled(program), Tests(tuple(drawn), (drawn[0],)), f"program {content_hash(self.given)[:12]}", relative=True)
        except (KirError, ValueError) as bad:
            return f"it cannot be run: {bad}" if isinstance(bad, ValueError) else f"{bad.diagnostics[0].id}: {bad.diagnostics[0].message}"
        return "" if right.ok else right.reason

    @property
    def ctas(self) -> int:
        """CTAs that are run."""
        return sum(math.prod(build.int_value(a.extent) or 1 for a in k.grid) for k in sampled(self.given).kernels)


@dataclass(frozen=True)
class CallTask:
    """A program in the place of a recorded call, as what crosses to another process; `given` is the kernel as it was launched."""

    text: str
    surface: str
    given: str
    target: str
    compiles: bool
    cache: str
    again: bool = False

    @property
    def key(self) -> str:
        """The content hashes of both, and the surface."""
        return f"{content_hash(parse_program(self.text))} {content_hash(parse_program(self.given))} {self.surface}{' again' * self.again}"


def judged_call(task: CallTask) -> dict[str, Any]:
    """What a worker does: the word on a task, as JSON."""
    by = _judge(task.given, task.target, task.compiles, task.cache)
    return (by.again if task.again else by.judge)(parse_program(task.text), task.surface).to_json()


@lru_cache(maxsize=4)
def _judge(given: str, device: str, compiles: bool, folder: str) -> CallJudge:
    return CallJudge(parse_program(given), target(device), ArtifactCache(Path(folder)) if folder else None, compiles)


def cases(given: n.Program, fresh: int = 0) -> list[RelativeCase]:
    """Inputs of a recorded call as different distributions draw them, and what the kernel as given makes of them. Raises ValueError for tensors that are
    too large, and what the interpreter raises. `fresh` is added to the seeds."""
    small, out = sampled(given), []
    for number, distribution in enumerate(DISTRIBUTIONS):
        arrays: dict[str, Array] = {}
        for p in given.params:
            if not isinstance(p.of, n.Buffer):
                continue
            shape = tuple(build.int_value(d) or 0 for d in p.of.shape)
            if math.prod(shape) > LARGEST:
                raise ValueError(f"'{p.name}' has {math.prod(shape)} elements")
            how = OTHER.get(distribution, Draw(kind="normal")) if p.of.dtype.is_float else Draw(kind="integers", low=0, high=2)
            arrays[p.name] = draw(how, shape, p.of.dtype.name, generator(content_hash(given), distribution, number + fresh, p.name, []))
        scalars: Mapping[str, int | float] = {p.name: 0.5 if p.of.is_float else 1 for p in given.params
                                              if p.role == "scalar" and p.value is None and isinstance(p.of, DType)}
        with np.errstate(all="ignore"):
            expected, also = expected_of(small, arrays, scalars)
        out.append(RelativeCase("recorded", {}, number + fresh, arrays, scalars, expected, distribution, also))
    return out
