"""In checking mode: which lane has touched an element of a tensor that a compiled loop writes, and whether it has only read it so far."""
from __future__ import annotations

from typing import Any

from kir.interp.native.scalars import Value

NOBODY, READ = -1, -2
"""Marks of an element that no lane has touched, and of one that the first lane has only read: a lane counts from there down."""


def mark(e: Any, name: str, offset: Value, lane: Value, read: bool = False) -> None:
    """Notes that a lane touches an element; two of them are for NumPy to judge: the loop is undone. `e` is its emitter."""
    b, place = e.b, e.b.gep(e.marks[name], [offset])
    before, mine = b.load(place), b.trunc(lane, e.ir.IntType(32))
    first, reader = b.icmp_signed("==", before, e.c(NOBODY, before.type)), b.sub(e.c(READ, before.type), mine)
    own = b.or_(first, b.or_(b.icmp_signed("==", before, mine), b.icmp_signed("==", before, reader)))
    b.store(b.or_(b.load(e.bad), b.not_(own)), e.bad)
    b.store(b.select(first, reader, before) if read else mine, place)
