"""Another program as the problem: its tensors, sizes at which both may be called, and the interpreter's outputs as the oracle's."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.gate.cases import RelativeCase, expected_of
from kir.gate.inputs.close import rounded_to
from kir.gate.inputs.sets import size_sets, unrolled_over
from kir.gate.operands import exactly
from kir.gate.shapes import MOST_ELEMENTS
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.canonical import content_hash
from kir.ir.parser import parse_program
from kir.ir.printer import expr_text, program_text
from kir.ir.types import DType
from kir.problem import Comparison, Problem, Shape
from kir.problem.schema import Draw, Number, ProblemFile, Tensor, WorkItem, evaluate

Array = NDArray[Any]
SMALL, LARGE = (3, 20, 64, 130), (512, 256, 128, 64)
"""Where sizes of judged and of timed shapes begin; the first of the latter that fits is taken."""


@dataclass(frozen=True)
class ProgramProblem(Problem):
    """A problem whose reference is a program. The interpreter is the oracle; timed shapes are kept small enough for it."""

    against: n.Program | None = None
    like: n.Program | None = None
    scale: float = 1.0

    @property
    def name(self) -> str:
        """`program` and its hash."""
        return self.spec.name

    @property
    def naive(self) -> n.Program:
        """The program that says what is computed, naive or not."""
        assert self.against is not None
        return self.against

    def compare(self, outputs: Mapping[str, Array], inputs: Mapping[str, Array], shape: Shape | str) -> Comparison:
        """Equal to what the other program gives, up to rounding (as in the CPU gate's relative check)."""
        assert self.against is not None
        at = self.shape(shape) if isinstance(shape, str) else shape
        with np.errstate(all="ignore"):
            expected, also = expected_of(self.against, inputs, self.scalars(at))
            return RelativeCase(at.name, at.sizes, 0, inputs, self.scalars(at), expected, also=also, rounded=rounded_to(self.against),
                                exactly=partial(exactly, self.against, inputs, self.scalars(at))).compare(outputs)

    def oracle(self, inputs: Mapping[str, Array], shape: Shape | str) -> dict[str, Array]:
        """The outputs of the other program, in its dtypes."""
        assert self.against is not None
        at = self.shape(shape) if isinstance(shape, str) else shape
        with np.errstate(all="ignore"):
            return {**expected_of(self.against, inputs, self.scalars(at))[0]}

    def texts(self) -> list[str]:
        """The two programs as text: what another process needs."""
        assert self.against is not None and self.like is not None
        return [program_text(self.against), program_text(self.like), repr(self.scale)]


def from_texts(texts: list[str]) -> ProgramProblem:
    """The inverse of `texts`."""
    against, like, scale = texts
    return program_problem(parse_program(against, "program 0"), parse_program(like, "program 1"), float(scale))


def program_problem(against: n.Program | None, like: n.Program, scale: float = 1.0) -> ProgramProblem:
    """The problem of computing what `against` computes, at sizes that `like` allows too; `scale` is the deviation of its inputs.

    Raises KirError KIR-G001 without a program, and
    KIR-G108 for one whose extents are no expressions over its sizes."""
    if against is None:
        raise error("KIR-G001", "there is nothing to judge correctness by", needs="a problem, or a program to compare with")
    tensors = []
    for p in against.params:
        if isinstance(p.of, n.Buffer) and p.role in ("in", "out", "inout"):
            shape = tuple(str(value) if (value := int_value(d)) is not None else expr_text(d) for d in p.of.shape)
            tensors.append(Tensor(name=p.name, role=p.role, dtype=p.of.dtype.name, shape=shape))
    judged = [x for x in size_sets(like, SMALL) if _elements(tensors, x) <= MOST_ELEMENTS]
    timed = next((x for x in size_sets(like, LARGE, few=unrolled_over(like)) if _elements(tensors, x) <= MOST_ELEMENTS), judged[-1] if judged else None)
    shapes = [Shape(name=_label(sizes), tags=("tail",), sizes=sizes) for sizes in judged]
    if timed is not None:
        shapes.append(Shape(name=f"{_label(timed)}{' again' if timed in judged else ''}", tags=("timed",), sizes=timed))
    scalars = {p.name: 0.5 if p.of.is_float else 1.0 for p in against.params
               if p.role == "scalar" and p.value is None and isinstance(p.of, DType)}
    if not shapes:
        sized = any(p.role == "size" for p in like.params)
        if sized:
            raise error("KIR-G108", f"no sizes were found at which '{like.name}' may be called",
                        needs="a problem with shapes, or values of its compile-time parameters that leave small ones", attempt="kir bind FILE::KERNEL --ask")
        shapes = [Shape(name="fixed", tags=("tail",), sizes={}), Shape(name="fixed again", tags=("timed",), sizes={})]
    draws: dict[str, dict[str, Draw]] = {
        kind: {t.name: _draw(kind, t.dtype, scale) for t in tensors} for kind in ("normal", "sparse")}
    for t in tensors:
        for d in t.shape:
            try:
                evaluate(d, shapes[0].sizes)
            except (ValueError, SyntaxError):
                raise error("KIR-G108", f"the extent '{d}' of '{t.name}' is no expression over the sizes", subject=against.name,
                            needs="a problem that names the extents") from None
    number: Mapping[str, Number] = scalars
    spec = ProblemFile.model_construct(
        name=f"program {content_hash(against)[:12]}", title="what another program computes", operator="program", dtypes=(), constants={},
        scalars=dict(number), facts=(), tensors=tuple(tensors), shapes=tuple(shapes), distributions=draws,
        work_item=WorkItem(kind="element", axes=()))
    return ProgramProblem(spec, "", Path(), Path(), against, like, scale)


def _label(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{k}={v}" for k, v in sizes.items()) or "fixed"


def _elements(tensors: Sequence[Tensor], sizes: Mapping[str, int]) -> float:
    """Elements of the largest tensor; 0 where an extent is no expression over the sizes, which is said later."""
    try:
        return max((math.prod(evaluate(d, sizes) for d in t.shape) for t in tensors), default=0)
    except (ValueError, SyntaxError):
        return 0


def _draw(kind: str, dtype: str, scale: float) -> Draw:
    if dtype.startswith(("f", "bf")):
        return Draw(kind="normal", scale=scale) if kind == "normal" else Draw(kind="sparse", scale=4.0 * scale, every=5)
    return Draw(kind="integers", low=0, high=2)
