"""Loads two neighbors of each row at once, and splits the pairs.

pipeline: `split-pairs@main/real`

```diff
 kir 1
 program parts
   in X: f32[M, 64, 2]
   out Y: f32[M, 64]
   size M: i32
 kernel main grid (row: M) threads 64
-  @real let real = X[row, 0 +: 64, 0]
-  let imag = X[row, 0 +: 64, 1]
+  @real let real, imag = split(X[row, 0 +: 64, 0 +: 2])
   Y[row, 0 +: 64] = real * imag
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType, shape_of
from kir.rewrite import Found, Miss, Pass, Path, Place, Rewritten, Site
from kir.rewrite.match import block_and_index, edited, matched, matched_as


def _part(x: n.Expr, k: int) -> n.Load:
    """The first or the second of each pair of a load of pairs, or of a row that is taken for pairs."""
    if isinstance(x, n.Call):
        row = matched_as(x.args[0], n.Load)
        *outer, last = row.at.index
        assert isinstance(last, n.Span)
        return replace(row, at=n.Region(row.at.buffer, (*outer, n.Span(build.add(last.lo, k), shape_of(x.type)[-2], 2))))
    load = matched_as(x, n.Load)
    *outer, pair = load.at.index
    assert isinstance(pair, n.Span)
    return replace(load, at=n.Region(load.at.buffer, (*outer, build.add(pair.lo, k))))


def _pairs(first: Place, second: Place) -> n.Expr | None:
    """The load of the pairs whose parts two named loads are; of every other element of a row, that of the row, taken for pairs."""
    if not (isinstance(first, n.Let) and isinstance(second, n.Let) and len(first.names) == len(second.names) == 1):
        return None
    a, b = first.value, second.value
    if not (isinstance(a, n.Load) and isinstance(b, n.Load) and a.mask is None and a.at.index and isinstance(a.type, TileType)):
        return None
    *outer, last = a.at.index
    made: n.Expr
    if isinstance(last, n.Span) and last.step in (2, build.const(2)) and isinstance(last.extent, int):
        row = replace(a, at=n.Region(a.at.buffer, (*outer, n.Span(last.lo, 2 * last.extent))))
        shape = shape_of(a.type)
        made = build.call("reshape", row, *(d if isinstance(d, n.Expr) else build.const(d) for d in (*shape, 2)))
    elif isinstance(last, n.Span) or isinstance(last.type, TileType) or not any(isinstance(i, n.Span) for i in outer):
        return None
    else:
        made = replace(a, at=n.Region(a.at.buffer, (*outer, n.Span(last, 2))))
    return made if (_part(made, 0), _part(made, 1)) == (a, b) else None


def _row_of_pairs(x: n.Node) -> bool:
    """Whether a row in memory, side by side, is taken for pairs."""
    row = x.args[0] if isinstance(x, n.Call) and x.fn == "reshape" and x.of is None else None
    last = row.at.index[-1] if isinstance(row, n.Load) and row.mask is None and row.at.index else None
    if not (isinstance(x, n.Call) and isinstance(row, n.Load) and isinstance(last, n.Span) and last.step in (1, build.const(1))):
        return False
    shape = shape_of(row.type)
    return isinstance(shape[-1], int) and shape[-1] == last.extent and shape_of(x.type) == (*shape[:-1], shape[-1] // 2, 2)


@dataclass(frozen=True)
class SplitPairs(Pass):
    """The pairs are the last axis, or lie in a row."""

    intent: ClassVar[str] = "vectorize-global"
    catalogue: ClassVar[tuple[int, ...]] = (11,)
    claim: ClassVar[str] = "Neighbors that two loads would bring with a gap after each come in one."
    provides: ClassVar[tuple[str, ...]] = ("vectorized",)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first of two named loads of neighbors."""
        block, i = block_and_index(program, path) if isinstance(node, n.Let) else ((), 0)
        return Site(path, self) if i + 1 < len(block) and _pairs(node, block[i + 1]) is not None else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One load, split."""
        block, i = block_and_index(program, site.path)
        first, second = matched_as(block[i], n.Let), matched_as(block[i + 1], n.Let)
        pairs = matched(_pairs(first, second))
        made = n.Let((first.names[0], second.names[0]), build.call("split", pairs), label=first.label, origin=first.origin)
        return edited(program, site.path, (made,), 0, 2)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a load of pairs that is split."""
        if not (isinstance(node, n.Let) and len(node.names) == 2 and isinstance(node.value, n.Call) and node.value.fn == "split"):
            return None
        x = node.value.args[0]
        if _row_of_pairs(x):
            return Site(path, self)
        if not (isinstance(x, n.Load) and x.mask is None and x.at.index and isinstance(x.at.index[-1], n.Span) and x.at.index[-1].extent == 2
                and x.at.index[-1].step in (1, build.const(1)) and len(shape_of(x.type)) > 1):
            return Miss("what is split is no load of neighbors")
        return Site(path, self)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A load for each."""
        block, i = block_and_index(program, site.path)
        node = matched_as(block[i], n.Let)
        assert isinstance(node.value, n.Call)
        pairs = matched_as(node.value.args[0], n.Expr)
        made = tuple(n.Let((name,), _part(pairs, k), label=node.label if k == 0 else None, origin=node.origin) for k, name in enumerate(node.names))
        return edited(program, site.path, made)
