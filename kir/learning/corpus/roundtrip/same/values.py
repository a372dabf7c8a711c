"""Values of two programs in one table, in which equal ones have one number: a sum of integers is a polynomial, a conversion of a conversion one."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kir.ir.types import DTYPES, DType

Value = int | tuple[int, ...]
Poly = dict[tuple[int, ...], int]
COMMUTATIVE = frozenset({"add", "mul", "and", "or", "xor", "eq", "ne"})
_DIVIDED = frozenset({"tdiv", "trem", "floordiv", "mod"})
SWAPPED = {"gt": "lt", "ge": "le"}
DEEPEST = 4
"""Steps down a value in which choices by a known condition are looked for."""
_PARTS = {"select": (2, 3), "plain": (5,), "binary": (3, 4), "unary": (3,), "cast": (4,), "bits": (3,)}
OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


class Table:
    """Values of two programs, of which equal ones have one number."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[Any, ...], int] = {}
        self.keys: list[tuple[Any, ...]] = []
        self.sums: dict[int, Poly] = {}
        self._carried: dict[int, frozenset[int]] = {}

    def of(self, *key: Any) -> int:
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = len(self.keys)
            self.keys.append(key)
        return found

    def const(self, value: float, dtype: DType) -> int:
        if dtype.is_integer and not dtype.is_bool and not dtype.is_symbolic:
            value = dtype.wrap(int(value))
        return self.of("const", dtype.name, repr(value))

    def known(self, number: int) -> int | None:
        """The integer that a value is, if it is one that is written out."""
        key = self.keys[number]
        return int(key[2]) if key[0] == "const" and key[2].lstrip("-").isdigit() else None

    def carried(self, number: int) -> frozenset[int]:
        """Which values that loops carry a value is made of, at most."""
        rest = [number]
        while rest:
            at = rest[-1]
            if at in self._carried or not 0 <= at < len(self.keys):
                rest.pop()
                continue
            parts = [x for x in numbers_in(self.keys[at][1:]) if x < len(self.keys)]
            missing = [x for x in parts if x not in self._carried and x != at and x not in rest]
            if missing:
                rest += missing
                continue
            own = frozenset({at}) if self.keys[at][0] == "carried" else frozenset()
            self._carried[at] = own.union(*(self._carried.get(x, frozenset()) for x in parts))
            rest.pop()
        return self._carried.get(number, frozenset())

    # ------------------------------------------------------------------------------------------------------------ sums
    def poly(self, number: int) -> Poly:
        held = self.sums.get(number)
        if held is not None:
            return held
        value = self.known(number)
        return {(number,): 1} if value is None else {(): value} if value else {}

    def sum(self, terms: Poly, dtype: DType) -> int:
        """A sum of products of integers, that wraps."""
        made = {m: c % (1 << dtype.bits) for m, c in self._whole(terms).items()}
        made = {m: c for m, c in made.items() if c}
        if not made or list(made) == [()]:
            return self.const(made.get((), 0), dtype)
        if len(made) == 1 and list(made.values()) == [1] and len(m := next(iter(made))) == 1:
            return m[0]
        number = self.of("sum", dtype.name, tuple(sorted(made.items())))
        self.sums[number] = made
        return number

    def _whole(self, terms: Poly) -> Poly:
        """The terms with a quotient and a remainder of one number by one divisor as that number."""
        for m, c in list(terms.items()):
            key = self.keys[m[0]] if len(m) == 1 else ()
            if not key or key[0] != "binary" or key[1] not in ("mod", "trem") or m not in terms:
                continue
            by = self.known(key[4])
            other = (self.numbers.get(("binary", {"mod": "floordiv", "trem": "tdiv"}[key[1]], *key[2:]), -1),)
            if by and by > 0 and terms.get(other) == c * by:
                terms = {k: v for k, v in terms.items() if k not in (m, other)}
                for k, v in self.poly(key[3]).items():
                    terms[k] = terms.get(k, 0) + c * v
                return self._whole(terms)
        return terms

    # ---------------------------------------------------------------------------------------------------------- values
    def binary(self, op: str, a: int, b: int, of: DType, to: DType) -> int:
        """An operation of two numbers of dtype `of`."""
        integer = of.is_integer and not of.is_bool and not of.is_symbolic
        if integer and op in ("add", "sub", "mul"):
            left, right, made = self.poly(a), self.poly(b), dict[tuple[int, ...], int]()
            if op == "mul":
                if len(left) * len(right) <= 64:
                    for p, c in left.items():
                        for q, d in right.items():
                            m = tuple(sorted((*p, *q)))
                            made[m] = made.get(m, 0) + c * d
                    return self.sum(made, of)
            else:
                made = dict(left)
                for m, c in right.items():
                    made[m] = made.get(m, 0) + (c if op == "add" else -c)
                return self.sum(made, of)
        if op in ("eq", "ne") and integer:
            for x, y in ((a, b), (b, a)):
                if (said := self._truth(x)) is not None and (value := self.known(y)) in (0, 1):
                    return said if (op == "eq") == (value == 1) else self.unary("not", said, DTYPES["bool"])
        if integer and op in ("shl", "shr") and (number := self.known(a)) is not None and (
                bits := self.known(b)) is not None and 0 <= bits < of.bits:
            return self.const(number << bits if op == "shl" else number >> bits, of)
        if op in SWAPPED:
            op, a, b = SWAPPED[op], b, a
        if op in ("and", "or") and a == b:
            return a
        if op in ("and", "or") and of.is_bool:
            terms = {*self._terms(op, a), *self._terms(op, b)}
            return self._all(op, {x for t in terms for x in self._terms(op, self._given(t, *self._beside(op, terms, t), DEEPEST + 2))})
        if op in COMMUTATIVE or (integer and op in ("min", "max")):
            a, b = sorted((a, b))
        return self.of("binary", op, of.name, a, b, to.name)

    def _truth(self, x: int) -> int | None:
        """The condition of which a number says 1 or 0 whether it holds."""
        key = self.keys[x]
        if key[0] == "cast" and key[3] == "rn" and key[1].is_bool:
            return int(key[4])
        return int(key[1]) if key[0] == "select" and (self.known(key[2]), self.known(key[3])) == (1, 0) else None

    def _all(self, op: str, terms: set[int]) -> int:
        held = tuple(sorted(terms))
        return held[0] if len(held) == 1 else self.of("all", op, held)

    def _beside(self, op: str, terms: Iterable[int], t: int) -> tuple[frozenset[int], frozenset[int]]:
        """What is known to hold, and not to, where one of these conditions is asked: the others say nothing else. Of those that are made of it nothing."""
        others = frozenset(x for x in terms if x < t)
        return (others, frozenset()) if op == "and" else (frozenset(), others)

    def _holds(self, cond: int, true: frozenset[int], false: frozenset[int]) -> bool | None:
        key = self.keys[cond]
        if cond in true or cond in false:
            return cond in true
        if key[0] == "unary" and key[1] == "not":
            inner = self._holds(int(key[3]), true, false)
            return None if inner is None else not inner
        if key[0] == "all":
            parts = [self._holds(x, true, false) for x in key[2]]
            if key[1] == "and":
                return False if False in parts else True if None not in parts else None
            return True if True in parts else False if None not in parts else None
        return None

    def _given(self, x: int, true: frozenset[int], false: frozenset[int], depth: int) -> int:
        """A value where these conditions hold and those do not: of choices by them what they come to."""
        key = self.keys[x]
        if key[0] == "select" and (said := self._holds(key[1], true, false)) is not None:
            return self._given(int(key[2 if said else 3]), true, false, depth)
        if not depth:
            return x
        if key[0] == "all":
            made = set[int]()
            for t in key[2]:
                more, less = self._beside(key[1], key[2], t)
                made |= {*self._terms(key[1], self._given(t, true | more, false | less, depth - 1))}
            return x if made == {*key[2]} else self._all(key[1], made)
        new = list(key)
        for k in _PARTS.get(key[0], ()):
            new[k] = tuple(self._given(y, true, false, depth - 1) for y in key[k]) if isinstance(key[k], tuple) else self._given(key[k], true, false, depth - 1)
        return x if tuple(new) == key else self.of(*new)

    def _terms(self, op: str, a: int) -> tuple[int, ...]:
        key = self.keys[a]
        return tuple(key[2]) if key[0] == "all" and key[1] == op else (a,)

    def unary(self, op: str, x: int, of: DType) -> int:
        key = self.keys[x]
        integer = of.is_integer and not of.is_bool and not of.is_symbolic
        if op == "neg" and integer:
            return self.sum({m: -c for m, c in self.poly(x).items()}, of)
        if op == "not" and key[0] == "unary" and key[1] == "not":
            return int(key[3])
        if op == "not" and key[0] == "binary" and key[1] in OPPOSITE and (key[1] in ("eq", "ne") or key[2][0] in "iu"):
            op, a, b = OPPOSITE[key[1]], key[3], key[4]
            if op in SWAPPED:
                op, a, b = SWAPPED[op], b, a
            return self.of("binary", op, key[2], a, b, key[5])
        return self.of("unary", op, of.name, x)

    def select(self, cond: int, a: int, b: int) -> int:
        if a == b:
            return a
        key = self.keys[cond]
        if key[0] == "unary" and key[1] == "not":
            return self.select(int(key[3]), b, a)
        if key[0] == "const":
            return a if key[2] == "True" else b
        a, b = self._under(a, cond, 2, DEEPEST), self._under(b, cond, 3, DEEPEST)
        return a if a == b else self.of("select", cond, a, b)

    def _under(self, x: int, cond: int, arm: int, depth: int) -> int:
        """A value where a condition holds, or does not: of choices by it what they come to."""
        key = self.keys[x]
        places = _PARTS.get(key[0], ())
        if key[0] == "select" and key[1] == cond:
            return self._under(int(key[arm]), cond, arm, depth - 1)
        if not depth or not places:
            return x
        new = list(key)
        for k in places:
            new[k] = tuple(self._under(y, cond, arm, depth - 1) for y in key[k]) if isinstance(key[k], tuple) else self._under(key[k], cond, arm, depth - 1)
        return x if tuple(new) == key else self.of(*new)

    def cast(self, x: int, of: DType, to: DType, rounding: str) -> int:
        if of == to:
            return x
        key = self.keys[x]
        if rounding == "bits":
            if key[0] == "bits":
                return self.cast(int(key[3]), key[1], to, "bits")
            if key[0] == "cast" and key[3] == "rn" and key[1].bits == of.bits and key[1].is_integer and of.is_integer:
                return self.cast(int(key[4]), key[1], to, "bits")
            if key[0] == "select":
                return self.select(int(key[1]), self.cast(int(key[2]), of, to, "bits"), self.cast(int(key[3]), of, to, "bits"))
            if not (of.is_integer and to.is_integer):
                return self.bits(x, of, to)
            rounding = "rn"
        ints = all(d.is_integer and not d.is_bool and not d.is_symbolic for d in (of, to))
        if rounding == "rn" and ints and to.bits <= of.bits:
            if key[0] == "cast" and key[3] == "rn" and key[1].is_integer and not key[1].is_bool and not key[1].is_symbolic:
                return self.cast(int(key[4]), key[1], to, "rn")
            if x in self.sums or key[0] == "const":
                made: Poly = {}
                for m, c in self.poly(x).items():
                    k = tuple(sorted(self.cast(a, of, to, "rn") for a in m))
                    term: Poly = {(): c}
                    for a in k:
                        term = {tuple(sorted((*p, *q))): u * v for p, u in term.items() for q, v in self.poly(a).items()} if len(self.poly(a)) == 1 else {
                            tuple(sorted((*p, a))): u for p, u in term.items()}
                    for p, u in term.items():
                        made[p] = made.get(p, 0) + u
                return self.sum(made, to)
        if rounding == "rn" and key[0] == "const" and ints:
            return self.const(int(key[2]), to)
        if rounding == "rn" and ints and key[0] == "cast" and key[3] == "rn" and key[1].bits < of.bits and (
                key[1].kind == "uint" or key[1].kind == of.kind == "int"):
            return self.cast(int(key[4]), key[1], to, "rn")  # what is widened is that number
        if rounding == "rn" and key[0] == "const" and to.is_float and to.bits >= 16 and not to.is_symbolic and not of.is_bool and (
                value := _small(key[2])) is not None:
            return self.const(value, to)
        if rounding == "rn" and key[0] == "cast" and key[3] == "rn" and key[1] == to and of.name == "f32" and to.name in ("f16", "bf16"):
            return int(key[4])
        return self.of("cast", of, to, rounding, x)

    def wide(self, x: int, of: DType, narrow: set[int], whole: bool = False) -> int:
        """A place in memory worked out in 64 bits, as C++ may: its signed sums do not overflow. Sums in it of 32 are put into `narrow`, be they not the
        `whole` place."""
        to, key = DTYPES["i64"], self.keys[x]
        if of == to and key[0] == "cast" and key[1].name == "i32" and key[3] == "rn":
            return self.wide(int(key[4]), key[1], narrow, whole)
        if of.name not in ("i32", "i64"):
            return self.cast(x, of, to, "rn")
        if key[0] == "binary" and key[1] in _DIVIDED and key[2] == of.name:
            return self.binary(key[1], self.wide(key[3], of, narrow), self.wide(key[4], of, narrow), to, to)
        if x not in self.sums:
            return self.cast(x, of, to, "rn")
        if of.name == "i32" and not whole:
            narrow.add(x)
        made: Poly = {}
        for m, c in self.poly(x).items():
            term: Poly = {(): of.wrap(c)}
            for atom in m:
                by = self.poly(self.wide(atom, of, narrow))
                if len(term) * len(by) > 64:
                    return self.cast(x, of, to, "rn")
                term = {tuple(sorted((*p, *q))): u * v for p, u in term.items() for q, v in by.items()}
            for k, u in term.items():
                made[k] = made.get(k, 0) + u
        return self.sum(made, to)

    def bits(self, x: int, of: DType, to: DType) -> int:
        return x if of == to else self.of("bits", of, to, x)

    def pack(self, parts: tuple[int, ...], of: DType, to: DType) -> int:
        """A number whose bits are those of several, the first lowest."""
        if len(parts) == 1 and of.bits == to.bits:
            return self.cast(parts[0], of, to, "bits")
        inner, outer = _unsigned(of), _unsigned(to)
        bare = tuple(self.cast(p, of, inner, "bits") for p in parts)
        first = self.keys[bare[0]]
        whole = first[0] == "part" and first[3].bits == of.bits * len(parts) and all(
            self.keys[p][0] == "part" and self.keys[p][1:3] == (inner, k) and self.keys[p][3:] == first[3:] for k, p in enumerate(bare))
        return self.cast(int(first[4]) if whole else self.of("pack", inner, outer, bare), outer, to, "bits")

    def unpack(self, x: int, of: DType, to: DType, count: int) -> tuple[int, ...]:
        """The parts of a number's bits, the lowest first."""
        if count == 1:
            return (self.cast(x, of, to, "bits"),)
        inner, outer = _unsigned(to), _unsigned(of)
        bare = self.cast(x, of, outer, "bits")
        key = self.keys[bare]
        if key[0] == "pack" and len(key[3]) == count and key[1] == inner:
            parts: tuple[int, ...] = key[3]
        else:
            parts = tuple(self.of("part", inner, k, outer, bare) for k in range(count))
        return tuple(self.cast(p, inner, to, "bits") for p in parts)

    def pick(self, whole: tuple[int, ...], at: int) -> int:
        k = self.known(at)
        if k is not None and 0 <= k < len(whole):
            return whole[k]
        return self.of("pick", whole, at)


def _unsigned(d: DType) -> DType:
    return DTYPES.get(f"u{d.bits}", d)


def numbers_in(v: Any) -> Iterator[int]:
    """The numbers in nested tuples."""
    if isinstance(v, tuple):
        for x in v:
            yield from numbers_in(x)
    elif isinstance(v, int) and not isinstance(v, bool) and v >= 0:
        yield v


def _small(text: str) -> float | None:
    """A number that every float of 16 bits or more holds."""
    value = float(text)
    return value if value in (float("inf"), float("-inf")) or (value == int(value) if abs(value) <= 256 else False) else None
