"""Pointers that a loop carries: an address that moves by the same amount in every round is advanced, not worked out anew.

A frontend reads `p += step` as a function of the loop variable; written so, each round multiplies in 64 bits before it can load. The
address is written as a name that starts before the loop and is advanced at the end of its body, which reads back as that function.
"""
from __future__ import annotations

from collections.abc import Iterator

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import is_const
from kir.ir.canonical import bound_names
from kir.ir.types import shape_of
from kir.ir.visit import walk


@dataclass(frozen=True)
class Moving:
    """An address in a loop: where it is in the first round (`start`, the terms of its index), and how far a round moves it, in elements."""

    at: n.Region
    start: tuple[n.Expr, ...]
    amount: n.Expr


def moving(loop: n.For) -> tuple[Moving, ...]:
    """The addresses of a loop's accesses that move by one amount, each once, in the order of their first use. Those under a static branch
    are left: what they are made of may not be there. A loop that can be left early has none."""
    if any(isinstance(x, (n.Jump, n.Opaque, n.Hole)) for s in loop.body for x in walk(s)):
        return ()
    stored = {x.at.buffer.name for s in loop.body for x in walk(s) if isinstance(x, n.Store)}
    stored |= {x.acc.buffer.name for s in loop.body for x in walk(s) if isinstance(x, n.Mma)}
    inside = frozenset({loop.var.name, *bound_names(loop.body), *stored})
    found: dict[n.Region, Moving] = {}
    for at in _accesses(loop.body):
        if at not in found and len(at.index) == 1 and isinstance(at.index[0], n.Expr):
            made = _moving(at, at.index[0], loop, inside)
            if made is not None:
                found[at] = made
    return tuple(found.values())


def terms(e: n.Expr) -> list[n.Expr]:
    """What a sum is of."""
    return [*terms(e.a), *terms(e.b)] if isinstance(e, n.Binary) and e.op == "add" else [e]


def _accesses(block: n.Block) -> Iterator[n.Region]:
    """Places in global memory that are loaded from or stored to, static branches left out."""
    for s in block:
        if isinstance(s, n.If) and s.static:
            continue
        if isinstance(s, (n.For, n.While, n.If)):
            heads: tuple[n.Node, ...] = (s.lo, s.hi, s.step) if isinstance(s, n.For) else (s.cond,)
            for head in heads:
                yield from (x.at for x in walk(head) if isinstance(x, n.Load) and x.at.buffer.space == "global")
            for inner in (s.then, s.orelse) if isinstance(s, n.If) else (s.body,):
                yield from _accesses(inner)
            continue
        yield from (x.at for x in walk(s) if isinstance(x, (n.Load, n.Store)) and x.at.buffer.space == "global")


def _moving(at: n.Region, index: n.Expr, loop: n.For, inside: frozenset[str]) -> Moving | None:
    parts = terms(index)
    amounts = [(i, a) for i, t in enumerate(parts) if (a := _amount(t, loop)) is not None]
    if len(amounts) != 1:
        return None
    ((i, amount),) = amounts
    start = (*parts[:i], *parts[i + 1:])
    if any(x.name in inside for e in (amount, *start) for x in walk(e) if isinstance(x, (n.Var, n.Buffer))):
        return None
    return Moving(at, start, amount) if any(shape_of(e.type) == shape_of(index.type) for e in start) else None


def _amount(term: n.Expr, loop: n.For) -> n.Expr | None:
    """The scalar that a term is a multiple of, once for each round that has passed."""
    if not isinstance(term, n.Binary) or term.op != "mul":
        return None
    for a, b in ((term.a, term.b), (term.b, term.a)):
        if isinstance(a, n.Call) and a.fn == "broadcast" and isinstance(a.args[0], n.Expr) and _is_round(b, loop):
            return a.args[0]
    return None


def _is_round(e: n.Expr, loop: n.For) -> bool:
    """Whether an expression is the number of rounds that have passed."""
    while isinstance(e, n.Cast) and e.rounding == "rn":
        e = e.x
    if e == loop.var:
        return is_const(loop.lo, 0) and is_const(loop.step, 1)
    return is_const(loop.lo, 0) and isinstance(e, n.Binary) and e.op == "tdiv" and e.a == loop.var and e.b == loop.step
