"""Pads the rows of a buffer in shared memory, so that the elements of a column lie in different banks.

pipeline: `pad-shared{pad=1}@main/Xs`

```diff
 kir 1
 program turn
   in X: f32[32, 32]
   out Y: f32[32, 32]
 kernel main grid (i: 1) threads 128
-  shared Xs: f32[32, 32]
+  shared Xs: f32[32, 32] strides [33, 1]
   copy X -> Xs
   Y = trans(Xs, 1, 0)
```
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import const, int_value, region, span
from kir.ir.measures.purposes import unused_columns
from kir.ir.visit import transform
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import kernel_of, replace_kernel
from kir.rewrite.match import hardware_of, matched, node_as, params_as
from kir.rewrite.match.local_buffers import adopts_layout, at_once, byte_count, redeclared, sizes


def _buffer(program: n.Program, site: Site) -> tuple[n.Buffer, int]:
    node, item = node_as(program, site.path, n.Alloc), params_as(site, PadShared)
    return node.buffer, item.pad


def _vectors_aligned(program: n.Program, site: Site, context: Context) -> Verdict:
    b, pad = _buffer(program, site)
    shape = matched(sizes(b))
    row = (shape[-1] + pad) * b.dtype.bytes
    for t in at_once(kernel_of(program, site.path), b.name):
        if row % t.bytes:
            return refuted(f"rows of {row} bytes break the alignment of accesses of {t.bytes} bytes",
                           f"row 1 starts at byte {row}, not a multiple of {t.bytes}",
                           needs=f"a pad of a multiple of {t.bytes // b.dtype.bytes} elements")
    return proved(f"rows of {row} bytes keep every access aligned")


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    b, pad = _buffer(program, site)
    hardware = hardware_of(context)
    shape, dense = matched(sizes(b)), matched(byte_count(b))
    total = dense + math.prod(shape[:-1]) * pad * b.dtype.bytes
    limit = hardware.architecture.shared_per_cta
    if total > limit:
        return refuted(f"'{b.name}' takes {total} bytes; {hardware.name} has {limit} a CTA", f"the last row ends at byte {total}")
    return proved(f"'{b.name}' takes {total} of {limit} bytes")


def _conflicts(program: n.Program, site: Site, context: Context) -> Verdict:
    b, pad = _buffer(program, site)
    hardware = hardware_of(context).architecture
    shape, line = matched(sizes(b)), hardware.shared_banks * hardware.shared_bank_bytes
    row = shape[-1] * b.dtype.bytes
    if math.gcd(row, line) <= math.gcd(row + pad * b.dtype.bytes, line):
        return refuted("rows are spread over the banks already", f"rows of {row} bytes", needs="rows that share banks")
    return proved(f"rows of {row} bytes share banks; padded ones share fewer")


@dataclass(frozen=True)
class PadShared(Pass):
    """`pad` elements follow each row. `wider`: they are columns of the array, which nobody uses, as languages without strides write it."""

    intent: ClassVar[str] = "pad-shared"
    catalogue: ClassVar[tuple[int, ...]] = (10,)
    claim: ClassVar[str] = "The elements of a column lie in different banks, so that a warp reads them at once."
    requires: ClassVar[tuple[str, ...]] = ("shared",)
    provides: ClassVar[tuple[str, ...]] = ("padded",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P100", "validity", "layout", "padded rows keep wide accesses aligned", _vectors_aligned),
        Precondition("KIR-P101", "validity", "layout", "every access adopts the layout", adopts_layout),
        Precondition("KIR-P102", "validity", "storage", "the padded buffer fits in shared memory", _fits),
        Precondition("KIR-P103", "profit", "layout", "rows of the dense buffer share banks", _conflicts),
    )

    pad: int = 8
    wider: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a declaration of dense shared memory with rows."""
        if not (isinstance(node, n.Alloc) and node.buffer.space == "shared" and len(node.buffer.shape) > 1):
            return None
        if self.pad < 1:
            return Miss("no padding changes nothing")
        if node.buffer.layout is not None or node.buffer.strides is not None:
            return Miss(f"'{node.buffer.name}' has a layout already")
        return Site(path, self) if sizes(node.buffer) is not None else Miss("a symbolic extent")

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a declaration of shared memory whose rows are further apart than they are long, or whose last few columns nobody uses."""
        if not (isinstance(node, n.Alloc) and node.buffer.space == "shared"):
            return None
        if node.buffer.strides is None:
            pad = unused_columns(kernel_of(program, path).body, node.buffer) if len(node.buffer.shape) > 1 and node.init is None else 0
            return Site(path, PadShared(pad, True)) if pad else None
        shape, strides = sizes(node.buffer), tuple(int_value(d) for d in node.buffer.strides)
        if shape is None or len(shape) < 2 or strides[-2] is None:
            return Miss("a symbolic extent or stride")
        pad = strides[-2] - shape[-1]
        if pad < 1 or strides != _padded(shape, pad):
            return Miss("the strides are not those of padded rows")
        return Site(path, PadShared(pad))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The buffer with padded rows."""
        b, _ = _buffer(program, site)
        shape = matched(sizes(b))
        if self.wider:
            return Rewritten(_with_columns(program, site.path, b, shape[-1] + self.pad), site.path)
        made = replace(b, strides=tuple(const(s) for s in _padded(shape, self.pad)))
        return Rewritten(redeclared(program, site.path, made), site.path)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The buffer with dense rows."""
        if self.wider:
            b = _buffer(program, site)[0]
            return Rewritten(_with_columns(program, site.path, b, matched(sizes(b))[-1] - self.pad), site.path)
        return Rewritten(redeclared(program, site.path, replace(_buffer(program, site)[0], strides=None)), site.path)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The bytes of the padding."""
        b, pad = _buffer(program, site)
        shape = sizes(b)
        return Effect(shared_bytes=None if shape is None else math.prod(shape[:-1]) * pad * b.dtype.bytes)


def _with_columns(program: n.Program, path: Path, b: n.Buffer, columns: int) -> n.Program:
    """The program with so many columns in an array, used at the same places: as a whole where it has no others."""
    made, kernel = replace(b, shape=(*b.shape[:-1], const(columns))), kernel_of(program, path)
    whole = tuple(span(0, d) for d in b.shape)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        return region(made, *(new.index or whole)) if isinstance(new, n.Region) and new.buffer.name == b.name else new
    changed: n.Kernel = transform(kernel, leave)
    return redeclared(replace_kernel(program, kernel.name, changed), path, made)


def _padded(shape: tuple[int, ...], pad: int) -> tuple[int, ...]:
    """Strides of rows with `pad` elements after each."""
    out, step = [1], shape[-1] + pad
    for d in reversed(shape[:-1]):
        out.append(step)
        step *= d
    return tuple(reversed(out))
