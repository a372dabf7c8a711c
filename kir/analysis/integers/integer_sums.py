"""Integer sums as wholes: a sum that contains another is that one and a rest, however its terms are spelled."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.ir.visit import transform

Terms = Mapping[tuple[n.Expr, ...], int]
"""A sum of products: atoms to their coefficient, as `kir.ir.build.polynomial` gives it."""


def in_sums(x: n.Node, change: Callable[[Terms], Terms | None]) -> n.Node:
    """A statement or expression in which `change` was asked about every i32 sum, the inner ones first; where it gives None the sum stays."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if not (isinstance(new, (n.Var, n.Binary, n.Unary)) and new.type == I32):
            return new
        made = change(build.polynomial(new))
        return new if made is None else build.from_polynomial(made, I32)
    made: n.Node = transform(x, leave, lambda y: not isinstance(y, n.Buffer))
    return made


def times(terms: Terms, part: Terms) -> int:
    """How often a sum contains all of `part` but its constant; 0 where some of it is missing."""
    counts = {terms.get(m, 0) / c for m, c in part.items() if m}
    found = counts.pop() if len(counts) == 1 else 0
    return int(found) if found == int(found) else 0


def without(terms: Terms, part: Terms, count: int) -> dict[tuple[n.Expr, ...], int]:
    """A sum less `count` times another."""
    out = dict(terms)
    for m, c in part.items():
        out[m] = out.get(m, 0) - count * c
    return {m: c for m, c in out.items() if c}


def replaced(terms: Terms, parts: Sequence[tuple[Terms, n.Var]]) -> Terms | None:
    """A sum in which each of the parts that it contains is a name; None where it contains none."""
    out, found = dict(terms), False
    for part, name in parts:
        count = times(out, part)
        if count:
            out = without(out, part, count)
            out[(name,)] = out.get((name,), 0) + count
            found = True
    return out if found else None
