"""Quotients and remainders of neighbors that lie in one piece: a panel of 64 channels, of channels whose number is a multiple of 64, lies in one tap."""
from __future__ import annotations

from kir.analysis.facts import Facts
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import TileType, shape_of
from kir.ir.visit import transform

from .expressions import not_negative

MOST = 1 << 16
"""Neighbors in a piece at most: its size divides what integers of 32 bits wrap at, so that a piece does not."""


def of_one_piece(load: n.Load, known: Facts) -> n.Load:
    """A load in which `(s + 0..n) // d` is `s // d`, of extent 1, and `(s + 0..n) % d` is `s % d + 0..n`, where s and d are multiples of a power of two that is
    n or more; as it is where nothing of its full extents would be left."""
    made: n.Load = transform(load, lambda old, new: _divided(new, known))
    return made if made.type == load.type else load


def _divided(e: n.Node, known: Facts) -> n.Node:
    if not (isinstance(e, n.Binary) and e.op in ("floordiv", "mod") and isinstance(e.type, TileType) and isinstance(e.a, n.Binary) and e.a.op == "add"):
        return e
    divisor = _scalar(e.b)
    for whole, own in ((e.a.a, e.a.b), (e.a.b, e.a.a)):
        begin, count = _scalar(whole), _counted(own)
        if begin is None or count is None or divisor is None:
            continue
        piece = 1 << (count - 1).bit_length()
        if piece > MOST or not not_negative(known, divisor) or not known.divides(piece, begin) or not known.divides(piece, divisor):
            continue
        one = build.binary("floordiv", begin, divisor)
        if e.op == "mod":  # written so, Triton sees what divides it
            one = build.sub(begin, build.mul(one, divisor))
        one = build.broadcast(one, TileType(e.type.dtype, (1,) * len(e.type.shape)))
        return one if e.op == "floordiv" else build.add(one, own)
    return e


def _scalar(e: n.Expr) -> n.Expr | None:
    """What a tile is filled with that is the same everywhere; a scalar itself."""
    while isinstance(e, n.Call) and e.of is None and e.fn in ("broadcast", "expand") and isinstance(e.args[0], n.Expr):
        e = e.args[0]
    return e if shape_of(e.type) == () else None


def _counted(e: n.Expr) -> int | None:
    """How many numbers from 0 a tile counts, stretched along other axes."""
    while isinstance(e, n.Call) and e.of is None and e.fn == "expand" and isinstance(e.args[0], n.Expr):
        e = e.args[0]
    return int_value(e.args[0]) if isinstance(e, n.Call) and e.of is None and e.fn == "iota" and isinstance(e.args[0], n.Expr) else None
