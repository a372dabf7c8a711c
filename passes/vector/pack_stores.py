"""Writes neighboring results of one thread to global memory as one word.

pipeline: `pack-stores@main/threads/store`

```diff
 kir 1
 program halves
   in X: f32[64, 2]
   out Y: f16[64, 2]
 kernel main grid (b: 1) threads 64
   @threads for t in 0..64 parallel thread
-    @store for v in 0..2 unroll {factor=2}
-      let x = X[t, v] * 2.0
-      Y[t, v] = cast(x, f16)
+    let x = X[t, 0 +: 2] * 2.0
+    @store Y[t, 0 +: 2] = cast(x, f16)
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.rewrite import Context, Precondition, Site, Verdict

from ._vector_loop import VectorLoop, aligned, one_owner


def _aligned(program: n.Program, site: Site, context: Context) -> Verdict:
    return aligned(program, site, "global")


@dataclass(frozen=True)
class PackStores(VectorLoop):
    """No parameters: the site is a loop over neighboring results."""

    intent: ClassVar[str] = "pack-stores"
    catalogue: ClassVar[tuple[int, ...]] = (13,)
    claim: ClassVar[str] = "Narrow results leave the thread together, in as many instructions as they fill words."
    provides: ClassVar[tuple[str, ...]] = ("vectorized",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P130", "profit", "layout", "every word starts at a multiple of its width, so that one instruction can move it", _aligned),
        Precondition("KIR-P131", "validity", "aliasing", "no iteration reads what another one writes", one_owner))

    def admits(self, read: set[str], written: str) -> bool:
        """Results that leave for global memory, from anywhere but shared memory."""
        return written == "global" and "shared" not in read
