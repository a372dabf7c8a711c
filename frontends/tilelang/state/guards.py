"""Places that may lie outside of their buffer: what TileLang checks of an atomic operation's, and loads that count under a condition alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kir.analysis.bounds import conjuncts, says_both
from kir.analysis.elements import tile
from kir.analysis.facts import Facts
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, dtype_of
from kir.ir.visit import transform, walk

from ..values.arithmetic import convert
from ..values.values import Place
from .reader import Reader


def within(r: Reader, p: Place) -> n.Expr | None:
    """The condition that a place of global memory (its elements, where it is a region) lies inside; None where that is plain."""
    if p.buffer.space != "global":
        return None
    axes: list[tuple[n.Var, n.Expr | int]] = []
    found: list[n.Expr] = []
    for i, extent in zip(p.index, p.buffer.shape, strict=True):
        if isinstance(i, n.Span):
            if build.is_const(i.lo, 0) and _same(i.extent, extent):
                axes.append((n.Var(f"%{len(axes)}", I32), i.extent))
                continue
            axes.append((n.Var(f"%{len(axes)}", I32), i.extent))
            at = build.add(i.lo, convert(axes[-1][0], dtype_of(i.lo.type)))
        else:
            at = i
        if not _positive(r, at):
            found.append(build.compare("ge", at, convert(build.const(0), dtype_of(at.type))))
        if not (isinstance(at, n.Var) and r.inside.get(at.name) == extent):
            found.append(build.compare("lt", at, convert(extent, dtype_of(at.type))))
    made: n.Expr | None = None
    for each in found:
        made = joined(made, each)
    return None if made is None else tile(made, axes, False)


def joined(mask: n.Expr | None, more: n.Expr | None) -> n.Expr | None:
    """Both conditions, without what the first says already."""
    said = set(conjuncts(mask))
    for each in conjuncts(more):
        if each not in said:
            mask = each if mask is None else build.logical_and(mask, each)
    return mask


def _same(a: int | n.Expr, b: n.Expr) -> bool:
    return a == b if isinstance(a, n.Expr) else build.is_const(b, a)


def _positive(r: Reader, e: n.Expr) -> bool:
    """Whether an index cannot be negative as it is written: places of CTAs, counts of loops, sizes, and what is made of them."""
    match e:
        case n.Const():
            return e.value >= 0
        case n.Var():
            return e == r.threads or e.name in r.inside or e.name.startswith("%") or any(e.name == a.name for a in r.grid) or any(
                e.name == p.name for p in r.sizes.values()) or e.name == r.thread or ((held := r.meaning(e)) != e and _positive(r, held))
        case n.Binary(op="add" | "mul" | "min" | "floordiv" | "shr"):
            return _positive(r, e.a) and _positive(r, e.b)
        case n.Binary(op="mod", b=n.Const(value=k)):
            return k > 0
        case n.Cast():
            return dtype_of(e.type).is_integer and _positive(r, e.x)
        case _:
            return False


@contextmanager
def inside_where(r: Reader, cond: n.Expr | None) -> Iterator[None]:
    """What is read where a condition holds: values that it says to lie below a bound, and that cannot be negative, count as a loop's variable does."""
    found = {c.a.name: c.b for c in conjuncts(cond) if isinstance(c, n.Binary) and c.op == "lt" and isinstance(c.a, n.Var) and c.a.name not in r.inside
             and _positive(r, c.a)}
    r.inside.update(found)
    try:
        yield
    finally:
        for name in found:
            del r.inside[name]


def guarded(r: Reader, e: n.Expr, where: n.Expr | None = None) -> n.Expr:
    """An expression that counts only `where` a condition holds: loads that may lie outside their buffer elsewhere read 0 there. TileLang keeps accesses to
    global memory inside itself; what lies outside of memory of a CTA where the condition holds is no element of it, and stays so."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if not isinstance(new, n.Load) or new.clip or not new.at.index or plainly_inside(r, new.at):
            return new
        if where is not None and new.at.buffer.space != "global" and not _by_its_loops(r, new.at):
            return build.load(new.at, joined(where, new.mask), r.outside_value(new.at.buffer), False)
        return build.load(new.at, new.mask, r.outside_value(new.at.buffer), True)

    made: n.Expr = transform(e, leave, lambda x: not isinstance(x, n.Buffer))
    return made


def _by_its_loops(r: Reader, at: n.Region) -> bool:
    """Whether each index of a place lies inside its dimension whatever the trips of the loops that it counts by."""
    known = Facts()
    for v in {x.name: x for x in walk(at) if isinstance(x, n.Var)}.values():
        ends = (build.const(0), r.inside[v.name]) if v.name in r.inside else r.begins.get(v.name)
        if ends is not None:
            known = known.ranging(v, convert(ends[0], dtype_of(v.of)), convert(ends[1], dtype_of(v.of)))
    return all(isinstance(i, n.Expr) and says_both((), i, d, known) for i, d in zip(at.index, at.buffer.shape, strict=True))


def _wraps_inside(i: n.Expr | n.Span, d: n.Expr) -> bool:
    """Whether an index is a remainder that stays inside its dimension."""
    return isinstance(i, n.Binary) and i.op == "mod" and (i.b == d or (
        isinstance(i.b, n.Const) and (extent := build.int_value(d)) is not None and 0 < i.b.value <= extent))


def _own_thread(r: Reader, i: n.Expr | n.Span, d: n.Expr) -> bool:
    """Whether an index is the thread's number, and the dimension has an element for each thread."""
    return isinstance(i, n.Expr) and r.meaning(i) == n.Var(r.thread, I32) and d == r.threads


def plainly_inside(r: Reader, at: n.Region) -> bool:
    """Whether each index of a place is a literal inside its dimension, a loop's variable that ends with it, or the thread's own."""
    for i, d in zip(at.index, at.buffer.shape, strict=False):
        if isinstance(i, n.Const):
            extent = build.int_value(d)
            if (extent is None and i.value != 0) or (extent is not None and not 0 <= i.value < extent):
                return False
        elif not (isinstance(i, n.Var) and r.inside.get(i.name) == d) and not _wraps_inside(i, d) and not _own_thread(r, i, d):
            return False
    return True
