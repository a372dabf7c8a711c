"""A subject with the parameters that tuning found: what `--tuned` means."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kir.hardware.target import Target
from kir.ir.nodes import Program
from kir.learning.tune.rank import built, given_of
from kir.learning.tune.results import Tuned, found
from kir.learning.tune.space import Space, Value
from kir.problem import Problem, Shape


def tuned_values(space: Space, problem: Problem, shape: Shape, target: Target, folders: Sequence[Path] | None = None) -> tuple[Tuned, Mapping[str, Value]]:
    """The result kept for a shape, and everything that its point gives. Raises KirError KIR-U005 where there is none."""
    best = found(space.name, target.device.name, problem.name, shape.sizes, folders)
    return best, space.values(best.parameters, given_of(space, problem, shape, target))


def tuned_text(space: Space, problem: Problem, shape: Shape, target: Target, folders: Sequence[Path] | None = None) -> str:
    """The subject's text (a program or a pipeline) with the holes filled as tuning found best."""
    return space.filled(tuned_values(space, problem, shape, target, folders)[1])


def tuned_program(space: Space, problem: Problem, shape: Shape, target: Target, folders: Sequence[Path] | None = None) -> Program:
    """The program itself. Raises KirError KIR-U005, and what building it raises."""
    return built(space, tuned_values(space, problem, shape, target, folders)[1], problem, target)
