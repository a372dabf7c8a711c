"""Correctness: the interpreter's outputs against an oracle, on several shapes, seeds and distributions, and once in checking mode."""
from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from kir.dataclass import dataclass
from kir.diagnostic import Diagnostic, KirError
from kir.gate.operands import cut_off
from kir.gate.verdict import CorrectnessRecord, Run
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.canonical import content_hash
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.problem import Comparison, Problem, Shape

Array = NDArray[Any]
Mode = Literal["fast", "check"]
_FAST: Mode = "fast"
_CHECK: Mode = "check"
MOST_ELEMENTS = 1 << 22
"""Elements of the largest array of an interpreted run."""
MOST_STEPS = 60_000
"""Statements that the runs of one program may take together, beyond those that are never left out (some 20 microseconds each)."""
UNKNOWN_TRIPS = 8
"""Trips counted for a loop whose bounds are not known from the sizes."""


class Case(Protocol):
    """One set of inputs with its judge."""

    @property
    def shape(self) -> str:
        """The name of the sizes."""
        ...

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes by name."""
        ...

    @property
    def distribution(self) -> str:
        """How the inputs were drawn."""
        ...

    @property
    def seed(self) -> int:
        """The seed of the draw."""
        ...

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Inputs by the program's names, fresh copies each time."""
        ...

    @property
    def scalars(self) -> Mapping[str, int | float]:
        """Sizes and scalar arguments by name."""
        ...

    def compare(self, outputs: Mapping[str, Array]) -> Comparison:
        """Whether these outputs, by the program's names, are right."""
        ...


@dataclass(frozen=True)
class ProblemCase:
    """Inputs of a problem for a program whose tensors may have other names: `names` maps the program's to the problem's."""

    problem: Problem
    at: Shape
    distribution: str
    seed: int
    inputs: Mapping[str, Array]
    names: Mapping[str, str]

    @property
    def shape(self) -> str:
        return self.at.name

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.at.sizes

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Inputs by the program's names; each run gets its own copies."""
        return {mine: self.inputs[theirs].copy() for mine, theirs in self.names.items() if theirs in self.inputs}

    @property
    def scalars(self) -> Mapping[str, int | float]:
        return self.problem.scalars(self.at)

    def compare(self, outputs: Mapping[str, Array]) -> Comparison:
        """The problem's own comparison."""
        known = {self.names[mine]: value for mine, value in outputs.items() if mine in self.names}
        return self.problem.compare(known, self.inputs, self.at)


def tensor_names(program: n.Program, problem: Problem, given: Mapping[str, str]) -> dict[str, str]:
    """The problem's tensor for each of the program's: as given, or by the parameter's attribute `tensor`, or of the same name.
    Tensors that the problem does not know keep their name; they are compared with nothing."""
    out = {}
    for p in program.params:
        if isinstance(p.of, n.Buffer):
            out[p.name] = given.get(p.name) or str(dict(p.attrs).get("tensor", p.name))
    return out


def problem_cases(program: n.Program, problem: Problem, given: Mapping[str, str]) -> Iterator[ProblemCase]:
    """Every shape that is no timed one with normal inputs; every other distribution, and a second seed, on the first shape with a tail."""
    names = tensor_names(program, problem, given)
    shapes = [s for s in problem.shapes_for(program) if "timed" not in s.tags and elements_of(problem, s) <= MOST_ELEMENTS]
    if not shapes:
        return
    def case(at: Shape, distribution: str, seed: int) -> ProblemCase:
        return ProblemCase(problem, at, distribution, seed, problem.inputs(at, seed, distribution), names)
    for at in shapes:
        yield case(at, "normal", 0)
    uneven = next((s for s in shapes if "tail" in s.tags and "one" not in s.tags), shapes[-1])
    for distribution in problem.distributions:
        if distribution != "normal":
            yield case(uneven, distribution, 0)
    yield case(uneven, "normal", 1)


def elements_of(problem: Problem, s: Shape) -> int:
    """The most elements that a tensor of the problem has at a shape."""
    return max((math.prod(problem.tensor_shape(t, s)) for t in problem.spec.tensors), default=0)


@dataclass(frozen=True)
class Outcome:
    """What came of one case: the row, hazards of a checked run that refuse, and those that do not."""

    run: Run
    errors: tuple[Diagnostic, ...] = ()
    weak: tuple[Diagnostic, ...] = ()


Runner = Callable[[n.Program, Sequence[tuple[Case, Mode]]], Generator[Outcome, None, None]]
"""Runs cases and gives their outcomes in their order; closed before its end when one of them refuses."""


def check(program: n.Program, cases: Sequence[Case], reference: str, relative: bool = False, runner: Runner | None = None,
          stopped: Callable[[], bool] = lambda: False) -> CorrectnessRecord:
    """Run every case fast and the smallest one checked. The first wrong one ends it. Fails when there is no case at all, and, with what
    was run until then, once `stopped` says so between two cases."""
    if not cases:
        return CorrectnessRecord(reference, False, reason="no shape of the reference satisfies the program's facts", relative=relative)
    judged = [c for c in cases if math.prod(c.sizes.values()) > 1] or cases
    smallest = min(judged, key=lambda c: math.prod(c.sizes.values()))
    every, cases = cases, affordable(program, cases, smallest)
    out = tuple(f"{c.shape} {c.distribution} {c.seed}" for c in every if c not in cases)
    plan: list[tuple[Case, Mode]] = [*((c, _FAST) for c in cases), (smallest, _CHECK)]
    runs: list[Run] = []
    weak: list[Diagnostic] = []
    with contextlib.closing((runner or in_turn)(program, plan)) as outcomes:
        for one in outcomes:
            runs.append(one.run)
            weak += one.weak
            if not one.run.ok:
                return CorrectnessRecord(reference, False, tuple(runs), relative=relative, reason=one.run.reason, left_out=out)
            if one.errors:
                said = f"{one.errors[0].id}: {one.errors[0].message}"
                return CorrectnessRecord(reference, False, tuple(runs), one.errors, tuple(weak), relative, said, out)
            if stopped():
                return CorrectnessRecord(reference, False, tuple(runs), (), tuple(weak), relative, "not all cases were run", out)
    return CorrectnessRecord(reference, True, tuple(runs), (), tuple(weak), relative, left_out=out)


def in_turn(program: n.Program, plan: Sequence[tuple[Case, Mode]]) -> Generator[Outcome, None, None]:
    """Every case in this process, one after another."""
    for case, mode in plan:
        yield outcome(program, case, mode)


def affordable(program: n.Program, cases: Sequence[Case], smallest: Case) -> list[Case]:
    """The cases that fit the interpreter's budget, in their order. Always the smallest, the uneven shape with normal inputs, and one of
    its other distributions, by turns of the program's hash; then the others while all together stay below `MOST_STEPS`."""
    uneven = next((c.shape for c in cases if c.distribution != "normal"), cases[-1].shape)
    adverse = [c for c in cases if c.distribution != "normal"]
    turn = int(content_hash(program)[:8], 16)
    must = [smallest, *(c for c in cases if c.shape == uneven and c.distribution == "normal" and c.seed == 0)]
    must += [adverse[turn % len(adverse)]] if adverse else []
    spent = sum(steps(program, c.sizes) for c in must)
    kept = list(must)
    for c in cases:
        cost = steps(program, c.sizes)
        if c not in kept and spent + cost <= MOST_STEPS:
            kept.append(c)
            spent += cost
    return [c for c in cases if c in kept]


def steps(program: n.Program, sizes: Mapping[str, int]) -> int:
    """Statements that the interpreter runs one after another at these sizes: CTAs and threads run side by side, loops do not."""
    values: dict[str, n.Expr] = {p.name: const(sizes[p.name], p.of) for p in program.params if p.name in sizes and isinstance(p.of, DType)}
    return sum(_steps(k.body, values) for k in program.kernels)


def _steps(block: n.Block, values: Mapping[str, n.Expr]) -> int:
    total = 0
    for s in block:
        match s:
            case n.For():
                lo, hi, step = (int_value(substitute(x, values)) for x in (s.lo, s.hi, s.step))
                trips = max(0, -(-(hi - lo) // step)) if lo is not None and hi is not None and step else UNKNOWN_TRIPS
                total += _steps(s.body, values) * (1 if s.kind in ("thread", "warp", "warpgroup") else trips)
            case n.If():
                total += 1 + _steps(s.then, values) + _steps(s.orelse, values)
            case n.While():
                total += UNKNOWN_TRIPS * _steps(s.body, values)
            case n.Roles():
                total += sum(_steps(r.body, values) for r in s.roles)
            case _:
                total += 1
    return total


def outcome(program: n.Program, case: Case, mode: Mode) -> Outcome:
    """Interpret one case and judge it. A program that cannot be run is wrong, with the reason."""
    def row(c: Comparison) -> Run:
        return Run(case.shape, dict(case.sizes), case.distribution, case.seed, mode, c.ok, c.worst, c.where, c.bound, c.reason)
    wanted = {p.name for p in program.params}
    scalars = {name: value for name, value in case.scalars.items() if name in wanted}
    try:
        with np.errstate(all="ignore"):
            result = run(program, case.arrays, scalars, mode=mode)
    except KirError as refused:
        first = refused.diagnostics[0]
        said = f"it cannot be run at shape '{case.shape}': {first.id}: {first.message}"
        return Outcome(row(Comparison(False, math.inf, first.anchor, 0.0, said)))
    found = row(case.compare(result.outputs))
    if mode != "check":
        return Outcome(found)
    weak = tuple(f.diagnostic() for f in result.findings if f.severity == "weak")
    return Outcome(found, tuple(f.diagnostic() for f in result.errors), weak)


# ---------------------------------------------------------------------------------------------------- another program as the reference

@dataclass(frozen=True)
class RelativeCase:
    """Random inputs, judged by what another program makes of them: `expected`, and `also` where operands of its products may be cut off as well
    as rounded (`kir.gate.operands`)."""

    shape: str
    sizes: Mapping[str, int]
    seed: int
    inputs: Mapping[str, Array]
    scalars: Mapping[str, int | float]
    expected: Mapping[str, Array]
    distribution: str = "normal"
    also: Mapping[str, Array] | None = None

    @property
    def arrays(self) -> Mapping[str, Array]:
        return {name: value.copy() for name, value in self.inputs.items()}

    def compare(self, outputs: Mapping[str, Array]) -> Comparison:
        """Equal up to the rounding of the outputs' dtype, and to 2^-16 of the largest magnitude for what was summed in another order; where there are
        two readings of tf32, so far from what lies between them."""
        worst = Comparison(True, 0.0, "", 0.0)
        for name, exact in self.expected.items():
            got = outputs.get(name)
            if got is None or got.shape != exact.shape or got.dtype != exact.dtype:
                return Comparison(False, math.inf, name, 0.0, f"{name} is absent, or of another shape or dtype")
            one = _close(name, got, exact, None if self.also is None else self.also[name].astype(np.float64))
            if one.worst > worst.worst or not one.ok:
                worst = one
            if not one.ok:
                break
        return worst


def _close(name: str, got: Array, exact: Array, also: Array | None = None) -> Comparison:
    if exact.size == 0 or np.array_equal(got.astype(np.float64), exact.astype(np.float64), equal_nan=True):
        return Comparison(True, 0.0, name, 0.0)
    a, b = got.astype(np.float64), exact.astype(np.float64)
    floating = got.dtype.kind == "f" or got.dtype.kind == "V" or got.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")
    finite = np.isfinite(b)
    scale = float(np.max(np.abs(b[finite]), initial=0.0))
    roundoff = {1: 2.0**-3, 2: 2.0**-8 if got.dtype.name == "bfloat16" else 2.0**-11, 4: 2.0**-24}.get(got.dtype.itemsize, 2.0**-53)
    bound = (2 * roundoff * np.abs(b) + 2.0**-16 * scale) if floating else np.zeros_like(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        apart = np.abs(a - b) if also is None else np.maximum(np.minimum(b, also) - a, a - np.maximum(b, also)).clip(0)
        ratio = np.where(same, 0.0, np.where(bound > 0, apart / bound, np.inf))
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    place = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    worst, where = float(ratio[place]), f"{name}[{', '.join(str(int(i)) for i in place)}]"
    reason = "" if worst <= 1 else f"{where} is {float(a[place])!r}, the reference program says {float(b[place])!r}"
    return Comparison(worst <= 1, worst, where, float(bound[place]), reason)


def size_sets(program: n.Program, bases: tuple[int, ...] = (3, 20, 64, 130)) -> list[dict[str, int]]:
    """Values of the sizes at which every fact holds: from each base upward, one size after the other."""
    sizes = [p for p in program.params if p.role == "size" and p.value is None and isinstance(p.of, DType)]
    out: list[dict[str, int]] = []
    for base in bases:
        values: dict[str, int] = {}
        for offset, p in enumerate(sizes):
            for candidate in range(base + offset, base + offset + 4097):
                trial = {**values, p.name: candidate}
                if not any(_truth(fact, program, trial) is False for fact in program.facts):
                    values = trial
                    break
        if len(values) == len(sizes) and all(_truth(fact, program, values) for fact in program.facts) and values not in out:
            out.append(values)
    return out


def _truth(fact: n.Expr, program: n.Program, sizes: Mapping[str, int]) -> bool | None:
    found = substitute(fact, {p.name: const(sizes[p.name], p.of) for p in program.params if p.name in sizes and isinstance(p.of, DType)})
    return bool(found.value) if isinstance(found, n.Const) else None


def relative_cases(program: n.Program, against: n.Program) -> list[Case]:
    """Sets of sizes that both programs allow, with normal inputs from fixed seeds, and what `against` makes of them."""
    from kir.problem.draws import draw, generator
    from kir.problem.schema import Draw
    out: list[Case] = []
    reference = content_hash(against)
    for number, sizes in enumerate(size_sets(program)):
        if not all(_truth(fact, against, sizes) for fact in against.facts):
            continue
        values = {p.name: const(sizes[p.name], p.of) for p in against.params if p.name in sizes and isinstance(p.of, DType)}
        arrays: dict[str, Array] = {}
        total = 0
        for p in against.params:
            if not isinstance(p.of, n.Buffer):
                continue
            shape = tuple(int_value(substitute(d, values)) or 0 for d in p.of.shape)
            total = max(total, math.prod(shape))
            if p.role != "out" and math.prod(shape) <= MOST_ELEMENTS:
                how = Draw(kind="normal") if p.of.dtype.is_float else Draw(kind="integers", low=0, high=2)
                arrays[p.name] = draw(how, shape, p.of.dtype.name, generator(reference, "normal", number, p.name, sorted(sizes.items())))
        if total > MOST_ELEMENTS:
            continue
        scalars: dict[str, int | float] = {**sizes}
        for p in against.params:
            if p.role == "scalar" and p.value is None and isinstance(p.of, DType):
                scalars[p.name] = 0.5 if p.of.is_float else 1
        with np.errstate(all="ignore"):
            expected, also = expected_of(against, arrays, scalars)
        label = ", ".join(f"{k}={v}" for k, v in sizes.items()) or "fixed"
        out.append(RelativeCase(label, sizes, number, arrays, scalars, expected, also=also))
    return out


def expected_of(against: n.Program, inputs: Mapping[str, Array], scalars: Mapping[str, int | float]) -> tuple[Mapping[str, Array], Mapping[str, Array] | None]:
    """What a program makes of inputs; and what it makes with the operands of its products in tf32 cut off, where it has such."""
    def outputs(p: n.Program) -> Mapping[str, Array]:
        return run(p, {k: v.copy() for k, v in inputs.items()}, {**scalars}).outputs
    other = cut_off(against)
    return outputs(against), None if other is None else outputs(other)
