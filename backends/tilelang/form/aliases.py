"""Names of tiles that lie in shared memory as a whole: what reads the name reads the memory, of which TileLang's products take either operand."""
from __future__ import annotations

from dataclasses import replace

from kir.ir import nodes as n
from kir.ir.types import TileType
from kir.ir.visit import blocks_of, substitute, walk

from .unit_dimensions import within


def read_where_they_lie(k: n.Kernel) -> n.Kernel:
    """The kernel without names for whole shared buffers that are not written as long as the name is in view."""
    return replace(k, body=_block(k.body))


def _block(block: n.Block) -> n.Block:
    out: list[n.Stmt] = []
    for i, s in enumerate(block):
        if isinstance(s, n.Let) and (name := _whole(s.value)) is not None and not any(_writes(x, name) for x in block[i + 1:]):
            rest = tuple(substitute(x, {s.names[0]: s.value}) for x in block[i + 1:])
            return (*out, *_block(rest))
        out.append(within(s, _block) if blocks_of(s) else s)
    return tuple(out)


def _whole(e: n.Expr) -> str | None:
    """The shared buffer that a value is, as a whole."""
    whole = isinstance(e, n.Load) and isinstance(e.type, TileType) and e.at.buffer.space == "shared" and not e.at.index and e.mask is None
    return e.at.buffer.name if whole and isinstance(e, n.Load) else None


def _writes(s: n.Stmt, name: str) -> bool:
    """Whether a statement may write to a buffer: it stores or copies there, or takes it where it is no value."""
    read = sum(isinstance(x, n.Load) and x.at.buffer.name == name for x in walk(s))
    return sum(isinstance(x, n.Region) and x.buffer.name == name for x in walk(s)) > read
