"""Declares a private array with all its values at once, instead of filling it element by element.

pipeline: `begin-whole@main/p`

```diff
 kir 1
 program largest_weight
   in X: f32[M, 64]
   in W: f32[M, 64]
   out S: f32[M]
   size M: i32
 kernel main grid (row: M) threads 1
-  @p register p: f32[64]
-  for j in 0..64
-    p[j] = X[row, j] * W[row, j]
+  @p register p: f32[64] = X[row, 0 +: 64] * W[row, 0 +: 64]
   register top: f32 = -inf
   for i in 0..64
     top = max(top, p[i])
   S[row] = top
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.elements import NotElementwise
from kir.analysis.tiles.retile import CannotRetile
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType, shape_of
from kir.ir.visit import buffers_named, names_read
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import kernel_of, names_in
from kir.rewrite.match import block_and_index, counting, edited, fresh_var, is_counted, matched_as, node_as
from kir.rewrite.match.materialize import is_pure

from ..threads.partition_rows import PartitionRows, narrowed

PRIVATE = ("register", "fragment")


def _whole(loop: n.Stmt, b: n.Buffer) -> n.Expr | None:
    """What a loop stores, element by element or row by row, to all of an array; None for any other statement, and where it reads the array."""
    if not (is_counted(loop, plain=True) and isinstance(loop, n.For) and len(loop.body) == 1):
        return None
    s = loop.body[0]
    if not (isinstance(s, n.Store) and s.at.buffer == b and s.mask is None and not s.clip and is_pure(s.value)) or b.name in buffers_named(s.value):
        return None
    try:
        made = PartitionRows(0, True).widened(loop)
    except (CannotRetile, NotElementwise):
        return None
    fits = isinstance(made, n.Store) and made.value.type == n.Region(b).type and made.at in (n.Region(b), build.region(b, *(
        n.Span(build.const(0), d) for d in b.shape)))
    return made.value if fits and isinstance(made, n.Store) else None


@dataclass(frozen=True)
class BeginWhole(Pass):
    """No parameters: the site is the declaration."""

    intent: ClassVar[str] = "partition-rows"
    catalogue: ClassVar[tuple[int, ...]] = (47, 5)
    claim: ClassVar[str] = "The elements of an array are computed side by side, and none of them waits for a loop."
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At private memory of one thread that is declared without a value, and filled by the next statement."""
        if not (isinstance(node, n.Alloc) and node.buffer.space in PRIVATE and node.buffer.shape and node.init is None):
            return None
        (block, i), b = block_and_index(program, path), node.buffer
        if not build.is_const(kernel_of(program, path).threads, 1):
            return Miss("several threads fill it")
        value = _whole(block[i + 1], b) if i + 1 < len(block) else None
        return Miss(f"the next statement does not fill all of '{b.name}'") if value is None else Site(path, self, {"value": value})

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The declaration, with all values."""
        s = node_as(program, site.path, n.Alloc)
        return edited(program, site.path, (replace(s, init=site.captures["value"]),), 0, 2)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At private memory of one thread that is declared with a tile."""
        if not (isinstance(node, n.Alloc) and node.buffer.space in PRIVATE and node.init is not None and isinstance(node.init.type, TileType)):
            return None
        if not build.is_const(kernel_of(program, path).threads, 1):
            return Miss("several threads fill it")
        if not all(isinstance(d, int) for d in shape_of(node.init.type)) or node.init.type != n.Region(node.buffer).type or not is_pure(node.init):
            return Miss("its values are not those of its elements")
        j = fresh_var("j", names_in(program, kernel_of(program, path)))
        try:
            store = narrowed(n.Store(n.Region(node.buffer), node.init), 0, j)
        except (CannotRetile, NotElementwise) as bad:
            return Miss(str(bad))
        if (isinstance(node.init, n.Call) and node.init.fn == "vec") or j.name not in names_read(store):
            return Miss("it is a table")
        return Site(path, self, {"loop": counting(j, matched_as(shape_of(node.init.type)[0], int), (store,))})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop that fills it."""
        s = node_as(program, site.path, n.Alloc)
        return edited(program, site.path, (replace(s, init=None), site.captures["loop"]))


