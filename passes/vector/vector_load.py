"""Loads what a short loop reads element by element with one instruction, before the loop.

pipeline: `vector-load{value="X[row, j + t * 8]"}@main/t/j`

```diff
 kir 1
 program squares
   size M: i32
   in X: f16[M, 1024]
   out S: f32[M, 128]
 kernel main grid (row: M) threads 128
   for t in 0..128 parallel thread
     register total: f32 = 0.0
+    register x_vector: f16[8] = X[row, t * 8 +: 8]
     @j for j in 0..8
-      total = total + cast(X[row, t * 8 + j], f32) * cast(X[row, t * 8 + j], f32)
+      total = total + cast(x_vector[j], f32) * cast(x_vector[j], f32)
     S[row, t] = total
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import ClassVar

from kir.analysis import Aliases, Facts
from kir.analysis.elements import split_affine
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import expr_text
from kir.ir.types import DType, dtype_of
from kir.ir.visit import names_read, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import block_at, edit_block, node_at
from kir.rewrite.match import block_and_index, fresh_at, from_zero, loads_of, matched, matched_as, node_as, params_as, regions_of, sibling, splice
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.materialize import buffers_written, suggested_name
from kir.rewrite.match.thread_team import team_at
from kir.rewrite.precondition import decided

from ._vector_loop import offset_of

COUNTS = (2, 4, 8, 16)
"""Elements of a vector."""

def _site(program: n.Program, site: Site) -> tuple[n.For, n.Load, n.Load]:
    """(loop, load of an element, load of the vector)."""
    loop, item = node_as(program, site.path, n.For), params_as(site, VectorLoad)
    element = next(x for x in _elements(loop) if expr_text(x) == item.value)
    return loop, element, _vector(element, loop)


def _aligned(program: n.Program, site: Site, context: Context) -> Verdict:
    _, _, vector = _site(program, site)
    b, known = vector.at.buffer, Facts.at(program, site.path)
    last = matched_as(vector.at.index[-1], n.Span)
    assert isinstance(last.extent, int)
    width = min(16, last.extent * b.dtype.bytes)
    first = n.Region(b, (*vector.at.index[:-1], last.lo))
    offset = offset_of(first)
    needs = f"a place that is a multiple of {width // b.dtype.bytes}"
    if 0 < b.align < width:
        return refuted(f"'{b.name}' is aligned to {b.align} bytes", f"the vector at byte {b.align}", needs=f"align {width}")
    if offset is None:
        return unknown(f"the place in '{b.name}' is no sum of indices of one width", needs=needs)
    if known.divides(width // b.dtype.bytes, offset):
        return proved(f"the vector starts at a multiple of {width} bytes")
    found = known.domain(known.expanded(offset))
    reason = f"vectors of {width} bytes in '{b.name}' are not known to be aligned"
    if found.modulus % (width // b.dtype.bytes) == 0 and found.residue % (width // b.dtype.bytes):
        return refuted(reason, f"a vector starts at element {found}", needs=needs)
    return unknown(reason, needs=needs)


def _whole(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, element, vector = _site(program, site)
    last, known = matched_as(vector.at.index[-1], n.Span), Facts.at(program, site.path)
    assert isinstance(last.extent, int)
    edge = vector.at.buffer.shape[-1]
    if not vector.clip and element not in set(_elements(loop, always=True)):
        return decided(_within(vector.at), known, "the vector is in bounds", "the vector reaches out of bounds, where the loop reads only in some iterations")
    if not vector.clip:
        return proved("the loop reads every element of the vector")
    if known.divides(last.extent, edge) and known.divides(last.extent, last.lo):
        return proved("the edge of the memory lies between vectors")
    value = build.int_value(edge)
    reason = f"the edge of '{vector.at.buffer.name}' may cut a vector"
    if value is not None and value % last.extent:
        return refuted(reason, f"row of {value} elements, vectors of {last.extent}", needs=f"rows of a multiple of {last.extent}")
    return unknown(reason, needs=f"{expr_text(edge)} as a multiple of {last.extent}")


def _unwritten(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, _, vector = _site(program, site)
    aliases = Aliases(program)
    for name in sorted(buffers_written(loop.body)):
        if name == "*" or aliases.may_be_one(name, vector.at.buffer.name):
            return refuted(f"the loop writes '{name}' while it reads '{vector.at.buffer.name}'", "all elements are read before any is written",
                           needs="memory that the loop does not write")
    return proved("the loop writes nothing that it reads")


def _within(at: n.Region) -> n.Expr:
    """That a place lies inside its buffer."""
    claims = []
    for i, d in zip(at.index, at.buffer.shape, strict=True):
        first = i.lo if isinstance(i, n.Span) else i
        end = build.add(first, i.extent if isinstance(i, n.Span) else 1)
        claims += [build.compare("ge", first, 0), build.compare("le", end, build.cast(d, dtype_of(first.type)))]
    return reduce(build.logical_and, claims)


def _elements(loop: n.For, always: bool = False) -> Iterator[n.Load]:
    """The different loads of single elements at neighboring places, one after another: those that every iteration does `always`, and those in branches."""
    inner, seen = set(bound_names(loop.body)), set()
    for s in loop.body:
        if not isinstance(s, (n.Let, n.Store) if always else (n.Let, n.Store, n.If)):
            continue
        for x in walk(s):
            if not isinstance(x, n.Load) or x in seen or x.at.buffer.space not in ("global", "shared") or not x.at.index:
                continue
            *outer, last = x.at.index
            if isinstance(last, n.Span) or not isinstance(last.type, DType) or any(isinstance(i, n.Span) for i in outer):
                continue
            parts = split_affine(last, loop.var)
            other = {y for e in (*outer, x.mask, x.other) if e is not None for y in names_read(e)}
            if parts is None or not build.is_const(parts[1], 1) or (names_read(x) - {loop.var.name}) & inner or loop.var.name in other:
                continue
            if not outer and build.is_const(parts[0], 0) and x.at.buffer.shape[0] == loop.hi:
                continue  # the whole of an array is no stretch of it
            seen.add(x)
            yield x


def _vector(x: n.Load, loop: n.For) -> n.Load:
    """The load of all elements that a loop's loads of one take in turn."""
    *outer, last = x.at.index
    count = matched(build.int_value(loop.hi))
    assert isinstance(last, n.Expr)
    parts = matched(split_affine(last, loop.var))
    return replace(x, at=n.Region(x.at.buffer, (*outer, n.Span(parts[0], count))))


@dataclass(frozen=True)
class VectorLoad(Pass):
    """`value` is the text of the load of one element."""

    intent: ClassVar[str] = "vectorize-global"
    catalogue: ClassVar[tuple[int, ...]] = (11, 83)
    claim: ClassVar[str] = "One wide load before a short loop takes the place of a narrow one in each iteration."
    provides: ClassVar[tuple[str, ...]] = ("vectorized",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P830", "validity", "layout", "the vector starts at a multiple of its bytes, up to 16", _aligned),
        Precondition("KIR-P831", "validity", "shape", "the vector is in bounds as a whole or not at all", _whole),
        Precondition("KIR-P832", "validity", "aliasing", "the loop writes nothing that it reads", _unwritten),
    )

    value: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop of a thread over 0..n, n a power of two, that reads neighbors."""
        if not isinstance(node, n.For) or not _is_short(node) or team_at(program, path) is None:
            return None
        found = tuple(Site(path, replace(self, value=text)) for x in _elements(node) if self.value in ("", text := expr_text(x)))
        return found or (Miss("the loop does not read that") if self.value else None)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The vector before the loop, its elements inside."""
        loop, element, vector = _site(program, site)
        dtype = element.at.buffer.dtype
        name = fresh_at(program, site.path, f"{suggested_name(element)}_vector")
        made = n.Buffer(name, dtype, (loop.hi,), "register")
        one = n.Load(n.Region(made, (loop.var,)))
        inside = transform(loop, lambda old, new: one if old == element else new)
        out = splice(program, site.path, (n.Alloc(made, vector), inside))
        return Rewritten(out, site.path, {site.path: (sibling(site.path, 1),)})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a private array that begins with a vector, of which one loop after it reads element by element."""
        if not (isinstance(node, n.Alloc) and node.buffer.space == "register" and isinstance(node.init, n.Load)) or team_at(program, path) is None:
            return None
        b, vector = node.buffer, node.init
        count = build.int_value(b.shape[0]) if len(b.shape) == 1 else None
        last = vector.at.index[-1] if vector.at.index else None
        if count not in COUNTS or vector.at.buffer.space not in ("global", "shared") or not isinstance(last, n.Span) or last.step != 1 or any(
                isinstance(i, n.Span) for i in vector.at.index[:-1]):
            return None
        block, i = block_and_index(program, path)
        users = [k for k in range(i + 1, len(block)) if mentions(block[k], b.name)]
        loop = block[users[0]] if len(users) == 1 else None
        if not isinstance(loop, n.For) or not _is_short(loop) or build.int_value(loop.hi) != count:
            return Miss(f"no one loop over its elements reads '{b.name}'")
        reads = regions_of(loop, b.name)
        loads = loads_of(loop, b.name)
        if len(reads) != len(loads) or any(x.at.index != (loop.var,) or x.mask is not None for x in loads):
            return Miss(f"'{b.name}' is not only read, an element an iteration")
        return Site(path, replace(self, value=expr_text(_element(vector, loop))), {"loop": users[0]})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loads of elements, in the loop."""
        node, i, at = node_at(program, site.path), int(site.path[-1]), int(site.captures["loop"])
        block = block_at(program, site.path)
        loop = matched_as(block[at], n.For)
        assert isinstance(node, n.Alloc) and isinstance(node.init, n.Load)
        one, name = _element(node.init, loop), node.buffer.name
        inside = transform(loop, lambda old, new: one if isinstance(old, n.Load) and old.at.buffer.name == name else new)
        out = edit_block(program, site.path, lambda b: (*b[:i], *b[i + 1:at], inside, *b[at + 1:]))
        return Rewritten(out, (*site.path[:-1], at - 1))


def _element(vector: n.Load, loop: n.For) -> n.Load:
    """The load of the element that an iteration takes."""
    last = matched_as(vector.at.index[-1], n.Span)
    place = build.add(last.lo, build.cast(loop.var, dtype_of(last.lo.type)))
    return replace(vector, at=n.Region(vector.at.buffer, (*vector.at.index[:-1], place)))


def _is_short(loop: n.For) -> bool:
    return loop.kind in ("serial", "unroll") and from_zero(loop) and build.int_value(loop.hi) in COUNTS
