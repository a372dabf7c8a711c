"""Fragments of which each thread has one row, as arrays of each thread: `T.alloc_local`, whose elements lie next to one another."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.ir.visit import blocks_of, statements, substitute_buffers, transform, walk

WARP = 32


def own_rows(k: n.Kernel) -> n.Kernel:
    """The kernel with each fragment whose first axis is the CTA's threads, and of which threads touch nothing but their own row, as rows of their own."""
    rows = {s.buffer.name: s.buffer for s in statements(k.body) if isinstance(s, n.Alloc) and s.buffer.space == "fragment" and len(s.buffer.shape) > 1
            and s.buffer.shape[0] == k.threads and s.init is None and s.buffer.layout is None and s.buffer.strides is None}
    if not rows:
        return k
    for at, own in _mentions(k.body, None, 0):
        b = at.buffer
        if b.name in rows and (own is None or not at.index or at.index[0] != own):
            del rows[b.name]
    if not rows:
        return k
    views = {s.buffer.name: replace(s.buffer, space="register") for s in statements(k.body) if isinstance(s, n.View) and s.at.buffer.name in rows}
    locals_ = {name: replace(b, space="register", shape=b.shape[1:]) for name, b in rows.items()}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Region) and new.buffer.name in rows:
            own, index = locals_[new.buffer.name], new.index[1:]
            whole = len(index) == len(own.shape) and all(
                isinstance(i, n.Span) and build.is_const(i.lo, 0) and i.step == 1 and i.extent == d.dimension for i, d in zip(index, own.shape, strict=True))
            return n.Region(own, () if whole else index)
        if isinstance(new, n.Alloc) and new.buffer.name in rows:
            return replace(new, buffer=locals_[new.buffer.name])
        return new
    made: n.Kernel = transform(k, leave, lambda x: not isinstance(x, n.Buffer))
    return replace(made, body=tuple(substitute_buffers(s, views) for s in made.body)) if views else made


def _mentions(block: n.Block, own: n.Expr | None, base: int) -> Iterator[tuple[n.Region, n.Expr | None]]:
    """Each place that statements mention, with the number of the thread in its CTA that does (None: the team); `base` is the first thread of the role."""
    for s in block:
        match s:
            case n.Roles():
                for r in s.roles:
                    yield from _mentions(r.body, own, r.lo * WARP)
                continue
            case n.For() if s.kind == "thread":
                yield from _mentions(s.body, build.add(n.Var(s.var.name, I32), base), base)
                continue
            case n.For():
                parts: tuple[n.Node, ...] = (s.lo, s.hi, s.step)
            case n.If() | n.While():
                parts = (s.cond,)
            case n.Alloc():
                parts = () if s.init is None else (s.init,)
            case _:
                parts = (s,)
        for x in (x for part in parts for x in walk(part)):
            if isinstance(x, n.Region):
                yield x, own
        for inner in blocks_of(s):
            yield from _mentions(inner, own, base)
