"""Copies of pixels by taps and channels, which `T.im2col` says: a tile of the matrix whose rows are the places of a convolution's output."""
from __future__ import annotations

from typing import NamedTuple

from kir.analysis.tiles.mapped_views import pixels
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value

from ..spelling.expressions import refuse


class Pixels(NamedTuple):
    """A view as `T.im2col` shows it: of an image [N, H, W, C], by square filters, with as many zeros around on all sides."""

    image: n.Buffer
    kernel: int
    stride: int
    pad: int


def as_pixels(view: n.View) -> Pixels | None:
    """What `T.im2col` says to show a view; None for a view that it does not show."""
    attrs = pixels(view)
    if attrs is None or len(view.at.buffer.shape) != 4:
        return None
    of = dict(attrs)
    (low, high, step), across = ([int(of.get(f"{end}_{axis}", least)) for end, least in (("lower", 0), ("upper", 0), ("step", 1))] for axis in "hw")
    pad, kernel = -low, 1 - low - high
    channels = view.at.buffer.shape[3]
    if [low, high, step] != across or pad < 0 or kernel < 1 or view.buffer.shape[1] != build.mul(channels, kernel * kernel):
        return None
    return Pixels(view.at.buffer, kernel, step, pad)


def steps(s: n.Copy) -> tuple[n.Expr, n.Expr]:
    """Which of its tiles a copy brings, by rows and by columns. Raises KirError KIR-B306 for a box that begins between two tiles."""
    out = [_tile(i) for i in s.src.at.index]
    if len(out) != 2 or out[0] is None or out[1] is None:
        raise refuse("KIR-B306", f"T.im2col brings whole tiles of '{s.src.at.buffer.name}', counted from the first", "a place that is a multiple of the tile")
    return out[0], out[1]


def _tile(i: n.Expr | n.Span) -> n.Expr | None:
    """The number of a tile that an index covers; None for another index."""
    extent = None if not isinstance(i, n.Span) or i.step != 1 else i.extent if isinstance(i.extent, int) else int_value(i.extent)
    if extent is None or not isinstance(i, n.Span):
        return None
    terms = build.polynomial(i.lo)
    if any(by % extent for by in terms.values()):
        return None
    total: n.Expr = build.const(0)
    for atoms, by in terms.items():
        term: n.Expr = build.const(by // extent)
        for atom in atoms:
            term = build.mul(term, atom)
        total = build.add(total, term)
    return total
