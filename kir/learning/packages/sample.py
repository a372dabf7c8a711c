"""A recorded call on the CPU: the first two CTAs and the last of each axis of the grid, by the kernel as given and by a candidate, on the same inputs.

Recorded calls have the sizes of real use, which no interpreter runs whole. CTAs that do not wait for one another do the same alone as among all. Of a candidate
with another grid those are run that write what the CTAs of the kernel as given do (`kir.learning.packages.owners`), and of the kernel as given again those that
write all that they write: what no CTA of both has written is compared with nothing, and a candidate that leaves out an element is refused.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from kir.learning.packages.owners import Picks, ends, owners
from kir.learning.tune.search import Measured
from kir.problem import Comparison
from kir.problem.draws import draw, generator
from kir.problem.schema import Draw

LARGEST = 1 << 26
"""Elements of the largest tensor of a call that is interpreted."""
DISTRIBUTIONS = ("normal", "positive", "sparse")
"""How the inputs of the cases are drawn."""
Array = NDArray[Any]


def sampled(program: n.Program, picks: Picks | None = None) -> n.Program:
    """The program with some of its CTAs: along each axis of every grid those of `picks`, or the first two and the last. Raises ValueError for a grid that is
    not known, and for CTAs that wait for one another. Outputs hold something before, since most of them is written by no CTA that is left."""
    params = tuple(replace(p, role="inout") if p.role == "out" else p for p in program.params)
    some = ends(program) if picks is None else picks
    return replace(program, params=params, kernels=tuple(_fewer(k, axes) for k, axes in zip(program.kernels, some, strict=True)))


def _fewer(kernel: n.Kernel, picks: Sequence[Sequence[int]]) -> n.Kernel:
    if any(isinstance(x, n.While) and polls(x) for x in walk(kernel)) or kernel.cluster:
        raise ValueError("its CTAs wait for one another")
    grid, moved = [], dict[str, n.Expr]()
    for axis, values in zip(kernel.grid, picks, strict=True):
        kind = axis.extent.type
        assert isinstance(kind, DType)
        at = n.Var(axis.name, kind)
        runs = [k for k, v in enumerate(values) if not k or v != values[k - 1] + 1]  # where a row of neighbors begins
        place: n.Expr = build.add(at, build.const(values[runs[-1]] - runs[-1], kind))
        for k, after in zip(reversed(runs[:-1]), reversed(runs[1:]), strict=True):
            place = build.select(build.compare("lt", at, build.const(after, kind)), build.add(at, build.const(values[k] - k, kind)), place)
        moved |= {axis.name: place} if place != at else {}
        grid.append(replace(axis, extent=build.const(len(values), kind)))
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
            some, small = (drawn, sampled(program)) if ends(program) == ends(self.given) else self._both(program, drawn)
            right = check(small, Tests(tuple(some), (some[0],)), f"program {content_hash(self.given)[:12]}", relative=True)
        except (KirError, ValueError) as bad:
            return f"it cannot be run: {bad}" if isinstance(bad, ValueError) else f"{bad.diagnostics[0].id}: {bad.diagnostics[0].message}"
        return "" if right.ok else right.reason

    def _both(self, program: n.Program, drawn: Sequence[RelativeCase]) -> tuple[list[RelativeCase], n.Program]:
        """Cases for a program with another grid, and it with those of its CTAs that write what the sampled ones of the kernel as given do: what is compared is
        what they write. Raises ValueError where that is not all, or more than CTAs of the kernel as given write that can be told."""
        first = drawn[0]
        wanted = _written(sampled(self.given), self.given, first)
        small = sampled(program, owners(program, wanted))
        marks = _written(small, self.given, first)
        if any((wanted[name] & ~mark).any() for name, mark in marks.items()):
            raise ValueError("its CTAs that can be told to write what those of the kernel as given do leave some of it out")
        more = sampled(self.given, owners(self.given, marks))
        if any((mark & ~also).any() for (_, mark), also in zip(marks.items(), _written(more, self.given, first).values(), strict=True)):
            raise ValueError("its CTAs write what those of the kernel as given are not known to")
        with np.errstate(all="ignore"):
            made = [(x, *expected_of(more, x.inputs, x.scalars)) for x in drawn]
        return [PartCase("recorded", {}, x.seed, x.inputs, x.scalars, expected, x.distribution, also, written=marks) for x, expected, also in made], small

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


@dataclass(frozen=True)
class PartCase(RelativeCase):
    """A case of which only what a program's CTAs wrote is compared."""

    written: Mapping[str, Array] = field(default_factory=dict)

    def compare(self, outputs: Mapping[str, Array]) -> Comparison:
        """As another case compares, with the expected elements where none was written."""
        return RelativeCase.compare(self, {k: np.where(self.written[k], v, self.expected[k]) if k in self.written and v.shape == self.expected[k].shape else v
                                           for k, v in outputs.items()})


def _written(small: n.Program, given: n.Program, case: RelativeCase) -> dict[str, Array]:
    """Which elements of each output a program's CTAs write: those that do not keep what they were given, whatever that is; of a tensor that is read, too,
    those that are others afterwards."""
    kept = {p.name for p in given.params if p.role == "out"}
    turned = {k: _other(v) if k in kept else v for k, v in case.inputs.items()}
    with np.errstate(all="ignore"):
        one, two = (expected_of(small, arrays, case.scalars)[0] for arrays in (case.inputs, turned))
    return {k: _bits(v) == _bits(two[k]) if k in kept else _bits(v) != _bits(case.inputs[k]) for k, v in one.items()}


def _bits(x: Array) -> Array:
    return x if x.dtype == np.bool_ else np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def _other(x: Array) -> Array:
    """An array that differs in each element."""
    return ~x if x.dtype == np.bool_ else (_bits(x) ^ 1).view(x.dtype)


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
