"""Numbers of the kernel under a name, and written to a place."""

from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import walk

from ..values import arithmetic
from ..values.arithmetic import convert
from ..values.values import Memory, NotUnderstood, Num, Place, Value, describe, is_number
from .reader import Reader


def let(r: Reader, name: str, e: n.Expr) -> Value:
    """A value under a name; static ones stay expressions."""
    if r.is_static(e):
        return Num(e)
    made = r.out.let(name if name != "_" else "tmp", e)
    if isinstance(made, n.Var) and isinstance(e.type, DType) and e.type.is_integer and not any(isinstance(x, (n.Load, n.Call)) for x in walk(e)):
        r.meanings[made.name] = r.meaning(e)
    return Num(made)


def store(r: Reader, where: Value, value: Value) -> None:
    """A number written to a place, converted to its dtype; outside of global memory nothing is written."""
    where = r.decided(where)
    if isinstance(where, Memory):
        where = Place(where.buffer, ())
    if not isinstance(where, Place):
        raise NotUnderstood(f"an assignment to an element of {describe(where)}")
    buffer = where.buffer
    if not where.var and len(where.index) != len(buffer.shape):
        raise NotUnderstood(f"an assignment to part of '{buffer.name}'")
    value = r.settled(value)
    e = arithmetic.valued(value, buffer.dtype) if is_number(value) else convert(r.run(value), buffer.dtype)
    assert e is not None
    index = where.index if buffer.shape else ()
    if any(isinstance(i, n.Span) for i in index):
        raise NotUnderstood("an assignment of one number to a region")
    r.out.emit(n.Store(build.region(buffer, *index), e, None, buffer.space == "global"))
