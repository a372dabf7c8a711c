"""Computes with the neighboring elements of a thread's vector at once: conversions and arithmetic two to an instruction.

pipeline: `packed-arithmetic@main/threads/multiply`

```diff
 kir 1
 program scale
   in X: f16[64, 2]
   out Y: f16[64, 2]
 kernel main grid (b: 1) threads 64
   @threads for t in 0..64 parallel thread
     register x: f16[2]
     x[0 +: 2] = X[t, 0 +: 2]
     register y: f16[2]
-    @multiply for v in 0..2 unroll {factor=2}
-      y[v] = x[v] * x[v]
+    @multiply y = x * x
     Y[t, 0 +: 2] = y
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.rewrite import Precondition

from ._vector_loop import VectorLoop, one_owner


@dataclass(frozen=True)
class PackedArithmetic(VectorLoop):
    """No parameters: the site is a loop over the elements of private vectors."""

    intent: ClassVar[str] = "packed-arithmetic"
    catalogue: ClassVar[tuple[int, ...]] = (66, 42)
    claim: ClassVar[str] = "One instruction converts, adds or multiplies the two halves of a register."
    provides: ClassVar[tuple[str, ...]] = ("vectorized",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P660", "validity", "aliasing", "no element needs the result of one before it", one_owner),)

    def admits(self, read: set[str], written: str) -> bool:
        """Private memory is written, from private or global memory."""
        return written == "register" and "shared" not in read
