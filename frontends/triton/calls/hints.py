"""Calls that compute nothing: hints, assumptions, barriers."""
from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32

from ..state.state import State
from ..values import operators
from ..values.arguments import Arguments
from ..values.values import Items, Run, Value, is_number


def hint(word: str, r: State, a: Arguments) -> Value:
    """`tl.multiple_of` and its like: the value, with what is said of it."""
    v = a.need(0, "input")
    if not isinstance(v, Run):
        return v
    values = a.need(1, "values")
    given = values.items if isinstance(values, Items) else (values,)
    consts = [operators.number(x, I32) for x in given]
    return Run(build.call(word, v.expr, *consts))


def assume(r: State, a: Arguments) -> Value:
    """`tl.assume`: a condition that holds here."""
    cond = operators.truth(a.need(0, "cond"))
    if isinstance(cond, Run):
        made = build.call("assume", cond.expr)
        r.out.emit(n.Eval(made))
    return None


def barrier(r: State, a: Arguments) -> Value:
    """`tl.debug_barrier`: all threads of the CTA meet."""
    r.out.emit(n.Eval(build.call("barrier")))
    return None


def dependency(row: str, r: State, a: Arguments) -> Value:
    """`gdc_wait` and `gdc_launch_dependents`: the order of this grid and the ones launched before and after it."""
    r.out.emit(n.Eval(build.call(row)))
    return None


def nothing(r: State, a: Arguments) -> Value:
    """A call that has no effect on what is computed."""
    return None


def identity(r: State, a: Arguments) -> Value:
    """A call that gives its argument."""
    v = a.need(0, "x")
    return Run(operators.number(v)) if is_number(v) else v
