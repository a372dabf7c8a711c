"""Fragment layouts that functions give, as digits of threads and slots: the function's formula is worked out for every element at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32

from ..state.functions import called
from ..state.reader import Reader
from ..values.values import Function, Items, LayoutOf, NotUnderstood, Num, Value

Ints = NDArray[np.int64]
MOST = 1 << 18
"""Elements of the largest fragment whose layout is worked out."""


def fragment_layout(r: Reader, buffer: n.Buffer, layout: LayoutOf) -> n.Layout | None:
    """The layout `spread(..)` of a fragment by `forward_fn`, or by `forward_thread_fn` and `forward_index_fn`. None where extents are open, where
    elements have copies, or where the formula distributes them in no mixed-radix way: then the layout stays open."""
    named = dict(layout.named)
    shape = [build.int_value(d) for d in buffer.shape]
    known = [d for d in shape if d is not None]
    if layout.word != "Fragment" or len(known) != len(shape) or not 0 < math.prod(known) <= MOST or r.known_int(named.get("replicate", 1)) != 1:
        return None
    axes = [n.Var(f"%{k}", I32) for k in range(len(known))]
    places = _formulas(r, named, axes)
    if places is None:
        return None
    values = {v.name: np.arange(d).reshape([-1 if k == j else 1 for j in range(len(known))]) for k, (v, d) in enumerate(zip(axes, known, strict=True))}
    tables = [_evaluated(e, values) for e in places]
    if any(t is None for t in tables):
        return None
    thread, slot = (np.broadcast_to(t, known).astype(np.int64) for t in tables if t is not None)
    return _digits(thread, slot, known)


def _formulas(r: Reader, named: dict[str, Value], axes: Sequence[n.Var]) -> list[n.Expr] | None:
    """Thread and slot of the element at the axes."""
    args: list[Value] = [Num(v) for v in axes]
    device, launched = r.device, r.launched
    r.device = r.launched = False
    try:
        both = r.settled(named.get("forward_fn"))
        if isinstance(both, Function):
            found = called(r, both, args, {})
            items = found.items if isinstance(found, Items) else ()
        else:
            parts = [r.settled(named.get(k)) for k in ("forward_thread_fn", "forward_index_fn")]
            items = tuple(called(r, p, args, {}) for p in parts if isinstance(p, Function))
        return [r.integer(x) for x in items] if len(items) == 2 else None
    except NotUnderstood:
        return None
    finally:
        r.device, r.launched = device, launched


def _evaluated(e: n.Expr, values: dict[str, Ints]) -> Ints | None:
    """An integer expression for all elements; None where it is over more than the axes."""
    match e:
        case n.Const():
            return np.asarray(int(e.value))
        case n.Var():
            return values.get(e.name)
        case n.Unary(op="neg"):
            x = _evaluated(e.x, values)
            return None if x is None else -x
        case n.Binary():
            a, b = _evaluated(e.a, values), _evaluated(e.b, values)
            if a is None or b is None or (e.op in ("floordiv", "mod", "tdiv", "trem") and not np.all(b)):
                return None
            operation = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide, "mod": np.mod, "xor": np.bitwise_xor,
                         "and": np.bitwise_and, "or": np.bitwise_or, "min": np.minimum, "max": np.maximum, "shl": np.left_shift,
                         "shr": np.right_shift}.get(e.op)
            return None if operation is None else np.asarray(operation(a, b))
        case _:
            return None


def _digits(thread: Ints, slot: Ints, shape: list[int]) -> n.Layout | None:
    """The digits by which a table of threads and slots distributes its elements; None where there are none."""
    if not thread.size or not slot.size:
        return None
    threads, slots = int(thread.max()) + 1, int(slot.max()) + 1
    if thread.min() < 0 or slot.min() < 0 or threads * slots != math.prod(shape):
        return None
    where = np.full((threads, slots), -1)
    where[thread.reshape(-1), slot.reshape(-1)] = np.arange(math.prod(shape))
    if where.min() < 0:
        return None
    index = np.stack(np.unravel_index(where, shape), -1)
    first, second = _radix(index[:, 0] - index[0, 0], threads), _radix(index[0] - index[0, 0], slots)
    if first is None or second is None or index[0, 0].any():
        return None
    made = _spelled(first, threads, len(shape))[:, None] + _spelled(second, slots, len(shape))[None]
    if not np.array_equal(made, index):
        return None
    digits = [tuple(d[k] for d in part) for part in (first, second) for k in range(3)]
    return n.Layout("spread", tuple(digits))


Radix = list[tuple[int, int, int]]


def _radix(index: Ints, count: int) -> Radix | None:
    """(extent, axis, step) of the digits of 0 .. count - 1 that give these coordinates, fastest first."""
    out: Radix = []
    below = 1
    while below < count:
        moved = np.flatnonzero(index[below])
        if len(moved) != 1 or count % below:
            return None
        axis = int(moved[0])
        step, extent = int(index[below][axis]), 1
        while below * (extent + 1) <= count and np.array_equal(index[below * extent], _along(index[0], axis, step * extent)):
            extent += 1
        while count % (below * extent):
            extent -= 1
        if extent < 2:
            return None
        out.append((extent, axis, step))
        below *= extent
    return out or [(1, 0, 1)]


def _along(at: Ints, axis: int, step: int) -> Ints:
    out = at.copy()
    out[axis] += step
    return out


def _spelled(digits: Radix, count: int, rank: int) -> Ints:
    """The coordinates that digits give for 0 .. count - 1."""
    out = np.zeros((count, rank), np.int64)
    number = np.arange(count)
    for extent, axis, step in digits:
        out[:, axis] += number % extent * step
        number = number // extent
    return out
