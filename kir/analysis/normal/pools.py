"""Shared memory that is cut by hand: where the accesses to one array fall into ranges that never meet, each range is an array of its own.

`smem[warp]` beside `smem[4 + i]` is two arrays to a reader, and to every rule that asks who touches what. An array with an element that is
named on its own (by a literal, apart from all other places) stays one.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kir.analysis.facts import Facts
from kir.analysis.order import less
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.paths import child_blocks
from kir.ir.types import I32, dtype_of
from kir.ir.visit import buffers_named, children, once, transform

WIDEST = 16
"""Bytes of the widest access of a thread: an array that does not say otherwise is taken to begin at a multiple of them."""


@dataclass(frozen=True)
class Part:
    """Elements `lo` up to `hi` of an array, and the array that they become."""

    lo: int
    hi: int
    buffer: n.Buffer


@dataclass(frozen=True)
class Pool:
    """An array that falls into parts, and the elements that each place of it may be."""

    parts: tuple[Part, ...]
    reach: dict[n.Region, tuple[int, int]]

    def moved(self, r: n.Region) -> n.Region:
        """The same place, in the part that it is in."""
        part = next(p for p in self.parts if p.lo <= self.reach[r][0] < p.hi)
        place = r.index[0]
        if isinstance(place, n.Span):
            return n.Region(part.buffer, (replace(place, lo=_less(place.lo, part.lo)),))
        return n.Region(part.buffer, (_less(place, part.lo),))


def _less(e: n.Expr, by: int) -> n.Expr:
    return build.sub(e, n.Const(by, dtype_of(e.type))) if by else e


def separated(program: n.Program) -> n.Program:
    """The program with arrays of shared memory taken apart where that is proved; idempotent."""
    made = []
    sizes = frozenset(p.name for p in program.params if not isinstance(p.of, n.Buffer))
    for k in program.kernels:
        taken = set(bound_names(k.body)) | {p.name for p in program.params}
        k = _cut_at_sizes(replace(program, kernels=(k,)), sizes, taken)
        lines = [s.buffer for s in k.body if isinstance(s, n.Alloc) and s.init is None and _is_line(s.buffer)]
        placed = tuple(_placed(k.body, Facts.at(replace(program, kernels=(k,)), (k.name,)))) if lines else ()
        pools = {b.name: found for b in lines if (found := _pool(placed, b, taken)) is not None}
        made.append(_taken_apart(k, pools) if pools else k)
    return replace(program, kernels=tuple(made))


def _cut_at_sizes(program: n.Program, sizes: frozenset[str], taken: set[str]) -> n.Kernel:
    """The one kernel of a program, with each array of shared memory as two where a size parts the places below it from those behind it."""
    k = program.kernels[0]
    lines = [s.buffer for s in k.body if isinstance(s, n.Alloc) and s.init is None and _is_line(s.buffer)]
    placed = tuple(_placed(k.body, Facts.at(program, (k.name,)))) if lines else ()
    for b in lines:
        found = _cut(placed, b, sizes)
        if found is not None:
            cut, behind, extent = found
            name = next(x for j in range(1, len(taken) + 2) if (x := f"{b.name}_{j}") not in taken)
            taken.add(name)
            second = n.Buffer(name, b.dtype, (build.const(extent),), "shared")
            moved = {r: n.Region(second, (_minus(r.index[0], cut),)) for r in behind}
            body: list[n.Stmt] = []
            for s in k.body:
                body.append(_elsewhere(s, moved))
                body += [n.Alloc(second)] if isinstance(s, n.Alloc) and s.buffer == b else []
            return _cut_at_sizes(replace(program, kernels=(replace(k, body=tuple(body)),)), sizes, taken)
    return k


def _elsewhere(s: n.Stmt, moved: Mapping[n.Region, n.Region]) -> n.Stmt:
    """A statement with other places."""
    made: n.Stmt = transform(s, lambda old, new: moved.get(old, new) if isinstance(old, n.Region) else new)
    return made


def _minus(place: n.Expr | n.Span, cut: n.Expr) -> n.Expr | n.Span:
    return replace(place, lo=build.sub(place.lo, cut)) if isinstance(place, n.Span) else build.sub(place, cut)


def _cut(placed: Sequence[tuple[Facts, n.Stmt]], b: n.Buffer, sizes: frozenset[str]) -> tuple[n.Expr, frozenset[n.Region], int] | None:
    """A sum of sizes that parts the places of an array, those behind it, and how many elements they need; None where there is none."""
    at = [(known, r, r.index[0]) for known, s in placed if b.name in buffers_named(s) for r, _ in _places(s) if r.buffer.name == b.name and r.index]
    if any(isinstance(s, n.Opaque) or (isinstance(s, n.View) and s.at.buffer.name == b.name) for _, s in placed):
        return None
    first = [(known, r, place.lo if isinstance(place, n.Span) else place) for known, r, place in at]
    cuts = dict.fromkeys(c for _, _, e in first if (c := _of_sizes(e, sizes)) is not None)
    for cut in cuts:
        behind, before, most = set[n.Region](), set[n.Region](), 0
        for (known, r, e), (_, _, place) in zip(first, at, strict=True):
            count = build.int_value(place.extent) if isinstance(place, n.Span) and isinstance(place.extent, n.Expr) else place.extent if isinstance(
                place, n.Span) else 1
            over = known.domain(known.expanded(build.sub(e, cut)))
            if not isinstance(count, int) or (isinstance(place, n.Span) and place.step != 1 and not build.is_const(place.step, 1)):  # type: ignore[arg-type]  # an expression
                break
            if over.lo is not None and over.lo >= 0 and over.hi is not None:
                behind.add(r)
                most = max(most, over.hi + count)
            elif less(build.add(e, count - 1) if count > 1 else e, cut, known):
                before.add(r)
            else:
                break
        else:
            if behind and before and not behind & before and most <= (build.int_value(b.shape[0]) or 0):
                return cut, frozenset(behind), most
    return None


def _of_sizes(e: n.Expr, sizes: frozenset[str]) -> n.Expr | None:
    """The terms of an index that sizes alone make; None where there are none."""
    if dtype_of(e.type).name != "i32":
        return None
    terms = {m: c for m, c in build.polynomial(e).items() if m and c > 0 and all(isinstance(x, n.Var) and x.name in sizes for x in m)}
    return build.from_polynomial(terms, I32) if terms else None


def _is_line(b: n.Buffer) -> bool:
    return b.space == "shared" and len(b.shape) == 1 and build.int_value(b.shape[0]) is not None and b.layout is None and b.strides is None


def _pool(placed: Sequence[tuple[Facts, n.Stmt]], b: n.Buffer, taken: set[str]) -> Pool | None:
    """The arrays that a buffer falls into, by the statements of its kernel and what is known at each; None where it stays one."""
    size = build.int_value(b.shape[0]) or 0
    reach: dict[n.Region, tuple[int, int]] = {}
    for known, s in placed:
        if isinstance(s, n.Opaque) or (isinstance(s, n.View) and s.at.buffer.name == b.name):
            return None
        for region, mask in _places(s) if b.name in buffers_named(s) else ():
            if region.buffer.name == b.name:
                found = _range(region, mask, known)
                if found is None or found[0] >= found[1]:
                    return None
                lo, hi = reach.get(region, found)
                reach[region] = min(lo, found[0]), min(max(hi, found[1]), size)
                if not 0 <= reach[region][0] < reach[region][1]:
                    return None  # a place that may lie outside: the array stays as it was declared, so that this shows
    joined: list[tuple[int, int]] = []
    for lo, hi in sorted(reach.values()):
        if joined and lo < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], hi))
        else:
            joined.append((lo, hi))
    if len(joined) < 2 or any(hi - lo == 1 for lo, hi in joined):
        return None
    parts = []
    for i, (lo, hi) in enumerate(joined):
        name = b.name if i == 0 else next(x for j in range(1, len(taken) + 2) if (x := f"{b.name}_{j}") not in taken)
        taken.add(name)
        first = lo * b.dtype.bytes & -(lo * b.dtype.bytes)
        own = b.align if lo == 0 or (not b.align and first >= WIDEST) else min(b.align or WIDEST, first)
        parts.append(Part(lo, hi, replace(b, name=name, shape=(build.const(hi - lo),), align=own)))
    return Pool(tuple(parts), reach)


def _placed(block: n.Block, known: Facts) -> Iterator[tuple[Facts, n.Stmt]]:
    """Every statement with what is known just before it."""
    for s in block:
        yield known, s
        for field, _ in child_blocks(s):
            inner, body, _ = known.inside(s, (*field, 0))
            yield from _placed(body, inner)
        known = known.after((s,))


def _places(s: n.Stmt) -> tuple[tuple[n.Region, n.Expr | None], ...]:
    return once(s, "_places_named", lambda: tuple(_regions(s, None)))


def _regions(x: n.Node, mask: n.Expr | None) -> Iterator[tuple[n.Region, n.Expr | None]]:
    """The places that a statement names itself, each with the mask that it is reached under."""
    if isinstance(x, n.Buffer):
        return
    if isinstance(x, n.Region):
        yield x, mask
    if isinstance(x, (n.Load, n.Store)):
        yield from _regions(x.at, x.mask)
        rest: tuple[n.Node | None, ...] = (x.mask, x.other) if isinstance(x, n.Load) else (x.mask, x.value)
        for y in rest:
            if y is not None:
                yield from _regions(y, None)
        return
    for y in children(x):
        if not isinstance(y, n.Stmt):
            yield from _regions(y, None)


def _range(r: n.Region, mask: n.Expr | None, known: Facts) -> tuple[int, int] | None:
    """The elements lo up to hi that a region lies in, under its mask; None where that is not known."""
    if len(r.index) != 1:
        return None
    place = r.index[0]
    lo, count = (place.lo, build.int_value(place.extent) if isinstance(place.extent, n.Expr) else place.extent) if isinstance(place, n.Span) else (place, 1)
    if count is None or (isinstance(place, n.Span) and place.step != 1 and not build.is_const(place.step, 1)):  # type: ignore[arg-type]  # an expression then
        return None
    top = None
    for c in _conjuncts(mask):
        known = known.knowing(c)
        if isinstance(c, n.Binary) and c.op in ("lt", "le") and c.a == lo:
            bound = build.int_value(c.b)
            top = bound - (c.op == "lt") if bound is not None else top
    found = known.domain(known.expanded(lo) if known.domain(lo).lo is None else lo)
    if found.lo is None or found.lo < 0 or not dtype_of(lo.type).is_integer:
        return None
    last = found.hi if top is None else top if found.hi is None else min(found.hi, top)
    return found.lo, (1 << 31) if last is None else last + count


def _conjuncts(mask: n.Expr | None) -> Iterator[n.Expr]:
    if isinstance(mask, n.Binary) and mask.op == "and":
        yield from _conjuncts(mask.a)
        yield from _conjuncts(mask.b)
    elif mask is not None:
        yield mask


def _taken_apart(k: n.Kernel, pools: dict[str, Pool]) -> n.Kernel:
    def leave(old: n.Node, new: n.Node) -> n.Node:
        return pools[old.buffer.name].moved(old) if isinstance(old, n.Region) and old.buffer.name in pools else new

    body: list[n.Stmt] = []
    for s in k.body:
        if isinstance(s, n.Alloc) and s.buffer.name in pools:
            body += [replace(s, buffer=p.buffer) for p in pools[s.buffer.name].parts]
        else:
            body.append(transform(s, leave))
    return replace(k, body=tuple(body))
