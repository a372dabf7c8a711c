"""Calls that compute nothing: hints, assumptions, barriers."""
from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import I32, shape_of

from ..state.state import State
from ..values import operators
from ..values.arguments import Arguments
from ..values.values import Items, Pointer, Run, Value, is_number


def hint(word: str, r: State, a: Arguments) -> Value:
    """`tl.multiple_of` and its like: the value, with what is said of it."""
    v = a.need(0, "input")
    if not isinstance(v, (Run, Pointer)):
        return v
    values = a.need(1, "values")
    given = values.items if isinstance(values, Items) else (values,)
    consts = [operators.number(x, I32) for x in given]
    if isinstance(v, Pointer):
        return _of_place(word, r, v, consts)
    return Run(build.call(word, v.expr, *consts))


def _of_place(word: str, r: State, p: Pointer, values: list[n.Expr]) -> Pointer:
    """What is said of an address, said of its place in the tensor. Of a parameter only that elements follow one another: where it begins is not known. All
    memory begins at address 0, so a multiple there is one of the place, in elements instead of bytes."""
    if word == "multiple_of":
        known = [int_value(x) for x in values]
        if p.base not in (r.memory, *r.views.values()) or p.base.dtype.is_symbolic or any(x is None or x % p.base.dtype.bytes for x in known):
            return p
        values = [build.const(x // p.base.dtype.bytes, I32) for x in known if x is not None]
    tiles = [i for i, t in enumerate(p.terms) if shape_of(t.type)]
    if not p.terms or len(values) != max(1, len(operators.pointer_shape(p))):
        return p
    if word != "multiple_of" and len(tiles) == 1:
        (i,) = tiles
        return Pointer(p.base, (*p.terms[:i], build.call(word, p.terms[i], *values), *p.terms[i + 1:]))
    return Pointer(p.base, (build.call(word, operators.flat(p), *values),))


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
