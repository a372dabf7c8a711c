"""Sums over the elements of a loop into places that have fewer axes (`T.alloc_reducer`): what adds to them, and when they are whole.

In the IR such a statement is a named reduction and a store that joins it to what the place holds. In TileLang each element adds its part to
the place, every thread to its own copy, and `T.finalize_reducer` joins the copies before anything else reads them.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import DType, shape_of
from kir.ir.visit import blocks_of, buffers_named, children, walk

JOINED: Mapping[str, str] = {"add": "sum", "max": "max", "min": "min"}
"""The reduction of each operator that joins parts."""


def is_named_sum(s: n.Stmt) -> bool:
    """Whether a statement gives a reduction a name."""
    return isinstance(s, n.Let) and len(s.names) == 1 and peeled(s.value) is not None


def peeled(e: n.Expr) -> tuple[n.Expr, list[int], str] | None:
    """What a reduction of one or more axes is over, the axes that stay, and its operator's name; None for another expression."""
    removed: list[int] = []
    op = None
    while isinstance(e, n.Call) and e.fn == "reduce" and e.of is None and isinstance(e.args[0], n.Expr):
        attrs = dict(e.attrs)
        if set(attrs) != {"axis", "op"} or attrs["op"] not in JOINED.values() or op not in (None, attrs["op"]):
            return None
        op = str(attrs["op"])
        removed.append(int(attrs["axis"]))
        e = e.args[0]
    if op is None:
        return None
    left = list(range(_rank(e)))
    for axis in reversed(removed):
        del left[axis]
    return e, left, op


def _rank(e: n.Expr) -> int:
    return len(shape_of(e.type))


def is_neutral(e: n.Expr, op: str) -> bool:
    """Whether a value changes nothing when it is joined to others."""
    if isinstance(e, n.Cast) and e.rounding == "rn":
        return op == "sum" and is_neutral(e.x, op)
    if not isinstance(e, n.Const):
        return False
    if op == "sum":
        return repr(e.value) in ("0", "0.0")
    if e.dtype.is_float:
        return e.value == (float("-inf") if op == "max" else float("inf"))
    return isinstance(e.dtype, DType) and e.dtype.is_integer and int_value(e) == e.dtype.range[0 if op == "max" else 1]


def sums_of(block: n.Block) -> dict[str, str]:
    """The buffers that named reductions are joined to, with the reduction, anywhere in a block."""
    named: dict[str, str] = {}
    out: dict[str, str] = {}
    for s in _statements(block):
        if isinstance(s, n.Let) and len(s.names) == 1 and (found := peeled(s.value)) is not None:
            named[s.names[0]] = found[2]
        elif isinstance(s, n.Store) and (op := joined_op(s)) is not None and any(isinstance(x, n.Var) and x.name in named for x in walk(s.value)):
            out[s.at.buffer.name] = JOINED[op]
    return out


def _statements(block: n.Block) -> Iterator[n.Stmt]:
    for s in block:
        yield s
        for inner in blocks_of(s):
            yield from _statements(inner)


def joined_op(s: n.Store) -> str | None:
    """The operator by which a store joins something to what its place holds."""
    value = s.value
    if isinstance(value, n.Binary) and value.op in JOINED and n.Load(s.at) in (value.a, value.b) and s.at.buffer.space == "fragment":
        return value.op
    return None


def reads(s: n.Stmt, name: str) -> bool:
    """Whether a statement mentions a sum in another way than by adding to it or filling it."""
    if isinstance(s, n.Alloc) and s.buffer.name == name:
        return False
    if isinstance(s, n.Store) and s.at.buffer.name == name:
        if isinstance(s.value, n.Const) or (isinstance(s.value, n.Cast) and isinstance(s.value.x, n.Const)):
            return False
        if joined_op(s) is not None and isinstance(s.value, n.Binary):
            part = s.value.b if s.value.a == n.Load(s.at) else s.value.a
            return _mentions(part, name)
    if any(_mentions(x, name) for x in children(s) if not isinstance(x, n.Stmt)):
        return True
    return any(reads(x, name) for b in blocks_of(s) for x in b)


def adds(s: n.Stmt, name: str) -> bool:
    """Whether a statement adds to a sum."""
    return any(isinstance(x, n.Store) and x.at.buffer.name == name and joined_op(x) is not None for x in _statements((s,)))


def fills(s: n.Stmt, name: str) -> bool:
    """Whether a statement begins a sum anew."""
    if isinstance(s, n.Alloc):
        return s.buffer.name == name
    return isinstance(s, n.Store) and s.at.buffer.name == name and not s.at.index and joined_op(s) is None


def _mentions(item: n.Node, name: str) -> bool:
    return name in buffers_named(item)


__all__ = ["JOINED", "adds", "fills", "is_named_sum", "is_neutral", "joined_op", "peeled", "reads", "sums_of"]
