"""Arrays of a kernel of tiles, in shared memory or registers, that serve one purpose after another; and arrays with columns that nobody uses."""
from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import buffers_named, regions, statements

MOST_COLUMNS = 16
"""Columns at the end of each row that nobody uses and that are padding."""


def is_of_tiles(body: n.Block) -> bool:
    """Whether statements are of tiles, without threads, roles, or copies in flight of which another array's would know nothing."""
    return not any((isinstance(s, n.For) and s.kind == "thread") or isinstance(s, (n.Roles, n.Opaque, n.View, n.Jump)) or (
        isinstance(s, n.Copy) and (s.via != "plain" or s.signal is not None or s.grouped)) for s in statements(body))


def purposes(body: n.Block, b: n.Buffer) -> list[int]:
    """The statements of a kernel of tiles, from the second that uses an array on, that begin by writing all of it."""
    used = [k for k, s in enumerate(body) if not isinstance(s, n.Alloc) and b.name in buffers_named(s)]
    spare = unused_columns(body, b) if len(used) > 1 else 0
    return [k for k in used[1:] if fills_first(body[k], b, spare)]


def further_purposes(body: n.Block) -> int:
    """How many purposes arrays of a kernel of tiles have beyond their first."""
    held = [s.buffer for s in body if isinstance(s, n.Alloc) and s.buffer.space in ("shared", "fragment") and s.init is None and s.buffer.shape]
    return sum(len(purposes(body, b)) for b in held) if held and is_of_tiles(body) else 0


def fills_first(s: n.Stmt, b: n.Buffer, spare: int = 0) -> bool:
    """Whether what a statement does first with an array, in each round of a loop, is to write all of it, or all but its last `spare` columns."""
    match s:
        case n.For(body=body):
            first = next((x for x in body if b.name in buffers_named(x)), None)
            return first is not None and fills_first(first, b, spare)
        case n.Copy() if s.dst.buffer == b and s.mask is None and not s.clip and b.name not in buffers_named(s.src):
            return _is_whole(s.dst, spare)
        case n.Store() if s.at.buffer == b and s.mask is None and not s.clip and b.name not in buffers_named(s.value):
            return _is_whole(s.at, spare)
        case _:
            return False


def _is_whole(r: n.Region, spare: int) -> bool:
    """Whether a place is all of its array, or all but its last `spare` columns."""
    def along(i: n.Expr | n.Span, d: n.Expr, less: int) -> bool:
        if isinstance(i, n.Span):
            return build.is_const(i.lo, 0) and (build.int_value(d) or 0) - less == i.extent and i.step in (1, build.const(1))
        return build.is_const(d, 1) and build.is_const(i, 0)
    last = len(r.index) - 1
    return all(along(i, d, spare if k == last else 0) for k, (i, d) in enumerate(zip(r.index, r.buffer.shape, strict=False)))


def padded(body: n.Block) -> int:
    """How many arrays of shared memory have columns at their end that nobody uses."""
    held = [s.buffer for s in statements(body) if isinstance(s, n.Alloc) and s.buffer.space == "shared" and s.init is None and len(s.buffer.shape) > 1]
    return sum(bool(unused_columns(body, b)) for b in held)


def unused_columns(body: n.Block, b: n.Buffer) -> int:
    """How many columns at the end of an array's rows no access touches, where that is a padding; 0 where it has a layout, or accesses are not all at places
    that literals and the counters of loops say."""
    columns = build.int_value(b.shape[-1]) if len(b.shape) > 1 and b.space == "shared" else None
    if columns is None or b.layout is not None or b.strides is not None:
        return 0
    ends = {s.var.name: build.int_value(s.hi) for s in statements(body) if isinstance(s, n.For) and build.is_const(s.lo, 0)}
    used = 0
    for r in (r for s in body if b.name in buffers_named(s) for r in regions(s) if r.buffer.name == b.name):
        at = r.index[-1] if r.index else None
        lo = build.int_value(at.lo) if isinstance(at, n.Span) and at.step == 1 else None
        end = lo + at.extent if isinstance(at, n.Span) and lo is not None and isinstance(at.extent, int) else ends.get(at.name) if isinstance(
            at, n.Var) else None if not isinstance(at, n.Const) or not isinstance(at.value, int) else at.value + 1
        if end is None or end >= columns or (lo or 0) < 0:
            return 0
        used = max(used, end)
    return columns - used if used and columns - used <= MOST_COLUMNS else 0
