"""Swizzles a buffer in shared memory, so that rows that are read together lie in different banks.

pipeline: `swizzle-shared{bits=3 base=4 shift=3}@main/Xs`

```diff
 kir 1
 program turn
   in X: f16[64, 64]
   out Y: f16[64, 64]
 kernel main grid (i: 1) threads 128
-  shared Xs: f16[64, 64]
+  shared Xs: f16[64, 64] layout swizzle(3, 4, 3)
   copy X -> Xs
   Y = trans(Xs, 1, 0)
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.layouts.layout import ADDRESS_BITS
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import node_as, params_as
from kir.rewrite.match.local_buffers import adopts_layout, at_once, byte_count, redeclared


def _buffer(program: n.Program, site: Site) -> n.Buffer:
    node = node_as(program, site.path, n.Alloc)
    return node.buffer


def _bijection(program: n.Program, site: Site, context: Context) -> Verdict:
    b, item = _buffer(program, site), params_as(site, SwizzleShared)
    if item.auto:
        return proved("a compiler that lays a buffer out gives each byte a place of its own")
    total = byte_count(b)
    if total is None:
        return unknown("the buffer has a symbolic extent", needs="literal extents")
    atom = 1 << item.base
    for offset in range(0, total, atom):
        if item.swizzled(offset) >= total:
            return refuted(f"the swizzle leaves the {total} bytes of '{b.name}'", f"byte {offset} moves to byte {item.swizzled(offset)}",
                           needs=f"a multiple of {1 << item.bits + item.base + item.shift} bytes")
    return proved(f"each of the {-(-total // atom)} atoms of {atom} bytes moves to a place of its own inside the buffer")


def _whole_atoms(program: n.Program, site: Site, context: Context) -> Verdict:
    b, item = _buffer(program, site), params_as(site, SwizzleShared)
    if item.auto:
        return proved("a compiler that lays a buffer out knows every access to it")
    atom = 1 << item.base
    if b.dtype.bytes > atom:
        return refuted(f"an element of {b.dtype.bytes} bytes is split over atoms of {atom}", f"the first element of '{b.name}'")
    for t in at_once(kernel_of(program, site.path), b.name):
        if t.bytes > atom:
            return refuted(f"an access moves {t.bytes} neighboring bytes, and atoms of {atom} bytes do not stay neighbors",
                           f"bytes 0 and {atom} of '{b.name}', at {t.stmt.label or type(t.stmt).__name__.lower()}",
                           needs=f"base={(t.bytes - 1).bit_length()}")
    return proved(f"no access is wider than an atom of {atom} bytes")


def _row_conflicts(program: n.Program, site: Site, context: Context) -> Verdict:
    b = _buffer(program, site)
    if len(b.shape) < 2:
        return refuted(f"'{b.name}' has no rows", "a vector", needs="two dimensions or more")
    return proved("rows that fall into the same banks are spread")


@dataclass(frozen=True)
class SwizzleShared(Pass):
    """Byte addresses have `bits` bits from `base` on xor-ed with those `shift` above. `align`: the bytes that the buffer is aligned to (0:
    as its elements are), which units that swizzle addresses, not offsets, need. `auto` leaves all of this to the compiler of a surface, as TileLang's,
    that lays shared memory out for the instructions and copies that use it."""

    intent: ClassVar[str] = "swizzle-shared"
    catalogue: ClassVar[tuple[int, ...]] = (7,)
    claim: ClassVar[str] = "Rows that a warp reads together lie in different banks of shared memory, at no cost in space."
    requires: ClassVar[tuple[str, ...]] = ("shared",)
    provides: ClassVar[tuple[str, ...]] = ("swizzle",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P070", "validity", "layout", "the swizzle is a bijection of the buffer's bytes", _bijection),
        Precondition("KIR-P071", "validity", "layout", "what one access moves lies within an atom", _whole_atoms),
        Precondition("KIR-P072", "validity", "layout", "every access adopts the layout", adopts_layout),
        Precondition("KIR-P073", "profit", "layout", "there are rows to spread over the banks", _row_conflicts),
    )

    bits: int = 3
    base: int = 4
    shift: int = 3
    align: int = 0
    auto: bool = False

    def swizzled(self, offset: int) -> int:
        """The byte offset at which the byte `offset` of the dense buffer lies."""
        return offset ^ ((offset >> self.base + self.shift & (1 << self.bits) - 1) << self.base)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a declaration of dense shared memory."""
        if not (isinstance(node, n.Alloc) and node.buffer.space == "shared" and node.buffer.dtype.kind != "token"):
            return None
        if self.auto and replace(self, auto=False) != SwizzleShared():
            return Miss("a swizzle that is left to a compiler has no bits and no alignment")
        if self.bits < 1 or self.base < 0 or self.shift < 1:
            return Miss("a swizzle has at least one bit, moved up by at least one")
        if self.bits + self.base + self.shift > ADDRESS_BITS:
            return Miss(f"bits {self.base + self.shift} to {self.bits + self.base + self.shift - 1} are none of an offset, which has {ADDRESS_BITS}")
        if node.buffer.layout is not None or node.buffer.strides is not None:
            return Miss(f"'{node.buffer.name}' has a layout already")
        if node.buffer.align or self.align & (self.align - 1):
            return Miss(f"'{node.buffer.name}' has an alignment already, or it is no power of two")
        if 0 < self.align < 1 << self.base and not self.auto:
            return Miss(f"atoms of {1 << self.base} bytes stay together in memory that is aligned to as many at least")
        return Site(path, self)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a declaration of swizzled shared memory."""
        if not (isinstance(node, n.Alloc) and node.buffer.space == "shared" and node.buffer.layout is not None):
            return None
        layout = node.buffer.layout
        if layout.name == "auto" and not node.buffer.align:
            return Site(path, SwizzleShared(auto=True))
        if layout.name != "swizzle" or len(layout.args) != 3:
            return Miss(f"the layout '{layout.name}' is no swizzle")
        bits, base, shift = (int(a) for a in layout.args if isinstance(a, int))
        return Site(path, SwizzleShared(bits, base, shift, node.buffer.align))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The buffer, swizzled."""
        made = replace(_buffer(program, site), layout=n.Layout("auto") if self.auto else n.Layout("swizzle", (self.bits, self.base, self.shift)),
                       align=self.align)
        return Rewritten(redeclared(program, site.path, made), site.path)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The buffer, row-major."""
        return Rewritten(redeclared(program, site.path, replace(_buffer(program, site), layout=None, align=0)), site.path)
