"""Copies a tile in several pieces, whole rows each.

pipeline: `split-copy{parts=2}@main/bring`

```diff
 kir 1
 program bring
   in X: f16[64, 32]
   out Y: f16[64, 32]
 kernel main grid (i: 1) threads 128
   shared Xs: f16[64, 32]
-  @bring copy X[0 +: 64, 0 +: 32] -> Xs
+  for p in 0..2 unroll {factor=2}
+    @bring copy X[p * 32 +: 32, 0 +: 32] -> Xs[p * 32 +: 32, 0 +: 32]
   Y = Xs
```

Pieces can be shared among the CTAs of a cluster, each of which brings some to all (`multicast-cluster`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import I32
from kir.ir.visit import names_read, substitute
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.match import edited, fresh_at, node_as, params_as
from kir.rewrite.match.local_buffers import kind_of_copy


def _whole(program: n.Program, site: Site, context: Context) -> Verdict:
    parts, copy = params_as(site, SplitCopy).parts, node_as(program, site.path, n.Copy)
    rows = _rows(copy.src.at)
    assert rows is not None
    if rows % parts:
        return refuted(f"{rows} rows are no multiple of {parts}", f"row {rows - 1} is in no piece", needs=f"a divisor of {rows}")
    return proved(f"{parts} pieces of {rows // parts} rows")


@dataclass(frozen=True)
class SplitCopy(Pass):
    """`parts` is the number of pieces."""

    intent: ClassVar[str] = "split-copy"
    catalogue: ClassVar[tuple[int, ...]] = (22,)
    claim: ClassVar[str] = "Pieces of a tile can come from several CTAs of a cluster, or wait for each other."
    least: ClassVar[Mapping[str, int]] = {"parts": 2}
    preconditions: ClassVar[tuple[Precondition, ...]] = (Precondition("KIR-P722", "validity", "shape", "the pieces are alike", _whole),)

    parts: int = 2

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a plain copy of a tile to shared memory."""
        if not isinstance(node, n.Copy) or node.dst.buffer.space != "shared":
            return None
        if kind_of_copy(node) != "plain" or node.signal is not None or node.grouped or node.mask is not None or node.src.mask is not None or node.attrs:
            return Miss("the copy is not one that all threads wait for, or has a mask")
        rows = _rows(node.src.at)
        if rows is None or rows != _rows(node.dst):
            return Miss("what is copied has no rows of a literal number")
        if rows == self.parts:
            return Miss("each piece would be one row")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """An unrolled loop over the pieces."""
        copy = node_as(program, site.path, n.Copy)
        p = n.Var(fresh_at(program, site.path, "p"), I32)
        piece = replace(copy, src=replace(copy.src, at=_piece(copy.src.at, p, self.parts)), dst=_piece(copy.dst, p, self.parts))
        loop = n.For(p, build.const(0), build.const(self.parts), build.const(1), (piece,), "unroll", n.attrs(factor=self.parts))
        return edited(program, site.path, (loop,))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an unrolled loop over copies of pieces."""
        if not (isinstance(node, n.For) and node.kind == "unroll" and len(node.body) == 1 and isinstance(copy := node.body[0], n.Copy)):
            return None
        parts = int_value(node.hi)
        if (
            copy.dst.buffer.space != "shared"
            or parts is None
            or parts < 2
            or not build.is_const(node.lo, 0)
            or kind_of_copy(copy) != "plain"
            or copy.signal is not None
        ):
            return None
        whole = _joined(copy, node.var, parts)
        return Miss("the copies are not of rows one after the other") if whole is None else Site(path, replace(self, parts=parts), {"whole": whole})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One copy."""
        return edited(program, site.path, (site.captures["whole"],))


def _first(r: n.Region) -> int | None:
    """Which index of a region is its rows: the first span; the first dimension of a whole buffer."""
    if not r.index:
        return 0
    return next((i for i, x in enumerate(r.index) if isinstance(x, n.Span)), None)


def _rows(r: n.Region) -> int | None:
    at = _first(r)
    if at is None:
        return None
    found = r.index[at] if r.index else None
    if isinstance(found, n.Span):
        return int_value(found.extent) if found.step in (1, build.const(1)) else None
    return int_value(r.buffer.shape[0])


def _piece(r: n.Region, p: n.Var, parts: int) -> n.Region:
    """The rows of piece `p`."""
    at, rows = _first(r), _rows(r)
    assert at is not None and rows is not None
    index = r.index or tuple(build.span(0, int_value(d) or d) for d in r.buffer.shape)
    whole = index[at]
    assert isinstance(whole, n.Span)
    part = build.span(build.add(whole.lo, build.mul(p, rows // parts)), rows // parts)
    return replace(r, index=(*index[:at], part, *index[at + 1 :]))


def _joined(copy: n.Copy, p: n.Var, parts: int) -> n.Copy | None:
    """The copy of all pieces."""
    src, dst = _all(copy.src.at, p, parts), _all(copy.dst, p, parts)
    if src is None or dst is None or (copy.src.other is not None and p.name in names_read(copy.src.other)):
        return None
    return replace(copy, src=replace(copy.src, at=src), dst=dst)


def _all(r: n.Region, p: n.Var, parts: int) -> n.Region | None:
    at, rows = _first(r), _rows(r)
    if at is None or rows is None or not r.index:
        return None
    part = r.index[at]
    assert isinstance(part, n.Span)
    base = substitute(part.lo, {p.name: build.const(0)})
    if part.lo != build.add(base, build.mul(p, rows)) or any(p.name in names_read(i) for k, i in enumerate(r.index) if k != at):
        return None
    index = (*r.index[:at], build.span(base, rows * parts), *r.index[at + 1 :])
    return replace(r, index=() if all(_is_all(i, d) for i, d in zip(index, r.buffer.shape, strict=True)) else index)


def _is_all(i: n.Expr | n.Span, extent: n.Expr) -> bool:
    """Whether a literal span is a whole dimension."""
    return isinstance(i, n.Span) and build.is_const(i.lo, 0) and int_value(extent) is not None and int_value(i.extent) == int_value(extent)
