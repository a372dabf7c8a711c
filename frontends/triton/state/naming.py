"""Run-time values under names, so that they can be used again later."""

from __future__ import annotations

from dataclasses import replace

from kir.ir import nodes as n
from kir.ir.visit import walk

from ..values.emitter import buffer_read
from ..values.values import BlockPointer, Choice, Items, Value
from . import joins
from .state import State


def named(r: State, name: str, value: Value) -> Value:
    """A value whose run-time parts are named, so that it can be used again later."""

    def expr(e: n.Expr) -> n.Expr:
        if isinstance(e, (n.Var, n.Const)):
            return e
        buffer = buffer_read(e)
        if buffer is not None and buffer.name not in r.out.mutable:
            owner = r.out.owners.setdefault(buffer.name, r.owner(name))
            if owner == r.owner(name):
                return e
        return r.out.let(name, e)

    def scalar(e: n.Expr) -> n.Expr:
        return e if not (isinstance(e, n.Load) and e.at.buffer.name in r.out.mutable) and not _reads(e) else r.out.let(name, e)

    if isinstance(value, BlockPointer):
        return joins.mapped(value, scalar)
    if isinstance(value, Choice) and joins.points(value):  # places are numbers, worked out whichever of the tensors is meant
        made: dict[n.Expr, n.Expr] = {}
        return joins.mapped(value, lambda e: made[e] if e in made else made.setdefault(e, expr(e)))
    if isinstance(value, Choice):
        return replace(value, a=_under(r, value, True, name), b=_under(r, value, False, name))
    if isinstance(value, Items):
        return replace(value, items=tuple(named(r, name, v) for v in value.items))
    return joins.mapped(value, expr)


def _under(r: State, choice: Choice, outcome: bool, name: str) -> Value:
    cond = choice.cond
    with r.paths.under(cond, outcome), r.out.capture() as block:
        made = named(r, name, choice.a if outcome else choice.b)
    if not block:
        return made
    made = joins.export(r, (made, block), name)
    joins.emit_if(r, cond, block if outcome else [], [] if outcome else block, choice.static)
    return made


def _reads(e: n.Expr) -> bool:
    return any(isinstance(x, n.Load) for x in walk(e))
