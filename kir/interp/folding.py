"""A shortcut of the fast mode: a loop that only folds integers of private or shared memory into a scalar is evaluated as one reduction.

Integer sums, minima and maxima are the same in any order, so the value is that of the loop. The checking mode takes no shortcut.
"""
from __future__ import annotations

from functools import lru_cache

from kir.analysis.elements import NotElementwise, tile
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import substitute, walk

REDUCERS = {"max": "max", "min": "min"}
LEAST = 8
"""Iterations from which on it is worth the while."""


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
    if operand is None or any(isinstance(x, (n.Var, n.Load, n.Call, n.Address)) and not _is_simple(x, s.at.buffer.name) for x in walk(operand)):
        return None
    at = build.add(build.const(lo, dtype), build.mul(loop.var, step))
    try:
        whole = tile(substitute(operand, {loop.var.name: at}), [(loop.var, count)])
    except NotElementwise:
        return None
    reduced = build.call("reduce", whole, axis=0, op=op)
    return n.Store(s.at, build.binary("add" if op == "sum" else op, old, reduced), origin=s.origin)


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
