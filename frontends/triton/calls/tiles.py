"""Tiles made, and tiles in another shape: Triton's functions that compute nothing."""

from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, DType, shape_of

from ..state.arithmetic import converted
from ..state.state import State
from ..types.shapes import each, filled, reshaped, shape_from, size, stretched, transposed
from ..values import operators
from ..values.arguments import Arguments
from ..values.values import AXES, Items, NotUnderstood, Pointer, Run, Static, TypeOf, Value, describe, is_number
from . import reductions


def program_id(r: State, a: Arguments) -> Value:
    """The place of a program along an axis of the grid."""
    axis = _axis(a, "the axis of a program id")
    r.axes = max(r.axes, axis + 1)
    return Run(n.Var(r.places[axis], I32))


def _axis(a: Arguments, what: str) -> int:
    """The number of one of the grid's axes. Raises NotUnderstood for one that no grid has."""
    axis = operators.known_int(a.need(0, "axis"), what)
    if not 0 <= axis < AXES:
        raise NotUnderstood(f"{what} is {axis}, and a grid has {AXES} axes")
    return axis


def num_programs(r: State, a: Arguments) -> Value:
    """How many programs an axis of the grid has."""
    axis = _axis(a, "the axis of a grid")
    r.axes = max(r.axes, axis + 1)
    return Run(n.Var(r.extents[axis], I32))


def arange(r: State, a: Arguments) -> Value:
    """Numbers from a start to an end."""
    lo, hi = a.need(0, "start"), a.need(1, "end")
    extent = operators.binary("sub", hi, lo)
    (dim,) = shape_from((extent,))
    made: n.Expr = build.iota(dim)
    return Run(build.add(made, operators.number(lo, I32)) if lo != 0 else made)


def dtype_given(v: Value) -> DType:
    """The dtype that a value names. Raises NotUnderstood for another value."""
    if isinstance(v, TypeOf) and not v.pointer:
        return v.dtype
    if isinstance(v, Static) and isinstance(v.expr, n.Var):
        return DType(v.expr.name, "symbolic", 0)
    raise NotUnderstood(f"{describe(v)} where a dtype is needed")


def full(r: State, a: Arguments) -> Value:
    """A tile of one value."""
    shape = a.need(0, "shape")
    value = a.need(1, "value")
    dtype = dtype_given(a.get(2, "dtype"))
    items = shape.items if isinstance(shape, Items) else (shape,)
    return Run(filled(operators.run(converted(value, dtype)), shape_from(items)))


def zeros(r: State, a: Arguments) -> Value:
    """A tile of zeros."""
    shape = a.need(0, "shape")
    items = shape.items if isinstance(shape, Items) else (shape,)
    return Run(filled(operators.number(0, dtype_given(a.need(1, "dtype"))), shape_from(items)))


def zeros_like(r: State, a: Arguments, value: float = 0) -> Value:
    """A tile of one value, of another's shape and dtype."""
    v = a.need(0, "input")
    if not isinstance(v, Run):
        raise NotUnderstood(f"zeros like {describe(v)}")
    given = a.get(1, "value") if "value" in a.named or len(a.args) > 1 else value
    return Run(filled(operators.run(given, v.dtype), v.shape))


def reshape(r: State, a: Arguments) -> Value:
    """The same elements in another shape."""
    shape = shape_from(a.flat(1, "shape"))
    return each(a.need(0, "input"), lambda e: reshaped(e, shape))


def broadcast_to(r: State, a: Arguments) -> Value:
    """A tile stretched to a shape."""
    shape = shape_from(a.flat(1, "shape"))
    v = a.need(0, "input")
    if is_number(v):
        return Run(filled(operators.run(v), shape))
    if isinstance(v, Pointer):
        return (
            operators.offset(Pointer(v.base, v.terms), filled(build.const(0), shape))
            if operators.pointer_shape(v) != shape and not v.terms
            else Pointer(v.base, (stretched(operators.flat(v), shape),))
        )
    return each(v, lambda e: stretched(e, shape))


def broadcast(r: State, a: Arguments) -> Value:
    """Two tiles stretched to one shape."""
    x, y = a.need(0, "input"), a.need(1, "other")
    ex, ey = operators.shapes(operators.run(x), operators.run(y))
    shape = shape_of(n.Select(build.const(True, BOOL), build.cast(ex, I32), build.cast(ey, I32)).type)
    return Items((Run(stretched(ex, shape)), Run(stretched(ey, shape))))


def expand_dims(r: State, a: Arguments) -> Value:
    """Axes of one element put in."""
    v = a.need(0, "input")
    at = a.need(1, "axis")
    axes = [operators.known_int(x, "an axis") for x in (at.items if isinstance(at, Items) else (at,))]

    def grow(e: n.Expr) -> n.Expr:
        rank = len(shape_of(e.type)) + len(axes)
        for axis in sorted(x % rank for x in axes):
            e = build.expand(e, axis) if shape_of(e.type) else build.call("broadcast", e, build.const(1))
        return e

    return each(v, grow)


def permute(r: State, a: Arguments) -> Value:
    """Axes in another order."""
    v = a.need(0, "input")
    dims = a.flat(1, "dims") if len(a.args) > 1 or "dims" in a.named else ()
    if isinstance(v, Pointer):
        rank = len(operators.pointer_shape(v))
        order_ = tuple(operators.known_int(d, "an axis") % rank for d in dims) or (1, 0)
        made = transposed(Run(stretched(operators.flat(v), operators.pointer_shape(v))), order_)
        assert isinstance(made, Run)
        return Pointer(v.base, (made.expr,))
    return transposed(v, tuple(operators.known_int(d, "an axis") for d in dims) or None)


def ravel(r: State, a: Arguments) -> Value:
    """The elements of a tile in a row."""
    return each(a.need(0, "x"), lambda e: reshaped(e, (size(shape_of(e.type)),)))


def interleave(r: State, a: Arguments) -> Value:
    """Two tiles, elements in turn."""
    made = reductions.joined(r, a)
    if not isinstance(made, Run) or len(made.shape) == 1:
        return made  # two scalars
    *rest, last, two = made.shape
    return Run(reshaped(made.expr, (*rest, size((last, two)))))
