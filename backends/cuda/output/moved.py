"""Stores whose value is made of what they write: all of it is read before any of it is written, which a loop over the elements does not do by itself."""
from __future__ import annotations

from kir.base.instructions import table
from kir.ir import nodes as n
from kir.ir.build import int_value, polynomial, sub
from kir.ir.types import shape_of
from kir.ir.visit import children


def reads_what_it_writes(at: n.Region, value: n.Expr) -> bool:
    """Whether an element of `value` may be made of another element of `at` than its own."""
    return bool(shape_of(at.type)) and _reads(at, value, True)


def _reads(at: n.Region, x: n.Node, own: bool) -> bool:
    """`own`: element by element, the whole takes the same element of `x`."""
    if isinstance(x, n.Load) and x.at.buffer.name == at.buffer.name and not _apart(at, x.at) and not (own and x.at == at):
        return True
    if isinstance(x, n.Call):
        own = own and x.of is None and table()[x.fn].level == "element"
    return any(_reads(at, c, own and isinstance(c, n.Expr)) for c in children(x) if isinstance(c, (n.Expr, n.Region, n.Span)))


def _apart(a: n.Region, b: n.Region) -> bool:
    """Whether two places of a buffer certainly share nothing: along one dimension, a number that is known lies between them."""
    for i, j in zip(a.index, b.index, strict=False):
        (lo, count), (other, size) = ((k.lo, int_value(k.extent)) if isinstance(k, n.Span) else (k, 1) for k in (i, j))
        if (isinstance(i, n.Span) and i.step != 1) or (isinstance(j, n.Span) and j.step != 1) or count is None or size is None:
            continue
        if shape_of(lo.type) or shape_of(other.type):
            continue
        between = polynomial(sub(other, lo))
        if set(between) <= {()} and not -size < between.get((), 0) < count:
            return True
    return False
