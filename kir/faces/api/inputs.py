"""What a run of a program is given: a problem's case, or random tensors at sizes that its facts allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kir.base.diagnostic import usage
from kir.gate.cases import ProblemCase, tensor_names
from kir.gate.proved.drawn import random_inputs
from kir.gate.proved.unsaid import require_tensors
from kir.ir.nodes import Buffer, Program
from kir.ir.types import DType
from kir.problem import Problem, Shape, load_problem
from kir.problem.problem import shape_of


def shape_for(program: Program, problem: Problem, name: str) -> Shape:
    """The shape of a name, or of sizes (`M=64,N=64,K=64`); without one, the first with a tail.

    Raises UsageError for a problem none of whose shapes the program allows."""
    allowed = problem.shapes_for(program)
    if not allowed:
        raise usage("KIR-C002", f"no shape of problem '{problem.name}' satisfies the facts of '{program.name}'")
    return shape_of(problem, name) if name else next((s for s in allowed if "tail" in s.tags and "one" not in s.tags), allowed[0])


def meets(program: Program, problem: str, given: Mapping[str, int | float]) -> None:
    """A problem's shapes give its sizes, and its tensors are those of the program. Raises UsageError for another."""
    known = load_problem(problem)
    if twice := sorted(set(given) & set(known.shapes[0].sizes)):
        raise usage("KIR-C002", f"--set {twice[0]}={given[twice[0]]}: problem '{known.name}' gives '{twice[0]}'", subject="kir run",
                    needs=f"--shape NAME, one of its shapes, or --shape {twice[0]}=..; or --set without --problem")
    own = {p.name for p in program.params if isinstance(p.of, Buffer) and p.role in ("in", "inout")}
    names = tensor_names(program, known, {})
    missing = sorted(name for name in own if names[name] not in {t.name for t in known.spec.tensors if t.role != "out"})
    if missing:
        raise usage("KIR-C002", f"'{program.name}' reads '{missing[0]}', which problem '{known.name}' does not have", subject="kir run",
                    witness=(f"tensors of the problem: {', '.join(t.name for t in known.spec.tensors)}", f"read by the program: {', '.join(sorted(own))}"),
                    needs="the problem that this kernel computes; or, under [tensors] of its binding, the problem's names")
    require_tensors(program, known)


def inputs_of(program: Program, problem: str, shape: str, distribution: str, seed: int, given: Mapping[str, int | float]) -> Any:
    """Arrays, scalars and a judge (None without a problem)."""
    wanted = {p.name for p in program.params if isinstance(p.of, DType)}
    if not problem:
        return (*random_inputs(program, given, seed), None)
    known = load_problem(problem)
    at = shape_for(program, known, shape)
    case = ProblemCase(known, at, distribution, seed, known.inputs(at, seed, distribution), tensor_names(program, known, {}))
    scalars = {k: v for k, v in {**case.scalars, **given}.items() if k in wanted}
    return case.arrays, scalars, case.compare
