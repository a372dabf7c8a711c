"""What is known of an integer while it is made: its range and the bits that are zero; and its quotient by a power of two where it divides."""

from __future__ import annotations

from dataclasses import field

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType, dtype_of

from .linear import Linear

FULL = (1 << 64) - 1


@dataclass(frozen=True)
class Known:
    """The least and greatest value, and a mask of the bits that are zero in two's complement (64 bits)."""

    lo: int
    hi: int
    zero: int

    @property
    def shift(self) -> int:
        """How many of the lowest bits are zero."""
        return min(63, ((~self.zero & FULL) & -(~self.zero & FULL)).bit_length() - 1) if self.zero != FULL else 63


def _of(lo: int, hi: int, zero: int = 0) -> Known:
    """With the bits that a range settles."""
    if lo >= 0:
        zero |= FULL & ~((1 << hi.bit_length()) - 1)
        top = ~zero & FULL
        return Known(lo, min(hi, top), zero)
    return Known(lo, hi, zero)


@dataclass
class Numbers:
    """Facts of names: ranges and bits that are zero as given, and what lets stand for."""

    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    made: dict[str, n.Expr] = field(default_factory=dict)
    zeros: dict[str, int] = field(default_factory=dict)
    _known: dict[n.Expr, Known] = field(default_factory=dict)

    def of(self, e: n.Expr) -> Known:
        """What is known of an integer expression."""
        found = self._known.get(e)
        if found is None:
            found = self._limited(e, self._work(e))
            if (left := self.remainder(e)) is not None and left[0] >= found.lo and left[1] <= found.hi:
                found = _of(*left, found.zero)
            self._known[e] = found
        return found

    def range(self, e: n.Expr) -> tuple[int, int]:
        """The least and the greatest value."""
        k = self.of(e)
        return k.lo, k.hi

    def _limited(self, e: n.Expr, k: Known) -> Known:
        """Within the dtype: what may leave its range has wrapped, and only its low zeros stay."""
        dtype = dtype_of(e.type)
        lo, hi = dtype.range if dtype.is_integer else (0, 1)
        if lo <= k.lo and k.hi <= hi:
            return k
        low = (1 << k.shift) - 1
        return _of(lo, hi, k.zero & low)

    def _work(self, e: n.Expr) -> Known:
        dtype = dtype_of(e.type)
        lo, hi = dtype.range if dtype.is_integer else (0, 1)
        match e:
            case n.Const() if dtype.is_integer:
                v = int(e.value)
                return Known(v, v, ~v & FULL)
            case n.Var():
                if e.name in self.made:
                    return self.of(self.made[e.name])
                return _of(*self.ranges.get(e.name, (lo, hi)), self.zeros.get(e.name, 0))
            case n.Cast() if dtype_of(e.x.type).is_integer and dtype.is_integer and e.rounding in ("rn", "bits"):
                k = self.of(e.x)
                if lo <= k.lo and k.hi <= hi:
                    return k
                bits = min(dtype.bits, dtype_of(e.x.type).bits)
                return _of(lo, hi, k.zero & ((1 << bits - (dtype.kind == "int")) - 1) if dtype.bits <= bits else 0)
            case n.Select() if dtype.is_integer:
                a, b = self.of(e.a), self.of(e.b)
                return Known(min(a.lo, b.lo), max(a.hi, b.hi), a.zero & b.zero)
            case n.Binary() if dtype.is_integer and dtype_of(e.a.type).is_integer:
                return self._binary(e, self.of(e.a), self.of(e.b), lo, hi)
        return _of(lo, hi)

    def _binary(self, e: n.Binary, a: Known, b: Known, lo: int, hi: int) -> Known:
        match e.op:
            case "add":
                low = (1 << min(a.shift, b.shift)) - 1
                return _of(a.lo + b.lo, a.hi + b.hi, low)
            case "sub":
                low = (1 << min(a.shift, b.shift)) - 1
                return _of(a.lo - b.hi, a.hi - b.lo, low)
            case "mul":
                ends = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
                return _of(min(ends), max(ends), (1 << min(63, a.shift + b.shift)) - 1)
            case "mod" if b.lo == b.hi and b.lo > 0:
                if b.lo & (b.lo - 1) == 0:
                    return _of(0, min(b.lo - 1, a.hi) if a.lo >= 0 else b.lo - 1, (a.zero & (b.lo - 1)) | (FULL & ~(b.lo - 1)))
                return _of(0, b.lo - 1)
            case "mod" if b.lo > 0:
                return _of(0, min(b.hi - 1, a.hi) if a.lo >= 0 else b.hi - 1)
            case "floordiv" if b.lo == b.hi and b.lo > 0:
                s = b.lo.bit_length() - 1
                zero = a.zero >> s if b.lo == 1 << s and a.lo >= 0 else 0
                return _of(a.lo // b.lo, a.hi // b.lo, zero)
            case "floordiv" if b.lo > 0 and a.lo >= 0:
                return _of(0, a.hi)
            case "and" if a.lo >= 0 or b.lo >= 0:
                return _of(0, min(x.hi for x in (a, b) if x.lo >= 0), a.zero | b.zero)
            case "or" | "xor" if a.lo >= 0 and b.lo >= 0:
                return _of(0, (1 << max(a.hi.bit_length(), b.hi.bit_length())) - 1, a.zero & b.zero)
            case "and":
                return _of(lo, hi, a.zero | b.zero)
            case "or" | "xor":
                return _of(lo, hi, a.zero & b.zero)
            case "shr" if b.lo == b.hi and 0 <= b.lo < 64 and a.lo >= 0:
                return _of(a.lo >> b.lo, a.hi >> b.lo, a.zero >> b.lo | (FULL & ~(FULL >> b.lo)))
            case "min":
                return _of(min(a.lo, b.lo), min(a.hi, b.hi), a.zero & b.zero)
            case "max":
                return _of(max(a.lo, b.lo), max(a.hi, b.hi), a.zero & b.zero)
        return _of(lo, hi)

    def remainder(self, e: n.Expr) -> tuple[int, int] | None:
        """The range of `x - q * c` where `q` is made of `x`, or of a multiple of that: a remainder, as compilers write it, which the ranges of both sides say
        nothing of. Told for an `x` below zero and one that is not, apart. An operation of it may wrap all the same. None for anything else."""
        of = self._meant(e.a) if isinstance(e, n.Binary) and e.op == "mul" and isinstance(e.b, n.Const) else e
        if not (isinstance(of, n.Binary) and of.op == "sub" and isinstance(of.a, n.Var) and dtype_of(of.type).is_integer):
            return None
        if not (isinstance(product := self._meant(of.b), n.Binary) and product.op == "mul" and isinstance(product.b, n.Const)):
            return None
        k, name = self.of(of.a), of.a.name
        found = []
        for lo, hi in ((k.lo, min(k.hi, -1)), (max(k.lo, 0), k.hi)):
            if lo <= hi:
                side = Numbers({**self.ranges, name: (lo, hi)}, {key: made for key, made in self.made.items() if key != name}, self.zeros)
                found.append(Linear(of.a, (lo, hi), side.made, side.range).range(e))
        told = [x for x in found if x is not None]
        return (min(x[0] for x in told), max(x[1] for x in told)) if len(told) == len(found) > 0 else None

    def _meant(self, e: n.Expr) -> n.Expr:
        """What a name stands for, down to an operation."""
        for _ in range(40):
            if not (isinstance(e, n.Var) and e.name in self.made):
                break
            e = self.made[e.name]
        return e

    def disjoint(self, a: n.Expr, b: n.Expr) -> bool:
        """Whether no bit may be set in both."""
        x, y = self.of(a), self.of(b)
        return x.zero | y.zero == FULL

    def quotient(self, e: n.Expr, shift: int) -> n.Expr:
        """`e` divided by a power of two that divides it, worked into its terms where none of them can have wrapped; as it is divided otherwise."""
        if not shift:
            return e
        made = self._divided(e, shift, 0)
        if made is not None:
            return made
        return build.floordiv(e, 1 << shift)

    def within(self, e: n.Expr, shift: int) -> n.Expr:
        """As `quotient`, of an address in shared memory, whose terms may wrap: what would come out otherwise lies far outside of it."""
        made = self._divided(e, shift, 0) if shift else e
        if made is not None:
            return made
        terms = build.polynomial(self.summed(e))
        dtype = dtype_of(e.type)
        even = {k: c >> shift for k, c in terms.items() if c % (1 << shift) == 0}
        rest = build.from_polynomial({k: c for k, c in terms.items() if c % (1 << shift)}, dtype)
        left = rest if build.is_const(rest, 0) else self.quotient(rest, shift)
        return build.add(build.from_polynomial(even, dtype), left)

    def summed(self, e: n.Expr, depth: int = 0) -> n.Expr:
        """A sum with what its names stand for, as far as they are sums and products."""
        match e:
            case n.Var() if e.name in self.made and depth < 40:
                of = self.made[e.name]
                return self.summed(of, depth + 1) if isinstance(of, n.Binary) and of.op in ("add", "sub", "mul") else e
            case n.Binary(op="add" | "sub" | "mul"):
                return build.binary(e.op, self.summed(e.a, depth + 1), self.summed(e.b, depth + 1))
        return e

    def divides(self, e: n.Expr, shift: int) -> bool:
        """Whether a power of two is known to divide it."""
        return self.of(e).shift >= shift

    def _fits(self, e: n.Expr) -> bool:
        """Whether an operation cannot have wrapped: numbers of 64 bits are offsets in memory, and do not."""
        if dtype_of(e.type).bits == 64:
            return True
        return self.exact(e)

    def exact(self, e: n.Expr) -> bool:
        """Whether an operation is known not to wrap."""
        raw, (lo, hi) = self._work(e), dtype_of(e.type).range
        return lo <= raw.lo and raw.hi <= hi

    def _divided(self, e: n.Expr, s: int, depth: int) -> n.Expr | None:
        if depth > 200 or not self.divides(e, s):
            return None
        dtype = dtype_of(e.type)
        match e:
            case n.Const():
                return build.const(int(e.value) >> s, dtype)
            case n.Var() if e.name in self.made:
                return self._divided(self.made[e.name], s, depth + 1)
            case n.Cast() if e.rounding in ("rn", "bits") and dtype_of(e.x.type).is_integer and self.same(e):
                inner = self._divided(e.x, s, depth + 1)
                return None if inner is None else build.cast(inner, dtype)
            case n.Select():
                a, b = self._divided(e.a, s, depth + 1), self._divided(e.b, s, depth + 1)
                return None if a is None or b is None else build.select(e.cond, a, b)
            case n.Binary(op="add" | "sub") if self._fits(e):
                a, b = self._divided(e.a, s, depth + 1), self._divided(e.b, s, depth + 1)
                return None if a is None or b is None else build.binary(e.op, a, b)
            case n.Binary(op="mul") if self._fits(e):
                return self._factor(e, s, depth)
            case n.Binary(op="or" | "xor" | "and"):
                a, b = self._divided(e.a, s, depth + 1), self._divided(e.b, s, depth + 1)
                return None if a is None or b is None else build.binary(e.op, a, b)
        return None

    def _factor(self, e: n.Binary, s: int, depth: int) -> n.Expr | None:
        a, b = e.a, e.b
        if isinstance(a, n.Const):
            a, b = b, a
        if isinstance(b, n.Const):
            c = int(b.value)
            own = (c & -c).bit_length() - 1 if c else 63
            take = min(own, s)
            left = a if take == s else self._divided(a, s - take, depth + 1)
            return None if left is None else build.mul(left, build.const(c >> take, b.dtype))
        for x, y in ((a, b), (b, a)):
            if self.divides(x, s) and (q := self._divided(x, s, depth + 1)) is not None:
                return build.mul(q, y)
        return None

    def same(self, e: n.Cast) -> bool:
        """Whether a conversion keeps the number."""
        k, dtype = self.of(e.x), dtype_of(e.type)
        own: DType = dtype_of(e.x.type)
        wider = dtype.bits > own.bits and (own.kind == "uint" or dtype.kind == "int")
        return wider or (dtype.range[0] <= k.lo and k.hi <= dtype.range[1])


__all__ = ["FULL", "Known", "Numbers"]
