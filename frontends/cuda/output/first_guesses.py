"""What a loop around a compare-and-swap guesses first: `old = *p; do { assumed = old; old = atomicCAS(p, assumed, ..); } while (..)`.

Others may be updating the place while it is read; a guess that is stale is found out by the swap. So the read is one that may meet updates, as C++ says
with `volatile`: CUDA's own guide writes it plainly (CUDA C++ Programming Guide, atomic functions).
"""

from __future__ import annotations

from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import transform, walk


def guessed(body: n.Block) -> n.Block:
    """A body with such reads marked."""
    views = {s.buffer.name: s.at.buffer.name for top in body for s in walk(top) if isinstance(s, n.View) and not s.at.index}
    swaps = [x for s in body for x in walk(s) if isinstance(x, n.Call) and x.fn == "atomic_cas" and x.of is None]
    return tuple(transform(s, lambda old, new: _inside(new, views)) for s in body) if swaps else body


def _inside(node: n.Node, views: dict[str, str]) -> n.Node:
    for name in ("body", "then", "orelse"):
        block = getattr(node, name, None)
        if isinstance(block, tuple) and any(isinstance(s, n.While) for s in block):
            node = replace(node, **{name: _block(block, views)})  # type: ignore[type-var]  # every node with blocks is a dataclass
    return node


def _block(body: n.Block, views: dict[str, str]) -> n.Block:
    out = list(body)
    for k, s in enumerate(body):
        if not isinstance(s, n.While):
            continue
        for swap, held in _swaps(s):
            for i in range(k - 1, -1, -1):
                if (made := _marked(out[i], held, swap, views)) is not None:
                    out[i] = made
                if _sets(out[i], held):
                    break
    return tuple(out)


def _swaps(loop: n.While) -> list[tuple[n.Region, str]]:
    """The places that a loop swaps, each with the register that holds what it expects there."""
    lets = {name: s.value for s in loop.body if isinstance(s, n.Let) for name in s.names}
    found = []
    for s in loop.body:
        for x in walk(s):
            if isinstance(x, n.Call) and x.fn == "atomic_cas" and isinstance(x.args[0], n.Region) and x.args[0].buffer.space == "global":
                expected = _bare(x.args[1])
                expected = _bare(lets[expected.name]) if isinstance(expected, n.Var) and expected.name in lets else expected
                if isinstance(expected, n.Load) and expected.at.buffer.space == "register" and not expected.at.index:
                    found.append((x.args[0], expected.at.buffer.name))
    return found


def _bare(e: n.Node) -> n.Node:
    while isinstance(e, n.Cast):
        e = e.x
    return e


def _sets(s: n.Stmt, name: str) -> bool:
    return (isinstance(s, n.Alloc) and s.buffer.name == name) or (isinstance(s, n.Store) and s.at.buffer.name == name)


def _marked(s: n.Stmt, held: str, swap: n.Region, views: dict[str, str]) -> n.Stmt | None:
    """A statement that sets the register to what stands at the place, marked; None for any other."""
    value = s.init if isinstance(s, n.Alloc) and s.buffer.name == held else s.value if isinstance(s, n.Store) and s.at.buffer.name == held else None
    read = None if value is None else _bare(value)
    if not isinstance(read, n.Load) or read.cache or read.mask is not None or read.at.index != swap.index:
        return None
    here, there = (views.get(b.name, b.name) for b in (read.at.buffer, swap.buffer))
    if here != there or dtype_of(read.at.type).bits != dtype_of(swap.type).bits:
        return None

    def leave(old: n.Node, new: n.Node) -> n.Node:
        return build.load(read.at, cache="volatile") if old == read else new
    made: n.Stmt = transform(s, leave)
    return made
