"""Closed forms: an integer buffer that a loop only advances by an invariant amount becomes a function of the loop variable.

Address arithmetic is taken not to wrap: `i64(BLOCK * stride)` advanced over a loop of step BLOCK is `i64(stride) * i64(k)`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import DType, TileType, dtype_of
from kir.ir.visit import transform, walk

from ..values.emitter import buffer_read, mentions
from ..values.operators import not_negative, truncating


def closed_forms(
    var: n.Var, lo: n.Expr, hi: n.Expr, step: n.Expr, body: Sequence[n.Stmt], mutable: set[str], counts: Collection[str] = ()
) -> tuple[list[n.Stmt], dict[str, n.Expr]]:
    """The body with such buffers no longer written, and each one's value after the loop, as an expression over its value before. `counts` are
    names that are never negative."""
    out = list(body)
    finals: dict[str, n.Expr] = {}
    stores: dict[str, int] = {}
    if any(isinstance(x, (n.Opaque, n.Jump)) for s in body for x in walk(s) if isinstance(x, n.Stmt)):
        return out, finals
    for s in body:
        for x in walk(s):
            if isinstance(x, n.Store):
                stores[x.at.buffer.name] = stores.get(x.at.buffer.name, 0) + 1
            elif isinstance(x, n.Mma):
                stores[x.acc.buffer.name] = 2
            elif isinstance(x, n.Alloc):
                stores.pop(x.buffer.name, None)
    inner = set(bound_names(tuple(body))) | {var.name}
    for name, count in stores.items():
        if count != 1 or name not in mutable:
            continue
        found = _advance(out, name)
        if found is None:
            continue
        at, buffer, amount = found
        if mentions(amount, inner | set(stores)):
            continue
        entry = n.Load(n.Region(buffer))
        first = build.add(*_aligned(entry, _times(var, lo, step, amount, 0)))
        second = build.add(*_aligned(entry, _times(var, lo, step, amount, 1)))
        if first.type != entry.type:
            continue
        out = [*(_replaced(s, buffer, first) for s in out[:at]), *(_replaced(s, buffer, second) for s in out[at + 1 :])]
        trips = build.cast(_trips(build.sub(hi, lo), step, counts), dtype_of(amount.type))
        finals[name] = build.add(*_aligned(entry, build.mul(trips, amount)))
    return out, finals


def _trips(span: n.Expr, step: n.Expr, counts: Collection[str]) -> n.Expr:
    """How often a loop goes round, in words that Triton has: its division truncates, so what may be negative is cut off before it is divided."""
    if not_negative(span, counts) and not_negative(step, counts):
        return build.maximum(build.ceildiv(span, step), 0)
    return truncating("floordiv", build.add(build.maximum(span, 0), build.sub(step, 1)), step, counts)


def _aligned(a: n.Expr, b: n.Expr) -> tuple[n.Expr, n.Expr]:
    return a, b


def _advance(body: Sequence[n.Stmt], name: str) -> tuple[int, n.Buffer, n.Expr] | None:
    """The one top-level statement `x = x + amount` of an integer buffer."""
    for i, s in enumerate(body):
        if isinstance(s, n.Store) and s.at.buffer.name == name and not s.at.index and s.mask is None:
            buffer = s.at.buffer
            if not buffer.dtype.is_integer:
                return None
            entry = n.Load(n.Region(buffer))
            amount = build.sub(s.value, entry)
            if any(buffer_read(x) == buffer for x in walk(amount) if isinstance(x, n.Expr)):
                return None
            return i, buffer, amount
    return None


def _times(var: n.Var, lo: n.Expr, step: n.Expr, amount: n.Expr, more: int) -> n.Expr:
    """(trip + more) * amount, where trip = (var - lo) / step."""
    dtype = dtype_of(amount.type)
    quotient = divided(amount, step)
    if quotient is not None:
        at = build.add(build.sub(var, lo), build.mul(step, more))
        return build.mul(build.cast(at, dtype) if at.type == var.of else at, quotient)
    # var - lo is a multiple of step and not negative, so that truncating division, which Triton has, is exact.
    trip = build.add(build.binary("tdiv", build.sub(var, lo), step), more)
    return build.mul(build.cast(trip, dtype), amount)


def divided(amount: n.Expr, step: n.Expr) -> n.Expr | None:
    """amount / step as a polynomial, looking through a widening; None where it does not divide."""
    if isinstance(amount, n.Cast) and amount.rounding == "rn" and dtype_of(amount.x.type).is_integer:
        inner = divided(amount.x, step if dtype_of(step.type) == dtype_of(amount.x.type) else build.cast(step, dtype_of(amount.x.type)))
        return None if inner is None else build.cast(inner, amount.dtype)
    dtype = dtype_of(amount.type)
    if isinstance(amount.type, TileType) or not dtype.is_integer:
        return None
    own = build.cast(step, dtype) if dtype_of(step.type) != dtype else step
    terms = build.polynomial(own)
    if len(terms) != 1:
        return None
    ((factors, c),) = terms.items()
    if c == 0:
        return None
    out: dict[tuple[n.Expr, ...], int] = {}
    for monomial, k in build.polynomial(amount).items():
        rest = list(monomial)
        for f in factors:
            if f not in rest:
                return None
            rest.remove(f)
        if k % c:
            return None
        out[tuple(rest)] = k // c
    assert isinstance(dtype, DType)
    return build.from_polynomial(out, dtype)


def _replaced(s: n.Stmt, buffer: n.Buffer, value: n.Expr) -> n.Stmt:
    def leave(old: n.Node, new: n.Node) -> n.Node:
        return value if isinstance(new, n.Expr) and buffer_read(new) == buffer else new

    result: n.Stmt = transform(s, leave)
    return result
