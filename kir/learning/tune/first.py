"""A stored pipeline run over a problem's naive program, at the first point that its space allows or at one that is asked for."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kir.base.diagnostic import KirError, did_you_mean, error, usage
from kir.hardware.target import Target
from kir.learning.tune.rank import assumed, given_of
from kir.learning.tune.space import Space, Value, text_of
from kir.problem import Problem
from kir.rewrite import Context, Pipeline, Trace, run


def first_trace(space: Space, problem: Problem, target: Target, wanted: Mapping[str, str] | None = None) -> Trace:
    """The pipeline's trace from the naive program, its promises (facts, alignment) made; `wanted` fixes parameters by their text.

    Raises UsageError KIR-U009 for a parameter or value that the space does not have, KirError KIR-U006 where it allows no point, and what running the
    pipeline raises, with the problem that it is written for where that is another.
    """
    try:
        return run(assumed(problem.naive, space), _first(space, problem, target, wanted or {}), context=Context(target))
    except KirError as bad:
        if problem.name.partition(":")[0] == space.home:
            raise
        hint = f"--problem {space.home}, for which {space.name} is written"
        raise type(bad)(*(replace(d, attempt=d.attempt or hint) for d in bad.diagnostics)) from bad


def _first(space: Space, problem: Problem, target: Target, wanted: Mapping[str, str]) -> Pipeline:
    shape = (*problem.tagged("timed"), *problem.shapes)[0]
    given, fixed = given_of(space, problem, shape, target), {name: _value(space, name, text) for name, text in wanted.items()}
    reasons = dict[str, None]()
    for point in space.points():
        if all(point[name] == value for name, value in fixed.items()):
            values = space.values(point, given)
            if not (why := space.refusal(values)):
                return Pipeline.parse(space.filled(values), str(space.file))
            reasons[why] = None
    raise error("KIR-U006", f"no point of '{space.name}' is allowed{' with what is fixed' if fixed else ''}", subject=space.name, witness=tuple(reasons))


def _value(space: Space, name: str, text: str) -> Value:
    if name not in space.parameters:
        raise usage("KIR-U009", f"'{space.name}' has no parameter '{name}'", attempt=did_you_mean(name, space.parameters),
                    needs=f"one of {', '.join(space.parameters)}" if space.parameters else "no parameter: it has none")
    for value in space.parameters[name]:
        if text_of(value) == text:
            return value
    raise usage("KIR-U009", f"'{name}' of '{space.name}' does not take {text}", needs=f"one of {', '.join(map(text_of, space.parameters[name]))}")
