"""Integer and boolean expressions of the IR as terms of z3: polynomials whose products are symbols of their own, with what is known of products."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from math import prod

from kir.analysis.facts import Facts
from kir.analysis.proof.asking.formulas import Formula, Formulas, Model
from kir.ir import nodes as n
from kir.ir.build import int_value, polynomial
from kir.ir.printer import expr_text
from kir.ir.types import DType, dtype_of
from kir.ir.visit import names_read

Product = tuple[str, ...]
Sum = Mapping[Product, int]
"""A polynomial: products of the names of atoms, with their coefficients; () is the constant."""
SAME = "%same"
"""The call that says that two values of any dtype are the same bits: they are where both are made of the same in the same way."""
MOST_LEMMAS = 400
MOST_TERMS = 40
"""Products of sums with more terms are symbols."""


def is_number(e: n.Expr) -> bool:
    """Whether an expression is a scalar integer."""
    return isinstance(e.type, DType) and e.type.is_integer


class Terms:
    """The translation of one question. `wraps` collects signed sums and narrowings that may leave their dtype: they are taken as if they did not (`fit`: and
    that is said of products). `modular` are unsigned ones that may wrap, but for those that are known to be `exact`."""

    def __init__(self, z3: Formulas, known: Facts, fit: bool = False, exact: frozenset[n.Expr] = frozenset()) -> None:
        self.z3, self.known, self.fit, self.exact = z3, known, fit, exact
        self.modular: dict[n.Expr, Formula] = {}
        self._fit: list[Sum] = []
        self._wrapped: list[Sum] = []
        self._most: dict[str, int] = {}
        self.atoms: dict[str, Formula] = {}
        self.side: list[Formula] = []
        self.wraps: dict[n.Expr, None] = {}
        self.named: dict[str, n.Expr] = {}
        self._sums: dict[n.Expr, Sum] = {}
        self._quotients: dict[n.Expr, Sum] = {}
        self._booleans: dict[n.Expr, Formula] = {}
        self._compared: list[Sum] = []
        self._products: dict[Product, Formula] = {}

    # ------------------------------------------------------------------------------------------------------------- conditions
    def boolean(self, e: n.Expr) -> Formula:
        """A condition."""
        found = self._booleans.get(e)
        if found is None:
            found = self._booleans[e] = self._boolean(e)
        return found

    def _boolean(self, e: n.Expr) -> Formula:
        z3 = self.z3
        match e:
            case n.Const():
                return z3.true if e.value else z3.false
            case n.Var():
                return z3.named(e.name, True)
            case n.Unary() if e.op == "not":
                return z3.no(self.boolean(e.x))
            case n.Binary() if e.op in ("and", "or", "xor") and dtype_of(e.type).is_bool:
                a, b = self.boolean(e.a), self.boolean(e.b)
                return z3.every((a, b)) if e.op == "and" else z3.some((a, b)) if e.op == "or" else z3.either(a, b)
            case n.Binary() if e.op in n.COMPARISONS and is_number(e.a) and is_number(e.b):
                return self.compared(e.op, e.a, e.b)
            case n.Binary() if e.op in ("eq", "ne") and dtype_of(e.a.type).is_bool:
                same = z3.compared("eq", self.boolean(e.a), self.boolean(e.b))
                return same if e.op == "eq" else z3.no(same)
            case n.Select():
                return z3.choice(self.boolean(e.cond), self.boolean(e.a), self.boolean(e.b))
            case n.Call(fn=fn, args=(n.Expr() as a, n.Expr() as b)) if fn == SAME:
                return z3.compared("eq", self.value(a), self.value(b))
            case n.Cast() if dtype_of(e.x.type).is_bool:
                return self.boolean(e.x)
            case n.Cast() if is_number(e.x):
                return z3.compared("ne", self.linear(self.sum(e.x)), z3.number(0))
            case _:
                return self._applied(e, True)

    def compared(self, op: str, a: n.Expr, b: n.Expr) -> Formula:
        """A comparison of two integers."""
        between = minus(self.sum(a), self.sum(b))
        self._compared.append(between)
        return self._beside(op, self.linear(between), 0)

    def _beside(self, op: str, x: Formula, c: int) -> Formula:
        return self.z3.compared(op, x, self.z3.number(c))

    # --------------------------------------------------------------------------------------------------------------- integers
    def value(self, e: n.Expr) -> Formula:
        """Any scalar as an integer of z3: what is no number is a function of its operands, that gives the same for the same."""
        if is_number(e):
            return self.linear(self.sum(e))
        if dtype_of(e.type).is_bool:
            return self._bit(self.boolean(e))
        if isinstance(e, n.Select):
            return self.z3.choice(self.boolean(e.cond), self.value(e.a), self.value(e.b))
        return self._applied(e, False)

    def _bit(self, cond: Formula) -> Formula:
        return self.z3.choice(cond, self.z3.number(1), self.z3.number(0))

    def leaves(self, e: n.Expr) -> Formula:
        """That a sum, or a narrowed value, is not within its dtype."""
        low, high = dtype_of(e.type).range
        s = self.sum(e.x) if isinstance(e, n.Cast) else scaled(self.sum(e.a), 1 << int(int_value(e.b) or 0)) if (
            isinstance(e, n.Binary) and e.op == "shl") else self._ring(e)
        self._compared += [minus(s, {(): high}), minus(s, {(): low})]
        self._wrapped.append(s)
        x = self.linear(s)
        return self.z3.some((self._beside("lt", x, low), self._beside("gt", x, high)))

    def taken(self, e: n.Expr) -> None:
        """That a signed sum is within its dtype."""
        self._within(self.sum(e), dtype_of(e.type))

    def _within(self, s: Sum, dtype: DType) -> None:
        low, high = dtype.range
        self._fit.append(s)
        self.side += [self._beside("ge", self.linear(s), low), self._beside("le", self.linear(s), high)]

    def bounds_of(self, name: str) -> list[Formula]:
        """The least and the greatest value of a name."""
        found = self.known.ranges[name]
        symbol = self.atoms.setdefault(name, self.z3.named(name))
        return [self._beside(op, symbol, end) for op, end in (("ge", found.lo), ("le", found.hi)) if end is not None]

    def linear(self, s: Sum) -> Formula:
        """A sum, with a symbol for each product."""
        z3 = self.z3
        parts = [z3.times(self._product(m), z3.number(c)) if m else z3.number(c) for m, c in s.items()]
        return z3.added(parts) if len(parts) > 1 else parts[0] if parts else z3.number(0)

    def _product(self, m: Product) -> Formula:
        if len(m) == 1:
            return self.atoms[m[0]]
        if m not in self._products:
            self._products[m] = self.z3.named("*".join(m))
        return self._products[m]

    def sum(self, e: n.Expr) -> Sum:
        """An integer expression as a polynomial over atoms."""
        found = self._sums.get(e)
        if found is None:
            found = self._sums[e] = self._sum(e)
        return found

    def _sum(self, e: n.Expr) -> Sum:
        match e:
            case n.Const():
                return {(): int(e.value)} if e.value else {}
            case n.Var():
                return self._of_variable(e)
            case n.Binary() if e.op in ("add", "sub", "mul"):
                return self._fitted(e, self._ring(e))
            case n.Unary() if e.op == "neg":
                return self._fitted(e, self._ring(e))
            case n.Binary() if e.op == "shl" and (places := int_value(e.b)) is not None and 0 <= places < dtype_of(e.type).bits:
                return self._fitted(e, scaled(self.sum(e.a), 1 << places))
            case n.Binary() if e.op in ("shl", "shr") and (first := int_value(e.a)) is not None and (told := self._shifted(e, first)) is not None:
                return told
            case n.Binary() if e.op == "shr" and (places := int_value(e.b)) is not None and 0 <= places < dtype_of(e.type).bits:
                return self._quotient(e, self.sum(e.a), {(): 1 << places})
            case n.Binary() if e.op == "and" and (mask := _low_bits(e.b)) is not None:
                return minus(self.sum(e.a), _times(self._quotient(e, self.sum(e.a), {(): mask + 1}), {(): mask + 1}))
            case n.Binary() if e.op == "and" and (unit := _high_bits(e.b)) is not None:
                return scaled(self._quotient(e, self.sum(e.a), {(): unit}), unit)
            case n.Binary() if e.op == "xor" and (flips := int_value(e.b)) is not None and 0 <= flips < 1 << (dtype_of(e.type).bits - 1):
                return self._flipped(e, flips)
            case n.Binary() if e.op in ("floordiv", "mod", "ceildiv", "tdiv", "trem"):
                return self._divided(e)
            case n.Binary() if e.op in ("min", "max"):
                return self._extreme(e)
            case n.Select():
                cond, a, b = self.boolean(e.cond), self.linear(self.sum(e.a)), self.linear(self.sum(e.b))
                return self._atom(e, lambda x: [self.z3.compared("eq", x, self.z3.choice(cond, a, b))])
            case n.Cast() if e.rounding != "bits" and is_number(e.x):
                return self._fitted(e, self.sum(e.x), self._inside(e.x, e.dtype))
            case n.Cast() if dtype_of(e.x.type).is_bool:
                cond = self.boolean(e.x)
                return self._atom(e, lambda x: [self.z3.compared("eq", x, self._bit(cond))])
            case _:
                applied = self._applied(e, False)
                return self._atom(e, lambda x: [self.z3.compared("eq", x, applied)])

    def _flipped(self, e: n.Binary, flips: int) -> Sum:
        """A number some bits of which are turned: each that is 0 adds its power, each that is 1 takes it away."""
        own = out = self.sum(e.a)
        for k in range(flips.bit_length()):
            if flips >> k & 1:
                down, further = (self._quotient(e, own, {(): 1 << at}) for at in (k, k + 1))
                bit = minus(down, scaled(further, 2))
                out = minus(plus(out, {(): 1 << k}), scaled(bit, 1 << k + 1))
        return out

    def _shifted(self, e: n.Binary, first: int) -> Sum | None:
        """A number shifted by a few places at most."""
        places, dtype = self.known.domain(e.b), dtype_of(e.type)
        if places.lo is None or places.hi is None or places.lo < 0 or places.hi >= dtype.bits:
            return None
        by = self.linear(self.sum(e.b))
        told = {k: dtype.wrap(first << k) if e.op == "shl" else first >> k for k in range(places.lo, places.hi + 1)}
        return self._atom(e, lambda x: [self.z3.implies(self._beside("eq", by, k), self._beside("eq", x, v)) for k, v in told.items()])

    def _of_variable(self, e: n.Var) -> Sum:
        if e.name not in self.atoms:
            self.atoms[e.name] = self.z3.named(e.name)
            self.named[e.name] = e
            self._bounded(e.name, e)
        return {(e.name,): 1}

    def _bounded(self, name: str, e: n.Expr) -> None:
        z3, symbol, found = self.z3, self.atoms[name], self.known.domain(e)
        low, high = dtype_of(e.type).range
        self.side += [self._beside("ge", symbol, low if found.lo is None else found.lo), self._beside("le", symbol, high if found.hi is None else found.hi)]
        if found.modulus > 1:
            whole = z3.times(z3.named(f"{name}/{found.modulus}"), z3.number(found.modulus))
            self.side.append(z3.compared("eq", symbol, z3.added((whole, z3.number(found.residue)))))

    def _atom(self, e: n.Expr, says: Callable[[Formula], list[Formula]]) -> Sum:
        name = f"t{len(self.atoms)}"
        symbol = self.atoms[name] = self.z3.named(name)
        self._bounded(name, e)
        self.side += says(symbol)
        return {(name,): 1}

    def _ring(self, e: n.Expr) -> Sum:
        out: Sum = {}
        dtype = dtype_of(e.type)
        for monomial, c in polynomial(e).items():
            term: Sum = {(): c - (1 << dtype.bits) if dtype.kind == "uint" and c >> (dtype.bits - 1) else c}
            for atom in monomial:
                term = _times(term, self._only(atom) if atom is e else self.sum(atom))
            out = plus(out, term)
        return out

    def _only(self, e: n.Expr) -> Sum:
        """A product that is too long to be multiplied out."""
        return self._atom(e, lambda x: [])

    def _inside(self, e: n.Expr, dtype: DType) -> bool:
        found = self.known.domain(e)
        low, high = dtype.range
        return found.lo is not None and found.hi is not None and low <= found.lo and found.hi <= high

    def _fitted(self, e: n.Expr, s: Sum, exact: bool | None = None) -> Sum:
        """What a machine makes of a sum: itself where it fits its dtype. A signed one is taken to fit, and noted; an unsigned one wraps."""
        if e in self.exact:  # as it fits, it is one of its dtype
            self._within(s, dtype_of(e.type))
            return s
        if self.known.is_exact(e) if exact is None else exact:
            return s
        dtype = dtype_of(e.type)
        if dtype.kind == "int":
            if dtype.bits < 64:
                self.wraps.setdefault(e, None)
                if self.fit and any(len(m) > 1 for m in s) and not any(x.startswith("any.") for x in names_read(e)):
                    self._within(s, dtype)
            return s
        z3, wraps, over = self.z3, self.linear(s), self.z3.named(f"over{len(self.atoms)}")
        self.modular[e] = over
        self._wrapped.append(s)
        return self._atom(e, lambda x: [z3.compared("eq", x, z3.less(wraps, z3.times(over, z3.number(1 << dtype.bits)))), self._beside("ge", x, 0),
                                        self._beside("lt", x, 1 << dtype.bits)])

    def _quotient(self, e: n.Expr, a: Sum, b: Sum, truncates: bool = False, safe: bool = True, up: bool = False) -> Sum:
        """The quotient of a sum by another one, which is positive, or (not `safe`) zero: then nothing is known of the quotient. Rounded down, or `up`: its
        symbol is of the sign of the sum, so that what is known of products with factors of at least 0 is of use."""
        z3, name = self.z3, f"q{len(self.atoms)}"
        symbol = self.atoms[name] = z3.named(name)
        back = minus(_times({(name,): 1}, b), a) if up else minus(a, _times({(name,): 1}, b))
        self._compared += [back, minus(back, b)]
        rest, divisor, whole, of = self.linear(back), self.linear(b), self.linear(a), self._beside
        down, positive, negative = z3.every((of("ge", rest, 0), z3.compared("lt", rest, divisor))), of("ge", whole, 0), of("lt", whole, 0)
        up_to_zero = z3.every((negative, of("le", rest, 0), z3.compared("gt", rest, z3.negative(divisor))))
        told = [z3.some((z3.every((positive, down)), up_to_zero)) if truncates else down,
                z3.implies(positive, z3.every((of("ge", symbol, 0), z3.compared("le", symbol, whole)))), z3.implies(negative, of("le", symbol, 0))]
        self.side += told if safe else [z3.implies(of("ge", divisor, 1), z3.every(told))]
        return {(name,): 1}

    def _divided(self, e: n.Binary) -> Sum:
        least = self.known.domain(e.b).lo
        positive = least is not None and least > 0
        a, b = self.sum(e.a), self.sum(e.b)
        kind = "tdiv" if e.op in ("tdiv", "trem") else "floordiv" if e.op != "ceildiv" else "ceildiv"
        key = n.Binary(kind, e.a, e.b)
        q = self._quotients.get(key)
        if q is None:
            q = self._quotient(e, a, b, kind == "tdiv", positive, kind == "ceildiv")
            self._quotients[key] = q
            most = self.known.domain(key).hi
            if most is not None and positive:
                name = next(iter(q))[0]
                self._most[name] = most
                self.side.append(self._beside("le", self.atoms[name], most))
        if e.op not in ("mod", "trem"):
            return q
        rest = minus(a, _times(q, b))
        if positive:
            return rest
        below, left = self.linear(b), self.linear(rest)
        return self._atom(e, lambda x: [self.z3.implies(self._beside("ge", below, 1), self.z3.compared("eq", x, left))])

    def _extreme(self, e: n.Binary) -> Sum:
        a, b, z3 = self.linear(self.sum(e.a)), self.linear(self.sum(e.b)), self.z3
        side, of = "le" if e.op == "min" else "ge", z3.compared
        return self._atom(e, lambda x: [z3.some((of("eq", x, a), of("eq", x, b))), of(side, x, a), of(side, x, b)])

    def _applied(self, e: n.Expr, boolean: bool) -> Formula:
        """An operation that is not understood: the same result for the same operands."""
        z3 = self.z3
        below: tuple[n.Expr, ...]
        match e:
            case n.Const():
                return z3.named(f"#{e._bits}:{e.dtype}")
            case n.Var():
                return z3.named(e.name)
            case n.Unary():
                name, below = e.op, (e.x,)
            case n.Binary():
                name, below = e.op, (e.a, e.b)
            case n.Cast():
                name, below = f"cast {e.rounding}", (e.x,)
            case n.Call():
                name, below = f"{e.fn} {e.attrs}", tuple(a for a in e.args if isinstance(a, n.Expr))
            case n.Select():
                return z3.choice(self.boolean(e.cond), self.value(e.a), self.value(e.b))
            case _:
                return z3.named(expr_text(e), boolean)
        name = f"{name} {e.type} {' '.join(str(x.type) for x in below)}"
        return z3.applied(name, [self.value(x) for x in below], boolean) if below else z3.named(name, boolean)

    # --------------------------------------------------------------------------------------------------- what holds of products
    def lemmas(self) -> Iterator[Formula]:
        """What is known of the products that were made: signs, and that a sum of at least 1 times a factor is at least the factor."""
        count = 0
        seen: set[tuple[str, tuple[tuple[Product, int], ...]]] = set()
        for between in (*self._compared, *(minus(a, b) for a in self._fit for b in self._wrapped)):
            for factor in dict.fromkeys(x for m in between if len(m) > 1 for x in m):
                inner = {_without(m, factor): c for m, c in between.items() if len(m) > 1 and factor in m}
                key = (factor, tuple(sorted(inner.items())))
                if key in seen or count >= MOST_LEMMAS:
                    continue
                seen.add(key)
                count += 1
                z, d, dz = self.atoms[factor], self.linear(inner), self.linear(_times(inner, {(factor,): 1}))
                yield from self._in_order(z, d, dz)
        yield from self._of_pairs(seen)
        yield from self._of_equals()
        done: set[Product] = set()
        while missing := [m for m in self._products if m not in done]:
            for m in missing:
                done.add(m)
                if len(done) > MOST_LEMMAS // 4:
                    return
                for x in dict.fromkeys(m):
                    yield from self._of_product(m, x)

    def _in_order(self, z: Formula, d: Formula, dz: Formula) -> Iterator[Formula]:
        """What is known of a product dz of z and d."""
        z3, of = self.z3, self._beside
        up = z3.implies(of("ge", d, 1), z3.compared("ge", dz, z))
        yield z3.implies(of("ge", z, 0), z3.every((up, z3.implies(of("le", d, -1), z3.compared("le", dz, z3.negative(z))))))
        yield z3.implies(of("eq", d, 0), of("eq", dz, 0))

    def _of_pairs(self, seen: set[tuple[str, tuple[tuple[Product, int], ...]]]) -> Iterator[Formula]:
        """Products with a factor in common are in the order of their other factors."""
        count = 0
        for a, b in combinations(list(self._products), 2):
            for factor in sorted(set(a) & set(b)) if count < MOST_LEMMAS else ():
                inner = minus({_without(a, factor): 1}, {_without(b, factor): 1})
                key = (factor, tuple(sorted(inner.items())))
                if key not in seen:
                    seen.add(key)
                    count += 1
                    z, d, dz = self.atoms[factor], self.linear(inner), self.linear({a: 1, b: -1})
                    yield from self._in_order(z, d, dz)

    def _of_equals(self) -> Iterator[Formula]:
        """Products of two with no factor in common: where one factor of each has one value, they are in the order of the others."""
        z3, of = self.z3, self.z3.compared
        for count, (m, o) in enumerate((m, o) for m, o in combinations(list(self._products), 2) if len(m) == len(o) == 2 and not set(m) & set(o)):
            for a, b in ((0, 0), (0, 1), (1, 0), (1, 1)) if count < MOST_LEMMAS // 8 else ():
                x, y, u, v = (self.atoms[k] for k in (m[a], m[1 - a], o[b], o[1 - b]))
                d = z3.less(self._products[m], self._products[o])
                ordered = (z3.implies(of("gt", y, v), of("ge", d, x)), z3.implies(of("lt", y, v), of("le", d, z3.negative(x))),
                           z3.implies(of("eq", y, v), self._beside("eq", d, 0)))
                yield z3.implies(z3.every((of("eq", x, u), self._beside("ge", x, 0))), z3.every(ordered))

    def _of_product(self, m: Product, x: str) -> Iterator[Formula]:
        z3, of = self.z3, self._beside
        a, b, ab = self.atoms[x], self._product(_without(m, x)), self._products[m]
        yield z3.implies(z3.every((of("ge", a, 0), of("ge", b, 0))), of("ge", ab, 0))
        yield z3.implies(z3.every((of("ge", a, 1), of("ge", b, 0))), z3.compared("ge", ab, b))
        yield z3.implies(z3.some((of("eq", a, 0), of("eq", b, 0))), of("eq", ab, 0))
        yield z3.implies(of("eq", a, 1), z3.compared("eq", ab, b))
        most = self.known.domain(self.named[x]).hi if x in self.named else self._most.get(x)
        if most is not None and most < 1 << 20:
            yield z3.implies(of("ge", b, 0), z3.compared("le", ab, z3.times(z3.number(most), b)))

    def corrected(self, model: Model) -> list[Formula]:
        """What a model has wrong of products: each, at the value that one of its factors has there."""
        z3, out, values = self.z3, list[Formula](), dict[str, int]()
        for m, ab in list(self._products.items()):
            value = {x: values[x] if x in values else values.setdefault(x, model.value(self.atoms[x])) for x in m}
            if model.value(ab) != prod(value[x] for x in m):
                rest = {x: z3.times(z3.number(value[x]), self._product(_without(m, x))) for x in dict.fromkeys(m)}
                out += [z3.implies(self._beside("eq", self.atoms[x], value[x]), z3.compared("eq", ab, other)) for x, other in rest.items()]
        return out


def _low_bits(e: n.Expr) -> int | None:
    value = int_value(e)
    return value if value is not None and value > 0 and value & (value + 1) == 0 else None


def _high_bits(e: n.Expr) -> int | None:
    """The least bit of a mask that keeps it and all above it."""
    value = int_value(e)
    unit = 0 if value is None else -value if value < 0 else (1 << dtype_of(e.type).bits) - value
    return unit if value and unit > 0 and unit & (unit - 1) == 0 and (value < 0 or dtype_of(e.type).kind == "uint") else None


def _without(m: Product, x: str) -> Product:
    at = m.index(x)
    return m[:at] + m[at + 1:]


def plus(a: Sum, b: Sum) -> Sum:
    """The sum of two."""
    out = dict(a)
    for m, c in b.items():
        out[m] = out.get(m, 0) + c
    return {m: c for m, c in out.items() if c}


def scaled(a: Sum, c: int) -> Sum:
    """A multiple of one."""
    return {m: v * c for m, v in a.items()}


def minus(a: Sum, b: Sum) -> Sum:
    """The difference of two."""
    return plus(a, scaled(b, -1))


def _times(a: Sum, b: Sum) -> Sum:
    out: Sum = {}
    for ma, ca in a.items():
        out = plus(out, {tuple(sorted(ma + mb)): ca * cb for mb, cb in b.items()})
    return out
