"""Order between integer expressions: is `a <= b` under the facts of a place?

The difference is brought to a sum of products and bounded by domains; where that does not do, known inequalities (bounds of loops and
grids, facts, and what a quotient says of its numerator) are added so that terms cancel, up to `DEPTH` of them.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping

from kir.analysis import domain as d
from kir.analysis.domain import Domain
from kir.analysis.facts import Facts
from kir.ir import nodes as n
from kir.ir.build import Monomial, int_value, polynomial
from kir.ir.printer import expr_text
from kir.ir.types import dtype_of

DEPTH = 3
"""How many inequalities may be added together."""

Terms = Mapping[Monomial, int]


def at_most(a: n.Expr, b: n.Expr, known: Facts, gap: int = 0) -> bool:
    """Whether `a + gap <= b` holds as mathematical integers for the values of `a` and `b`; False when it is not known."""
    if not (known.is_exact(a) and known.is_exact(b)):
        return (hi := known.domain(a).hi) is not None and (lo := known.domain(b).lo) is not None and hi + gap <= lo
    difference = _difference(a, b, gap)
    if _never_positive(difference, known, DEPTH):
        return True
    wide_a, wide_b = known.expanded(a), known.expanded(b)
    if (wide_a, wide_b) == (a, b) or not (known.is_exact(wide_a) and known.is_exact(wide_b)):
        return _scaled(difference, known)
    wide = _difference(wide_a, wide_b, gap)
    return _never_positive(wide, known, DEPTH) or _scaled(wide, known)


def _difference(a: n.Expr, b: n.Expr, gap: int) -> dict[Monomial, int]:
    out = dict(polynomial(a))
    for m, c in polynomial(b).items():
        out[m] = out.get(m, 0) - c
    out[()] = out.get((), 0) + gap
    return _clean(out)


def _scaled(terms: Terms, known: Facts) -> bool:
    """The same after multiplying by what stands in a symbolic divisor: if t >= 0 and t * (x - 1) < 0 then x <= 0."""
    if (sides := _sides(terms)) is not None:
        return all(_never_positive(side, known, DEPTH) or _scaled(side, known) for side in sides)
    factors = {f for m in terms for a in m if isinstance(a, n.Binary) and a.op == "floordiv" and int_value(a.b) is None
               for d_atoms in polynomial(a.b) for f in d_atoms}
    strict = {**terms, (): terms.get((), 0) - 1}
    for f in sorted(factors, key=expr_text):
        if (low := known.domain(f).lo) is None or low < 0:
            continue
        scaled = {tuple(sorted((*m, f), key=expr_text)): c for m, c in _clean(strict).items()}
        scaled[()] = scaled.get((), 0) + 1
        if _never_positive(scaled, known, DEPTH):
            return True
    return False


def _sides(terms: Terms) -> list[dict[Monomial, int]] | None:
    """A sum with a minimum that is subtracted, or a maximum that is added, in its two cases."""
    for m, c in terms.items():
        if len(m) == 1 and isinstance(m[0], n.Binary) and (m[0].op, c < 0) in (("min", True), ("max", False)):
            rest = {x: k for x, k in terms.items() if x != m}
            return [_minus(rest, {x: -k * c for x, k in polynomial(side).items()}) for side in (m[0].a, m[0].b)]
    return None


def less(a: n.Expr, b: n.Expr, known: Facts) -> bool:
    """Whether `a < b` is known."""
    return at_most(a, b, known, 1)


def _clean(terms: Mapping[Monomial, int]) -> dict[Monomial, int]:
    return {m: c for m, c in terms.items() if c}


def bound(terms: Terms, known: Facts) -> Domain:
    """The domain of a sum of products of values."""
    out = d.exactly(0)
    for atoms, c in terms.items():
        term = d.exactly(c)
        for atom in atoms:
            term = d.multiply(term, known.domain(atom))
        out = d.add(out, term)
    return out


def _never_positive(terms: Terms, known: Facts, depth: int) -> bool:
    hi = bound(terms, known).hi
    if hi is not None and hi <= 0:
        return True
    if depth == 0:
        return False
    if (sides := _sides(terms)) is not None:
        return all(_never_positive(side, known, depth) for side in sides)
    for fact in _nonnegative(terms, known):
        for m, c in terms.items():
            if m and c > 0 and fact.get(m, 0) < 0 and c % -fact[m] == 0:
                factor = c // -fact[m]
                added = dict(terms)
                for x, k in fact.items():
                    added[x] = added.get(x, 0) + k * factor
                if _never_positive(_clean(added), known, depth - 1):
                    return True
    return False


def _nonnegative(terms: Terms, known: Facts) -> Iterator[dict[Monomial, int]]:
    """Sums of products that are known to be at least 0 and that may cancel a positive term of `terms`."""
    for fact in known.holds:
        yield from _inequality(fact, known)
    atoms = dict.fromkeys(a for m in terms for a in m)
    for atom in atoms:
        if isinstance(atom, n.Var) and atom.name in known.lets:
            told = known.lets[atom.name]
            if known.is_exact(told) and dtype_of(told.type).is_integer:
                value = polynomial(told)
                yield _minus(value, {(atom,): 1})
                yield _minus({(atom,): 1}, value)
        if not isinstance(atom, n.Binary):
            continue
        itself: Terms = {(atom,): 1}
        c = int_value(atom.b)
        if atom.op == "floordiv" and c is None and _is_positive(atom.b, known) and known.is_exact(atom.a) and known.is_exact(atom.b):
            yield _minus(polynomial(atom.a), _times(polynomial(atom.b), atom))
        if atom.op in ("floordiv", "ceildiv") and c is not None and c > 0 and known.is_exact(atom.a):
            top = polynomial(atom.a)
            scaled: Terms = {(atom,): c}
            if atom.op == "floordiv":
                yield _minus(top, scaled)
                yield _minus(_minus(scaled, {(): 1 - c}), top)
            else:
                yield _minus(scaled, top)
                yield _minus(_minus(top, scaled), {(): 1 - c})
        if atom.op == "min":
            for side in (atom.a, atom.b):
                if known.is_exact(side):
                    yield _minus(polynomial(side), itself)
        if atom.op == "max":
            for side in (atom.a, atom.b):
                if known.is_exact(side):
                    yield _minus(itself, polynomial(side))
        if atom.op == "mod" and (low := known.domain(atom.b).lo) is not None and low > 0 and known.is_exact(atom.b):
            yield _minus({**polynomial(atom.b), (): polynomial(atom.b).get((), 0) - 1}, itself)


def _is_positive(e: n.Expr, known: Facts) -> bool:
    lo = known.domain(e).lo
    return lo is not None and lo > 0


def _times(terms: Terms, atom: n.Expr) -> dict[Monomial, int]:
    return {tuple(sorted((*m, atom), key=expr_text)): c for m, c in terms.items()}


def _minus(a: Mapping[Monomial, int], b: Mapping[Monomial, int]) -> dict[Monomial, int]:
    out = dict(a)
    for m, c in b.items():
        out[m] = out.get(m, 0) - c
    return _clean(out)


def _inequality(fact: n.Expr, known: Facts) -> Iterator[dict[Monomial, int]]:
    """A comparison that holds, as sums that are at least 0."""
    if not (isinstance(fact, n.Binary) and fact.op in n.COMPARISONS and dtype_of(fact.a.type).is_integer):
        return
    if not (known.is_exact(fact.a) and known.is_exact(fact.b)):
        return
    a, b = polynomial(fact.a), polynomial(fact.b)
    one: dict[Monomial, int] = {(): 1}
    match fact.op:
        case "le":
            yield _minus(b, a)
        case "lt":
            yield _minus(_minus(b, a), one)
        case "ge":
            yield _minus(a, b)
        case "gt":
            yield _minus(_minus(a, b), one)
        case "eq":
            yield _minus(a, b)
            yield _minus(b, a)
        case _:
            pass
