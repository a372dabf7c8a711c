"""Operations on numbers and terms, one by one, and calls that shape, fold and search whole tiles."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from kir.analysis.algebra.memory import Array, new, numbers
from kir.analysis.algebra.terms import Term, Terms, Undecided, Value
from kir.ir.types import DType

COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b}
FLOATS = frozenset({"add", "sub", "mul", "div", "max", "min"})
WHOLE: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "min": min, "max": max, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b,
    "ceildiv": lambda a, b: -(-a // b), "tdiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "trem": lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1), "shl": lambda a, b: a << b, "shr": lambda a, b: a >> b}


def each(fn: Callable[..., Value], *args: Value) -> Value:
    """A function of elements; of None there is none."""
    if not any(isinstance(a, np.ndarray) for a in args):
        return None if any(a is None for a in args) else fn(*args)
    made = np.frompyfunc(lambda *x: None if any(a is None for a in x) else fn(*x), len(args), 1)(*args)
    return made


def wrapped(x: int, dtype: DType) -> int:
    """A whole number as its dtype holds it."""
    if not dtype.is_integer:
        return x
    low = x & ((1 << dtype.bits) - 1)
    return low - (1 << dtype.bits) if dtype.kind == "int" and low >> (dtype.bits - 1) else low


def binary(terms: Terms, op: str, dtype: DType) -> Callable[[Value, Value], Value]:
    """A binary operation on elements of a dtype."""
    def real(a: Value, b: Value) -> Value:
        x, y = terms.of(a), terms.of(b)
        if op in COMPARED:
            if x.op == y.op == "num":
                return COMPARED[op](x.args[0], y.args[0])
            if "inf" in (x.op, y.op):
                return _with_infinity(op, x, y)
            return terms.make("cmp", op, x, y)
        if op not in FLOATS:
            raise Undecided(f"'{op}' of floats")
        return terms.call(op, [x, y])

    def truth(a: Value, b: Value) -> Value:
        if op in ("and", "or"):
            for x, y in ((a, b), (b, a)):
                if not isinstance(x, Term):
                    return y if bool(x) == (op == "and") else op == "or"
        if op in ("and", "or") and isinstance(a, Term) and isinstance(b, Term):  # of 0 and 1, the smaller or the larger
            return terms.min(a, b) if op == "and" else terms.max(a, b)
        if isinstance(a, Term) or isinstance(b, Term):
            return terms.make("fn", op, *(x if isinstance(x, Term) else terms.number(Fraction(int(x))) for x in (a, b)))
        return bool(WHOLE[op](int(a), int(b))) if op in WHOLE else COMPARED[op](a, b)

    def whole(a: Value, b: Value) -> Value:
        if isinstance(a, Term) or isinstance(b, Term):
            if op in ("add", "sub", "mul"):
                return terms.call(op, [terms.of(a), terms.of(b)])
            if op in ("max", "min") and all(_plain(x) for x in (a, b)):
                end = -(1 << (dtype.bits - 1)) if op == "max" else (1 << (dtype.bits - 1)) - 1
                if dtype.kind == "int" and end in (a, b):
                    return b if a == end else a
                return terms.call(op, [terms.of(a), terms.of(b)])
            return terms.make("fn", f"{op} {dtype}", terms.of(a), terms.of(b))
        if op in COMPARED:
            return COMPARED[op](a, b)
        if op in ("floordiv", "mod", "ceildiv", "tdiv", "trem") and not b:
            raise Undecided("a division by zero")
        return wrapped(WHOLE[op](int(a), int(b)), dtype)
    return real if dtype.is_float else truth if dtype.is_bool else whole


def _plain(x: Value) -> bool:
    """Whether a whole number is an input, or the largest or least of some: nothing that may have wrapped."""
    if not isinstance(x, Term):
        return True
    if x.op == "mul":
        return x.args[0].op == "num" and x.args[0].args[0] == -1 and x.args[1].op == "max" and all(_negated(y) for y in x.args[1].args)
    return x.op in ("in", "num") or (x.op == "max" and all(_plain(y) for y in x.args))


def _negated(x: Term) -> bool:
    """The same of the negative of one, as the least of some is made."""
    if x.op == "mul":
        return x.args[0].op == "num" and x.args[0].args[0] == -1 and _plain(x.args[1])
    return x.op == "num" or (x.op == "max" and all(_negated(y) for y in x.args))


def _with_infinity(op: str, x: Term, y: Term) -> bool:
    values = [0 if t.op != "inf" else t.args[0] for t in (x, y)]
    return COMPARED[op](*values)


def unary(terms: Terms, op: str, dtype: DType) -> Callable[[Value], Value]:
    """`neg` or `not` on elements."""
    def made(x: Value) -> Value:
        if op == "neg" and (dtype.is_float or isinstance(x, Term)):
            return terms.neg(terms.of(x))
        if isinstance(x, Term):
            return terms.sub(terms.number(Fraction(1)), x) if dtype.is_bool else terms.make("fn", f"{op} {dtype}", x)
        return wrapped(-x, dtype) if op == "neg" else not x if dtype.is_bool else wrapped(~x, dtype)
    return made


def cast(terms: Terms, source: DType, target: DType, rounding: str) -> Callable[[Value], Value]:
    """A conversion: of reals to reals none."""
    def made(x: Value) -> Value:
        if rounding in ("bits", "sat") and (source.is_float or target.is_float) and source != target:
            raise Undecided(f"a conversion by '{rounding}'")
        if source == target:
            return x
        if target.is_float:
            if not isinstance(x, Term):
                return terms.number(Fraction(int(x)))
            return x if source.is_float else terms.make("fn", f"real {source}", x)
        if source.is_float:
            if x.op != "num":
                raise Undecided("a real is made a whole number")
            return bool(x.args[0]) if target.is_bool else wrapped(int(x.args[0]), target)
        if isinstance(x, Term):
            return terms.make("fn", f"{target} {source}", x)
        return bool(x) if target.is_bool else wrapped(int(x), target)
    return made


def select(terms: Terms, real: bool) -> Callable[[Value, Value, Value], Value]:
    """`a` where a condition holds, else `b`."""
    def made(c: Value, a: Value, b: Value) -> Value:
        if not isinstance(c, Term):
            return a if c else b
        if a is b:
            return a
        x, y = terms.of(a), terms.of(b)
        if real and c.op == "cmp":
            return terms.make("ite", c.args[0], c.args[1], c.args[2], x, y)
        return terms.make("fn", "choose", c, x, y)
    return made


def folded(fold: Callable[..., tuple[Value, ...]], parts: tuple[Array, ...], axis: int) -> tuple[Value, ...]:
    """A reduction along an axis, which goes."""
    rows = [np.moveaxis(p, axis, 0) for p in parts]
    if not len(rows[0]):
        raise Undecided("a reduction of nothing")
    total = tuple(r[0] for r in rows)
    for i in range(1, len(rows[0])):
        total = fold(total, tuple(r[i] for r in rows))
    return total


def scanned(fold: Callable[..., tuple[Value, ...]], parts: tuple[Array, ...], axis: int, reverse: bool) -> tuple[Array, ...]:
    """The same with all results on the way."""
    rows = [np.moveaxis(p, axis, 0) for p in parts]
    order = range(len(rows[0]))
    out = [new(r.shape) for r in rows]
    total: tuple[Value, ...] = ()
    for i in reversed(order) if reverse else order:
        here = tuple(r[i] for r in rows)
        total = fold(total, here) if total else here
        for o, t in zip(out, total, strict=True):
            o[i] = t
    return tuple(np.moveaxis(o, 0, axis) for o in out)


def shaped(fn: str, args: list[Value], attrs: Mapping[str, Any]) -> Value:
    """Calls that move elements and compute nothing. Raises Undecided for one that is none of them."""
    first = args[0]
    rest = [int(numbers(a)) for a in args[1:]] if fn in ("iota", "broadcast", "reshape", "trans") else []
    match fn:
        case "iota":
            return np.arange(int(numbers(first))).astype(object)
        case "expand":
            return np.expand_dims(np.asarray(first, dtype=object), int(attrs["axis"]))
        case "broadcast":
            return np.broadcast_to(np.asarray(first, dtype=object), tuple(rest))
        case "reshape":
            return np.asarray(first, dtype=object).reshape(rest)
        case "trans":
            return first.transpose(rest)
        case "vec":
            return np.stack([np.asarray(a, dtype=object) for a in args], axis=0)
        case "join":
            return np.stack(np.broadcast_arrays(*(np.asarray(a, dtype=object) for a in args)), axis=-1)
        case "split":
            return tuple(first[..., i] for i in range(2))
        case "cat":
            return np.concatenate(args, axis=int(attrs.get("axis", 0)))
        case "gather":
            return np.take_along_axis(first, numbers(args[1]), int(attrs.get("axis", 0)))
        case "pick":
            at = np.broadcast_arrays(*(numbers(a) for a in args[1:]))
            if any((a < 0).any() or (a >= d).any() for a, d in zip(at, first.shape, strict=True)):
                raise Undecided("an element that a tile does not have")
            return first[tuple(at)] if at[0].ndim else first[tuple(int(a) for a in at)]
        case "multiple_of" | "max_contiguous" | "max_constancy":
            return first
        case _:
            raise Undecided(f"'{fn}' is not followed")
