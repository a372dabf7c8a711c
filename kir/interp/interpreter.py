"""The machine that runs one kernel after another: state, evaluation and control flow joined."""
from __future__ import annotations

from kir.interp import evaluate as expressions
from kir.interp import statements
from kir.interp.machine import Machine


class Interpreter(Machine):
    """A run of a program."""

    evaluate = expressions.evaluate
    evaluate_all = expressions.evaluate_all
    block = statements.block
