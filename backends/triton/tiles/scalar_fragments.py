"""Fragments of one element as scalars: other surfaces have none but in arrays, and Triton has no parts of a tile."""
from __future__ import annotations

from dataclasses import replace

from kir.ir import nodes as n
from kir.ir.build import is_const
from kir.ir.visit import statements, transform, walk


def with_scalars(k: n.Kernel) -> n.Kernel:
    """The kernel with each fragment of one element that is only used by its element as a scalar of the team. Read back, that is what it is."""
    alone = {s.buffer.name for s in statements(k.body) if isinstance(s, n.Alloc) and s.buffer.space in ("fragment", "register") and s.buffer.shape
             and s.buffer.layout is None and all(is_const(d, 1) for d in s.buffer.shape) and (s.init is None or isinstance(s.init, n.Const))}
    if not alone:
        return k
    alone -= {x.buffer.name for x in walk(k) if isinstance(x, n.Region) and not (x.index and all(isinstance(i, n.Expr) and is_const(i, 0) for i in x.index))}
    alone -= {x.acc.buffer.name for x in walk(k) if isinstance(x, n.Mma)}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Buffer() if new.name in alone:
                return replace(new, shape=(), space="register")
            case n.Region() if new.buffer.name in alone:
                return n.Region(new.buffer)
            case _:
                return new
    made: n.Kernel = transform(k, leave) if alone else k
    return made
