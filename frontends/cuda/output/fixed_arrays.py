"""Arrays whose elements are values that never change, as those values: the members of an object that host code passes (`sizes[2]` of a tensor)."""

from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import buffers_named, children, transform, walk


def without_fixed(body: list[n.Stmt]) -> list[n.Stmt]:
    """Statements in which a private array that is written once, an element after the other right where it is declared, and read at numbers alone gives way
    to what was written."""
    out, rest = [], list(body)
    while rest:
        s = rest.pop(0)
        values = _written(s, rest) if isinstance(s, n.Alloc) else ()
        if isinstance(s, n.Alloc) and values and all(_only_read(t, s.buffer, len(values)) for t in rest[len(values):]):
            rest = [_with(t, s.buffer, values) for t in rest[len(values):]]
        else:
            out.append(s)
    return out


def _written(s: n.Alloc, rest: list[n.Stmt]) -> tuple[n.Expr, ...]:
    """The values that the statements after a declaration store to its elements in order; () where they do not."""
    b = s.buffer
    extent = build.int_value(b.shape[0]) if len(b.shape) == 1 and b.space == "register" and s.init is None else None
    stores = rest[:extent] if extent is not None else []
    if not stores or len(stores) != extent:
        return ()
    values = [t.value for k, t in enumerate(stores) if isinstance(t, n.Store) and t.at == build.region(b, build.const(k)) and t.mask is None and not t.clip]
    fixed = not any(isinstance(x, n.Load | n.Call | n.Region) for v in values for x in walk(v))
    return tuple(values) if fixed and len(values) == extent else ()


def _only_read(x: n.Node, b: n.Buffer, extent: int) -> bool:
    """Whether every use of an array is a load of an element whose number is known."""
    if b.name not in buffers_named(x):
        return True
    if isinstance(x, n.Load) and x.at.buffer.name == b.name:
        at = build.int_value(x.at.index[0]) if len(x.at.index) == 1 and isinstance(x.at.index[0], n.Expr) else None
        return x.mask is None and not x.clip and at is not None and 0 <= at < extent
    return not (isinstance(x, n.Buffer) and x.name == b.name) and all(_only_read(c, b, extent) for c in children(x))


def _with(s: n.Stmt, b: n.Buffer, values: tuple[n.Expr, ...]) -> n.Stmt:
    def put(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Load) and new.at.buffer.name == b.name and isinstance(new.at.index[0], n.Expr):
            return values[build.int_value(new.at.index[0]) or 0]
        return new

    made: n.Stmt = transform(s, put, lambda x: b.name in buffers_named(x))
    return made
