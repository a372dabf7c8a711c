"""Operators on values that may be tuples or static choices."""

from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, DType, dtype_of

from ..._python.python_operators import MOST_ITEMS
from ..values import operators
from ..values.emitter import buffer_read, mentions
from ..values.values import Items, NotUnderstood, Pointer, Run, Static, Value
from . import joins
from .state import State


def arithmetic(r: State, op: str, a: Value, b: Value) -> Value:
    """`a op b`, tuples included."""
    if isinstance(a, Items) or isinstance(b, Items):
        if op == "add" and isinstance(a, Items) and isinstance(b, Items):
            if len(a.items) + len(b.items) > MOST_ITEMS:
                raise NotUnderstood(f"a tuple of {len(a.items) + len(b.items)} items")
            return Items(a.items + b.items)
        items, count = (a, b) if isinstance(a, Items) else (b, a)
        if op == "mul" and isinstance(items, Items) and isinstance(count, int):
            if len(items.items) * count > MOST_ITEMS:
                raise NotUnderstood(f"a tuple repeated {count} times")
            return Items(items.items * count)
        raise NotUnderstood(f"'{op}' of tuples")
    made = joins.over(r, (a, b), lambda x, y: operators.binary(op, x, y, r.counts))
    return _fused(r, made) if op == "add" else made


def _fused(r: State, v: Value) -> Value:
    """`e + product` where the product was just made with an empty accumulator: the accumulator starts as `e` instead."""
    if not (isinstance(v, Run) and isinstance(v.expr, n.Binary) and v.expr.op == "add"):
        return v
    block = r.out.block
    for product, other in ((v.expr.b, v.expr.a), (v.expr.a, v.expr.b)):
        buffer = buffer_read(product)
        if buffer is None or len(block) < 2 or other.type != product.type:
            continue
        alloc, mma = block[-2], block[-1]
        if (
            isinstance(mma, n.Mma)
            and mma.acc.buffer == buffer
            and isinstance(alloc, n.Alloc)
            and alloc.buffer == buffer
            and alloc.init is not None
            and _is_zero(alloc.init)
            and not mentions(other, {buffer.name})
        ):
            block[-2] = n.Alloc(buffer, other, alloc.label, alloc.origin)
            return Run(product)
    return v


def _is_zero(e: n.Expr) -> bool:
    if isinstance(e, n.Call) and e.fn == "broadcast":
        return isinstance(e.args[0], n.Expr) and _is_zero(e.args[0])
    if isinstance(e, n.Cast):
        return _is_zero(e.x)
    return isinstance(e, n.Const) and e.value == 0


def truth(r: State, v: Value) -> Value:
    """A value as a condition; a pointer is one that is true where it is given."""
    return joins.over(r, (v,), lambda x: operators.truth(_presence(x)))


def _presence(v: Value) -> Value:
    """A pointer as a condition: whether it is given."""
    if isinstance(v, Pointer) and not v.terms:
        return Static(build.invert(build.call("absent", param=v.base.name)))
    return v


def negation(r: State, v: Value) -> Value:
    """`not v`."""
    return joins.over(r, (v,), lambda x: operators.negation(operators.truth(_presence(x))))


def converted(v: Value, dtype: DType) -> Value:
    """`v` as a run-time value of a dtype."""
    if isinstance(v, Run) and dtype == BOOL:
        return Run(operators.as_bool(v.expr))
    match v:
        case Run(expr=n.Cast(x=n.Call(fn="pack") as made, rounding="rn")) if dtype_of(made.type) == dtype:
            return Run(made)  # a register's bits, cut to the narrow integer that was made
    return Run(operators.run(v, dtype))
