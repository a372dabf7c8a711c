"""Where a tile may hang over the edge of a buffer: which accesses need `clip`, and which do not."""
from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType, dtype_of
from kir.ir.visit import names_read, regions, statements, transform, walk

Ranges = Mapping[str, n.Expr]
"""Variables that run from 0 up to an exclusive end."""


def divisor(e: n.Expr, facts: Sequence[n.Expr]) -> int:
    """The largest number known to divide an integer expression (0 for zero itself), from its form and facts `x % c == 0`."""
    known: dict[n.Expr, int] = {}
    for f in facts:
        if isinstance(f, n.Binary) and f.op == "eq" and build.is_const(f.b, 0) and isinstance(f.a, n.Binary) and f.a.op == "mod":
            c = build.int_value(f.a.b)
            if c:
                known[f.a.a] = math.lcm(known.get(f.a.a, 1), c)
    out = 0
    for monomial, c in build.polynomial(e).items():
        out = math.gcd(out, abs(c) * math.prod(
            math.gcd(divisor(a.a, facts), divisor(a.b, facts)) if isinstance(a, n.Binary) and a.op in ("min", "max") else _atom_divisor(a, known)
            for a in monomial))
    return out


def _atom_divisor(a: n.Expr, known: Mapping[n.Expr, int]) -> int:
    return known.get(a, divisor(a.x, ()) if isinstance(a, n.Cast) and dtype_of(a.x.type).is_integer and a.x not in known else
                     known.get(a.x, 1) if isinstance(a, n.Cast) else 1)


def divides(k: int, e: n.Expr, facts: Sequence[n.Expr]) -> bool:
    """Whether `k` is known to divide `e`."""
    return k != 0 and divisor(e, facts) % k == 0


def hangs_over(r: n.Region, ranges: Ranges, facts: Sequence[n.Expr], sums: bool = False) -> bool:
    """Whether some index of a region of global memory is not known to stay inside its buffer. With `sums` also what several variables add up to is
    looked at."""
    if not r.index:
        return False
    return any(not _inside(i, d, ranges, facts) and not (sums and isinstance(i, n.Expr) and _sum_inside(_bare(i), d, ranges, facts))
               for i, d in zip(r.index, r.buffer.shape, strict=True))


def _sum_inside(e: n.Expr, extent: n.Expr, ranges: Ranges, facts: Sequence[n.Expr]) -> bool:
    """Whether a sum of multiples of variables in their ranges, and of nothing negative, stays below an extent."""
    if e.type != extent.type:
        return False
    last: n.Expr = build.const(0, dtype_of(e.type))
    rest = last
    for monomial, c in build.polynomial(e).items():
        var = monomial[0] if len(monomial) == 1 else None
        if isinstance(var, n.Var) and var.name in ranges and ranges[var.name].type == e.type and c > 0:
            last = build.add(last, build.mul(build.sub(ranges[var.name], 1), c))
        else:
            rest = build.add(rest, build.from_polynomial({monomial: c}, dtype_of(e.type)))
    sizes = names_read(extent) | names_read(last)
    return _is_natural(rest, sizes, facts) and _is_natural(build.sub(build.sub(extent, build.add(last, rest)), 1), sizes, facts)


def _inside(i: n.Expr | n.Span, extent: n.Expr, ranges: Ranges, facts: Sequence[n.Expr]) -> bool:
    if isinstance(i, n.Expr):
        e = _bare(i)
        value, bound = build.int_value(e), build.int_value(extent)
        if value is not None:
            return value >= 0 and ((bound is None and value == 0) or (bound is not None and value < bound))
        if isinstance(e, n.Binary) and e.op == "floordiv" and isinstance(e.a, n.Var) and (whole := ranges.get(e.a.name)) is not None and (
                whole.type == e.b.type and extent == build.ceildiv(whole, e.b)):
            return True  # the number of the piece that an element lies in
        sizes = names_read(extent) | {f.a.name for f in facts if _floor(f) >= 0 and isinstance(f, n.Binary) and isinstance(f.a, n.Var)}
        end = _end(e, ranges, sizes)
        ends = build.int_value(end) if end is not None else None
        if end is None:
            return False
        spare = build.sub(extent, end) if extent.type == end.type else None
        return (spare is not None and _is_natural(spare, sizes, facts)) or (ends is not None and bound is not None and ends <= bound) or (
            spare is not None and _covers(extent, end, ranges, facts))
    if not (isinstance(i.extent, int) and i.step == 1):
        return False
    lo, bound = _bare(i.lo), build.int_value(extent)
    if build.is_const(lo, 0):
        return (bound is not None and i.extent <= bound) or _const_multiple(extent, i.extent)
    first = build.int_value(lo)
    if first is not None:
        return first >= 0 and bound is not None and first + i.extent <= bound
    terms = build.polynomial(lo)
    if len(terms) != 1:
        return False
    (monomial, coefficient), = terms.items()
    if len(monomial) != 1 or coefficient != i.extent or not isinstance(monomial[0], n.Var):
        return False
    end = ranges.get(monomial[0].name)
    tiles = build.ceildiv(extent, i.extent)
    if end is None or not isinstance(tiles.type, DType):
        return False
    return end == build.sub(tiles, 1) or end == build.floordiv(extent, i.extent) or (end == tiles and divides(i.extent, extent, facts)) or (
        end.type == extent.type and _covers(extent, build.mul(end, i.extent), ranges, facts))


def _covers(extent: n.Expr, end: n.Expr, ranges: Ranges, facts: Sequence[n.Expr]) -> bool:
    """Whether an end that grows with variables in their ranges comes no further than an extent of which their ends are quotients."""
    moving = [(m[0], c) for m, c in build.polynomial(end).items() if len(m) == 1 and isinstance(m[0], n.Var) and m[0].name in ranges]
    if len(moving) != 1 or moving[0][1] <= 0 or ranges[moving[0][0].name].type != end.type:
        return False
    (var, c), = moving
    most = build.polynomial(build.add(build.sub(end, build.mul(var, c)), build.mul(build.sub(ranges[var.name], 1), c)))
    if len(most) != 1:
        return False
    ((monomial, count),) = most.items()
    tiles = monomial[0] if len(monomial) == 1 else None
    if not (isinstance(tiles, n.Binary) and tiles.op in ("floordiv", "ceildiv") and tiles.a == extent):
        return False
    each = build.int_value(tiles.b) or 0
    return 0 < count <= each and (tiles.op == "floordiv" or divides(each, extent, facts))


def within_parts(lo: n.Expr, width: int, extent: n.Expr, ranges: Ranges, facts: Sequence[n.Expr]) -> bool:
    """Whether spans that begin at `lo` stay inside an extent that their width divides, where one variable of `lo` runs to the end of a part of all
    spans, which is `(all + all * part) // parts` or so."""
    terms = build.polynomial(lo)
    if not divides(width, extent, facts) or any(c % width for c in terms.values()):
        return False
    spans = build.ceildiv(extent, width)
    for monomial, c in terms.items():
        var = monomial[0] if len(monomial) == 1 else None
        if isinstance(var, n.Var) and c == width and var.name in ranges and ranges[var.name].type == lo.type:
            others = build.from_polynomial({m: k // width for m, k in terms.items() if m != monomial}, dtype_of(lo.type))
            if _share(build.add(others, ranges[var.name]), spans, ranges):
                return True
    return False


def _share(e: n.Expr, whole: n.Expr, ranges: Ranges) -> bool:
    """Whether `e` is a quotient that is no more than `whole`: of multiples of it, by which variables in literal ranges it may be multiplied."""
    parts = build.int_value(e.b) if isinstance(e, n.Binary) and e.op == "floordiv" else None
    if parts is None or not isinstance(e, n.Binary):
        return False
    most = 0
    for monomial, count in build.polynomial(e.a).items():
        rest = list(monomial)
        if whole not in rest or count < 0:
            return False
        rest.remove(whole)
        ends = [build.int_value(ranges.get(a.name, a)) if isinstance(a, n.Var) else None for a in rest]
        most += count * math.prod(end - 1 if end else parts + 1 for end in ends)
    return most <= parts


def _end(e: n.Expr, ranges: Ranges, sizes: Collection[str]) -> n.Expr | None:
    """What a sum of one variable in its range and sizes stays below; None for anything else."""
    moving = [m[0] for m, c in build.polynomial(e).items() if len(m) == 1 and c == 1 and isinstance(m[0], n.Var) and m[0].name in ranges]
    if len(moving) != 1:
        return None
    rest, end = build.sub(e, moving[0]), ranges[moving[0].name]
    return build.add(rest, end) if end.type == e.type and _is_natural(rest, sizes, ()) else None


def _floor(f: n.Expr) -> int:
    """The c of a fact `x >= c`, -1 for any other."""
    c = build.int_value(f.b) if isinstance(f, n.Binary) and f.op == "ge" else None
    return -1 if c is None else c


def _is_natural(e: n.Expr, sizes: Collection[str], facts: Sequence[n.Expr]) -> bool:
    """Whether an integer is known to be 0 or more: a sum of products of sizes, none of which is negative, and a number that facts
    `size >= c` make up for where it is negative."""
    low = 0
    for monomial, c in build.polynomial(e).items():
        if monomial and (c < 0 or not all(isinstance(a, n.Var) and a.name in sizes for a in monomial)):
            return False
        least = max((_floor(f) for f in facts if isinstance(f, n.Binary) and (f.a,) == monomial), default=0) if monomial else 1
        low += c * max(least, 0)
    return low >= 0


def _const_multiple(extent: n.Expr, k: int) -> bool:
    value = build.int_value(extent)
    return value is not None and value >= k


def _bare(e: n.Expr) -> n.Expr:
    """An index without the integer casts around it."""
    while isinstance(e, n.Cast) and dtype_of(e.x.type).is_integer:
        e = e.x
    return e


def ranges_of(kernel: n.Kernel) -> dict[str, n.Expr]:
    """Grid axes and loop variables of a kernel that start at 0 and step by 1, with their ends."""
    out = {a.name: a.extent for a in kernel.grid}
    out |= {s.var.name: s.hi for s in statements(kernel.body) if isinstance(s, n.For) and build.is_const(s.lo, 0) and build.is_const(s.step, 1)}
    return out


def _parts_said(kernel: n.Kernel, ranges: Ranges, facts: Sequence[n.Expr], parts: dict[n.Expr, n.Expr]) -> Iterator[tuple[str, n.Expr]]:
    """Remainders and quotients that places say themselves, as `_named_parts` has those with names: what each is called, put into `parts`, and where it
    ends."""
    positive, extents = _divisors(kernel, facts)
    for e in dict.fromkeys(x for r in regions(kernel) if r.buffer.space == "global" for i in r.index for x in walk(i) if isinstance(x, n.Binary)):
        if isinstance(e.type, DType) and (end := _end_of_part(e, ranges, positive, extents)) is not None:
            parts[e] = n.Var(f"%part{len(parts)}", e.type)
            yield f"%part{len(parts) - 1}", end


def _divisors(kernel: n.Kernel, facts: Sequence[n.Expr]) -> tuple[set[n.Expr], list[n.Expr]]:
    """What is known to be at least 1, and the extents of all memory."""
    positive = {f.a for f in facts if _floor(f) >= 1 and isinstance(f, n.Binary)}
    for axis in kernel.grid:  # where a CTA runs at all, none of the factors of what the axis has is 0
        terms = build.polynomial(axis.extent)
        positive |= set(next(iter(terms))) if len(terms) == 1 else set()
    return positive, list(dict.fromkeys(d for r in regions(kernel) for d in r.buffer.shape))


def _named_parts(kernel: n.Kernel, ranges: Ranges, facts: Sequence[n.Expr]) -> dict[str, n.Expr]:
    """Names of a remainder of a division by what is at least 1 (a number, what a fact says so of, a factor of an axis of the grid), or of the quotient of what
    runs to a multiple of it, with their ends."""
    out: dict[str, n.Expr] = {}
    positive, extents = _divisors(kernel, facts)
    for s in statements(kernel.body):
        if isinstance(s, n.Let) and len(s.names) == 1 and (end := _end_of_part(s.value, ranges, positive, extents)) is not None:
            out[s.names[0]] = end
    return out


def _end_of_part(e: n.Expr, ranges: Ranges, positive: Collection[n.Expr], extents: Sequence[n.Expr]) -> n.Expr | None:
    """Where a remainder or a quotient ends, of quotients of a variable in its range; None for anything else."""
    if not (isinstance(e, n.Binary) and e.op in ("mod", "floordiv")) or ((build.int_value(e.b) or 0) <= 0 and e.b not in positive):
        return None
    if e.op == "mod":
        return e.b
    whole = ranges.get(e.a.name) if isinstance(e.a, n.Var) else _end_of_part(e.a, ranges, positive, extents)
    return None if whole is None or whole.type != e.type else _quotient(whole, e.b, extents)


def _quotient(whole: n.Expr, by: n.Expr, extents: Sequence[n.Expr]) -> n.Expr | None:
    """What a whole is, divided without a rest: term by term, or one of some extents that is as many times the divisor."""
    parts, terms = build.int_value(by), build.polynomial(whole)
    if parts:
        exact = all(c % parts == 0 for c in terms.values())
        return build.from_polynomial({m: c // parts for m, c in terms.items()}, dtype_of(whole.type)) if exact else None
    if all(by in m for m in terms):
        return build.from_polynomial({_without(m, by): c for m, c in terms.items()}, dtype_of(whole.type))
    return next((d for d in extents if d.type == by.type and build.polynomial(build.mul(by, d)) == terms), None)


def _without(monomial: tuple[n.Expr, ...], factor: n.Expr) -> tuple[n.Expr, ...]:
    place = monomial.index(factor)
    return monomial[:place] + monomial[place + 1:]


def zero(dtype_source: n.Region) -> n.Expr:
    """What a clipped load gives outside unless it says otherwise."""
    return build.const(0, dtype_source.buffer.dtype)


def settle_clips(kernel: n.Kernel, facts: Sequence[n.Expr], before: n.Kernel | None = None, undefined: Collection[str] = (), sums: bool = False) -> n.Kernel:
    """The kernel with `clip` on exactly those accesses to global memory that may hang over; loads that gain it give zero outside (nothing
    defined, of the buffers `undefined`), loads that lose it give nothing outside, and those that have it stay as they are. Gathers, masked
    accesses and the regions that `before` had already are left alone. With `sums` more is known: of what several variables add up to, and of names of
    remainders and quotients."""
    ranges: Ranges = ranges_of(kernel)
    parts: dict[n.Expr, n.Expr] = {}
    if sums:
        ranges = {**_named_parts(kernel, ranges, facts), **ranges}
        ranges |= dict(_parts_said(kernel, ranges, facts, parts))
    kept = set(regions(before)) if before is not None else set()

    def governed(r: n.Region) -> bool:
        return r.buffer.space == "global" and bool(r.index) and r not in kept and not any(
            isinstance(i, n.Expr) and not isinstance(i.type, DType) for i in r.index)

    def named(r: n.Region) -> n.Region:
        return replace(r, index=tuple(transform(i, lambda _, x: parts.get(x, x) if isinstance(x, n.Binary) else x) for i in r.index)) if parts else r

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Load() if governed(new.at) and new.mask is None:
                if hangs_over(named(new.at), ranges, facts, sums):
                    bare = new.clip or new.at.buffer.name in undefined
                    return replace(new, clip=True, other=new.other if new.other is not None or bare else zero(new.at))
                return replace(new, clip=False, other=None)
            case n.Store() if governed(new.at) and new.mask is None:
                return replace(new, clip=hangs_over(named(new.at), ranges, facts, sums))
            case _:
                return new
    result: n.Kernel = transform(kernel, leave)
    return result

