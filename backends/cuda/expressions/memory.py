"""Buffers as C++ arrays and pointers: offsets, strides, swizzles, bounds, and vector accesses where alignment is proved or declared."""
from __future__ import annotations

import math
from dataclasses import field

from kir.analysis.order import at_most
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import int_value, is_const
from kir.ir.types import TileType, dtype_of
from kir.ir.visit import walk

from ..spelling import ptx_functions
from ..spelling.literals import c_type, flat, of_type, offset_of, refuse, row_major, sizes_of
from .expressions import COMPARE, PRODUCT, SUM, Expressions, Places, unrolled

UNIT = 16
"""Bytes of a unit in which matrix descriptors count."""
VECTORS = {4: "unsigned", 8: "uint2", 16: "uint4"}
"""Types that move so many bytes with one instruction."""


@dataclass
class Memory(Places):
    """Where each buffer lives. `arrays` are the thread's own arrays by name, with their extents."""

    arrays: dict[str, tuple[int, ...]] = field(default_factory=dict)
    views: dict[str, int] = field(default_factory=dict)
    """At a multiple of how many bytes the views of an array begin, as its own beginning does."""
    peers: dict[str, n.Buffer] = field(default_factory=dict)
    """The shared buffer that each view of the cluster's memory shows."""

    def element(self, to: Expressions, r: n.Region, at: tuple[str, ...]) -> str:
        """The lvalue of an element of a region: registers and arrays of the thread, shared memory, global memory."""
        b = r.buffer
        if b.name in self.arrays:
            extents = self.arrays[b.name]
            if not extents:
                return to.names[b.name]
            return f"{to.names[b.name]}[{flat(self._indices(to, r, at), extents)}]"
        if b.name in self.peers:
            place, rank = self.of_peer(to, r, at)
            return f"*{to.header('peer_pointer')}(&{place}, {rank})"
        if b.space not in ("shared", "global"):
            raise refuse("KIR-B002", f"'{b.name}' is {b.space} memory of a team: the CUDA backend writes what one thread holds",
                         needs="the pass that lowers tiles to threads")
        offset = self._offset(to, r, at)
        swizzle = swizzle_of(b)
        if swizzle is None:
            return f"{to.names[b.name]}[{offset}]"
        bits, base, shift = swizzle
        function, size = to.header("swizzled"), b.dtype.bytes
        return f"{to.names[b.name]}[{function}<{bits}, {base}, {shift}>(({offset}) * {size}u) / {size}u]"

    def of_peer(self, to: Expressions, r: n.Region, at: tuple[str, ...]) -> tuple[str, str]:
        """Where an element of another CTA's shared memory lies in the CTA's own, and the rank of that CTA. Raises KirError KIR-B002 for a
        place of several CTAs."""
        if not r.index or isinstance(r.index[0], n.Span):
            raise refuse("KIR-B002", f"'{r.buffer.name}' is memory of several CTAs", "an access that names one")
        return self.element(to, n.Region(self.peers[r.buffer.name], r.index[1:]), at), to.scalar(r.index[0])

    def _indices(self, to: Expressions, r: n.Region, at: tuple[str, ...]) -> tuple[str, ...]:
        """The index along each dimension, spans taking their place from `at`; in parentheses where it binds more loosely than a sum."""
        index = r.index or tuple(n.Span(n.Const(0, dtype_of(d.type)), d) for d in r.buffer.shape)
        spans, out = iter(at), []
        for i in index:
            if isinstance(i, n.Span):
                place = next(spans)
                step = "" if i.step == 1 else f" * {i.step if isinstance(i.step, int) else to.scalar(i.step, PRODUCT + 1)}"
                if place == "0":
                    out.append(to.scalar(i.lo, SUM))
                elif is_const(i.lo, 0):
                    out.append(f"{place}{step}")
                else:
                    out.append(f"{to.scalar(i.lo, SUM)} + {place}{step}")
            elif isinstance(i.type, TileType):
                out.append(to.element(i, at, SUM))
            else:
                out.append(to.scalar(i, SUM))
        return tuple(out)

    def _offset(self, to: Expressions, r: n.Region, at: tuple[str, ...]) -> str:
        terms = []
        for index, stride in zip(self._indices(to, r, at), strides_of(r.buffer), strict=True):
            if index == "0":
                continue
            if is_const(stride, 1):
                terms.append(index)
                continue
            bare = index if index.replace("_", "").isalnum() else f"({index})"
            wide = f"static_cast<long long>({bare})" if r.buffer.space == "global" else bare
            terms.append(f"{wide} * {to.scalar(stride, PRODUCT + 1)}")
        return " + ".join(terms) or "0"

    def linear(self, to: Expressions, r: n.Region, at: tuple[str, ...]) -> str:
        """The offset in elements of an element of shared memory, before its swizzle."""
        return self._offset(to, r, at)

    def units(self, to: Expressions, r: n.Region) -> str | None:
        """The offset of the first element of a region of shared memory, before its swizzle, in units of 16 bytes, each index by itself; None where one of
        them is not known to be whole units."""
        terms = []
        for index, stride in zip(r.index, strides_of(r.buffer), strict=True):
            first, step = index.lo if isinstance(index, n.Span) else index, int_value(stride)
            if is_const(first, 0):
                continue
            size = (step or 0) * r.buffer.dtype.bytes
            if not size or isinstance(first.type, TileType) or not (size % UNIT == 0 or (UNIT % size == 0 and to.facts.divides(UNIT // size, first))):
                return None
            text = to.scalar(first, SUM if size == UNIT else PRODUCT)
            terms.append(text if size == UNIT else f"{text} * {size // UNIT}" if size > UNIT else f"{text} / {UNIT // size}")
        return " + ".join(terms)

    def inside(self, to: Expressions, r: n.Region, at: tuple[str, ...]) -> str:
        """`index < extent` (and `>= 0` where it may be negative) for the dimensions in which it is not certain."""
        index = r.index or tuple(n.Span(n.Const(0, dtype_of(d.type)), d) for d in r.buffer.shape)
        out, below = [], []  # in this order: `a < b .. c >= 0` may be read as a template
        for i, text, size in zip(index, self._indices(to, r, at), r.buffer.shape, strict=True):
            lo = to.facts.expanded(i.lo if isinstance(i, n.Span) else i)
            known = to.facts.domain(lo)
            if known.lo is None or known.lo < 0:
                out.append(f"{text} >= 0")
            reach = (int_value(i.extent) or 1) * (int_value(i.step) or 1) if isinstance(i, n.Span) else 1
            least = to.facts.domain(size).lo
            certain = known.hi is not None and least is not None and known.hi + reach <= least
            if not certain and not at_most(lo, size, to.facts, reach):
                below.append(f"{text} < {to.scalar(size, COMPARE + 1)}")
        return " && ".join(out + below)

    # ---------------------------------------------------------------------------------------------------------------- vectors
    def vector_bytes(self, to: Expressions, r: n.Region, declared: int = 0, clip: bool = False) -> int:
        """The widest access of 4, 8 or 16 bytes that all of a region may be cut into; 0 where there is none. Under `clip` a piece must
        be inside as a whole or not at all. `declared` is a width in bytes that the program vouches for."""
        b = r.buffer
        if b.space not in ("global", "shared") or not r.index or not isinstance(r.index[-1], n.Span):
            return 0
        last, strides = r.index[-1], strides_of(b)
        shape = sizes_of(r.type)
        if not is_const(strides[-1], 1) or last.step != 1 or math.prod(shape) != shape[-1]:
            return 0
        offset = offset_of(r.index, strides)
        base = b.align or self.views.get(b.name) or (16 if b.space == "shared" else b.dtype.bytes)
        swizzle = swizzle_of(b)
        for width in (16, 8, 4):
            count = width // b.dtype.bytes
            if count < 1 or shape[-1] % count or (swizzle is not None and width > 1 << swizzle[1]):
                continue
            aligned = declared >= width or (base % width == 0 and offset is not None and to.facts.divides(count, offset))
            whole = not clip or (to.facts.divides(count, b.shape[-1]) and to.facts.divides(count, last.lo))
            if aligned and whole:
                return width
        return 0

    def load_vectors(self, to: Expressions, e: n.Expr) -> None:
        """Reads every region of memory in `e` that can be read in vectors into an array of its own, before the statement."""
        for x in list(walk(e)):
            if isinstance(x, n.Load) and x not in to.replaced and x.mask is None and isinstance(x.type, TileType):
                width = self.vector_bytes(to, x.at, clip=x.clip)
                if width and width > x.at.buffer.dtype.bytes:
                    to.replaced[x] = self.read(to, x, width)

    def read(self, to: Expressions, x: n.Load, width: int) -> str:
        """A region into a fresh array, `width` bytes at a time."""
        w, shape, dtype = to.writer, sizes_of(x.type), x.at.buffer.dtype
        count, name = width // dtype.bytes, w.fresh("v")
        w.put(f"alignas({width}) {c_type(dtype)} {name}[{shape[-1]}];")
        step = w.fresh("e")
        w.put(unrolled(shape[-1] // count))
        w.put(f"for (int {step} = 0; {step} < {shape[-1]}; {step} += {count}) {{")
        w.depth += 1
        at = (*("0",) * (len(shape) - 1), step)
        move = _moved(width, f"{name}[{step}]", self.element(to, x.at, at))
        if x.cache:
            place = self.element(to, x.at, at)
            move = f"*reinterpret_cast<{VECTORS[width]}*>(&{name}[{step}]) = {to.function(ptx_functions.load(x.cache, width))}(&{place});"
        condition = self.inside(to, x.at, at) if x.clip else ""
        if condition:
            w.put(f"if ({condition}) {{")
            w.put(f"  {move}")
            w.put("} else {")
            w.depth += 1
            item = w.fresh("e")
            fill = to.element(x.other, ("0",) * len(shape)) if x.other is not None else of_type(dtype, "0.0f")
            w.put(f"for (int {item} = 0; {item} < {count}; ++{item}) {name}[{step} + {item}] = {fill};")
            w.depth -= 1
            w.put("}")
        else:
            w.put(move)
        w.close()
        return name

    def write(self, to: Expressions, r: n.Region, source: str, width: int, clip: bool, cache: str = "") -> None:
        """An array into a region, `width` bytes at a time."""
        w, shape = to.writer, sizes_of(r.type)
        count, step = width // r.buffer.dtype.bytes, w.fresh("e")
        w.put(unrolled(shape[-1] // count))
        w.put(f"for (int {step} = 0; {step} < {shape[-1]}; {step} += {count}) {{")
        w.depth += 1
        at = (*("0",) * (len(shape) - 1), step)
        move = _moved(width, self.element(to, r, at), f"{source}[{step}]")
        if cache:
            value = f"*reinterpret_cast<const {VECTORS[width]}*>(&{source}[{step}])"
            move = f"{to.function(ptx_functions.store(cache, width))}(&{self.element(to, r, at)}, {value});"
        condition = self.inside(to, r, at) if clip else ""
        w.put(f"if ({condition}) {move}" if condition else move)
        w.close()


def _moved(width: int, to: str, source: str) -> str:
    """An assignment of `width` bytes."""
    return f"*reinterpret_cast<{VECTORS[width]}*>(&{to}) = *reinterpret_cast<const {VECTORS[width]}*>(&{source});"


def strides_of(b: n.Buffer) -> tuple[n.Expr, ...]:
    """Element strides: given, by a layout `strides(..)`, else row-major. Raises KirError KIR-B002 for another layout."""
    if b.layout is not None and b.layout.name == "strides":
        numbers = b.layout.args[0] if b.layout.args and isinstance(b.layout.args[0], tuple) else b.layout.args
        return tuple(n.Const(int(x), dtype_of(d.type)) for x, d in zip(numbers, b.shape, strict=True) if isinstance(x, int))
    if b.layout is not None and b.layout.name not in ("swizzle", "auto"):
        raise refuse("KIR-B002", f"'{b.name}' has layout {b.layout.name}, which the CUDA backend does not address")
    return b.strides if b.strides is not None else row_major(b.shape)


def swizzle_of(b: n.Buffer) -> tuple[int, int, int] | None:
    """(bits, base, shift) of a swizzled buffer."""
    if b.layout is None or b.layout.name != "swizzle":
        return None
    bits, base, shift = (int(a) for a in b.layout.args if isinstance(a, int))
    return bits, base, shift


def bytes_of(b: n.Buffer) -> int:
    """Size of a buffer whose extents are known. Raises KirError KIR-B003."""
    extents = [int_value(d) for d in b.shape]
    if None in extents:
        raise refuse("KIR-B003", f"the extents of '{b.name}' are not known at compile time")
    if b.strides is not None or (b.layout is not None and b.layout.name == "strides"):
        reach = sum((e - 1) * (int_value(s) or 0) for e, s in zip(extents, strides_of(b), strict=True) if e is not None)
        return (reach + 1) * b.dtype.bytes
    return math.prod(e for e in extents if e is not None) * b.dtype.bytes
