"""Keeps what was loaded from global memory instead of loading it again.

pipeline: `retain-tile{value="X[row, 0 +: 256]"}@main/total`

```diff
 kir 1
 program normalize
   in X: f32[M, 256]
   out Y: f32[M, 256]
   size M: i32
 kernel main grid (row: M) threads 128
-  @total let total = reduce(X[row, 0 +: 256], axis=0, op=sum)
-  Y[row, 0 +: 256] = X[row, 0 +: 256] / total
+  let x = X[row, 0 +: 256]
+  @total let total = reduce(x, axis=0, op=sum)
+  Y[row, 0 +: 256] = x / total
```
"""
from __future__ import annotations

import math
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import shape_of
from kir.rewrite.base import Effect, Precondition, Site
from kir.rewrite.edit import block_at
from kir.rewrite.match.materialize import Materialize, inside_where_it_is_read, writes_before_last_use


@dataclass(frozen=True)
class RetainTile(Materialize):
    """`value` is the text of the load; `until` is after how many statements it is written out again, 0 for never."""

    intent: ClassVar[str] = "retain-tile"
    catalogue: ClassVar[tuple[int, ...]] = (3,)
    claim: ClassVar[str] = "What was loaded stays in registers, so global memory is read once, however often the data is used."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P030", "validity", "aliasing", "what was loaded is not overwritten while it is kept", writes_before_last_use),
        Precondition("KIR-P031", "validity", "shape", "what the value reads lies inside its buffer where the name stands", inside_where_it_is_read))

    def admits(self, e: n.Expr) -> bool:
        """A load from global memory, turned round or not."""
        x = e.args[0] if isinstance(e, n.Call) and e.fn == "trans" else e
        return isinstance(x, n.Load) and x.at.buffer.space == "global"

    def effect(self, program: n.Program, site: Site) -> Effect:
        """Registers for the tile over the threads of the CTA are not predicted; traffic falls by one read of it."""
        value = self.found(block_at(program, site.path), int(site.path[-1]))
        value = value.args[0] if isinstance(value, n.Call) and isinstance(value.args[0], n.Expr) else value
        shape = shape_of(value.type) if value is not None else ()
        if not isinstance(value, n.Load) or not all(isinstance(d, int) for d in shape):
            return Effect()
        return Effect(global_bytes=-math.prod(d for d in shape if isinstance(d, int)) * value.at.buffer.dtype.bytes)
