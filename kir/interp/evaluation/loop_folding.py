"""Shortcuts: loops that are evaluated at once, because no order of their iterations gives another value.

A loop that only folds integers of private or shared memory into a scalar is one reduction: integer sums, minima and maxima are the same in any
order. Loops around one store to private memory or a fragment, each iteration to an element of its own from what no other iteration writes, are one store of a
tile. The checking mode takes the second only where a CTA has one thread: the same thread touches the same elements, and what other CTAs do meanwhile
is beside all of them either way.
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from kir.analysis.elements import NotElementwise, tile, tile_region
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import substitute, walk

REDUCERS = {"max": "max", "min": "min"}
LEAST = 8
"""Iterations from which on it is worth the while."""
MOST = 1 << 16
"""Elements of the largest tile that loops are evaluated as."""


@lru_cache(maxsize=4096)
def folded(loop: n.For, lo: int, hi: int, step: int) -> n.Store | None:
    """One store with the effect of a loop from `lo` to `hi`, or None where the loop does more than fold integers."""
    count = max(0, -(-(hi - lo) // step))
    s = loop.body[0] if len(loop.body) == 1 else None
    dtype = loop.var.type
    if count < LEAST or not isinstance(dtype, DType) or not isinstance(s, n.Store) or s.mask is not None or s.at.index:
        return None
    if s.at.buffer.space != "register" or not s.at.buffer.dtype.is_integer:
        return None
    old, v = n.Load(s.at), s.value
    op, operand = "sum", None
    if build.polynomial(v).get((old,)) == 1:
        operand = build.sub(v, old)
    elif isinstance(v, n.Binary) and v.op in REDUCERS and old in (v.a, v.b):
        op, operand = REDUCERS[v.op], v.b if v.a == old else v.a
    parts = [x for x in walk(operand) if isinstance(x, (n.Var, n.Load, n.Call, n.Address))] if operand is not None else []
    if operand is None or not all(_is_simple(x, s.at.buffer.name) for x in parts):
        return None
    at = build.add(build.const(lo, dtype), build.mul(loop.var, step))
    try:
        whole = tile(substitute(operand, {loop.var.name: at}), [(loop.var, count)])
    except NotElementwise:
        return None
    reduced = build.call("reduce", whole, axis=0, op=op)
    return n.Store(s.at, build.binary("add" if op == "sum" else op, old, reduced), origin=s.origin)


@lru_cache(maxsize=4096)
def spread(loop: n.For, lo: int, hi: int, step: int) -> n.Store | None:
    """One store of a tile with the effect of a loop from `lo` to `hi`, and of those directly inside it, around one store of an element; or None where
    iterations may depend on one another."""
    axes: list[tuple[n.Var, int | n.Expr]] = []
    at: dict[str, n.Expr] = {}
    s: n.Stmt = loop
    while isinstance(s, n.For):
        bounds = (lo, hi, step) if s is loop else (build.int_value(s.lo), build.int_value(s.hi), build.int_value(s.step))
        if s.kind not in ("serial", "unroll") or len(s.body) != 1 or not isinstance(s.var.type, DType) or None in bounds:
            return None
        first, last, by = (x for x in bounds if x is not None)
        if by < 1 or last <= first:
            return None
        at[s.var.name] = build.add(build.const(first, s.var.type), build.mul(s.var, by))
        axes.append((s.var, -(-(last - first) // by)))
        s = s.body[0]
    if not isinstance(s, n.Store) or s.at.buffer.space not in ("register", "fragment") or not s.at.index or s.clip:
        return None
    if not LEAST <= math.prod(d for _, d in axes if isinstance(d, int)) <= MOST:
        return None
    inside = [x for e in (s.value, s.mask) if e is not None for x in walk(e)]
    rows = {id(x.args[0]) for x in inside if isinstance(x, n.Call) and x.fn == "pick" and isinstance(x.args[0], n.Var)}  # of which elements are taken
    for x in inside:
        if isinstance(x, n.Region) and x.buffer.name == s.at.buffer.name and x != s.at:
            return None
        if isinstance(x, n.Address) or (isinstance(x, n.Expr) and not isinstance(x.type, DType) and id(x) not in rows):
            return None
    whole = substitute(s, at)
    assert isinstance(whole, n.Store)
    try:
        found = tile_region(whole.at, axes) if all(isinstance(i, n.Expr) and isinstance(i.type, DType) for i in whole.at.index) else None
        if found is None or found[1] != list(range(len(axes))):
            return None
        return n.Store(found[0], tile(whole.value, axes), None if whole.mask is None else tile(whole.mask, axes), origin=s.origin)
    except NotElementwise:
        return None


def loops_inside(loop: n.For) -> Iterator[tuple[n.For, int]]:
    """The loops directly inside one that has a shortcut, with how often each runs: their bounds are numbers."""
    inner = loop.body[0]
    while isinstance(inner, n.For):
        lo, hi, step = (build.int_value(x) or 0 for x in (inner.lo, inner.hi, inner.step))
        yield inner, len(range(lo, hi, step))
        inner = inner.body[0]


def _is_simple(x: n.Expr, acc: str) -> bool:
    """A scalar name, or a read of a single element of memory that is not the accumulator."""
    match x:
        case n.Load():
            return x.mask is None and not x.clip and x.at.buffer.space in ("register", "shared") and x.at.buffer.name != acc and isinstance(
                x.type, DType)
        case n.Var():
            return isinstance(x.of, DType)
        case _:
            return False
