"""Branches on whether all of a tile lies within a length that is known only at run time: there it is stored as a whole, and elsewhere under its mask.

pipeline: `branch-whole@main/store`

```diff
 kir 1
 program heads
   in X: f32[N]
   in counts: i32[1]
   out Y: f32[N]
   size N: i32
 kernel main grid (i: ceildiv(N, 64)) threads 64
   let rows = min(counts[0], N)
   let x = load(X[i * 64 +: 64] else 0.0 clip)
-  @store Y[i * 64 +: 64] = x * 2.0 where iota(64) + i * 64 < rows clip
+  if i * 64 + 64 <= rows
+    @store Y[i * 64 +: 64] = x * 2.0 clip
+  else
+    Y[i * 64 +: 64] = x * 2.0 where iota(64) + i * 64 < rows clip
```

A store without a mask may leave through shared memory and as a box.
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import DType, TileType
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.match import edited, matched, node_as

from ..grid.tile import conjuncts


@dataclass(frozen=True)
class BranchWhole(Pass):
    """No parameters: the condition is that of the tile's last element."""

    intent: ClassVar[str] = "specialize-tail"
    catalogue: ClassVar[tuple[int, ...]] = (53,)
    claim: ClassVar[str] = "Tiles within the length move in wide pieces, and only the last one is looked at element by element."
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store of a tile to global memory, of which a mask compares the place with a bound."""
        if not (isinstance(node, n.Store) and node.mask is not None and node.at.buffer.space == "global" and isinstance(node.at.type, TileType)):
            return None
        return Site(path, self) if _whole(node) is not None else Miss("the mask does not compare places that count on with one bound")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The store without its mask where all of it holds, and with it elsewhere."""
        s = node_as(program, site.path, n.Store)
        made = n.If(matched(_whole(s)), (replace(s, mask=None),), (replace(s, label=None),), origin=s.origin)
        return edited(program, site.path, (made,), hints={site.path: ((*site.path, "then", 0), (*site.path, "orelse", 0))})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a branch on that condition, with the store in one arm and the masked store in the other."""
        if not (isinstance(node, n.If) and not node.static and len(node.then) == len(node.orelse) == 1):
            return None
        s, masked = node.then[0], node.orelse[0]
        if not (isinstance(s, n.Store) and isinstance(masked, n.Store) and masked.mask is not None) or replace(masked, mask=None) != s:
            return None
        return Site(path, self) if _whole(masked) == node.cond else Miss("the condition is another than that all of the mask holds")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The masked store, whichever tile it is."""
        node = node_as(program, site.path, n.If)
        s, masked = node.then[0], node.orelse[0]
        assert isinstance(masked, n.Store)
        return edited(program, site.path, (replace(masked, label=s.label, origin=s.origin),))


def _whole(s: n.Store) -> n.Expr | None:
    """The condition that all elements of a store's mask hold; None for a mask of another form."""
    out: n.Expr | None = None
    for part in conjuncts(_stretched(matched(s.mask))):
        mask = _stretched(part)
        if not (isinstance(mask, n.Binary) and mask.op == "lt"):
            return None
        bound, last = _stretched(mask.b), _last(mask.a)
        if last is None or not isinstance(bound.type, DType):
            return None
        end = build.compare("le", build.add(last, 1), bound)
        out = end if out is None else build.logical_and(out, end)
    return out


def _last(e: n.Expr) -> n.Expr | None:
    """The largest element of a sum of numbers that count on from 0 and of scalars."""
    e = _stretched(e)
    if isinstance(e.type, DType):
        return e
    if isinstance(e, n.Call) and e.fn == "iota" and isinstance(e.args[0], n.Expr) and (count := int_value(e.args[0])) is not None:
        return build.const(count - 1)
    if isinstance(e, n.Binary) and e.op == "add":
        a, b = _last(e.a), _last(e.b)
        return None if a is None or b is None or a.type != b.type else build.add(a, b)
    return None


def _stretched(e: n.Expr) -> n.Expr:
    """The value that is stretched to a tile."""
    while isinstance(e, n.Call) and e.fn in ("broadcast", "expand") and isinstance(e.args[0], n.Expr):
        e = e.args[0]
    return e
