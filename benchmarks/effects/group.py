"""A group: programs that compute the same for one set of inputs, the steps between them, and the sizes at which they are timed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kir.base.diagnostic import KirError
from kir.gate.cases import tensor_names
from kir.gate.cost import program_cost
from kir.gate.gpu.images.executable import Bound, bound, problem_shapes
from kir.hardware.target import Target
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.problem import Problem, Shape

SLOWEST = 0.03
"""Modelled seconds beyond which a program is not timed at a shape: the model is often ten times too pessimistic, and sometimes too hopeful."""
Sizes = Mapping[str, int | float]


@dataclass(frozen=True)
class Edge:
    """A step from one program to another, by hash. `source` says what kind of walk it comes from."""

    before: str
    after: str
    step: str
    source: str


@dataclass
class Group:
    """Programs by content hash, all of one surface. `problem` is empty for a recorded launch, whose tensors `extents` gives at each shape."""

    name: str
    family: str
    surface: str
    problem: Problem | None
    shapes: list[Shape]
    scalars: Sizes = field(default_factory=dict)
    extents: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    programs: dict[str, n.Program] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)

    def add(self, program: n.Program) -> str:
        """Keep a program; its hash."""
        key = content_hash(program)
        self.programs.setdefault(key, program)
        return key

    def join(self, before: n.Program, after: n.Program, step: str, source: str) -> None:
        """Keep two programs and the step between them."""
        edge = Edge(self.add(before), self.add(after), step, source)
        if edge.before != edge.after and edge not in self.edges:
            self.edges.append(edge)

    def at(self, program: n.Program, shape: Shape) -> Bound:
        """What a program is at a shape. Raises KirError KIR-G103."""
        if self.problem is None:
            return bound(program, {**self.scalars, **shape.sizes}, self.extents)
        names = tensor_names(program, self.problem, {})
        return bound(program, self.problem.scalars(shape), problem_shapes(self.problem, shape, names))

    def modelled(self, program: n.Program, shape: Shape, target: Target) -> float:
        """Modelled seconds; infinite where the model has none, or the sizes are not the program's."""
        try:
            where = self.at(program, shape)
            sizes = {k: int(v) for k, v in where.values.items() if not isinstance(v, float)}
            return sum(c.seconds for c in program_cost(program, sizes, target, None, self.surface))
        except (KirError, ArithmeticError, ValueError, KeyError, RecursionError):
            return math.inf
