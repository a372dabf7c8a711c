"""Reduces a tile of several axes as one row of all its elements, instead of row by row.

pipeline: `flat-reduction@main/inner`

```diff
 kir 1
 program sums_of_images
   in X: f32[M, 8, 16]
   out S: f32[M]
   size M: i32
 kernel main grid (m: M) threads 128
-  @inner let rows = reduce(X[m, 0 +: 8, 0 +: 16], axis=1, op=sum)
-  let total = reduce(rows, axis=0, op=sum)
+  let total = reduce(reshape(X[m, 0 +: 8, 0 +: 16], 128), axis=0, op=sum)
   S[m] = total
```
"""
from __future__ import annotations

import math
from typing import ClassVar

from kir.analysis.loops.reductions import OPS
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType, shape_of
from kir.ir.visit import names_read
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.match import block_and_index, edited, fresh_at, matched_as, node_as


def _reduced(s: Place) -> tuple[str, int, n.Expr] | None:
    """The operation, the axis and the tile of a named reduction."""
    if not (isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Call) and s.value.fn == "reduce" and len(s.value.args) == 1):
        return None
    options, source = dict(s.value.attrs), s.value.args[0]
    if options.get("op") not in OPS or options.get("keep") or not isinstance(source, n.Expr) or not isinstance(source.type, TileType):
        return None
    return str(options["op"]), int(options["axis"]), source


def _count(source: n.Expr) -> int | None:
    """Elements of a tile of known extents."""
    shape = shape_of(source.type)
    return math.prod(d for d in shape if isinstance(d, int)) if all(isinstance(d, int) for d in shape) else None


@dataclass(frozen=True)
class FlatReduction(Pass):
    """No parameters: the site is the reduction of the last axis."""

    intent: ClassVar[str] = "tree-reduction"
    catalogue: ClassVar[tuple[int, ...]] = (43,)
    claim: ClassVar[str] = "All elements are reduced in one tree, as deep as their number asks, whatever the axes."
    numerics: ClassVar[str] = "reassociated(k)"
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a reduction of the last axis whose result the next statement alone uses, and reduces to one number."""
        inner = _reduced(node)
        if inner is None or not isinstance(node, n.Let):
            return None
        (block, i), (op, axis, source) = block_and_index(program, path), inner
        outer = _reduced(block[i + 1]) if i + 1 < len(block) else None
        if outer is None or axis != len(shape_of(source.type)) - 1 or axis < 1 or _count(source) is None:
            return Miss("it is not the last axis of a tile of known extents, or no reduction follows")
        rows = n.Var(node.names[0], node.value.type)
        wanted = rows if axis == 1 else build.call("reshape", rows, build.const(_count(rows) or 0))
        if outer != (op, 0, wanted) or any(rows.name in names_read(s) for s in block[i + 2:]):
            return Miss("the next statement does not reduce all of it, by the same operation, or it is used again")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One reduction."""
        (block, i), s = block_and_index(program, site.path), node_as(program, site.path, n.Let)
        op, _, source = _reduced(s) or ("", 0, s.value)
        outer = matched_as(block[i + 1], n.Let)
        row = build.call("reshape", source, build.const(_count(source) or 0))
        made = n.Let(outer.names, build.call("reduce", row, axis=0, op=op), label=outer.label, origin=outer.origin)
        return edited(program, site.path, (made,), 0, 2)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a reduction of a tile as one row."""
        found = _reduced(node)
        if found is None:
            return None
        _, axis, row = found
        source = row.args[0] if isinstance(row, n.Call) and row.fn == "reshape" else None
        if axis or not isinstance(source, n.Expr) or len(shape_of(row.type)) != 1 or len(shape_of(source.type)) < 2 or _count(source) is None:
            return None
        return Site(path, self)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The last axis first, and then the rest."""
        s = node_as(program, site.path, n.Let)
        op, _, row = _reduced(s) or ("", 0, s.value)
        source = matched_as(matched_as(row, n.Call).args[0], n.Expr)
        inner = build.call("reduce", source, axis=len(shape_of(source.type)) - 1, op=op)
        rows = n.Var(fresh_at(program, site.path, "rows"), inner.type)
        rest = rows if len(shape_of(rows.type)) == 1 else build.call("reshape", rows, build.const(_count(rows) or 0))
        outer = n.Let(s.names, build.call("reduce", rest, axis=0, op=op), label=s.label, origin=s.origin)
        return edited(program, site.path, (n.Let((rows.name,), inner), outer))
