"""The index in each axis of a tensor of a place in its memory counted from the beginning."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from kir.analysis.bounds import bare
from kir.analysis.facts import Facts
from kir.analysis.order import is_positive, less
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType, dtype_of


def split_index(flat: n.Expr, base: n.Buffer, known: Facts) -> tuple[n.Expr, ...] | None:
    """The index in each axis of a tensor of a flat index over its strides; None where a stride is no single product, or does not divide
    what is left, or an index would leave its axis. Terms go to the axis of the largest stride that divides them; where an index would
    leave its axis, what a stride does not divide of them goes on to the next: `16 * row + 16` is column 16 of row 16."""
    from kir.ir.specialize import row_major

    strides = [bare(s) for s in (base.strides or row_major(base.shape))]
    flat = _with_exact_quotients(bare(flat), known)
    if not isinstance(flat.type, DType):
        return None
    order = sorted(range(len(strides)), key=lambda d: _rank(strides[d]), reverse=True)
    factors: list[tuple[tuple[n.Expr, ...], int]] = []
    for s in strides:
        terms = build.polynomial(s)
        if len(terms) != 1:
            return None
        factors.append(next(iter(terms.items())))
    ones = frozenset(d for d in order if base.shape[d] == build.const(1))
    inner = [d for d in order if d not in ones][1:]
    for shared in (False, True):
        parts = _parts(flat, order, factors, ones, shared)
        if parts is None:
            return None
        made = _from_rows_end([bare(build.from_polynomial(p, flat.type)) for p in parts], parts, order, factors, strides, base, known)
        if not any(_leaves(made[d], base.shape[d], known) for d in inner):
            return made
    return None


def _with_exact_quotients(flat: n.Expr, known: Facts) -> n.Expr:
    """A sum in which `c * (x // c)` is x, where c is known to divide x."""
    if not (isinstance(flat.type, DType) and flat.type.is_integer):
        return flat
    out: dict[tuple[n.Expr, ...], int] = {}
    changed = False
    for monomial, count in build.polynomial(flat).items():
        for a in monomial:
            each = build.int_value(a.b) if isinstance(a, n.Binary) and a.op == "floordiv" else None
            if each and isinstance(a, n.Binary) and count % each == 0 and known.divides(each, a.a):
                rest = list(monomial)
                rest.remove(a)
                whole = build.mul(build.from_polynomial({tuple(rest): count // each}, flat.type), a.a)
                changed = True
                for m, c in build.polynomial(whole).items():
                    out[m] = out.get(m, 0) + c
                break
        else:
            out[monomial] = out.get(monomial, 0) + count
    return build.from_polynomial({m: c for m, c in out.items() if c}, flat.type) if changed else flat


def outermost(index: Sequence[n.Expr], base: n.Buffer) -> n.Expr:
    """The index of the axis with the largest stride: what it leaves over is in the others."""
    from kir.ir.specialize import row_major

    strides = [bare(s) for s in (base.strides or row_major(base.shape))]
    return index[max(range(len(strides)), key=lambda d: _rank(strides[d]))]


def unfolded(index: tuple[n.Expr, ...], base: n.Buffer, known: Facts) -> tuple[n.Expr, ...]:
    """The index of a row-major tensor, where a counter that runs over two axes at once stands for both: `X[0, bh]` with bh below B * H is
    `X[bh // H, bh % H]`."""
    if base.strides is not None:
        return index
    out = list(index)
    for k in range(len(out) - 1):
        both, inner = out[k + 1], bare(base.shape[k + 1])
        if build.is_const(out[k], 0) and isinstance(both.type, DType) and both.type == inner.type and not less(both, inner, known) and is_positive(
                inner, known) and less(both, build.mul(bare(base.shape[k]), inner), known):
            out[k], out[k + 1] = build.floordiv(both, inner), build.mod(both, inner)
    return tuple(out)


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


def _from_rows_end(made: list[n.Expr], parts: Sequence[Mapping[tuple[n.Expr, ...], int]], order: Sequence[int],
                   factors: Sequence[tuple[tuple[n.Expr, ...], int]], strides: Sequence[n.Expr], base: n.Buffer,
                   known: Facts) -> tuple[n.Expr, ...]:
    """Indices where `n * row + n - x`, of which a whole row more would leave the tensor, counts from the row's end."""
    for d, after in pairwise(order):
        whole = parts[d].get((), 0)
        inside = build.sub(made[d], whole)
        lowest = known.domain(known.expanded(made[after])).lo
        if whole > 0 and factors[d][0] and (lowest is None or lowest < 0) and not less(made[d], bare(base.shape[d]), known) and less(
                inside, bare(base.shape[d]), known):
            steps = build.floordiv(strides[d], strides[after]) if not build.is_const(strides[after], 1) else strides[d]
            made[d], made[after] = inside, build.add(made[after], build.mul(steps, whole))
    return tuple(made)


def _removed(rest: list[n.Expr], x: n.Expr) -> bool:
    for i, y in enumerate(rest):
        if _atom(y) == _atom(x):
            del rest[i]
            return True
    return False


def _atom(e: n.Expr) -> n.Expr:
    return e.x if isinstance(e, n.Cast) and dtype_of(e.x.type).is_integer else e


def _rank(stride: n.Expr) -> tuple[int, int]:
    """Strides by size: first by the number of symbolic factors, then by the coefficient."""
    terms = build.polynomial(stride)
    if len(terms) != 1:
        return (0, 0)
    ((atoms, k),) = terms.items()
    return (len(atoms), k)
