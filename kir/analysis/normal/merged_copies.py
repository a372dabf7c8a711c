"""Loops that move several things at a time, one loop for each: the tiles of A and of B in one unrolled loop are two tiles that are loaded.

What is moved comes from global memory and goes to different arrays of the CTA, so that no iteration sees what another one moved.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kir.ir import nodes as n
from kir.ir.types import TileType
from kir.ir.visit import buffers_named, names_read, substitute, walk


def one_move_each(loop: n.For, fresh: Callable[[str], str]) -> tuple[n.For, ...]:
    """A loop for each thing that a loop moves, in order; the loop itself where it is no such loop. `fresh` gives names that are not taken."""
    if loop.kind not in ("serial", "unroll"):
        return (loop,)
    moves = [s for s in loop.body if not isinstance(s, n.Let)]
    targets = {_target(s) for s in moves}
    if len(moves) < 2 or len(targets) < len(moves) or None in targets or not all(_is_index(s) for s in loop.body if isinstance(s, n.Let)):
        return (loop,)
    taken: set[str] = set()
    return tuple(_alone(loop, s, taken, fresh) for s in moves)


def _target(s: n.Stmt) -> str | None:
    """The shared array that a statement moves elements of global memory to; None for another statement."""
    match s:
        case n.Copy(src=n.Load() as value, dst=at, signal=None):
            pass
        case n.Store(at=at, value=n.Load() as value):
            pass
        case _:
            return None
    read = {x.buffer.space for x in walk(s) if isinstance(x, n.Region) and x != at}
    called = any(isinstance(x, n.Call) for x in walk(s))
    return at.buffer.name if at.buffer.space == "shared" and value.at.buffer.space == "global" and read == {"global"} and not called else None


def _is_index(s: n.Let) -> bool:
    return len(s.names) == 1 and not isinstance(s.value.type, TileType) and not any(isinstance(x, (n.Load, n.Call, n.Region)) for x in walk(s.value))


def _alone(loop: n.For, move: n.Stmt, taken: set[str], fresh: Callable[[str], str]) -> n.For:
    """The loop with one of its moves and the names that this one needs; those that are taken by loops before are others now."""
    needed, body = names_read(move) | buffers_named(move), [move]
    for s in reversed(loop.body):
        if isinstance(s, n.Let) and needed & set(s.names):
            needed |= names_read(s.value)
            body.insert(0, s)
    var = n.Var(fresh(loop.var.name), loop.var.of) if loop.var.name in taken else loop.var
    renamed: dict[str, n.Expr] = {loop.var.name: var} if var != loop.var else {}
    taken.add(loop.var.name)
    made: list[n.Stmt] = []
    for s in body:
        again: n.Stmt = substitute(s, renamed) if renamed else s
        if isinstance(again, n.Let):
            (name,) = again.names
            if name in taken:
                other = n.Var(fresh(name), again.value.type)
                renamed[name], again = other, replace(again, names=(other.name,))
            taken.add(name)
        made.append(again)
    return replace(loop, var=var, body=tuple(made), label=loop.label if var == loop.var else None)

