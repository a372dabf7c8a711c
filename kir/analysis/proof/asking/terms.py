"""Integer and boolean expressions of the IR as terms of z3: polynomials whose products are symbols of their own, with what is known of products."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from math import prod
from typing import Any

from kir.analysis.facts import Facts
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

    def __init__(self, z3: Any, known: Facts, fit: bool = False, exact: frozenset[n.Expr] = frozenset()) -> None:
        self.z3, self.known, self._made, self.fit, self.exact = z3, known, _Made(z3), fit, exact
        self.modular: dict[n.Expr, Any] = {}
        self._fit: list[Sum] = []
        self._wrapped: list[Sum] = []
        self._most: dict[str, int] = {}
        self.atoms: dict[str, Any] = {}
        self.side: list[Any] = []
        self.wraps: dict[n.Expr, None] = {}
        self.named: dict[str, n.Expr] = {}
        self._sums: dict[n.Expr, Sum] = {}
        self._quotients: dict[n.Expr, Sum] = {}
        self._booleans: dict[n.Expr, Any] = {}
        self._compared: list[Sum] = []
        self._products: dict[Product, Any] = {}
        self._functions: dict[tuple[str, int, bool], Any] = {}

    # ------------------------------------------------------------------------------------------------------------- conditions
    def boolean(self, e: n.Expr) -> Any:
        """A condition."""
        found = self._booleans.get(e)
        if found is None:
            found = self._booleans[e] = self._boolean(e)
        return found

    def _boolean(self, e: n.Expr) -> Any:
        z3 = self.z3
        match e:
            case n.Const():
                return z3.BoolVal(bool(e.value))
            case n.Var():
                return z3.Bool(e.name)
            case n.Unary() if e.op == "not":
                return z3.Not(self.boolean(e.x))
            case n.Binary() if e.op in ("and", "or", "xor") and dtype_of(e.type).is_bool:
                a, b = self.boolean(e.a), self.boolean(e.b)
                return z3.And(a, b) if e.op == "and" else z3.Or(a, b) if e.op == "or" else z3.Xor(a, b)
            case n.Binary() if e.op in n.COMPARISONS and is_number(e.a) and is_number(e.b):
                return self.compared(e.op, e.a, e.b)
            case n.Binary() if e.op in ("eq", "ne") and dtype_of(e.a.type).is_bool:
                same = self.boolean(e.a) == self.boolean(e.b)
                return same if e.op == "eq" else z3.Not(same)
            case n.Select():
                return z3.If(self.boolean(e.cond), self.boolean(e.a), self.boolean(e.b))
            case n.Call(fn=fn, args=(n.Expr() as a, n.Expr() as b)) if fn == SAME:
                return self.value(a) == self.value(b)
            case n.Cast() if dtype_of(e.x.type).is_bool:
                return self.boolean(e.x)
            case n.Cast() if is_number(e.x):
                return self.linear(self.sum(e.x)) != 0
            case _:
                return self._applied(e, True)

    def compared(self, op: str, a: n.Expr, b: n.Expr) -> Any:
        """A comparison of two integers."""
        between = minus(self.sum(a), self.sum(b))
        self._compared.append(between)
        return self._made.compared(op, self.linear(between), 0)

    # --------------------------------------------------------------------------------------------------------------- integers
    def value(self, e: n.Expr) -> Any:
        """Any scalar as an integer of z3: what is no number is a function of its operands, that gives the same for the same."""
        if is_number(e):
            return self.linear(self.sum(e))
        if dtype_of(e.type).is_bool:
            return self.z3.If(self.boolean(e), self.z3.IntVal(1), self.z3.IntVal(0))
        if isinstance(e, n.Select):
            return self.z3.If(self.boolean(e.cond), self.value(e.a), self.value(e.b))
        return self._applied(e, False)

    def leaves(self, e: n.Expr) -> Any:
        """That a sum, or a narrowed value, is not within its dtype."""
        low, high = dtype_of(e.type).range
        s = self.sum(e.x) if isinstance(e, n.Cast) else scaled(self.sum(e.a), 1 << int(int_value(e.b) or 0)) if (
            isinstance(e, n.Binary) and e.op == "shl") else self._ring(e)
        self._compared += [minus(s, {(): high}), minus(s, {(): low})]
        self._wrapped.append(s)
        x = self.linear(s)
        return self.z3.Or(x < low, x > high)

    def taken(self, e: n.Expr) -> None:
        """That a signed sum is within its dtype."""
        self._within(self.sum(e), dtype_of(e.type))

    def _within(self, s: Sum, dtype: DType) -> None:
        low, high = dtype.range
        self._fit.append(s)
        self.side += [self._made.compared("ge", self.linear(s), low), self._made.compared("le", self.linear(s), high)]

    def bounds_of(self, name: str) -> list[Any]:
        """The least and the greatest value of a name."""
        found = self.known.ranges[name]
        symbol = self.atoms.setdefault(name, self.z3.Int(name))
        return [*([symbol >= found.lo] if found.lo is not None else []), *([symbol <= found.hi] if found.hi is not None else [])]

    def linear(self, s: Sum) -> Any:
        """A sum, with a symbol for each product."""
        made = self._made
        parts = [made.times(self._product(m), c) if m else made.number(c) for m, c in s.items()]
        return made.added(parts) if len(parts) > 1 else parts[0] if parts else made.number(0)

    def _product(self, m: Product) -> Any:
        if len(m) == 1:
            return self.atoms[m[0]]
        if m not in self._products:
            self._products[m] = self.z3.Int("*".join(m))
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
            case n.Binary() if e.op == "xor" and (flips := int_value(e.b)) is not None and 0 <= flips < 1 << (dtype_of(e.type).bits - 1):
                return self._flipped(e, flips)
            case n.Binary() if e.op in ("floordiv", "mod", "ceildiv", "tdiv", "trem"):
                return self._divided(e)
            case n.Binary() if e.op in ("min", "max"):
                return self._extreme(e)
            case n.Select():
                cond, a, b = self.boolean(e.cond), self.linear(self.sum(e.a)), self.linear(self.sum(e.b))
                return self._atom(e, lambda x: [x == self.z3.If(cond, a, b)])
            case n.Cast() if e.rounding != "bits" and is_number(e.x):
                return self._fitted(e, self.sum(e.x), self._inside(e.x, e.dtype))
            case n.Cast() if dtype_of(e.x.type).is_bool:
                cond = self.boolean(e.x)
                return self._atom(e, lambda x: [x == self.z3.If(cond, self.z3.IntVal(1), self.z3.IntVal(0))])
            case _:
                applied = self._applied(e, False)
                return self._atom(e, lambda x: [x == applied])

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
        return self._atom(e, lambda x: [self.z3.Implies(by == k, x == v) for k, v in told.items()])

    def _of_variable(self, e: n.Var) -> Sum:
        if e.name not in self.atoms:
            self.atoms[e.name] = self.z3.Int(e.name)
            self.named[e.name] = e
            self._bounded(self.atoms[e.name], e)
        return {(e.name,): 1}

    def _bounded(self, symbol: Any, e: n.Expr) -> None:
        found = self.known.domain(e)
        low, high = dtype_of(e.type).range
        self.side += [self._made.compared("ge", symbol, low if found.lo is None else found.lo),
                      self._made.compared("le", symbol, high if found.hi is None else found.hi)]
        if found.modulus > 1:
            self.side.append(symbol == self.z3.Int(f"{symbol}/{found.modulus}") * found.modulus + found.residue)

    def _atom(self, e: n.Expr, says: Any) -> Sum:
        name = f"t{len(self.atoms)}"
        symbol = self.atoms[name] = self.z3.Int(name)
        self._bounded(symbol, e)
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
        wraps, over = self.linear(s), self.z3.Int(f"over{len(self.atoms)}")
        self.modular[e] = over
        self._wrapped.append(s)
        return self._atom(e, lambda x: [x == wraps - over * (1 << dtype.bits), x >= 0, x < 1 << dtype.bits])

    def _quotient(self, e: n.Expr, a: Sum, b: Sum, truncates: bool = False, safe: bool = True, up: bool = False) -> Sum:
        """The quotient of a sum by another one, which is positive, or (not `safe`) zero: then nothing is known of the quotient. Rounded down, or `up`: its
        symbol is of the sign of the sum, so that what is known of products with factors of at least 0 is of use."""
        z3, name = self.z3, f"q{len(self.atoms)}"
        symbol = self.atoms[name] = z3.Int(name)
        back = minus(_times({(name,): 1}, b), a) if up else minus(a, _times({(name,): 1}, b))
        self._compared += [back, minus(back, b)]
        rest, divisor, whole, of = self.linear(back), self.linear(b), self.linear(a), self._made.compared
        down, positive, negative = z3.And(of("ge", rest, 0), of("lt", rest, divisor)), of("ge", whole, 0), of("lt", whole, 0)
        told = [z3.Or(z3.And(positive, down), z3.And(negative, of("le", rest, 0), rest > -divisor)) if truncates else down,
                z3.Implies(positive, z3.And(of("ge", symbol, 0), of("le", symbol, whole))), z3.Implies(negative, of("le", symbol, 0))]
        self.side += told if safe else [z3.Implies(of("ge", divisor, 1), z3.And(told))]
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
                self.side.append(self._made.compared("le", self.atoms[name], most))
        if e.op not in ("mod", "trem"):
            return q
        rest = minus(a, _times(q, b))
        if positive:
            return rest
        below, left = self.linear(b), self.linear(rest)
        return self._atom(e, lambda x: [self.z3.Implies(below >= 1, x == left)])

    def _extreme(self, e: n.Binary) -> Sum:
        a, b, z3 = self.linear(self.sum(e.a)), self.linear(self.sum(e.b)), self.z3
        return self._atom(e, lambda x: [z3.Or(x == a, x == b), *((x <= a, x <= b) if e.op == "min" else (x >= a, x >= b))])

    def _applied(self, e: n.Expr, boolean: bool) -> Any:
        """An operation that is not understood: the same result for the same operands."""
        z3 = self.z3
        below: tuple[n.Expr, ...]
        match e:
            case n.Const():
                return z3.Int(f"#{e._bits}:{e.dtype}")
            case n.Var():
                return z3.Int(e.name)
            case n.Unary():
                name, below = e.op, (e.x,)
            case n.Binary():
                name, below = e.op, (e.a, e.b)
            case n.Cast():
                name, below = f"cast {e.rounding}", (e.x,)
            case n.Call():
                name, below = f"{e.fn} {e.attrs}", tuple(a for a in e.args if isinstance(a, n.Expr))
            case n.Select():
                return z3.If(self.boolean(e.cond), self.value(e.a), self.value(e.b))
            case _:
                return z3.Bool(expr_text(e)) if boolean else z3.Int(expr_text(e))
        name = f"{name} {e.type} {' '.join(str(x.type) for x in below)}"
        key = (name, len(below), boolean)
        sort = z3.BoolSort() if boolean else z3.IntSort()
        if not below:
            return z3.Const(name, sort)
        if key not in self._functions:
            self._functions[key] = z3.Function(name, *[z3.IntSort()] * len(below), sort)
        return self._functions[key](*map(self.value, below))

    # --------------------------------------------------------------------------------------------------- what holds of products
    def lemmas(self) -> Iterator[Any]:
        """What is known of the products that were made: signs, and that a sum of at least 1 times a factor is at least the factor."""
        z3, count = self.z3, 0
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
                yield z3.Implies(z >= 0, z3.And(z3.Implies(d >= 1, dz >= z), z3.Implies(d <= -1, dz <= -z)))
                yield z3.Implies(d == 0, dz == 0)
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

    def _of_pairs(self, seen: set[tuple[str, tuple[tuple[Product, int], ...]]]) -> Iterator[Any]:
        """Products with a factor in common are in the order of their other factors."""
        z3, count = self.z3, 0
        for a, b in combinations(list(self._products), 2):
            for factor in sorted(set(a) & set(b)) if count < MOST_LEMMAS else ():
                inner = minus({_without(a, factor): 1}, {_without(b, factor): 1})
                key = (factor, tuple(sorted(inner.items())))
                if key not in seen:
                    seen.add(key)
                    count += 1
                    z, d, dz = self.atoms[factor], self.linear(inner), self.linear({a: 1, b: -1})
                    yield z3.Implies(z >= 0, z3.And(z3.Implies(d >= 1, dz >= z), z3.Implies(d <= -1, dz <= -z)))
                    yield z3.Implies(d == 0, dz == 0)

    def _of_equals(self) -> Iterator[Any]:
        """Products of two with no factor in common: where one factor of each has one value, they are in the order of the others."""
        z3 = self.z3
        for count, (m, o) in enumerate((m, o) for m, o in combinations(list(self._products), 2) if len(m) == len(o) == 2 and not set(m) & set(o)):
            for a, b in ((0, 0), (0, 1), (1, 0), (1, 1)) if count < MOST_LEMMAS // 8 else ():
                x, y, u, v = (self.atoms[k] for k in (m[a], m[1 - a], o[b], o[1 - b]))
                d = self._products[m] - self._products[o]
                yield z3.Implies(z3.And(x == u, x >= 0), z3.And(z3.Implies(y > v, d >= x), z3.Implies(y < v, d <= -x), z3.Implies(y == v, d == 0)))

    def _of_product(self, m: Product, x: str) -> Iterator[Any]:
        z3 = self.z3
        a, b, ab = self.atoms[x], self._product(_without(m, x)), self._products[m]
        yield z3.Implies(z3.And(a >= 0, b >= 0), ab >= 0)
        yield z3.Implies(z3.And(a >= 1, b >= 0), ab >= b)
        yield z3.Implies(z3.Or(a == 0, b == 0), ab == 0)
        yield z3.Implies(a == 1, ab == b)
        most = self.known.domain(self.named[x]).hi if x in self.named else self._most.get(x)
        if most is not None and most < 1 << 20:
            yield z3.Implies(b >= 0, ab <= most * b)

    def corrected(self, model: Any) -> list[Any]:
        """What a model has wrong of products: each, at the value that one of its factors has there."""
        out: list[Any] = []
        for m, ab in self._products.items():
            value = {x: model.eval(self.atoms[x], model_completion=True).as_long() for x in m}
            if model.eval(ab, model_completion=True).as_long() != prod(value[x] for x in m):
                out += [self.z3.Implies(self.atoms[x] == value[x], ab == value[x] * self._product(_without(m, x))) for x in dict.fromkeys(m)]
        return out


class _Made:
    """Integer terms, made through z3's C interface: they are those that its operators make, which ask for the sort of each operand of each, and that takes
    most of the time of a question."""

    def __init__(self, z3: Any) -> None:
        self.z3, self.context = z3, z3.main_ctx()
        self.ref = self.context.ref()
        self._numbers: dict[int, Any] = {}

    def number(self, c: int) -> Any:
        """A literal."""
        found = self._numbers.get(c)
        if found is None:
            found = self._numbers[c] = self.z3.IntVal(c)
        return found

    def _array(self, *terms: Any) -> Any:
        return (self.z3.Ast * len(terms))(*(x.as_ast() for x in terms))

    def times(self, a: Any, c: int) -> Any:
        """a * c."""
        return self.z3.ArithRef(self.z3.Z3_mk_mul(self.ref, 2, self._array(a, self.number(c))), self.context)

    def added(self, terms: list[Any]) -> Any:
        """The sum of some terms."""
        return self.z3.ArithRef(self.z3.Z3_mk_add(self.ref, len(terms), self._array(*terms)), self.context)

    def compared(self, op: str, a: Any, b: Any) -> Any:
        """a op b, where b is a term or a number."""
        z3, b = self.z3, self.number(b) if isinstance(b, int) else b
        if op == "ne":
            return z3.BoolRef(z3.Z3_mk_distinct(self.ref, 2, self._array(a, b)), self.context)
        make = {"lt": z3.Z3_mk_lt, "le": z3.Z3_mk_le, "gt": z3.Z3_mk_gt, "ge": z3.Z3_mk_ge, "eq": z3.Z3_mk_eq}[op]
        return z3.BoolRef(make(self.ref, a.as_ast(), b.as_ast()), self.context)


def _low_bits(e: n.Expr) -> int | None:
    value = int_value(e)
    return value if value is not None and value > 0 and value & (value + 1) == 0 else None


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
