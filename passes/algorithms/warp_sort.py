"""A stable counting sort, byte by byte, as one in which warps count and place runs of their own: equal bytes of a warp find their order
by matching lanes.

pipeline: `warp-sort`

```diff
 kir 1
 program order
   size R: i32
   size N: i32
   in keys: u8[R, N]
   out P: i32[R, N]
 kernel main grid (row: R) threads 1
-  register place: i32[256] = 0
-  for j in 0..N
-    let key = cast(keys[row, j], i32)
-    place[key] = place[key] + 1
-  register total: i32 = 0
-  for d in 0..256
-    let count = place[d]
-    place[d] = total
-    total = count + total
-  for j1 in 0..N
-    let key1 = cast(keys[row, j1], i32)
-    P[row, place[key1]] = j1
-    place[key1] = place[key1] + 1
+  hole stable_counting_sort contract "stable-counting-sort/1" reads keys[row, 0 +: N] writes P[row, 0 +: N]
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.lineage.carrier import Contract
from kir.rewrite import Precondition

from ._carrier import Carrier, meets_contract


@dataclass(frozen=True)
class WarpSort(Carrier):
    """The answer counts and places runs side by side. `answer` is its name, `kernel` that of the kernel it is for."""

    intent: ClassVar[str] = "parallel-counting-sort"
    catalogue: ClassVar[tuple[int, ...]] = (45,)
    claim: ClassVar[str] = "Ranks of equal keys within a warp come from one match of its lanes, so that a row is placed 32 keys at a time."
    carrier: ClassVar[Contract] = Contract.shipped("stable_counting_sort")
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P450", "validity", "numerics", "the answer sorts, and keeps equal keys in the order they came", meets_contract),)
