"""Whole numbers at the ends of what their dtype holds, and next to one another beyond 2^24, for programs that say something of them there.

A program that adds or multiplies data in their own width says nothing of large ones: C has no answer where that overflows. One that compares, shifts down,
divides by constants, narrows or computes wider does, and so must every other that is to be the same.
"""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kir.gate.inputs.places import places
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import children, once, statements, walk
from kir.problem.draws import AT, numpy_dtype

UNHARMED = frozenset({"mulhi", "popc", "clz", "ffs", "brev", "cast"})
KEPT = frozenset({"min", "max", "and", "or", "xor"})
OVERFLOWING, DIVISIONS = frozenset({"add", "sub", "mul", "shl"}), frozenset({"floordiv", "mod", "ceildiv", "tdiv", "trem", "shr"})


def extremes(reference: n.Program) -> list[str]:
    """The distribution in which one element in four of each input of whole numbers is such a number; none where some of them are added up, are divisors or
    name places."""
    return once(reference, "_extremes", lambda: _extremes(reference))


def _extremes(reference: n.Program) -> list[str]:
    given = [p for p in reference.params if isinstance(p.of, n.Buffer) and p.role != "out" and p.of.dtype.is_integer and not p.of.dtype.is_bool]
    if not given or any(p.name in places(reference) for p in given) or any(_harmed(k, {p.name for p in given}) for k in reference.kernels):
        return []
    out = []
    for p in given:
        assert isinstance(p.of, n.Buffer)
        info = np.iinfo(numpy_dtype(p.of.dtype.name))
        values = [info.min, info.max, info.min + 1, info.max - 1, (1 << 24) + 1, 1 << 24, -(1 << 24) - 1, -(1 << 24), 1 << 16, 0, -1, 1]
        out.append(f"{p.name}={';'.join(str(int(v)) for v in dict.fromkeys(values) if info.min <= v <= info.max)}")
    return [AT + ",".join(out)]


def _harmed(kernel: n.Kernel, given: set[str]) -> bool:
    """Whether something may overflow, or divide by zero, in what a kernel makes of the data."""
    data, before = set(given), -1
    while before != len(data):
        before = len(data)
        for s in statements(kernel.body):
            match s:
                case n.Let() if _of(s.value, data):
                    data |= set(s.names)
                case n.View() if s.at.buffer.name in data:
                    data.add(s.buffer.name)
                case n.Alloc(init=n.Expr() as init) if _of(init, data):
                    data.add(s.buffer.name)
                case n.Store() if _of(s.value, data):
                    data.add(s.at.buffer.name)
                case n.Copy() if s.src.at.buffer.name in data:
                    data.add(s.dst.buffer.name)
                case n.Mma() | n.Opaque() | n.Hole():
                    return True
                case _:
                    pass
    return any(_overflows(e, data) for e in walk(kernel))


def _overflows(e: n.Node, data: set[str]) -> bool:
    match e:
        case n.Binary(op=op) if op in OVERFLOWING and dtype_of(e.type).is_integer:
            return any(_of(x, data) and not _widened(x) for x in (e.a, e.b))
        case n.Binary(op=op) if op in DIVISIONS:
            return _of(e.b, data)
        case n.Unary(op="neg") if dtype_of(e.type).is_integer:
            return _of(e.x, data) and not _widened(e.x)
        case n.Call() if e.fn not in UNHARMED and dict(e.attrs).get("op") not in KEPT:
            return any(dtype_of(x.type).is_integer and _of(x, data) for x in e.args if isinstance(x, n.Expr) and x.type is not None)
        case n.Load():  # data in an index
            return any(_of(i if isinstance(i, n.Expr) else i.lo, data) for i in e.at.index)
        case n.For():
            return _of(e.lo, data) or _of(e.hi, data)
        case _:
            return False


def _widened(e: n.Expr) -> bool:
    """Whether data are in a dtype of twice their width, where a sum or product of two fits."""
    return all(dtype_of(x.type).bits >= 2 * dtype_of(x.x.type).bits for x in walk(e) if isinstance(x, n.Cast)) and any(isinstance(x, n.Cast) for x in walk(e))


def _of(e: n.Node, data: set[str]) -> bool:
    """Whether whole numbers among the data come into an expression as numbers."""
    return any(_reads(x, data) for x in _values(e))


def _reads(x: n.Node, data: set[str]) -> bool:
    return (isinstance(x, n.Load) and x.at.buffer.name in data and dtype_of(x.type).is_integer) or (
        isinstance(x, n.Var) and x.name in data and x.of is not None and dtype_of(x.of).is_integer)


def _values(e: n.Node) -> Iterator[n.Node]:
    yield e
    for x in () if isinstance(e, n.Load) else children(e):
        yield from _values(x)


__all__ = ["extremes"]
