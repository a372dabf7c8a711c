"""How many registers the values of a kernel take at once: tiles named by `let` that are read later, divided among the threads of their team."""
from __future__ import annotations

import math
from collections.abc import Mapping

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import TileType
from kir.ir.visit import substitute, walk

WORD = 4
"""Bytes of a register."""


def live_registers(block: n.Block, threads: int, values: Mapping[str, n.Expr]) -> int:
    """The most registers a thread that named tiles take at one place of a block, at these sizes (`values`): from where a tile is named to
    where it is last read. Tiles of indices and of conditions are computed again where they are read, and count nothing."""
    return _most(block, threads, values, 0)


def _most(block: n.Block, threads: int, values: Mapping[str, n.Expr], around: int) -> int:
    sizes = {name: size for s in block if isinstance(s, n.Let) for name, size in _words(s, threads, values)}
    last = {x.name: i for i, s in enumerate(block) for x in walk(s) if isinstance(x, n.Var) and x.name in sizes}
    live: set[str] = set()
    most = around
    for i, s in enumerate(block):
        held = around + sum(sizes[name] for name in live)
        most = max(most, held, *(_most(inner, max(1, team), values, held) for inner, team in _inner(s, threads)))
        live = {name for name in live if last[name] > i}
        if isinstance(s, n.Let):
            live |= {name for name in s.names if last.get(name, -1) > i}
    return most


def _inner(s: n.Stmt, threads: int) -> list[tuple[n.Block, int]]:
    """The blocks of a statement and the threads that run each together."""
    match s:
        case n.For():
            team = {"thread": 1, "warp": 32, "warpgroup": 128}.get(s.kind, threads)
            return [(s.body, team)]
        case n.While():
            return [(s.body, threads)]
        case n.If():
            return [(s.then, threads), (s.orelse, threads)]
        case n.Roles():
            return [(role.body, (role.hi - role.lo) * 32) for role in s.roles]
    return []


def _words(s: n.Let, threads: int, values: Mapping[str, n.Expr]) -> list[tuple[str, int]]:
    """The registers a thread of each float tile that a `let` names."""
    t = s.value.type
    if len(s.names) != 1 or not isinstance(t, TileType) or not t.dtype.is_float:
        return []
    extents = [d if isinstance(d, int) else int_value(substitute(d, values)) for d in t.shape]
    known = [d for d in extents if d is not None]
    return [(s.names[0], math.prod(known) * t.dtype.bytes // (WORD * threads))] if len(known) == len(extents) else []
