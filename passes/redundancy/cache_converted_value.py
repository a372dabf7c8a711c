"""Converts a value once and keeps the converted form, instead of converting it at each use.

pipeline: `cache-converted-value{value="cast(x, f32)"}@main/Y`

```diff
 kir 1
 program square
   in X: f16[M, 256]
   out Y: f32[M, 256]
   size M: i32
 kernel main grid (row: M) threads 128
   let x = X[row, 0 +: 256]
-  @Y Y[row, 0 +: 256] = cast(x, f32) * cast(x, f32)
+  let x_1 = cast(x, f32)
+  @Y Y[row, 0 +: 256] = x_1 * x_1
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.rewrite.base import Precondition
from kir.rewrite.match.materialize import Materialize, inside_where_it_is_read, writes_before_last_use


@dataclass(frozen=True)
class CacheConvertedValue(Materialize):
    """`value` is the text of the conversion; `until` is after how many statements it is written out again, 0 for never."""

    intent: ClassVar[str] = "cache-converted-value"
    catalogue: ClassVar[tuple[int, ...]] = (6,)
    claim: ClassVar[str] = "A conversion that several consumers need is done once."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P060", "validity", "storage", "what is converted is not written between the uses", writes_before_last_use),
        Precondition("KIR-P061", "validity", "shape", "what the value reads lies inside its buffer where the name stands", inside_where_it_is_read))

    def admits(self, e: n.Expr) -> bool:
        """A conversion between dtypes, or bits read as another dtype that were computed."""
        return isinstance(e, n.Cast) and (e.rounding != "bits" or isinstance(e.x, (n.Binary, n.Unary, n.Select)))
