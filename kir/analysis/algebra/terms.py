"""Expressions over real inputs, each there once: whoever builds the same one again gets the same object."""
from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np


class Undecided(Exception):
    """Something that is not followed; the message says what."""


class Term:
    """An operation on terms, or a leaf. Two are equal only when they are one object."""

    __slots__ = ("args", "op")

    def __init__(self, op: str, args: tuple[Any, ...]) -> None:
        self.op, self.args = op, args

    def __bool__(self) -> bool:
        raise Undecided("a branch, an address or a loop depends on the inputs")

    __int__ = __index__ = __float__ = __bool__


Value = Any
"""A number of Python, or a term; None where nothing has been written."""
LN2 = (math.log(2.0), float(np.float32(math.log(2.0))))
LOG2E = (1.0 / math.log(2.0), math.log2(math.e), float(np.float32(math.log2(math.e))))
"""Numbers that are written for a constant that no float is, or for it times a power of two: they stand for that."""
REALS = {"exp2_approx": "exp2", "log2_approx": "log2", "rsqrt_approx": "rsqrt", "sin_approx": "sin", "cos_approx": "cos", "tanh_approx": "tanh",
         "rcp_approx": "rcp", "sqrt_approx": "sqrt", "add_rounded": "add", "sub_rounded": "sub", "mul_rounded": "mul", "div_rounded": "div",
         "div_approx": "div", "div_rz": "div", "sqrt_rounded": "sqrt", "rcp_rounded": "rcp", "fma_rounded": "fma", "to_tf32": "same"}
"""Instructions that round, and what they round."""


class Terms:
    """All terms of one comparison."""

    def __init__(self, most: int = 2_000_000) -> None:
        self.kept: dict[tuple[Any, ...], Term] = {}
        self.most = most
        """Operations before it is given up."""
        self.count = 0

    def make(self, op: str, *args: Any) -> Term:
        """The term of that operation."""
        self.count += 1
        if self.count > self.most:
            raise Undecided("it is too large")
        key = (op, *args)
        found = self.kept.get(key)
        if found is None:
            found = self.kept[key] = Term(op, args)
        return found

    # ------------------------------------------------------------------------------------------------------------- leaves
    def number(self, value: float | Fraction) -> Term:
        """A number as it stands; of ln 2 and log2 e those."""
        if isinstance(value, Fraction):
            return self.make("num", value)
        value = float(value)
        if math.isnan(value):
            raise Undecided("a NaN is written")
        if math.isinf(value):
            return self.make("inf", 1 if value > 0 else -1)
        digits, power = math.frexp(abs(value))
        for known, is_ln2 in ((LN2, True), (LOG2E, False)):
            for each in known:
                if digits == math.frexp(each)[0]:  # times a power of two, which no float rounds
                    times = self.make("num", Fraction(2) ** (power - math.frexp(each)[1]) * (1 if value > 0 else -1))
                    return self.mul(times, self.make("ln2")) if is_ln2 else self.div(times, self.make("ln2"))
        return self.make("num", Fraction(value))

    def of(self, x: Value) -> Term:
        """A value as a term."""
        return x if isinstance(x, Term) else self.number(Fraction(int(x)) if isinstance(x, (bool, int, np.integer, np.bool_)) else x)

    # --------------------------------------------------------------------------------------------------------- operations
    def add(self, a: Term, b: Term) -> Term:
        if "inf" in (a.op, b.op):
            x, y = (a, b) if a.op == "inf" else (b, a)
            if y.op == "inf" and y is not x:
                raise Undecided("a NaN comes about")
            return x
        if a.op == b.op == "num":
            return self.number(a.args[0] + b.args[0])
        return b if _is(a, 0) else a if _is(b, 0) else self.make("add", a, b)

    def mul(self, a: Term, b: Term) -> Term:
        if "inf" in (a.op, b.op):
            x, y = (a, b) if a.op == "inf" else (b, a)
            if y.op == "inf" or (sign := _sign(y)):
                return self.make("inf", x.args[0] * (y.args[0] if y.op == "inf" else sign))
            raise Undecided("an infinity is multiplied")
        if a.op == b.op == "num":
            return self.number(a.args[0] * b.args[0])
        if _is(a, 0) or _is(b, 0):
            return self.number(Fraction(0))
        return b if _is(a, 1) else a if _is(b, 1) else self.make("mul", a, b)

    def neg(self, a: Term) -> Term:
        return self.mul(self.number(Fraction(-1)), a)

    def sub(self, a: Term, b: Term) -> Term:
        return self.add(a, self.neg(b))

    def div(self, a: Term, b: Term) -> Term:
        if b.op == "inf":
            return self.number(Fraction(0)) if a.op != "inf" else self._nan()
        if _is(b, 0):
            return self._nan()
        if b.op == "num":
            return self.mul(a, self.number(1 / b.args[0]))
        if a.op == "inf":
            return self._nan()
        return self.make("div", a, b)

    def _nan(self) -> Term:
        raise Undecided("a quotient has no finite value")

    def max(self, a: Term, b: Term) -> Term:
        for x, y in ((a, b), (b, a)):
            if x.op == "inf":
                return y if x.args[0] < 0 else x
        if a.op == b.op == "num":
            return a if a.args[0] >= b.args[0] else b
        return a if a is b else self.make("max", a, b)

    def min(self, a: Term, b: Term) -> Term:
        return self.neg(self.max(self.neg(a), self.neg(b)))

    def exp(self, a: Term) -> Term:
        if a.op == "inf":
            return self.number(Fraction(0)) if a.args[0] < 0 else a
        return self.number(Fraction(1)) if _is(a, 0) else self.make("exp", a)

    def log(self, a: Term) -> Term:
        return self.number(Fraction(0)) if _is(a, 1) else self.make("log", a)

    def call(self, fn: str, args: list[Term]) -> Term:
        """A function of reals."""
        one, two = self.number(Fraction(1)), self.number(Fraction(2))
        fn = REALS.get(fn, fn)
        x = args[0]
        match fn:
            case "add" | "sub" | "mul" | "div" | "max" | "min":
                return getattr(self, fn)(x, args[1])  # type: ignore[no-any-return]  # a Term
            case "same":
                return x
            case "fma":
                return self.add(self.mul(x, args[1]), args[2])
            case "exp" | "log":
                return getattr(self, fn)(x)  # type: ignore[no-any-return]  # a Term
            case "max_nan" | "min_nan":
                return getattr(self, fn[:3])(x, args[1])  # type: ignore[no-any-return]  # a Term
            case "exp2":
                return self.exp(self.mul(self.make("ln2"), x))
            case "expm1":
                return self.sub(self.exp(x), one)
            case "log2":
                return self.div(self.log(x), self.make("ln2"))
            case "log1p":
                return self.log(self.add(one, x))
            case "sqrt":
                return self.make("sqrt", x)
            case "rsqrt":
                return self.div(one, self.make("sqrt", x))
            case "rcp":
                return self.div(one, x)
            case "sigmoid":
                return self.div(one, self.add(one, self.exp(self.neg(x))))
            case "tanh":
                return self.sub(one, self.div(two, self.add(one, self.exp(self.mul(two, x)))))
            case "abs":
                return self.max(x, self.neg(x))
            case _:
                if "inf" in [a.op for a in args]:
                    raise Undecided(f"'{fn}' of an infinity")
                return self.make("fn", fn, *args)


def _sign(x: Term) -> int:
    """1 or -1 for what is known to be above or below zero for all inputs; else 0."""
    if x.op == "num":
        return int(x.args[0] > 0) - int(x.args[0] < 0)
    if x.op in ("mul", "div"):
        return _sign(x.args[0]) * _sign(x.args[1])
    return int(x.op in ("ln2", "exp"))


def _is(x: Term, value: int) -> bool:
    return x.op == "num" and bool(x.args[0] == value)
