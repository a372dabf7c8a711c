"""Whether a changed program computes something else, by a run over large shapes against a reference in float64; apart from the gate.

The gate's own shapes, inputs and bounds take no part in this, so that it can be judged by it. Both programs are run by the interpreter on every
`Trial`: sizes beyond those that a problem lists for checking, inputs of each of its distributions, as drawn, negated, and with each tensor sorted
along its longest axis (rising, falling). `exact` is the problem's oracle in float64, or, for a program that is its own reference, the same program
with its floats widened to f64.

The criterion, for each output and trial, where e is the error of an element of what was computed, u the unit roundoff of the output's dtype
and A the largest magnitude of the exact output. A mutant is told apart when it cannot be run, does not end, has a NaN or an infinity where the
original has none (or none where it has one), or when one of two holds:

- the largest e of the mutant is more than `FACTOR` times the original's and `FACTOR` u A;
- the largest e / (u |exact| + 2^-24 A) of the mutant is more than `FACTOR` times the original's, and `FACTOR`.

Integers are told apart by any difference from the original's, sets with ties (a selection) by the relation itself, which is exact. A mutant that no
trial tells apart is counted as equivalent: it may differ elsewhere, but no run showed it.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import BF16, F16, F32, DType
from kir.ir.visit import substitute
from kir.problem import Problem, Shape
from kir.problem.comparison import set_with_ties
from kir.problem.draws import draw, generator, numpy_dtype, unit_roundoff
from kir.problem.problem import widened
from kir.problem.schema import Draw, SetWithTies

Array = NDArray[Any]
Arrays = Mapping[str, Array]
VERSION = 3
"""Counts up when the criterion or the trials change, so that what is kept of earlier runs is not taken for today's."""
FACTOR = 8.0
"""How much larger than the original's an error is that tells a mutant apart."""
GROWTH = (16, 12, 8, 6, 4, 3, 2)
"""A size is so many times the largest that the problem lists for checking, the first that can be afforded."""
MOST_WORK, MOST_WORK_OF_ALL = 0.8, 5.0
"""How much `work` a run may be, and all runs of one program together: roughly seconds."""
MOST_ELEMENTS = 1 << 20
"""Elements of the largest array of a trial."""
STEPS_MORE = 20
"""A mutant that runs so many times the statements of the original does not end."""
ARRANGED = ("drawn", "negated", "rising", "falling")


@dataclass(frozen=True, eq=False)
class Trial:
    """One run of the original: its inputs, the exact outputs, what it made of them, how many statements it ran, and how much work that was."""

    name: str
    arrays: Arrays
    scalars: Mapping[str, int | float]
    exact: Arrays
    made: Arrays
    steps: int
    work: float
    at: Shape | None = None
    relation: SetWithTies | None = None
    inputs: Arrays | None = None


@dataclass(frozen=True)
class Told:
    """What a run said of a mutant: the trial that told it apart ("" for none), why, and by what factor of what the original is off."""

    trial: str
    why: str
    factor: float


# ------------------------------------------------------------------------------------------------------------------ trials

def problem_trials(program: n.Program, problem: Problem, names: Mapping[str, str]) -> Iterator[Trial]:
    """Trials of a program that solves a problem, as many as there is time for; `names` gives the problem's tensor for each of the program's."""
    shapes = large_shapes(program, problem, names)
    others = [d for d in problem.distributions if d != "normal"]
    spent = 0.0
    longest: Trial | None = None
    for at in shapes:
        for one in trial(program, problem, names, at, "normal", "drawn"):
            longest = one if longest is None or one.steps > longest.steps else longest
            spent += one.work
            yield one
    if longest is None or longest.at is None:
        return
    for distribution, how in [*(("normal", how) for how in ARRANGED[2:]), *((d, how) for how in ARRANGED for d in others)]:
        if spent > MOST_WORK_OF_ALL:
            return
        for one in trial(program, problem, names, longest.at, distribution, how):
            spent += one.work
            yield one


def trial(program: n.Program, problem: Problem, names: Mapping[str, str], at: Shape, distribution: str, how: str) -> Iterator[Trial]:
    """The trial at a shape, with one of the problem's distributions and an arrangement; none where the original itself is not near the oracle (what
    overflows)."""
    inputs = problem.inputs(at, 7, distribution)
    kinds = {**problem.spec.distributions["normal"], **problem.spec.distributions[distribution]}
    def kept(name: str) -> bool:
        of = kinds.get(name) or kinds.get("*")
        return of is not None and (of.kind == "unit" or (how == "negated" and of.kind in ("uniform", "constant")))
    inputs = {k: v if kept(k) else arranged(v, how) for k, v in inputs.items()}
    wanted = {p.name for p in program.params}
    scalars = {k: v for k, v in problem.scalars(at).items() if k in wanted}
    arrays = {mine: inputs[theirs] for mine, theirs in names.items() if theirs in inputs}
    mine = {theirs: m for m, theirs in names.items()}
    exact = {mine[k]: v for k, v in problem.oracle(inputs, at).items() if k in mine}
    found = _run(program, arrays, scalars)
    if not isinstance(found, str):
        relation = problem.spec.relation
        one = Trial(f"{at.name} {distribution}{'' if how == 'drawn' else ', ' + how}", arrays, scalars, exact, found[0], found[1], found[2], at,
                    relation if isinstance(relation, SetWithTies) else None, inputs)
        if all(_finite_alike(one.made[k], one.exact[k]) for k in one.exact if k in one.made):
            yield one


def large_shapes(program: n.Program, problem: Problem, names: Mapping[str, str]) -> list[Shape]:
    """For each size of a problem a shape at which it is larger than any that is listed for checking, the others as in the largest such shape that
    the program takes, or, where that is too much work, as in the smallest (where even that is, the
    largest that is listed and is not); then those at which a size is the largest that a fact allows."""
    listed = [s for s in problem.shapes if "timed" not in s.tags]
    taken = [s for s in problem.shapes_for(program) if s in listed and "one" not in s.tags] or [s for s in problem.shapes_for(program) if s in listed]
    if not taken:
        return []
    middle, small = (pick(taken, key=lambda s: math.prod(s.sizes.values())) for pick in (max, min))
    out: list[Shape] = []
    for name in middle.sizes:
        most = max(s.sizes[name] for s in listed)
        for base in dict.fromkeys((middle.name, small.name)):
            if (found := _largest(program, problem, names, next(s for s in taken if s.name == base), name, most)) is not None:
                out.append(found)
                break
        else:
            likely = [s for s in taken if s not in out and _work(program, problem, names, s, 1.0) <= 6 * MOST_WORK]
            out += [max(likely, key=lambda s: s.sizes[name])] if likely else []
    for name, value in _limits(program).items():
        at = _grown(program, problem, small, name, value) if name in small.sizes else None
        if at is not None and at not in out and _elements(problem, at) <= MOST_ELEMENTS / 16 and _work(program, problem, names, at, 1.0) <= MOST_WORK:
            out.append(at)
    return out or [middle]


def _largest(program: n.Program, problem: Problem, names: Mapping[str, str], base: Shape, name: str, most: int) -> Shape | None:
    """A shape like `base` with one size of several times the largest that is listed, as far as the work allows that two smaller runs let expect; None
    where twice is too much."""
    twice, half = (_grown(program, problem, base, name, times * most + 5) for times in (2, 1))
    if twice is None or half is None or (least := _work(program, problem, names, half, 1.0)) > MOST_WORK:
        return None
    power = math.log2(max(_work(program, problem, names, twice, 4.0) / max(least, 1e-6), 1.0))
    for times in GROWTH:
        at = _grown(program, problem, base, name, times * most + 5)
        if at is not None and least * times**power <= MOST_WORK * (2 if times == GROWTH[-1] else 1) and _elements(problem, at) <= MOST_ELEMENTS:
            return at
    return None


def _elements(problem: Problem, at: Shape) -> int:
    return max(math.prod(problem.tensor_shape(t, at)) for t in problem.spec.tensors)


def _work(program: n.Program, problem: Problem, names: Mapping[str, str], at: Shape, most: float) -> float:
    """How much work a run at a shape is; infinite where its arrays alone are too much, or it cannot be run."""
    if _elements(problem, at) > MOST_ELEMENTS * most:
        return math.inf
    inputs = problem.inputs(at, 7, "normal")
    wanted = {p.name for p in program.params}
    found = _run(program, {mine: inputs[theirs] for mine, theirs in names.items() if theirs in inputs},
                 {k: v for k, v in problem.scalars(at).items() if k in wanted}, 200_000)
    return math.inf if isinstance(found, str) else found[2]


def _limits(program: n.Program) -> dict[str, int]:
    """The largest value of each size that a fact allows."""
    return {f.a.name: int(f.b.value) for f in program.facts
            if isinstance(f, n.Binary) and f.op == "le" and isinstance(f.a, n.Var) and isinstance(f.b, n.Const)}


def _grown(program: n.Program, problem: Problem, base: Shape, name: str, least: int) -> Shape | None:
    """A shape like `base` with one size of at least so much, at which every fact of the program holds."""
    for value in range(least, least + 130):
        sizes = {**base.sizes, name: value}
        at = Shape(name=" ".join(f"{k}{v}" for k, v in sizes.items()), tags=("asked",), sizes=sizes)
        if replace(problem, spec=problem.spec.model_copy(update={"shapes": (at,)})).shapes_for(program):
            return at
    return None


def arranged(a: Array, how: str) -> Array:
    """The same values with the other sign, or in another order: sorted along the longest axis, up or down. Integers (which may be indices) stay."""
    if how == "drawn" or a.dtype.kind in "iub" or a.ndim == 0:
        return a
    if how == "negated":
        return -a
    axis = int(np.argmax(a.shape))
    up = np.sort(a.astype(np.float64), axis=axis).astype(a.dtype)
    return np.ascontiguousarray(up if how == "rising" else np.flip(up, axis=axis))


DRAWS = {
    "normal": Draw(kind="normal"), "wide": Draw(kind="log_uniform", low=-6, high=6), "positive": Draw(kind="uniform", low=0.25, high=2.0),
    "alternating": Draw(kind="alternating"), "large": Draw(kind="normal", scale=16.0),
}
"""How inputs of a program without a problem are drawn."""


def relative_trials(program: n.Program, sizes: Sequence[Mapping[str, int]]) -> Iterator[Trial]:
    """Trials of a program that is its own reference, at some sets of sizes. Inputs on which it makes something else in float64 are left out, as its
    rounding decides there; where those are all, or it cannot be run in float64, what it makes of normal inputs is taken for exact."""
    found = list(_relative(program, sizes))
    yield from [t for t, near in found if near] or [t for t, _ in found if t.name.endswith("normal")]


def _relative(program: n.Program, sizes: Sequence[Mapping[str, int]]) -> Iterator[tuple[Trial, bool]]:
    wide = widened(program)
    for values in sizes:
        known = {p.name: const(values[p.name], p.of) for p in program.params if isinstance(p.of, DType) and p.name in values}
        scalars: dict[str, int | float] = {**values}
        for p in program.params:
            if p.role == "scalar" and p.value is None and isinstance(p.of, DType):
                scalars[p.name] = 0.5 if p.of.is_float else 1
        for how in ARRANGED:
            for name, kind in DRAWS.items():
                arrays: dict[str, Array] = {}
                for p in program.params:
                    if isinstance(p.of, n.Buffer) and p.role != "out":
                        shape = tuple(int_value(substitute(d, known)) or 0 for d in p.of.shape)
                        of = kind if p.of.dtype.is_float else Draw(kind="integers", low=0, high=2)
                        arrays[p.name] = arranged(draw(of, shape, p.of.dtype.name, generator("truth", program.name, name, p.name)), how)
                found = _run(program, arrays, scalars)
                if isinstance(found, str):
                    continue
                exact = _exact(program, wide, arrays, scalars)
                near = exact is not None and all(_near(found[0][k], exact[k]) for k in found[0])
                label = ", ".join(f"{k}={v}" for k, v in values.items()) or "fixed"
                yield Trial(f"{label} {name}{'' if how == 'drawn' else ', ' + how}", arrays, scalars, exact if exact is not None and near else found[0],
                            found[0], found[1], found[2]), near


def _exact(program: n.Program, wide: n.Program, arrays: Arrays, scalars: Mapping[str, int | float]) -> Arrays | None:
    floats = {p.name for p in program.params if isinstance(p.of, n.Buffer) and p.of.dtype in (F32, F16, BF16)}
    found = _run(wide, {k: v.astype(np.float64) if k in floats else v for k, v in arrays.items()}, scalars)
    return None if isinstance(found, str) else found[0]


# ------------------------------------------------------------------------------------------------------------------- verdict

def told(mutant: n.Program, trials: Sequence[Trial]) -> Told:
    """The first trial that tells a mutant from the original, else the nearest to it."""
    nearest = Told("", "no trial tells it apart", 0.0)
    for t in trials:
        found = _run(mutant, t.arrays, t.scalars, STEPS_MORE * t.steps + 10_000)
        if isinstance(found, str):
            return Told(t.name, found, math.inf)
        factor, why = apart(t, found[0])
        if factor > 1:
            return Told(t.name, why, factor)
        if factor > nearest.factor:
            nearest = Told("", why, factor)
    return nearest


def apart(t: Trial, outputs: Arrays) -> tuple[float, str]:
    """By how much outputs are beyond what the criterion allows in a trial (more than 1: told apart), and where."""
    if t.relation is not None:
        verdict = set_with_ties(t.relation, {k: outputs[k] for k in t.made}, t.inputs or {}, t.exact)
        return (0.0, "") if verdict.ok else (math.inf, verdict.reason)
    worst: tuple[float, str] = (0.0, "")
    for name, exact in t.exact.items():
        if name in t.made:
            factor = _factor(outputs[name], t.made[name], exact)
            if factor > worst[0]:
                worst = factor, name
    return worst


def _factor(got: Array, made: Array, exact: Array) -> float:
    """The criterion of one output."""
    if got.shape != made.shape:
        return math.inf
    if made.dtype.kind in "iub" and "float" not in made.dtype.name:
        return 0.0 if np.array_equal(got, made) else math.inf
    g, m, x = (a.astype(np.float64) for a in (got, made, exact))
    finite = np.isfinite(m) & np.isfinite(x)
    odd = ~finite
    if odd.any() and not np.array_equal(g[odd], m[odd], equal_nan=True):
        return math.inf
    if not finite.any():
        return 0.0
    g, m, x = g[finite], m[finite], x[finite]
    if not np.isfinite(g).all():
        return math.inf
    u, largest = unit_roundoff(_name(made)), float(np.max(np.abs(x)))
    ours, theirs = np.abs(m - x), np.abs(g - x)
    plain = float(theirs.max()) / (FACTOR * max(float(ours.max()), u * largest, 1e-300))
    noise = u * np.abs(x) + 2.0**-24 * largest + 1e-300
    each = float((theirs / noise).max()) / (FACTOR * max(float((ours / noise).max()), 1.0))
    return max(plain, each)


def _name(a: Array) -> str:
    return next((k for k in ("f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2") if numpy_dtype(k) == a.dtype), "f32")


def _finite_alike(made: Array, exact: Array) -> bool:
    """Whether the original has finite numbers wherever the oracle, rounded, has."""
    if made.dtype.kind in "iub" and "float" not in made.dtype.name:
        return True
    with np.errstate(all="ignore"):
        return bool((np.isfinite(made.astype(np.float64)) == np.isfinite(exact.astype(made.dtype).astype(np.float64))).all())


def _near(made: Array, exact: Array) -> bool:
    """Whether what a program makes is near what it makes in float64 (no bits of a float were looked at, no choice went the other way)."""
    if made.dtype.kind in "iub" and "float" not in made.dtype.name:
        return made.shape == exact.shape and bool(np.array_equal(made, exact))
    m, x = made.astype(np.float64), exact.astype(np.float64)
    finite = np.isfinite(m) & np.isfinite(x)
    scale = float(np.abs(x[finite]).max(initial=0.0))
    return m.shape == x.shape and float(np.abs(m[finite] - x[finite]).max(initial=0.0)) <= 2.0**-6 * scale


def _run(program: n.Program, arrays: Arrays, scalars: Mapping[str, int | float], most: int | None = None) -> tuple[Arrays, int, float] | str:
    """Outputs, the number of statements run and the work that was (statements, operations and bytes by what they take), or why the program cannot be run."""
    try:
        with np.errstate(all="ignore"):
            fresh = {k: v.copy() for k, v in arrays.items()}
            result = run(program, fresh, scalars) if most is None else run(program, fresh, scalars, most_steps=most)
    except KirError as refused:
        d = refused.diagnostics[0]
        return f"{'does not end' if d.id == 'KIR-I007' else 'cannot be run'}: {d.id}: {d.message}"
    c = result.counters
    return result.outputs, c.steps, c.steps * 6e-5 + sum(c.flops.values()) * 4e-9 + sum(c.bytes.values()) * 5e-10
