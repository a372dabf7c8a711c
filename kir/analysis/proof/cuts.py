"""Steps between what holds and a claim about CTAs in an order of their own: facts of divisions, and parts of two indices that are equal where the indices are.

Each is a claim that is proved before it is used. A grid that is taken apart into groups of tiles by divisions by sizes is beyond the solver in one step,
and within it in several.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kir.analysis.proof.question import Holding, Ranging
from kir.analysis.proof.values import compared
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import dtype_of
from kir.ir.visit import names_read, walk

MOST_DIVISIONS, MOST_PARTS = 8, 10
Asked = Callable[[tuple[Holding, ...], n.Expr], bool]


def of_divisions(index: Iterable[n.Expr], ranges: tuple[Ranging, ...], asks: Asked) -> tuple[n.Expr, ...]:
    """What is proved of divisions of the variables that have these ranges: that divisors which are no numbers are at least 1, and that a quotient times its
    divisor is below what the dividend is below."""
    known: list[n.Expr] = []
    inside = {r.var.name: r for r in ranges}
    for d in _divisions(index, set(inside)):
        claims = []
        if isinstance(d.a, n.Var) and d.a.name in inside and inside[d.a.name].hi.type == d.b.type:
            claims.append(compared("lt", build.mul(build.floordiv(d.a, d.b), d.b), inside[d.a.name].hi))
        claims.append(compared("ge", d.b, const(1, dtype_of(d.b.type))))
        for c in claims:
            if c not in known and asks((*ranges, *known), c):
                known.append(c)
    return tuple(known)


def equal_parts(index: Iterable[n.Expr], renamed: Callable[[n.Expr], n.Expr], holding: tuple[Holding, ...], asks: Asked) -> tuple[n.Expr, ...]:
    """Parts of an index of one execution that are proved to be equal to those of another one, the small ones first."""
    known: list[n.Expr] = []
    left = [e for e in _parts(index) if renamed(e) != e][:MOST_PARTS]
    while left:
        found = [c for e in left if asks((*holding, *known), c := compared("eq", e, renamed(e)))]
        if not found:
            break
        known += found
        left = [e for e in left if compared("eq", e, renamed(e)) not in known]
    return tuple(known)


def _divisions(index: Iterable[n.Expr], names: set[str]) -> list[n.Binary]:
    found = {x: len(list(walk(x))) for e in index for x in walk(e) if isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and int_value(x.b) is None
             and names_read(x) & names and dtype_of(x.type).is_integer}
    return sorted(found, key=lambda x: found[x])[:MOST_DIVISIONS]


def _parts(index: Iterable[n.Expr]) -> Iterator[n.Expr]:
    """Quotients, remainders and variables that an index is made of, smallest first."""
    found = {x: len(list(walk(x))) for e in index for x in walk(e) if (isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and int_value(x.b) is None)
             or isinstance(x, n.Var)}
    return iter(sorted(found, key=lambda x: found[x]))
