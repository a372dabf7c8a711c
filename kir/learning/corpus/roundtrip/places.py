"""Places of one thread's program that two spellings name otherwise, in the form that they share. Every step keeps what is read and written."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.canonical import rename
from kir.ir.types import TileType, dtype_of
from kir.ir.visit import transform, walk


def of_place(old: n.Node, new: n.Node) -> n.Node:
    """A view of what begins at the first element as one of the whole; a number that fills all of a private array, however it is named, as one that fills it."""
    match new:
        case n.View(axes=(), at=n.Region(index=(*index,))) if index and all(isinstance(i, n.Expr) and build.is_const(i, 0) for i in index):
            return replace(new, at=n.Region(new.at.buffer))
        case n.Store(mask=None, clip=False) if new.at.buffer.space == "register" and not isinstance(new.value.type, TileType) and any(
                isinstance(i, n.Span) for i in new.at.index) and all(_all_of(i, d) for i, d in zip(new.at.index, new.at.buffer.shape, strict=True)):
            return replace(new, at=n.Region(new.at.buffer))
    return new


def _all_of(i: n.Expr | n.Span, extent: n.Expr | int) -> bool:
    count = int_value(extent) if isinstance(extent, n.Expr) else extent
    return build.is_const(i.lo, 0) and i.step == 1 and i.extent == count if isinstance(i, n.Span) else count == 1 and build.is_const(i, 0)


def without_idle(body: n.Block) -> n.Block:
    """The block without arrays and views that nothing names."""
    while True:
        named = {x.buffer.name for s in body for x in walk(s) if isinstance(x, n.Region)}
        idle = [x for s in body for x in walk(s) if isinstance(x, (n.Alloc, n.View)) and x.buffer.name not in named]
        if not idle:
            return body
        body = _dropped(body, frozenset(x.buffer.name for x in idle))


def _dropped(body: n.Block, names: frozenset[str]) -> n.Block:
    out: list[n.Stmt] = []
    for s in body:
        if isinstance(s, (n.Alloc, n.View)) and s.buffer.name in names:
            continue
        out.append(_with_blocks(s, partial(_dropped, names=names)))
    return tuple(out)


def _with_blocks(s: n.Stmt, made: Callable[[n.Block], n.Block]) -> n.Stmt:
    match s:
        case n.For() | n.While():
            return replace(s, body=made(s.body))
        case n.If():
            return replace(s, then=made(s.then), orelse=made(s.orelse))
        case n.Roles():
            return replace(s, roles=tuple(replace(r, body=made(r.body)) for r in s.roles))
        case _:
            return s


def as_bits(body: n.Block) -> n.Block:
    """The block with numbers that a view shows in an array of as wide ones as the bits of those, where each use loads or stores them."""
    body = tuple(_with_blocks(s, as_bits) for s in body)
    for v in [s for s in body if isinstance(s, n.View)]:
        pool, of = v.at.buffer, v.buffer.dtype
        plain_kinds = not (of.is_symbolic or pool.dtype.is_symbolic or of.is_bool or pool.dtype.is_bool)
        if v.at.index or v.axes or len(pool.shape) != 1 or len(v.buffer.shape) != 1 or not plain_kinds or of.bits != pool.dtype.bits or of == pool.dtype:
            continue
        uses = sum(isinstance(x, n.Region) and x.buffer == v.buffer for s in body for x in walk(s))
        plain = sum(isinstance(x, (n.Load, n.Store)) and x.at.buffer == v.buffer and bool(x.at.index) for s in body for x in walk(s))
        if uses == plain:
            body = tuple(transform(s, partial(_bits_of, v.buffer, pool)) for s in body if s is not v)
    return body


def _bits_of(b: n.Buffer, pool: n.Buffer, old: n.Node, new: n.Node) -> n.Node:
    if not isinstance(new, (n.Load, n.Store)) or new.at.buffer != b:
        return new
    at = replace(new.at, buffer=pool)
    if isinstance(new, n.Store):
        return replace(new, at=at, value=build.cast(new.value, pool.dtype, "bits"))
    other = None if new.other is None else build.cast(new.other, pool.dtype, "bits")
    return build.cast(replace(new, at=at, other=other), dtype_of(new.type), "bits")


def renewed(b: n.Buffer, rest: list[n.Stmt]) -> list[n.Stmt]:
    """What follows the declaration of a private array, with one of its own for what is put into all of it and never changed again."""
    at = next((k for k in reversed(range(len(rest))) if _changes(rest[k], b)), None)
    s = rest[at] if at is not None else None
    if at is None or not isinstance(s, n.Store) or s.mask is not None or s.clip or s.cache or s.at != n.Region(b) or not any(
            isinstance(x, n.Region) and x.buffer == b for t in rest[:at] for x in walk(t)) or any(
            isinstance(x, n.View) and x.at.buffer == b for t in rest for x in walk(t)):  # a view goes on showing the first
        return rest
    new = replace(b, name=f"{b.name}%")
    return renewed(b, [*rest[:at], n.Alloc(new, s.value, origin=s.origin), *(rename(t, {b.name: new.name}) for t in rest[at + 1:])])


def _changes(s: n.Stmt, b: n.Buffer) -> bool:
    """Whether a statement may change an array: anything but a load of it does."""
    loads = sum(isinstance(x, n.Load) and x.at.buffer == b for x in walk(s))
    return sum(isinstance(x, n.Region) and x.buffer == b for x in walk(s)) != loads


def as_long(body: n.Block) -> n.Block:
    """The block with views of shared memory as long as what they are in lasts, where each use names places in them."""
    named = [x for s in body for x in walk(s)]
    for v in [s for s in body if isinstance(s, n.View) and s.at.buffer.space == "shared" and not s.axes and len(s.buffer.shape) == 1]:
        pool, size = v.at.buffer, int_value(v.at.buffer.shape[0]) if len(v.at.buffer.shape) == 1 else None
        first = int_value(v.at.index[0]) if len(v.at.index) == 1 and isinstance(v.at.index[0], n.Expr) else None if v.at.index else 0
        if size is None or first is None or not pool.dtype.bytes or not v.buffer.dtype.bytes or any(
                isinstance(x, n.Region) and x.buffer == v.buffer and not x.index for x in named):
            continue
        long = replace(v.buffer, shape=(build.const((size - first) * pool.dtype.bytes // v.buffer.dtype.bytes),))
        body = tuple(transform(s, partial(_instead, v.buffer, long)) for s in body)
    return body


def _instead(was: n.Buffer, now: n.Buffer, old: n.Node, new: n.Node) -> n.Node:
    return now if new == was else new


def within_rows(body: n.Block, known: Mapping[str, tuple[int, int]] | None = None) -> n.Block:
    """The block with quotients and remainders by a row's length, of a sum whose rest stays below it whatever the counters of the loops around, as what
    they are."""
    ranges = dict(known or {})
    out: list[n.Stmt] = []
    for s in body:
        inner = ranges
        if isinstance(s, n.For):
            lo, hi = int_value(s.lo), int_value(s.hi)
            inner = {**ranges, s.var.name: (lo, hi - 1)} if lo is not None and hi is not None and lo < hi and int_value(s.step) == 1 else {
                k: v for k, v in ranges.items() if k != s.var.name}
        if isinstance(s, n.Let) and len(s.names) == 1 and (found := _range(s.value, ranges)) is not None:
            ranges[s.names[0]] = found
        if isinstance(s, (n.For, n.While, n.If, n.Roles)):
            s = _with_blocks(s, partial(within_rows, known=inner))
        else:
            s = transform(s, partial(_row, ranges))
        out.append(s)
    return tuple(out)


def _range(e: n.Expr, known: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """The least and the largest that a sum of counters may be."""
    if not dtype_of(e.type).is_integer:
        return None
    lo = hi = 0
    for m, c in build.polynomial(e).items():
        found = (1, 1) if not m else _atom(m[0], known) if len(m) == 1 else None
        if found is None:
            return None
        lo, hi = lo + min(c * found[0], c * found[1]), hi + max(c * found[0], c * found[1])
    return lo, hi


def _atom(e: n.Expr, known: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    match e:
        case n.Var() if e.name in known:
            return known[e.name]
        case n.Call(fn="iota", of=None, args=(n.Const() as count,)):
            return 0, int(count.value) - 1
        case n.Binary(op="mod", b=n.Const() as by) if by.value > 0:
            inner = _range(e.a, known)
            return (inner if inner is not None and inner[0] >= 0 and inner[1] < by.value else (0, int(by.value) - 1))
        case n.Binary(op="floordiv", b=n.Const() as by) if by.value > 0 and (inner := _range(e.a, known)) is not None:
            return inner[0] // int(by.value), inner[1] // int(by.value)
        case n.Cast(rounding="rn") if e.dtype.is_integer and e.dtype.bits >= 32 and not isinstance(e.type, TileType) and dtype_of(e.x.type).is_integer:
            inner = _range(e.x, known)
            return inner if inner is not None and inner[0] >= 0 else None
    return None


def _row(known: Mapping[str, tuple[int, int]], old: n.Node, new: n.Node) -> n.Node:
    by = int_value(new.b) if isinstance(new, n.Binary) and new.op in ("floordiv", "mod") else None
    if not isinstance(new, n.Binary) or by is None or by <= 0 or dtype_of(new.type).name not in ("i32", "i64"):
        return new
    rows: n.Expr = build.const(0, dtype_of(new.type))
    rest: n.Expr = build.const(0, dtype_of(new.type))
    for m, c in build.polynomial(new.a).items():
        term: n.Expr = build.const(1, dtype_of(new.type))
        for atom in m:
            term = build.mul(term, atom)
        if c % by == 0:
            rows = build.add(rows, build.mul(term, c // by))
        else:
            rest = build.add(rest, build.mul(term, c))
    found = _range(rest, known)
    if found is None or found[0] < 0 or found[1] >= by:
        return new
    made = rows if new.op == "floordiv" else rest
    return made if made.type == new.type else new
