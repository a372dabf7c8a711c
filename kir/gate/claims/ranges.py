"""Between which numbers values lie, and which truth values conditions may have by that."""
from __future__ import annotations

import math
from collections.abc import Mapping

from kir.gate.claims.ways import bare, conjuncts
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import transform

Range = tuple[float, float]
"""The least and the greatest number that a value may be."""


def truths(e: n.Expr, ranges: Mapping[str, Range]) -> set[bool]:
    """Which truth values a condition may have."""
    match e:
        case n.Const(value=bool() as value):
            return {value}
        case n.Unary(op="not", x=x):
            return {not t for t in truths(x, ranges)}
        case n.Binary(op="and" | "or" as op, a=a, b=b):
            return {(x and y) if op == "and" else (x or y) for x in truths(a, ranges) for y in truths(b, ranges)}
        case n.Binary(op="lt" | "le" | "gt" | "ge" as op, a=a, b=b):
            (low, high), (least, most) = (range_of(x, ranges) for x in ((a, b) if op in ("lt", "le") else (b, a)))
            strict = op in ("lt", "gt")
            can = low < least or low < most or (low <= most and not strict)
            cannot = high > least or (high >= least and strict)
            return ({True} if can else set()) | ({False} if cannot else set())
        case _:
            return {True, False}


def range_of(e: n.Expr, ranges: Mapping[str, Range]) -> Range:
    """Between which numbers a value lies."""
    match e:
        case n.Const(value=value) if not isinstance(value, bool):
            return float(value), float(value)
        case n.Load(at=at, mask=None) if at.buffer.name in ranges:
            return ranges[at.buffer.name]
        case n.Cast(x=x, rounding=rounding) if rounding != "bits" and dtype_of(e.type).is_float and dtype_of(e.type).bits >= dtype_of(x.type).bits:
            return range_of(x, ranges)
        case n.Unary(op="neg", x=x):
            low, high = range_of(x, ranges)
            return -high, -low
        case n.Binary(op="add" | "sub" | "min" | "max" | "mul" as op, a=a, b=b) if dtype_of(e.type).is_float:
            one, two = range_of(a, ranges), range_of(b, ranges)
            if op == "mul":
                ends = [0.0 if 0 in (x, y) else x * y for x in one for y in two]
                return (max(0.0, min(ends)), max(ends)) if a == b else (min(ends), max(ends))
            two = (-two[1], -two[0]) if op == "sub" else two
            if op in ("min", "max"):
                how = min if op == "min" else max
                return how(one[0], two[0]), how(one[1], two[1])
            return one[0] + two[0], one[1] + two[1]
        case n.Call(fn="abs"):
            return 0.0, math.inf
        case n.Call(fn="exp" | "exp2"):
            return 0.0, math.inf
        case n.Call(fn="expand" | "broadcast") if bare(e) is not e:
            return range_of(bare(e), ranges)
        case n.Binary(op="and", a=a, b=b) if _is_unsigned(e):
            return 0.0, min(range_of(x, ranges)[1] for x in (a, b))
        case _:
            return 0.0 if _is_unsigned(e) else -math.inf, math.inf


def _is_unsigned(e: n.Expr) -> bool:
    of = None if e.type is None else dtype_of(e.type)
    return of is not None and of.is_integer and of.kind == "uint"


def filled_behind(e: n.Expr) -> n.Expr:
    """A condition, where it holds, with what masked loads are filled with in the place of those whose mask it denies."""
    denied = [build.invert(x) for x in conjuncts(e)]

    def filled(old: n.Node, new: n.Node) -> n.Node:
        return new.other if isinstance(new, n.Load) and new.mask in denied and new.other is not None else new
    made = transform(e, filled)
    assert isinstance(made, n.Expr)
    return made


__all__ = ["Range", "filled_behind", "range_of", "truths"]
