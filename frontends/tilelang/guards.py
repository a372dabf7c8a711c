"""What TileLang checks of the place of an atomic operation in global memory: outside of the tensor nothing happens."""

from __future__ import annotations

from kir.analysis.bounds import conjuncts
from kir.analysis.elements import tile
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, dtype_of

from .arithmetic import convert
from .reader import Reader
from .values import Place


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
            return e.name in r.inside or e.name.startswith("%") or any(e.name == a.name for a in r.grid) or any(
                e.name == p.name for p in r.sizes.values())
        case n.Binary(op="add" | "mul" | "min" | "floordiv" | "shr"):
            return _positive(r, e.a) and _positive(r, e.b)
        case n.Binary(op="mod", b=n.Const(value=k)):
            return k > 0
        case n.Cast():
            return dtype_of(e.type).is_integer and _positive(r, e.x)
        case _:
            return False
