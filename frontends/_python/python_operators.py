"""Python's operators, by the nodes of its syntax."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import libcst as cst

MOST_ITEMS, MOST_BITS, MOST_WIDTH = 1 << 16, 1 << 14, 6
"""Items of a list or letters of a text, bits of a number, and digits of a width that are worked out: no kernel says more, and no memory need hold it."""


def multiplied(a: Any, b: Any) -> Any:
    """`a * b`. Raises OverflowError for a list or text of more than MOST_ITEMS, and for a number of more than MOST_BITS."""
    many, count = (a, b) if isinstance(a, (str, bytes, list, tuple)) else (b, a)
    if isinstance(many, (str, bytes, list, tuple)) and isinstance(count, int) and len(many) * count > MOST_ITEMS:
        raise OverflowError(f"{len(many)} items, {count} times")
    if isinstance(a, int) and isinstance(b, int) and a.bit_length() + b.bit_length() > MOST_BITS:
        raise OverflowError("a product of too many digits")
    return operator.mul(a, b)


def added(a: Any, b: Any) -> Any:
    """`a + b`. Raises OverflowError for a list or text of more than MOST_ITEMS."""
    if isinstance(a, (str, bytes, list, tuple)) and isinstance(b, (str, bytes, list, tuple)) and len(a) + len(b) > MOST_ITEMS:
        raise OverflowError(f"{len(a) + len(b)} items")
    return operator.add(a, b)


def power(a: Any, b: Any) -> Any:
    """`a ** b`. Raises OverflowError for a number of more than MOST_BITS."""
    if isinstance(a, int) and isinstance(b, int) and b > 0 and a.bit_length() * b > MOST_BITS:
        raise OverflowError("a power of too many digits")
    return operator.pow(a, b)


def shifted(a: Any, b: Any) -> Any:
    """`a << b`. Raises OverflowError for a number of more than MOST_BITS."""
    if isinstance(a, int) and isinstance(b, int) and a.bit_length() + b > MOST_BITS:
        raise OverflowError("a number of too many digits")
    return operator.lshift(a, b)


def remainder(a: Any, b: Any) -> Any:
    """`a % b`. Raises OverflowError for a text of which a part is to be wider than any line."""
    if isinstance(a, str) and re.search(rf"[\d*]{{{MOST_WIDTH},}}|\*", a):
        raise OverflowError("a text of so many letters")
    return operator.mod(a, b)


def listed(numbers: range) -> list[int]:
    """A range as a list. Raises OverflowError for more than MOST_ITEMS."""
    if len(numbers) > MOST_ITEMS:
        raise OverflowError(f"a list of {len(numbers)} numbers")
    return list(numbers)


BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    cst.Add: added,
    cst.Subtract: operator.sub,
    cst.Multiply: multiplied,
    cst.Divide: operator.truediv,
    cst.FloorDivide: operator.floordiv,
    cst.Modulo: remainder,
    cst.Power: power,
    cst.LeftShift: shifted,
    cst.RightShift: operator.rshift,
    cst.BitAnd: operator.and_,
    cst.BitOr: operator.or_,
    cst.BitXor: operator.xor,
}

COMPARE: Mapping[type, Callable[[Any, Any], Any]] = {
    cst.LessThan: operator.lt,
    cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt,
    cst.GreaterThanEqual: operator.ge,
    cst.Equal: operator.eq,
    cst.NotEqual: operator.ne,
    cst.Is: operator.is_,
    cst.IsNot: operator.is_not,
}

UNARY: Mapping[type, Callable[[Any], Any]] = {
    cst.Minus: operator.neg,
    cst.Not: operator.not_,
    cst.BitInvert: operator.invert,
    cst.Plus: operator.pos,
}
