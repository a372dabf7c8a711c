"""Loads operand fragments from shared memory with ldmatrix: a warp reads 8 x 8 matrices straight into the registers of mma.sync.

pipeline: `ldmatrix@main/load_a`

```diff
 kir 1
 program product
   in A: f16[16, 16]
   in B: f16[16, 8]
   out C: f32[16, 8]
 kernel main grid (i: 1) threads 32
   shared As: f16[16, 16]
   copy A -> As
   fragment acc: f32[16, 8] = 0.0
   fragment a: f16[16, 16]
-  @load_a copy As -> a
+  @load_a copy As -> a via ldmatrix
   mma acc += a * B via mma_sync
   C = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.types import shape_of
from kir.ir.visit import statements
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import edited, node_as, params_as
from kir.rewrite.match.local_buffers import MATRIX_ROW, team_level


def _elements(program: n.Program, site: Site, context: Context) -> Verdict:
    dtype = node_as(program, site.path, n.Copy).dst.buffer.dtype
    if dtype.bits == 16:
        return proved(f"{dtype} has the 16 bits of the elements that ldmatrix moves")
    return refuted(f"ldmatrix moves elements of 16 bits, {dtype} has {dtype.bits}", f"'{node_as(program, site.path, n.Copy).dst.buffer.name}'")


def _matrices(program: n.Program, site: Site, context: Context) -> Verdict:
    s = node_as(program, site.path, n.Copy)
    shape = shape_of(s.dst.type)
    if len(shape) != 2 or not all(isinstance(d, int) for d in shape):
        return unknown("the tile has a symbolic extent, or not two dimensions", needs="a tile of literal extents")
    rows, columns = (d for d in shape if isinstance(d, int))
    item = params_as(site, LoadMatrix)
    if item.num == 4 and (not item.trans or columns % 16):
        return refuted("four matrices at a time are two columns of products of a turned operand", f"{columns} columns",
                       needs="trans, and a multiple of 16 columns")
    if rows % 8 or columns % 8:
        return refuted(f"a tile of {rows} x {columns} is not made of whole 8 x 8 matrices",
                       f"row {rows - rows % 8}, column {columns - columns % 8}", needs="multiples of 8")
    return proved(f"{rows * columns // 64} matrices of 8 x 8")


def _rows_whole(program: n.Program, site: Site, context: Context) -> Verdict:
    s = node_as(program, site.path, n.Copy)
    b, per_row = s.src.at.buffer, MATRIX_ROW // max(1, s.src.at.buffer.dtype.bytes)
    known = Facts.at(program, site.path)
    if b.layout is not None and (b.layout.name != "swizzle" or not isinstance(b.layout.args[1], int) or 1 << b.layout.args[1] < MATRIX_ROW):
        return refuted(f"the layout of '{b.name}' splits rows of {MATRIX_ROW} bytes", "the first row of a matrix",
                       needs="a swizzle with base=4 or more")
    strides = [build.int_value(d) for d in b.strides] if b.strides is not None else _dense(b)
    if strides is None or None in strides:
        return unknown(f"'{b.name}' has a symbolic stride")
    index = s.src.at.index or tuple(build.span(0, d) for d in b.shape)
    spans = [i for i in index if isinstance(i, n.Span)]
    if not isinstance(index[-1], n.Span) or build.int_value(index[-1].step) != 1 or strides[-1] != 1:
        return refuted("the elements of a row are no neighbors", f"elements 0 and 1 of a row of '{b.name}'")
    for i, stride in zip(index, strides, strict=True):
        assert stride is not None
        lo = i.lo if isinstance(i, n.Span) else i
        if isinstance(i, n.Span) and i is not index[-1] and len(spans) > 1 and stride % per_row:
            return refuted(f"rows of '{b.name}' are {stride} elements apart", f"row 1 starts at byte {stride * b.dtype.bytes}",
                           needs=f"rows at multiples of {MATRIX_ROW} bytes")
        if not known.divides(per_row, build.mul(lo, stride)):
            return unknown(f"the place {expr_text(lo)} is not known to be aligned to {MATRIX_ROW} bytes",
                           needs=f"{expr_text(build.mul(lo, stride))} as a multiple of {per_row}")
    return proved(f"rows of matrices are {MATRIX_ROW} neighboring, aligned bytes")


def _dense(b: n.Buffer) -> list[int | None] | None:
    out: list[int | None] = []
    step = 1
    for d in reversed(b.shape):
        out.append(step)
        value = build.int_value(d)
        if value is None:
            return None
        step *= value
    return out[::-1]


def _turned(kernel: n.Kernel, name: str) -> set[bool]:
    """Whether the products of a kernel want the matrices of a fragment turned: right operands do, as they lie by rows."""
    out = set()
    for s in statements(kernel.body):
        for operand, is_right in ((s.a, False), (s.b, True)) if isinstance(s, n.Mma) else ():
            turned = isinstance(operand, n.Call) and operand.fn == "trans"
            inner = operand.args[0] if isinstance(operand, n.Call) and turned else operand
            if isinstance(inner, n.Load) and inner.at.buffer.name == name:
                out.add(is_right != turned)
    return out


@dataclass(frozen=True)
class LoadMatrix(Pass):
    """`trans` turns each 8 x 8 matrix on its way (for a right operand that is stored by rows). `num` = 4 brings four matrices of a right
    operand at a time, two columns of products; 0 leaves it at those of one product."""

    name: ClassVar[str] = "ldmatrix"
    intent: ClassVar[str] = "ldmatrix"
    catalogue: ClassVar[tuple[int, ...]] = (40,)
    claim: ClassVar[str] = "One instruction brings four 8 x 8 matrices into the registers in which mma.sync wants them."
    requires: ClassVar[tuple[str, ...]] = ("shared", "fragment")
    provides: ClassVar[tuple[str, ...]] = ("ldmatrix",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P400", "validity", "dtype", "elements have 16 bits", _elements),
        Precondition("KIR-P401", "validity", "shape", "the tile is made of whole 8 x 8 matrices", _matrices),
        Precondition("KIR-P402", "validity", "layout", "rows of matrices are 16 neighboring, aligned bytes", _rows_whole),
    )

    trans: bool = False
    num: Literal[0, 4] = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a plain copy of a tile from shared memory to a fragment."""
        if not (isinstance(node, n.Copy) and node.via == "plain" and node.src.at.buffer.space == "shared"):
            return None
        if node.dst.buffer.space != "fragment":
            return Miss(f"'{node.dst.buffer.name}' is no fragment")
        if node.src.mask is not None or node.mask is not None or node.src.clip:
            return Miss("the copy is masked")
        if team_level(program, path) == "thread":
            return Miss("a single thread executes the copy")
        wanted = _turned(kernel_of(program, path), node.dst.buffer.name)
        if wanted - {self.trans}:
            return Miss(f"the product wants '{node.dst.buffer.name}' {'turned' if self.trans is False else 'as it lies'}")
        return Site(path, self)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a copy via ldmatrix."""
        if not (isinstance(node, n.Copy) and node.via == "ldmatrix"):
            return None
        given = dict(node.attrs)
        return Site(path, LoadMatrix(bool(given.get("trans", False)), 4 if given.get("num") == 4 else 0))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The copy via ldmatrix."""
        s = node_as(program, site.path, n.Copy)
        own: dict[str, n.Attr] = {"trans": True} if self.trans else {}
        attrs = n.attrs(**{**dict(s.attrs), **own, **({"num": self.num} if self.num else {})})
        return edited(program, site.path, (replace(s, via="ldmatrix", attrs=attrs),))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The copy by single elements."""
        s = node_as(program, site.path, n.Copy)
        attrs = tuple((k, v) for k, v in s.attrs if k not in ("trans", "num"))
        return edited(program, site.path, (replace(s, via="plain", attrs=attrs),))
