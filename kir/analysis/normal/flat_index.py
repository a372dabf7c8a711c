"""The index in each axis of a tensor of a place in its memory counted from the beginning."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from kir.analysis.bounds import bare
from kir.analysis.facts import Facts
from kir.analysis.integers.long_division import divided
from kir.analysis.normal.rows import rank, stay_within
from kir.analysis.order import bound, is_positive, less
from kir.analysis.simplify import whole_again
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import row_major
from kir.ir.printer import expr_text
from kir.ir.types import I64, DType, dtype_of
from kir.ir.visit import walk

MOST_ROWS = 8
"""Rows that a place may lie before the end of one."""


def split_index(flat: n.Expr, base: n.Buffer, known: Facts, masks: Sequence[n.Expr] = (), trusted: bool = False) -> tuple[n.Expr, ...] | None:
    """The index in each axis of a tensor of a flat index over its strides, for the elements that masks let through; None where a stride is no
    single product, or does not divide what is left, or counts rows by a part of one (`row * (N // 4) * 4`, where 4 may not divide N), or where
    no way to take the flat index apart is proved to keep each index within its axis (`kir.analysis.normal.rows`): then it is no row and column, but a
    place in memory. `trusted` is for tensors of which the binding says that flat indices keep to their row: a way that is not proved will do, if no other
    one keeps what counts neighbors from zero on.

    Terms go to the axis of the largest stride that divides them; where that leaves an axis, what a stride does not divide of them goes on to
    the next: `16 * row + 16` is column 16 of row 16."""
    if trusted:
        ways = list(_ways(flat, base, known))
        index = next((way for way in ways if _from_zero(way, known)), ways[0] if ways else None)
        if index is not None and _of_numbers(base) and not stay_within(index, base, masks, known):
            index = next((way for way in ways if stay_within(way, base, masks, known)), None)
        return None if index is None or may_leave_rows(index, base, known) else index
    return next((index for index in _ways(flat, base, known) if stay_within(index, base, masks, known)), None)


def _from_zero(index: Sequence[n.Expr], known: Facts) -> bool:
    """Whether all but the first of some indices are known not to be negative."""
    return all((low := known.domain(known.expanded(i)).lo) is not None and low >= 0 for i in index[1:])


def _of_numbers(base: n.Buffer) -> bool:
    """Whether a row is a number of elements: then any number in a flat index may be rows, or not, and a way that is not proved is a guess."""
    strides = [bare(s) for s in (base.strides or row_major(base.shape))]
    return any(build.int_value(s) not in (None, 1) for s, d in zip(strides, base.shape, strict=True) if not build.is_const(d, 1))


def _ways(flat: n.Expr, base: n.Buffer, known: Facts) -> Iterator[tuple[n.Expr, ...]]:
    """Indices whose sum over the strides is a flat index, the likeliest first."""
    strides, flat = [bare(s) for s in (base.strides or row_major(base.shape))], bare(flat)
    if not isinstance(flat.type, DType):
        return
    found = list(_split(flat, strides, base, known))
    if not found:
        whole, rows = whole_again(flat, known), [whole_again(s, known) for s in strides]
        found = [] if whole == flat and rows == strides else list(_split(whole, rows, base, known))
        found = found or list(_by_sums(flat, strides))
    for index in found:
        made = unfolded(index, base, known)
        yield made
        if made != index:
            yield index


def _split(flat: n.Expr, strides: Sequence[n.Expr], base: n.Buffer, known: Facts) -> Iterator[tuple[n.Expr, ...]]:
    """The ways of one spelling of a flat index."""
    order = sorted(range(len(strides)), key=lambda d: rank(strides[d]), reverse=True)
    factors: list[tuple[tuple[n.Expr, ...], int]] = []
    for s in strides:
        terms = build.polynomial(s)
        if len(terms) != 1:
            return
        factors.append(next(iter(terms.items())))
    ones = frozenset(d for d in order if base.shape[d] == build.const(1))
    inner = [d for d in order if d not in ones][1:]
    for shared in (False, True):
        parts = _parts(flat, order, factors, ones, shared)
        if parts is None:
            return
        made = _from_rows_end([bare(build.from_polynomial(p, dtype_of(flat.type))) for p in parts], parts, order, factors, strides, base, known)
        if any(_leaves(made[d], base.shape[d], known) for d in inner):
            continue
        if inner and _rows_within(made, order[0], inner, factors[order[0]][0], base):
            return
        yield made


def _by_sums(flat: n.Expr, strides: Sequence[n.Expr]) -> Iterator[tuple[n.Expr, ...]]:
    """The way that division with remainder gives, by one stride after the other, where one is a sum: `(H + 1) * row + column` over rows of H + 1."""
    dtype = dtype_of(flat.type)
    if all(len(build.polynomial(s)) == 1 for s in strides):
        return

    def terms_of(e: n.Expr) -> dict[tuple[n.Expr, ...], int]:
        out: dict[tuple[n.Expr, ...], int] = {}
        for m, c in build.polynomial(e).items():
            alike = tuple(sorted((build.cast(_atom(x), dtype) for x in m), key=expr_text))
            out[alike] = out.get(alike, 0) + c
        return out
    left, index = terms_of(flat), list[n.Expr]([build.const(0, dtype)] * len(strides))
    for d in sorted(range(len(strides)), key=lambda d: rank(strides[d]), reverse=True):
        part, left = divided(left, terms_of(strides[d]))
        index[d] = bare(build.from_polynomial(part, dtype))
    if not left:
        yield tuple(index)


def outermost(index: Sequence[n.Expr], base: n.Buffer) -> n.Expr:
    """The index of the axis with the largest stride: what it leaves over is in the others."""
    strides = [bare(s) for s in (base.strides or row_major(base.shape))]
    return index[max(range(len(strides)), key=lambda d: rank(strides[d]))]


def unfolded(index: tuple[n.Expr, ...], base: n.Buffer, known: Facts) -> tuple[n.Expr, ...]:
    """The index of a row-major tensor, where a counter that runs over several axes at once stands for all of them: `X[0, bh]` with bh below
    B * H is `X[bh // H, bh % H]`."""
    if base.strides is not None:
        return index
    out, shape = list(index), [bare(d) for d in base.shape]
    for last in range(1, len(out)):
        both, inner = out[last], shape[last]
        if not (build.is_const(out[last - 1], 0) and isinstance(both.type, DType) and both.type == inner.type) or less(both, inner, known):
            continue
        sizes = [inner]
        for first in range(last - 1, -1, -1):
            if not build.is_const(out[first], 0) or not all(is_positive(d, known) for d in sizes[:1]):
                break
            sizes.insert(0, build.mul(shape[first], sizes[0]))
            if less(both, sizes[0], known):
                for k in range(first, last + 1):
                    whole = both if k == last else build.floordiv(both, sizes[k - first + 1])
                    out[k] = whole if k == first else build.mod(whole, shape[k])
                break
    return tuple(out)


def may_leave_rows(index: tuple[n.Expr, ...], base: n.Buffer, known: Facts) -> bool:
    """Whether an index of a row-major tensor that says nothing of rows may be beyond the first one: then it counts elements of the tensor."""
    if base.strides is not None or len(index) < 2 or not all(build.is_const(i, 0) for i in index[:-1]):
        return False
    last, extent = index[-1], bare(base.shape[-1])
    return isinstance(last.type, DType) and not all(build.is_const(d, 1) for d in base.shape[:-1]) and not (
        last.type == extent.type and (less(last, extent, known) or less(known.expanded(last), extent, known)))


def _parts(flat: n.Expr, order: Sequence[int], factors: Sequence[tuple[tuple[n.Expr, ...], int]], ones: frozenset[int],
           shared: bool) -> list[dict[tuple[n.Expr, ...], int]] | None:
    """The terms of a flat index by axis, divided by its stride; `shared` are the terms of which a stride divides a part. None where a term
    is left over."""
    parts: list[dict[tuple[n.Expr, ...], int]] = [{} for _ in factors]
    for monomial, c in build.polynomial(flat).items():
        for d in order:
            atoms, k = factors[d]
            rest = list(monomial)
            if d in ones or k == 0 or not (c % k == 0 or shared) or not all(_removed(rest, x) for x in atoms):
                continue
            count = c // k if c % k == 0 or not monomial else int(c / k)
            if count:
                parts[d][tuple(rest)] = parts[d].get(tuple(rest), 0) + count
            c -= count * k
            if c == 0:
                break
        if c:
            return None
    return parts


def _leaves(index: n.Expr, extent: n.Expr, known: Facts) -> bool:
    """Whether an index is known to lie outside its axis: wherever it is, or, of one that counts neighbors alone, somewhere."""
    size, reach = build.int_value(extent), known.domain(known.expanded(index))
    if reach.lo is None or reach.hi is None or size is None:
        return reach.hi is not None and reach.hi < 0
    neighbors = all(isinstance(x, n.Var) and x.name.startswith("%") for monomial in build.polynomial(index) for x in monomial)
    return reach.lo >= size or reach.hi < 0 or (neighbors and (reach.lo < 0 or reach.hi >= size))


def _rows_within(index: Sequence[n.Expr], first: int, inner: Sequence[int], row: Sequence[n.Expr], base: n.Buffer) -> bool:
    """Whether what should count rows was left within one: nothing goes to the first axis, and something times a part of a row to another."""
    return build.is_const(index[first], 0) and not build.is_const(base.shape[first], 1) and any(
        len(m) > 1 and any(x != part and (part in walk(x) or x in walk(part)) for x in m for part in row) for d in inner for m in build.polynomial(index[d]))


def _from_rows_end(made: list[n.Expr], parts: Sequence[Mapping[tuple[n.Expr, ...], int]], order: Sequence[int],
                   factors: Sequence[tuple[tuple[n.Expr, ...], int]], strides: Sequence[n.Expr], base: n.Buffer,
                   known: Facts) -> tuple[n.Expr, ...]:
    """Indices where `n * row + n - x`, of which a whole row more would leave the tensor, counts from the row's end."""
    for d, after in pairwise(order):
        whole, lowest, end = parts[d].get((), 0), known.domain(known.expanded(made[after])).lo, bare(base.shape[d])
        highest = bound(build.polynomial(made[after]), known).hi
        if whole <= 0 and highest is not None and highest < 0:  # `n * (m - row - 1) + n - x`: the whole row and the one less are nothing
            whole = 1
        if whole <= 0 or not factors[d][0] or (lowest is not None and lowest >= 0) or less(made[d], end, known):
            continue
        for rows in range(1, min(whole, MOST_ROWS) + 1):
            inside = build.sub(made[d], rows)
            if less(inside, end, known):
                steps = build.floordiv(strides[d], strides[after]) if not build.is_const(strides[after], 1) else strides[d]
                back, step = made[after], build.mul(steps, rows)
                if back.type != step.type:
                    back, step = build.cast(back, I64), build.cast(step, I64)
                made[d], made[after] = inside, build.add(back, step)
                break
    return tuple(made)


def _removed(rest: list[n.Expr], x: n.Expr) -> bool:
    for i, y in enumerate(rest):
        if _atom(y) == _atom(x):
            del rest[i]
            return True
    return False


def _atom(e: n.Expr) -> n.Expr:
    return e.x if isinstance(e, n.Cast) and dtype_of(e.x.type).is_integer else e
