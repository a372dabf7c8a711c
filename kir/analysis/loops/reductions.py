"""Reductions: the operation that each folds with, and what it starts from."""
from __future__ import annotations

import math

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType

OPS = {"sum": "add", "max": "max", "min": "min", "prod": "mul", "and": "and", "or": "or", "xor": "xor"}
"""Reductions by the binary operation that they fold."""


def identity(op: str, dtype: DType) -> n.Const:
    """What a reduction starts from: 0 for sums, the lowest value for maxima, the highest for minima; 1 for products, all bits for `and`."""
    if op in ("sum", "or", "xor"):
        return build.const(False if dtype.is_bool else 0, dtype)
    if op == "prod":
        return build.const(1, dtype)
    if op == "and":
        return build.const(True, dtype) if dtype.is_bool else build.const(-1 if dtype.kind == "int" else dtype.range[1], dtype)
    if dtype.is_float:
        return build.const(-math.inf if op == "max" else math.inf, dtype)
    return build.const(dtype.range[0 if op == "max" else 1], dtype)
