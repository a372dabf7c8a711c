"""The K largest of a row found by radix select: digit by digit from the top, ending as soon as a bucket holds just what is missing.

pipeline: `radix-select`

```diff
 kir 1
 program largest
   size R: i32
   size N: i32
   in X: f32[R, N]
   out V: f32[R, 4]
   out I: i32[R, 4]
   fact N >= 4
 kernel main grid (row: R) threads 1
-  register last: f32 = inf
-  register last_at: i32 = -1
-  for s in 0..4
-    register best: f32 = -inf
-    register best_at: i32 = N
-    for j in 0..N
-      let x = X[row, j]
-      let later = x < last | x == last & j > last_at
-      if later & (x > best | N == best_at)
-        best = x
-        best_at = j
-    V[row, s] = best
-    I[row, s] = best_at
-    last = best
-    last_at = best_at
+  hole radix_select contract "radix-select/1" reads X[row, 0 +: N] writes V[row, 0 +: 4], I[row, 0 +: 4]
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.visit import walk
from kir.lineage.carrier import Contract
from kir.rewrite import Context, Precondition, Site, Verdict, proved, refuted

from ._carrier import Carrier, meets_contract


def _order_is_free(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether nothing in the program reads the selection, whose order radix select leaves open."""
    kernel = next(k for k in program.kernels if k.name == site.path[0])
    written = {s.at.buffer.name for s in walk(kernel) if isinstance(s, n.Store) and s.at.buffer.space == "global"}
    for k in program.kernels:
        for s in walk(k):
            if isinstance(s, n.Load) and s.at.buffer.name in written:
                return refuted(f"'{k.name}' reads '{s.at.buffer.name}', which radix select leaves in any order",
                               f"kernel '{k.name}' may take '{s.at.buffer.name}' to descend", needs="a selection that only the caller reads")
    return proved("no kernel reads the selection; which places a row with NaN gives is another matter", scope="inputs without NaN")


@dataclass(frozen=True)
class RadixSelect(Carrier):
    """The answer finds the K-th largest key by digits and takes what is above it. `answer` is its name, `kernel` that of the kernel it is for."""

    intent: ClassVar[str] = "radix-select"
    catalogue: ClassVar[tuple[int, ...]] = (61,)
    claim: ClassVar[str] = "Finding the K-th largest key digit by digit reads each row a few times instead of K times."
    carrier: ClassVar[Contract] = Contract.shipped("radix_select")
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P610", "validity", "aliasing", "nothing in the program relies on the order of the selection", _order_is_free),
        Precondition("KIR-P611", "validity", "numerics", "the answer selects the K largest, ties and tails included", meets_contract))
