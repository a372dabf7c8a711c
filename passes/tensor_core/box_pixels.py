"""Gives each tile of an implicit product of matrices a box of pixels in the place of pixels that follow one another.

What a tile loads at a tap of the filter is a box of the image then, moved by the tap: a tensor descriptor copies it, and fills with zeros what lies
outside. Where the box goes past the image nothing is stored.

pipeline: `box-pixels{rows=4}@main`

```diff
 kir 1
 program conv
   size N: i32
   size H: i32
   size W: i32
   size C: i32
   size F: i32
   in X: f16[N, H, W, C]
   in Wt: f16[F, 3, C]
   out Y: f16[N, H, W, F]
   fact C % 64 == 0
-kernel main grid (i_tile: ceildiv(H * N * W, 64), j_tile: ceildiv(F, 64)) threads 128
-  view global Xm(pixel, tap): f16[H * N * W, C * 3] at X[pixel // (H * W), pixel // W % H, pixel % W + tap // C - 1, tap % C] fill 0.0:f16
+kernel main grid (i_tile: ceildiv(H, 4) * ceildiv(W, 16) * N, j_tile: ceildiv(F, 64)) threads 128
   view global Wtm: f16[F, C * 3] at Wt
-  view global Ym: f16[H * N * W, F] at Y
+  let image = i_tile // (ceildiv(H, 4) * ceildiv(W, 16))
+  let p = i_tile // ceildiv(W, 16) % ceildiv(H, 4) * 4
+  let q = i_tile % ceildiv(W, 16) * 16
   fragment acc: f32[64, 64] = 0.0
   @c_loop for k_tile in 0..ceildiv(C * 3, 64)
-    let xm = load(Xm[i_tile * 64 +: 64, k_tile * 64 +: 64] else 0.0:f16 clip)
+    let box = load(X[image, p +: 4, q + k_tile * 64 // C - 1 +: 16, k_tile * 64 % C +: 64] else 0.0:f16 clip)
+    let xm = reshape(box, 64, 64)
     let wtm = load(Wtm[j_tile * 64 +: 64, k_tile * 64 +: 64] else 0.0:f16 clip)
     mma acc += xm * trans(wtm, 1, 0)
-  @store_Y Ym[i_tile * 64 +: 64, j_tile * 64 +: 64] = cast(acc, f16) clip
+  @store_Y Y[image, p +: 4, q +: 16, j_tile * 64 +: 64] = reshape(cast(acc, f16), 4, 16, 64) clip
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.printer import expr_text
from kir.ir.types import dtype_of
from kir.ir.visit import names_read, substitute, transform
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, refuted
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.precondition import decided

from .implicit_gemm import digits, product_of


def _of(program: n.Program, site: Site) -> _Tiled:
    made = _Tiled.of(kernel_of(program, site.path))
    assert not isinstance(made, str)
    return made


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether the pixels of a tile are a box of so many rows, of one tap."""
    p, told = site.params, _of(program, site)
    assert isinstance(p, BoxPixels)
    if told.pixels % p.rows:
        return refuted(f"a tile of {told.pixels} pixels has no {p.rows} rows alike", needs=f"a divisor of {told.pixels}")
    facts, channels = Facts.at(program, site.path), told.view.at.buffer.shape[-1]
    return decided(build.compare("eq", build.mod(channels, told.width), 0), facts, f"a tap has whole panels of {told.width} channels",
                   f"{expr_text(channels)} channels are no multiple of {told.width}")


@dataclass(frozen=True)
class BoxPixels(Pass):
    """rows: of the box, of one image; the rest of a tile's pixels is its width."""

    intent: ClassVar[str] = "implicit-gemm"
    catalogue: ClassVar[tuple[int, ...]] = (62,)
    claim: ClassVar[str] = "No thread gathers pixels: a descriptor copies them, a tap after the other."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P783", "validity", "shape", "a tile's pixels are a box, and a panel lies in one tap", _fits),)
    rows: int = 1

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that sums tiles of products over a view of pixels by taps and channels, and stores them cast."""
        if not isinstance(node, n.Kernel) or not any(isinstance(s, n.View) and s.axes for s in node.body):
            return None
        told = _Tiled.of(node)
        return Miss(told) if isinstance(told, str) else Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The grid counts boxes; the tile is loaded and stored as one."""
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, _of(program, site).boxed(kernel, self.rows, names_in(program, kernel))), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose tiles are such boxes."""
        if not isinstance(node, n.Kernel) or len([s for s in node.body if isinstance(s, n.Let)]) != 3:
            return None
        found = _straight(node, names_in(program, node))
        return Miss(found) if isinstance(found, str) else Site(path, replace(self, rows=found[0]), {"made": found[1]})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Tiles of pixels that follow one another, of a view."""
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, site.captures["made"]), site.path)


@dataclass(frozen=True)
class _Tiled:
    """A product of tiles over a view of pixels: `view` [pixels of all images, taps by channels], `out` [N, P, Q, F], the loop with the let that loads, and
    the store of the sum's tile, cast. Rows of the tiles do not meet: each sum is of its own pixel, whatever pixels a tile has."""

    view: n.View
    result: n.View
    others: tuple[n.View, ...]
    alloc: n.Alloc
    loop: n.For
    load: n.Let
    store: n.Store

    @property
    def pixels(self) -> int:
        return int_value(self.alloc.buffer.shape[0]) or 0

    @property
    def width(self) -> int:
        """Channels of a panel."""
        assert isinstance(self.load.value, n.Load)
        panel = self.load.value.at.index[1]
        assert isinstance(panel, n.Span)
        return int(str(panel.extent))

    @classmethod
    def of(cls, kernel: n.Kernel) -> _Tiled | str:
        """What a kernel is, or why it is none."""
        views = [s for s in kernel.body if isinstance(s, n.View)]
        rest = [s for s in kernel.body if not isinstance(s, n.View)]
        if len(kernel.grid) != 2 or len(rest) != 3 or kernel.cluster:
            return "it is not views, a sum, a loop and a store over a grid of tiles"
        alloc, loop, store = rest
        if not (isinstance(alloc, n.Alloc) and isinstance(loop, n.For) and isinstance(store, n.Store)) or alloc.buffer.space != "fragment":
            return "it is not views, a sum, a loop and a store over a grid of tiles"
        view = next((v for v in views if v.axes), None)
        result = next((v for v in views if not v.axes and v.buffer == store.at.buffer), None)
        load = next((s for s in loop.body if isinstance(s, n.Let) and isinstance(s.value, n.Load) and s.value.at.buffer == getattr(view, "buffer", None)), None)
        if view is None or result is None or load is None or len(result.at.buffer.shape) != 4 or result.at.index or len(view.axes) != 2 or view.fill is None:
            return "no view of images by taps is loaded, or none of an output is stored"
        i, pixels = build.var(kernel.grid[0].name), alloc.buffer.shape[0]
        tile = build.span(build.mul(i, pixels), pixels)
        assert isinstance(load.value, n.Load)
        panel = load.value.at.index[1]
        if load.value.at.index[0] != tile or store.at.index[0] != tile or not isinstance(panel, n.Span) or not isinstance(panel.extent, int) or (
                panel.lo != build.mul(build.var(loop.var.name), panel.extent) or load.value.other != view.fill or not load.value.clip):
            return "a tile is not its own pixels, a panel after the other"
        if kernel.grid[0].extent != build.ceildiv(product_of(result.at.buffer.shape[:3]), pixels) or not store.clip or store.mask is not None:
            return "the grid does not cover the output"
        held = n.Load(n.Region(alloc.buffer))
        if store.value != build.cast(held, dtype_of(store.value.type)) or not _apart(loop, load, alloc.buffer, i):
            return "the tile's rows meet elsewhere than in the product"
        told = cls(view, result, tuple(v for v in views if v is not view and v is not result), alloc, loop, load, store)
        return told if told.place("image", "p", "q", build.const(0)) is not None else "a tap does not move all pixels alike, by neighbors"

    def place(self, image: str, p: str, q: str, tap: n.Expr) -> tuple[n.Expr, ...] | None:
        """Where a panel that begins at a tap lies in the images, of a box at a place of the output; None where it is no box."""
        pixel, taps = (build.var(axis) for axis in self.view.axes)
        at: dict[n.Node, n.Expr] = dict(zip(digits(pixel, self.result.at.buffer.shape[:3]), (build.var(x) for x in (image, p, q)), strict=True))
        index = [transform(e, lambda old, new: at.get(new, new)) for e in self.view.at.index if isinstance(e, n.Expr)]
        if len(index) != 4 or index[0] != build.var(image) or any(self.view.axes[0] in names_read(e) for e in index):
            return None
        if any(build.polynomial(e).get((build.var(x),)) != 1 or x in names_read(build.sub(e, build.var(x))) for e, x in zip(index[1:3], (p, q), strict=True)):
            return None
        if index[3] != build.mod(taps, self.view.at.buffer.shape[3]):
            return None
        return tuple(substitute(e, {self.view.axes[1]: tap}) for e in index)

    def boxed(self, kernel: n.Kernel, rows: int, taken: set[str]) -> n.Kernel:
        """The kernel over boxes of so many rows."""
        image, p, q, box = (fresh(x, taken) for x in ("image", "p", "q", "box"))
        out, i, wide = self.result.at.buffer, build.var(kernel.grid[0].name), self.pixels // rows
        high, across = build.ceildiv(out.shape[1], rows), build.ceildiv(out.shape[2], wide)
        of, up, left = digits(i, (out.shape[0], high, across))
        lets = (n.Let((image,), of), n.Let((p,), build.mul(up, rows)), n.Let((q,), build.mul(left, wide)))
        assert isinstance(self.load.value, n.Load)
        panel = self.load.value.at.index[1]
        assert isinstance(panel, n.Span)
        at = self.place(image, p, q, panel.lo)
        assert at is not None
        place = n.Region(self.view.at.buffer, (at[0], build.span(at[1], rows), build.span(at[2], wide), build.span(at[3], self.width)))
        loaded = n.Let((box,), replace(self.load.value, at=place))
        named = build.var(box, loaded.value.type)
        lets_in = (loaded, replace(self.load, value=build.call("reshape", named, build.const(self.pixels), build.const(self.width))))
        loop = replace(self.loop, body=tuple(x for s in self.loop.body for x in (lets_in if s is self.load else (s,))))
        columns = self.store.at.index[1]
        assert isinstance(columns, n.Span)
        stored = build.call("reshape", self.store.value, *(build.const(int(str(x))) for x in (rows, wide, columns.extent)))
        store = replace(self.store, at=n.Region(out, (build.var(image), build.span(build.var(p), rows), build.span(build.var(q), wide), columns)), value=stored)
        grid = (replace(kernel.grid[0], extent=product_of((high, across, out.shape[0]))), kernel.grid[1])
        return replace(kernel, grid=grid, body=(*self.others, *lets, self.alloc, loop, store))


def _apart(loop: n.For, load: n.Let, acc: n.Buffer, i: n.Expr) -> bool:
    """Whether all that a loop does with the tile that it loads, or with the tile's number, is one product into `acc`, row by row."""
    assert isinstance(i, n.Var)
    name, seen = load.names[0], 0
    for s in loop.body:
        if s is load:
            continue
        mine = isinstance(s, n.Mma) and s.acc == n.Region(acc) and s.a == build.var(name, load.value.type) and name not in names_read(s.b)
        seen += mine
        if (not mine and (not isinstance(s, n.Let) or {name, acc.name} & names_read(s))) or i.name in names_read(s):
            return False
    return seen == 1


def _straight(kernel: n.Kernel, taken: set[str]) -> tuple[int, n.Kernel] | str:
    """The rows of a kernel's boxes and the kernel over tiles of pixels that follow one another; or why it is none."""
    views = tuple(s for s in kernel.body if isinstance(s, n.View))
    rest: list[Any] = [s for s in kernel.body if not isinstance(s, n.View)]
    if len(rest) != 6 or not isinstance(rest[3], n.Alloc) or not isinstance(rest[4], n.For) or not isinstance(rest[5], n.Store):
        return "it is not three lets, a sum, a loop and a store"
    *lets, alloc, loop, store = rest
    box = next((s for s in loop.body if isinstance(s, n.Let) and isinstance(s.value, n.Load) and len(s.value.at.index) == 4), None)
    load = next((s for s in loop.body if isinstance(s, n.Let) and isinstance(s.value, n.Call) and s.value.fn == "reshape"), None)
    if box is None or load is None or len(store.at.index) != 4 or not (isinstance(store.value, n.Call) and store.value.fn == "reshape"):
        return "no box is loaded and stored"
    assert isinstance(box.value, n.Load)
    spans = (*store.at.index[1:], box.value.at.index[3])
    if not all(isinstance(x, n.Span) and isinstance(x.extent, int) for x in spans):
        return "no box is loaded and stored"
    high, wide, _, panel = (int(str(x.extent)) for x in spans)
    image, p, q = (s.names[0] for s in lets)
    out, images = store.at.buffer, box.value.at.buffer
    pixel, tap, xm, ym = (fresh(x, taken) for x in ("pixel", "tap", f"{images.name}m", f"{out.name}m"))
    begin = build.mul(build.var(loop.var.name), panel)
    at: dict[n.Node, n.Expr] = dict(zip((build.var(x) for x in (image, p, q)), digits(build.var(pixel), out.shape[:3]), strict=True))
    at[begin] = build.var(tap)
    lows = [x.lo if isinstance(x, n.Span) else x for x in box.value.at.index]
    index = tuple(transform(e, lambda old, new: at.get(new, new)) for e in lows)
    whole, filters = product_of(out.shape[:3]), next((v for v in views if not v.axes), None)
    if filters is None:
        return "no filters are seen as a matrix"
    seen = n.Buffer(xm, images.dtype, (whole, filters.buffer.shape[1]), "global")
    view = n.View(seen, n.Region(images, index), (pixel, tap), box.value.other)
    result = n.View(n.Buffer(ym, out.dtype, (whole, out.shape[3]), "global"), n.Region(out))
    i = build.var(kernel.grid[0].name)
    tile = build.span(build.mul(i, high * wide), high * wide)
    loaded = replace(load, value=replace(box.value, at=n.Region(seen, (tile, build.span(begin, panel)))))
    body = tuple(loaded if s is load else s for s in loop.body if s is not box)
    straight = replace(store, at=n.Region(result.buffer, (tile, store.at.index[3])), value=store.value.args[0])
    grid = (replace(kernel.grid[0], extent=build.ceildiv(whole, high * wide)), kernel.grid[1])
    made = replace(kernel, grid=grid, body=(view, *views, result, alloc, replace(loop, body=body), straight))
    told = _Tiled.of(made)
    return told if isinstance(told, str) else (high, made)
