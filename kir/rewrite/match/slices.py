"""Parts of a tile operand along one axis, and the whole again."""
from __future__ import annotations

from dataclasses import replace

from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, DType, shape_of
from kir.ir.visit import names_read
from kir.rewrite.edit import fresh


class NoSlice(Exception):
    """An operand of which no part along the axis can be written."""


def part_of_region(r: n.Region, axis: int, lo: n.Expr, extent: int) -> n.Region:
    """`extent` of a region's elements along its axis, from `lo` on. Raises NoSlice."""
    index = list(r.index or (build.span(0, d) for d in r.buffer.shape))
    k = _spans(index)[axis]
    i = index[k]
    assert isinstance(i, n.Span)
    if build.int_value(i.step) != 1:
        raise NoSlice("a strided place")
    index[k] = build.span(build.add(i.lo, build.cast(lo, _dtype(i.lo))), extent)
    return build.region(r.buffer, *index)


def whole_of_region(r: n.Region, axis: int, lo: n.Expr, extent: int) -> n.Region:
    """The region of `extent` elements along the axis of which `r` is the part that starts at `lo`. Raises NoSlice."""
    index = list(r.index or (build.span(0, d) for d in r.buffer.shape))
    k = _spans(index)[axis]
    i = index[k]
    assert isinstance(i, n.Span)
    start = build.sub(i.lo, build.cast(lo, _dtype(i.lo)))
    if build.int_value(i.step) != 1 or names_read(start) & names_read(lo):
        raise NoSlice("a place that is no such part")
    index[k] = build.span(start, extent)
    return build.region(r.buffer, *index)


def part(e: n.Expr, axis: int, lo: n.Expr, extent: int) -> n.Expr:
    """`extent` of an operand's elements along its axis, from `lo` on. Raises NoSlice."""
    return _sliced(e, axis, lo, extent, whole=False)


def whole(e: n.Expr, axis: int, lo: n.Expr, extent: int) -> n.Expr:
    """The operand of `extent` elements along the axis of which `e` is the part that starts at `lo`. Raises NoSlice."""
    return _sliced(e, axis, lo, extent, whole=True)


def _sliced(e: n.Expr, axis: int, lo: n.Expr, extent: int, *, whole: bool) -> n.Expr:
    if not shape_of(e.type):
        raise NoSlice("one number for all elements is no part of anything")
    axis %= len(shape_of(e.type))
    match e:
        case n.Load() if e.mask is None and (e.other is None or not shape_of(e.other.type)):
            return replace(e, at=(whole_of_region if whole else part_of_region)(e.at, axis, lo, extent))
        case n.Cast():
            return replace(e, x=_sliced(e.x, axis, lo, extent, whole=whole))
        case n.Call() if e.fn == "trans" and isinstance(e.args[0], n.Expr):
            source = [int(a.value) for a in e.args[1:] if isinstance(a, n.Const)][axis]
            return build.call("trans", _sliced(e.args[0], source, lo, extent, whole=whole), *e.args[1:])
        case n.Binary():
            return build.binary(e.op, *(_side(x, axis, e, lo, extent, whole) for x in (e.a, e.b)))
        case n.Select():
            return build.select(*(_side(x, axis, e, lo, extent, whole) for x in (e.cond, e.a, e.b)))
        case n.Call() if e.of is None and instruction(e.fn).level == "element":
            return build.call_with(e.fn, tuple(_side(x, axis, e, lo, extent, whole) if isinstance(x, n.Expr) else x for x in e.args), e.attrs)
        case _:
            raise NoSlice(f"no part of a {type(e).__name__.lower()} can be read on its own")


def _side(x: n.Expr, axis: int, of: n.Expr, lo: n.Expr, extent: int, whole: bool) -> n.Expr:
    """An operand of what is computed element by element."""
    own = axis - (len(shape_of(of.type)) - len(shape_of(x.type)))
    spread = own < 0 or shape_of(x.type)[own] == 1  # the same for every index of the axis
    return x if spread else _sliced(x, own, lo, extent, whole=whole)


def panel_view(flat: n.Buffer, panels: n.Buffer, width: int, taken: set[str]) -> n.View:
    """The matrix that panels of `width` columns are of, under a name made from that of `flat`, whose form it has."""
    row, column = n.Var(fresh("row", taken), I32), n.Var(fresh("column", taken), I32)
    at = build.region(panels, build.floordiv(column, width), row, build.mod(column, width))
    seen = replace(flat, name=fresh(f"{flat.name}_whole", taken), layout=None, align=0)
    return n.View(seen, at, (row.name, column.name))


def _spans(index: list[n.Expr | n.Span]) -> list[int]:
    found = [k for k, i in enumerate(index) if isinstance(i, n.Span)]
    if not found:
        raise NoSlice("a gathered place")
    return found


def _dtype(e: n.Expr) -> DType:
    assert isinstance(e.type, DType)
    return e.type
