"""A gated delta rule, token by token, as phases over chunks: a chunk's updates are decoupled, states are carried from chunk to chunk,
and all outputs follow in parallel (Yang, Kautz, Hatamizadeh: Gated Delta Networks, arXiv 2412.06464, section 3).

pipeline: `chunk-recurrence`

```diff
 kir 1
 program head
   size L: i32
   in q: bf16[L, 64]
   in k: bf16[L, 64]
   in v: bf16[L, 64]
   in g: f32[L]
   in beta: f32[L]
   out o: bf16[L, 64]
-kernel main grid (e: 64) threads 1
-  register state: f32[64] = 0.0
-  for t in 0..L
-    let decay = exp(g[t])
-    register seen: f32 = 0.0
-    for d in 0..64
-      state[d] = decay * state[d]
-      seen = seen + state[d] * cast(k[t, d], f32)
-    let update = beta[t] * (cast(v[t, e], f32) - seen)
-    register dot: f32 = 0.0
-    for d1 in 0..64
-      state[d1] = state[d1] + cast(k[t, d1], f32) * update
-      dot = dot + state[d1] * cast(q[t, d1], f32)
-    o[t, e] = cast(dot * 0.125, bf16)
+kernel main grid () threads 1
+  hole gated_delta_rule contract "gated-delta-rule/1" reads q, k, v, g, beta writes o
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.lineage.carrier import Contract
from kir.rewrite import Precondition

from ._carrier import Carrier, meets_contract


@dataclass(frozen=True)
class ChunkRecurrence(Carrier):
    """The answer works in chunks of tokens. `answer` is its name, `kernel` that of the kernel it is for."""

    intent: ClassVar[str] = "phase-decomposition"
    catalogue: ClassVar[tuple[int, ...]] = (60,)
    claim: ClassVar[str] = "Chunks turn a recurrence over tokens into matrix products, with one short recurrence over chunks."
    numerics: ClassVar[str] = "rounding-moved(update, state, score)"
    carrier: ClassVar[Contract] = Contract.shipped("gated_delta_rule")
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P600", "validity", "numerics", "the answer computes the recurrence, the last and shorter chunk included",
                     meets_contract),)
