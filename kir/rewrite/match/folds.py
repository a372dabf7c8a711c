"""Elements folded one after the other, and the tile of all of them: what turns loops into reductions and scans of tiles, and back."""
from __future__ import annotations

from kir.analysis.elements import element, tile
from kir.analysis.loops.reductions import OPS, identity
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, TileType, shape_of
from kir.ir.visit import walk

from .cursor import matched


def folded_by(acc: n.Alloc, s: n.Stmt) -> tuple[str, n.Expr] | None:
    """(reduction, element) of a statement that folds an element into an accumulator which begins as the reduction does."""
    if not (isinstance(s, n.Store) and s.at == n.Region(acc.buffer) and s.mask is None and isinstance(s.value, n.Binary)):
        return None
    folded = s.value.b if s.value.a == n.Load(s.at) else s.value.a if s.value.b == n.Load(s.at) else None
    op = next((r for r, b in OPS.items() if b == s.value.op), None)
    if folded is None or op is None or acc.init != identity(op, acc.buffer.dtype) or acc.buffer.name in {
            x.at.buffer.name for x in walk(folded) if isinstance(x, n.Load)}:
        return None
    return op, folded


def slice_of(source: n.Expr, axis: int, j: n.Var) -> n.Expr:
    """The tile that the reduction folds in at step `j` (a scalar when nothing is left)."""
    shape = shape_of(source.type)
    rest = _syms(shape[:axis] + shape[axis + 1:])
    index: list[n.Expr] = [v for v, _ in rest]
    index.insert(axis, j)
    return tile(element(source, index), rest)


def tile_over(loop: n.For, folded: n.Expr, axis: int) -> n.Expr:
    """The tile of all that a loop folds in, with the loop variable as `axis`."""
    extent = matched(build.int_value(loop.hi))
    rest = _syms(shape_of(folded.type))
    scalar = element(folded, [v for v, _ in rest]) if isinstance(folded.type, TileType) else folded
    own = n.Var(loop.var.name, loop.var.of)
    return tile(scalar, [*rest[:axis], (own, extent), *rest[axis:]])


def _syms(shape: tuple[int | n.Expr, ...]) -> list[tuple[n.Var, int | n.Expr]]:
    return [(n.Var(f"%{k}", I32), d) for k, d in enumerate(shape)]
