"""Vectors that a thread puts together element by element, as the operation on vectors that it is: `c[0] = a[0] + b[0]`, and so on, is `c = a + b`."""
from __future__ import annotations

from collections.abc import Callable

from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType, shape_of
from kir.ir.visit import buffers_named, transform, walk

WIDTHS = (2, 4, 8)


def side_by_side(e: n.Call) -> n.Expr:
    """A vector put together from the same operation on each element of others, as the operation on these: `vec(pick(a, 0) + x, pick(a, 1) + x)` is
    `a + x`. Any other is left as it is."""
    parts = [a for a in e.args if isinstance(a, n.Expr)]
    whole: list[n.Expr] = []
    for k, part in enumerate(parts):
        def leave(old: n.Node, new: n.Node, k: int = k) -> n.Node:
            if not (isinstance(new, n.Call) and new.fn == "pick" and len(new.args) == 2):
                return new
            source, at = new.args
            mine = isinstance(source, n.Expr) and isinstance(at, n.Expr) and build.is_const(at, k) and shape_of(source.type) == (len(parts),)
            return source if mine else new
        made: n.Expr = transform(part, leave)
        whole.append(made)
        if made != whole[0] or any(isinstance(x, (n.Load, n.Call)) and not _is_elementwise(x) for x in walk(made)):
            return e
    try:
        return whole[0] if whole and whole[0].type == e.type else e
    except TypeError:
        return e


def _is_elementwise(x: n.Node) -> bool:
    return isinstance(x, n.Call) and x.of is None and instruction(x.fn).level == "element" and not instruction(x.fn).effect


def put_together(block: n.Block, fresh: Callable[[str], str]) -> n.Block:
    """The block with arrays of a thread that are set element by element, each once and from its own old value at most, and only read from then on,
    as vectors. `fresh` makes a name."""
    out = list(block)
    for i in range(len(block) - 1, -1, -1):
        s = out[i]
        if isinstance(s, n.Alloc) and s.buffer.space == "register" and len(s.buffer.shape) == 1 and build.int_value(s.buffer.shape[0]) in WIDTHS:
            made = _vector(s, out[i + 1:], fresh)
            if made is not None:
                out[i:] = made
    return tuple(out)


def _vector(s: n.Alloc, rest: list[n.Stmt], fresh: Callable[[str], str]) -> list[n.Stmt] | None:
    b, width = s.buffer, build.int_value(s.buffer.shape[0]) or 0
    if s.init is not None and not (isinstance(s.init.type, TileType) and shape_of(s.init.type) == (width,)):
        return None
    values: dict[int, n.Expr] = {}
    for store in rest[:width]:
        at = build.int_value(store.at.index[0]) if isinstance(store, n.Store) and len(store.at.index) == 1 and isinstance(store.at.index[0], n.Expr) else None
        if not isinstance(store, n.Store) or store.at.buffer != b or at is None or at in values or store.mask is not None:
            return None
        own, old = sum(isinstance(x, n.Region) and x.buffer == b for x in walk(store.value)), n.Load(build.region(b, at))
        if own != sum(x == old for x in walk(store.value)) or (own and s.init is None):
            return None
        values[at] = store.value
    if sorted(values) != list(range(width)):
        return None
    before = n.Var(fresh(b.name), TileType(b.dtype, (width,)))
    parts: list[n.Expr] = []
    for k in range(width):
        old, now = n.Load(build.region(b, k)), build.call("pick", before, build.const(k))
        parts.append(_with(values[k], old, now))
    value = side_by_side(n.Call("vec", tuple(parts)))
    if isinstance(value, n.Call) and value.fn == "vec":
        return None
    name = n.Var(b.name, before.of)
    after: list[n.Stmt] = []
    for r in rest[width:]:
        if b.name in buffers_named(r):
            places = sum(isinstance(x, n.Region) and x.buffer.name == b.name for x in walk(r))
            reads = [x for x in walk(r) if isinstance(x, n.Load) and x.at.buffer == b and x.mask is None and all(
                isinstance(i, n.Expr) and not isinstance(i.type, TileType) for i in x.at.index)]
            if len(reads) != places:
                return None
            r = transform(r, lambda x, y: y if not (isinstance(y, n.Load) and y.at.buffer == b) else name if not y.at.index else build.call(
                "pick", name, *(i for i in y.at.index if isinstance(i, n.Expr))))
        after.append(r)
    first: list[n.Stmt] = [] if s.init is None else [n.Let((before.name,), s.init, label=s.label, origin=s.origin)]
    return [*first, n.Let((b.name,), value, label=None if first else s.label, origin=s.origin), *after]


def _with(e: n.Expr, old: n.Expr, new: n.Expr) -> n.Expr:
    """An expression with another one in the place of `old`."""
    made: n.Expr = transform(e, lambda x, y: new if y == old else y)
    return made
