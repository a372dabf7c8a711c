"""Whether shared memory has been written wherever it is read, by what comes before in the text: by trying every thread and every trip of constant loops."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kir.analysis.proof.asking.question import Ranging
from kir.analysis.proof.indices.widths import conjuncts
from kir.analysis.proof.sites import Access
from kir.analysis.proof.values import TRUE
from kir.analysis.simplify import opposite
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import dtype_of
from kir.ir.visit import names_read

MOST = 1 << 20
"""Combinations of threads, trips and elements that are tried for one store."""
Axes = list[tuple[str, range]]


def covered(reading: Access, writes: Iterable[Access], holds: Callable[[n.Expr], bool], by_all: Callable[[Access], bool] = lambda w: True) -> bool:
    """Whether stores before an access define all of its memory, or all of the part with an index that both have in common, or as much of these as the access
    reaches. `holds` says whether a condition follows from what holds at the access: what guards a store, said of its index, must hold of the index that is
    read. `by_all` says whether all threads that a store's conditions tell come to it: none has left before; who reads what it wrote itself has not."""
    shape = [int_value(d) for d in reading.buffer.shape]
    if not reading.plain or any(d is None for d in shape):
        return False
    sizes = [int(d) for d in shape if d is not None]
    fixed: dict[tuple[int, ...], Any] = {}
    for w in writes:
        if w.verb != "write" or not w.plain or w.late or w.buffer != reading.buffer or not stands_before(w, reading):
            continue
        if _own(w, reading):
            return True
        if not by_all(w):
            continue
        common = {v.name for v in w.place.scope} & {v.name for v in reading.place.scope} - {w.place.thread, reading.place.thread}
        told = _hits(w, reading, sizes, common, holds)
        if told is None:
            continue
        dims, hit = told
        if dims not in fixed:
            fixed[dims] = np.zeros([1 if k in dims else d for k, d in enumerate(sizes)], np.bool_)
        fixed[dims] |= hit
    if any(bool(f.all()) for f in fixed.values()):
        return True
    return any(need is not None and not bool((need & ~f).any()) for f, need in ((f, _reached(reading, sizes, dims)) for dims, f in fixed.items()))


def _own(w: Access, r: Access) -> bool:
    """Whether a thread reads what a store of its own has just put there, whatever others do."""
    both = {v.name for v in w.place.scope} & {v.name for v in r.place.scope}
    own = {v.name for v in w.place.scope} <= both and not w.elements and w.place.thread == r.place.thread and w.index == r.index
    return own and {*w.place.holding} <= {*r.place.holding} and w.mask in (TRUE, r.mask)


def _reached(r: Access, sizes: Sequence[int], dims: tuple[int, ...]) -> Any | None:
    """Where an access may read, in all dimensions but `dims`, which it has in common with the stores: by every value of constant ranges, and all conditions
    that speak of these alone; None where its index takes more than that."""
    index = [i for k, i in enumerate(r.index) if k not in dims]
    wanted = {name for i in index for name in names_read(i)}
    axes: Axes = []
    for v, lo, hi in (*((h.var, h.lo, h.hi) for h in r.place.holding if isinstance(h, Ranging)), *((v, build.const(0), d) for v, d in r.elements)):
        first, last = int_value(lo), hi if isinstance(hi, int) else int_value(hi)
        if v.name in wanted:
            if first is None or last is None:
                return None
            axes.append((v.name, range(first, last)))
    at = _spread(axes)
    if at is None:
        return None
    keep: Any = np.ones((1,) * len(axes), np.bool_)
    for c in (x for each in (*(h for h in r.place.holding if not isinstance(h, Ranging)), r.mask) for x in conjuncts(each)):
        if names_read(c) <= at.keys() and (found := numbers(c, at)) is not None:
            keep = keep & found
    where = [np.zeros((1,) * len(axes), np.int64) if k in dims else numbers(i, at) for k, i in enumerate(r.index)]
    return None if any(x is None for x in where) else _marked(keep, where, sizes, dims)


def _spread(axes: Axes) -> dict[str, Any] | None:
    """Each variable's values along an axis of its own; None for more than `MOST` together."""
    if np.prod([len(a) for _, a in axes], dtype=np.float64) > MOST:
        return None
    return {name: np.arange(a.start, a.stop).reshape((-1,) + (1,) * (len(axes) - 1 - k)) for k, (name, a) in enumerate(axes)}


def _marked(keep: Any, where: Sequence[Any], sizes: Sequence[int], dims: tuple[int, ...]) -> Any:
    """The places of an index within its memory where `keep` holds; one for all in `dims`."""
    hit = np.zeros([1 if k in dims else d for k, d in enumerate(sizes)], np.bool_)
    chosen, *places = np.broadcast_arrays(keep, *where)
    picked = tuple(np.asarray(x)[chosen] for x in places)
    inside = np.ones(int(chosen.sum()), np.bool_)
    for x, d in zip(picked, hit.shape, strict=True):
        inside &= (x >= 0) & (x < d)
    hit[tuple(x[inside] for x in picked)] = True
    return hit


def _of_index(c: n.Expr, w: Access, r: Access, own: frozenset[str]) -> n.Expr | None:
    """A condition on a store as one on its index, read at the index of an access; None for a condition on anything else of the store. That others have left
    is such a condition too: `not i >= n`."""
    c = (opposite(c.x) or c) if isinstance(c, n.Unary) and c.op == "not" else c
    if not isinstance(c, n.Binary) or c.op not in n.COMPARISONS or not dtype_of(c.a.type).is_integer:
        return None
    sides: list[n.Expr] = []
    for side in (c.a, c.b):
        made = side if names_read(side).isdisjoint(own) else None
        for i, j in zip(w.index, r.index, strict=True):
            if made is None and i.type == side.type == j.type and names_read(rest := build.sub(side, i)).isdisjoint(own):
                made = build.add(rest, j)
        if made is None:
            return None
        sides.append(made)
    return build.compare(c.op, *sides)


def stands_before(w: Access, r: Access) -> bool:
    """Whether a store stands before an access in one of the blocks around it: roles run beside one another."""
    a, b = w.place.path, r.place.path
    k = next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if k is None:
        return False
    x, y = a[k], b[k]
    return isinstance(x, int) and isinstance(y, int) and x < y and (k == 0 or a[k - 1] != "roles")


def _hits(w: Access, r: Access, sizes: Sequence[int], common: set[str],
          holds: Callable[[n.Expr], bool]) -> tuple[tuple[int, ...], Any] | None:
    """The dimensions in which a store has the index of the access, and where it writes in the others."""
    shared = {h for h in r.place.holding if not isinstance(h, Ranging)}
    axes: Axes = []
    for h in w.place.holding:
        if isinstance(h, Ranging) and h.var.name in common and w.place.thread in names_read(h.lo) | names_read(h.hi):
            return None
        if isinstance(h, Ranging) and h.var.name not in common:
            lo, hi = int_value(h.lo), int_value(h.hi)
            if lo is None or hi is None:
                return None
            axes.append((h.var.name, range(lo, hi)))
    for v, d in w.elements:
        size = d if isinstance(d, int) else int_value(d)
        if size is None:
            return None
        axes.append((v.name, range(size)))
    at = _spread(axes)
    if at is None:
        return None
    conditions = [*(h for h in w.place.holding if not isinstance(h, Ranging) and (h not in shared or names_read(h) & at.keys())), w.mask]
    keep: Any = np.ones((1,) * len(axes), np.bool_)
    for c in (x for each in conditions for x in conjuncts(each)):
        found = numbers(c, at)
        if found is not None:
            keep = keep & found
            continue
        said = _of_index(c, w, r, frozenset(at))
        if said is None or not holds(said):
            return None
    dims = tuple(k for k, (a, b) in enumerate(zip(w.index, r.index, strict=True)) if a == b and names_read(a) <= common and int_value(a) is None)
    where = []
    for k, i in enumerate(w.index):
        found = np.zeros((1,) * len(axes), np.int64) if k in dims else numbers(i, at)
        if found is None:
            return None
        where.append(found)
    return dims, _marked(keep, where, sizes, dims)


def numbers(e: n.Expr, at: Mapping[str, Any]) -> Any | None:
    """An integer expression at many values of its variables; None for one that is not of these alone, or wraps at one of them."""
    found = _number(e, at)
    of = dtype_of(e.type)
    if found is None or of.is_bool or not found.size:
        return found
    least, most = of.range if of.is_integer else (0, 0)
    return found if of.is_integer and found.min() >= least and found.max() <= most else None


def _number(e: n.Expr, at: Mapping[str, Any]) -> Any | None:
    match e:
        case n.Const():
            return np.asarray(e.value)
        case n.Var():
            return at.get(e.name)
        case n.Unary() | n.Cast() if (x := numbers(e.x, at)) is not None:
            if isinstance(e, n.Cast):
                return x if dtype_of(e.type).is_integer and dtype_of(e.x.type).is_integer and e.rounding == "rn" else None
            return -x if e.op == "neg" else ~x if dtype_of(e.type).is_bool else None
        case n.Binary() if (a := numbers(e.a, at)) is not None and (b := numbers(e.b, at)) is not None:
            return _combined(e.op, a, b)
        case _:
            return None


def _combined(op: str, a: Any, b: Any) -> Any | None:
    simple = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
              "xor": np.bitwise_xor, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
              "shl": np.left_shift, "shr": np.right_shift}
    if op in simple:
        return simple[op](a, b)
    if op in ("floordiv", "mod") and bool((np.asarray(b) > 0).all()):
        return np.floor_divide(a, b) if op == "floordiv" else np.mod(a, b)
    if op in ("tdiv", "trem") and bool((np.asarray(b) > 0).all()) and bool((np.asarray(a) >= 0).all()):
        return np.floor_divide(a, b) if op == "tdiv" else np.mod(a, b)
    return None
