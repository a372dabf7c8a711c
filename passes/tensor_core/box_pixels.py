"""Gives each tile of an implicit product of matrices a box of pixels in the place of pixels that follow one another.

What a tile loads at a tap of the filter is a box of the image then, moved by the tap: a tensor descriptor copies it, and fills with zeros what lies
outside. Where the box goes past the image nothing is stored. A box of several images fills small ones better: 14 columns are seven boxes of two. Of a
filter that moves by two pixels the image is seen in parts, whose neighbors are two pixels apart: a tap reads one of them.

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
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.precondition import decided

from .implicit_gemm import digits, product_of

STEPS = (1, 2)
"""Pixels that a filter may move by."""


def _of(program: n.Program, site: Site) -> _Tiled:
    made = _Tiled.of(kernel_of(program, site.path))
    assert not isinstance(made, str)
    return made


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether the pixels of a tile are a box of so many rows, of one tap."""
    p, told = site.params, _of(program, site)
    assert isinstance(p, BoxPixels)
    if told.pixels % (p.rows * p.images):
        of = f" of {p.images} images" if p.images > 1 else ""
        return refuted(f"a tile of {told.pixels} pixels has no {p.rows} rows alike{of}", needs=f"a divisor of {told.pixels}")
    facts, channels = Facts.at(program, site.path), told.view.at.buffer.shape[-1]
    return decided(build.compare("eq", build.mod(channels, told.width), 0), facts, f"a tap has whole panels of {told.width} channels",
                   f"{expr_text(channels)} channels are no multiple of {told.width}")


def _parts(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether an image is whole parts, of which neighbors are a step of the filter apart."""
    told = _of(program, site)
    if told.step == 1:
        return proved("the filter moves by single pixels")
    _, high, across, _ = told.view.at.buffer.shape
    left = build.add(*(build.mod(side, told.step) for side in (high, across)))
    return decided(build.compare("eq", left, 0), Facts.at(program, site.path), f"both sides of an image are multiples of {told.step}",
                   f"a side of an image is no multiple of {told.step}")


@dataclass(frozen=True)
class BoxPixels(Pass):
    """rows: of the box, of one image; images: that a box takes pixels of; the rest of a tile's pixels is its width."""

    intent: ClassVar[str] = "implicit-gemm"
    catalogue: ClassVar[tuple[int, ...]] = (62,)
    claim: ClassVar[str] = "No thread gathers pixels: a descriptor copies them, a tap after the other."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P783", "validity", "shape", "a tile's pixels are a box, and a panel lies in one tap", _fits),
        Precondition("KIR-P784", "validity", "shape", "an image is whole parts, a step of the filter apart", _parts))
    rows: int = 1
    images: int = 1

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that sums tiles of products over a view of pixels by taps and channels, and stores them cast."""
        if not isinstance(node, n.Kernel) or not any(isinstance(s, n.View) and s.axes for s in node.body):
            return None
        told = _Tiled.of(node)
        return Miss(told) if isinstance(told, str) else Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The grid counts boxes; the tile is loaded and stored as one."""
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, _of(program, site).boxed(kernel, self, names_in(program, kernel))), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose tiles are such boxes."""
        if not isinstance(node, n.Kernel) or len([s for s in node.body if isinstance(s, n.Let)]) != 3:
            return None
        found = _straight(node, names_in(program, node))
        return Miss(found) if isinstance(found, str) else Site(path, found[0], {"made": found[1]})

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
    step: int = 1
    """Pixels that the filter moves by."""

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
        others = tuple(v for v in views if v is not view and v is not result)
        told = (cls(view, result, others, alloc, loop, load, store, step) for step in STEPS)
        return next((x for x in told if x.place("image", "p", "q", build.const(0)) is not None), "a tap does not move all pixels alike, by so many")

    def place(self, image: str, p: str, q: str, tap: n.Expr) -> tuple[n.Expr, ...] | None:
        """Where a panel that begins at a tap lies in the images, of a box at a place of the output: its image, row, column and channel. None where it is
        no box."""
        pixel, taps = (build.var(axis) for axis in self.view.axes)
        at: dict[n.Node, n.Expr] = dict(zip(digits(pixel, self.result.at.buffer.shape[:3]), (build.var(x) for x in (image, p, q)), strict=True))
        index = [transform(e, lambda old, new: at.get(new, new)) for e in self.view.at.index if isinstance(e, n.Expr)]
        if len(index) != 4 or index[0] != build.var(image) or any(self.view.axes[0] in names_read(e) for e in index):
            return None
        if any(x in names_read(build.sub(e, build.mul(build.var(x), self.step))) for e, x in zip(index[1:3], (p, q), strict=True)):
            return None
        channels = self.view.at.buffer.shape[3]
        if index[3] not in (build.mod(taps, channels), *([taps] if self.view.buffer.shape[1] == channels else [])):
            return None
        return tuple(substitute(e, {self.view.axes[1]: tap}) for e in index)

    def parts(self, name: str) -> n.View:
        """The images, of which pixels a step apart are neighbors: [images, rows // step, step, columns // step, step * channels]."""
        images, step = self.view.at.buffer, self.step
        count, high, across, channels = images.shape
        shape = (count, build.floordiv(high, step), build.const(step), build.floordiv(across, step), build.mul(channels, step))
        return n.View(n.Buffer(name, images.dtype, shape, "global"), n.Region(images))

    def boxed(self, kernel: n.Kernel, box: BoxPixels, taken: set[str]) -> n.Kernel:
        """The kernel over such boxes."""
        image, p, q, name = (fresh(x, taken) for x in ("image", "p", "q", "box"))
        out, i, rows, wide = self.result.at.buffer, build.var(kernel.grid[0].name), box.rows, self.pixels // (box.rows * box.images)
        sides = (box.images, rows, wide)
        count, high, across = (build.ceildiv(d, x) for d, x in zip(out.shape[:3], sides, strict=True))
        firsts = zip((image, p, q), digits(i, (count, high, across)), sides, strict=True)
        lets = tuple(n.Let((x,), build.mul(at, by)) for x, at, by in firsts)
        assert isinstance(self.load.value, n.Load)
        panel = self.load.value.at.index[1]
        assert isinstance(panel, n.Span)
        at = self.place(image, p, q, panel.lo)
        assert at is not None
        of = build.span(build.var(image), box.images) if box.images > 1 else build.var(image)
        views, place = self._place(at, (p, q), (rows, wide), fresh(f"{self.view.at.buffer.name}p", taken))
        loaded = n.Let((name,), replace(self.load.value, at=n.Region(place.buffer, (of, *place.index))))
        named = build.var(name, loaded.value.type)
        lets_in = (loaded, replace(self.load, value=build.call("reshape", named, build.const(self.pixels), build.const(self.width))))
        loop = replace(self.loop, body=tuple(x for s in self.loop.body for x in (lets_in if s is self.load else (s,))))
        columns = self.store.at.index[1]
        assert isinstance(columns, n.Span)
        shape = (*((box.images,) if box.images > 1 else ()), rows, wide, columns.extent)
        stored = build.call("reshape", self.store.value, *(build.const(int(str(x))) for x in shape))
        store = replace(self.store, at=n.Region(out, (of, build.span(build.var(p), rows), build.span(build.var(q), wide), columns)), value=stored)
        grid = (replace(kernel.grid[0], extent=product_of((high, across, count))), kernel.grid[1])
        return replace(kernel, grid=grid, body=(*self.others, *views, *lets, self.alloc, loop, store))

    def _place(self, at: tuple[n.Expr, ...], pixel: tuple[str, str], sides: tuple[int, int], name: str) -> tuple[tuple[n.View, ...], n.Region]:
        """What is seen of the images, and where in an image of it the box lies that begins at a place."""
        _, row, column, channel = at
        if self.step == 1:
            spans = (build.span(x, side) for x, side in zip((row, column), sides, strict=True))
            return (), n.Region(self.view.at.buffer, (*spans, build.span(channel, self.width)))
        seen, places = self.parts(name), list[n.Expr | n.Span]()
        for x, first, side in zip((row, column), pixel, sides, strict=True):
            moved = build.sub(x, build.mul(build.var(first), self.step))
            less = max(0, -(build.polynomial(moved).get((), 0) // self.step))
            moved = build.add(moved, less * self.step)  # to the left of the image too it is counted from nought
            begin = build.sub(build.add(build.var(first), build.floordiv(moved, self.step)), less)
            places += [build.span(begin, side), build.mod(moved, self.step)]
        part = places.pop()
        assert isinstance(part, n.Expr)
        return (seen,), n.Region(seen.buffer, (*places, build.span(build.add(build.mul(part, self.view.at.buffer.shape[3]), channel), self.width)))


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


def _straight(kernel: n.Kernel, taken: set[str]) -> tuple[BoxPixels, n.Kernel] | str:
    """The boxes of a kernel and the kernel over tiles of pixels that follow one another; or why it is none."""
    views = tuple(s for s in kernel.body if isinstance(s, n.View))
    rest: list[Any] = [s for s in kernel.body if not isinstance(s, n.View)]
    if len(rest) != 6 or not isinstance(rest[3], n.Alloc) or not isinstance(rest[4], n.For) or not isinstance(rest[5], n.Store):
        return "it is not three lets, a sum, a loop and a store"
    *lets, alloc, loop, store = rest
    box = next((s for s in loop.body if isinstance(s, n.Let) and isinstance(s.value, n.Load) and len(s.value.at.index) in (4, 5)), None)
    load = next((s for s in loop.body if isinstance(s, n.Let) and isinstance(s.value, n.Call) and s.value.fn == "reshape"), None)
    if box is None or load is None or len(store.at.index) != 4 or not (isinstance(store.value, n.Call) and store.value.fn == "reshape"):
        return "no box is loaded and stored"
    assert isinstance(box.value, n.Load)
    spans = (*store.at.index[1:], box.value.at.index[-1])
    if not all(isinstance(x, n.Span) and isinstance(x.extent, int) for x in (*spans, *(x for x in store.at.index[:1] if isinstance(x, n.Span)))):
        return "no box is loaded and stored"
    high, wide, _, panel = (int(str(x.extent)) for x in spans)
    count = int(str(x.extent)) if isinstance(x := store.at.index[0], n.Span) else 1
    image, p, q = (s.names[0] for s in lets)
    parts = next((v for v in views if v.buffer == box.value.at.buffer), None)
    out, images = store.at.buffer, box.value.at.buffer if parts is None else parts.at.buffer
    pixel, tap, xm, ym = (fresh(x, taken) for x in ("pixel", "tap", f"{images.name}m", f"{out.name}m"))
    begin = build.mul(build.var(loop.var.name), panel)
    at: dict[n.Node, n.Expr] = dict(zip((build.var(x) for x in (image, p, q)), digits(build.var(pixel), out.shape[:3]), strict=True))
    at[begin] = build.var(tap)
    lows = _whole([x.lo if isinstance(x, n.Span) else x for x in box.value.at.index], images, (p, q))
    if lows is None:
        return "its parts of images are no whole ones"
    index = tuple(transform(e, lambda old, new: at.get(new, new)) for e in lows)
    whole, filters = product_of(out.shape[:3]), next((v for v in views if not v.axes and v is not parts), None)
    if filters is None:
        return "no filters are seen as a matrix"
    pixels = high * wide * count
    seen = n.Buffer(xm, images.dtype, (whole, filters.buffer.shape[1]), "global")
    view = n.View(seen, n.Region(images, index), (pixel, tap), box.value.other)
    result = n.View(n.Buffer(ym, out.dtype, (whole, out.shape[3]), "global"), n.Region(out))
    i = build.var(kernel.grid[0].name)
    tile = build.span(build.mul(i, pixels), pixels)
    loaded = replace(load, value=replace(box.value, at=n.Region(seen, (tile, build.span(begin, panel)))))
    body = tuple(loaded if s is load else s for s in loop.body if s is not box)
    straight = replace(store, at=n.Region(result.buffer, (tile, store.at.index[3])), value=store.value.args[0])
    grid = (replace(kernel.grid[0], extent=build.ceildiv(whole, pixels)), kernel.grid[1])
    kept = tuple(v for v in views if v is not parts)
    made = replace(kernel, grid=grid, body=(view, *kept, result, alloc, replace(loop, body=body), straight))
    told = _Tiled.of(made)
    return told if isinstance(told, str) else (BoxPixels(rows=high, images=count), made)


def _whole(lows: list[n.Expr], images: n.Buffer, pixel: tuple[str, str]) -> list[n.Expr] | None:
    """Where a box begins in images that are seen whole, of where it begins in their parts; None where those are none that a step makes."""
    if len(lows) == 4:
        return lows
    image, row, up, column, channel = lows
    for step in STEPS[1:]:
        (down, by), (left, across) = (_moved(x, first, step) for x, first in zip((row, column), pixel, strict=True))
        if up == build.mod(down, step):
            row, column = (build.add(build.mul(build.var(x), step), moved) for x, moved in zip(pixel, (by, across), strict=True))
            return [image, row, column, build.sub(channel, build.mul(build.mod(left, step), images.shape[3]))]
    return None


def _moved(low: n.Expr, first: str, step: int) -> tuple[n.Expr, n.Expr]:
    """By how many pixels a box is moved, of where it begins in a part of an image: as counted there, and from the pixel of the first."""
    by = build.sub(low, build.var(first))
    terms = dict(build.polynomial(by))
    less = terms.pop((), 0)
    turned = next(iter(terms))[0] if len(terms) == 1 else None
    if isinstance(turned, n.Binary) and turned.op == "floordiv" and build.is_const(turned.b, step):
        return turned.a, build.add(turned.a, less * step)
    return build.mul(by, step), build.mul(by, step)
