"""Quotient and remainder of one number, put together again: `a * (x % c) + a * c * (x // c)` is `a * x`.

Grids and blocks of several dimensions give a thread its coordinates, from which code then computes its number again. The identity holds
for every integer, wrapping included, so it needs no proof. A sum is looked at as a whole, tiles among its terms or not: which of its terms stand
beside each other is a matter of their names.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from kir.analysis.facts import Facts
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType, dtype_of
from kir.ir.visit import transform

N = TypeVar("N", bound=n.Node)


def recombined(item: N, known: Facts) -> N:
    """A node (no block below it) with such sums below it put together; lets that are quotients and remainders are seen through."""
    def leave(_: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Binary) and new.op in ("add", "sub") and dtype_of(new.type).is_integer:
            return _sum(new, dtype_of(new.type), known)
        return _narrow(new) if isinstance(new, n.Region) else new
    made: N = transform(item, leave, lambda x: not isinstance(x, n.Buffer))
    return made


def _narrow(r: n.Region) -> n.Region:
    """A place without indices that are written out for all of it, where the others say its shape."""
    for k, i in enumerate(r.index):
        if isinstance(i, n.Call) and i.fn == "broadcast" and isinstance(i.args[0], n.Expr):
            made = n.Region(r.buffer, (*r.index[:k], i.args[0], *r.index[k + 1:]))
            if made.type == r.type:
                r = made
    return r


def _sum(e: n.Expr, dtype: DType, known: Facts) -> n.Expr:
    terms = dict(build.polynomial(e))
    while True:
        found = next(_pairs(terms, known), None)
        if found is None:
            break
        rest, quotient, of, factor = found
        del terms[rest], terms[quotient]
        for monomial, c in build.polynomial(build.mul(of, build.const(factor, dtype))).items():
            terms[monomial] = terms.get(monomial, 0) + c
            if not terms[monomial]:
                del terms[monomial]
    made = build.from_polynomial(terms, dtype)
    return e if made == e else made if made.type == e.type else build.broadcast(made, e.type)


def _pairs(terms: dict[build.Monomial, int], known: Facts) -> Iterator[tuple[build.Monomial, build.Monomial, n.Expr, int]]:
    """(term of the remainder, term of the quotient, the number, its factor)."""
    def parts(op: str) -> Iterator[tuple[build.Monomial, n.Expr, int, int]]:
        for monomial, k in terms.items():
            if len(monomial) == 1:
                e = known.lets.get(monomial[0].name, monomial[0]) if isinstance(monomial[0], n.Var) else monomial[0]
                c = build.int_value(e.b) if isinstance(e, n.Binary) and e.op == op else None
                if isinstance(e, n.Binary) and c is not None and c > 1 and e.a.type == monomial[0].type:
                    yield monomial, e.a, c, k
    quotients = list(parts("floordiv"))
    if not quotients:
        return
    for rest, x, c, k in parts("mod"):
        for quotient, y, b, j in quotients:
            if x == y and b == c and j == k * c:
                yield rest, quotient, x, k
