"""Stages a result on its way out, in shared memory or as a fragment, so that it can leave in an order and width of its own.

pipeline: `stage-epilogue@main/store`

```diff
 kir 1
 program widen
   in X: f16[64, 64]
   out Y: f32[64, 64]
 kernel main grid (i: 1) threads 128
   let x = X
-  @store Y = cast(x, f32)
+  shared Ys: f32[64, 64]
+  @store Ys = cast(x, f32)
+  copy Ys -> Y
```
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar, Literal

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import TileType
from kir.ir.visit import names_read, statements
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import kernel_of, replace_stmts
from kir.rewrite.match import block_and_index, edited, fits_shared, fresh_at, matched, matched_as, node_as, params_as, shared_bytes, sibling
from kir.rewrite.match.local_buffers import byte_count, mentions, own_parts, team_level
from kir.rewrite.match.slices import NoSlice

from ._panel_epilogue import removed, share, staged, unstaged


def _extents(r: n.Region) -> tuple[int, ...] | None:
    if not isinstance(r.type, TileType) or not all(isinstance(d, int) for d in r.type.shape):
        return None
    return tuple(d for d in r.type.shape if isinstance(d, int))


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, StageEpilogue)
    if item.space == "fragment":
        return proved("a fragment takes no shared memory")
    total = shared_bytes(kernel_of(program, site.path), size=lambda b: 8 if b.dtype.kind == "token" else byte_count(b),
                         more=item.staged_bytes(program, site))
    return fits_shared(total, context, "smaller tiles, or memory that is free by then", usual="sm_90a" if item.panel else "sm_80")


def _together(program: n.Program, site: Site, context: Context) -> Verdict:
    level, item = team_level(program, site.path), params_as(site, StageEpilogue)
    if item.panel and level in ("role", "warpgroup"):
        return proved(f"the {level} stages rows of its own, and copies them when it is done")
    if item.space == "fragment" and level in ("role", "warpgroup"):
        return proved(f"the {level} has the fragment in registers of its own")
    if level == "cta":
        return proved("the whole CTA stages its result, and copies it when it is complete")
    return refuted("only a part of the CTA stores here, and every part would fill the same buffer",
                   f"two {'roles' if level == 'role' else level + 's'} write it", needs="a statement of the whole CTA")


def _whole_panels(program: n.Program, site: Site, context: Context) -> Verdict:
    item, at = params_as(site, StageEpilogue), node_as(program, site.path, n.Store).at
    columns, each = (_extents(at) or (0,))[-1], item.panel * max(1, item.rounds)
    if each and columns % each:
        return refuted(f"{columns} columns are not {max(1, item.rounds)} rounds of whole panels of {item.panel}",
                       f"column {columns - columns % each} is never stored", needs=f"a multiple of {each} columns")
    return proved("the panels cover the result" if each else "the whole is staged at once")


@dataclass(frozen=True)
class StageEpilogue(Pass):
    """`space` is where the result is staged. `panel` is the number of columns that are staged side by side (0: the whole tile as it is), `rounds`
    how often the same memory is filled (0: once, without a loop). In panels, a warpgroup stages its own rows by itself: in panels that all share,
    or `apart`, in panels of its own."""

    intent: ClassVar[str] = "stage-epilogue"
    catalogue: ClassVar[tuple[int, ...]] = (5, 21)
    claim: ClassVar[str] = "Results leave registers in the order of the fragment and global memory is written in whole rows."
    requires: ClassVar[tuple[str, ...]] = ("rows",)
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P052", "validity", "storage", "the tile fits in shared memory beside the others", _fits),
        Precondition("KIR-P053", "validity", "pipeline", "the whole CTA reaches the store, or a team that has rows of its own", _together),
        Precondition("KIR-P768", "validity", "shape", "whole panels and rounds make up the columns", _whole_panels),
    )

    panel: int = 0
    rounds: int = 0
    apart: bool = False
    space: Literal["shared", "fragment"] = "shared"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store of a whole tile to a place in global memory."""
        if not (isinstance(node, n.Store) and node.at.buffer.space == "global" and isinstance(node.at.type, TileType)):
            return None
        if node.mask is not None or node.cache:
            return Miss("the store has a mask or a cache policy")
        if _extents(node.at) is None or any(isinstance(i, n.Expr) and isinstance(i.type, TileType) for i in node.at.index):
            return Miss("the place is scattered, or has a symbolic extent")
        if self.panel < 0 or self.rounds < 0 or (self.rounds and not self.panel):
            return Miss("no panels, or no rounds")
        if self.panel and self.space != "shared":
            return Miss("panels are staged in shared memory")
        if self.panel:
            try:
                staged(program, path, node, self.panel, self.rounds, self.apart)
            except NoSlice as why:
                return Miss(str(why))
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The value into a buffer, and the buffer to its place."""
        s = node_as(program, site.path, n.Store)
        if self.panel:
            return Rewritten(*staged(program, site.path, s, self.panel, self.rounds, self.apart))
        shape = matched(_extents(s.at))
        name = fresh_at(program, site.path, f"{s.at.buffer.name}s")
        b = n.Buffer(name, s.at.buffer.dtype, tuple(build.const(d) for d in shape), self.space)
        made = (n.Alloc(b), replace(s, at=n.Region(b), clip=False), n.Copy(n.Load(n.Region(b)), s.at, clip=s.clip))
        return edited(program, site.path, made, at=1)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store to a whole shared buffer or fragment, which is then only copied to global memory; or at loops that do so with panels."""
        if isinstance(node, n.For) and node.kind == "unroll":
            try:
                found = unstaged(program, path)
            except NoSlice:
                return None
            return Site(path, StageEpilogue(found.panel, found.rounds, found.apart), {"found": found})
        if not (isinstance(node, n.Store) and node.at.buffer.space in ("shared", "fragment") and not node.at.index and node.mask is None):
            return None
        b, (block, i) = node.at.buffer, block_and_index(program, path)
        if b.layout is not None or b.strides is not None or b.align:
            return Miss(f"'{b.name}' has a layout of its own")
        users = [x for x in statements(kernel_of(program, path).body) if x is not node and any(mentions(p, b.name) for p in own_parts(x))]
        alloc, copy = (next((k for k, x in enumerate(block) if x is y), None) for y in users) if len(users) == 2 else (None, None)
        if alloc is None or copy is None or not (alloc < i < copy):
            return Miss(f"'{b.name}' is not declared, filled and copied once each, in this block")
        s, d = block[copy], block[alloc]
        if not (isinstance(d, n.Alloc) and d.init is None and isinstance(s, n.Copy) and s.via == "plain" and s.dst.buffer.space == "global"
                and s.src == n.Load(n.Region(b)) and s.mask is None and not s.attrs):
            return Miss(f"what reads '{b.name}' is no plain copy of the whole to global memory")
        if any(mentions(x, s.dst.buffer.name) for x in block[i + 1:copy]):
            return Miss(f"'{s.dst.buffer.name}' is used between the store and the copy")
        if late := sorted(names_read(s.dst) & {*bound_names(block[i + 1:copy])}):
            return Miss(f"the place of the copy is worked out after the store: '{late[0]}'")
        return Site(path, StageEpilogue(space="shared" if b.space == "shared" else "fragment"), {"alloc": alloc, "copy": copy})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The value straight to its place."""
        if self.panel:
            return Rewritten(*removed(program, site.path, site.captures["found"]))
        s, (block, i) = node_as(program, site.path, n.Store), block_and_index(program, site.path)
        copy = matched_as(block[site.captures["copy"]], n.Copy)
        made = {i: replace(s, at=copy.dst, clip=copy.clip)}
        left = tuple(made.get(k, x) for k, x in enumerate(block) if k not in (site.captures["alloc"], site.captures["copy"]))
        out = replace_stmts(program, (*site.path[:-1], 0), left, len(block))
        return Rewritten(out, sibling(site.path, -1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The bytes of the tile."""
        return Effect() if self.space == "fragment" else Effect(shared_bytes=self.staged_bytes(program, site))

    def staged_bytes(self, program: n.Program, site: Site) -> int:
        """Bytes of shared memory that are added."""
        at = node_as(program, site.path, n.Store).at
        rows = share(program, site.path, 1) if self.panel else None
        teams = rows.groups if rows is not None else 1
        return math.prod(_extents(at) or ()) * at.buffer.dtype.bytes * teams // max(1, self.rounds)
