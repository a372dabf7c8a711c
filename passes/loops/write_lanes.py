"""Writes out what each element of a thread's vector is, one after the other.

pipeline: `write-lanes@main/t/store`

```diff
 kir 1
 program squares
   in X: f32[64]
   out Y: f32[64]
 kernel main grid (b: 1) threads 32
   for t in 0..32 parallel thread
     let x = X[t * 2 +: 2]
-    @store Y[t * 2 +: 2] = x * x + 1.0
+    @store Y[t * 2 +: 2] = vec(pick(x, 0) * pick(x, 0) + 1.0, pick(x, 1) * pick(x, 1) + 1.0)
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.elements import NotElementwise, element, tile
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, TileType, shape_of
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import node_at
from kir.rewrite.match import edited
from kir.rewrite.match.local_buffers import team_level
from kir.rewrite.match.materialize import is_pure

from .write_out import Unlike, between

MOST = 16
LANE = n.Var("%v", I32)


@dataclass(frozen=True)
class WriteLanes(Pass):
    """No parameters: the site is the statement."""

    intent: ClassVar[str] = "unroll"
    catalogue: ClassVar[tuple[int, ...]] = (52, 66)
    claim: ClassVar[str] = "Each element has instructions of its own, which may run side by side."
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a thread's let or store of a vector that is computed from others element by element."""
        if not isinstance(node, n.Let | n.Store) or _count(node.value) is None or team_level(program, path) != "thread":
            return None
        if not isinstance(node.value, n.Binary | n.Unary | n.Select | n.Cast | n.Call) or not is_pure(node.value):
            return None
        made = _apart(node.value)
        return Site(path, self) if made is not None and _together(made) == node.value else Miss("its elements are not those of other vectors")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The elements one by one."""
        return self._with(program, site, _apart)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a vector whose elements are copies of one another, over the elements of other vectors."""
        if not isinstance(node, n.Let | n.Store) or not (isinstance(node.value, n.Call) and node.value.fn == "vec"):
            return None
        made = _together(node.value)
        return Site(path, self) if made is not None and _apart(made) == node.value else Miss("its elements are no copies of one")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The vector as one value."""
        return self._with(program, site, _together)

    def _with(self, program: n.Program, site: Site, change: object) -> Rewritten:
        s = node_at(program, site.path)
        assert isinstance(s, (n.Let, n.Store))
        assert callable(change)
        return edited(program, site.path, (replace(s, value=change(s.value)),))


def _count(e: n.Expr) -> int | None:
    """The length of a vector of a few elements."""
    shape = shape_of(e.type) if isinstance(e.type, TileType) else ()
    return shape[0] if len(shape) == 1 and isinstance(shape[0], int) and 1 < shape[0] <= MOST else None


def _apart(e: n.Expr) -> n.Expr | None:
    """The vector of a value's elements."""
    count = _count(e)
    try:
        lanes = [element(e, [build.const(k)]) for k in range(count or 0)]
    except NotElementwise:
        return None
    return build.call("vec", *lanes) if lanes else None


def _together(e: n.Expr) -> n.Expr | None:
    """The value whose elements a vector has; None where they are no copies of one."""
    lanes = [a for a in e.args if isinstance(a, n.Expr)] if isinstance(e, n.Call) and e.fn == "vec" else []
    if not 1 < len(lanes) <= MOST:
        return None
    try:
        made = tile(between(lanes[0], lanes[1], LANE), [(LANE, len(lanes))])
    except (Unlike, TypeError, ValueError, NotElementwise):
        return None
    return made if made.type == e.type and not isinstance(made, n.Call | n.Var) else None
