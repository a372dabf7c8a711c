"""What masks say of indices: conditions that bound an index within its axis, and indices that are known to lie inside."""
from __future__ import annotations

from collections.abc import Iterator, Sequence

from kir.analysis.facts import Facts
from kir.analysis.integers.widths import as_i32
from kir.analysis.order import is_positive, less
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, Type, dtype_of, shape_of
from kir.ir.visit import walk


def conjuncts(e: n.Expr | None) -> Iterator[n.Expr]:
    """The conditions that a mask is the conjunction of."""
    if isinstance(e, n.Binary) and e.op == "and":
        yield from conjuncts(e.a)
        yield from conjuncts(e.b)
    elif e is not None and not (isinstance(e, n.Const) and e.value is True):
        yield e


def bare(e: n.Expr) -> n.Expr:
    """An integer expression without widenings, in i32 where all its leaves are: equal to the original as a number."""

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Cast) and dtype_of(new.x.type).name == "i32" and new.dtype.name == "i64":
            return new.x
        return new

    found = as_i32(e)
    if found is not None:
        return found
    return leave(e, e) if isinstance(e, n.Expr) else e  # type: ignore[return-value]  # leave keeps expressions


def says_bound(atom: n.Expr, index: n.Expr, extent: n.Expr) -> bool:
    """Whether a condition says that an index lies inside its axis, on one side or the other."""
    if not isinstance(atom, n.Binary) or not dtype_of(atom.a.type).is_integer:
        return False
    a, b, i, d = bare(atom.a), bare(atom.b), bare(index), bare(extent)
    match atom.op:
        case "lt":
            return (_same(a, i) and _same(b, d)) or _same_distance(a, b, i, d)
        case "gt":
            return (_same(b, i) and _same(a, d)) or _same_distance(b, a, i, d)
        case "le":
            return (_same(a, i) and _same(build.add(b, 1), d)) or (build.is_const(a, 0) and _same(b, i))
        case "ge":
            return (_same(b, i) and _same(build.add(a, 1), d)) or (_same(a, i) and build.is_const(b, 0))
        case _:
            return False


def _same_distance(a: n.Expr, b: n.Expr, i: n.Expr, d: n.Expr) -> bool:
    """Whether `a < b` says `i < d` of an index that begins at a place `i - a` from 0 on: `j < K - k * 32` of `k * 32 + j`."""
    if not a.type == b.type == i.type == d.type:
        return False
    start = build.sub(i, a)
    return all(c > 0 for c in build.polynomial(start).values()) and _same(build.add(b, start), d)


def holds(atom: n.Expr, known: Facts) -> bool:
    """Whether a condition `x >= 0` is known to hold."""
    if not isinstance(atom, n.Binary) or atom.op != "ge" or not build.is_const(atom.b, 0):
        return False
    lo = known.domain(known.expanded(atom.a)).lo
    return lo is not None and lo >= 0


def below(atom: n.Expr, known: Facts) -> bool:
    """Whether a condition `x < y` is known to hold."""
    return isinstance(atom, n.Binary) and atom.op == "lt" and dtype_of(atom.a.type).is_integer and inside(bare(atom.a), bare(atom.b), known)


def says_chunk(atom: n.Expr, index: n.Expr, extent: n.Expr, known: Facts) -> bool:
    """Whether a condition says of the first of some neighbors that it lies inside an axis, whose extent the chunks of neighbors divide:
    then they all do, or none."""
    if not (isinstance(atom, n.Binary) and atom.op in ("lt", "ge") and dtype_of(atom.a.type).is_integer):
        return False
    a, i, d = bare(atom.a), bare(index), bare(extent)
    if atom.op == "ge":
        return build.is_const(atom.b, 0) and a.type == i.type and any(_same(a, first) for first in _firsts(i, d, known))
    return _same(bare(atom.b), d) and a.type == i.type and any(_same(a, first) for first in _firsts(i, d, known))


def says_both(atoms: Sequence[n.Expr], index: n.Expr, extent: n.Expr, known: Facts) -> bool:
    """Whether the conditions that bound an index, and what is known, say of both sides that it lies inside its axis."""
    def low(a: n.Expr) -> bool:
        return isinstance(a, n.Binary) and ((a.op == "ge" and build.is_const(a.b, 0)) or (a.op == "le" and build.is_const(a.a, 0)))
    return (any(map(low, atoms)) or _from_zero(known.expanded(index), known)) and (inside(index, extent, known) or not all(map(low, atoms)))


def _from_zero(e: n.Expr, known: Facts) -> bool:
    """Whether an integer is at least 0, by what is known or by what it is made of. What is divided by, or counted round, is above 0, as where it is 0 nothing
    is said and no grid counts round less; not where memory holds it."""
    if (least := known.domain(e).lo) is not None and least >= 0:
        return True
    match e:
        case n.Binary(op="floordiv" | "tdiv" | "ceildiv" | "trem" | "mod") if not any(isinstance(x, n.Load) for x in walk(e.b)):
            positive = (most := known.domain(e.b).hi) is None or most > 0
            return (_from_zero(e.a, known) and (e.op == "trem" or positive)) or (e.op == "mod" and _from_zero(e.b, known))
        case n.Binary(op="add" | "mul" | "min" | "shr" | "shl"):
            return _from_zero(e.a, known) and _from_zero(e.b, known)
        case n.Binary(op="max" | "and"):
            return _from_zero(e.a, known) or _from_zero(e.b, known)
        case n.Select():
            return _from_zero(e.a, known) and _from_zero(e.b, known)
        case n.Cast():
            return dtype_of(e.x.type).is_integer and _from_zero(e.x, known)
        case _:
            return False


def inside(index: n.Expr, extent: n.Expr, known: Facts) -> bool:
    """Whether an index is known to be below an extent, be it because the first of its chunk is, or what it is a quotient of below a multiple."""
    return less(index, extent, known) or any(less(first, extent, known) for first in _firsts(index, extent, known)) or _is_quotient(
        known.expanded(index), extent, known)


def _is_quotient(e: n.Expr, extent: n.Expr, known: Facts) -> bool:
    """Whether an index is `x // c` with x below `c * extent`."""
    return (isinstance(e, n.Binary) and e.op == "floordiv" and e.b.type == extent.type and is_positive(e.b, known)
            and less(e.a, build.mul(e.b, extent), known))


def _firsts(index: n.Expr, extent: n.Expr, known: Facts) -> Iterator[n.Expr]:
    """An index without a variable that counts neighbors in chunks, which divide where they begin and the extent."""
    for monomial, c in build.polynomial(index).items():
        if c == 1 and len(monomial) == 1 and isinstance(monomial[0], n.Var):
            reach, first = known.domain(monomial[0]), build.sub(index, monomial[0])
            if reach.lo == 0 and reach.hi and reach.hi > 0 and known.divides(reach.hi + 1, first) and known.divides(reach.hi + 1, extent):
                yield first


def _same(a: n.Expr, b: n.Expr) -> bool:
    return a == b or (a.type == b.type and build.is_const(build.sub(a, b), 0))


def axes_of(t: Type) -> list[tuple[n.Var, int | n.Expr]]:
    """A variable for each axis of a tile."""
    return [(n.Var(f"%{k}", I32), d) for k, d in enumerate(shape_of(t))]


def known_axes(known: Facts, axes: Sequence[tuple[n.Var, int | n.Expr]]) -> Facts:
    """Facts with the ranges of the axis variables."""
    for v, d in axes:
        known = known.ranging(v, build.const(0), build.const(d) if isinstance(d, int) else d)
    return known
