"""Keeps a computed or loaded tile in memory of the CTA, where its elements are read in any order.

pipeline: `hold-tile{value="X[row, 0 +: 64]" space=shared}@main/use`

```diff
 kir 1
 program reversed
   in X: f32[M, 64]
   out Y: f32[M, 64]
   size M: i32
 kernel main grid (row: M) threads 64
-  @use Y[row, 0 +: 64] = X[row, iota(64) * 5 % 64] * 2.0
+  shared held: f32[64]
+  held = X[row, 0 +: 64]
+  @use Y[row, 0 +: 64] = held[iota(64) * 5 % 64] * 2.0
```
"""
from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Literal

from kir.analysis import Aliases, Facts
from kir.analysis.elements import NotElementwise, element
from kir.analysis.order import at_most, less
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import expr_text
from kir.ir.types import TileType, dtype_of, shape_of
from kir.ir.visit import buffers_named, children, names_read, statements, substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.base import Effect
from kir.rewrite.edit import fresh, kernel_of, names_in, node_at
from kir.rewrite.match import allocated, block_and_index, fits_shared, matched, params_as
from kir.rewrite.match.local_buffers import byte_count, mentions, team_level
from kir.rewrite.match.materialize import buffers_read, buffers_written, is_pure, may_lie_outside
from kir.rewrite.match.unify import Knowing, bound_by, hole, rewritten
from kir.rewrite.view import expression_at, text_of

from ._buffered_value import can_be_declared, declared, holding, mentioned, without

By = Literal["store", "copy"]
MOST_OFFERED = 8
"""Tiles that are offered at one statement."""
FEW = 64
"""Elements of an axis that are held as a whole."""


def _unchanged(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, HoldTile)
    value = matched(item.tile_at(program, site.path))
    (block, i), aliases = block_and_index(program, site.path), Aliases(program)
    held, known = item.memory(value, "%held"), Facts.at(program, site.path)
    readers = [k for k in range(i, len(block)) if item.reads(block[k], value)
               and rewritten(block[k], item.reading(value, held, known.after(block[i:k]))) != block[k]]
    last = readers[-1] if readers else i
    written = buffers_written(block[i:last + (0 if isinstance(block[last], n.Store) else 1)])
    if "*" in written:
        return refuted("opaque text between the uses may write anything", expr_text(value))
    clash = [(w, r) for w in sorted(written) for r in sorted(buffers_read(value)) if w == r or aliases.may_be_one(w, r)]
    if clash:
        return refuted(f"'{clash[0][0]}' is written between the uses of {expr_text(value)}", f"a later use sees the old '{clash[0][1]}'")
    return proved("nothing that the tile is made of is written while it is kept")


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, HoldTile)
    value = matched(item.tile_at(program, site.path))
    own = byte_count(item.memory(value, "%held"))
    if item.space != "shared":
        return proved("fragments are spread over registers")
    held = [byte_count(b) for b in allocated(kernel_of(program, site.path), "shared")]
    if own is None or None in held:
        return unknown("an extent is not known", needs="literal extents")
    return fits_shared(own + sum(x for x in held if x is not None), context, "smaller tiles")


@dataclass(frozen=True)
class HoldTile(Pass):
    """`value` is the text of the tile, `space` where it is kept, `by` a store or a copy; the memory is declared `hoist` statements further
    out."""

    intent: ClassVar[str] = "retain-tile"
    catalogue: ClassVar[tuple[int, ...]] = (3, 2, 5)
    claim: ClassVar[str] = "A tile is read or computed once by the CTA together, and from then on at any of its elements."
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P867", "validity", "aliasing", "what the tile is made of is not written while it is kept", _unchanged),
        Precondition("KIR-P868", "validity", "hardware", "shared memory holds the tile beside what is allocated already", _fits))

    value: str = ""
    space: Literal["shared", "fragment"] = "shared"
    by: By = "store"
    hoist: int = 0

    def tile_at(self, program: n.Program, path: Path) -> n.Expr | None:
        """The tile that `value` means before the statement at a path: pure, of literal extents, with single elements."""
        made = expression_at(program, path, self.value)
        return made if made is not None and _can_be_held(made) and (self.by == "store" or isinstance(made, n.Load)) else None

    def memory(self, value: n.Expr, name: str) -> n.Buffer:
        """The memory for a tile."""
        dtype = dtype_of(value.type)
        return n.Buffer(name, dtype, tuple(build.const(d) for d in shape_of(value.type) if isinstance(d, int)), self.space)

    @staticmethod
    def reads(s: n.Stmt, value: n.Expr) -> bool:
        """Whether a statement reads all that the tile is made of; another one has no element of it."""
        return buffers_read(value) <= buffers_read(s)

    def reading(self, value: n.Expr, held: n.Buffer, known: Facts) -> Knowing:
        """The change from elements that are known to be the tile's to elements of the memory; others are read where they were."""
        rank = len(held.shape)
        pattern = element(value, [build.const(0) if build.is_const(d, 1) else hole(k) for k, d in enumerate(held.shape)])
        kept = [k for k, d in enumerate(held.shape) if not build.is_const(d, 1)]
        return Knowing(_Change(pattern, held, rank, kept), known, buffers_named(pattern))

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement of the whole CTA that reads elements of the tile. Left open, it is each one that the statement loads, or computes, and that nothing
        within it changes."""
        if not isinstance(node, n.Stmt) or isinstance(node, n.Alloc):
            return None
        if not self.value:
            if team_level(program, path) != "cta":
                return None
            some = [replace(self, value=text_of(x)).match(program, path, node) for x in self._tiles(node)]
            return tuple(each for each in some if isinstance(each, Site)) or None
        value = self.tile_at(program, path)
        if value is None:
            return Miss("that is no tile here that could be kept")
        if not can_be_declared(program, path, self.hoist):
            return Miss("the memory cannot be declared that far out")
        if team_level(program, path) != "cta":
            return Miss("only a part of the CTA gets here")
        if not self.reads(node, value) or rewritten(node, self.reading(value, self.memory(value, "%held"), Facts.at(program, path))) == node:
            return Miss("the statement reads no element of it")
        block, i = block_and_index(program, path)
        if outside := may_lie_outside(program, path, block[i:], value):
            return Miss(outside)
        if any(isinstance(s, n.Mma) and s.via in ("wgmma", "tcgen05") and self.reads(s, value) for s in statements(block[i:])):
            return Miss("a product of the async proxy reads it, which sees what threads write only behind a fence")
        return Site(path, self)

    def _tiles(self, node: n.Stmt) -> list[n.Expr]:
        """The tiles that a statement has as a whole, or that its loops read part by part, the first few, each once: what it loads from global memory where
        they are copied, else what it computes."""
        changed, out = {*bound_names((node,)), *buffers_written((node,))}, dict[n.Expr, None]()
        trips = {s.var.name: s.hi for s in walk(node) if isinstance(s, n.For) and build.is_const(s.lo, 0)}

        def look(x: n.Node) -> None:
            if isinstance(x, n.Load) and x.at.buffer.space == "global":
                made = _widened(x, changed, trips)
                out.update({made: None} if made is not None and _can_be_held(made) else {})
            elif isinstance(x, n.Expr) and self.by == "store" and isinstance(x.type, TileType) and _can_be_held(x) and buffers_read(x) \
                    and not isinstance(x, n.Load) and changed.isdisjoint({*names_read(x), *buffers_read(x)}):
                out[x] = None
                return
            for inner in children(x):
                look(inner)
        look(node)
        return list(out)[:MOST_OFFERED]

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Memory, what fills it, and reads of it in the rest of the block."""
        kernel, value = kernel_of(program, site.path), matched(self.tile_at(program, site.path))
        made = self.memory(value, fresh("held", names_in(program, kernel)))
        fill: n.Stmt = n.Copy(value, n.Region(made)) if self.by == "copy" and isinstance(value, n.Load) else n.Store(n.Region(made), value)
        (block, i), known = block_and_index(program, site.path), Facts.at(program, site.path)
        rest = tuple(rewritten(s, self.reading(value, made, known.after(block[i:k]))) if self.reads(s, value) else s for k, s in enumerate(block[i:], i))
        return holding(program, site.path, made, (fill,), rest, self.hoist)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store or plain copy that fills memory of the CTA as a whole, of which everything else is a read after it."""
        if isinstance(node, n.Store):
            b, value, by = node.at.buffer, node.value, "store"
            plain = not node.at.index and node.mask is None and not node.clip and not node.cache
        elif isinstance(node, n.Copy) and node.via == "plain":
            b, value, by = node.dst.buffer, node.src, "copy"
            plain = not node.dst.index and node.mask is None and not node.clip and not node.attrs and node.signal is None and not node.grouped
        else:
            return None
        if b.space not in ("shared", "fragment") or team_level(program, path) != "cta":
            return None
        if not plain or not _can_be_held(value) or mentions(value, b.name):
            return Miss(f"'{b.name}' is filled in part, or with what has no single elements")
        if b.layout is not None or b.strides is not None or b.align:
            return Miss(f"'{b.name}' has a layout of its own")
        where = declared(program, path, b.name)
        if where is None:
            return Miss(f"'{b.name}' is declared elsewhere, or with a value")
        block, i = block_and_index(program, path)
        after = [rewritten(s, _Reader(b, value)) for s in block[i + 1:]]
        if not any(mentions(s, b.name) for s in block[i + 1:]):
            return Miss(f"'{b.name}' is never read after it")
        if by == "copy" and b.space == "shared" and not any(isinstance(x, n.Region) and x.buffer.name == b.name and any(isinstance(e, n.Expr) for e in x.index)
                                                            for s in block[i + 1:] for x in walk(s)):
            return Miss(f"'{b.name}' is only read as a whole, or in slices: that is stage-shared")
        others = sum(mentioned(s, b.name) for s in kernel_of(program, path).body) - sum(mentioned(s, b.name) for s in block[i + 1:])
        if any(mentions(s, b.name) for s in after) or others != mentioned(node, b.name) or set(bound_names(block[i + 1:])) & names_read(value):
            return Miss(f"'{b.name}' is not only read, and after it is filled")
        item = HoldTile(text_of(value), b.space, by, where[1])  # type: ignore[arg-type]  # shared or fragment, store or copy, as above
        return Site(path, item, {"declared": where[0], "value": value})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each element where it comes from; no memory."""
        node = node_at(program, site.path)
        assert isinstance(node, (n.Store, n.Copy))
        b = node.at.buffer if isinstance(node, n.Store) else node.dst.buffer
        return without(program, site.path, b.name, site.captures["declared"], _Reader(b, site.captures["value"]))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The bytes of the tile, in shared memory."""
        value = self.tile_at(program, site.path)
        if value is None or self.space != "shared":
            return Effect()
        return Effect(shared_bytes=math.prod(d for d in shape_of(value.type) if isinstance(d, int)) * dtype_of(value.type).bytes)


def _widened(x: n.Load, changed: set[str], trips: dict[str, n.Expr]) -> n.Load | None:
    """What a load reads over all iterations of the loops around it: of an axis that they run over all that it has, where that is little, else as many elements
    as there are iterations. None where it is something else."""
    if x.at.buffer.name in changed or (x.mask is not None and not changed.isdisjoint(names_read(x.mask))):
        return None
    index = list[n.Expr | n.Span]()
    for e, d in zip(x.at.index, x.at.buffer.shape, strict=False):
        own, whole = changed & names_read(e), build.int_value(d)
        if not own:
            index.append(e)
        elif isinstance(e, n.Span):
            return None
        elif whole is not None and whole <= FEW:
            index.append(n.Span(build.const(0), whole))
        else:
            var, rest = (e, build.const(0)) if isinstance(e, n.Var) else (e.a, e.b) if isinstance(e, n.Binary) and e.op == "add" else (None, None)
            trip = build.int_value(trips[var.name]) if isinstance(var, n.Var) and var.name in trips else None
            if trip is None or rest is None or not changed.isdisjoint(names_read(rest)):
                return None
            index.append(n.Span(rest, trip))
    return replace(x, at=build.region(x.at.buffer, *index))


@dataclass(frozen=True)
class _Change:
    """From an element of the tile to the same of the memory."""

    pattern: n.Expr
    held: n.Buffer
    rank: int
    kept: list[int]

    @cached_property
    def holes(self) -> n.Expr:
        """The pattern, whose places are numbered from the first that is kept."""
        found: n.Expr = substitute(self.pattern, {hole(k).name: hole(p) for p, k in enumerate(self.kept)})
        return found

    def __call__(self, x: n.Expr, known: Facts) -> n.Expr | None:
        if isinstance(self.pattern, n.Load) and not (isinstance(x, n.Load) and x.at.buffer.name == self.pattern.at.buffer.name):
            return None  # most expressions
        found = bound_by(self.holes, x, len(self.kept))
        if found is None:
            return None
        index: list[n.Expr] = [build.const(0)] * self.rank
        for k, e in zip(self.kept, found, strict=True):
            if not (at_most(build.const(0), e, known) and less(e, self.held.shape[k], known)):
                return None
            index[k] = e
        return build.load(build.region(self.held, *index))


@dataclass(frozen=True)
class _Reader:
    """From an element of the memory to the same of the tile."""

    held: n.Buffer
    value: n.Expr

    @property
    def needs(self) -> frozenset[str]:
        """Only what reads the memory is changed."""
        return frozenset({self.held.name})

    def __call__(self, x: n.Expr) -> n.Expr | None:
        if not (isinstance(x, n.Load) and x.at.buffer == self.held and x.mask is None and not x.clip and not x.cache):
            return None
        index = [i for i in x.at.index if isinstance(i, n.Expr) and not isinstance(i.type, TileType)]
        return element(self.value, index) if len(index) == len(self.held.shape) else None


def _can_be_held(e: n.Expr) -> bool:
    shape = shape_of(e.type)
    if not shape or not all(isinstance(d, int) for d in shape) or not is_pure(e):
        return False
    try:
        element(e, [hole(k) for k in range(len(shape))])
    except NotElementwise:
        return False
    return True
