"""Buffers that have dimensions of one element, read as wholes again.

The normal form reads such a buffer without those dimensions and stretches what it read; TileLang's reductions and products take the buffer.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value, is_const
from kir.ir.types import TileType, shape_of
from kir.ir.visit import blocks_of, names_read, statements, substitute, transform, walk


def wholes(k: n.Kernel) -> n.Kernel:
    """The kernel with whole buffers in place of what is stretched to their shape, and one value in place of a tile of it in stores."""
    if not any(isinstance(s, n.Alloc) and any(is_const(d, 1) for d in s.buffer.shape) for s in statements(k.body)):
        return k

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Call(fn="expand" | "broadcast", of=None, args=(n.Load(mask=None, clip=False) as read, *_)):
                return _whole(read, new)
            case _:
                return new
    body = tuple(transform(s, leave) for s in k.body)
    uses = Counter(x.name for s in body for x in walk(s) if isinstance(x, n.Var))
    return replace(k, body=_inlined(body, uses))


def _whole(read: n.Load, stretched: n.Call) -> n.Expr:
    """The buffer, or its transpose, where a stretched part of it is all of it."""
    b = read.at.buffer
    dims = [int_value(d) for d in b.shape]
    if b.space == "global" or not read.at.index or any(d is None for d in dims) or not isinstance(stretched.type, TileType):
        return stretched
    for i, d in zip(read.at.index, dims, strict=True):
        if not (is_const(i, 0) and d == 1 if isinstance(i, n.Expr) else is_const(i.lo, 0) and i.step == 1 and i.extent == d):
            return stretched
    shape, whole = list(shape_of(stretched.type)), n.Load(n.Region(b))
    if shape == dims:
        return whole
    if len(dims) == 2 and shape == dims[::-1]:
        return build.call("trans", whole, build.const(1), build.const(0))
    return stretched


def _is_whole(e: n.Expr) -> bool:
    inner = e.args[0] if isinstance(e, n.Call) and e.fn == "trans" else e
    return isinstance(inner, n.Load) and inner.mask is None and not inner.at.index and any(is_const(d, 1) for d in inner.at.buffer.shape)


def _inlined(block: n.Block, uses: Counter[str]) -> n.Block:
    """The block with names of whole buffers that the next statement alone uses, and of reductions of them that it stores, left out."""
    out: list[n.Stmt] = []
    for s in block:
        while out and isinstance(before := out[-1], n.Let) and len(before.names) == 1 and uses[before.names[0]] == 1 and before.names[0] in names_read(
                s) and not blocks_of(s):
            stored = isinstance(s, n.Store) and s.mask is None and isinstance(s.value, n.Var) and isinstance(before.value, n.Call) and (
                before.value.fn == "reduce" and isinstance(x := before.value.args[0], n.Expr) and _is_whole(x))
            if not (_is_whole(before.value) or stored):
                break
            s = substitute(s, {before.names[0]: before.value})
            out.pop()
        out.append(within(s, lambda b: _inlined(b, uses)) if blocks_of(s) else s)
    return tuple(out)


def within(s: n.Stmt, fn: Callable[[n.Block], n.Block]) -> n.Stmt:
    """A statement with its blocks as `fn` makes them."""
    match s:
        case n.For() | n.While():
            return replace(s, body=fn(s.body))
        case n.If():
            return replace(s, then=fn(s.then), orelse=fn(s.orelse))
        case n.Roles():
            return replace(s, roles=tuple(replace(r, body=fn(r.body)) for r in s.roles))
        case _:
            return s
