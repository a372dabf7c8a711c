"""Moves data between global memory and a CTA's own in vectors: several neighboring elements with one instruction.

pipeline: `vectorize-global{width=8}@main/load`

```diff
 kir 1
 program stage
   in X: f16[M, K]
   out Y: f16[M, K]
   size M: i32
   size K: i32
   fact K % 64 == 0
 kernel main grid (i: M) threads 128
   shared Xs: f16[64]
   for k in 0..K // 64
-    @load copy X[i, k * 64 +: 64] -> Xs
+    @load copy X[i, k * 64 +: 64] -> Xs via vector(8)
     Y[i, k * 64 +: 64] = Xs
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text, region_text
from kir.ir.types import TileType, dtype_of
from kir.ir.visit import names_read, substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import edited, node_as, params_as
from kir.rewrite.match.local_buffers import kind_of_copy, width_of

VECTORS = (4, 8, 16)
"""Bytes of a vector load or store of one thread, beside single elements (PTX ISA, ld)."""


def _copy(program: n.Program, site: Site) -> tuple[n.Copy, int]:
    node, item = node_as(program, site.path, n.Copy), params_as(site, VectorizeGlobal)
    return node, item.width


def _places(s: n.Copy) -> Iterator[n.Region]:
    """Both ends of a copy, as far as they have addresses."""
    return (r for r in (s.src.at, s.dst) if r.buffer.space not in ("fragment", "register"))


def _strides(b: n.Buffer) -> list[n.Expr]:
    """Elements from one index to the next, per dimension."""
    if b.strides is not None:
        return list(b.strides)
    out: list[n.Expr] = []
    step: n.Expr | None = None
    for d in reversed(b.shape):
        out.append(build.const(1) if step is None else step)
        step = d if step is None else build.mul(step, build.cast(d, dtype_of(step.type)))
    return out[::-1]


def _index(r: n.Region) -> tuple[n.Expr | n.Span, ...]:
    return r.index or tuple(build.span(0, d) for d in r.buffer.shape)


def _hardware(program: n.Program, site: Site, context: Context) -> Verdict:
    s, width = _copy(program, site)
    size = width * s.dst.buffer.dtype.bytes
    if size in (2, *VECTORS) and width > 1:
        return proved(f"{width} elements of {s.dst.buffer.dtype} are a vector of {size} bytes")
    return refuted(f"{width} elements of {s.dst.buffer.dtype} are {size} bytes", "no instruction moves as many",
                   needs="2, 4, 8 or 16 bytes", attempt=f"width={16 // s.dst.buffer.dtype.bytes}")


def _neighbors(program: n.Program, site: Site, context: Context) -> Verdict:
    s, _ = _copy(program, site)
    mapped = {x.buffer.name for x in walk(kernel_of(program, site.path)) if isinstance(x, n.View) and x.axes}
    for r in _places(s):
        if r.buffer.name in mapped:
            return unknown(f"'{r.buffer.name}' is a view, whose neighbors lie where its indices say", needs="the tensor itself")
        last = _index(r)[-1]
        if not isinstance(last, n.Span) or build.int_value(last.step) != 1:
            return refuted(f"neighbors in the tile are no neighbors in '{r.buffer.name}'", f"elements 0 and 1 of {region_text(r)}",
                           needs="the last index as a range of step 1")
        if build.int_value(_strides(r.buffer)[-1]) != 1:
            return unknown(f"the last stride of '{r.buffer.name}' is not known to be 1", needs="a dense last dimension")
    return proved("neighbors in the tile are neighbors in memory, at both ends")


def _aligned(program: n.Program, site: Site, context: Context) -> Verdict:
    s, width = _copy(program, site)
    known, first, guard = Facts.at(program, site.path), None, None
    for r in _places(s):
        size, strides = r.buffer.dtype.bytes, _strides(r.buffer)
        if 0 < r.buffer.align < width * size:
            return refuted(f"'{r.buffer.name}' is aligned to {r.buffer.align} bytes", f"the vector at byte {r.buffer.align}")
        if r.buffer.layout is not None:
            base = r.buffer.layout.args[1] if r.buffer.layout.name == "swizzle" else 0
            atom = 1 << base if isinstance(base, int) else 0
            if atom < width * size:
                return refuted(f"the layout of '{r.buffer.name}' splits vectors of {width * size} bytes", "the first vector")
        index = _index(r)
        for k, (place, stride) in enumerate(zip(index, strides, strict=True)):
            lo = place.lo if isinstance(place, n.Span) else place
            if isinstance(lo.type, TileType):
                return unknown(f"'{r.buffer.name}' is gathered", needs="a place that is a range")
            offsets = [(f"the place {expr_text(lo)} starts", build.mul(lo, build.cast(stride, dtype_of(lo.type))))]
            if isinstance(place, n.Span) and k + 1 < len(index):
                offsets.insert(0, ("row 1 starts", build.mul(stride, build.cast(_expr(place.step), dtype_of(stride.type)))))
            for what, offset in offsets:
                if not known.divides(width, offset):
                    found = _misaligned(known, r, what, offset, width)
                    if found.kind == "refuted":
                        return found
                    holds = _multiple(known, offset, width)
                    known, first = known.knowing(holds), first or found
                    guard = holds if guard is None else build.logical_and(guard, holds)
    if first is not None:
        return replace(first, guard=guard)
    return proved(f"every row starts at a multiple of {width * s.dst.buffer.dtype.bytes} bytes, as tensors do")


def _multiple(known: Facts, e: n.Expr, width: int) -> n.Expr:
    """The condition that an integer is a multiple of the vector's width."""
    e = known.expanded(e)
    return build.compare("eq", build.mod(e, build.const(width, dtype_of(e.type))), 0)


def _expr(value: int | n.Expr) -> n.Expr:
    return build.const(value) if isinstance(value, int) else value


def _misaligned(known: Facts, r: n.Region, what: str, offset: n.Expr, width: int) -> Verdict:
    """The refusal for an offset in elements that is no multiple of the vector, with sizes that show it where there are some."""
    size = r.buffer.dtype.bytes
    found = known.domain(known.expanded(offset))
    reason = f"vectors of {width * size} bytes in '{r.buffer.name}' are not known to be aligned"
    needs = f"{expr_text(offset)} as a multiple of {width}"
    wrong = found.value is not None or (found.modulus % width == 0 and found.residue % width)
    shown = _example(known, offset, width)
    witness: tuple[str, ...] = ()
    if shown is not None:
        formula = f"{size} * {expr_text(offset)} = " if shown[0] else ""
        witness = (f"{shown[0]}{what} at byte {formula}{shown[1] * size}, not a multiple of {width * size}",)
    if wrong:
        return refuted(f"vectors of {width * size} bytes in '{r.buffer.name}' are not aligned", *witness, needs=needs)
    return Verdict("unknown", reason, witness, needs=needs)


def _example(known: Facts, offset: n.Expr, width: int) -> tuple[str, int] | None:
    """Sizes that the facts allow and with which an offset is no multiple of `width`: as text, and the offset."""
    offset = known.expanded(offset)
    names = sorted(names_read(offset))
    value = build.int_value(offset)
    if value is not None:
        return "", value
    if len(names) > 2:
        return None
    tries = [width - 1, width + 1, *range(1, 65)]
    ranges = {name: known.ranges.get(name) for name in names}

    def allowed(name: str, v: int) -> bool:
        d = ranges[name]
        return d is None or ((d.lo is None or v >= d.lo) and (d.hi is None or v <= d.hi)
                             and (v == d.residue if d.modulus == 0 else (v - d.residue) % d.modulus == 0))
    dtypes = {x.name: dtype_of(x.type) for x in _variables(offset)}
    for v in tries:
        chosen = {name: next((x for x in (v, *tries) if allowed(name, x)), None) for name in names}
        if None in chosen.values():
            continue
        made = build.int_value(substitute(offset, {k: build.const(x, dtypes[k]) for k, x in chosen.items() if x is not None}))
        if made is not None and made % width:
            return "with " + ", ".join(f"{k} = {x}" for k, x in chosen.items()) + ", ", made
    return None


def _variables(e: n.Expr) -> list[n.Var]:
    return [x for x in walk(e) if isinstance(x, n.Var)]


def _whole(program: n.Program, site: Site, context: Context) -> Verdict:
    s, width = _copy(program, site)
    if any(m is not None and isinstance(m.type, TileType) for m in (s.mask, s.src.mask)):
        return unknown("a mask may cut a vector", needs="a bound instead of a mask")
    known = Facts.at(program, site.path)
    for r in _places(s):
        last = _index(r)[-1]
        if not isinstance(last, n.Span):
            continue
        if not known.divides(width, _expr(last.extent)):
            found = build.int_value(last.extent)
            if found is None:
                return unknown(f"rows of {expr_text(_expr(last.extent))} elements may end within a vector")
            return refuted(f"rows of {found} elements end within a vector", f"element {found - found % width} begins the cut one",
                           needs=f"rows of a multiple of {width}")
        edge = r.buffer.shape[-1]
        clipped = (s.src.clip or s.clip) if r is s.src.at else s.clip
        if clipped and not known.divides(width, edge):
            shown = _example(known, edge, width)
            text = f"a vector may hang over the edge of '{r.buffer.name}', of which only a part may be cut off"
            witness = () if shown is None else (f"{shown[0]}the last vector of a row has {shown[1] % width} of {width} elements",)
            return Verdict("refuted" if build.int_value(edge) is not None else "unknown", text, witness,
                           guard=_multiple(known, edge, width), needs=f"{expr_text(edge)} as a multiple of {width}")
    return proved("vectors lie inside or outside as a whole")


@dataclass(frozen=True)
class VectorizeGlobal(Pass):
    """`width` is the number of elements of a vector; 0 leaves it open (16, 8 or 4 bytes)."""

    intent: ClassVar[str] = "vectorize-global"
    catalogue: ClassVar[tuple[int, ...]] = (11,)
    claim: ClassVar[str] = "Fewer, wider memory instructions move the same bytes."
    provides: ClassVar[tuple[str, ...]] = ("vectorized",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P110", "validity", "layout", "a vector's elements are neighbors in memory", _neighbors),
        Precondition("KIR-P111", "validity", "layout", "base, rows and places are aligned to the vector", _aligned),
        Precondition("KIR-P112", "validity", "shape", "a vector is in bounds as a whole or not at all", _whole),
        Precondition("KIR-P113", "validity", "hardware", "a vector has 2, 4, 8 or 16 bytes", _hardware),
    )

    width: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a plain copy of a tile between global and shared memory or registers."""
        if not (isinstance(node, n.Copy) and node.via == "plain" and isinstance(node.dst.type, TileType)):
            return None
        spaces = (node.src.at.buffer.space, node.dst.buffer.space)
        if "global" not in spaces:
            return None
        if self.width:
            return Site(path, self) if self.width > 1 else Miss("one element is no vector")
        each = node.dst.buffer.dtype.bytes
        return tuple(Site(path, replace(self, width=size // each)) for size in reversed(VECTORS) if size // each > 1) or Miss(
            f"an element of {each} bytes is a vector already")

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a copy in vectors."""
        if not (isinstance(node, n.Copy) and kind_of_copy(node) == "vector"):
            return None
        if "global" not in (node.src.at.buffer.space, node.dst.buffer.space):
            return Miss("neither end is in global memory")
        return Site(path, VectorizeGlobal(width_of(node)))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The copy, in vectors."""
        s, width = _copy(program, site)
        return edited(program, site.path, (replace(s, via=f"vector({width})"),))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The copy, element by element."""
        s, _ = _copy(program, site)
        return edited(program, site.path, (replace(s, via="plain"),))
