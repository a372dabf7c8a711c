"""Extents of tiles: numbers by which sizes are divided to count tiles."""
from __future__ import annotations

from collections.abc import Iterator

from kir.ir import build
from kir.ir import nodes as n
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
