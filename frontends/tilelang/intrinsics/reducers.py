"""Words of reducers: sums that loops over more axes add to, from when they are begun to when they are whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType

from ..state.reader import Reader, zero
from ..state.regions import at, matched, region
from ..values import arithmetic
from ..values.arithmetic import convert
from ..values.values import Memory, NotUnderstood, Place, Signature, Value, is_number
from .memory import declare, shape_of
from .tiles import COMBINE, move

Word = Callable[[Reader, Signature], Value]
OPS: Mapping[str, str] = {"sum": "sum", "max": "max", "min": "min", "bitand": "and", "bitor": "or", "bitxor": "xor"}


def allocated(r: Reader, given: Signature) -> Value:
    """`T.alloc_reducer(shape, dtype, op)`."""
    shape, dtype = given.args[0], given.args[1] if len(given.args) > 1 else given.named.get("dtype")
    buffer = declare(r, "reducer", r.dtype(dtype), shape_of(r, shape), "fragment")
    op = r.settled(given.args[2] if len(given.args) > 2 else given.named.get("op", "sum"))
    if op not in OPS:
        raise NotUnderstood("a reducer of an unusual kind")
    r.reducers.add(buffer.name)
    r.combines[buffer.name] = OPS[str(op)]
    return Memory(buffer)


def _init(r: Reader, given: Signature) -> Value:
    """`T.reducer_init(acc, init)`: begins at what changes nothing, or at `init`."""
    p = region(r, given.args[0])
    value = r.settled(given.args[1] if len(given.args) > 1 else given.named.get("init"))
    dtype = p.buffer.dtype
    if value is None:
        e: n.Expr | None = _identity(r.combines.get(p.buffer.name, "sum"), dtype)
    else:
        e = arithmetic.valued(value, dtype) if is_number(value) else convert(r.run(value), dtype)
    assert e is not None
    r.out.emit(n.Store(at(p), e))
    return None


def _identity(op: str, dtype: DType) -> n.Expr:
    if op in ("sum", "or", "xor"):
        return zero(dtype)
    if dtype.is_symbolic:
        raise NotUnderstood("the least value of a dtype that the binding decides")
    if op == "and":
        return build.const(True if dtype.is_bool else -1 if dtype.range[0] < 0 else dtype.range[1], dtype)
    if dtype.is_float:
        return build.const(float("-inf") if op == "max" else float("inf"), dtype)
    return build.const(dtype.range[0 if op == "max" else 1], dtype)


def _update(r: Reader, given: Signature) -> Value:
    """`T.reducer_update(acc[i], value)`: each iteration of the loop around it counts once."""
    where = r.decided(given.args[0])
    if not isinstance(where, Place) or len(where.index) != len(where.buffer.shape):
        raise NotUnderstood("an update of more than an element of a reducer")
    dtype = where.buffer.dtype
    value = r.settled(given.args[1])
    e = arithmetic.valued(value, dtype) if is_number(value) else convert(r.run(value), dtype)
    assert e is not None
    here = n.Load(at(where))
    r.out.emit(n.Store(at(where), build.binary(COMBINE[r.combines.get(where.buffer.name, "sum")], here, e)))
    return None


def _finalize(r: Reader, given: Signature) -> Value:
    """`T.finalize_reducer(acc, dst)`: what was combined, in a fragment of its own; without `dst` it is whole where it stands."""
    dst = given.args[1] if len(given.args) > 1 else given.named.get("dst")
    if dst is None:
        return None
    move(r, *matched(r, given.args[0], dst), "plain", {})
    return None


WORDS: Mapping[str, Word] = {"alloc_reducer": allocated, "reducer_init": _init, "reducer_update": _update, "finalize_reducer": _finalize}
