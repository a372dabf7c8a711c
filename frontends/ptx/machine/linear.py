"""Integers as a multiple of one of them and a rest of a known range: what a quotient that compilers write with masks, shifts and reciprocals leaves of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from fractions import Fraction

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import dtype_of

DEEPEST = 40


@dataclass(frozen=True)
class Form:
    """`times * x + r` with `lo <= r <= hi`."""

    times: Fraction
    lo: Fraction
    hi: Fraction

    def plus(self, other: Form, sign: int) -> Form:
        """A sum or a difference."""
        lo, hi = (other.lo, other.hi) if sign > 0 else (-other.hi, -other.lo)
        return Form(self.times + sign * other.times, self.lo + lo, self.hi + hi)

    def scaled(self, by: Fraction) -> Form:
        """A product with a number."""
        ends = sorted((self.lo * by, self.hi * by))
        return Form(self.times * by, *ends)

    def within(self, x: tuple[int, int]) -> tuple[int, int]:
        """The least and the greatest whole number that it may be."""
        ends = sorted(self.times * v for v in x)
        return math.ceil(ends[0] + self.lo), math.floor(ends[1] + self.hi)


@dataclass
class Linear:
    """Forms over `x`, a name whose values lie in `limits`; `made` is what names stand for, `known` the range of what has no form. What an operation that may
    wrap makes has no form but its range. Above the last division whole multiples of two to the bits of the result are left out, since sums, products and masks
    keep what is left; a factor of two needs one bit less."""

    x: n.Var
    limits: tuple[int, int]
    made: Mapping[str, n.Expr]
    known: Callable[[n.Expr], tuple[int, int]]
    _kept: dict[tuple[n.Expr, int], Form] = field(default_factory=dict)

    def range(self, e: n.Expr) -> tuple[int, int] | None:
        """The range of an integer; None where its form may lie on both sides of an end of the dtype."""
        dtype = dtype_of(e.type)
        lo, hi = self.of(e, dtype.bits).within(self.limits)
        low, high = dtype.range
        by = (lo - low) // (1 << dtype.bits) << dtype.bits
        return (lo - by, hi - by) if lo <= hi and hi - by <= high else None

    def of(self, e: n.Expr, bits: int = 0, depth: int = 0) -> Form:
        """The form of an integer, modulo two to the `bits` where that is asked for."""
        found = self._kept.get((e, bits))
        if found is None:
            found = self._kept[(e, bits)] = self._made(e, bits, depth)
        return found

    def _made(self, e: n.Expr, bits: int, depth: int) -> Form:
        dtype = dtype_of(e.type)
        made: Form | None = None
        if depth < DEEPEST and dtype.is_integer:
            match e:
                case n.Var() if e.name == self.x.name:
                    return Form(Fraction(1), Fraction(0), Fraction(0))
                case n.Var() if e.name in self.made:
                    return self.of(self.made[e.name], bits, depth + 1)
                case n.Cast() if e.rounding in ("rn", "bits") and dtype_of(e.x.type).is_integer:
                    made = self.of(e.x, bits if bits <= min(dtype.bits, dtype_of(e.x.type).bits) else 0, depth + 1)
                case n.Binary(op="add" | "sub"):
                    made = self.of(e.a, bits, depth + 1).plus(self.of(e.b, bits, depth + 1), 1 if e.op == "add" else -1)
                case n.Binary(op="mul", b=n.Const(value=c)):
                    by = int(c)
                    made = self.of(e.a, max(0, bits - ((by & -by).bit_length() - 1)) if by else 0, depth + 1).scaled(Fraction(by))
                case n.Binary(op="mod", b=n.Const(value=c)) if bits and int(c) > 0 and int(c) % (1 << bits) == 0:
                    made = self.of(e.a, bits, depth + 1)
                case n.Binary(op="floordiv", b=n.Const(value=c)) if int(c) > 0:
                    made = self._divided(e.a, int(c), depth)
                case n.Call(fn="mulhi", args=(n.Var() | n.Binary() | n.Cast() as a, n.Const(value=c))):
                    made = self._divided(a, 1 << dtype.bits, depth, int(c))
                case n.Binary(op="shr", b=n.Const(value=s)) if 0 <= int(s) < dtype.bits:
                    made = self._divided(e.a, 1 << int(s), depth)
        if made is not None:
            if bits and bits <= dtype.bits:
                return made
            lo, hi = made.within(self.limits)
            low, high = dtype.range
            by = (lo - low) // (1 << dtype.bits) << dtype.bits
            if hi - by <= high:
                return Form(made.times, made.lo - by, made.hi - by)
        return Form(Fraction(0), *map(Fraction, self.known(e)))

    def _divided(self, e: n.Expr, c: int, depth: int, by: int = 1) -> Form:
        """`e * by / c` rounded down: less than one less."""
        of = self.of(e, 0, depth + 1).scaled(Fraction(by, c))
        return Form(of.times, of.lo - Fraction(c - 1, c), of.hi)
