"""The machine that runs one kernel after another: state, evaluation and control flow joined."""
from __future__ import annotations

from kir.interp.evaluation import expressions as expressions
from kir.interp.evaluation import statements
from kir.interp.state.machine import Machine


class Interpreter(Machine):
    """A run of a program."""

    evaluate = expressions.evaluate
    evaluate_all = expressions.evaluate_all
    block = statements.block
