"""Division of sums of products by a sum, with remainder."""
from __future__ import annotations

from collections.abc import Mapping

from kir.ir.build import Monomial
from kir.ir.printer import expr_text

MOST_TERMS = 64
"""Terms that a quotient may have."""
Terms = Mapping[Monomial, int]


def divided(terms: Terms, by: Terms) -> tuple[dict[Monomial, int], dict[Monomial, int]]:
    """Quotient and rest, such that terms = by * quotient + rest: what the longest product of `by` divides goes into the quotient. Atoms that are to be one
    must be equal."""
    first = max(by, key=lambda m: (len(m), [expr_text(x) for x in m]))
    left, quotient = dict(terms), dict[Monomial, int]()
    for _ in range(MOST_TERMS):
        found = next(((m, rest) for m, c in left.items() if c % by[first] == 0 and (rest := without(m, first)) is not None), None)
        if found is None:
            break
        count = left[found[0]] // by[first]
        quotient[found[1]] = quotient.get(found[1], 0) + count
        for m, c in by.items():
            made = tuple(sorted(m + found[1], key=expr_text))
            left[made] = left.get(made, 0) - c * count
        left = {m: c for m, c in left.items() if c}
    return quotient, left


def without(whole: Monomial, part: Monomial) -> Monomial | None:
    """A product without the factors of another; None where it does not have them."""
    rest = list(whole)
    for x in part:
        if x not in rest:
            return None
        rest.remove(x)
    return tuple(rest)
