"""Reads a tile of global memory through shared memory: the CTA copies it once, and every part of the CTA reads the copy.

pipeline: `stage-shared{value="A[0 +: 64, k * 32 +: 32]"}@main/k/mma`

```diff
 kir 1
 program product
   in A: f16[64, K]
   in B: f16[K, 64]
   out C: f32[64, 64]
   size K: i32
   fact K % 32 == 0
 kernel main grid (i: 1) threads 128
   fragment acc: f32[64, 64] = 0.0
   @k for k in 0..K // 32
-    @mma mma acc += A[0 +: 64, k * 32 +: 32] * B[k * 32 +: 32, 0 +: 64]
+    shared As: f16[64, 32]
+    copy A[0 +: 64, k * 32 +: 32] -> As
+    @mma mma acc += As * B[k * 32 +: 32, 0 +: 64]
   C = acc
```
"""
from __future__ import annotations

import math
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.visit import statements, walk
from kir.rewrite import Context, Precondition, Site, Verdict, proved, refuted, unknown
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, kernel_of
from kir.rewrite.match import fits_shared, matched, params_as, shared_bytes
from kir.rewrite.match.local_buffers import team_level, tile_of

from ._staging_buffer import ThroughBuffer, unchanged_meanwhile


def _value(program: n.Program, site: Site) -> n.Load:
    item = params_as(site, StageShared)
    return matched(item.found(block_at(program, site.path)[int(site.path[-1])]))


def _bytes(value: n.Load) -> int:
    return math.prod(tile_of(value) or ()) * value.at.buffer.dtype.bytes


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    return fits_shared(shared_bytes(kernel_of(program, site.path), more=_bytes(_value(program, site))), context, "smaller tiles")


def _together(program: n.Program, site: Site, context: Context) -> Verdict:
    level = team_level(program, site.path)
    if level == "cta":
        return proved("the whole CTA executes the copy, and sees it complete")
    return refuted("only a part of the CTA reaches the copy, and every part would fill the same buffer",
                   f"two {'roles' if level == 'role' else level + 's'} write it", needs="a statement of the whole CTA")


def _reused(program: n.Program, site: Site, context: Context) -> Verdict:
    value, block = _value(program, site), block_at(program, site.path)
    if any(isinstance(s, n.Mma) and value in (*walk(s.a), *walk(s.b)) for s in statements(block[int(site.path[-1]):])):
        return proved("the rows and columns of a product share its elements")
    return unknown("no product shares its elements")


@dataclass(frozen=True)
class StageShared(ThroughBuffer):
    """`value` is the text of the load; the buffer is declared `hoist` statements further out."""

    space: ClassVar[str] = "shared"
    sources: ClassVar[frozenset[str]] = frozenset({"global"})
    base_name: ClassVar[str] = "s"

    intent: ClassVar[str] = "stage-shared"
    catalogue: ClassVar[tuple[int, ...]] = (2,)
    claim: ClassVar[str] = "Each element is read from global memory once per CTA, and from shared memory by whoever needs it."
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P022", "validity", "aliasing", "what is staged is not written while it is kept", unchanged_meanwhile),
        Precondition("KIR-P023", "validity", "storage", "the tile fits in shared memory beside the others", _fits),
        Precondition("KIR-P024", "validity", "pipeline", "the whole CTA reaches the copy", _together),
        Precondition("KIR-P025", "profit", "storage", "several parts of the CTA read the same elements", _reused),
    )

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The bytes of the tile."""
        return Effect(shared_bytes=_bytes(_value(program, site)))
