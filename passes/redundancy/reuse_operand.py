"""Computes a value once and reuses it, instead of computing it at each use.

pipeline: `reuse-operand{value="exp(x)"}@main/total`

```diff
 kir 1
 program softmax_tail
   in X: f32[M, 256]
   out Y: f32[M, 256]
   size M: i32
 kernel main grid (row: M) threads 128
   let x = X[row, 0 +: 256]
-  @total let total = reduce(exp(x), axis=0, op=sum)
-  Y[row, 0 +: 256] = exp(x) / total
+  let exp = exp(x)
+  @total let total = reduce(exp, axis=0, op=sum)
+  Y[row, 0 +: 256] = exp / total
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import nodes as n
from kir.rewrite.base import Precondition
from kir.rewrite.match.materialize import Materialize, inside_where_it_is_read, writes_before_last_use


@dataclass(frozen=True)
class ReuseOperand(Materialize):
    """`value` is the text of the expression; `until` is after how many statements it is written out again, 0 for never."""

    intent: ClassVar[str] = "operand-reuse"
    catalogue: ClassVar[tuple[int, ...]] = (51,)
    claim: ClassVar[str] = "A value has a name and is computed once, however many places need it."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P510", "validity", "storage", "what the value reads is not written between its uses", writes_before_last_use),
        Precondition("KIR-P511", "validity", "shape", "what the value reads lies inside its buffer where the name stands", inside_where_it_is_read))

    def admits(self, e: n.Expr) -> bool:
        """An elementwise computation that is no plain read, literal, name or conversion."""
        if isinstance(e, n.Call):
            return e.of is None and instruction(e.fn).level == "element" and instruction(e.fn).effect == ""
        return isinstance(e, (n.Binary, n.Unary, n.Select))
