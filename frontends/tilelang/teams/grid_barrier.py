"""`T.sync_grid()`: a barrier of all CTAs, as the end of one kernel and the beginning of the next.

Where nothing that a CTA holds lives across it, the kernels on its two sides, one after the other, do what one launch with a barrier does, and
need no launch that keeps every CTA resident. Another stays in its kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

from kir.ir import nodes as n
from kir.ir.visit import statements, walk

from ..values.names import GRID_BARRIER
from .mentions import seen


def divided(block: n.Block) -> Iterator[n.Block]:
    """The kernels that the barriers at the top of a block divide it into. One across which something of a CTA lives stays as it is, and says what."""
    for k, s in enumerate(block):
        if not (isinstance(s, n.Eval) and s.call.fn == GRID_BARRIER):
            continue
        before, after = block[:k], block[k + 1:]
        if any(isinstance(x, n.Jump) and x.kind == "return" for x in statements(before)):
            gone = n.Opaque("tilelang", "T.sync_grid()", "a barrier of the whole grid, across which threads that have returned live", origin=s.origin)
            yield from _with_rest((*before, gone), after)
            return
        if _kept(before, after):
            yield from _with_rest((*before, s), after)
            return
        first, second = _parted(before, after)
        yield first
        yield from divided(second)
        return
    yield block


def _with_rest(before: n.Block, after: n.Block) -> Iterator[n.Block]:
    rest = list(divided(after))
    yield (*before, *rest[0])
    yield from rest[1:]


def _kept(before: n.Block, after: n.Block) -> bool:
    """Whether a CTA holds something when it comes to the barrier and reads it behind: a buffer, or a value that was read from memory."""
    used = _buffers(after)
    values = _needed(before, after)
    for s in before:
        if isinstance(s, n.Alloc) and s.buffer.name in used and any(
                s.buffer.name in _buffers((x,)) for x in before if x is not s):
            return True
        if isinstance(s, n.Let) and any(x in values for x in s.names) and (seen(s.value).loads or any(isinstance(x, n.Call) for x in walk(s.value))):
            return True
    return False


def _parted(before: n.Block, after: n.Block) -> tuple[n.Block, n.Block]:
    """Both sides, each with the declarations and the arithmetic that it uses."""
    used, values = _buffers(after), _needed(before, after)
    moved = [s for s in before if (isinstance(s, n.Alloc) and s.buffer.name in used) or (isinstance(s, n.View) and s.buffer.name in used)
             or (isinstance(s, n.Let) and any(x in values for x in s.names))]
    own = tuple(s for s in before if not (isinstance(s, n.Alloc) and s.buffer.name in used))
    return own, (*moved, *after)


def names_in(s: n.Node) -> frozenset[str]:
    """The names that a statement mentions."""
    return frozenset(seen(s).names)


def _needed(before: n.Block, after: n.Block) -> set[str]:
    """The names that what stands after the barrier reads, and those that they are worked out from."""
    names = {x for s in after for x in names_in(s)}
    for s in reversed(before):
        if isinstance(s, n.Let) and any(x in names for x in s.names):
            names |= names_in(s)
    return names


def _buffers(block: n.Block) -> set[str]:
    return {x.name for s in block for x in walk(s) if isinstance(x, n.Buffer)}
