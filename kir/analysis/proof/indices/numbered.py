"""Indices of CTAs that take tiles in an order of their own: divisions of a tile's number.

A grid that is taken apart into groups of tiles by divisions by sizes is beyond the solver in one step, and within it in several: facts of divisions, and
parts of two indices that are equal where the indices are, each proved before it is used. A number that is a sum (a CTA that takes every 132nd tile) is a
variable of its own in these, once it is proved what it is below; that two numbers are equal tells then of their parts.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import product
from math import gcd

from kir.analysis.proof.asking.question import Holding, Ranging
from kir.analysis.proof.values import FALSE, both, compared, either, opposite, wide
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.printer import expr_text
from kir.ir.types import I64, dtype_of
from kir.ir.visit import names_read, transform, walk

MOST_DIVISIONS, MOST_PARTS = 8, 10
NUMBER = "%tile"
"""What the variable of a number is called."""
Asked = Callable[[tuple[Holding, ...], n.Expr], bool]
Renamed = Callable[[n.Expr], n.Expr]


def of_divisions(index: Iterable[n.Expr], ranges: tuple[Ranging, ...], sizes: Collection[str], asks: Asked) -> tuple[n.Expr, ...]:
    """What is proved of divisions of the variables that have these ranges and of `sizes`: that divisors which are no numbers are at least 1, and that a
    quotient times its divisor is below what the dividend is below."""
    known: list[n.Expr] = []
    inside = {r.var.name: r for r in ranges}
    for d in _divisions(index, set(inside), {*inside, *sizes}):
        claims = []
        if isinstance(d.a, n.Var) and d.a.name in inside:
            claims.append(compared("lt", _product(build.floordiv(d.a, d.b), d.b), wide(inside[d.a.name].hi)))
        claims.append(compared("ge", d.b, const(1, dtype_of(d.b.type))))
        claims += _of_rest(d)
        for c in claims:
            if c not in known and asks((*ranges, *known), c):
                known.append(c)
    return tuple(known)


def in_turn(index: Iterable[n.Expr], renamed: Renamed) -> bool:
    """Whether an index is made of quotients of what tells executions apart, by what is no number."""
    return any(renamed(d.a) != d.a for d in _divided(index))


def as_number(e: n.Expr, holding: tuple[Holding, ...], sizes: Collection[str], asks: Asked) -> tuple[n.Expr, tuple[Holding, ...]] | None:
    """An expression with a variable of its own in the place of a number that it is made of by divisions, and what holds of that and of these; None where it
    is made of no such number."""
    for t in _numbers((e,), lambda x: n.Binary("add", x, x) if names_read(x) - set(sizes) else x):
        top = _top(t, names_read(t) - set(sizes), holding, asks)
        if top is not None:
            x = n.Var(NUMBER, dtype_of(t.type))
            pair: dict[n.Expr, n.Expr] = {t: x}
            inside, range_ = _put(e, pair), Ranging(x, const(0, dtype_of(t.type)), _as(top, x))
            gone = (names_read(t) - set(sizes)) - names_read(inside)
            cuts = of_divisions((inside,), (range_,), sizes, asks)
            return inside, (range_, *cuts, *(k for h in holding if not names_of(k := _held(h, pair)) & gone))
    return None


def _top(t: n.Expr, own: Collection[str], holding: tuple[Holding, ...], asks: Asked) -> n.Expr | None:
    """What a number from 0 on is proved to be below, by nothing that tells executions apart."""
    about, least = _about(holding, names_read(t)), compared("ge", t, const(0, dtype_of(t.type)))
    return next((u for u in _tops(t, holding) if names_read(u).isdisjoint(own) and asks(about, both(least, compared("lt", t, u)))), None)


def equal_parts(index: Iterable[n.Expr], renamed: Renamed, holding: tuple[Holding, ...], apart: n.Expr, asks: Asked,
                sizes: Collection[str], alike: bool) -> tuple[n.Expr, ...]:
    """Parts of an index of one execution that are proved to be equal to those of another one, where what says that they are not of one place is false.
    `alike`: then each of their indices has one value."""
    index = tuple(index)
    for t in _numbers(index, renamed):
        own = {x for x in names_read(t) if renamed(n.Var(x, dtype_of(t.type))) != n.Var(x, dtype_of(t.type))}
        top = _top(t, own, holding, asks)
        if top is not None and (found := _of_number(t, top, own, index, renamed, holding, apart, asks, sizes, alike)):
            return found
    plain = [v for v in dict.fromkeys(v for i in index for v in walk(i)) if isinstance(v, n.Var) and renamed(v) != v]
    ranges = tuple(h for h in holding if isinstance(h, Ranging) and h.var in plain)
    cuts = of_divisions(index, ranges, sizes, asks)
    return tuple(_linear(index, renamed, holding, apart, cuts, asks, sizes, alike)) or _steps(index, renamed, (*holding, opposite(apart)), asks)


def _of_number(t: n.Expr, top: n.Expr, own: set[str], index: tuple[n.Expr, ...], renamed: Renamed, holding: tuple[Holding, ...], apart: n.Expr,
               asks: Asked, sizes: Collection[str], alike: bool) -> tuple[n.Expr, ...]:
    """The same, of an index in which a sum is a number from 0 below `top`; and of what it is a sum of."""
    x, y = (n.Var(f"{NUMBER}{mark}", dtype_of(t.type)) for mark in ("", "'"))
    pair: dict[n.Expr, n.Expr] = {t: x, renamed(t): y}

    def named(e: n.Expr) -> n.Expr:
        return _put(renamed(e), {x: y})
    inside = tuple(_put(i, pair) for i in index)
    left = {v for i in inside for v in names_read(i)}
    gone = {*own, *(v for name in own for v in names_read(renamed(n.Var(name, dtype_of(t.type)))))} - left
    range_ = Ranging(x, const(0, dtype_of(x.of)), _as(top, x))
    cuts = of_divisions(inside, (range_,), sizes, asks)
    kept = tuple(k for h in holding if not names_of(k := _held(h, pair)) & gone)
    equal = _linear(inside, named, (range_, Ranging(y, range_.lo, range_.hi), *kept), _put(apart, pair), cuts, asks, sizes, alike)
    known = [_put(c, {x: t, y: renamed(t)}) for c in equal]
    if compared("eq", x, y) in equal:
        about = _about(holding, {*names_read(t), *names_read(renamed(t))})
        for v in dict.fromkeys(v for v in walk(t) if isinstance(v, n.Var) and v.name in own):
            if asks(about, either(same := compared("eq", v, renamed(v)), compared("ne", t, renamed(t)))):
                known.append(same)
    return tuple(known)


def _linear(index: tuple[n.Expr, ...], renamed: Renamed, holding: tuple[Holding, ...], apart: n.Expr, cuts: tuple[n.Expr, ...], asks: Asked,
            sizes: Collection[str], alike: bool) -> list[n.Expr]:
    """Parts that are equal because an index is made of them as a number is of its digits, each quotient and remainder being one; and what is divided, where
    its quotient and its remainder by the same number are. `cuts` is what is known of the divisions."""
    digits: dict[n.Expr, n.Expr] = {d: n.Var(f"%part{k}", dtype_of(d.type)) for k, d in enumerate(_largest(index))}
    twins: dict[n.Expr, n.Expr] = {renamed(d): n.Var(f"{v.name}'", v.of) for d, v in digits.items() if isinstance(v, n.Var)}
    ranges = tuple(h for h in holding if isinstance(h, Ranging))
    within: dict[n.Expr, tuple[int | None, int | None]] = {h.var: (int_value(h.lo), None if (hi := int_value(h.hi)) is None else hi - 1) for h in ranges}
    held: list[Holding] = []
    for d, v in ((d, v) for d, v in digits.items() if isinstance(v, n.Var)):
        known = (*_about(ranges, names_read(d)), *(c for c in cuts if names_read(c) <= names_read(d)))
        least, most = asks(known, compared("ge", d, const(0, dtype_of(d.type)))), next((e for e in _ends(d) if asks(known, compared("lt", d, e))), None)
        within[v] = (0 if least else None, (int_value(most) or 1) - 1 if most is not None else None)
        told = [c for c in cuts if isinstance(c, n.Binary) and c.op == "lt" and c.a == d and names_read(c.b) <= set(sizes)]
        for x in (v, n.Var(f"{v.name}'", v.of)):
            held += [*([compared("ge", x, const(0, dtype_of(d.type)))] if least else []), *([compared("lt", x, most)] if most is not None else []),
                     *(_put(c, {d: x}) for c in told)]
    back, inside = {v: d for d, v in digits.items()}, [_put(i, digits) for i in index]
    other = _put(_put(apart, digits), twins)
    named = {v.name for v in walk(other) if isinstance(v, n.Var)}
    about = (*(h for h in ranges if h.var.name in named and names_of(h) <= named), *held)
    pieces = [piece for i in inside for piece in _pieces(i, sizes, lambda c: asks(about, c))] if alike else []
    first = [v for i in pieces for v in _digits(i, within, lambda e: bare(e) not in back and renamed(e) == e)]
    equal: list[n.Expr] = [back.get(v, v) for v in first]
    for x in dict.fromkeys(x for i in inside for x in walk(i) if isinstance(x, n.Var) and x not in first):
        twin = n.Var(f"{x.name}'", x.of) if x in back else renamed(x)
        if twin != x and asks(about, either(compared("eq", x, twin), other)):
            equal.append(back.get(x, x))
    same = set(equal)
    while more := list(dict.fromkeys(d.a for d in _divided(index) if d.a not in same and _nonzero(d.b, cuts) and all(
            _is_same(x, same, renamed) for x in (n.Binary("floordiv", d.a, d.b), n.Binary("mod", d.a, d.b), d.b)))):
        same |= set(more)
        equal += more
    return [compared("eq", e, renamed(e)) for e in dict.fromkeys(equal)]


def _pieces(i: n.Expr, sizes: Collection[str], holds: Callable[[n.Expr], bool]) -> list[n.Expr]:
    """Sums that are equal wherever two of which one is made of them are: the rows and the columns of a flat index, where the columns are those of a row."""
    terms = products_of(i)
    count = Counter(x for m in terms if len(m) > 1 for x in dict.fromkeys(m) if names_read(x) and names_read(x) <= set(sizes))
    for x, _ in count.most_common(1):
        common = gcd(*(c for m, c in terms.items() if x in m))
        row = {_without(m, x): c // common for m, c in terms.items() if x in m}
        rows, columns = build.from_polynomial(row, I64), build.from_polynomial({m: c for m, c in terms.items() if x not in m}, I64)
        if holds(both(compared("ge", columns, const(0, I64)), compared("lt", columns, build.mul(x, const(common, I64))))):
            return [*_pieces(rows, sizes, holds), *_pieces(columns, sizes, holds)]
    return [i]


def _without(m: tuple[n.Expr, ...], x: n.Expr) -> tuple[n.Expr, ...]:
    at = m.index(x)
    return m[:at] + m[at + 1:]


def products_of(i: n.Expr) -> dict[tuple[n.Expr, ...], int]:
    """A sum in 64 bits, as products of what is none: signed sums that are widened are taken apart, as they fit."""
    out: dict[tuple[n.Expr, ...], int] = {}
    for m, c in build.polynomial(i).items():
        made: dict[tuple[n.Expr, ...], int] = {(): c}
        for x in m:
            inner = bare(x)
            signed = all(dtype_of(y.type).kind == "int" for y in (x, inner))
            wider = isinstance(x, n.Cast) and signed and dtype_of(inner.type).bits <= dtype_of(x.type).bits
            own: dict[tuple[n.Expr, ...], int] = {(wide(inner if wider else x),): 1}
            if wider and isinstance(inner, (n.Binary, n.Unary)) and inner.op in ("add", "sub", "mul", "neg", "shl"):
                own = products_of(inner)
            made = _times(made, own)
        for key, v in made.items():
            out[key] = out.get(key, 0) + v
    return {m: c for m, c in out.items() if c}


def _times(a: Mapping[tuple[n.Expr, ...], int], b: Mapping[tuple[n.Expr, ...], int]) -> dict[tuple[n.Expr, ...], int]:
    out: dict[tuple[n.Expr, ...], int] = {}
    for (x, c), (y, d) in product(a.items(), b.items()):
        key = tuple(sorted((*x, *y), key=expr_text))
        out[key] = out.get(key, 0) + c * d
    return out


def _digits(i: n.Expr, within: Mapping[n.Expr, tuple[int | None, int | None]], shared: Callable[[n.Expr], bool]) -> list[n.Expr]:
    """The variables of a sum that are equal wherever two such sums are: each counts for more than all that count for less come to together."""
    if dtype_of(i.type).kind != "int":
        return []
    parts: list[tuple[int, n.Expr]] = []
    for m, c in products_of(i).items():
        if all(map(shared, m)):
            continue
        if len(m) != 1 or not isinstance(bare(m[0]), n.Var):
            return []
        parts.append((abs(c), bare(m[0])))
    parts.sort(key=lambda p: p[0])
    below, out = 0, list[n.Expr]()
    for c, v in parts:
        out = [*out, v] if c > below else []  # else this one is not told from those before it
        lo, hi = within.get(v, (None, None))
        if lo is None or hi is None:
            return out if v is parts[-1][1] else []
        below += c * (hi - lo)
    return out


def _ends(d: n.Expr) -> list[n.Expr]:
    """Numbers that a remainder may be below."""
    assert isinstance(d, n.Binary)
    ends = [d.b.a, d.b.b] if isinstance(d.b, n.Binary) and d.b.op == "min" else [d.b]
    return [e for e in ends if isinstance(e, n.Const)] if d.op == "mod" else []


def _largest(index: Iterable[n.Expr]) -> list[n.Expr]:
    """Divisions by what is no number that are part of no other one."""
    found: dict[n.Expr, None] = {}

    def below(e: n.Node) -> None:
        if isinstance(e, n.Binary) and e.op in ("floordiv", "mod") and int_value(e.b) is None:
            found[e] = None
            return
        for x in (e.a, e.b) if isinstance(e, n.Binary) else (e.x,) if isinstance(e, (n.Unary, n.Cast)) else ():
            below(x)
    for i in index:
        below(i)
    return list(found)


def _nonzero(b: n.Expr, cuts: tuple[n.Expr, ...]) -> bool:
    """Whether it is known that a divisor is at least 1."""
    value = int_value(b)
    return value > 0 if value is not None else compared("ge", b, const(1, dtype_of(b.type))) in cuts


def _is_same(e: n.Expr, known: set[n.Expr], renamed: Renamed) -> bool:
    """Whether an expression is of one value in both executions: it is known to be, or what it is made of is."""
    if e in known or renamed(e) == e:
        return True
    below = (e.a, e.b) if isinstance(e, n.Binary) else (e.x,) if isinstance(e, (n.Unary, n.Cast)) else ()
    return bool(below) and all(_is_same(x, known, renamed) for x in below)


def _held(h: Holding, pair: dict[n.Expr, n.Expr]) -> Holding:
    return Ranging(h.var, _put(h.lo, pair), _put(h.hi, pair)) if isinstance(h, Ranging) else _put(h, pair)


def names_of(h: Holding) -> set[str]:
    """The names in what holds."""
    return {h.var.name, *names_read(h.lo), *names_read(h.hi)} if isinstance(h, Ranging) else set(names_read(h))


def _put(e: n.Expr, told: dict[n.Expr, n.Expr]) -> n.Expr:
    """An expression with others in the place of some of its parts, the largest first."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        return told.get(old, new) if isinstance(old, n.Expr) else new
    made: n.Expr = transform(e, leave) if told else e
    return made


def _as(e: n.Expr, like: n.Expr) -> n.Expr:
    return e if e.type == like.type else build.cast(e, dtype_of(like.type))


def _about(holding: tuple[Holding, ...], names: Iterable[str]) -> tuple[Holding, ...]:
    """What holds of some variables: their ranges, those of what these are of, and conditions on nothing else."""
    wanted = set(names)
    for h in reversed(holding):
        if isinstance(h, Ranging) and h.var.name in wanted:
            wanted |= names_of(h)
    return tuple(h for h in holding if names_of(h) <= wanted)


def _numbers(index: Iterable[n.Expr], renamed: Renamed) -> list[n.Expr]:
    """Sums that are divided by what is no number, and are not made of such quotients."""
    found = {d.a: None for d in _divided(index) if not isinstance(d.a, n.Var) and renamed(d.a) != d.a and not list(_divided([d.a]))}
    return list(found)


def _divided(index: Iterable[n.Expr]) -> Iterator[n.Binary]:
    return (x for e in index for x in walk(e) if isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and int_value(x.b) is None
            and dtype_of(x.type).is_integer)


def _tops(t: n.Expr, holding: tuple[Holding, ...]) -> Iterator[n.Expr]:
    """What a number may be below: what a condition compares it with, or, where it is a multiple of a variable that ends after so many steps, what that
    comes to."""
    for h in holding:
        if isinstance(h, n.Binary) and h.op == "lt" and bare(h.a) == t:
            yield h.b
        if isinstance(h, Ranging) and h.var.name in names_read(t):
            end = bare(h.hi)
            if isinstance(end, n.Binary) and end.op == "ceildiv":
                step = build.mul(_as(end.b, t), _as(h.var, t))
                yield build.add(build.sub(t, step), _as(end.a, t))


def bare(e: n.Expr) -> n.Expr:
    """An integer without the casts around it."""
    while isinstance(e, n.Cast) and dtype_of(e.type).is_integer and dtype_of(e.x.type).is_integer:
        e = e.x
    return e


def _steps(index: Iterable[n.Expr], renamed: Renamed, holding: tuple[Holding, ...], asks: Asked) -> tuple[n.Expr, ...]:
    """Parts of an index that are proved to be equal, each with the help of those before it."""
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


def _divisions(index: Iterable[n.Expr], names: set[str], known: set[str]) -> list[n.Binary]:
    found = {x: len(list(walk(x))) for e in index for x in walk(e) if isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and int_value(x.b) is None
             and names_read(x) & names and names_read(x) <= known and dtype_of(x.type).is_integer}
    return sorted(found, key=lambda x: found[x])[:MOST_DIVISIONS]


def _parts(index: Iterable[n.Expr]) -> Iterator[n.Expr]:
    """Quotients, remainders and variables that an index is made of, smallest first."""
    found = {x: len(list(walk(x))) for e in index for x in walk(e) if (isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and int_value(x.b) is None)
             or isinstance(x, n.Var)}
    return iter(sorted(found, key=lambda x: found[x]))
