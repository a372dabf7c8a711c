"""Places of one thread's program that two spellings name otherwise, in the form that they share. Every step keeps what is read and written."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import TileType, dtype_of
from kir.ir.visit import transform


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


def inside(s: n.Stmt, made: Callable[[n.Block], n.Block]) -> n.Stmt:
    """A statement with the blocks in it made anew; one that holds none as it is."""
    match s:
        case n.For() | n.While():
            return replace(s, body=made(s.body))
        case n.If():
            return replace(s, then=made(s.then), orelse=made(s.orelse))
        case n.Roles():
            return replace(s, roles=tuple(replace(r, body=made(r.body)) for r in s.roles))
        case _:
            return s


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
            s = inside(s, partial(within_rows, known=inner))
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
