"""Arrays whose rows are longer than what is used of them."""
from __future__ import annotations

from itertools import pairwise

from kir.ir import nodes as n
from kir.ir.build import int_value


def with_padding(b: n.Buffer) -> tuple[int, ...]:
    """The shape of such an array with what is not used of its rows, in elements; its own shape where there is none, or where strides are no rows."""
    return rows_in_memory(b) or tuple(int_value(d) or 1 for d in b.shape)


def rows_in_memory(b: n.Buffer) -> tuple[int, ...] | None:
    """The shape of an array whose axes follow one another in memory, with what is not used of its rows, in elements; None where strides say otherwise:
    such an array has no row and column of its text, but places counted from its beginning."""
    shape = tuple(int_value(d) or 1 for d in b.shape)
    if len(shape) < 2:
        return shape
    if b.strides is not None:
        strides = [int_value(s) or 0 for s in b.strides]
    elif b.layout is not None and b.layout.name == "strides":
        given = b.layout.args[0] if b.layout.args and isinstance(b.layout.args[0], tuple) else b.layout.args
        strides = [x if isinstance(x, int) else 0 for x in given]
    else:
        return shape
    rows = [a // c if c and a % c == 0 else 0 for a, c in pairwise(strides)]
    return (shape[0], *rows) if strides[-1] == 1 and all(r >= d for r, d in zip(rows, shape[1:], strict=True)) else None
