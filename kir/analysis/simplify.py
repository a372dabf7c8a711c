"""Simplification of integer and boolean expressions with proofs: quotients, remainders, minima, comparisons, masks.

Every step is exact for the values that the machine computes (wrapping included) under the facts given; where a proof is missing the
expression stays. Of floating point only comparisons of a whole number with a literal are touched, which are made on the whole number.
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

from kir.analysis import domain as d
from kir.analysis.boundary_masks import at_edges
from kir.analysis.domain import Domain
from kir.analysis.facts import Facts
from kir.analysis.order import at_most, exact_terms, less
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import Monomial, const, from_polynomial, int_value, polynomial
from kir.ir.types import BOOL, F32, F64, DType, TileType, dtype_of, rounded, shape_of
from kir.ir.visit import children, transform

N = TypeVar("N", bound=n.Node)
_REDUCIBLE = frozenset({"floordiv", "mod", "ceildiv", "tdiv", "trem", "min", "max", "and", "or"}) | n.COMPARISONS


def simplify(e: n.Expr, known: Facts) -> n.Expr:
    """`e` in a simpler form that has the same value wherever the facts hold; the same type."""
    return simplified(e, known)


def simplified(item: N, known: Facts) -> N:
    """A node with every expression below it simplified. It must not contain a block: names bound below are not known here."""
    if not _has_work(item):
        return item
    made: N = transform(item, lambda old, new: _step(new, known), _has_work)
    return made


def _has_work(item: n.Node) -> bool:
    """Whether a reducible operation stands somewhere below (cached on the node). The shapes of tensors stay as they are declared."""
    found = item.__dict__.get("_reducible")
    if found is None:
        found = not (isinstance(item, n.Buffer) and item.space == "global") and (
            isinstance(item, n.Select) or (isinstance(item, n.Unary) and item.op == "not") or (
                isinstance(item, n.Cast) and isinstance(item.x, n.Cast) and _only_sign(item, item.x)) or (
                isinstance(item, n.Binary) and item.op in _REDUCIBLE) or
            (isinstance(item, n.Call) and item.fn == "expand") or any(map(_has_work, children(item))))
        item.__dict__["_reducible"] = found
    return bool(found)


def is_true(e: n.Expr | None) -> bool:
    """Whether a condition is the literal true, of one element or of many."""
    if isinstance(e, n.Call) and e.fn == "broadcast":
        return isinstance(e.args[0], n.Expr) and is_true(e.args[0])
    return isinstance(e, n.Const) and e.value is True


def _step(e: n.Node, known: Facts) -> n.Node:
    match e:
        case n.Binary() if e.op in n.COMPARISONS and dtype_of(e.a.type).is_integer:
            return _comparison(e, known)
        case n.Binary() if e.op in n.COMPARISONS and (whole := _of_whole(e)) is not None:
            return _comparison(whole, known) if isinstance(whole, n.Binary) else whole
        case n.Binary() if e.op in ("and", "or") and dtype_of(e.type).is_bool:
            return _logical(e)
        case n.Binary() if e.op in ("add", "sub", "mul") and dtype_of(e.type).is_integer:
            return whole_again(e, known)
        case n.Binary() if dtype_of(e.type).is_integer:
            return _arithmetic(e, known)
        case n.Cast(x=n.Cast() as inner) if _only_sign(e, inner):
            return build.cast(inner.x, e.dtype)
        case n.Unary(op="not") if dtype_of(e.type).is_bool:
            return opposite(e.x) or e
        case n.Load() if is_true(e.mask):
            return build.load(e.at, None, e.other, e.clip, e.cache)
        case n.Store() | n.Copy() if is_true(e.mask):
            return replace(e, mask=None)
        case n.Select() if is_true(e.cond):
            return build.broadcast(e.a, e.type) if isinstance(e.type, TileType) else e.a
        case n.Select() if isinstance(e.b, n.Const):
            return at_edges(e, known)
        case n.Call() if e.fn == "expand" and isinstance(e.args[0], n.Expr):
            return expanded_at_leaves(e.args[0], int(dict(e.attrs)["axis"]))
        case _:
            return e


def _only_sign(e: n.Cast, inner: n.Cast) -> bool:
    """Whether the first of two conversions of an integer makes a number of as many bits as the second, which keeps them: the second alone does the same."""
    own = dtype_of(inner.x.type)
    return own.is_integer and inner.dtype.is_integer and e.dtype.is_integer and inner.dtype.bits == e.dtype.bits and e.rounding == inner.rounding == "rn"


OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


def opposite(e: n.Expr) -> n.Expr | None:
    """The condition that holds where one of comparisons of integers does not, as comparisons; None for others (a comparison of NaN has no opposite)."""
    match e:
        case n.Unary(op="not"):
            return e.x
        case n.Binary(op=op) if op in OPPOSITE and dtype_of(e.a.type).is_integer:
            return build.compare(OPPOSITE[op], e.a, e.b)
        case n.Binary(op="and" | "or" as op):
            a, b = opposite(e.a), opposite(e.b)
            return None if a is None or b is None else build.binary("or" if op == "and" else "and", a, b)
        case _:
            return None


def expanded_at_leaves(e: n.Expr, axis: int) -> n.Expr:
    """`expand(e, axis)`, with the new axis introduced directly at the values that elementwise operations start from."""
    rank = len(shape_of(e.type))

    def inner(x: n.Expr) -> n.Expr:
        own = len(shape_of(x.type))
        at = axis - (rank - own)
        return expanded_at_leaves(x, at) if own and (at > 0 or own == rank) else x

    match e:
        case n.Binary():
            return build.binary(e.op, inner(e.a), inner(e.b))
        case n.Unary():
            return build.unary(e.op, inner(e.x))
        case n.Cast():
            return build.cast(inner(e.x), e.dtype, e.rounding)
        case n.Select():
            return build.select(inner(e.cond), inner(e.a), inner(e.b))
        case n.Call() if e.of is None and instruction(e.fn).level == "element" and instruction(e.fn).is_pure:
            return n.Call(e.fn, tuple(inner(x) if isinstance(x, n.Expr) else x for x in e.args), e.attrs)
        case _:
            return build.expand(e, axis)


def _shaped(value: n.Expr, like: n.Expr) -> n.Expr:
    return build.broadcast(value, like.type) if isinstance(like.type, TileType) else value


def _comparison(e: n.Binary, known: Facts) -> n.Expr:
    a, b = e.a, e.b
    if e in known.holds:
        return _shaped(const(True, BOOL), e)
    answer: bool | None = None
    match e.op:
        case "lt" | "ge":
            answer = True if less(a, b, known) else False if at_most(b, a, known) else None
            answer = answer if e.op == "lt" or answer is None else not answer
        case "le" | "gt":
            answer = True if at_most(a, b, known) else False if less(b, a, known) else None
            answer = answer if e.op == "le" or answer is None else not answer
        case _:
            if less(a, b, known) or less(b, a, known) or d.meet(known.domain(a), known.domain(b)).is_empty:
                answer = e.op == "ne"
            elif at_most(a, b, known) and at_most(b, a, known):
                answer = e.op == "eq"
    return e if answer is None else _shaped(const(answer, BOOL), e)


EXACT = {F32: 1 << 24, F64: 1 << 53}
"""Whole numbers below it in magnitude are numbers of a dtype, and no whole number beyond is rounded to one below."""


def _of_whole(e: n.Binary) -> n.Expr | None:
    """A comparison of a converted whole number with a literal, made on the whole number (`threadIdx.x < blockDim.x / 32.f`)."""
    a, b, op = e.a, e.b, e.op
    if isinstance(b, n.Cast):
        a, b, op = b, a, {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(op, op)
    if not (isinstance(a, n.Cast) and a.dtype in EXACT and isinstance(own := a.x.type, DType) and own.is_integer):
        return None
    value = _literal(b)
    if value is None or abs(value) >= EXACT[a.dtype]:
        return None
    bound = math.ceil(value) if op in ("lt", "ge") else math.floor(value)
    if op in ("eq", "ne") and bound != value:
        return const(op == "ne", BOOL)
    return build.compare(op, a.x, const(bound, own)) if own.range[0] <= bound <= own.range[1] else None


def _literal(e: n.Expr) -> Fraction | None:
    """The value of a floating-point expression of literals, where nothing is rounded in it."""
    match e:
        case n.Const() if isinstance(e.value, float) and math.isfinite(e.value) and rounded(e.value, e.dtype) == e.value:
            return Fraction(e.value)
        case n.Binary() if e.op in ("div", "mul") and isinstance(dtype := e.type, DType):
            a, b = _literal(e.a), _literal(e.b)
            if a is None or b is None or (e.op == "div" and not b):
                return None
            value = a / b if e.op == "div" else a * b
            return value if abs(value) < 1 << 100 and Fraction(rounded(float(value), dtype)) == value else None
        case _:
            return None


def _logical(e: n.Binary) -> n.Expr:
    for x, y in ((e.a, e.b), (e.b, e.a)):
        if y.type != e.type:
            continue
        if e.op == "and" and is_true(x):
            return y
        if e.op == "or" and is_true(x):
            return x if x.type == e.type else _shaped(const(True, BOOL), e)
    return e


def _arithmetic(e: n.Binary, known: Facts) -> n.Expr:
    a, b = e.a, e.b
    value = known.domain(e).value
    if value is not None:
        return _shaped(const(value, dtype_of(e.type)), e)
    match e.op:
        case "tdiv" | "trem" if _sign(a, known) and _sign(b, known):
            return _arithmetic_of(build.binary("floordiv" if e.op == "tdiv" else "mod", a, b), known)
        case "floordiv" | "mod" | "ceildiv" if _sign(b, known, 1) and shape_of(b.type) == ():
            return _rounded_up(e, known) or _division(e, known)
        case "min" | "max":
            if at_most(a, b, known):
                kept = a if e.op == "min" else b
            elif at_most(b, a, known):
                kept = b if e.op == "min" else a
            else:
                return e
            return kept if kept.type == e.type else _shaped(kept, e)
        case _:
            return e


def whole_again(e: n.Expr, known: Facts) -> n.Expr:
    """A sum of products in which `x // c * c` is x, where c is known to divide x: so rows that are counted in vectors, `row * (N // 4) * 4`, are
    rows again. The same value whatever wraps."""
    terms = polynomial(e)
    made: dict[Monomial, int] = {}
    for m, k in terms.items():
        atoms = list(m)
        for at, x in enumerate(atoms):
            c = int_value(x.b) if isinstance(x, n.Binary) and x.op in ("floordiv", "tdiv") else None
            if c and k % c == 0 and isinstance(x, n.Binary) and known.domain(x.a).is_multiple_of(c):
                atoms[at], k = x.a, k // c
        made_of = polynomial(_product(atoms, k, dtype_of(e.type))) if tuple(atoms) != m else {m: k}
        for monomial, count in made_of.items():
            made[monomial] = made.get(monomial, 0) + count
    if made == terms:
        return e
    out = from_polynomial({m: k for m, k in made.items() if k}, dtype_of(e.type))
    return out if out.type == e.type else e


def _product(atoms: list[n.Expr], k: int, dtype: DType) -> n.Expr:
    out: n.Expr = const(k, dtype)
    for x in atoms:
        out = build.mul(out, x)
    return out


def _rounded_up(e: n.Binary, known: Facts) -> n.Expr | None:
    """`(x + c - 1) // c` read as the quotient rounded up."""
    c = int_value(e.b)
    if e.op != "floordiv" or c is None or c < 2 or not known.is_exact(e.a):
        return None
    terms = polynomial(e.a)
    if terms.get(()) != c - 1 or len(terms) < 2:
        return None
    x = from_polynomial({m: k for m, k in terms.items() if m}, dtype_of(e.type))
    return build.ceildiv(x, e.b) if x.type == e.a.type and known.is_exact(x) else None


def _arithmetic_of(e: n.Expr, known: Facts) -> n.Expr:
    return _arithmetic(e, known) if isinstance(e, n.Binary) else e


def _sign(e: n.Expr, known: Facts, least: int = 0) -> bool:
    lo = known.domain(e).lo
    return lo is not None and lo >= least


def _division(e: n.Binary, known: Facts) -> n.Expr:
    """`a op b` with b > 0, a split into `b * whole + rest`."""
    a, b, dtype = e.a, e.b, dtype_of(e.type)
    found = known.domain(a)
    c = int_value(b)
    if e.op in ("mod", "floordiv") and _sign(a, known) and less(a, b, known):
        small = a if e.op == "mod" else const(0, dtype)
        return small if small.type == e.type else _shaped(small, e)
    if e.op == "ceildiv" and c is not None and found.is_multiple_of(c):
        return _arithmetic_of(build.floordiv(a, b), known)
    if not known.is_exact(a):
        return e
    whole, rest = _split(exact_terms(a), b, known)
    if not whole:
        return e
    left = from_polynomial(rest, dtype)
    part = from_polynomial(whole, dtype)
    if not (known.is_exact(left) and known.is_exact(build.mul(part, b))):
        return e
    if left.type != a.type and isinstance(a.type, TileType):
        left = build.broadcast(left, a.type)
    below = build.binary(e.op, left, b)
    below = _arithmetic_of(below, known)
    made = below if e.op == "mod" else build.add(part, below)
    return made if made.type == e.type else e


def _split(terms: Mapping[Monomial, int], b: n.Expr, known: Facts) -> tuple[dict[Monomial, int], dict[Monomial, int]]:
    """The terms that `b` divides, divided, and the others."""
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    c, divisor = int_value(b), polynomial(b)
    for m, k in terms.items():
        if c is not None:
            q, r = divmod(k, c)
            if m == () or r == 0:
                if q:
                    whole[m] = q
                if r:
                    rest[m] = r
                continue
        elif len(divisor) == 1:
            (atoms, factor), = divisor.items()
            remaining = list(m)
            if all(x in remaining and not remaining.remove(x) for x in atoms) and k % factor == 0:  # type: ignore[func-returns-value]  # None is falsy: removed
                whole[tuple(remaining)] = k // factor
                continue
        rest[m] = k
    return whole, rest


__all__ = ["Domain", "is_true", "simplified", "simplify"]
