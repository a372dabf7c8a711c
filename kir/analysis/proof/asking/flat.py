"""Claims about flat indices, taken apart: `row * N + col` is below `M * N` where row is below M and col below N, and two of them are equal only where
their rows and their columns are. What is claimed of products follows then from conditions on their factors, which are easy; where it does not, nothing is
said.

Of a sum s = g * x * row + col, for any integer x and a number g > 0 that all of what x is multiplied by has in common:

- s < 0 where x >= 0 and either row < 0 and col < g * x, or row <= 0 and col < 0;
- s = 0 where row = 0 and col = 0;
- s != 0 where row = 0 and col != 0, or row != 0 and -g * x < col < g * x.
"""
from __future__ import annotations

from collections import Counter
from math import gcd

from kir.analysis.proof.asking.formulas import Formula
from kir.analysis.proof.asking.terms import Sum, Terms, is_number, minus, plus, scaled
from kir.ir import nodes as n
from kir.ir.types import dtype_of

MOST_FACTORS = 2
"""Factors by which one sum is taken apart."""
DEEPEST = 4
"""Levels of that: a sum of more is left alone."""
OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


class Apart:
    """Conditions from which others follow. `used` says whether any product was taken apart."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self.z3, self.used = terms, terms.z3, False

    def condition(self, e: n.Expr, holds: bool = True) -> Formula:
        """A condition from which `e` follows, or its negation."""
        z3 = self.z3
        match e:
            case n.Unary() if e.op == "not":
                return self.condition(e.x, not holds)
            case n.Binary() if e.op in ("and", "or") and dtype_of(e.type).is_bool:
                parts = [self.condition(e.a, holds), self.condition(e.b, holds)]
                return z3.every(parts) if (e.op == "and") == holds else z3.some(parts)
            case n.Binary() if e.op in n.COMPARISONS and is_number(e.a) and is_number(e.b):
                return self._compared(e.op if holds else OPPOSITE[e.op], minus(self.terms.sum(e.a), self.terms.sum(e.b)))
            case _:
                told = self.terms.boolean(e)
                return told if holds else z3.no(told)

    def _compared(self, op: str, s: Sum) -> Formula:
        match op:
            case "eq":
                return self.zero(s, DEEPEST)
            case "ne":
                return self.other(s, DEEPEST)
            case "lt" | "le":
                return self.negative(s if op == "lt" else plus(s, {(): -1}), DEEPEST)
            case _:
                return self.negative(scaled(s if op == "gt" else plus(s, {(): 1}), -1), DEEPEST)

    def negative(self, s: Sum, depth: int) -> Formula:
        """From what s < 0 follows."""
        z3, out = self.z3, []
        for x in self._factors(s, depth):
            row, col, step = split(s, x)
            far, near = self.negative(row, depth - 1), self.negative(plus(row, {(): -1}), depth - 1)
            below = z3.some((z3.every((far, self.negative(minus(col, step), depth - 1))), z3.every((near, self.negative(col, depth - 1)))))
            out.append(z3.every((z3.compared("ge", self.terms.atoms[x], z3.number(0)), below)))
        return z3.some(out) if out else z3.compared("lt", self.terms.linear(s), z3.number(0))

    def zero(self, s: Sum, depth: int) -> Formula:
        """From what s = 0 follows."""
        z3 = self.z3
        out = [z3.every((self.zero(row, depth - 1), self.zero(col, depth - 1))) for row, col, _ in (split(s, x) for x in self._factors(s, depth))]
        return z3.some(out) if out else z3.compared("eq", self.terms.linear(s), z3.number(0))

    def other(self, s: Sum, depth: int) -> Formula:
        """From what s != 0 follows."""
        z3, out = self.z3, []
        for x in self._factors(s, depth):
            row, col, step = split(s, x)
            inside = [self.negative(minus(each, step), depth - 1) for each in (col, scaled(col, -1))]
            out += [z3.every((self.zero(row, depth - 1), self.other(col, depth - 1))), z3.every((self.other(row, depth - 1), *inside))]
        return z3.some(out) if out else z3.compared("ne", self.terms.linear(s), z3.number(0))

    def _factors(self, s: Sum, depth: int) -> list[str]:
        """Factors of products, those of most products first; none where it has been taken apart so often."""
        count = Counter(x for m in s if len(m) > 1 for x in dict.fromkeys(m))
        self.used |= bool(count) and depth > 0
        return [x for x, _ in count.most_common(MOST_FACTORS)] if depth > 0 else []


def split(s: Sum, x: str) -> tuple[Sum, Sum, Sum]:
    """What a factor is multiplied by in a sum, without the number that is common to all of it; the rest; and that number of the factor."""
    row: dict[tuple[str, ...], int] = {}
    col: dict[tuple[str, ...], int] = {}
    for m, c in s.items():
        if x in m:
            at = m.index(x)
            row[m[:at] + m[at + 1:]] = c
        else:
            col[m] = c
    common = gcd(*row.values())
    return {m: c // common for m, c in row.items()}, col, {(x,): common}


__all__ = ["Apart"]
