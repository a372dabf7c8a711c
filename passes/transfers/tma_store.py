"""Stores a tile as a box of a tensor descriptor: the part outside the tensor is left out by hardware, and whole rows are written.

A copy from shared memory (or a loop of such copies, panel by panel) becomes one by a tensor map of the program: what the threads wrote is
made visible to the copying unit first, and waited for in a group afterwards.

pipeline: `tma-store@main/store`

```diff
 kir 1
 program double
   size M: i32
   size N: i32
   in X: f16[M, N]
   out Y: f16[M, N] align 16
   fact N % 8 == 0
 kernel main grid (i: ceildiv(M, 16), j: ceildiv(N, 32)) threads 32
   let x = load(X[i * 16 +: 16, j * 32 +: 32] else 0.0:f16 clip)
-  @store Y[i * 16 +: 16, j * 32 +: 32] = x + x clip
+  fragment Y_tile: f16[16, 32] = x + x
+  @store copy Y_tile -> Y[i * 16 +: 16, j * 32 +: 32] via tma clip
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import shape_of
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved
from kir.rewrite.edit import block_at, enclosing, node_at
from kir.rewrite.match import block_and_index, edited, fresh_at, matched_as, sibling, splice
from kir.rewrite.match.local_buffers import is_left, mentions, team_level

from ._tensor_descriptor import base_fits, box_fits, has_tma, is_box, strides_fit
from ._tma_copies import is_near, is_staging, map_fits, map_for, sends_before, wait_for_all, with_map, without_unused_maps


def _place(program: n.Program, site: Site) -> n.Region:
    node = node_at(program, site.path)
    if not isinstance(node, n.Store):
        copies = _copies(node)
        assert copies
        return copies[0].dst
    return node.at


def _copies(node: Place) -> list[n.Copy]:
    """The copies that a statement is: one, or those of an unrolled loop of them."""
    if isinstance(node, n.Copy):
        return [node]
    if isinstance(node, n.For) and node.kind == "unroll" and node.body and all(isinstance(x, n.Copy) for x in node.body):
        return [x for x in node.body if isinstance(x, n.Copy)]
    return []


def _layout(program: n.Program, site: Site, context: Context) -> Verdict:
    for c in _copies(node_at(program, site.path)):
        found = map_fits(c)
        if not found:
            return found
    return proved("a map reads the box as the buffer's layout says")


def _strides(program: n.Program, site: Site, context: Context) -> Verdict:
    return strides_fit(_place(program, site), Facts.at(program, site.path))


def _box(program: n.Program, site: Site, context: Context) -> Verdict:
    return box_fits(_place(program, site))


def _base(program: n.Program, site: Site, context: Context) -> Verdict:
    return base_fits(_place(program, site))


@dataclass(frozen=True)
class TmaStore(Pass):
    """No parameters: the box is the tile."""

    intent: ClassVar[str] = "tma-store"
    catalogue: ClassVar[tuple[int, ...]] = (21,)
    claim: ClassVar[str] = "No thread computes addresses or masks, and rows leave whole."
    provides: ClassVar[tuple[str, ...]] = ("tma",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P210", "validity", "layout", "rows are dense and start at multiples of 16 bytes", _strides),
        Precondition("KIR-P211", "validity", "storage", "the tile is a box that a descriptor may have", _box),
        Precondition("KIR-P212", "validity", "layout", "the tensor begins at a multiple of 16 bytes", _base),
        Precondition("KIR-P214", "validity", "layout", "a map reads the box in shared memory as the buffer's layout says", _layout),
        Precondition("KIR-P213", "profit", "hardware", "the target copies boxes in hardware", has_tma),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store of the whole CTA to a box of global memory, or at copies of a team from dense rows of shared memory to such boxes."""
        if copies := _copies(node):
            return self._of_copies(program, path, copies)
        if not (isinstance(node, n.Store) and node.at.buffer.space == "global" and shape_of(node.at.type)) or team_level(program, path) != "cta":
            return None
        if not is_box(node.at) or node.mask is not None or node.cache:
            return Miss("the place is no box of the tensor, or the store has a mask or cache policy of its own")
        if node.value.type != node.at.type:
            return Miss("the value is stretched as it is stored")
        return Site(path, self)

    def _of_copies(self, program: n.Program, path: Path, copies: list[n.Copy]) -> Found:
        if not all(is_staging(c, loads=False) for c in copies):
            return None
        *_, (_, around) = enclosing(program, path)
        if isinstance(around, n.For) and _copies(around):
            return None
        if team_level(program, path) not in ("cta", "role", "warpgroup"):
            return Miss("a single warp or thread copies")
        if any(not is_left(c.src.at.buffer) and map_for(program, c) is None for c in copies):
            return Miss("no tensor map shows the view that is written")
        if sends_before(program, path):
            return Miss("stores before it are not waited for yet, and its wait would be for them too")
        if not all(is_box(c.dst) and is_near(c.src.at) and c.src.other is None for c in copies):
            return Miss("a place is no box of the tensor, or a part of the rows in shared memory")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The value into a fragment, and a copy of it to its place."""
        s = node_at(program, site.path)
        if copies := _copies(s):
            mapped = program
            changed: dict[n.Copy, n.Copy] = {}
            for c in copies:
                if is_left(c.src.at.buffer):
                    changed[c] = replace(c, via="tma", grouped=True)
                    continue
                mapped, of = with_map(mapped, c)
                changed[c] = replace(c, via="tma", grouped=True, attrs=n.attrs(descriptor=of))
            assert isinstance(s, (n.Copy, n.For))
            sent = changed[s] if isinstance(s, n.Copy) else replace(s, body=tuple(changed[x] for x in s.body if isinstance(x, n.Copy)))
            block = (*_before(), sent, *_after())
            return edited(mapped, site.path, block, at=1)
        assert isinstance(s, n.Store)
        name = fresh_at(program, site.path, f"{s.at.buffer.name}_tile")
        shape = tuple(d if isinstance(d, n.Expr) else build.const(d) for d in shape_of(s.at.type))
        b = n.Buffer(name, s.at.buffer.dtype, shape, "fragment")
        made = (n.Alloc(b, s.value), n.Copy(n.Load(n.Region(b)), s.at, "tma", clip=s.clip, label=s.label, origin=s.origin))
        return edited(program, site.path, made, at=1)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At such a copy from a fragment that was declared with its value just for it, or at copies from shared memory between fence and wait."""
        if (copies := _copies(node)) and all(c.via == "tma" and c.grouped and (c.src.at.buffer.space, c.dst.buffer.space) == (
                "shared", "global") for c in copies):
            block, i = block_and_index(program, path)
            if block[i - 1:i] != _before() or block[i + 1:i + 3] != _after():
                return Miss("the copies are not between a fence and the wait for their group")
            if sends_before(program, path):
                return Miss("the wait is for stores before it too")
            return Site(path, self)
        if not (isinstance(node, n.Copy) and node.via == "tma" and node.src.at.buffer.space == "fragment" and node.dst.buffer.space == "global"):
            return None
        b, (block, i) = node.src.at.buffer, block_and_index(program, path)
        if node.src != n.Load(n.Region(b)) or node.mask is not None or node.attrs or node.signal is not None or node.grouped or b.layout is not None:
            return Miss(f"only a part of '{b.name}' is written, or not at once")
        above = block[i - 1] if i else None
        if not (isinstance(above, n.Alloc) and above.buffer == b and above.init is not None) or any(mentions(x, b.name) for x in block[i + 1:]):
            return Miss(f"'{b.name}' is not declared just for this copy")
        return Site(path, self)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The value straight to its place."""
        s, i = node_at(program, site.path), int(site.path[-1])
        if isinstance(s, n.For) or (isinstance(s, n.Copy) and s.src.at.buffer.space == "shared"):
            plain = _plain(s) if isinstance(s, n.Copy) else replace(s, body=tuple(_plain(x) for x in s.body if isinstance(x, n.Copy)))
            bare = splice(program, site.path, (plain,), -1, 3)
            return Rewritten(without_unused_maps(bare), sibling(site.path, -1))
        above = matched_as(block_at(program, site.path)[i - 1], n.Alloc)
        assert isinstance(s, n.Copy) and above.init is not None
        made = n.Store(s.dst, above.init, None, s.clip, label=s.label, origin=s.origin)
        return edited(program, site.path, (made,), -1, at=-1)


def _plain(s: n.Copy) -> n.Copy:
    return replace(s, via="plain", grouped=False, attrs=())


def _before() -> n.Block:
    return (n.Eval(build.call("fence_async")),)


def _after() -> n.Block:
    return (n.Eval(build.call("bulk_commit")), wait_for_all())
