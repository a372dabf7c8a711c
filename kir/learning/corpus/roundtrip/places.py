"""Places of one thread's program that two spellings name otherwise, in the form that they share. Every step keeps what is read and written."""
from __future__ import annotations

from collections.abc import Callable
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
        if v.at.index or v.axes or len(pool.shape) != 1 or len(v.buffer.shape) != 1 or of.is_symbolic or pool.dtype.is_symbolic or of.bits != pool.dtype.bits or (
                of == pool.dtype or of.is_bool or pool.dtype.is_bool):
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
            isinstance(x, n.Region) and x.buffer == b for t in rest[:at] for x in walk(t)):
        return rest
    new = replace(b, name=f"{b.name}%")
    return renewed(b, [*rest[:at], n.Alloc(new, s.value, origin=s.origin), *(rename(t, {b.name: new.name}) for t in rest[at + 1:])])


def _changes(s: n.Stmt, b: n.Buffer) -> bool:
    """Whether a statement may change an array: anything but a load of it does."""
    loads = sum(isinstance(x, n.Load) and x.at.buffer == b for x in walk(s))
    return sum(isinstance(x, n.Region) and x.buffer == b for x in walk(s)) != loads
