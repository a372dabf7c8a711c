"""Extents of tiles, by which sizes are divided to count tiles; and conditions on tiles at one element."""
from __future__ import annotations

from collections.abc import Iterator

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, TileType, shape_of
from kir.ir.visit import once, walk


def extents(program: n.Program) -> frozenset[int]:
    """The numbers of elements that a program's tiles have along their axes. Sizes are divided by these to count tiles; that decides nothing by itself."""
    return once(program, "_extents_of_tiles", lambda: frozenset(d for k in program.kernels for x in walk(k) for d in _extents(x)))


def _extents(x: n.Node) -> Iterator[int]:
    if isinstance(x, n.Span) and isinstance(x.extent, int):
        yield x.extent
    elif isinstance(x, n.Buffer) and x.space != "global":
        yield from (v for v in map(build.int_value, x.shape) if v is not None)


def counts_tiles(e: n.Node, of: frozenset[int]) -> bool:
    """Whether something is divided by an extent of tiles."""
    return isinstance(e, n.Binary) and e.op in ("floordiv", "ceildiv", "tdiv") and isinstance(e.b, n.Const) and e.b.value in of


def element(e: n.Expr) -> n.Expr:
    """A condition on a tile of places at one element, whose place along each axis is a variable of its own, with where that lies. Anything else as it is."""
    ranges: dict[str, n.Expr] = {}

    def at(x: n.Expr, axes: tuple[int, ...]) -> n.Expr:
        rank = len(shape_of(x.type))
        axes = axes[len(axes) - rank:]
        match x:
            case n.Call(fn="iota", type=TileType(shape=(int() as extent,))):
                place = n.Var(f"element.{axes[0]}", I32)
                ranges[f"{place.name} {extent}"] = build.logical_and(build.compare("ge", place, 0), build.compare("lt", place, extent))
                return place
            case n.Call(fn="expand" | "broadcast" as fn, args=(n.Expr() as inner, *_)):
                if fn == "broadcast":
                    return at(inner, axes)
                axis = int(dict(x.attrs)["axis"])
                return at(inner, axes[:axis % rank] + axes[axis % rank + 1:])
            case n.Binary(op=op, a=a, b=b):
                return build.compare(op, at(a, axes), at(b, axes)) if op in n.COMPARISONS else build.binary(op, at(a, axes), at(b, axes))
            case n.Unary(op=op, x=inner):
                return build.invert(at(inner, axes)) if op == "not" else build.unary(op, at(inner, axes))
            case n.Cast(x=inner, dtype=to):
                return build.cast(at(inner, axes), to)
            case _ if rank == 0:
                return x
            case _:
                raise _NoPlace
    try:
        made = at(e, tuple(range(len(shape_of(e.type)))))
    except _NoPlace:
        return e
    for each in ranges.values():
        made = build.logical_and(made, each)
    return made


class _NoPlace(Exception):
    """A tile that is not made of places alone."""
