"""Sums of whole numbers as they are written by hand: what is added before what is taken away, products before what stands alone.

What is made here is only written: expressions that are built anew are in the order of their text again (`kir.ir.build`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType

N = TypeVar("N", bound=n.Node)


def by_hand(x: N) -> N:
    """A node with each sum of scalar whole numbers in it in that order."""
    if isinstance(x, (n.Binary, n.Unary)) and isinstance(x.type, DType) and x.type.is_integer and _is_sum(x):
        made = _sum(x, x.type)
        return made  # type: ignore[return-value]  # an expression of the same type
    changes = {name: new for name in x.tree_fields if (new := _part(old := x.__dict__[name])) is not old}
    return replace(x, **changes) if changes else x  # type: ignore[type-var]  # every concrete node is a dataclass


def _part(value: Any) -> Any:
    if isinstance(value, n.Node):
        return by_hand(value)
    if isinstance(value, tuple):
        made = tuple(_part(v) for v in value)
        return made if any(a is not b for a, b in zip(made, value, strict=True)) else value
    return value


def _is_sum(x: n.Expr) -> bool:
    return (isinstance(x, n.Binary) and x.op in ("add", "sub", "mul")) or (isinstance(x, n.Unary) and x.op == "neg")


def _sum(e: n.Expr, dtype: DType) -> n.Expr:
    terms = list(build.polynomial(e).items())
    if any(m == (e,) for m, _ in terms):
        return e
    ranked = sorted(terms, key=lambda term: (dtype.kind != "uint" and term[1] < 0, not term[0], -len(term[0]), abs(term[1]) == 1))
    out: n.Expr | None = None
    for atoms, c in ranked:
        negative = c < 0 and dtype.kind != "uint" and out is not None and dtype.wrap(-c) > 0
        out = _added(out, atoms, dtype.wrap(-c if negative else c), negative, dtype)
    return out if out is not None else n.Const(0, dtype)


def _added(out: n.Expr | None, atoms: build.Monomial, c: int, negative: bool, dtype: DType) -> n.Expr:
    product: n.Expr | None = None
    for atom in atoms:
        there = by_hand(atom)
        product = there if product is None else n.Binary("mul", product, there)
    if product is None:
        product = n.Const(c, dtype)
    elif c == -1:
        product = n.Unary("neg", product)
    elif c != 1:
        product = n.Binary("mul", product, n.Const(c, dtype))
    return product if out is None else n.Binary("sub" if negative else "add", out, product)
