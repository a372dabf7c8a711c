"""Correctness on the device: secret seeds, every distribution, shapes that no kernel was shown, all in an order that cannot be foreseen."""
from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from kir.base.dataclass import dataclass
from kir.gate.cases import elements_of, named_shape, problem_plan
from kir.gate.gpu.candidate import Candidate, Reply, Running, variant_at
from kir.gate.gpu.images.executable import Executable
from kir.gate.gpu.oracle import Oracle
from kir.gate.shapes import MOST_ELEMENTS
from kir.gate.verdict import Run
from kir.hardware.device.client import ChildGone
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.problem import Comparison, Problem, Shape
from kir.problem.schema import evaluate
from kir.surface import Backend, Emitted

HELD_OUT = 2
"""Shapes that are drawn anew for each verdict."""
ATTEMPTS = 400
STEPS = (1, 1, 8, 16, 32, 64, 128)
"""What a drawn size is a multiple of."""
EXTRA_SEEDS = 2
LOOSE = 0.5
"""The share of the calls whose tensors are aligned no better than is declared."""
MISALIGNED, UNDECLARED = "CUDA_ERROR_MISALIGNED_ADDRESS", "KIR-G933"


@dataclass(frozen=True)
class Planned:
    """One call that will be judged."""

    shape: Shape
    distribution: str
    seed: int


def held_out(problem: Problem, program: n.Program, secret: random.Random, count: int = HELD_OUT,
             fits: Callable[[Shape], bool] | None = None) -> list[Shape]:
    """Sizes within the range of the problem's own, at which its facts and the program's hold, and what `fits` asks; fewer where few are allowed.
    At first no single size may be one that the problem lists."""
    own = [s for s in problem.shapes if "timed" not in s.tags] or list(problem.shapes)
    most = {name: max(s.sizes[name] for s in own) for name in own[0].sizes}
    known = [s.sizes for s in problem.shapes]
    out: list[Shape] = []
    for attempt in range(ATTEMPTS):
        if len(out) == count:
            break
        sizes = {}
        for name, top in most.items():
            step = secret.choice(STEPS)
            sizes[name] = max(1, secret.randint(1, max(1, 2 * top // step)) * step if step <= 2 * top else top)
        if attempt < ATTEMPTS // 2 and any(value == s[name] for name, value in sizes.items() for s in known):
            continue
        if sizes in known or any(sizes == s.sizes for s in out) or not all(_holds(fact, sizes) for fact in problem.spec.facts):
            continue
        try:
            shape = Shape(name=f"held-out {len(out) + 1}", tags=("tail",), sizes=sizes)
            if any(evaluate(d, sizes) < 1 for t in problem.spec.tensors for d in t.shape) or elements_of(problem, shape) > MOST_ELEMENTS:
                continue
        except ValueError:
            continue
        if allowed(problem, program, shape) and problem.admits(shape) and (fits is None or fits(shape)):
            out.append(shape)
    return out


def compiled_once(by: Backend, emitted: Emitted, program: n.Program, problem: Problem, names: Mapping[str, str]) -> Callable[[Shape], bool]:
    """Whether a shape needs no other variant than the problem's own shapes do, and some that the program alone decides: then a second verdict on a
    program, whose sizes are drawn anew, compiles nothing. (Triton specializes by what divides its arguments.)"""
    @cache
    def variants(own: bool) -> frozenset[tuple[Any, ...]]:
        shapes = (*held_out(problem, program, random.Random(content_hash(program))), *solved_shapes(problem, program, names)[0]) if own else (
            problem.shapes_for(program))
        return frozenset(of(s) for s in shapes)

    def of(s: Shape) -> tuple[Any, ...]:
        return Executable.variant(variant_at(by, emitted, program, problem, names, s)[1])

    return lambda s: any(of(s) in variants(own) for own in (False, True))


def _holds(fact: str, sizes: dict[str, int]) -> bool:
    try:
        return bool(evaluate(fact, sizes))
    except ValueError:
        return False


def allowed(problem: Problem, program: n.Program, shape: Shape) -> bool:
    """Whether every fact of the program holds at a shape."""
    spec = problem.spec.model_copy(update={"shapes": (shape,)})
    return bool(replace(problem, spec=spec).shapes_for(program))


def solved_shapes(problem: Problem, program: n.Program, names: Mapping[str, str]) -> tuple[list[Shape], str]:
    """The shapes that the CPU gate solves from the program's structure, and the distribution in which inputs are ordered there."""
    plan = problem_plan(program, problem, names)
    if plan is None:
        return [], "normal"
    return [named_shape(problem, at) for at in plan.shapes], f"normal{plan.ordering or ''}"


def planned(problem: Problem, program: n.Program, secret: random.Random, fits: Callable[[Shape], bool] | None = None,
            names: Mapping[str, str] | None = None) -> list[Planned]:
    """All untimed shapes with normal inputs; those that are solved from the program with ordered inputs; the uneven one with every distribution and more
    seeds; held-out ones with any; shuffled."""
    shapes = [s for s in problem.shapes_for(program) if "timed" not in s.tags]
    def seed() -> int:
        return secret.getrandbits(48)
    out = [Planned(s, "normal", seed()) for s in shapes]
    solved, in_order = solved_shapes(problem, program, names or {})
    out += [Planned(s, in_order, seed()) for s in solved if problem.admits(s)]
    if shapes:
        uneven = next((s for s in shapes if "tail" in s.tags and "one" not in s.tags), shapes[-1])
        out += [Planned(uneven, d, seed()) for d in problem.distributions if d != "normal"]
        out += [Planned(uneven, "normal", seed()) for _ in range(EXTRA_SEEDS)]
    out += [Planned(s, secret.choice(problem.distributions), seed()) for s in held_out(problem, program, secret, fits=fits)]
    secret.shuffle(out)
    return out


def judged(running: Running, oracle: Oracle, plan: Sequence[Planned], secret: random.Random) -> tuple[list[Run], str]:
    """The runs in their order; the first that is wrong ends it, with the reason. Some, which cannot be foreseen, are made with tensors that are
    aligned as declared and no better. Raises ChildGone where the oracle fails."""
    runs: list[Run] = []
    loose = [secret.random() < LOOSE for _ in plan]
    if loose and not any(loose):
        loose[secret.randrange(len(loose))] = True
    for each, shifted in zip(plan, loose, strict=True):
        inputs = oracle.inputs(each.shape, each.seed, each.distribution)
        try:
            reply = running.call(each.shape, secret, inputs, shifted=shifted)
        except ChildGone as gone:
            said = f"at shape '{each.shape.name}': {unaligned(running.candidate, gone.said) if shifted else gone.said}"
            return [*runs, row(each, Comparison(False, float("inf"), "", 0.0, said))], said
        found = verdict_of(reply, oracle, each.shape, inputs)
        runs.append(row(each, found))
        if not found.ok:
            return runs, f"at shape '{each.shape.name}' with {each.distribution} inputs: {found.reason}"
    return runs, ""


def unaligned(candidate: Candidate, said: str) -> str:
    """What the driver said of a call whose tensors were aligned as declared and no better; a misaligned access is one that nothing declares."""
    if MISALIGNED not in said:
        return said
    params = [p.name for p in candidate.executable.program.params if isinstance(p.of, n.Buffer)]
    listed = ", ".join(f"'{name}' {candidate.executable.alignment(name)}" for name in params)
    return f"{UNDECLARED}: it relies on more alignment than anything declares (in bytes: {listed}): {said}"


def verdict_of(reply: Reply, oracle: Oracle, shape: Shape, inputs: object = None) -> Comparison:
    """What may not be in any call, then the oracle's comparison."""
    if fault := reply.fault():
        return Comparison(False, float("inf"), "", 0.0, fault)
    return oracle.compare(shape, reply.inputs if inputs is None else inputs, reply.outputs)  # type: ignore[arg-type]  # a mapping when given


def row(each: Planned, c: Comparison) -> Run:
    """A comparison as a row of the verdict."""
    return Run(each.shape.name, dict(each.shape.sizes), each.distribution, each.seed, "device", c.ok, c.worst, c.where, c.bound, c.reason)
