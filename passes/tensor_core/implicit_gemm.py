"""Writes a convolution as one product of matrices: rows are pixels, columns filters, and the sum runs over taps and channels.

The matrix of pixels by taps and channels is a view of the images, which is never stored: who loads a tile of it gathers.

pipeline: `implicit-gemm@main`

```diff
 kir 1
 program conv
   size N: i32
   size H: i32
   size W: i32
   size F: i32
   in X: f16[N, H, W, 8]
   in Wt: f16[F, 3, 3, 8]
   out Y: f16[N, H, W, F]
-kernel main grid (f: F, q: W, y: H * N) threads 1
-  let image = y // H
-  let p = y % H
+kernel main grid (i: H * N * W, j: F) threads 1
+  view global Xm(pixel, tap): f16[H * N * W, 72] at X[pixel // (H * W), pixel // W % H + tap // 24 - 1, pixel % W + tap // 8 % 3 - 1, tap % 8] fill 0.0:f16
+  view global Wtm: f16[F, 72] at Wt
+  view global Ym: f16[H * N * W, F] at Y
   register acc: f32 = 0.0
-  for r in 0..3
-    for s in 0..3
-      for c in 0..8
-        acc = acc + cast(load(X[image, p + r - 1, q + s - 1, c] else 0.0:f16 clip), f32) * cast(Wt[f, r, s, c], f32)
-  @store_Y Y[image, p, q, f] = cast(acc, f16)
+  for k in 0..72
+    acc = acc + cast(Xm[i, k], f32) * cast(Wtm[j, k], f32)
+  @store_Y Ym[i, j] = cast(acc, f16)
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.ir.visit import names_read, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.match import is_counted


def _countable(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel = kernel_of(program, site.path)
    told = _Sum.of(kernel)
    assert not isinstance(told, str)
    for what, extents in (("pixels", told.rows), ("taps and channels", told.depth)):
        sizes = [build.int_value(d) for d in extents]
        total = 1
        for s in sizes:
            total *= s or 1
        if total >= 1 << 31:
            return refuted(f"{total} {what} do not fit in 32 bits", f"number {total - 1} has no place", needs=f"fewer {what}")
    return proved("a launch of 2^31 CTAs or more is impossible in the x axis, where pixels are counted")


@dataclass(frozen=True)
class ImplicitGemm(Pass):
    """No parameters: the output's dimensions but the last are the rows."""

    intent: ClassVar[str] = "implicit-gemm"
    catalogue: ClassVar[tuple[int, ...]] = (62,)
    claim: ClassVar[str] = "A convolution runs as a product of matrices, tiled, staged and put on tensor cores as any other."
    provides: ClassVar[tuple[str, ...]] = ("product",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P721", "validity", "shape", "pixels, and taps by channels, can be counted in 32 bits", _countable),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of one thread an output, that sums products over the taps of a filter and channels."""
        if not isinstance(node, n.Kernel) or len(node.grid) != 3:
            return None
        told = _Sum.of(node)
        return Miss(told) if isinstance(told, str) else Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The kernel as a product of two matrices, of which views are made."""
        kernel = kernel_of(program, site.path)
        told = _Sum.of(kernel)
        assert not isinstance(told, str)
        return Rewritten(replace_kernel(program, kernel.name, told.product(kernel, names_in(program, kernel))), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a product of matrices that are views of images, filters and images."""
        if not isinstance(node, n.Kernel) or len(node.grid) != 2 or not any(isinstance(s, n.View) for s in node.body):
            return None
        made = _convolution(node, names_in(program, node))
        return Miss(made) if isinstance(made, str) else Site(path, self, {"made": made})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Loops over the taps of the filter and the channels."""
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, site.captures["made"]), site.path)


@dataclass(frozen=True)
class _Sum:
    """What such a kernel computes: `images` [N, ..], `filters` [F, .., C] and `out` [N, P, Q, F], each loaded or stored at one place."""

    alloc: n.Alloc
    loops: tuple[n.For, ...]
    step: n.Stmt
    images: n.Load
    filters: n.Load
    store: n.Store
    digits: tuple[n.Expr, ...]

    @property
    def rows(self) -> tuple[n.Expr, ...]:
        """Extents that make the rows."""
        return self.store.at.buffer.shape[:-1]

    @property
    def depth(self) -> tuple[n.Expr, ...]:
        """Extents that the sum runs over."""
        return tuple(s.hi for s in self.loops)

    @classmethod
    def of(cls, kernel: n.Kernel) -> _Sum | str:
        """What a kernel with three axes is, or why it is none."""
        if not build.is_const(kernel.threads, 1) or kernel.cluster or len(kernel.body) != 5:
            return "it is not one thread an output, with two lets, a sum, loops and a store"
        image, row, alloc, outer, store = kernel.body
        if not (isinstance(alloc, n.Alloc) and alloc.buffer.space == "register" and isinstance(outer, n.For) and isinstance(store, n.Store)):
            return "it does not sum in a register and store"
        loops: list[n.For] = []
        inner: n.Stmt = outer
        while is_counted(inner, of=I32, plain=True):
            assert isinstance(inner, n.For)
            loops.append(inner)
            if len(inner.body) != 1:
                return "a loop does more than sum"
            inner = inner.body[0]
        loads = [x for x in walk(inner) if isinstance(x, n.Load) and x.at.buffer.space == "global"]
        out, axes = store.at.buffer, {a.name: a for a in kernel.grid}
        if not isinstance(inner, n.Store) or inner.at.buffer != alloc.buffer or len(loads) != 2 or len(out.shape) != 4 or store.mask is not None or store.clip:
            return "it does not sum products of two tensors into one of images"
        f, q, y = kernel.grid
        places = tuple(i for i in store.at.index if isinstance(i, n.Expr))
        values = (build.floordiv(build.var(y.name), out.shape[1]), build.mod(build.var(y.name), out.shape[1]))
        if not (isinstance(image, n.Let) and isinstance(row, n.Let) and (image.value, row.value) == values) or places != (
                build.var(image.names[0]), build.var(row.names[0]), build.var(q.name), build.var(f.name)):
            return "the output's place is not image, row, column and filter"
        if (f.extent, q.extent, y.extent) != (out.shape[3], out.shape[2], build.mul(out.shape[1], out.shape[0])):
            return "the grid does not cover the output"
        images, filters = sorted(loads, key=lambda x: f.name in names_read(x))
        counted = tuple(build.var(s.var.name) for s in loops)
        if filters.clip or filters.mask is not None or filters.at.index != (places[3], *counted) or filters.at.buffer.shape != (
                f.extent, *(s.hi for s in loops)):
            return "a filter is not one row of a dense tensor of taps and channels"
        if f.name in names_read(images) or images.mask is not None or images.cache or filters.cache or not all(isinstance(i, n.Expr) for i in images.at.index):
            return "the images are read under a mask, or by the filter's number"
        if axes and any(a in names_read(inner) - names_read(images) - names_read(filters) for a in axes):
            return "the sum reads the place beside the two tensors"
        if images.clip != (images.other is not None):
            return "what lies outside of the images has no value"
        if any(b.strides is not None or b.layout is not None for b in (out, images.at.buffer, filters.at.buffer)):
            return "a tensor has rows that do not follow one another in memory"
        return cls(alloc, tuple(loops), inner, images, filters, store, places)

    def product(self, kernel: n.Kernel, taken: set[str]) -> n.Kernel:
        """The kernel over rows and columns."""
        out = self.store.at.buffer
        i, j, k, pixel, tap = (fresh(x, taken) for x in ("i", "j", "k", "pixel", "tap"))
        rows, depth, columns = product_of(self.rows), product_of(self.depth), out.shape[-1]
        straight = (*digits(build.var(pixel), self.rows), *digits(build.var(tap), self.depth))
        names = (*(x.name for x in self.digits[:3] if isinstance(x, n.Var)), *(s.var.name for s in self.loops))
        places = dict(zip(names, straight, strict=True))
        at = n.Region(self.images.at.buffer, tuple(substitute(e, places) for e in self.images.at.index))
        gathers = at.index != straight or at.buffer.shape != (*self.rows, *self.depth)
        views = []
        for base, shape in ((at.buffer, (rows, depth)), (self.filters.at.buffer, (columns, depth)), (out, (rows, columns))):
            named = n.Buffer(fresh(f"{base.name}m", taken), base.dtype, shape, "global")
            gathered = gathers and base is at.buffer
            views.append(n.View(named, at, (pixel, tap), self.images.other) if gathered else n.View(named, n.Region(base)))
        a, b, c = (v.buffer for v in views)
        left, right = (n.Load(n.Region(of, (build.var(row), build.var(k)))) for of, row in ((a, i), (b, j)))
        swap: dict[n.Node, n.Node] = {self.images: left, self.filters: right}
        step = transform(self.step, lambda old, new: swap.get(old, new))
        innermost = self.loops[-1]
        loop = replace(innermost, var=replace(innermost.var, name=k), hi=depth, body=(step,))
        store = replace(self.store, at=n.Region(c, (build.var(i), build.var(j))))
        return replace(kernel, grid=(n.Axis(i, rows), n.Axis(j, columns)), body=(*views, self.alloc, loop, store))


def product_of(dims: tuple[n.Expr, ...]) -> n.Expr:
    """The product of some extents."""
    out = dims[0]
    for d in dims[1:]:
        out = build.mul(out, d)
    return out


def digits(number: n.Expr, radices: tuple[n.Expr, ...]) -> tuple[n.Expr, ...]:
    """The digits of a number, the first of which has no end."""
    out: list[n.Expr] = []
    for i, radix in enumerate(radices):
        left = number if i == len(radices) - 1 else build.floordiv(number, product_of(radices[i + 1:]))
        out.append(build.mod(left, radix) if i else left)
    return tuple(out)


def _convolution(kernel: n.Kernel, taken: set[str]) -> n.Kernel | str:
    """The kernel with loops over taps and channels, of one over views; or why it is none."""
    if len(kernel.body) != 6 or not build.is_const(kernel.threads, 1):
        return "it is not three views, a sum, a loop and a store"
    *views, alloc, loop, store = kernel.body
    if not (isinstance(alloc, n.Alloc) and is_counted(loop, of=I32, plain=True) and isinstance(loop, n.For) and len(loop.body) == 1 and isinstance(
            store, n.Store) and all(isinstance(v, n.View) for v in views)):
        return "it is not three views, a sum, a loop and a store"
    x, w, y = (v for v in views if isinstance(v, n.View))
    out, filters, images = y.at.buffer, w.at.buffer, x.at.buffer
    if len(out.shape) != 4 or len(filters.shape) < 2 or y.axes or w.axes:
        return "no output of images, by filters of taps and channels"
    f, q, line, image, row = (fresh(name, taken) for name in ("f", "q", "y", "image", "p"))
    extents = filters.shape[1:]
    counts = [fresh(name, taken) for name in ("r", "s", "c")[-len(extents):]] if len(extents) <= 3 else [fresh(f"c{i}", taken) for i in range(len(extents))]
    rows = tuple(build.var(v) for v in (image, row, q))
    depth = tuple(build.var(v) for v in counts)
    if x.axes:
        pixel, tap = (build.var(a) for a in x.axes)
        back: dict[n.Node, n.Expr] = dict(zip((*digits(pixel, out.shape[:3]), *digits(tap, extents)), (*rows, *depth), strict=True))
        index = tuple(transform(e, lambda old, new: back.get(new, new)) for e in x.at.index)
        if any(a in names_read(e) for e in index for a in x.axes):
            return f"'{x.buffer.name}' is no view of pixels and taps"
        clip = x.fill is not None
    else:
        index, clip = (*rows, *depth), False
    a = n.Load(n.Region(images, index), other=x.fill, clip=clip)
    b = n.Load(n.Region(filters, (build.var(f), *depth)))
    swap = {n.Load(n.Region(v.buffer, (build.var(kernel.grid[at].name), build.var(loop.var.name)))): made for v, at, made in ((x, 0, a), (w, 1, b))}
    step = transform(loop.body[0], lambda old, new: swap.get(new, new) if isinstance(new, n.Load) else new)
    nest: n.Stmt = step
    for name, extent in reversed(list(zip(counts, extents, strict=True))):
        nest = replace(loop, var=replace(loop.var, name=name), hi=extent, body=(nest,), label=loop.label if nest is step else None)
    whole = build.var(line)
    lets = (n.Let((image,), build.floordiv(whole, out.shape[1])), n.Let((row,), build.mod(whole, out.shape[1])))
    grid = (n.Axis(f, out.shape[3]), n.Axis(q, out.shape[2]), n.Axis(line, build.mul(out.shape[1], out.shape[0])))
    stored = replace(store, at=n.Region(out, (*rows, build.var(f))))
    made = replace(kernel, grid=grid, body=(*lets, alloc, nest, stored))
    told = _Sum.of(made)
    return told if isinstance(told, str) else made


