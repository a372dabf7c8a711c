"""Operators of Python between what host code holds."""

from __future__ import annotations

import ast

from kir.ir import build
from kir.ir import nodes as n
from kir.surface.launches.values import Array, Bits, Known, Quotient, Unknown, Value, floored, one_more

from .host_values import array, number, uncounted


def binary(known: Known, op: ast.operator, left: Value, right: Value) -> Value:
    """What an operator of two values gives, as far as it can be told."""
    if isinstance(op, ast.Add) and isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return [*left, *right]
    if isinstance(op, ast.Add) and (up := one_more(known, left, right) or one_more(known, right, left)) is not None:
        return up
    left = known.bits(left) if isinstance(left, Bits) else left
    if isinstance(right, Bits) and not isinstance(op, (ast.Pow, ast.LShift)):
        right = known.bits(right)
    a, b = number(left), number(right)
    if isinstance(right, Bits):
        base = 2 if isinstance(op, ast.Pow) else 1 if isinstance(op, ast.LShift) else 0
        return known.power_of_two(build.add(right.of, 1)) if a is not None and a == build.const(base) else Unknown("an operator")
    if a is None or b is None:
        if (x := array(left)) is not None or (x := array(right)) is not None:
            return Array(known, "", x.shape, x.dtype) if not isinstance(op, ast.MatMult) else Unknown("a product of matrices")
        return uncounted(left, right)
    a, b = known.resolved(a), known.resolved(b)
    match op:
        case ast.Add():
            return build.add(a, b)
        case ast.Sub():
            return build.sub(a, b)
        case ast.Mult():
            return build.mul(a, b)
        case ast.FloorDiv():
            return floored(a, b)
        case ast.Div():
            return Quotient(a, b)
        case ast.Mod():
            return build.mod(a, b)
        case ast.Pow() | ast.LShift() | ast.RShift() if isinstance(a, n.Const) and isinstance(b, n.Const) and 0 <= int(b.value) < 31:
            first, second = int(a.value), int(b.value)
            return build.const(first ** second if isinstance(op, ast.Pow) else first << second if isinstance(op, ast.LShift) else first >> second)
        case _:
            return Unknown("an operator")


def is_power_of_two(test: ast.expr) -> bool:
    """Whether a condition says of a number that it is a power of two: `n == 2 ** (n.bit_length() - 1)`."""
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            said = {f"{base} (({x}).bit_length() - 1)" for x in (f"({ast.unparse(left)})", f"({ast.unparse(right)})") for base in ("2 **", "1 <<")}
            return any(ast.dump(ast.parse(each, mode="eval").body) == ast.dump(side) for each in said for side in (left, right))
        case _:
            return False
