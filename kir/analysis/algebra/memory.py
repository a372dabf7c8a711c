"""Memory that holds values: buffers, views, and the places that regions name."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from kir.analysis.algebra.terms import Undecided, Value
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import const

Array = np.ndarray[Any, Any]
Evaluate = Callable[[n.Expr, Any], Value]


@dataclass(eq=False)
class Handle:
    """A buffer's name: its elements, or a view of others that is worked out in `scope`."""

    buffer: n.Buffer
    data: Array | None
    view: n.View | None = None
    scope: Any = None
    shape: tuple[int, ...] = ()


@dataclass(eq=False)
class Place:
    """The elements that a region names: an index per dimension, which broadcast, where they lie inside (True of a single one that does), and what stands
    outside."""

    handle: Handle
    index: tuple[Array, ...] | tuple[int, ...]
    shape: tuple[int, ...]
    inside: Array | Literal[True]
    fill: Value = None
    filled: Array | None = None


def numbers(v: Value) -> Array:
    """An index as numbers. Raises Undecided for one that depends on the inputs, or is not defined."""
    try:
        return np.asarray(v.tolist() if isinstance(v, np.ndarray) else v, dtype=np.int64)
    except TypeError as bad:
        raise Undecided("an index is not defined") from bad


def new(shape: tuple[int, ...], value: Value = None) -> Array:
    """Elements that all hold a value."""
    made = np.empty(shape, dtype=object)
    made.fill(value)
    return made


def place(handle: Handle, index: tuple[n.Expr | n.Span, ...], scope: Any, evaluate: Evaluate) -> Place:
    """The place that a region names."""
    shape = handle.shape
    if not index:
        index = tuple(n.Span(const(0), d) for d in shape)
    spans = [i for i in index if isinstance(i, n.Span)]
    if not spans:
        values = [evaluate(i, scope) for i in index if isinstance(i, n.Expr)]
        if handle.view is None and all(type(v) is int and 0 <= v < d for v, d in zip(values, shape, strict=True)):
            return Place(handle, tuple(values), (), True)
        return located(handle, [numbers(v) for v in values], evaluate)
    own: list[Array] = []
    axis = 0
    for i in index:
        if isinstance(i, n.Span):
            count = i.extent if isinstance(i.extent, int) else int(numbers(evaluate(i.extent, scope)))
            step = i.step if isinstance(i.step, int) else int(numbers(evaluate(i.step, scope)))
            at = int(numbers(evaluate(i.lo, scope))) + step * np.arange(count)
            own.append(at.reshape((1,) * axis + (count,) + (1,) * (len(spans) - 1 - axis)))
            axis += 1
        else:
            at = numbers(evaluate(i, scope))
            if at.ndim:
                raise Undecided("a gather beside a range")
            own.append(at)
    return located(handle, own, evaluate)


def located(handle: Handle, own: list[Array], evaluate: Evaluate) -> Place:
    """The elements at an index per dimension."""
    full = np.broadcast_shapes(*(x.shape for x in own)) if own else ()
    inside: Array = np.ones(full, np.bool_)
    for x, d in zip(own, handle.shape, strict=True):
        inside = inside & (x >= 0) & (x < d)
    if handle.view is None:
        return Place(handle, tuple(np.clip(x, 0, max(0, d - 1)) for x, d in zip(own, handle.shape, strict=True)), full, inside)
    bound = {axis: np.broadcast_to(x, full).astype(object) if full else int(x) for axis, x in zip(handle.view.axes, own, strict=True)}
    scope = handle.scope.child(bound)
    below = handle.scope.find(handle.view.at.buffer.name)
    inner = [numbers(evaluate(i, scope)) for i in handle.view.at.index if not isinstance(i, n.Span)]
    if len(inner) != len(below.shape):
        raise Undecided("a view of ranges")
    under = located(below, [np.broadcast_to(x, full) for x in inner], evaluate)
    if handle.view.fill is None:
        return Place(under.handle, under.index, full, under.inside & inside, under.fill, under.filled)
    return Place(under.handle, under.index, full, under.inside & inside, evaluate(handle.view.fill, scope), inside & ~under.inside)


def read(p: Place, wanted: Array | None, other: Value, clip: bool) -> Value:
    """The values at a place; `other` where they are not wanted, or outside under `clip`. Raises Undecided for one that lies outside."""
    data = p.handle.data
    assert data is not None
    if p.inside is True:
        return data[p.index] if wanted is None or wanted.all() else other
    held = np.broadcast_to(p.inside, p.shape)
    want = np.ones(p.shape, np.bool_) if wanted is None else np.broadcast_to(wanted, p.shape)
    outside = want & ~held
    if p.filled is not None:
        outside = outside & ~p.filled
    if outside.any() and not clip:
        raise Undecided("an access lies outside its buffer")
    out = new(p.shape)
    out[...] = data[p.index] if p.index else data[()]
    if p.filled is not None:
        out[np.broadcast_to(p.filled, p.shape)] = p.fill
    instead = ~want | outside
    if instead.any():
        out[instead] = np.broadcast_to(np.asarray(other, dtype=object), p.shape)[instead]
    return out if p.shape else out[()]


def write(p: Place, value: Value, wanted: Array | None, clip: bool) -> None:
    """Stores values at a place, where they are wanted, and inside under `clip`."""
    data = p.handle.data
    assert data is not None
    if p.inside is True:
        if wanted is None or wanted.all():
            data[p.index] = value
        return
    want = np.ones(p.shape, np.bool_) if wanted is None else np.broadcast_to(wanted, p.shape)
    held = np.broadcast_to(p.inside, p.shape)
    if (want & ~held).any() and not clip:
        raise Undecided("a store lies outside its buffer")
    at = want & held
    values = np.broadcast_to(np.asarray(value, dtype=object), p.shape)
    if not p.shape:
        if at:
            data[p.index if p.index else ()] = value
        return
    data[tuple(np.broadcast_to(x, p.shape)[at] for x in p.index)] = values[at]
