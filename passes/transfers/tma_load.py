"""Loads a tile as a box of a tensor descriptor: hardware computes the addresses and the bounds, one thread asks for it.

A tile that has a name becomes a fragment; a copy to shared memory stays a copy, by a tensor map of the program.

pipeline: `tma-load@main/load`

```diff
 kir 1
 program double
   size M: i32
   size N: i32
   in X: f16[M, N] align 16
   out Y: f16[M, N]
   fact N % 8 == 0
 kernel main grid (i: ceildiv(M, 16), j: ceildiv(N, 32)) threads 32
-  @load let x = load(X[i * 16 +: 16, j * 32 +: 32] else 0.0:f16 clip)
+  fragment x: f16[16, 32]
+  @load copy load(X[i * 16 +: 16, j * 32 +: 32] else 0.0:f16 clip) -> x via tma
   Y[i * 16 +: 16, j * 32 +: 32] = x + x clip
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.facts import Facts
from kir.analysis.tiles.mapped_views import shown_view
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.types import dtype_of, shape_of
from kir.ir.visit import statements, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved
from kir.rewrite.edit import block_at, node_at, replace_stmts
from kir.rewrite.match import block_and_index, edited, node_as, regions_of
from kir.rewrite.match.local_buffers import is_left, mentions, own_parts, team_level
from kir.rewrite.precondition import decided

from ._tensor_descriptor import base_fits, box_fits, has_tma, is_box, strides_fit
from ._tma_copies import is_near, is_staging, map_fits, map_for, on_tensor, with_map, without_unused_maps


def _load(program: n.Program, site: Site) -> n.Load:
    node = node_at(program, site.path)
    if isinstance(node, n.Copy):
        return node.src
    assert isinstance(node, n.Let) and isinstance(node.value, n.Load)
    return node.value


def _strides(program: n.Program, site: Site, context: Context) -> Verdict:
    return strides_fit(on_tensor(program, _load(program, site).at), Facts.at(program, site.path))


def _one_tap(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether the channels of a box of pixels belong to one tap of a filter each."""
    at = _load(program, site).at
    view = shown_view(program, at.buffer.name)
    if view is None or not view.axes:
        return proved("the box is one of the tensor")
    facts, channels, taps = Facts.at(program, site.path), view.at.buffer.shape[-1], at.index[-1]
    assert isinstance(taps, n.Span)
    begins = decided(build.compare("eq", build.mod(taps.lo, int(str(taps.extent))), 0), facts, "a box begins at a multiple of its width",
                     "a box begins within its width")
    return begins and decided(build.compare("eq", build.mod(channels, int(str(taps.extent))), 0), facts, f"a tap has whole boxes of {taps.extent} channels",
                              f"{expr_text(channels)} channels are no multiple of {taps.extent}")


def _box(program: n.Program, site: Site, context: Context) -> Verdict:
    return box_fits(_load(program, site).at)


def _base(program: n.Program, site: Site, context: Context) -> Verdict:
    return base_fits(_load(program, site).at)


def _layout(program: n.Program, site: Site, context: Context) -> Verdict:
    node = node_at(program, site.path)
    return map_fits(node) if isinstance(node, n.Copy) else proved("no thread reads the tile where the box lies")


@dataclass(frozen=True)
class TmaLoad(Pass):
    """No parameters: the box is the tile."""

    intent: ClassVar[str] = "tma-load"
    catalogue: ClassVar[tuple[int, ...]] = (20,)
    claim: ClassVar[str] = "No thread computes addresses or masks, and no register holds the tile on its way."
    provides: ClassVar[tuple[str, ...]] = ("tma",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P200", "validity", "layout", "rows are dense and start at multiples of 16 bytes", _strides),
        Precondition("KIR-P201", "validity", "storage", "the tile is a box that a descriptor may have", _box),
        Precondition("KIR-P202", "validity", "layout", "the tensor begins at a multiple of 16 bytes", _base),
        Precondition("KIR-P204", "validity", "layout", "a map lays the box out in shared memory as the buffer's layout says", _layout),
        Precondition("KIR-P720", "validity", "layout", "channels of a box of pixels belong to one tap", _one_tap),
        Precondition("KIR-P203", "profit", "hardware", "the target copies boxes in hardware", has_tma),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a let of the whole CTA that names a box of global memory, or a copy of one to dense rows of shared memory."""
        if isinstance(node, n.Copy) and is_staging(node, loads=True):
            if team_level(program, path) != "cta":
                return Miss("a part of the CTA does not wait for a box by itself")
            if not is_left(node.dst.buffer) and map_for(program, node) is None:
                return Miss(f"no tensor map shows the view '{node.src.at.buffer.name}'")
            return self._of_load(node.src, path) if is_near(node.dst) else Miss("the place in shared memory is a part of its rows")
        if not (isinstance(node, n.Let) and len(node.names) == 1 and isinstance(node.value, n.Load) and shape_of(node.value.type)):
            return None
        e = node.value
        if e.at.buffer.space != "global" or team_level(program, path) != "cta":
            return None
        return self._of_load(e, path)

    def _of_load(self, e: n.Load, path: Path) -> Found:
        if not is_box(e.at) or e.mask is not None or e.cache:
            return Miss("the place is no box of the tensor, or the load has a mask or cache policy of its own")
        if e.clip and not (isinstance(e.other, n.Const) and not e.other.value and repr(e.other.value) != "-0.0"):
            return Miss("a descriptor fills with zero outside the tensor")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A fragment, and a copy that fills it; its value wherever the let was read."""
        s = node_at(program, site.path)
        if isinstance(s, n.Copy):
            if is_left(s.dst.buffer):
                return edited(program, site.path, (replace(s, via="tma"),))
            made, name = with_map(program, s)
            return edited(made, site.path, (replace(s, via="tma", attrs=n.attrs(descriptor=name)),))
        assert isinstance(s, n.Let) and isinstance(s.value, n.Load)
        dtype = dtype_of(s.value.type)
        b = n.Buffer(s.names[0], dtype, tuple(d if isinstance(d, n.Expr) else build.const(d) for d in shape_of(s.value.type)), "fragment")
        held, i = n.Load(n.Region(b)), int(site.path[-1])
        copy = n.Copy(s.value, n.Region(b), "tma", label=s.label, origin=s.origin)
        rest = (substitute(x, {b.name: held}) for x in block_at(program, site.path)[i + 1:])
        return edited(program, site.path, (n.Alloc(b), copy, *rest), 0, None, at=1)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At such a copy into a fragment that is otherwise only read as a whole, after it."""
        if isinstance(node, n.Copy) and node.via == "tma" and (node.src.at.buffer.space, node.dst.buffer.space) == ("global", "shared"):
            if node.signal is not None or node.grouped:
                return Miss("the box is waited for elsewhere")
            return Site(path, self)
        if not (isinstance(node, n.Copy) and node.via == "tma" and node.dst.buffer.space == "fragment" and node.src.at.buffer.space == "global"):
            return None
        b, (block, i) = node.dst.buffer, block_and_index(program, path)
        if node.dst.index or node.mask is not None or node.clip or node.attrs or node.signal is not None or node.grouped or b.layout is not None:
            return Miss(f"only a part of '{b.name}' is filled, or not at once")
        declared = next((k for k, x in enumerate(block[:i]) if isinstance(x, n.Alloc) and x.buffer == b and x.init is None), None)
        if declared is None or any(mentions(x, b.name) for x in block[declared + 1:i]):
            return Miss(f"'{b.name}' is not declared just for this copy")
        for x in (y for s in block[i + 1:] for y in statements((s,))):
            parts = [p for p in own_parts(x) if mentions(p, b.name)]
            regions = regions_of(parts, b.name)
            loads = [y for p in parts for y in walk(p) if y == n.Load(n.Region(b))]
            if len(regions) != len(loads) or (parts and isinstance(x, n.Copy)):
                return Miss(f"'{b.name}' is not only read as a whole")
        return Site(path, self, {"declared": declared})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The load as a value with a name, or a copy by the threads."""
        s, i = node_as(program, site.path, n.Copy), int(site.path[-1])
        if s.dst.buffer.space == "shared":
            made = replace_stmts(program, site.path, (replace(s, via="plain", attrs=()),))
            return Rewritten(without_unused_maps(made), site.path)
        declared = int(site.captures["declared"])
        b = s.dst.buffer
        held, value = n.Load(n.Region(b)), n.Var(b.name, s.src.type)
        let = n.Let((b.name,), s.src, s.label, s.origin)

        def leave(old: n.Node, new: n.Node) -> n.Node:
            return value if new == held else new
        block = block_at(program, site.path)
        after = (*block[declared + 1:i], let, *(transform(x, leave) for x in block[i + 1:]))
        return edited(program, site.path, after, declared - i, None, at=-1)
