"""What an expression or a statement mentions, worked out once: names of values, names of buffers, loads, calls that belong to threads.

The shapes of buffers are left out: they are over metas alone, and in generic programs they are long.
"""

from __future__ import annotations

from functools import lru_cache

from kir.base.dataclass import dataclass
from kir.base.instructions import table
from kir.ir import nodes as n
from kir.ir.types import TileType
from kir.ir.visit import children

OF_THREADS = frozenset({"mbar_arrive"})
"""Calls that each thread makes for itself, whatever its operands."""


@dataclass(frozen=True)
class Seen:
    """Names of variables read and of buffers; whether memory is read; whether lanes of a warp, or each thread alone, make a call."""

    names: frozenset[str] = frozenset()
    buffers: frozenset[str] = frozenset()
    loads: bool = False
    warps: bool = False


@lru_cache(maxsize=1 << 15)
def seen(x: n.Node) -> Seen:
    """What a node and everything below it mentions."""
    if isinstance(x, n.Buffer):
        return Seen(buffers=frozenset({x.name}))
    if isinstance(x, n.Var):
        return Seen(frozenset({x.name}))
    if isinstance(x, n.Opaque):
        return Seen(buffers=frozenset({*x.reads, *x.writes} - {"*"}))
    names: set[str] = set()
    buffers: set[str] = set()
    loads, warps = isinstance(x, n.Load), isinstance(x, n.Call) and warp_call(x)
    for c in children(x):
        if isinstance(x, n.For) and c is x.var:
            continue
        found = seen(c)
        names |= found.names
        buffers |= found.buffers
        loads, warps = loads or found.loads, warps or found.warps
    return Seen(frozenset(names), frozenset(buffers), loads, warps)


def warp_call(x: n.Call) -> bool:
    """Whether lanes of a warp make a call together, or it is an atomic of one place: both belong to threads. An atomic over a tile acts once
    on each of its elements, whoever holds them."""
    row = table().get(x.fn)
    if x.fn.startswith("atomic_"):
        return not any(isinstance(a.type, TileType) for a in x.args)
    return x.fn in OF_THREADS or (row is not None and row.level == "warp")
