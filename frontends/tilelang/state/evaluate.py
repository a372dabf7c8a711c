"""Expressions of the host and of the kernel: one evaluator, over values that may stay open."""

from __future__ import annotations

import libcst as cst

from ..values.values import NotUnderstood, Scope, Value
from .reader import Reader

DEEPEST = 60


def evaluate(r: Reader, scope: Scope, e: cst.BaseExpression) -> Value:
    """The value of an expression. Raises NotUnderstood, and Undecided where a static condition must be told first."""
    r.depth += 1
    if r.depth > DEEPEST:
        r.depth -= 1
        raise NotUnderstood("an expression nested too deeply")
    try:
        handler = r.handlers.expressions.get(type(e))
        if handler is None:
            raise NotUnderstood(f"an expression of the form {type(e).__name__}")
        return handler(r, scope, e)
    finally:
        r.depth -= 1
