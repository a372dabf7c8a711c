"""Boxes of descriptors that a kernel makes for itself: the IR has their addresses and bounds, from which descriptor and corner follow.

The frontend reads `make_tensor_descriptor(p, shape, strides, block).load(offsets)` as a copy at `p + sum(stride * index)` where each
`index` is an offset and a range over its axis, and every index lies within its extent. This module is the way back.
"""
from __future__ import annotations

from collections.abc import Iterator

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import I32, I64, dtype_of


@dataclass(frozen=True)
class Box:
    """A descriptor's base, as what is added to a pointer (None: nothing), and per axis its extent, stride, the block's size and offset."""

    base: n.Expr | None
    shape: tuple[n.Expr, ...]
    strides: tuple[n.Expr, ...]
    block: tuple[n.Expr, ...]
    offsets: tuple[n.Expr, ...]


def box(at: n.Region, mask: n.Expr | None) -> Box | None:
    """The box that a place and mask are; None for any other place."""
    if mask is None or len(at.index) != 1 or not isinstance(at.index[0], n.Expr):
        return None
    bounds = list(_flat(mask, "and"))
    if len(bounds) % 2 or not bounds:
        return None
    indices: list[n.Expr] = []
    shape: list[n.Expr] = []
    for low, high in zip(bounds[::2], bounds[1::2]):
        match low, high:
            case n.Binary("ge", i, n.Const(0)), n.Binary("lt", j, extent) if i == j:
                indices.append(i)
                shape.append(extent)
            case _:
                return None
    terms = list(_flat(at.index[0], "add"))
    strides: list[n.Expr] = []
    for i in indices:
        found = next(((t, s) for t in terms if (s := _stride(t, i)) is not None), None)
        if found is None and all(t in terms for t in _flat(i, "add")):  # of stride 1, in one sum with what else is added
            for t in _flat(i, "add"):
                terms.remove(t)
            strides.append(n.Const(1, I64))
            continue
        if found is None:
            return None
        terms.remove(found[0])
        strides.append(found[1])
    split = [_offset(i) for i in indices]
    base: n.Expr | None = None
    for t in terms:
        base = t if base is None else n.Binary("add", base, t)
    if any(s is None for s in split):
        return None
    parts = [s for s in split if s is not None]
    return Box(base, tuple(shape), tuple(strides), tuple(b for b, _ in parts), tuple(o for _, o in parts))


def _flat(e: n.Expr, op: str) -> Iterator[n.Expr]:
    if isinstance(e, n.Binary) and e.op == op:
        yield from _flat(e.a, op)
        yield from _flat(e.b, op)
    else:
        yield e


def _stride(term: n.Expr, index: n.Expr) -> n.Expr | None:
    """What a term multiplies an index by."""
    if term == index:
        return n.Const(1, I64)
    if isinstance(term, n.Binary) and term.op == "mul":
        for a, b in ((term.a, term.b), (term.b, term.a)):
            inner = _stride(a, index)
            if inner is not None:
                return b if inner == n.Const(1, I64) else n.Binary("mul", inner, b)
    return None


def _offset(index: n.Expr) -> tuple[n.Expr, n.Expr] | None:
    """The size and offset of an axis's index."""
    while isinstance(index, n.Call) and index.fn == "expand" and isinstance(index.args[0], n.Expr):
        index = index.args[0]
    terms = list(_flat(index, "add"))
    ranges = [t for t in terms if _extent(t) is not None]
    if len(ranges) != 1:
        return None
    terms.remove(ranges[0])
    rest: n.Expr = n.Const(0, I32)
    for i, t in enumerate(terms):
        rest = (_narrow(t) if len(terms) == 1 else t) if i == 0 else n.Binary("add", rest, t)
    extent = _extent(ranges[0])
    assert extent is not None
    return extent, rest


def _extent(e: n.Expr) -> n.Expr | None:
    """How far a range goes; None for anything else."""
    match _narrow(e):
        case n.Call(fn="iota", args=(n.Expr() as extent,)):
            return extent
        case _:
            return None


def _narrow(e: n.Expr) -> n.Expr:
    """An index before it was widened."""
    return e.x if isinstance(e, n.Cast) and e.dtype == I64 and e.rounding == "rn" and dtype_of(e.x.type) == I32 else e
