"""Whether the indices of a place stay within their axes: what makes `x[row, column]` the element that a flat index names.

A flat index is a sum of indices times strides in many ways; only where each index is proved to lie within its axis is it the one that names
the element. Proofs are over whole numbers: addresses do not wrap (signed ones; unsigned arithmetic does, and is taken as it is). They rest
on the facts of the program, bounds of grids and loops, branches around the place, its own mask, and that its tensor has elements at all.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from kir.analysis import domain as d
from kir.analysis.bounds import bare, inside
from kir.analysis.facts import Facts
from kir.analysis.order import Terms, at_most, bound, sums_of
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import row_major
from kir.ir.printer import expr_text
from kir.ir.types import DType, TileType, dtype_of

WHOLE = DType("whole", "int", 1 << 12)
"""Numbers wide enough for every address: no sum or product of them wraps."""
DEPTH = 4
"""How many inequalities may be added together in one proof."""
KEPT = 4096
"""Proofs whose outcome is kept."""
MOST = 600
"""How many sums one proof may look at."""

_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
_EXACT = frozenset({"add", "sub", "mul", "floordiv", "mod", "ceildiv", "tdiv", "trem", "min", "max"})


def stay_within(index: Sequence[n.Expr], base: n.Buffer, masks: Iterable[n.Expr], known: Facts) -> bool:
    """Whether each index but the one with the largest stride is proved to lie within its axis wherever the masks hold. Beyond the end of
    that one lies no element of the tensor; where its strides leave that open, it is proved too."""
    strides = [bare(s) for s in (base.strides or row_major(base.shape))]
    long = [k for k, size in enumerate(base.shape) if not build.is_const(size, 1)]
    masks, whole = tuple(masks), None
    outermost = max(long, key=lambda k: rank(strides[k]), default=None)
    for k in (k for k in long if k != outermost):
        i, size = bare(index[k]), bare(base.shape[k])
        if _known_within(i, size, known):
            continue
        whole = whole or in_whole_numbers(known, masks, base)
        if not _proved_within(i, size, whole):
            return False
    if outermost is None or base.strides is None:
        return True
    whole = whole or in_whole_numbers(known, masks, base)
    return _proved_within(bare(index[outermost]), bare(base.shape[outermost]), whole) or _disjoint(base, strides, outermost, long, whole)


def rank(stride: n.Expr) -> tuple[int, int]:
    """Strides by size: first by the number of symbolic factors, then by the coefficient; of a sum, by those of its longest product and all of them."""
    terms = build.polynomial(stride)
    return (max(map(len, terms), default=0), sum(terms.values()))


def is_natural(e: n.Expr, masks: Iterable[n.Expr], known: Facts, base: n.Buffer) -> bool:
    """Whether an index is proved to be 0 or more wherever the masks hold."""
    return _from_zero(e, known) or proved(_difference(build.const(0, WHOLE), whole_number(e)), in_whole_numbers(known, masks, base))


def is_an_index(i: n.Expr, base: n.Buffer, known: Facts) -> bool:
    """Whether a sum, over whole numbers, is proved to be an index of a tensor of one axis."""
    return _proved_within(i, bare(base.shape[0]), in_whole_numbers(known, (), base))


def _known_within(i: n.Expr, size: n.Expr, known: Facts) -> bool:
    full = known.expanded(i)
    return i.type == size.type and _from_zero(i, known) and (inside(i, size, known) or inside(full, size, known))


def _from_zero(i: n.Expr, known: Facts) -> bool:
    lowest = known.domain(known.expanded(i)).lo
    return (lowest is not None and lowest >= 0) or at_most(build.const(0, dtype_of(i.type)), i, known)


def _proved_within(i: n.Expr, size: n.Expr, whole: Facts) -> bool:
    e, end = whole_number(i), whole_number(size)
    for x in dict.fromkeys((e, whole.expanded(e))):
        if proved(_difference(build.const(0, WHOLE), x), whole) and (inside(x, end, whole) or proved(_difference(build.add(x, 1), end), whole)):
            return True
    return False


def _disjoint(base: n.Buffer, strides: Sequence[n.Expr], outermost: int, long: Sequence[int], whole: Facts) -> bool:
    """Whether a row, of the axis with the largest stride, ends before the next begins."""
    last: n.Expr = build.const(0, WHOLE)
    for k in long:
        if k != outermost:
            last = build.add(last, build.mul(build.sub(whole_number(bare(base.shape[k])), 1), whole_number(strides[k])))
    return proved(_difference(build.add(last, 1), whole_number(strides[outermost])), whole)


# ------------------------------------------------------------------------------------------------------------ whole numbers
def in_whole_numbers(known: Facts, masks: Iterable[n.Expr], base: n.Buffer) -> Facts:
    """The facts of a place, with its masks, over numbers that never wrap, and that its tensor has elements."""
    lets = {name: whole_number(value) for name, value in known.lets.items() if dtype_of(value.type).kind == "int"}
    out = Facts(known.ranges, MappingProxyType(lets))
    there = tuple(n.Binary("ge", whole_number(bare(size)), build.const(1, WHOLE)) for size in base.shape if not isinstance(size, n.Const))
    holds: list[n.Expr] = []
    for fact in (*known.holds, *masks):
        holds += _comparisons(fact, True)
    narrowed = dict(out.ranges)
    for fact in (*holds, *there):
        assert isinstance(fact, n.Binary)
        if not (isinstance(fact.a, n.Var) and isinstance(fact.b, n.Const)):
            continue
        at, name = int(fact.b.value), fact.a.name
        before = narrowed.get(name, out.domain(fact.a))
        ends = {"ge": (at, None), "gt": (at + 1, None), "le": (None, at), "lt": (None, at - 1), "eq": (at, at)}.get(fact.op)
        narrowed[name] = _without(before, at) if fact.op == "ne" else before if ends is None else d.meet(before, d.between(*ends))
    return Facts(MappingProxyType(narrowed), out.lets, tuple(dict.fromkeys((*holds, *_by_whole_steps(holds), *there))))


def _by_whole_steps(holds: Sequence[n.Expr]) -> Iterator[n.Expr]:
    """What is less than something by a multiple of a number is less by that at least: `k * 16 + 16 < K` where K is a multiple of 16."""
    multiples: dict[str, int] = {}
    for fact in holds:
        match fact:
            case n.Binary(op="eq", a=n.Binary(op="mod", a=n.Var(name=name), b=n.Const(value=int() as by)), b=n.Const(value=0)) if by > 1:
                multiples[name] = math.lcm(multiples.get(name, 1), by)
            case _:
                pass
    for fact in holds if multiples else ():
        if isinstance(fact, n.Binary) and fact.op in ("lt", "gt"):
            less, more = (fact.a, fact.b) if fact.op == "lt" else (fact.b, fact.a)
            terms = build.polynomial(build.sub(more, less))
            step = math.gcd(*(c * math.prod(multiples.get(a.name, 1) if isinstance(a, n.Var) else 1 for a in m) for m, c in terms.items()))
            if step > 1 and terms:
                yield n.Binary("le", build.add(less, step), more)


def _comparisons(fact: n.Expr, true: bool) -> Iterator[n.Expr]:
    """The comparisons of integers that a condition comes down to where it is true, or where it is not."""
    match fact:
        case n.Unary(op="not"):
            yield from _comparisons(fact.x, not true)
        case n.Binary(op="and") if true and dtype_of(fact.type).is_bool:
            yield from _comparisons(fact.a, True)
            yield from _comparisons(fact.b, True)
        case n.Binary(op="or") if not true and dtype_of(fact.type).is_bool:
            yield from _comparisons(fact.a, False)
            yield from _comparisons(fact.b, False)
        case n.Binary() if fact.op in n.COMPARISONS and not isinstance(fact.type, TileType) and dtype_of(fact.a.type).is_integer:
            yield n.Binary(fact.op if true else _OPPOSITE[fact.op], whole_number(fact.a), whole_number(fact.b))
        case _:
            return


def _without(known: d.Domain, value: int) -> d.Domain:
    """A domain without a value, where that is one of its ends."""
    if known.lo == value:
        return d.meet(known, d.between(value + 1, None))
    return d.meet(known, d.between(None, value - 1)) if known.hi == value else known


def whole_number(e: n.Expr) -> n.Expr:
    """A scalar integer expression over numbers that never wrap: what is signed, through its casts; anything else is one number."""
    own = dtype_of(e.type)
    if own == WHOLE:
        return e
    match e:
        case n.Const():
            return n.Const(int(e.value), WHOLE)
        case n.Var() if own.kind == "int":
            return n.Var(e.name, WHOLE)
        case n.Unary(op="neg") if own.kind == "int":
            return build.negate(whole_number(e.x))
        case n.Binary() if own.kind == "int" and e.op in _EXACT:
            return build.binary(e.op, whole_number(e.a), whole_number(e.b))
        case n.Cast() if own.kind == "int" and dtype_of(e.x.type).kind == "int" and dtype_of(e.x.type).bits <= own.bits:
            return whole_number(e.x)
        case _:
            return n.Cast(e, WHOLE)


# ------------------------------------------------------------------------------------------------------------------- proofs
def proved(terms: Terms, known: Facts) -> bool:
    """Whether a sum of products is proved never to be above 0: by the domains of its names, or with inequalities that hold added to it, by
    which a rising term is canceled, or what is missing made up for."""
    return _proved(tuple(terms.items()), tuple(known.ranges.items()), tuple(known.lets.items()), known.holds)


@lru_cache(KEPT)
def _proved(terms: tuple[tuple[build.Monomial, int], ...], ranges: tuple[tuple[str, d.Domain], ...], lets: tuple[tuple[str, n.Expr], ...],
            holds: tuple[n.Expr, ...]) -> bool:
    """The proof, kept: the rounds of a normal form, and shapes that are tried one after the other, ask the same again."""
    known = Facts(MappingProxyType(dict(ranges)), MappingProxyType(dict(lets)), holds)
    seen: set[frozenset[tuple[tuple[n.Expr, ...], int]]] = set()

    def search(left: Mapping[tuple[n.Expr, ...], int], depth: int) -> bool:
        state = frozenset(left.items())
        if state in seen or len(seen) > MOST:
            return False
        seen.add(state)
        most = bound(left, known).hi
        if most is not None and most <= 0:
            return True
        if depth == 0:
            return False
        for fact in sums_of(left, known):
            for times, factor in _factors(left, fact, known):
                made = dict(left)
                for m, c in fact.items():
                    at = tuple(sorted(m + times, key=expr_text)) if times else m
                    made[at] = made.get(at, 0) + c * factor
                if search({m: c for m, c in made.items() if c}, depth - 1):
                    return True
        return False
    return any(search(dict(terms), depth) for depth in _depths(seen))


def _depths(seen: set[frozenset[tuple[tuple[n.Expr, ...], int]]]) -> Iterator[int]:
    for depth in range(DEPTH + 1):
        seen.clear()
        yield depth


def _factors(left: Terms, fact: Terms, known: Facts) -> Iterator[tuple[tuple[n.Expr, ...], int]]:
    """What an inequality is worth being multiplied with and added to a sum: so that a term of the sum goes, a rising one first. Products of
    numbers that are never negative may multiply it."""
    found: dict[tuple[tuple[n.Expr, ...], int], None] = {}
    for rising in (True, False):
        for m, c in fact.items():
            for own, have in left.items() if m else ():
                if (have > 0) is rising and have * c < 0 and have % c == 0 and (times := _without_atoms(own, m)) is not None and all(
                        (known.domain(x).lo or 0) >= 0 and known.domain(x).lo is not None for x in times):
                    found[times, -have // c] = None
    yield from found


def _without_atoms(whole: tuple[n.Expr, ...], part: tuple[n.Expr, ...]) -> tuple[n.Expr, ...] | None:
    """What is left of a product without another; None where the other is no part of it."""
    left = list(whole)
    for x in part:
        if x not in left:
            return None
        left.remove(x)
    return tuple(left)


def _difference(a: n.Expr, b: n.Expr) -> Terms:
    out = dict(build.polynomial(a))
    for m, c in build.polynomial(b).items():
        out[m] = out.get(m, 0) - c
    return {m: c for m, c in out.items() if c}
