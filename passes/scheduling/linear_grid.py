"""Numbers the CTAs of a grid of two or three axes in one line, so that their order is the kernel's to choose.

pipeline: `linear-grid@main`

```diff
 kir 1
 program fill
   out C: f32[M, N]
   size M: i32
   size N: i32
-kernel main grid (col: N, row: M) threads 1
+kernel main grid (cta: M * N) threads 1
+  let row = cta // N
+  let col = cta % N
   C[row, col] = 1.0
```

Where CTAs along one axis form clusters, clusters are what is numbered, and CTAs within each: `cta // size` and `cta % size`. Of three axes the last two
are counted as one, the second fastest: the tiles of all products of a batch are then one row of tiles. `order` takes three axes in another order first: where
CTAs that stay take every so many-th tile, it says which tiles one of them has.
"""
from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import names_read, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.match import matched, params_as

ORDERS = tuple(permutations(range(3)))
"""Those of three axes."""


def _countable(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel = kernel_of(program, site.path)
    sizes = [build.int_value(a.extent) for a in kernel.grid]
    if all(s is not None for s in sizes):
        total = 1
        for s in sizes:
            total *= s or 0
        if total >= 1 << 31:
            return refuted(f"{total} CTAs do not fit in 32 bits", f"CTA {total - 1} has no number")
        return proved(f"{total} CTAs fit in 32 bits")
    return proved("a launch of 2^31 CTAs or more is impossible in the x axis, where the line lies")


@dataclass(frozen=True)
class LinearGrid(Pass):
    """`rows_first`: whether the last axis (rows) is the slow one, as in row-major order; else the first is. `named`: whether the coordinates have
    names; else they are worked out wherever they are used. `axes` are those of the grid; `order` has the numbers of three, the fastest first.
    `part`: of three axes only the last two are put in a line."""

    intent: ClassVar[str] = "raster-l2"
    catalogue: ClassVar[tuple[int, ...]] = (31,)
    claim: ClassVar[str] = "One line of CTAs can be put in any order, which a hardware grid cannot."
    provides: ClassVar[tuple[str, ...]] = ("linear",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P315", "validity", "shape", "the number of CTAs fits in 32 bits", _countable),)

    rows_first: bool = True
    named: bool = True
    axes: int = 2
    order: tuple[int, ...] = ()
    part: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel with two grid axes, or three."""
        if not isinstance(node, n.Kernel):
            return None
        if len(node.grid) not in (2, 3):
            return Miss("the grid has neither two axes nor three")
        if self.part and (len(node.grid) != 3 or node.cluster or self.order):
            return Miss("the last two of three axes are put in a line as they are, without clusters")
        along = cluster_axis(node)
        if len(node.grid) == 3 and not self.part and (not self.named or (along is not None and along[0] > 0)):
            return Miss("of three axes coordinates have names, and clusters stretch along the first")
        if node.cluster and (along is None or quotient_of(node.grid[along[0]].extent, build.const(along[1])) is None):
            return Miss("its clusters do not stretch along one axis, in a whole number of them")
        if node.cluster and not self.named:
            return Miss("the coordinates of clusters have names")
        if self.order and (self.order not in ORDERS or len(node.grid) != 3 or node.cluster):
            return Miss("an order is one of three axes, without clusters")
        return Site(path, replace(self, axes=len(node.grid)))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One axis, and a let for each of the two."""
        kernel = kernel_of(program, site.path)
        if self.part:
            return Rewritten(replace_kernel(program, kernel.name, self._partly(program, kernel)), site.path)
        if len(kernel.grid) == 3:
            kernel = _joined(program, replace(kernel, grid=tuple(kernel.grid[k] for k in self.order)) if self.order else kernel)
        x, y = kernel.grid
        if (along := cluster_axis(kernel)) is not None:
            return Rewritten(replace_kernel(program, kernel.name, self._clusters(program, kernel, *along)), site.path)
        fast, slow = (x, y) if self.rows_first else (y, x)
        cta = n.Axis(fresh("pid", names_in(program, kernel)), build.mul(x.extent, y.extent))
        coordinates = {slow.name: build.floordiv(build.var(cta.name), fast.extent), fast.name: build.mod(build.var(cta.name), fast.extent)}
        if not self.named:
            body = tuple(substitute(s, coordinates) for s in kernel.body)
            return Rewritten(replace_kernel(program, kernel.name, replace(kernel, grid=(cta,), body=body)), site.path)
        lets = tuple(n.Let((name,), value) for name, value in coordinates.items())
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, grid=(cta,), body=(*lets, *kernel.body))), site.path)

    def _partly(self, program: n.Program, kernel: n.Kernel) -> n.Kernel:
        """The kernel with its last two axes in one line."""
        first, *rest = kernel.grid
        fast, slow = rest if self.rows_first else rest[::-1]
        line = n.Axis(fresh("pid", names_in(program, kernel)), build.mul(rest[0].extent, rest[1].extent))
        at = build.var(line.name)
        coordinates = {slow.name: build.floordiv(at, fast.extent), fast.name: build.mod(at, fast.extent)}
        body = (*(n.Let((name,), value) for name, value in coordinates.items()), *kernel.body) if self.named else tuple(
            substitute(s, coordinates) for s in kernel.body)
        return replace(kernel, grid=(first, line), body=body)

    def _clusters(self, program: n.Program, kernel: n.Kernel, axis: int, size: int) -> n.Kernel:
        """The kernel with its clusters in one line."""
        x, y = kernel.grid
        whole = kernel.grid[axis]
        each = matched(quotient_of(whole.extent, build.const(size)))
        taken = names_in(program, kernel)
        pid, number = build.var(fresh("pid", taken)), build.var(fresh("cluster_id", taken))
        coordinate = n.Axis(fresh(f"{whole.name}_cluster", taken), each)
        a, b = (coordinate, y) if axis == 0 else (x, coordinate)
        fast, slow = (a, b) if self.rows_first else (b, a)
        lets = (n.Let((number.name,), build.floordiv(pid, size)), n.Let((slow.name,), build.floordiv(number, fast.extent)),
                n.Let((fast.name,), build.mod(number, fast.extent)),
                n.Let((whole.name,), build.add(build.mul(build.var(coordinate.name), size), build.mod(pid, size))))
        line = n.Axis(pid.name, build.mul(x.extent, y.extent))
        return replace(kernel, grid=(line,), cluster=(size,), body=(*lets, *kernel.body))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose one axis is only divided, with remainder, into two coordinates; and of whose two axes the last is."""
        if isinstance(node, n.Kernel) and len(node.grid) == 2 and not node.cluster:
            return self._of_part(program, path, node)
        if not (isinstance(node, n.Kernel) and len(node.grid) == 1):
            return None
        if node.cluster:
            found_clusters = _of_clusters(node)
            if found_clusters is None:
                return Miss("no lets are the coordinates of clusters in the line, and of the CTA in its cluster")
            return self._with_three(program, tuple(Site(path, LinearGrid(first), {"clusters": found_clusters}) for first in (True, False)))
        found = _coordinates(node)
        if found is None:
            width = _divisor(node)
            rows = None if width is None else quotient_of(node.grid[0].extent, width)
            if rows is None:
                return Miss("no two lets are the quotient and the remainder of the grid axis")
            return tuple(Site(path, LinearGrid(first, False), {"rows": rows, "width": width}) for first in (True, False))
        slow, fast, width = found
        rows = quotient_of(node.grid[0].extent, width)
        if rows is None:
            return Miss("the extent is no multiple of the divisor")
        rest = tuple(s for s in node.body if s not in (slow, fast))
        if any(node.grid[0].name in names_read(s) for s in rest):
            return Miss("the grid axis is used beside its two coordinates")
        return self._with_three(program, tuple(Site(path, LinearGrid(first), {"slow": slow, "fast": fast, "rows": rows, "width": width})
                                               for first in (True, False)))

    def _of_part(self, program: n.Program, path: Path, node: n.Kernel) -> Found:
        """The ways back from two axes to three."""
        line = node.grid[1]
        found = _coordinates(node, line.name)
        named = found is not None and not any(line.name in names_read(s) for s in node.body if s not in found[:2])
        width = found[2] if found is not None and named else _divisor(node, line.name)
        rows = quotient_of(line.extent, width) if width is not None else None
        if width is None or rows is None:
            return None
        lets = {"slow": found[0], "fast": found[1]} if found is not None and named else {}
        return tuple(Site(path, LinearGrid(first, named, 3, part=True), {**lets, "rows": rows, "width": width}) for first in (True, False))

    def _with_three(self, program: n.Program, found: tuple[Site, ...]) -> tuple[Site, ...]:
        """The ways back to two axes, and after them those to three, in the order that is asked for too."""
        def three(site: Site) -> bool:
            return _apart_again(kernel_of(site.params.deoptimize(program, site).program, site.path)) is not None
        apart = tuple(x for x in found if three(x))
        ways = tuple(replace(x, params=replace(params_as(x, LinearGrid), axes=3)) for x in apart)
        asked = ways if self.order in ORDERS else ()  # a search that takes any would have six programs where one will do
        return (*found, *ways, *(replace(x, params=replace(params_as(x, LinearGrid), order=self.order)) for x in asked if "clusters" not in x.captures))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Two axes, or three."""
        if self.part:
            kernel = kernel_of(program, site.path)
            line = replace_kernel(program, kernel.name, replace(kernel, grid=kernel.grid[1:]))
            alone = Site(site.path, replace(self, part=False, axes=2), site.captures)
            made = kernel_of(alone.params.deoptimize(line, alone).program, site.path)
            return Rewritten(replace_kernel(program, kernel.name, replace(made, grid=(kernel.grid[0], *made.grid))), site.path)
        if self.axes == 3:
            flat = replace(self, axes=2).deoptimize(program, site)
            there = matched(_apart_again(kernel_of(flat.program, site.path)))
            grid = tuple(there.grid[self.order.index(k)] for k in range(3)) if self.order else there.grid
            return Rewritten(replace_kernel(flat.program, there.name, replace(there, grid=grid)), site.path)
        kernel = kernel_of(program, site.path)
        if "clusters" in site.captures:
            return Rewritten(replace_kernel(program, kernel.name, _apart(kernel, site.captures["clusters"], self.rows_first)), site.path)
        if not self.named:
            return Rewritten(replace_kernel(program, kernel.name, self._divided(program, kernel, site.captures["rows"], site.captures["width"])), site.path)
        slow, fast = site.captures["slow"], site.captures["fast"]
        rows, columns = n.Axis(slow.names[0], site.captures["rows"]), n.Axis(fast.names[0], site.captures["width"])
        body = tuple(s for s in kernel.body if s not in (slow, fast))
        grid = (columns, rows) if self.rows_first else (rows, columns)
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, grid=grid, body=body)), site.path)


    def _divided(self, program: n.Program, kernel: n.Kernel, rows: n.Expr, width: n.Expr) -> n.Kernel:
        """The kernel with its CTAs in two dimensions, where quotient and remainder of their number stood."""
        taken = names_in(program, kernel)
        slow = fresh("row", taken)
        fast = fresh("col", {*taken, slow})
        cta = build.var(kernel.grid[0].name)
        parts = {build.floordiv(cta, width): build.var(slow), build.mod(cta, width): build.var(fast)}

        def leave(old: n.Node, new: n.Node) -> n.Node:
            return parts.get(new, new) if isinstance(new, n.Binary) else new
        body = tuple(transform(s, leave) for s in kernel.body)
        along = (n.Axis(fast, width), n.Axis(slow, rows))
        return replace(kernel, grid=along if self.rows_first else along[::-1], body=body)


def _joined(program: n.Program, kernel: n.Kernel) -> n.Kernel:
    """A kernel of three grid axes with the last two as one."""
    x, y, z = kernel.grid
    both = n.Axis(fresh(f"{y.name}_{z.name}", names_in(program, kernel)), build.mul(y.extent, z.extent))
    at = build.var(both.name)
    lets = (n.Let((z.name,), build.floordiv(at, y.extent)), n.Let((y.name,), build.mod(at, y.extent)))
    return replace(kernel, grid=(x, both), cluster=kernel.cluster[:1], body=(*lets, *kernel.body))


def _apart_again(kernel: n.Kernel) -> n.Kernel | None:
    """A kernel of two grid axes with three, where the second is only divided, with remainder, into two coordinates; None elsewhere."""
    if len(kernel.grid) != 2 or ((along := cluster_axis(kernel)) is not None and along[0] > 0):
        return None
    x, both = kernel.grid
    found = _coordinates(kernel, both.name)
    if found is None:
        return None
    slow, fast, width = found
    count = quotient_of(both.extent, width)
    rest = tuple(s for s in kernel.body if s not in (slow, fast))
    if count is None or any(both.name in names_read(s) for s in rest):
        return None
    return replace(kernel, grid=(x, n.Axis(fast.names[0], width), n.Axis(slow.names[0], count)), body=rest)


def _divisor(kernel: n.Kernel, of: str = "") -> n.Expr | None:
    """What the number of the CTA (or another) is divided by, with remainder, wherever it is used."""
    cta = build.var(of or kernel.grid[0].name)
    found = [x for s in kernel.body for x in walk(s) if isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and x.a == cta]
    uses = sum(isinstance(x, n.Var) and x.name == cta.name for s in kernel.body for x in walk(s))
    width = found[0].b if found else None
    both = {x.op for x in found} == {"floordiv", "mod"}
    return width if width is not None and both and uses == len(found) and all(x.b == width for x in found) else None


def cluster_axis(kernel: n.Kernel) -> tuple[int, int] | None:
    """The one axis along which CTAs form clusters, and how many form one; None for a kernel without clusters, or with wider ones."""
    wide = [(i, c) for i, c in enumerate(kernel.cluster) if c != 1]
    return wide[0] if len(wide) == 1 else None


@dataclass(frozen=True)
class _Clusters:
    """The lets that take a line of clusters apart: `whole` is the coordinate of the CTA along the axis of its cluster."""

    size: int
    number: n.Let
    slow: n.Let
    fast: n.Let
    whole: n.Let
    slow_extent: n.Expr
    fast_extent: n.Expr


def _of_clusters(kernel: n.Kernel) -> _Clusters | None:
    """The lets of a kernel that are the coordinates of its clusters; the CTA's number may be used for nothing else."""
    along = cluster_axis(kernel)
    if along is None:
        return None
    size, pid = along[1], build.var(kernel.grid[0].name)
    number = next((s for s in kernel.body if isinstance(s, n.Let) and len(s.names) == 1 and s.value == build.floordiv(pid, size)), None)
    total = quotient_of(kernel.grid[0].extent, build.const(size))
    found = _coordinates(kernel, number.names[0]) if number is not None else None
    if found is None or number is None or total is None:
        return None
    slow, fast, width = found
    height = quotient_of(total, width)
    for s in kernel.body:
        for part in (slow, fast):
            if isinstance(s, n.Let) and s.value == build.add(build.mul(build.var(part.names[0]), size), build.mod(pid, size)) and height is not None:
                rest = [x for x in kernel.body if x not in (number, slow, fast, s)]
                if not any({pid.name, number.names[0], part.names[0]} & names_read(x) for x in rest):
                    return _Clusters(size, number, slow, fast, s, height, width)
    return None


def _apart(kernel: n.Kernel, c: _Clusters, rows_first: bool) -> n.Kernel:
    """The kernel with its clusters in two dimensions."""
    stretched = c.slow if c.slow.names[0] in names_read(c.whole) else c.fast
    axes = []
    for let, extent in ((c.fast, c.fast_extent), (c.slow, c.slow_extent)):
        mine = let is stretched
        axes.append(n.Axis((c.whole if mine else let).names[0], build.mul(extent, c.size) if mine else extent))
    grid = (axes[0], axes[1]) if rows_first else (axes[1], axes[0])
    at = next(i for i, a in enumerate(grid) if a.name == c.whole.names[0])
    body = tuple(s for s in kernel.body if s not in (c.number, c.slow, c.fast, c.whole))
    return replace(kernel, grid=grid, cluster=(*(1 for _ in range(at)), c.size), body=body)


def _coordinates(kernel: n.Kernel, of: str = "") -> tuple[n.Let, n.Let, n.Expr] | None:
    """The lets of quotient and remainder of the grid axis (or of another number), and the divisor."""
    axis = build.var(of or kernel.grid[0].name)
    lets = [s for s in kernel.body if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Binary) and s.value.a == axis]
    for slow in lets:
        for fast in lets:
            a, b = slow.value, fast.value
            if isinstance(a, n.Binary) and isinstance(b, n.Binary) and a.op in ("floordiv", "tdiv") and b.op in ("mod", "trem") and a.b == b.b:
                return slow, fast, a.b
    return None


def quotient_of(extent: n.Expr, width: n.Expr) -> n.Expr | None:
    """`extent / width` where the extent is a product with `width` as a factor."""
    if build.int_value(width) is not None and build.int_value(extent) is not None:
        total, size = build.int_value(extent) or 0, build.int_value(width) or 1
        return build.const(total // size) if total % size == 0 else None
    terms, by = build.polynomial(extent), build.polynomial(width)
    if len(terms) != 1 or len(by) != 1:
        return None
    ((monomial, c),), ((each, k),) = terms.items(), by.items()
    left = list(monomial)
    for atom in each:
        if atom not in left:
            return None
        left.remove(atom)
    return build.from_polynomial({tuple(left): c // k}, dtype_of(extent.type)) if k and c % k == 0 else None
