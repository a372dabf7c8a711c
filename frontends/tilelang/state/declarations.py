"""Tensors and numbers that a kernel takes."""

from __future__ import annotations

import libcst as cst

from kir.ir import build
from kir.ir import nodes as n

from ..values.values import Choice, Frame, Items, Memory, NotUnderstood, Num, Open, TensorType, TypeOf, Value, describe
from .evaluate import evaluate
from .open_values import item_of_open
from .reader import Reader, Undecided


def declared_here(r: Reader, f: Frame, name: str, annotation: cst.BaseExpression) -> None:
    """A parameter of an eager kernel, where its body says what it is."""
    try:
        stated = r.decided(evaluate(r, f.scope, annotation))
        f.scope.names[name] = declared(r, name, stated)
    except Undecided as open_:
        raise NotUnderstood(f"the type of '{name}' depends on a condition that the binding decides") from open_


def declared(r: Reader, name: str, kind: Value) -> Value:
    """A parameter of the kernel: a tensor or a number."""
    own = name
    if isinstance(kind, TensorType):
        shape = tuple(_extent(r, d) for d in _dimensions(r, kind.shape))
        strides = None if kind.strides is None else tuple(_extent(r, d) for d in _each(r, kind.strides, len(shape)))
        if strides is not None and strides == _row_major(shape):
            strides = None
        buffer = n.Buffer(own, r.dtype(kind.dtype), shape, "global", None, strides)
        r.params.append(n.Param(own, "in", buffer))
        return Memory(buffer)
    dtype = r.dtype(kind) if isinstance(kind, (TypeOf, str, Open)) else None
    if dtype is None:
        raise NotUnderstood(f"the parameter '{name}' is {describe(kind)}")
    r.params.append(n.Param(own, "scalar", dtype))
    return Num(n.Var(own, dtype))


def _dimensions(r: Reader, given: tuple[Value, ...]) -> tuple[Value, ...]:
    """Extents or strides, also where a condition of the binding chooses among tuples of them. Raises Undecided."""
    def tuples(v: Value) -> bool:
        return isinstance(v, Items) or (isinstance(v, Choice) and (tuples(v.a) or tuples(v.b)))

    while len(given) == 1 and tuples(given[0]):
        found = r.decided(given[0])
        given = found.items if isinstance(found, Items) else (found,)
        if isinstance(found, Open):
            break
    return given


def _each(r: Reader, strides: tuple[Value, ...], count: int) -> tuple[Value, ...]:
    """The stride of each dimension, also where one name stands for all of them. Raises NotUnderstood."""
    strides = _dimensions(r, strides)
    if len(strides) == 1 and isinstance(strides[0], Open) and count > 1:
        return tuple(item_of_open(r, strides[0], k) for k in range(count))
    if len(strides) != count:
        raise NotUnderstood(f"a tensor of {count} dimensions with {len(strides)} strides")
    return strides


def _extent(r: Reader, v: Value) -> n.Expr:
    e = r.integer(v)
    return build.const(int(e.value)) if isinstance(e, n.Const) else e


def _row_major(shape: tuple[n.Expr, ...]) -> tuple[n.Expr, ...]:
    out: list[n.Expr] = []
    step: n.Expr = build.const(1)
    for d in reversed(shape):
        out.append(step)
        step = build.mul(step, d)
    return tuple(reversed(out))
