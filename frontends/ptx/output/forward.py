"""What a register was given, in place of reading it: as far as nothing has changed it in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import statements, transform, walk

N = TypeVar("N", bound=n.Node)


def forwarded(body: n.Block) -> n.Block:
    """A body whose scalar registers are read only where their value is not a name already."""
    return _block(body, {})


def _block(body: n.Block, held: dict[str, n.Expr]) -> n.Block:
    out: list[n.Stmt] = []
    for s in body:
        match s:
            case n.If():
                s = replace(s, cond=_put(s.cond, held))
                then, orelse = _block(s.then, dict(held)), _block(s.orelse, dict(held))
                out.append(replace(s, then=then, orelse=orelse))
                _forget(s, held)
            case n.While() | n.For():
                _forget(s, held)
                head: n.For | n.While = _put(replace(s, body=()), held)
                out.append(replace(head, body=_block(s.body, dict(held))))
            case n.Store():
                s = _put(s, held)
                out.append(s)
                b = s.at.buffer
                if b.space == "register":
                    plain = not b.shape and not s.at.index and s.mask is None and dtype_of(s.value.type) == b.dtype
                    if plain and _short(s.value):
                        held[b.name] = s.value
                    else:
                        held.pop(b.name, None)
            case _:
                s = _put(s, held)
                out.append(s)
                _forget(s, held)
    return tuple(out)


def _short(e: n.Expr) -> bool:
    """Whether a value is as good as a name: made of a few names, without memory."""
    return all(count < 8 and not isinstance(x, (n.Load, n.Call)) for count, x in enumerate(walk(e)))


def _forget(s: n.Stmt, held: dict[str, n.Expr]) -> None:
    """Registers that a statement may change."""
    for x in statements((s,)):
        match x:
            case n.Store():
                held.pop(x.at.buffer.name, None)
            case n.Copy():
                held.pop(x.dst.buffer.name, None)
            case n.Eval() | n.Let():
                for y in walk(x):
                    if isinstance(y, n.Call) and y.fn not in ("pick", "pack", "unpack"):
                        for z in y.args:
                            if isinstance(z, n.Region):
                                held.pop(z.buffer.name, None)
            case n.Opaque():
                held.clear()
            case _:
                pass


def _put(x: N, held: Mapping[str, n.Expr]) -> N:
    if not held or not any(isinstance(y, n.Load) and y.at.buffer.name in held for y in walk(x)):
        return x

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Load) and new.at.buffer.name in held and not new.at.index and new.mask is None:
            return held[new.at.buffer.name]
        return new

    made: N = transform(x, leave)
    return made


__all__ = ["forwarded"]
