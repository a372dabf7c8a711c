"""Unit lower triangular matrices of a row's keys, inverted chunk by chunk: blocks on the diagonal at once, those below them as products (the UT
transform of Joffrain, Low, Quintana-Orti and van de Geijn: Accumulating Householder transformations, revisited, section 3).

pipeline: `chunk-inverse`

```diff
 kir 1
 program chunks
   size L: i32
   in k: bf16[L, 128]
   in beta: f32[L]
   out A: bf16[L, 64]
-kernel main grid (t: L) threads 1
-  register x: f32[64] = 0.0
-  x[t % 64] = 1.0
-  for i in 0..t % 64
-    register rest: f32 = 0.0
-    for m in 0..i + 1
-      register dot: f32 = 0.0
-      for d in 0..128
-        dot = dot + cast(k[t - m, d], f32) * cast(k[t - i - 1, d], f32)
-      rest = rest + x[t % 64 - m] * (beta[t - m] * dot)
-    x[t % 64 - i - 1] = -rest
-  for c in 0..64
-    A[t, c] = cast(x[c], bf16)
+kernel main grid () threads 1
+  hole chunk_inverse contract "chunk-inverse/1" reads k, beta writes A
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.lineage.carrier import Contract
from kir.rewrite import Precondition

from ._carrier import Carrier, meets_contract


@dataclass(frozen=True)
class ChunkInverse(Carrier):
    """The answer inverts chunks of 64 tokens. `answer` is its name, `kernel` that of the kernel it is for."""

    intent: ClassVar[str] = "blocked-triangular-solve"
    catalogue: ClassVar[tuple[int, ...]] = (63,)
    claim: ClassVar[str] = "A CTA computes the products of a chunk's keys once for all of its rows, and blocks turn the chain of dependent steps into products."
    numerics: ClassVar[str] = "rounding-moved(product, block)"
    carrier: ClassVar[Contract] = Contract.shipped("chunk_inverse")
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P632", "validity", "numerics", "the answer inverts each chunk, the last and shorter one included", meets_contract),)
