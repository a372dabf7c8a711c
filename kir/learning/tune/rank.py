"""Candidates of a space: built, pruned by what no target can run, ranked by the cost model."""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from kir.analysis.target.legalize import legalize
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.gate.cost import profile
from kir.hardware.target import Target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.learning.forecast import Forecast, Forecaster
from kir.learning.forecast.choosing import in_order
from kir.learning.tune.space import Point, Space, Value
from kir.problem import Problem, Shape
from kir.rewrite import Context, Pipeline, Step, Trace, run
from kir.rewrite.guard import with_otherwise

MOST_FORECAST = 32
"""Candidates that a forecaster is asked about, those that the cost model has fastest: more than a search measures, and of a large space a part."""


@dataclass(frozen=True)
class Candidate:
    """A point that may be measured: its program, and what is expected of it in seconds: by the cost model, or where a forecaster was asked, as that orders
    them, with its `forecast` against the first of them."""

    point: Point
    program: Program
    seconds: float
    forecast: Forecast | None = None

    @property
    def key(self) -> str:
        """The program's content hash: two points that give one program are one candidate."""
        return content_hash(self.program)


@dataclass(frozen=True)
class Pruned:
    """Points that are not measured, by reason, with the first of them each; and how many there were."""

    reasons: Mapping[str, int] = field(default_factory=dict)
    first: Mapping[str, Point] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(self.reasons.values())


def given_of(space: Space, problem: Problem, shape: Shape, target: Target) -> dict[str, Value]:
    """What a problem, a shape and a target bring along: the dtype, SMs, shared memory, columns of tensor memory, and sizes by name."""
    chip = target.architecture
    known: dict[str, Value] = {"dtype": problem.dtype, "sms": target.device.sm_count, "shared": chip.shared_per_cta, "tensor_columns": chip.tensor_columns,
                               **shape.sizes}
    return {name: value for name, value in known.items() if name in space.given or name in shape.sizes}


Prefixes = dict[tuple[str, ...], Program]
"""Programs that pipelines have come to, by their steps so far: points that agree in their first steps take them once."""


def built(space: Space, values: Point, problem: Problem, target: Target, known: Prefixes | None = None) -> Program:
    """The program of a point: its text parsed, the pipeline run over the problem's naive program with every precondition judged for the
    target, or the kernel specialized. Raises KirError of whatever refuses it."""
    if space.kind == "program":
        from kir.ir.parser import parse_program
        from kir.ir.rules.verify import check

        program = parse_program(space.filled(values), str(space.file))
        check(program)
        return program
    if space.kind == "pipeline":
        steps = Pipeline.parse(space.filled(values), str(space.file)).steps
        return _after(assumed(problem.naive, space), steps, Context(target), {} if known is None else known)
    return _specialized(space, values, problem)


def _after(base: Program, steps: Sequence[Step], context: Context, known: Prefixes) -> Program:
    """The program after some steps, begun at the longest prefix that is known."""
    texts = tuple(map(str, steps))
    begin = next((i for i in range(len(texts), 0, -1) if texts[:i] in known), 0)
    trace = Trace(known[texts[:begin]] if begin else base)
    for i, step in enumerate(steps[begin:], begin + 1):
        trace = trace.then(step, context)
        known[texts[:i]] = trace.program
    return trace.program


def general(space: Space, program: Program, problem: Problem, target: Target) -> Program:
    """A candidate for all sizes of the problem: where its facts do not hold, the launch plan takes what `otherwise` makes of the naive
    program. Raises KirError KIR-U008 for a space without such a pipeline, and what running it raises."""
    if not space.otherwise:
        raise error("KIR-U008", f"'{space.name}' names nothing for sizes at which its facts do not hold", subject=space.name,
                    needs="`otherwise`, a pipeline over the naive program")
    return with_otherwise(program, run(problem.naive, Pipeline.parse(space.otherwise, str(space.file)), Context(target)).program)


def assumed(program: Program, space: Space) -> Program:
    """A naive program with the facts and the alignment that a pipeline takes for granted. Raises KirError KIR-F011."""
    return promised(program, space.facts, space.align)


def promised(program: Program, facts: Sequence[str], align: int, numbers: Mapping[str, int] | None = None) -> Program:
    """A program with further facts, expressions over its sizes and over `numbers` that it has in the place of some, and its tensors aligned to so many bytes
    at least; a fact that holds by itself is left out. Raises KirError KIR-F011."""
    from kir.ir import nodes as n
    from kir.ir.binding import expressions
    from kir.ir.build import const, is_const
    from kir.ir.types import DType

    sizes: dict[str, n.Expr] = {p.name: n.Var(p.name, p.of) for p in program.params if p.role == "size" and isinstance(p.of, DType)}
    sizes = {**{name: const(value) for name, value in (numbers or {}).items()}, **sizes}
    more = expressions({f"facts[{i}]": text for i, text in enumerate(facts)}, sizes, "space")
    new = {p.of.name: replace(p.of, align=max(align, p.of.align)) for p in program.params if isinstance(p.of, n.Buffer)}

    def leave(_: n.Node, node: n.Node) -> n.Node:
        return new.get(node.name, node) if isinstance(node, n.Buffer) and node.space == "global" else node

    from kir.ir.visit import transform
    aligned = transform(program, leave) if align else program
    assert isinstance(aligned, Program)
    return replace(aligned, facts=(*aligned.facts, *(f for f in more.values() if f not in aligned.facts and not is_const(f, True))))


def _specialized(space: Space, values: Point, problem: Problem) -> Program:
    """A kernel of a source file under its binding, with metas and options replaced by the point."""
    from kir.analysis.heuristics import settled
    from kir.analysis.normal.regions import raised
    from kir.ir.binding import LAUNCH_OPTIONS, Binding
    from kir.ir.bindings.specialize import specialize
    from kir.ir.rules.verify import check
    from kir.surface.reading import read_source

    folder = space.file.parent
    source = space.source if ":" in space.source else str(folder / space.source)
    path = folder / space.bind
    binding = Binding.read(path)
    generic = read_source(f"{source}::{space.kernel}", binding).program
    metas = {**binding.metas, **{k: v for k, v in values.items() if k in binding.metas}}
    options = {**binding.options, **{k: v for k, v in values.items() if k in LAUNCH_OPTIONS}}
    first = problem.spec.dtypes[0] if problem.spec.dtypes else ""
    tensors = {k: replace(t, dtype=problem.dtype) if t.dtype == first else t for k, t in binding.tensors.items()}
    program = specialize(generic, settled(replace(binding, metas=metas, options=options, tensors=tensors)))
    check(program)
    return raised(program)


def ranked(space: Space, problem: Problem, shape: Shape, target: Target, most: int | None = None,
           known: Prefixes | None = None, ask: Forecaster | None = None, points: Iterable[Point] | None = None) -> tuple[list[Candidate], Pruned]:
    """All candidates of a space, or of its `points` these, what the cost model thinks fastest first, or `ask` where it is given (ties in the order of points),
    and what was pruned. With `most`, the rest is pruned as modelled slower. `known` carries what pipelines have come to from one call to the next, at one
    dtype."""
    given = given_of(space, problem, shape, target)
    reasons: dict[str, int] = {}
    first: dict[str, Point] = {}
    found: dict[str, Candidate] = {}
    known = {} if known is None else known

    def out(reason: str, point: Point) -> None:
        reasons[reason] = reasons.get(reason, 0) + 1
        first.setdefault(reason, point)

    for point in space.points() if points is None else points:
        values = space.values(point, given)
        if why := space.refusal(values):
            out(why, point)
            continue
        space.filled(values)  # a hole that nothing fills is the space's fault, not the point's
        try:
            program = built(space, values, problem, target, known)
        except KirError as refused:
            out(f"{refused.diagnostics[0].id}: {refused.diagnostics[0].message}", point)
            continue
        if why := _illegal(program, problem, shape, target):
            out(why, point)
            continue
        seconds = modelled(program, shape, target, space.surface)
        one = Candidate(point, program, seconds)
        if one.key in found:
            out("the same program as another point", point)
            continue
        found[one.key] = one
    order = sorted(_forecast(sorted(found.values(), key=lambda c: c.seconds), shape, target, space.surface, ask), key=lambda c: c.seconds)
    for late in order[most:] if most is not None else ():
        out(f"modelled slower than the first {most}", late.point)
    return order[:most], Pruned(reasons, first)


def _forecast(candidates: list[Candidate], shape: Shape, target: Target, surface: str, ask: Forecaster | None) -> list[Candidate]:
    """Candidates, the fastest first, with seconds by which the first `MOST_FORECAST` of them stand as a forecaster orders them; the first keeps
    the cost model's, and those that nothing was asked about stand behind."""
    near, far = candidates[:MOST_FORECAST], candidates[MOST_FORECAST:]
    if ask is None or len(near) < 2 or not math.isfinite(near[0].seconds):
        return candidates
    found = in_order([c.program for c in near], shape.sizes, target, ask, surface)
    asked = [replace(c, seconds=near[0].seconds * math.exp(found[0][0] - worth), forecast=seen) for c, (worth, seen) in zip(near, found, strict=True)]
    last = max(c.seconds for c in asked)
    return [*asked, *(replace(c, seconds=max(c.seconds, last)) for c in far)]


def _illegal(program: Program, problem: Problem, shape: Shape, target: Target) -> str:
    """Why a program cannot run on a target or at a shape ("" when it can)."""
    if found := legalize(program, target.architecture):
        return f"{found[0].id}: {found[0].message}"
    if shape not in problem.shapes_for(program) and not holds(program, shape):
        return "its facts do not hold at these sizes"
    return ""


def holds(program: Program, shape: Shape) -> bool:
    """Whether no fact of a program is against the sizes of a shape."""
    from kir.ir import nodes as n
    from kir.ir.build import const
    from kir.ir.types import DType
    from kir.ir.visit import substitute

    sizes = {p.name: const(shape.sizes[p.name], p.of) for p in program.params if isinstance(p.of, DType) and p.name in shape.sizes}
    values = [substitute(f, sizes) for f in program.facts]
    return all(not isinstance(v, n.Const) or bool(v.value) for v in values)


def modelled(program: Program, shape: Shape, target: Target, surface: str = "cuda") -> float:
    """Seconds by the cost model at a shape; infinite where it counts nothing."""
    rows = profile(program, [(shape.name, shape.sizes)], target, None, surface)
    seconds = rows[0].seconds if rows else math.inf
    return seconds if seconds > 0 else math.inf


def similarity(a: Point, b: Point, parameters: Sequence[str]) -> float:
    """The part of the parameters in which two points agree, 0 to 1."""
    return sum(a[k] == b[k] for k in parameters) / max(1, len(parameters))
