"""Lets all threads of the CTA work side by side on what a loop does with one element after the other: several statements, locals among them.

pipeline: `partition-block@main/each`

```diff
 kir 1
 program gate
   in X: f32[M, 64]
   inout A: f32[M, 64]
   inout B: f32[M, 64]
   size M: i32
 kernel main grid (row: M) threads 128
-  @each for j in 0..64
-    let old = A[row, j]
-    A[row, j] = X[row, j] * B[row, j]
-    B[row, j] = old * X[row, j]
+  let old = A[row, 0 +: 64]
+  A[row, 0 +: 64] = X[row, 0 +: 64] * B[row, 0 +: 64]
+  B[row, 0 +: 64] = old * X[row, 0 +: 64]
```
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kir.analysis.access import Access, Aliases, accesses, independent
from kir.analysis.elements import NotElementwise
from kir.analysis.facts import Facts
from kir.analysis.tiles.retile import CannotRetile, Narrow
from kir.analysis.tiles.tile_axes import AxisClass, TileAxes
from kir.analysis.tiles.widen import Widen
from kir.base.dataclass import dataclass
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, dtype_of, shape_of
from kir.ir.visit import blocks_of, children, names_read, statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import edit_block, kernel_of, names_in
from kir.rewrite.match import block_and_index, counting, edited, fresh_var, is_counted, matched, node_as
from kir.rewrite.match.independence import elsewhere, own_place
from kir.rewrite.match.local_buffers import team_level

from .partition_rows import narrowed


def _own(body: n.Block) -> set[str]:
    """Names that a block declares."""
    inside = list(statements(body))
    return {s.buffer.name for s in inside if isinstance(s, n.Alloc)} | {x for s in inside if isinstance(s, n.Let) for x in s.names}


def _apart(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    aliases, own = Aliases(program), _own(loop.body)
    found = [a for s in loop.body for a in accesses(s) if a.buffer not in own]
    alike = _alike(loop)
    for a in found:
        if a.at in alike and not any(not b.writes and aliases.may_be_one(a.buffer, b.buffer) for b in found):
            continue  # written once instead, with what every iteration writes there
        if a.writes and (a.at is None or not own_place(program, (*site.path, "body", 0), a.at, loop)):
            return unknown(f"several iterations may write one place of '{a.buffer}', and only their order says what stays",
                           needs="a place that moves with each iteration")
    for a in found:
        for b in found:
            if a.writes and aliases.may_be_one(a.buffer, b.buffer) and (a.buffer != b.buffer or a.at != b.at) and not _always_apart(program, site.path, a, b):
                return refuted(f"an iteration touches '{b.buffer}' where another writes '{a.buffer}'", f"{loop.var.name} = 1 may touch what 0 has written",
                               needs="one place for each iteration, the same in every statement")
    return proved("each iteration touches what it writes at a place of its own")


def _alike(loop: n.For) -> set[n.Region]:
    """The places of global memory in which every iteration stores, whatever its number, and the same value as any other if none reads what they store."""
    wide = Widen.of(loop.body, loop.var, build.const(0, dtype_of(loop.var.of)), matched(build.int_value(loop.hi)))
    every, some = set[n.Region](), set[n.Region]()

    def look(block: n.Block, always: bool) -> None:
        for s in block:
            inner = blocks_of(s)
            if isinstance(s, n.Store):
                (every if always and not wide.depends(s) else some).add(s.at)
            for each in inner:
                look(each, always and not any(wide.depends(x) for x in children(s) if isinstance(x, n.Expr)))
    look(loop.body, True)
    return every - some


def _always_apart(program: n.Program, path: Path, a: Access, b: Access) -> bool:
    """Whether no iteration reaches with one access what any reaches with the other: the halves of a row, say."""
    loop = node_as(program, path, n.For)
    return a.buffer == b.buffer and a.at is not None and b.at is not None and elsewhere(program, (*path, "body", 0), a.at, b.at, loop)


@dataclass(frozen=True)
class PartitionBlock(Pass):
    """The axis of the loop comes first in every tile."""

    intent: ClassVar[str] = "partition-rows"
    catalogue: ClassVar[tuple[int, ...]] = (47,)
    claim: ClassVar[str] = "All threads of the CTA work on a row side by side, in what takes several statements as well."
    provides: ClassVar[tuple[str, ...]] = ("rows",)
    conflicts: ClassVar[tuple[str, ...]] = ("tiled",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P875", "validity", "aliasing", "no iteration touches what another writes", _apart),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop of known length over several statements that carry nothing along."""
        if not is_counted(node, plain=True):
            return None
        if len(node.body) < 2 or build.int_value(node.hi) is None:
            return None
        if team_level(program, path) == "thread":
            return Miss("one thread alone gets here")
        own = _own(node.body)
        for s in statements(node.body):
            if not isinstance(s, (n.Let, n.Alloc, n.Store, n.For, n.If)):
                return Miss(f"a {type(s).__name__.lower()} stands in it")
            if isinstance(s, n.Store) and s.at.buffer.space != "global" and s.at.buffer.name not in own:
                return Miss(f"'{s.at.buffer.name}' is carried along")
            if any(isinstance(x, n.Call) and x.fn in table() and table()[x.fn].effect for x in walk(s)):
                return Miss("it does more than read and write")
        try:
            self._widened(node)
        except (CannotRetile, NotElementwise) as bad:
            return Miss(str(bad))
        return Site(path, self)

    def _widened(self, loop: n.For) -> n.Block:
        extent = matched(build.int_value(loop.hi))
        return Widen.of(loop.body, loop.var, build.const(0, dtype_of(loop.var.of)), extent).block(loop.body)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each statement for the whole tile."""
        loop = node_as(program, site.path, n.For)
        made = self._widened(loop)
        return edited(program, site.path, made)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first of several statements of a block that share an axis of a tile, or hand on a tile that they declare."""
        if not (isinstance(node, (n.Let, n.Alloc)) and _tile(node)):
            return None
        if team_level(program, path) == "thread":
            return Miss("one thread alone gets here")
        try:
            _narrowed(program, path)
        except (CannotRetile, NotElementwise) as bad:
            return Miss(str(bad))
        return Site(path, self)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the elements at the place of the first statement."""
        made, gone, i = *_narrowed(program, site.path), int(site.path[-1])
        out = edit_block(program, site.path, lambda b: (*b[:i], made, *(s for k, s in enumerate(b) if k > i and k not in gone)))
        return Rewritten(out, site.path)


def _tile(s: n.Stmt) -> bool:
    """Whether a statement declares a tile."""
    return bool(shape_of(s.value.type)) if isinstance(s, n.Let) else isinstance(s, n.Alloc) and s.buffer.space == "fragment" and bool(s.buffer.shape)


def _narrowed(program: n.Program, path: Path) -> tuple[n.For, set[int]]:
    """The loop that a statement and those that belong to it become, and their numbers in the block. Raises CannotRetile."""
    kernel, (block, i) = kernel_of(program, path), block_and_index(program, path)
    first = block[i]
    name = first.names[0] if isinstance(first, n.Let) else first.buffer.name if isinstance(first, n.Alloc) else ""
    front = next(iter(TileAxes.known(kernel).of(name)), None)
    if front is None or not isinstance(front.extent, int) or front.reduced or front.opaque:
        raise CannotRetile("the axis is reduced, or its extent is not known")
    group, stores = _group(kernel, program, block, i, front)
    j, axes = fresh_var("j", names_in(program, kernel)), TileAxes(kernel)
    own = axes.of(name)[0]
    assert own is not None
    drop = Narrow(axes, own, build.const(0, I32), j)
    body = tuple(narrowed(stores[k], 0, j) if k in stores else drop.stmt(block[k]) for k in sorted(group))
    return counting(j, front.extent, body), group


def _group(kernel: n.Kernel, program: n.Program, block: n.Block, i: int, front: AxisClass) -> tuple[set[int], dict[int, n.Store]]:
    """The statements of a block that become one loop with statement `i`: those that name a tile of the axis, and (also apart) stores of as
    long a tile between them that cannot be moved behind. Raises CannotRetile where others are in the way."""
    names = {name for name, _ in front.members}
    group = {k for k, s in enumerate(block) if _mentions(s, names)}
    if min(group) != i or not names <= _own(tuple(block[k] for k in group)):
        raise CannotRetile("a tile of the axis is declared elsewhere")
    stores: dict[int, n.Store] = {}
    known, aliases = Facts.in_kernel(program, kernel.name), Aliases(program)
    for k in range(i + 1, max(group)):
        s = block[k]
        if k in group or _movable(s, k, block, group, known, aliases):
            continue
        if not (isinstance(s, n.Store) and s.at.buffer.space == "global" and shape_of(s.at.type) == (front.extent,)):
            raise CannotRetile("a statement between them belongs to no element")
        group.add(k)
        stores[k] = s
    if len(group) < 2:
        raise CannotRetile("it is one statement")
    return group, stores


def _movable(s: n.Stmt, k: int, block: n.Block, group: set[int], known: Facts, aliases: Aliases) -> bool:
    """Whether statement `k` may stand behind all of a group as well as in its midst."""
    return all(independent((block[m],), (s,), known, aliases) for m in group)


def _mentions(s: n.Stmt, names: set[str]) -> bool:
    return bool(_used(s) & names)


def _used(s: n.Stmt) -> frozenset[str]:
    def of(x: n.Node) -> Iterator[str]:
        if isinstance(x, n.Buffer):
            yield x.name
        elif isinstance(x, n.Let):
            yield from x.names
    return names_read(s) | {name for x in walk(s) for name in of(x)}
