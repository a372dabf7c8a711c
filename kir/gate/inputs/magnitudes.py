"""How large whole numbers may be for a program that adds or multiplies them to say something of all of them: as large as its sums and products hold.

What narrows them, counts them in a float or multiplies them in their own width is right for small ones alone. Each value that a program makes of its
data is bounded by a power of the largest, times a number of what is added up; the narrowest dtype in which it computes says how large that may be.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kir.base.dataclass import dataclass
from kir.gate.inputs.places import places
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import once, statements, walk
from kir.problem.draws import AT, numpy_dtype

MOST_ELEMENTS_BITS, SIZE_BITS, LEAST_BITS = 14, 14, 9
"""Bits of how many elements are added up at most, of a size or a place, and of numbers below which usual draws do as well."""
TELLING = tuple((1 << k) + d for k in (8, 15, 16, 24, 27, 31, 32, 53) for d in (-1, 0, 1))
SAME = frozenset({"min", "max"})


class _NotBounded(Exception):
    """Something of which nothing is known."""


@dataclass(frozen=True)
class _Size:
    """A magnitude: the largest number of the data to a power, times two to so many bits; of degree 0 where no data are in it."""

    degree: int = 0
    bits: int = 0

    def with_(self, other: _Size) -> _Size:
        """The larger of two, whichever that is."""
        return _Size(max(self.degree, other.degree), max(self.bits, other.bits))


def magnitudes(reference: n.Program) -> list[str]:
    """The distribution in which one element in four of each input of whole numbers is as large as the program's sums hold, or of a size at which others go
    wrong before; none where that is not known, where numbers name places, or where usual ones are as large. For shapes of at most 2^14 elements."""
    return once(reference, "_magnitudes", lambda: _magnitudes(reference))


def _magnitudes(reference: n.Program) -> list[str]:
    given = [p for p in reference.params if isinstance(p.of, n.Buffer) and p.role != "out" and p.of.dtype.is_integer and not p.of.dtype.is_bool]
    if not given or any(p.name in places(reference) for p in given):
        return []
    try:
        bits = min(_Bounds(k, [p.name for p in given]).bits() for k in reference.kernels)
    except _NotBounded:
        return []
    if bits < LEAST_BITS:
        return []
    out = []
    for p in given:
        assert isinstance(p.of, n.Buffer)
        info, most = np.iinfo(numpy_dtype(p.of.dtype.name)), 1 << min(bits, 62)
        values = sorted({v for v in (*TELLING, most, most - 1) if v <= most}, reverse=True)
        out.append(f"{p.name}={';'.join(str(s * v) for v in values for s in (1, -1) if info.min <= s * v <= info.max)}")
    return [AT + ",".join(out)]


class _Bounds:
    """The magnitudes of what a kernel makes of whole numbers."""

    def __init__(self, kernel: n.Kernel, given: Sequence[str]) -> None:
        self.kernel, self.known = kernel, dict.fromkeys(given, _Size(1))
        self.least = 63.0

    def bits(self) -> int:
        """Of the largest number of the data. Raises _NotBounded."""
        for _ in range(4):  # a product that grows from trip to trip grows here too
            before = dict(self.known)
            for s in statements(self.kernel.body):
                self._statement(s)
            if self.known == before:
                return math.floor(self.least)
        raise _NotBounded

    def _statement(self, s: n.Stmt) -> None:
        match s:
            case n.Let(names=(name,)):
                self._keep(name, self._size(s.value))
            case n.Let() | n.Copy() | n.Mma() | n.Opaque() | n.Hole() | n.View() | n.While():
                raise _NotBounded
            case n.For() if any(self._touches(e) for e in (s.lo, s.hi, s.step)):
                raise _NotBounded  # it would go round as often
            case n.Alloc(init=n.Expr() as init):
                self._keep(s.buffer.name, self._size(init))
            case n.Store():
                name, e = s.at.buffer.name, s.value
                more = [x for x in (e.a, e.b) if not (isinstance(x, n.Load) and x.at.buffer.name == name)] if isinstance(e, n.Binary) and e.op == "add" else []
                if len(more) == 1:  # a sum over all elements at most
                    one = self._size(more[0])
                    self._keep(name, self._held(_Size(one.degree, one.bits + MOST_ELEMENTS_BITS) if one.degree else one, e))
                else:
                    self._keep(name, self._size(e))
            case _:
                pass

    def _keep(self, name: str, size: _Size) -> None:
        if size.degree:
            self.known[name] = self.known.get(name, _Size()).with_(size)

    def _held(self, size: _Size, e: n.Expr) -> _Size:
        """The magnitude of what is computed in a dtype, which must hold it."""
        if size.degree > 3:
            raise _NotBounded
        of = dtype_of(e.type)
        if size.degree and of.is_integer:
            self.least = min(self.least, (of.bits - 1 - size.bits) / size.degree)
        elif size.degree and not of.is_bool:
            raise _NotBounded  # a float, which rounds
        return size

    def _size(self, e: n.Expr) -> _Size:
        match e:
            case n.Const():
                return _Size(0, max(1, int(abs(e.value)).bit_length())) if isinstance(e.value, int) else _Size()
            case n.Var():
                return self.known.get(e.name, _Size(0, SIZE_BITS))
            case n.Load():
                return self.known.get(e.at.buffer.name, _Size(0, SIZE_BITS))
            case n.Cast():
                found = self._size(e.x)
                if found.degree and not (e.dtype.is_integer and e.dtype.bits >= dtype_of(e.x.type).bits and not dtype_of(e.x.type).is_float):
                    raise _NotBounded
                return found
            case n.Select():
                return self._size(e.a).with_(self._size(e.b))
            case n.Binary(op="tdiv" | "floordiv" | "shr", a=x, b=n.Const(value=int(by))) if by >= 0:
                return self._size(x)  # no larger than it was
            case n.Unary(op="neg"):
                return self._held(self._size(e.x), e)
            case n.Binary(op=op) if op in n.COMPARISONS:
                return _Size()
            case n.Binary(op="add" | "sub" | "mul" | "min" | "max" as op):
                a, b = self._size(e.a), self._size(e.b)
                if not (a.degree or b.degree):
                    return _Size(0, SIZE_BITS)
                one = a.with_(b)
                return self._held(_Size(a.degree + b.degree, a.bits + b.bits) if op == "mul" else one if op in SAME else _Size(one.degree, one.bits + 1), e)
            case n.Call(fn="abs", args=(n.Expr() as x,)):
                return self._held(self._size(x), e)
            case n.Call(fn="reduce", args=(n.Expr() as x, *_)):
                found, how = self._size(x), dict(e.attrs).get("op")
                if found.degree and how not in ("sum", *SAME):
                    raise _NotBounded
                return self._held(_Size(found.degree, found.bits + (MOST_ELEMENTS_BITS if how == "sum" else 0)), e) if found.degree else found
            case _:
                if self._touches(e):
                    raise _NotBounded
                return _Size(0, SIZE_BITS)

    def _touches(self, e: n.Node) -> bool:
        return any((isinstance(x, n.Var) and x.name in self.known) or (isinstance(x, n.Load) and x.at.buffer.name in self.known) for x in walk(e))


__all__ = ["magnitudes"]
