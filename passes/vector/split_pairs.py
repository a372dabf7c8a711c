"""Loads two neighbors of each row at once, and splits the pairs.

before:

```kir
kir 1
program parts
  in X: f32[M, 64, 2]
  out Y: f32[M, 64]
  size M: i32
kernel main grid (row: M) threads 64
  @real let real = X[row, 0 +: 64, 0]
  let imag = X[row, 0 +: 64, 1]
  Y[row, 0 +: 64] = real * imag
```

pipeline: `split-pairs@main/real`

after:

```kir
kir 1
program parts
  in X: f32[M, 64, 2]
  out Y: f32[M, 64]
  size M: i32
kernel main grid (row: M) threads 64
  @real let real, imag = split(X[row, 0 +: 64, 0 +: 2])
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


def _part(x: n.Load, k: int) -> n.Load:
    """The first or the second of each pair of a load of pairs."""
    *outer, pair = x.at.index
    assert isinstance(pair, n.Span)
    return replace(x, at=n.Region(x.at.buffer, (*outer, build.add(pair.lo, k))))


def _pairs(first: Place, second: Place) -> n.Load | None:
    """The load of the pairs whose parts two named loads are."""
    if not (isinstance(first, n.Let) and isinstance(second, n.Let) and len(first.names) == len(second.names) == 1):
        return None
    a, b = first.value, second.value
    if not (isinstance(a, n.Load) and isinstance(b, n.Load) and a.mask is None and a.at.index and isinstance(a.type, TileType)):
        return None
    *outer, last = a.at.index
    if isinstance(last, n.Span) or isinstance(last.type, TileType) or not any(isinstance(i, n.Span) for i in outer):
        return None
    made = replace(a, at=n.Region(a.at.buffer, (*outer, n.Span(last, 2))))
    return made if (_part(made, 0), _part(made, 1)) == (a, b) else None


@dataclass(frozen=True)
class SplitPairs(Pass):
    """The pairs are the last axis."""

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
        if not (isinstance(x, n.Load) and x.mask is None and x.at.index and isinstance(x.at.index[-1], n.Span) and x.at.index[-1].extent == 2
                and x.at.index[-1].step in (1, build.const(1)) and len(shape_of(x.type)) > 1):
            return Miss("what is split is no load of neighbors")
        return Site(path, self)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A load for each."""
        block, i = block_and_index(program, site.path)
        node = matched_as(block[i], n.Let)
        assert isinstance(node.value, n.Call)
        pairs = matched_as(node.value.args[0], n.Load)
        made = tuple(n.Let((name,), _part(pairs, k), label=node.label if k == 0 else None, origin=node.origin) for k, name in enumerate(node.names))
        return edited(program, site.path, made)
