"""Intervals with congruences: the value of an integer expression as `lo <= x <= hi` and `x = residue (mod modulus)`.

Everything is exact arithmetic on mathematical integers; wrapping is added by `kir.analysis.facts`. After
P. Granger, "Static analysis of arithmetical congruences" (1989), in a reduced product with intervals.
"""
from __future__ import annotations

from math import gcd

from kir.base.dataclass import dataclass


@dataclass(frozen=True)
class Domain:
    """A set of integers. `None` bounds are infinite; modulus 0 means the one value `residue`."""

    lo: int | None = None
    hi: int | None = None
    modulus: int = 1
    residue: int = 0

    @property
    def is_empty(self) -> bool:
        return self.lo is not None and self.hi is not None and self.lo > self.hi

    @property
    def value(self) -> int | None:
        """The one value, if there is only one."""
        return self.lo if self.lo is not None and self.lo == self.hi else None

    def is_multiple_of(self, n: int) -> bool:
        """Whether every member is a multiple of `n` (> 0)."""
        if self.modulus == 0:
            return self.residue % n == 0
        return self.modulus % n == 0 and self.residue % n == 0

    def __str__(self) -> str:
        if self.value is not None:
            return str(self.value)
        low, high = "-inf" if self.lo is None else str(self.lo), "inf" if self.hi is None else str(self.hi)
        return f"{low}..{high}" + (f" = {self.residue} mod {self.modulus}" if self.modulus > 1 else "")


TOP = Domain()


def exactly(value: int) -> Domain:
    """One value."""
    return Domain(value, value, 0, value)


def between(lo: int | None, hi: int | None, modulus: int = 1, residue: int = 0) -> Domain:
    """The members of a congruence class within bounds, with the bounds moved to members."""
    if modulus == 0:
        if (lo is not None and residue < lo) or (hi is not None and residue > hi):
            return Domain(1, 0)
        return exactly(residue)
    residue %= modulus
    if lo is not None:
        lo += (residue - lo) % modulus
    if hi is not None:
        hi -= (hi - residue) % modulus
    if lo is not None and lo == hi:
        return exactly(lo)
    return Domain(lo, hi, modulus, residue)


def meet(a: Domain, b: Domain) -> Domain:
    """What is in both (bounds exact; of two congruences that do not divide one another the finer is kept when one implies the other,
    else their combination by the Chinese remainder theorem)."""
    lo = a.lo if b.lo is None else b.lo if a.lo is None else max(a.lo, b.lo)
    hi = a.hi if b.hi is None else b.hi if a.hi is None else min(a.hi, b.hi)
    if a.modulus == 0 or b.modulus == 0:
        one, other = (a, b) if a.modulus == 0 else (b, a)
        fits = other.residue == one.residue if other.modulus == 0 else (one.residue - other.residue) % other.modulus == 0
        return between(lo, hi, 0, one.residue) if fits else Domain(1, 0)
    g = gcd(a.modulus, b.modulus)
    if (a.residue - b.residue) % g:
        return Domain(1, 0)
    lcm = a.modulus // g * b.modulus
    step = (b.residue - a.residue) // g * pow(a.modulus // g, -1, b.modulus // g) if b.modulus // g > 1 else 0
    return between(lo, hi, lcm, (a.residue + a.modulus * step) % lcm)


def join(a: Domain, b: Domain) -> Domain:
    """The least domain that holds both."""
    if a.is_empty:
        return b
    if b.is_empty:
        return a
    lo = None if a.lo is None or b.lo is None else min(a.lo, b.lo)
    hi = None if a.hi is None or b.hi is None else max(a.hi, b.hi)
    modulus = gcd(gcd(a.modulus, b.modulus), abs(a.residue - b.residue))
    return between(lo, hi, modulus, a.residue)


def add(a: Domain, b: Domain) -> Domain:
    """Sums."""
    modulus = gcd(a.modulus, b.modulus)
    return between(None if a.lo is None or b.lo is None else a.lo + b.lo, None if a.hi is None or b.hi is None else a.hi + b.hi,
                   modulus, a.residue + b.residue)


def negate(a: Domain) -> Domain:
    """Negatives."""
    return between(None if a.hi is None else -a.hi, None if a.lo is None else -a.lo, a.modulus, -a.residue)


def scale(a: Domain, c: int) -> Domain:
    """Products with a constant."""
    if c == 0:
        return exactly(0)
    lo, hi = (a.lo, a.hi) if c > 0 else (a.hi, a.lo)
    return between(None if lo is None else lo * c, None if hi is None else hi * c, a.modulus * abs(c), a.residue * c)


def multiply(a: Domain, b: Domain) -> Domain:
    """Products."""
    if a.value is not None:
        return scale(b, a.value)
    if b.value is not None:
        return scale(a, b.value)
    modulus = gcd(gcd(a.modulus * b.modulus, a.modulus * b.residue), a.residue * b.modulus)
    lo, hi = None, None
    corners = [None if x is None or y is None else x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    if all(c is not None for c in corners):
        lo, hi = min(c for c in corners if c is not None), max(c for c in corners if c is not None)
    elif a.lo is not None and b.lo is not None and a.lo >= 0 and b.lo >= 0:
        lo = a.lo * b.lo
    return between(lo, hi, modulus, a.residue * b.residue)


def floordiv(a: Domain, b: Domain) -> Domain:
    """Quotients, rounded down. Of a divisor that may be negative only the magnitude is used."""
    if b.lo is None or b.lo <= 0:
        if a.lo is None or a.hi is None:
            return TOP
        most = max(abs(a.lo), abs(a.hi))
        return between(-most, most)
    lo = None if a.lo is None else a.lo // b.lo if a.lo < 0 else 0 if b.hi is None else a.lo // b.hi
    hi = None if a.hi is None else a.hi // b.lo if a.hi >= 0 else -1 if b.hi is None else a.hi // b.hi
    c = b.value
    if c is not None and a.modulus % c == 0 and a.residue % c == 0:
        return between(lo, hi, a.modulus // c, a.residue // c)
    return between(lo, hi)


def mod(a: Domain, b: Domain) -> Domain:
    """Remainders with the sign of the divisor."""
    if b.lo is None or b.lo <= 0:
        return between(None if b.lo is None else min(b.lo + 1, 0), None if b.hi is None else max(b.hi - 1, 0))
    c = b.value
    if a.lo is not None and a.hi is not None and a.lo >= 0 and a.hi < b.lo:
        return a
    hi = None if b.hi is None else b.hi - 1
    if a.hi is not None and a.lo is not None and a.lo >= 0:
        hi = a.hi if hi is None else min(hi, a.hi)
    if c is None:
        return between(0, hi)
    modulus = gcd(a.modulus, c)
    if modulus == c:
        return exactly(a.residue % c)
    return between(0, hi, modulus, a.residue)


def least(a: Domain, b: Domain) -> Domain:
    """Minima."""
    lo = None if a.lo is None or b.lo is None else min(a.lo, b.lo)
    hi = a.hi if b.hi is None else b.hi if a.hi is None else min(a.hi, b.hi)
    modulus = gcd(gcd(a.modulus, b.modulus), abs(a.residue - b.residue))
    return between(lo, hi, modulus, a.residue)


def greatest(a: Domain, b: Domain) -> Domain:
    """Maxima."""
    return negate(least(negate(a), negate(b)))
