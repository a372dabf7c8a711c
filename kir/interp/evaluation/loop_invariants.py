"""Index arithmetic that a loop leaves as it is: worked out when it is first needed, and known until the loop ends.

Naive programs name a place by the same long arithmetic in each of many iterations. Only integers made of names and literals are kept, so that
nothing is evaluated that would not have been, and nothing can differ between two evaluations. Where the threads of a CTA take turns, nothing is kept.
"""
from __future__ import annotations

from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import DType
from kir.ir.visit import children

LEAST = 4
"""Iterations from which on it is worth the while."""


def invariants(loop: n.For) -> tuple[n.Binary, ...]:
    """The largest integer expressions in a loop's body that use no name that is bound in it."""
    inside = {loop.var.name, *bound_names(loop.body)}
    found: dict[int, n.Binary] = {}
    for s in loop.body:
        _collect(s, inside, found)
    return tuple(found.values())


def _collect(x: n.Node, inside: set[str], found: dict[int, n.Binary]) -> None:
    if isinstance(x, n.Binary) and _fixed(x, inside):
        found[id(x)] = x
        return
    for child in children(x):
        _collect(child, inside, found)


def _fixed(e: n.Expr, inside: set[str]) -> bool:
    match e:
        case n.Const():
            return e.dtype.is_integer
        case n.Var():
            return isinstance(e.of, DType) and e.of.is_integer and e.name not in inside
        case n.Binary():
            return _fixed(e.a, inside) and _fixed(e.b, inside)
        case n.Cast(rounding="rn"):
            return e.dtype.is_integer and _fixed(e.x, inside)
        case _:
            return False
