"""Moves neighboring elements to or from shared memory with one instruction.

The compiler does so where it sees that the place is aligned. Here it cannot: only the program knows that `L` is a multiple of 8.

pipeline: `vectorize-shared@main/threads/put`

```diff
 kir 1
 program rotate
   size L: i32
   in X: f16[64, 8]
   out Y: f16[64, 8]
   fact L >= 8
   fact L <= 64
   fact L % 8 == 0
 kernel main grid (b: 1) threads 64
   shared S: f16[4096]
   @threads for t in 0..64 parallel thread
-    @put for v in 0..8 unroll {factor=8}
-      S[L * t + v] = X[t, v]
+    @put S[L * t +: 8] = X[t, 0 +: 8]
     barrier()
     @get for v1 in 0..8 unroll {factor=8}
       Y[t, v1] = S[(t + 1) % 64 * L + v1]
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.rewrite import Context, Precondition, Site, Verdict, proved, refuted
from kir.rewrite.match import node_as

from ._vector_loop import VectorLoop, aligned, one_owner, regions_of


def _aligned(program: n.Program, site: Site, context: Context) -> Verdict:
    return aligned(program, site, "shared")


def _whole(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    count = int(str(dict(loop.attrs)["factor"]))
    for r in regions_of(loop, "shared"):
        b = r.buffer
        atom = b.layout.args[1] if b.layout is not None and b.layout.name == "swizzle" else None
        if b.layout is not None and (not isinstance(atom, int) or (1 << atom) < min(16, count * b.dtype.bytes)):
            return refuted(f"the layout of '{b.name}' splits vectors of {count * b.dtype.bytes} bytes", "elements 0 and 1 of the first vector",
                           needs="a swizzle that keeps 16 bytes together")
    return proved("neighbors in the index are neighbors in memory")


@dataclass(frozen=True)
class VectorizeShared(VectorLoop):
    """No parameters: the site is a loop over neighboring elements."""

    intent: ClassVar[str] = "vectorize-shared"
    catalogue: ClassVar[tuple[int, ...]] = (12,)
    claim: ClassVar[str] = "One wide access takes the place of several, and of their addresses."
    provides: ClassVar[tuple[str, ...]] = ("vectorized",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P120", "profit", "layout", "every vector starts at a multiple of its width, so that one instruction can move it", _aligned),
        Precondition("KIR-P121", "profit", "layout", "the layout keeps the elements of a vector together", _whole),
        Precondition("KIR-P122", "validity", "aliasing", "no iteration reads what another one writes", one_owner))

    def admits(self, read: set[str], written: str) -> bool:
        """Shared memory on either side."""
        return written == "shared" or "shared" in read
