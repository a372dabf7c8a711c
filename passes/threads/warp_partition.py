"""Divides a product of the CTA among its warps: each computes one block of the result.

pipeline: `warp-partition{rows=2 columns=4}@main/dot`

```diff
 kir 1
 program product
   in A: f16[128, 32]
   in B: f16[32, 128]
   out C: f32[128, 128]
 kernel main grid (i: 1) threads 256
   fragment acc: f32[128, 128] = 0.0
-  @dot mma acc += A * B via fma
+  for w in 0..8 parallel warp
+    @dot mma acc[w // 4 * 64 +: 64, w % 4 * 32 +: 32] += A[w // 4 * 64 +: 64, 0 +: 32] * B[0 +: 32, w % 4 * 32 +: 32] via fma
   C = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import ClassVar

from kir.analysis.target.warpgroup import DESCRIBED
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import shape_of
from kir.ir.visit import names_read
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import counting, edited, fresh_var, hardware_of, matched, names_at, node_as, params_as
from kir.rewrite.match.local_buffers import team_level
from kir.rewrite.match.slices import NoSlice, part, part_of_region, whole, whole_of_region


def _product(program: n.Program, site: Site) -> tuple[n.Mma, WarpPartition]:
    node, item = node_as(program, site.path, n.Mma), params_as(site, WarpPartition)
    return node, item


def _extents(s: n.Mma) -> tuple[int, int] | None:
    """Rows and columns of a product of two dimensions with literal extents."""
    shape = shape_of(s.acc.type)
    if len(shape) != 2 or len(shape_of(s.a.type)) != 2:
        return None
    rows, columns = shape
    return (rows, columns) if isinstance(rows, int) and isinstance(columns, int) else None


def _all_warps(program: n.Program, site: Site, context: Context) -> Verdict:
    _, item = _product(program, site)
    threads = build.int_value(kernel_of(program, site.path).threads)
    warp = hardware_of(context).architecture.warp_size
    if threads == item.rows * item.columns * warp:
        return proved(f"{item.rows} x {item.columns} blocks for {threads // warp} warps")
    return refuted(f"{item.rows} x {item.columns} blocks are not one for each warp", f"the CTA has {threads} threads",
                   needs=f"{item.rows * item.columns * warp} threads")


def _whole_blocks(program: n.Program, site: Site, context: Context) -> Verdict:
    s, item = _product(program, site)
    found = matched(_extents(s))
    for extent, count, what in zip(found, (item.rows, item.columns), ("rows", "columns"), strict=True):
        if extent % count:
            return refuted(f"{extent} {what} do not divide into {count}", f"{what[:-1]} {extent - extent % count} belongs to no block",
                           needs=f"a divisor of {extent}")
    return proved("the blocks cover the result, each element once")


def grid_place(warp: n.Expr, rows: int, columns: int, down: bool) -> tuple[n.Expr, n.Expr]:
    """Row and column of a warp in a grid of warps that are numbered along the rows, or `down` the columns."""
    if rows == 1 or columns == 1:
        return (warp if columns == 1 and rows > 1 else build.const(0)), (warp if rows == 1 and columns > 1 else build.const(0))
    if down:
        return build.mod(warp, build.const(rows)), build.floordiv(warp, rows)
    return build.floordiv(warp, columns), build.mod(warp, build.const(columns))


@dataclass(frozen=True)
class WarpPartition(Pass):
    """The result is divided into `rows` x `columns` blocks, warp by warp in rows, or `down` the columns; 0 and 0 leave that open."""

    intent: ClassVar[str] = "warp-partition"
    catalogue: ClassVar[tuple[int, ...]] = (47, 48)
    claim: ClassVar[str] = "Each warp holds a block of the result in registers and reads only the operands of that block."
    requires: ClassVar[tuple[str, ...]] = ("threads",)
    provides: ClassVar[tuple[str, ...]] = ("warp-loop",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P476", "validity", "hardware", "there is one block for each warp of the CTA", _all_warps),
        Precondition("KIR-P477", "validity", "shape", "the blocks divide the result", _whole_blocks),
    )

    rows: int = 0
    columns: int = 0
    down: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a product that the CTA executes as a whole."""
        if not isinstance(node, n.Mma) or node.via in DESCRIBED or team_level(program, path) != "cta":
            return None
        found = _extents(node)
        if found is None:
            return Miss("the product is batched, or has a symbolic extent")
        if self.rows and self.columns:
            choices = [self]
        else:
            warps = (build.int_value(kernel_of(program, path).threads) or 0) // 32
            choices = [WarpPartition(r, warps // r, self.down) for r in range(1, warps + 1)
                       if warps > 1 and warps % r == 0 and found[0] % r == 0 and found[1] % (warps // r) == 0]
        choices = [x for x in choices if not x.down or min(x.rows, x.columns) > 1]
        if not choices and self.down:
            return Miss("warps in one row, or one column, are counted in one way only (down=false)")
        if not choices:
            return Miss("the CTA is a single warp, or its warps do not divide the result")
        try:
            for item in choices:
                item._divided(node, build.var("%w"), found)
        except NoSlice as why:
            return Miss(str(why))
        return tuple(Site(path, item) for item in choices)

    def _starts(self, w: n.Expr, block: tuple[int, int]) -> tuple[n.Expr, n.Expr]:
        """First row and column of a warp's block."""
        row, column = grid_place(w, self.rows, self.columns, self.down)
        return build.mul(row, block[0]), build.mul(column, block[1])

    def _divided(self, s: n.Mma, w: n.Expr, size: tuple[int, int]) -> n.Mma:
        block = (size[0] // self.rows, size[1] // self.columns)
        row, column = self._starts(w, block)
        acc = part_of_region(part_of_region(s.acc, 0, row, block[0]), 1, column, block[1])
        return replace(s, acc=acc, a=part(s.a, 0, row, block[0]), b=part(s.b, 1, column, block[1]))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the warps around the block of one."""
        s, _ = _product(program, site)
        size = matched(_extents(s))
        w = fresh_var("w", names_at(program, site.path))
        loop = counting(w, self.rows * self.columns, (self._divided(s, w, size),), "warp")
        return edited(program, site.path, (loop,))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over warps whose only statement is the block of a product."""
        if not (isinstance(node, n.For) and node.kind == "warp" and not node.attrs):
            return None
        count = build.int_value(node.hi)
        if len(node.body) != 1 or not isinstance(s := node.body[0], n.Mma) or count is None or not build.is_const(node.lo, 0):
            return Miss("the warps execute more than one product")
        block = _extents(s)
        if block is None:
            return Miss("the product is batched, or has a symbolic extent")
        for rows, down in product(range(1, count + 1), (False, True)):
            if count % rows == 0 and not (down and rows in (1, count)):
                item = WarpPartition(rows, count // rows, down)
                made = item._undivided(s, node.var, block)
                if made is not None and item._divided(made, node.var, (rows * block[0], item.columns * block[1])) == s:
                    return Site(path, item, {"product": made})
        return Miss("the warps' blocks are no grid of blocks")

    def _undivided(self, s: n.Mma, w: n.Var, block: tuple[int, int]) -> n.Mma | None:
        row, column = self._starts(w, block)
        size = (self.rows * block[0], self.columns * block[1])
        try:
            acc = whole_of_region(whole_of_region(s.acc, 0, row, size[0]), 1, column, size[1])
            made = replace(s, acc=acc, a=whole(s.a, 0, row, size[0]), b=whole(s.b, 1, column, size[1]))
        except NoSlice:
            return None
        return None if w.name in names_read(made) else made

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The product of the whole CTA."""
        return edited(program, site.path, (site.captures["product"],))
