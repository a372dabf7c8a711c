"""The normal form of terms: sums of monomials with rational coefficients, each a product of powers of atoms and of one exponential.

A polynomial maps monomials to coefficients. A monomial is `(powers, exponent)`: whole powers of atoms by number, and the exponent of e as a polynomial that
is written out. Atoms are inputs, functions that no law is known of, maxima, and sums that are divided by. Maxima take out what their sides share, sums that
are divided by their first term; which term is first does not change when all are multiplied alike, so that `e^(x-m) / sum e^(y-m)` has one form for each m.
Sources: exponential polynomials as in D. Richardson, "Some undecidable problems involving elementary functions of a real variable", 1968 (why this
is no decision procedure for all functions), and the online softmax of Milakov and Gimelshein, 2018 (what it is for).
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cmp_to_key
from typing import Any

from kir.analysis.algebra.terms import Term, Undecided

Powers = tuple[tuple[int, int], ...]
Number = int | Fraction
Exponent = tuple[tuple[int, Number], ...]
Mono = tuple[Powers, Exponent]
Poly = dict[Mono, Number]
UNIT: Mono = ((), ())
BITWISE = frozenset({"xor", "and", "or"})
MOST_TERMS = 20_000
"""Monomials of one polynomial."""
MOST_DENOMINATORS = 8
"""Sums that are divided by, which an equation is multiplied out with."""


class Normal:
    """Normal forms of terms; what is numbered is numbered for one comparison."""

    def __init__(self, most: int = 3_000_000) -> None:
        self.atoms: dict[Any, int] = {}
        self.keys: list[Any] = []
        self.monos: dict[Mono, int] = {UNIT: 0}
        self.monomials: list[Mono] = [UNIT]
        self.kept: dict[Term, Poly] = {}
        self.most = most
        """Monomials that are made before it is given up."""

    def of(self, term: Term) -> Poly:
        """The normal form of a term. Raises Undecided where it grows too large, or has none."""
        stack = [term]
        while stack:
            t = stack[-1]
            if t in self.kept:
                stack.pop()
                continue
            parts = _summands(t, self.kept) if t.op == "add" else _parts(t)
            missing = [x for x in parts if x not in self.kept]
            if missing:
                stack += missing
                continue
            self.kept[t] = self._made(t, parts)
            stack.pop()
        return self.kept[term]

    def equal(self, a: Term, b: Term) -> bool:
        """Whether both are shown to be equal."""
        if a is b:
            return True
        left = self.plus([(self.of(a), 1), (self.of(b), -1)])
        for _ in range(MOST_DENOMINATORS):
            below = {atom for (powers, _), _ in left.items() for atom, power in powers if power < 0 and self.keys[atom][0] == "sum"}
            if not left or not below:
                break
            left = self._multiplied_out(left, min(below))
        return not left

    def _multiplied_out(self, p: Poly, atom: int) -> Poly:
        """A polynomial times what it is divided by: that is not zero."""
        most, whole = max(-dict(powers).get(atom, 0) for powers, _ in p), dict(self.keys[atom][1])
        powers_of: list[Poly] = [{UNIT: 1}]
        parts: list[tuple[Poly, Number]] = []
        for (powers, exponent), c in p.items():
            times = most + dict(powers).get(atom, 0)
            while len(powers_of) <= times:
                powers_of.append(self.product(powers_of[-1], whole))
            parts.append((self.times((tuple(x for x in powers if x[0] != atom), exponent), powers_of[times]), c))
        return self.plus(parts)

    # ------------------------------------------------------------------------------------------------------------ building
    def _made(self, t: Term, parts: tuple[Term, ...]) -> Poly:
        p = [self.kept[x] for x in parts]
        match t.op:
            case "num":
                return {UNIT: _whole(t.args[0])} if t.args[0] else {}
            case "in" | "ln2":
                return self.atom((t.op, *t.args))
            case "add":
                return self.plus([(x, 1) for x in p])
            case "mul":
                return self.product(p[0], p[1])
            case "div":
                return self.product(p[0], self.inverse(p[1]))
            case "max":
                return self.maximum(p)
            case "exp":
                return self.exponential(p[0])
            case "log":
                return self.logarithm(p[0])
            case "sqrt":
                return self.root(p[0])
            case "ite":
                return self.chosen(t.args[0], p[:-2], p[-2], p[-1])
            case "fn" if t.args[0].partition(" ")[0] in BITWISE:
                return self.bitwise(t.args[0], p)
            case "fn":
                return self.atom(("fn", t.args[0], *(_key(x) for x in p)))
            case "cmp":
                return self.atom(self._condition(t.args[0], p[0], p[1]))
            case _:
                raise Undecided(f"'{t.op}'")

    def bitwise(self, name: str, p: list[Poly]) -> Poly:
        """A bitwise operation in any order: of two equal operands one stays, or of an `xor` none."""
        every: set[Any] = set()
        for x in p:
            m = next(iter(x), UNIT)
            key: Any = self.keys[m[0][0][0]] if x == {m: 1} and len(m[0]) == 1 and m[0][0][1] == 1 and not m[1] else ("",)
            parts = key[2] if key[:2] == ("bits", name) else {_key(x)}
            every = every ^ set(parts) if name.startswith("xor") else every | set(parts)
        if name.startswith("xor"):
            every -= {()}
        if len(every) < 2:
            return dict(next(iter(every), ()))
        return self.atom(("bits", name, frozenset(every)))

    def atom(self, key: Any) -> Poly:
        """The polynomial of one atom."""
        return {(((self._number(key), 1),), ()): 1}

    def _number(self, key: Any) -> int:
        found = self.atoms.get(key)
        if found is None:
            found = self.atoms[key] = len(self.keys)
            self.keys.append(key)
        return found

    def _mono(self, m: Mono) -> int:
        found = self.monos.get(m)
        if found is None:
            found = self.monos[m] = len(self.monomials)
            self.monomials.append(m)
        return found

    def plus(self, parts: Iterable[tuple[Poly, Number]]) -> Poly:
        """A sum of polynomials, each times a number."""
        out: Poly = {}
        for p, factor in parts:
            self._spend(len(p))
            for m, c in p.items():
                total = out.get(m, 0) + c * factor
                if total:
                    out[m] = total
                else:
                    out.pop(m, None)
        return self._fits(out)

    def _fits(self, p: Poly) -> Poly:
        if len(p) > MOST_TERMS:
            raise Undecided("an expression is too large")
        return p

    def _spend(self, count: int) -> None:
        self.most -= count
        if self.most < 0:
            raise Undecided("it is too large")

    def product(self, a: Poly, b: Poly) -> Poly:
        """A product of polynomials, multiplied out."""
        if len(a) > len(b):
            a, b = b, a
        return self.plus([(self.times(m, b), c) for m, c in a.items()])

    def times(self, m: Mono, p: Mapping[Mono, Number]) -> Poly:
        """A polynomial times a monomial."""
        if m == UNIT:
            return dict(p)
        self._spend(len(p))
        out: Poly = {}
        special = False
        for other, c in p.items():
            made = (_joined(m[0], other[0]), _joined(m[1], other[1]))
            special = special or any(abs(power) > 1 and self.keys[a][0] == "sqrt" for a, power in made[0])
            out[made] = out.get(made, 0) + c
        return self._squared(out) if special else {k: v for k, v in out.items() if v}

    def _squared(self, p: Poly) -> Poly:
        """Two equal roots are what is under them."""
        out: list[tuple[Poly, Number]] = []
        for (powers, exponent), c in p.items():
            made: Poly = {(tuple((a, k) for a, k in powers if self.keys[a][0] != "sqrt"), exponent): 1}
            for a, k in powers:
                if self.keys[a][0] == "sqrt":
                    inside = dict(self.keys[a][1])
                    for _ in range(abs(k) // 2):
                        made = self.product(made, inside if k > 0 else self.inverse(inside))
                    if k % 2:
                        made = self.product(made, {(((a, 1 if k > 0 else -1),), ()): 1})
            out.append((made, c))
        return self.plus(out)

    def inverse(self, p: Poly) -> Poly:
        """One over a polynomial."""
        if not p:
            raise Undecided("a division by zero")
        lead = self._leading(p)
        (powers, exponent), c = lead, p[lead]
        over: Mono = (tuple((a, -k) for a, k in powers), tuple((m, -x) for m, x in exponent))
        if len(p) == 1:
            return {over: _ratio(1, c)}
        rest = self.times(over, {m: _ratio(x, c) for m, x in p.items()})
        return self.times(over, {(((self._number(("sum", _key(rest))), -1),), ()): _ratio(1, c)})

    def _leading(self, p: Poly) -> Mono:
        """The first monomial in an order that multiplication keeps."""
        return max(p, key=cmp_to_key(_compare))

    def exponential(self, p: Poly) -> Poly:
        """e to a polynomial."""
        factor: Number = 1
        made: Poly = {UNIT: 1}
        exponent: dict[int, Number] = {}
        for m, c in p.items():
            atom = m[0][0][0] if len(m[0]) == 1 and not m[1] and m[0][0][1] == 1 else -1
            key: Any = self.keys[atom] if atom >= 0 else ("",)
            if key[0] == "ln2" and c.denominator == 1 and -200 < c < 200:
                factor *= _whole(Fraction(2) ** int(c))
            elif key[0] == "log" and c.denominator == 1 and -8 < c < 8:
                inside: Poly = dict(key[1])
                for _ in range(abs(int(c))):
                    made = self.product(made, inside if c > 0 else self.inverse(inside))
            else:
                exponent[self._mono(m)] = c
        return self.times(((), tuple(sorted(exponent.items()))), {m: c * factor for m, c in made.items()})

    def logarithm(self, p: Poly) -> Poly:
        """The logarithm, of what is positive."""
        if not p:
            raise Undecided("the logarithm of zero")
        exponent = self._leading(p)[1]
        out = {self.monomials[m]: c for m, c in exponent}
        rest = self.times(((), tuple((m, -c) for m, c in exponent)), p)
        if rest == {UNIT: 1}:
            return out
        if rest == {UNIT: Fraction(2)}:
            return self.plus([(out, 1), (self.atom(("ln2",)), 1)])
        return self.plus([(out, 1), (self.atom(("log", _key(rest))), 1)])

    def root(self, p: Poly) -> Poly:
        """The square root."""
        if set(p) <= {UNIT}:
            value = p.get(UNIT, 0)
            for_root = [_whole_root(value.numerator), _whole_root(value.denominator)] if value >= 0 else [None]
            if None not in for_root:
                return {UNIT: Fraction(for_root[0] or 0, for_root[1] or 1)} if value else {}
        return self.atom(("sqrt", _key(p)))

    def maximum(self, sides: Iterable[Poly]) -> Poly:
        """The largest of polynomials: sides that are maxima are taken apart, and what all share is taken out."""
        every: dict[Any, Poly] = {}
        sides = list(sides)
        lifted: dict[Mono, Number] = {}
        for side in sides:
            for m, c in side.items():
                if c < 0 and self._of_maximum(m):
                    lifted[m] = max(lifted.get(m, 0), -c)
        if lifted:  # max(a, b - m) is max(a + m, b) - m
            return self.plus([(self.maximum([self.plus([(x, 1), (lifted, 1)]) for x in sides]), 1), (lifted, -1)])
        for side in sides:
            for x in self._apart(side):
                every[_key(x)] = x
        first = max(every.values(), key=cmp_to_key(_by_difference))
        rest = {_key(d): d for x in every.values() if (d := self.plus([(x, 1), (first, -1)]))}
        rest = {k: d for k, d in rest.items() if not (set(d) == {UNIT} and d[UNIT] < 0)}
        if not rest:
            return first
        lowest = min(rest.values(), key=cmp_to_key(_by_difference))
        scale = lowest[min(lowest)]
        scale = scale if scale > 0 else -scale
        key = ("max", frozenset(_key({m: _ratio(c, scale) for m, c in d.items()}) for d in rest.values()))
        return self.plus([(first, 1), (self.atom(key), scale)])

    def _of_maximum(self, m: Mono) -> bool:
        return not m[1] and len(m[0]) == 1 and m[0][0][1] == 1 and bool(self.keys[m[0][0][0]][0] == "max")

    def _apart(self, p: Poly) -> list[Poly]:
        for m, c in p.items():
            if c > 0 and self._of_maximum(m):
                others = {k: x for k, x in p.items() if k != m}
                inner = [dict(k) for k in self.keys[m[0][0][0]][1]]
                return [y for x in ({}, *inner) for y in self._apart(self.plus([(x, c), (others, 1)]))]
        return [p]

    def _condition(self, op: str, a: Poly, b: Poly) -> Any:
        """A comparison as `p > 0`, `p >= 0`, `p == 0`, and whether it is turned round."""
        if op in ("lt", "le"):
            a, b, op = b, a, {"lt": "gt", "le": "ge"}[op]
        return ("cmp", op, _key(self.plus([(a, 1), (b, -1)])))

    def chosen(self, op: str, compared: list[Poly], a: Poly, b: Poly) -> Poly:
        """`a` where two sides compare, else `b`."""
        apart = self.plus([(a, 1), (b, -1)])
        if not apart:
            return a
        _, op, key = self._condition(op, *compared)
        p: Poly = dict(key)
        if op in ("gt", "ge") and p and set(p) == set(apart) and len({_ratio(apart[m], p[m]) for m in p}) == 1:  # where the sides meet, both are equal
            m = next(iter(p))
            return self.plus([(b, 1), (self.maximum([p, {}]), _ratio(apart[m], p[m]))])
        return self.plus([(b, 1), (self.atom(("ite", op, key, _key(apart))), 1)])


def _whole(x: Fraction) -> Number:
    """A number as an int where it is one: sums and products of those are quicker."""
    return x.numerator if x.denominator == 1 else x


def _ratio(a: Number, b: Number) -> Number:
    return _whole(Fraction(a) / b)


def _summands(t: Term, kept: Mapping[Term, Poly]) -> tuple[Term, ...]:
    """The terms that a sum of sums adds up, those whose forms are known as one."""
    out: list[Term] = []
    stack = list(t.args)
    while stack:
        x = stack.pop()
        if x.op == "add" and x not in kept:
            stack += x.args
        else:
            out.append(x)
    return tuple(out)


def _parts(t: Term) -> tuple[Term, ...]:
    return tuple(x for x in t.args if isinstance(x, Term))


def _key(p: Mapping[Mono, Number]) -> tuple[tuple[Mono, Number], ...]:
    return tuple(sorted(p.items()))


def _joined(a: Any, b: Any) -> Any:
    """Two products of powers as one; also two sums of monomials."""
    if not a or not b:
        return a or b
    out = dict(a)
    for k, v in b:
        total = out.get(k, 0) + v
        if total:
            out[k] = total
        else:
            del out[k]
    return tuple(sorted(out.items()))


def _compare(a: Mono, b: Mono) -> int:
    """An order of monomials that does not change when both are multiplied by one."""
    for mine, other in zip(a, b, strict=True):
        x: dict[int, Number] = dict(mine)
        y: dict[int, Number] = dict(other)
        for k in sorted({*x, *y}):
            if x.get(k, 0) != y.get(k, 0):
                return 1 if x.get(k, 0) > y.get(k, 0) else -1
    return 0


def _by_difference(p: Poly, q: Poly) -> int:
    """An order of polynomials that does not change when one is added to both."""
    for m in sorted({*p, *q}):
        if p.get(m, 0) != q.get(m, 0):
            return 1 if p.get(m, 0) > q.get(m, 0) else -1
    return 0


def _whole_root(x: int) -> int | None:
    root = math.isqrt(x)
    return root if root * root == x else None
