"""A unit lower triangular system solved by blocks: diagonal blocks are inverted at once, and each block of unknowns is a product.

pipeline: `blocked-solve`

```diff
 kir 1
 program systems
   size N: i32
   size C: i32
   in L: f32[N, 64, 64]
   in B: f32[N, 64, C]
   out X: f32[N, 64, C]
-kernel main grid (c: C, b: N) threads 1
-  register x: f32[64] = 0.0
-  for i in 0..64
-    register rest: f32 = B[b, i, c]
-    for j in 0..i
-      rest = rest - L[b, i, j] * x[j]
-    x[i] = rest
-    X[b, i, c] = rest
+kernel main grid (b: N) threads 1
+  hole unit_lower_solve contract "unit-lower-solve/1" reads L[b, 0 +: 64, 0 +: 64], B[b, 0 +: 64, 0 +: C] writes X[b, 0 +: 64, 0 +: C]
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.lineage.carrier import Contract
from kir.rewrite import Precondition

from ._carrier import Carrier, meets_contract


@dataclass(frozen=True)
class BlockedSolve(Carrier):
    """The answer solves 64 unknowns in four blocks of 16. `answer` is its name, `kernel` that of the kernel it is for."""

    intent: ClassVar[str] = "blocked-triangular-solve"
    catalogue: ClassVar[tuple[int, ...]] = (63,)
    claim: ClassVar[str] = "Blocks shorten the chain of dependent steps from the order of the system to the order of a block."
    numerics: ClassVar[str] = "reassociated(row)"
    carrier: ClassVar[Contract] = Contract.shipped("unit_lower_solve")
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P630", "validity", "numerics", "the answer solves the system, reading nothing on or above the diagonal",
                     meets_contract),)
