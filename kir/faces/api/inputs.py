"""What a run of a program is given: a problem's case, or random tensors at sizes that its facts allow."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from kir.base.diagnostic import usage
from kir.gate.cases import ProblemCase, size_sets, tensor_names
from kir.interp.numerics.number import storage
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.nodes import Buffer, Program
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.problem import Problem, Shape, load_problem


def shape_for(program: Program, problem: Problem, name: str) -> Shape:
    """The shape of a name; without one, the first with a tail. Raises UsageError for a problem none of whose shapes the program allows."""
    allowed = problem.shapes_for(program)
    if not allowed:
        raise usage("KIR-C002", f"no shape of problem '{problem.name}' satisfies the facts of '{program.name}'")
    return problem.shape(name) if name else next((s for s in allowed if "tail" in s.tags and "one" not in s.tags), allowed[0])


def meets(program: Program, problem: str, given: Mapping[str, int | float]) -> None:
    """A problem's shapes give its sizes, and its tensors are those of the program. Raises UsageError for another."""
    known = load_problem(problem)
    if twice := sorted(set(given) & set(known.shapes[0].sizes)):
        raise usage("KIR-C002", f"--set {twice[0]}={given[twice[0]]}: problem '{known.name}' gives '{twice[0]}'", subject="kir run",
                    needs="--shape NAME, one of its shapes; or --set without --problem")
    own = {p.name for p in program.params if isinstance(p.of, Buffer) and p.role in ("in", "inout")}
    names = tensor_names(program, known, {})
    missing = sorted(name for name in own if names[name] not in {t.name for t in known.spec.tensors if t.role != "out"})
    if missing:
        raise usage("KIR-C002", f"'{program.name}' reads '{missing[0]}', which problem '{known.name}' does not have", subject="kir run",
                    witness=(f"tensors of the problem: {', '.join(t.name for t in known.spec.tensors)}", f"read by the program: {', '.join(sorted(own))}"),
                    needs="the problem that this kernel computes; or, under [tensors] of its binding, the problem's names")


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


def random_inputs(program: Program, given: Mapping[str, int | float], seed: int) -> tuple[dict[str, Any], dict[str, int | float]]:
    """Random tensors, and the sizes and scalars that they are drawn for. Raises UsageError KIR-C002 for a size that nothing gives, and MemoryError."""
    free = [p for p in program.params if isinstance(p.of, DType) and p.value is None]
    found = size_sets(program, (20,)) if any(p.name not in given for p in free) else [{}]
    values: dict[str, int | float] = {p.name: 0.5 if isinstance(p.of, DType) and p.of.is_float else 1 for p in free if p.role == "scalar"}
    values |= {**(found[0] if found else {}), **given}
    missing = [p.name for p in free if p.name not in values]
    if missing:
        raise usage("KIR-C002", f"no value for '{missing[0]}'", needs=f"--set {missing[0]}=NUMBER, or --problem")
    known = {p.name: const(values[p.name], p.of) for p in program.params if p.name in values and isinstance(p.of, DType)}
    random, arrays, shapes = np.random.default_rng(seed), {}, {}
    for p in program.params:
        if not isinstance(p.of, n.Buffer):
            continue
        extents = [int_value(substitute(d, known)) for d in p.of.shape]
        shapes[p.name] = [d for d in extents if d is not None]
        if len(shapes[p.name]) != len(extents):
            raise usage("KIR-C002", f"the shape of '{p.name}' is not given by sizes alone", needs="--problem")
    fits_memory(shapes)
    for p in program.params:
        if isinstance(p.of, n.Buffer) and p.role != "out":
            drawn = random.standard_normal(shapes[p.name]) if p.of.dtype.is_float else random.integers(0, 2, shapes[p.name])
            arrays[p.name] = np.asarray(drawn).astype(storage(p.of.dtype))
    return arrays, values


def fits_memory(shapes: Mapping[str, list[int]]) -> None:
    """Raises MemoryError, before anything is drawn, for tensors that this machine cannot hold beside what is known of them."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = {name: 8 * math.prod(shape) for name, shape in shapes.items()}  # drawn as float64
    if sum(needed.values()) > there:
        largest = max(needed, key=lambda name: needed[name])
        raise MemoryError(f"the tensors take {sum(needed.values()) / 2**30:.0f} GiB as they are drawn, most of it '{largest}' {shapes[largest]}")
