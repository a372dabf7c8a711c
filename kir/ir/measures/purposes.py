"""Arrays of a kernel of tiles, in shared memory or registers, that serve one purpose after another."""
from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import buffers_named, statements


def is_of_tiles(body: n.Block) -> bool:
    """Whether statements are of tiles, without threads, roles, or copies in flight of which another array's would know nothing."""
    return not any((isinstance(s, n.For) and s.kind == "thread") or isinstance(s, (n.Roles, n.Opaque, n.View, n.Jump)) or (
        isinstance(s, n.Copy) and (s.via != "plain" or s.signal is not None or s.grouped)) for s in statements(body))


def purposes(body: n.Block, b: n.Buffer) -> list[int]:
    """The statements of a kernel of tiles, from the second that uses an array on, that begin by writing all of it."""
    used = [k for k, s in enumerate(body) if not isinstance(s, n.Alloc) and b.name in buffers_named(s)]
    return [k for k in used[1:] if fills_first(body[k], b)]


def further_purposes(body: n.Block) -> int:
    """How many purposes arrays of a kernel of tiles have beyond their first."""
    held = [s.buffer for s in body if isinstance(s, n.Alloc) and s.buffer.space in ("shared", "fragment") and s.init is None and s.buffer.shape]
    return sum(len(purposes(body, b)) for b in held) if held and is_of_tiles(body) else 0


def fills_first(s: n.Stmt, b: n.Buffer) -> bool:
    """Whether what a statement does first with an array, in each round of a loop, is to write all of it."""
    match s:
        case n.For(body=body):
            first = next((x for x in body if b.name in buffers_named(x)), None)
            return first is not None and fills_first(first, b)
        case n.Copy() if s.dst.buffer == b and s.mask is None and not s.clip and b.name not in buffers_named(s.src):
            return _is_whole(s.dst)
        case n.Store() if s.at.buffer == b and s.mask is None and not s.clip and b.name not in buffers_named(s.value):
            return _is_whole(s.at)
        case _:
            return False


def _is_whole(r: n.Region) -> bool:
    """Whether a place is all of its array."""
    def along(i: n.Expr | n.Span, d: n.Expr) -> bool:
        if isinstance(i, n.Span):
            return build.is_const(i.lo, 0) and build.int_value(d) == i.extent and i.step in (1, build.const(1))
        return build.is_const(d, 1) and build.is_const(i, 0)
    return all(along(i, d) for i, d in zip(r.index, r.buffer.shape, strict=False))
