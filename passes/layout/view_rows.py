"""Sees a flat tensor by the coordinates that its places are made of, so that tiles along each of them are tiles of it.

pipeline: `view-rows{buffer=X}@main`

```diff
 kir 1
 program turned
   size B: i32
   size M: i32
   size N: i32
   in X: f32[B * M * N]
   out Y: f32[B, N, M]
   fact B >= 1
   fact M >= 1
   fact N >= 1
 kernel main grid (n: N, m: M, b: B) threads 1
-  Y[b, n, m] = X[M * N * b + N * m + n]
+  view global X_rows: f32[B, M, N] at X
+  Y[b, n, m] = X_rows[b, m, n]
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.facts import Facts
from kir.analysis.order import less
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.types import I32
from kir.ir.visit import regions, statements, transform
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown
from kir.rewrite.edit import kernel_of, names_in, places, replace_kernel
from kir.rewrite.match import matched, params_as

Stride = tuple[tuple[str, ...], int]
"""Sizes, in the order of their names, and a number that a coordinate is multiplied with."""
ONE: Stride = ((), 1)


def _split(m: build.Monomial, c: int, sizes: set[str]) -> tuple[Stride, build.Monomial]:
    """The sizes and the number of a product, and what they are multiplied with."""
    names = tuple(sorted(a.name for a in m if isinstance(a, n.Var) and a.name in sizes))
    return (names, c), tuple(a for a in m if not (isinstance(a, n.Var) and a.name in sizes))


def _over(a: Stride, b: Stride) -> Stride | None:
    """A quotient of strides; None where it leaves a rest."""
    rest = list(a[0])
    for name in b[0]:
        if name not in rest:
            return None
        rest.remove(name)
    return None if a[1] % b[1] else (tuple(rest), a[1] // b[1])


def _coordinates(index: n.Expr, sizes: set[str]) -> dict[Stride, n.Expr] | None:
    """What a place is put together of, by what each is multiplied with; None where something is added that no coordinate says."""
    out: dict[Stride, n.Expr] = {}
    for m, c in build.polynomial(index).items():
        stride, rest = _split(m, c, sizes)
        if not rest or c <= 0:
            return None
        e = build.from_polynomial({rest: 1}, I32)
        out[stride] = build.add(out[stride], e) if stride in out else e
    return out


def _extent(of: Stride) -> n.Expr:
    return build.from_polynomial({tuple(build.var(x) for x in of[0]): of[1]}, I32)


def _seen(program: n.Program, kernel: n.Kernel, name: str) -> tuple[n.Buffer, tuple[Stride, ...], tuple[Stride, ...]] | str:
    """A flat tensor, the strides of its coordinates, the largest first, and its extents along them; or why it is not seen so."""
    sizes = {p.name for p in program.params if p.role == "size"}
    b = next((p.of for p in program.params if p.name == name and isinstance(p.of, n.Buffer)), None)
    found = [r for r in regions(kernel) if r.buffer.name == name]
    if b is None or len(b.shape) != 1 or b.strides is not None or b.layout is not None or not found:
        return "it is no flat tensor"
    if any(not r.index or not isinstance(r.index[0], n.Expr) or r.index[0].type != I32 for r in found):
        return "it is not read or written at single places"
    made = [_coordinates(r.index[0], sizes) for r in found if isinstance(r.index[0], n.Expr)]
    if any(x is None or x.keys() != (made[0] or {}).keys() for x in made):
        return "its places are not made of the same coordinates"
    strides = sorted(made[0] or {}, key=lambda s: (len(s[0]), s[1]), reverse=True)
    whole = build.polynomial(b.shape[0])
    if len(strides) < 2 or strides[-1] != ONE or len(whole) != 1:
        return "its places are made of fewer than two coordinates"
    total, rest = _split(*next(iter(whole.items())), sizes)
    extents = [_over(a, s) for a, s in zip([total, *strides], strides, strict=False)]
    known = tuple(x for x in extents if x is not None)
    return (b, tuple(strides), known) if not rest and len(known) == len(strides) else "its coordinates are no digits of its places"


def _within(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel, item = kernel_of(program, site.path), params_as(site, ViewRows)
    seen = _seen(program, kernel, item.buffer)
    assert not isinstance(seen, str)
    sizes = {p.name for p in program.params if p.role == "size"}
    for path, s in places(program):
        if path[0] != kernel.name or not isinstance(s, n.Stmt):
            continue
        known = Facts.at(program, path)
        for r in (r for r in regions(s) if r.buffer.name == item.buffer):
            at = matched(_coordinates(matched(r.index[0] if isinstance(r.index[0], n.Expr) else None), sizes))
            for k, (stride, extent) in enumerate(zip(seen[1], seen[2], strict=True)):
                low = known.domain(at[stride]).lo
                if low is None or low < 0 or (k and not less(at[stride], _extent(extent), known)):
                    return unknown(f"'{expr_text(at[stride])}' may be {expr_text(_extent(extent))} or more, or less than 0",
                                   needs="coordinates that stay within what they are multiplied up to")
    return proved("each coordinate stays within its extent, the first because the place does")


@dataclass(frozen=True)
class ViewRows(Pass):
    """`buffer` is the tensor; all its places in the kernel are made of the same coordinates, each multiplied with the extents of those behind it."""

    intent: ClassVar[str] = "strength-reduce"
    catalogue: ClassVar[tuple[int, ...]] = (31,)
    claim: ClassVar[str] = "What is a tile along a coordinate is one in memory, which can be moved as a whole."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P986", "validity", "shape", "each coordinate stays within its extent", _within),)

    buffer: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of one thread that uses a flat tensor; without `buffer` a site for each."""
        if not isinstance(node, n.Kernel) or not build.is_const(node.threads, 1):
            return None
        names = [self.buffer] if self.buffer else [p.name for p in program.params if isinstance(p.of, n.Buffer) and len(p.of.shape) == 1]
        found = {name: _seen(program, node, name) for name in names}
        good = [Site(path, ViewRows(name)) for name, seen in found.items() if not isinstance(seen, str) and _named(name) not in names_in(program, node)]
        return tuple(good) or (Miss(str(found[self.buffer])) if self.buffer and isinstance(found[self.buffer], str) else None)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A view, and places in it."""
        kernel = kernel_of(program, site.path)
        seen = _seen(program, kernel, self.buffer)
        assert not isinstance(seen, str)
        b, strides, extents = seen
        sizes = {p.name for p in program.params if p.role == "size"}
        view = n.Buffer(_named(self.buffer), b.dtype, tuple(_extent(x) for x in extents), "global")

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if not isinstance(new, n.Region) or new.buffer.name != self.buffer or not isinstance(new.index[0], n.Expr):
                return new
            at = matched(_coordinates(new.index[0], sizes))
            return n.Region(view, tuple(at[s] for s in strides))
        body = tuple(transform(s, leave) for s in kernel.body)
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, body=(n.View(view, n.Region(b)), *body))), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of one thread that begins with another name for all of a flat tensor, of more axes."""
        if not isinstance(node, n.Kernel) or not build.is_const(node.threads, 1) or not node.body or not isinstance(s := node.body[0], n.View):
            return None
        b, view = s.at.buffer, s.buffer
        plain = s.at == n.Region(b) and not s.axes and b.space == view.space == "global" and len(b.shape) == 1 and len(view.shape) > 1
        if not plain or view.name != _named(b.name) or b.dtype != view.dtype or any(r.buffer.name == b.name for x in node.body[1:] for r in regions(x)):
            return None
        if any(r.buffer.name == view.name and not all(isinstance(i, n.Expr) and i.type == I32 for i in r.index) for x in node.body[1:] for r in regions(x)):
            return Miss("more than single places of it are touched")
        if any(isinstance(x, n.View) and x.at.buffer.name == view.name for x in statements(node.body)):
            return Miss("it has another name itself")
        return Site(path, ViewRows(b.name))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Places in the tensor."""
        kernel = kernel_of(program, site.path)
        view = kernel.body[0]
        assert isinstance(view, n.View)

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if not isinstance(new, n.Region) or new.buffer.name != view.buffer.name:
                return new
            at: n.Expr = build.const(0)
            for i, d in zip(new.index, view.buffer.shape, strict=True):
                assert isinstance(i, n.Expr)
                at = build.add(build.mul(at, d), i)
            return n.Region(view.at.buffer, (at,))
        body = tuple(transform(s, leave) for s in kernel.body[1:])
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, body=body)), site.path)


def _named(buffer: str) -> str:
    return f"{buffer}_rows"
