"""Rows of a thread that are stored under a mask, as a loop over their elements: languages without masks write them so."""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.elements import NotElementwise, element
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, TileType, dtype_of, shape_of
from kir.ir.visit import updated, walk

LONGEST = 16
"""Elements of a row at most."""


def by_elements(body: n.Block) -> n.Block:
    """The block with each such store, and those inside, as a loop with a branch around a store of one element."""
    return tuple(_store(s) if isinstance(s, n.Store) else _inside(s) for s in body)


def _inside(s: n.Stmt) -> n.Stmt:
    match s:
        case n.For() | n.While():
            return updated(s, body=by_elements(s.body))
        case n.If():
            return updated(s, then=by_elements(s.then), orelse=by_elements(s.orelse))
        case _:
            return s


def _store(s: n.Store) -> n.Stmt:
    last = s.at.index[-1] if s.at.index else None
    if s.mask is None or s.clip or not isinstance(last, n.Span) or last.step not in (1, build.const(1)) or not isinstance(last.extent, int):
        return s
    if not 1 < last.extent <= LONGEST or any(isinstance(x, n.Load) and x.at.buffer.space not in ("register", "fragment") for x in walk(s.value)):
        return s  # what a mask leaves out of a row is read all the same
    if any(isinstance(i, n.Span) or isinstance(i.type, TileType) for i in s.at.index[:-1]) or shape_of(s.mask.type) not in ((), (last.extent,)):
        return s
    e = n.Var(f"%row{id(s)}", I32)
    try:
        value = element(s.value, [e]) if shape_of(s.value.type) else s.value
        mask = element(s.mask, [e]) if shape_of(s.mask.type) else s.mask
    except (NotElementwise, KirError):
        return s
    at = n.Region(s.at.buffer, (*s.at.index[:-1], build.add(last.lo, build.cast(e, dtype_of(last.lo.type)))))
    one = replace(s, at=at, value=value, mask=None)
    return n.For(e, build.const(0), build.const(last.extent), build.const(1), (n.If(mask, (one,)),), "unroll")
