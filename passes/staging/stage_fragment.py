"""Reads a tile of shared memory through registers: a warp loads its operand once, and computes on the copy.

pipeline: `stage-fragment{value="As"}@main/mma`

```diff
 kir 1
 program product
   in A: f16[16, 16]
   in B: f16[16, 8]
   out C: f32[16, 8]
 kernel main grid (i: 1) threads 32
   shared As: f16[16, 16]
   copy A -> As
   fragment acc: f32[16, 8] = 0.0
-  @mma mma acc += As * B via mma_sync
+  fragment As_tile: f16[16, 16]
+  copy As -> As_tile
+  @mma mma acc += As_tile * B via mma_sync
   C = acc
```
"""
from __future__ import annotations

import math
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.printer import expr_text
from kir.ir.visit import walk
from kir.rewrite import Context, Found, Miss, Path, Place, Precondition, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect, found_sites
from kir.rewrite.edit import block_at, kernel_of
from kir.rewrite.match import hardware_of, matched, params_as
from kir.rewrite.match.local_buffers import team_level, tile_of

from ._staging_buffer import ThroughBuffer, unchanged_meanwhile


def _registers(program: n.Program, site: Site) -> int:
    """32-bit registers that a thread needs for its share of the tile."""
    item = params_as(site, StageFragment)
    value = matched(item.found(block_at(program, site.path)[int(site.path[-1])]))
    threads = {"warp": 32, "warpgroup": 128, "thread": 1}.get(team_level(program, site.path)) or int_value(
        kernel_of(program, site.path).threads) or 1
    return -(-math.prod(tile_of(value) or ()) * value.at.buffer.dtype.bytes // (4 * threads))


def _space_left(program: n.Program, site: Site, context: Context) -> Verdict:
    needed, hardware = _registers(program, site), hardware_of(context)
    limit = hardware.architecture.max_registers_per_thread
    if needed >= limit:
        return refuted(f"the fragment takes {needed} registers of each thread; {hardware.name} has {limit}", "the rest is spilled",
                       needs="a smaller tile")
    return proved(f"{needed} of {limit} registers of each thread")


@dataclass(frozen=True)
class StageFragment(ThroughBuffer):
    """`value` is the text of the load; the fragment is declared `hoist` statements further out."""

    space: ClassVar[str] = "fragment"
    sources: ClassVar[frozenset[str]] = frozenset({"shared"})
    base_name: ClassVar[str] = "_tile"

    intent: ClassVar[str] = "promote-scratch"
    catalogue: ClassVar[tuple[int, ...]] = (5,)
    claim: ClassVar[str] = "Operands lie in registers when the tensor cores need them, and one load serves every product that uses them."
    requires: ClassVar[tuple[str, ...]] = ("shared",)
    provides: ClassVar[tuple[str, ...]] = ("fragment",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P050", "validity", "aliasing", "what is kept is not written meanwhile", unchanged_meanwhile),
        Precondition("KIR-P051", "profit", "storage", "the fragment fits in registers", _space_left),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """As of any buffer, but for what a product in flight reads: of registers it takes what was written before the last wgmma_fence."""
        found = super().match(program, path, node)
        if isinstance(found, Miss) or found is None or not isinstance(node, n.Stmt):
            return found
        late = {expr_text(x) for s in walk(node) if isinstance(s, n.Mma) and s.pending for x in (*walk(s.a), *walk(s.b)) if isinstance(x, n.Load)}
        kept = tuple(site for site in found_sites(found) if params_as(site, StageFragment).value not in late)
        return kept or (Miss("a product in flight reads registers only behind a wgmma_fence") if self.value else None)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The registers of the fragment."""
        return Effect(registers=_registers(program, site))
