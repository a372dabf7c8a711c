"""Steps between what holds and a claim about CTAs in an order of their own: facts of divisions, and parts of two indices that are equal where the indices are.

Each is a claim that is proved before it is used. A grid that is taken apart into groups of tiles by divisions by sizes is beyond the solver in one step,
and within it in several.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kir.analysis.proof.question import Holding, Ranging
from kir.analysis.proof.values import FALSE, compared, either, wide
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
        if isinstance(d.a, n.Var) and d.a.name in inside:
            claims.append(compared("lt", _product(build.floordiv(d.a, d.b), d.b), wide(inside[d.a.name].hi)))
        claims.append(compared("ge", d.b, const(1, dtype_of(d.b.type))))
        claims += _of_rest(d)
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


def _of_rest(d: n.Binary) -> list[n.Expr]:
    """Of the remainder of a division by c * z, divided again by at most c (a last group of tiles is smaller): that the quotient is below z."""
    if d.op != "floordiv" or not isinstance(d.a, n.Binary) or d.a.op != "mod":
        return []
    terms = list(build.polynomial(d.a.b))
    cases = [d.b.a, d.b.b] if isinstance(d.b, n.Binary) and d.b.op == "min" else [d.b]
    out: list[n.Expr] = []
    for z in terms[0] if len(terms) == 1 and len(terms[0]) == 1 else ():
        product = _product(d.b, z)
        same: n.Expr = FALSE
        for c in cases:
            out.append(compared("lt", wide(d.a), _product(c, z)))
            same = either(same, compared("eq", product, _product(c, z)))
        out += [same, compared("lt", wide(d.a), product), compared("lt", _product(d, d.b), product), compared("lt", d, z)]
    return out


def _product(a: n.Expr, b: n.Expr) -> n.Expr:
    """A product of our own, which has room."""
    return build.mul(wide(a), wide(b))


def _divisions(index: Iterable[n.Expr], names: set[str]) -> list[n.Binary]:
    found = {x: len(list(walk(x))) for e in index for x in walk(e) if isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and int_value(x.b) is None
             and names_read(x) & names and dtype_of(x.type).is_integer}
    return sorted(found, key=lambda x: found[x])[:MOST_DIVISIONS]


def _parts(index: Iterable[n.Expr]) -> Iterator[n.Expr]:
    """Quotients, remainders and variables that an index is made of, smallest first."""
    found = {x: len(list(walk(x))) for e in index for x in walk(e) if (isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and int_value(x.b) is None)
             or isinstance(x, n.Var)}
    return iter(sorted(found, key=lambda x: found[x]))
