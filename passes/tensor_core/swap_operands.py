"""Computes the transpose of a product: the operands change places, and what was the sum is read transposed.

pipeline: `swap-operands@main/dot`

```diff
 kir 1
 program product
   in A: f16[16, 64]
   in B: f16[64, 64]
   out C: f32[16, 64]
 kernel main grid (i: 1) threads 128
-  fragment acc: f32[16, 64] = 0.0
-  @dot mma acc += A * trans(B, 1, 0)
-  C = acc
+  fragment acc: f32[64, 16] = 0.0
+  @dot mma acc += B * trans(A, 1, 0)
+  C = trans(acc, 1, 0)
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType, shape_of
from kir.ir.visit import children, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import kernel_of, replace_kernel
from kir.rewrite.match import node_as
from kir.rewrite.match.local_buffers import sizes


def _whole_instructions(program: n.Program, site: Site, context: Context) -> Verdict:
    s = node_as(program, site.path, n.Mma)
    rows, columns = shape_of(s.a.type)[0], shape_of(s.b.type)[1]
    if s.via == "fma" or (isinstance(rows, int) and isinstance(columns, int) and rows % 8 == 0 and columns % 16 == 0):
        return proved(f"the transpose, {columns} x {rows}, is made of whole instructions too")
    return refuted(f"the transpose, {columns} x {rows}, is not made of whole instructions", f"row {columns} of the transpose",
                   needs="rows a multiple of 8, columns of 16")


@dataclass(frozen=True)
class SwapOperands(Pass):
    """No parameters: each product into the same sum changes with it."""

    intent: ClassVar[str] = "swap-operands"
    catalogue: ClassVar[tuple[int, ...]] = (38,)
    claim: ClassVar[str] = "The axis with few elements becomes that of the columns, of which an instruction takes as few as 8, and not 64 as of rows."
    requires: ClassVar[tuple[str, ...]] = ("mma",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P740", "validity", "shape", "the transpose is made of whole instructions", _whole_instructions),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first product into a sum in registers that is then read as it is."""
        return self._found(program, path, node, False)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first product into a sum in registers that is read transposed alone."""
        return self._found(program, path, node, True)

    def _found(self, program: n.Program, path: Path, node: Place, transposed: bool) -> Found:
        if not isinstance(node, n.Mma) or node.acc.index or node.acc.buffer.space != "fragment":
            return None
        kernel, b = kernel_of(program, path), node.acc.buffer
        shape = sizes(b)
        if shape is None or len(shape) != 2 or b.layout is not None or b.strides is not None:
            return Miss(f"'{b.name}' is no matrix in registers, or has a layout of its own")
        products = [x for x in walk(kernel) if isinstance(x, n.Mma) and x.acc.buffer.name == b.name]
        if products[0] is not node:
            return None
        if any(x.via not in ("auto", "mma_sync", "fma") or x.acc.index for x in products):
            return Miss("a product into it is of an instruction that is chosen already, or into a part of it")
        alloc = next((x for x in walk(kernel) if isinstance(x, n.Alloc) and x.buffer.name == b.name), None)
        if alloc is None or (alloc.init is not None and isinstance(alloc.init.type, TileType)):
            return Miss(f"'{b.name}' begins with more than one number")
        reads = set(_reads(kernel, b))
        if reads == {transposed}:
            return Site(path, self)
        return Miss(f"'{b.name}' is not read {'transposed' if transposed else 'as it is'} alone") if transposed in reads else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The transpose of the sum."""
        return self._swapped(program, site)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The sum itself."""
        return self._swapped(program, site)

    def _swapped(self, program: n.Program, site: Site) -> Rewritten:
        kernel, b = kernel_of(program, site.path), node_as(program, site.path, n.Mma).acc.buffer
        made = replace(b, shape=(b.shape[1], b.shape[0]))

        def leave(old: n.Node, new: n.Node) -> n.Node:
            match new:
                case n.Alloc() if new.buffer.name == b.name:
                    return replace(new, buffer=made)
                case n.Mma() if new.acc.buffer.name == b.name:
                    return replace(new, acc=n.Region(made), a=_transposed(new.b), b=_transposed(new.a))
                case n.Load() if new.at == n.Region(b):
                    return _transposed(n.Load(n.Region(made)))
                case n.Call() if new.fn == "trans" and isinstance(inner := new.args[0], n.Call) and inner.fn == "trans":
                    assert isinstance(inner.args[0], n.Expr)
                    return inner.args[0]
                case _:
                    return new
        changed: n.Kernel = transform(kernel, leave)
        return Rewritten(replace_kernel(program, kernel.name, changed), site.path)


def _transposed(e: n.Expr) -> n.Expr:
    """The transpose of a matrix, without two in a row."""
    if isinstance(e, n.Call) and e.fn == "trans" and isinstance(e.args[0], n.Expr):
        return e.args[0]
    return build.call("trans", e, build.const(1), build.const(0))


def _reads(kernel: n.Kernel, b: n.Buffer) -> Iterator[bool | None]:
    """Of each place that reads a buffer, other than as a product's sum: whether it reads the transpose; None for a part or a write."""
    def of(x: n.Node, around: n.Node | None) -> Iterator[bool | None]:
        if isinstance(x, n.Region) and x.buffer.name == b.name:
            plain = isinstance(around, n.Load) and not x.index
            yield False if plain else None
            return
        if isinstance(x, n.Call) and x.fn == "trans" and x.args[0] == n.Load(n.Region(b)):
            yield True
            return
        for part in children(x):
            if not (isinstance(x, n.Mma) and part is x.acc):
                yield from of(part, x)
    yield from of(kernel, None)
