"""Numbers the CTAs of a two-dimensional grid in one line, so that their order is the kernel's to choose.

before:

```kir
kir 1
program fill
  out C: f32[M, N]
  size M: i32
  size N: i32
kernel main grid (col: N, row: M) threads 1
  C[row, col] = 1.0
```

pipeline: `linear-grid@main`

after:

```kir
kir 1
program fill
  out C: f32[M, N]
  size M: i32
  size N: i32
kernel main grid (cta: M * N) threads 1
  let row = cta // N
  let col = cta % N
  C[row, col] = 1.0
```
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import names_read
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel


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
    """`rows_first`: whether the last axis (rows) is the slow one, as in row-major order; else the first is."""

    intent: ClassVar[str] = "raster-l2"
    catalogue: ClassVar[tuple[int, ...]] = (31,)
    claim: ClassVar[str] = "One line of CTAs can be put in any order, which a hardware grid cannot."
    provides: ClassVar[tuple[str, ...]] = ("linear",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P315", "validity", "shape", "the number of CTAs fits in 32 bits", _countable),)

    rows_first: bool = True

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel with two grid axes."""
        if not isinstance(node, n.Kernel):
            return None
        if len(node.grid) != 2 or node.cluster:
            return Miss("the grid has not two plain axes")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One axis, and a let for each of the two."""
        kernel = kernel_of(program, site.path)
        x, y = kernel.grid
        fast, slow = (x, y) if self.rows_first else (y, x)
        cta = n.Axis(fresh("pid", names_in(program, kernel)), build.mul(x.extent, y.extent))
        lets = (n.Let((slow.name,), build.floordiv(build.var(cta.name), fast.extent)), n.Let((fast.name,), build.mod(build.var(cta.name), fast.extent)))
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, grid=(cta,), body=(*lets, *kernel.body))), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose one axis is only divided, with remainder, into two coordinates."""
        if not (isinstance(node, n.Kernel) and len(node.grid) == 1):
            return None
        found = _coordinates(node)
        if found is None:
            return Miss("no two lets are the quotient and the remainder of the grid axis")
        slow, fast, width = found
        rows = _quotient(node.grid[0].extent, width)
        if rows is None:
            return Miss("the extent is no multiple of the divisor")
        rest = tuple(s for s in node.body if s not in (slow, fast))
        if any(node.grid[0].name in names_read(s) for s in rest):
            return Miss("the grid axis is used beside its two coordinates")
        return tuple(Site(path, LinearGrid(first), {"slow": slow, "fast": fast, "rows": rows, "width": width}) for first in (True, False))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Two axes."""
        kernel = kernel_of(program, site.path)
        slow, fast = site.captures["slow"], site.captures["fast"]
        rows, columns = n.Axis(slow.names[0], site.captures["rows"]), n.Axis(fast.names[0], site.captures["width"])
        body = tuple(s for s in kernel.body if s not in (slow, fast))
        grid = (columns, rows) if self.rows_first else (rows, columns)
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, grid=grid, body=body)), site.path)


def _coordinates(kernel: n.Kernel) -> tuple[n.Let, n.Let, n.Expr] | None:
    """The lets of quotient and remainder of the grid axis, and the divisor."""
    axis = build.var(kernel.grid[0].name)
    lets = [s for s in kernel.body if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Binary) and s.value.a == axis]
    for slow in lets:
        for fast in lets:
            a, b = slow.value, fast.value
            if isinstance(a, n.Binary) and isinstance(b, n.Binary) and a.op in ("floordiv", "tdiv") and b.op in ("mod", "trem") and a.b == b.b:
                return slow, fast, a.b
    return None


def _quotient(extent: n.Expr, width: n.Expr) -> n.Expr | None:
    """`extent / width` where the extent is a product with `width` as a factor."""
    if build.int_value(width) is not None and build.int_value(extent) is not None:
        total, each = build.int_value(extent) or 0, build.int_value(width) or 1
        return build.const(total // each) if total % each == 0 else None
    terms = build.polynomial(extent)
    if len(terms) != 1:
        return None
    (monomial, c), = terms.items()
    if width in monomial:
        left = list(monomial)
        left.remove(width)
        return build.from_polynomial({tuple(left): c}, dtype_of(extent.type))
    whole = build.int_value(width)
    return build.from_polynomial({monomial: c // whole}, dtype_of(extent.type)) if whole and c % whole == 0 else None
