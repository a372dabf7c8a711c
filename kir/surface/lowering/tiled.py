"""Which kernels are written for tiles."""
from __future__ import annotations

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import TileType, shape_of
from kir.ir.visit import walk


def is_tiled(k: n.Kernel) -> bool:
    """Whether a kernel has statements of a team of several threads that only threads can be told of: tiles, fragments, atomics; or of one thread that scans a
    tile, which it does element by element."""
    return (int_value(k.threads) != 1 or any(isinstance(x, n.Call) and x.fn == "scan" and isinstance(x.type, TileType) for x in walk(k))) and _tiled(k.body)


def _tiled(body: n.Block) -> bool:
    for s in body:
        match s:
            case n.For() if s.kind == "thread":
                continue
            case n.For():
                if _tiled(s.body) or any(_has_tile(e) for e in (s.lo, s.hi)):
                    return True
            case n.Roles():
                if any(_tiled(r.body) for r in s.roles):
                    return True
            case n.If():
                if _tiled(s.then) or _tiled(s.orelse) or _has_tile(s.cond):
                    return True
            case n.While():
                if _tiled(s.body) or _has_tile(s.cond):
                    return True
            case n.Alloc() if s.buffer.space == "shared" and (s.init is None or not _has_tile(s.init)):
                continue
            case n.Alloc() if s.buffer.space == "fragment" or s.buffer.shape:
                return True
            case n.Mma() | n.Copy():
                return True
            case _:
                if _has_tile(s) or any(isinstance(x, n.Call) and x.fn.startswith("atomic_") for x in walk(s)):
                    return True
    return False


def _has_tile(x: n.Node) -> bool:
    return any(isinstance(y, n.Expr) and isinstance(y.type, TileType) for y in walk(x)) or (
        isinstance(x, n.Store) and bool(shape_of(x.at.type)))
