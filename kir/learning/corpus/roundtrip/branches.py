"""Conditions of one thread's program that two spellings ask otherwise, in the form that they share: a branch, a mask of what is read, or a choice."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType
from kir.ir.visit import transform, walk


def branched(body: n.Block, known: frozenset[n.Expr] = frozenset()) -> n.Block:
    """The block with what a condition of the thread masks under that condition: a store, and a store of what is loaded, or chosen where memory is read,
    or of what stands there instead. What is `known` to hold masks nothing."""
    out: list[n.Stmt] = []
    for s in body:
        if isinstance(s, n.Store):
            s = _under(s)
        if isinstance(s, n.If):
            s = replace(s, then=branched(s.then, known | _terms(s.cond)), orelse=branched(s.orelse, known | _terms(build.invert(s.cond))))
        else:
            s = inside(s, partial(branched, known=known))
        out.append(transform(s, partial(_unmasked, known)) if known and not isinstance(s, (n.If, n.For, n.While)) else s)
    return tuple(out)


def _under(s: n.Store) -> n.Stmt:
    """A store as one under each condition that its value asks, where what is read is read under it alone."""
    s = replace(s, value=number(s.value))
    x, bare = s.value, replace(s, mask=None)
    if s.mask is not None:
        return s if isinstance(s.mask.type, TileType) else n.If(s.mask, (_under(bare),))
    if isinstance(x, n.Load) and x.mask is not None and x.other is not None and not isinstance(x.mask.type, TileType):
        return n.If(x.mask, (_under(replace(bare, value=replace(x, mask=None, other=None))),), (_under(replace(bare, value=x.other)),))
    if isinstance(x, n.Select) and not isinstance(x.cond.type, TileType):
        arms = ((x.a, _terms(x.cond)), (x.b, _terms(build.invert(x.cond))))
        reads = [(y, known) for arm, known in arms for y in walk(arm) if isinstance(y, n.Load) and y.at.buffer.space in ("global", "shared")]
        if reads and all(y.mask is not None and _terms(y.mask) and _terms(y.mask) <= known for y, known in reads):
            return n.If(x.cond, (_under(replace(bare, value=x.a)),), (_under(replace(bare, value=x.b)),))
    return s


def _terms(cond: n.Expr) -> frozenset[n.Expr]:
    """What holds where a condition does, of numbers that stay what they are."""
    if isinstance(cond, n.Binary) and cond.op == "and":
        return _terms(cond.a) | _terms(cond.b)
    return frozenset() if isinstance(cond.type, TileType) or any(isinstance(x, n.Load) for x in walk(cond)) else frozenset({cond})


def _unmasked(known: frozenset[n.Expr], old: n.Node, new: n.Node) -> n.Node:
    if isinstance(new, n.Load) and new.mask is not None and (asked := _terms(new.mask)) and asked <= known and not any(
            isinstance(x, n.Load) for x in walk(new.mask)):
        return replace(new, mask=None, other=None)
    return new


def number(e: n.Expr) -> n.Expr:
    """A number that fills a place, without how many there are."""
    filled = isinstance(e, n.Call) and e.fn == "broadcast" and e.of is None and isinstance(e.args[0], (n.Const, n.Cast))
    return e.args[0] if filled and isinstance(e, n.Call) and isinstance(e.args[0], n.Expr) else e


def inside(s: n.Stmt, made: Callable[[n.Block], n.Block]) -> n.Stmt:
    """A statement with its blocks as `made` of them."""
    match s:
        case n.For():
            return replace(s, body=made(s.body))
        case n.While():
            return replace(s, body=made(s.body))
        case n.If():
            return replace(s, then=made(s.then), orelse=made(s.orelse))
        case _:
            return s
