"""Vectors that a kernel reads both along rows and along columns of tiles, as in `x[i] - x[j]`.

TileLang gives each fragment one distribution over threads, which is that of the rows or that of the columns. What is read along the columns is read from a
copy in shared memory, which any thread reads anywhere.
"""
from __future__ import annotations

from dataclasses import replace

from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import TileType
from kir.ir.visit import blocks_of, transform, walk

from .unit_dimensions import within


def from_copies(k: n.Kernel) -> n.Kernel:
    """The kernel with what it reads in two directions copied to shared memory before it is read along columns."""
    taken = {a.name for a in k.grid} | set(bound_names(k.body))
    vectors = {x.buffer.name: x.buffer for x in walk(k) if isinstance(x, n.Region) and x.buffer.space == "fragment" and len(x.buffer.shape) == 1}
    turned = tuple(b for b in vectors.values() if any(_is_along_rows(x, b) for x in walk(k)))
    return replace(k, body=_block(k.body, turned, taken)) if turned else k


def _block(block: n.Block, turned: tuple[n.Buffer, ...], taken: set[str]) -> n.Block:
    out: list[n.Stmt] = []
    for s in block:
        if blocks_of(s):
            out.append(within(s, lambda inner: _block(inner, turned, taken)))
            continue
        for b in (b for b in turned if _is_across(s, b)):
            name = next(x for i in range(len(taken) + 1) if (x := f"{b.name}_shared{i or ''}") not in taken)
            taken.add(name)
            held = replace(b, name=name, space="shared")
            out += [n.Alloc(held), n.Store(n.Region(held), n.Load(n.Region(b)), origin=s.origin)]
            s = _across(s, b, held)
        out.append(s)
    return tuple(out)


def _is_across(s: n.Stmt, b: n.Buffer) -> bool:
    """Whether a statement of tiles reads a vector along their columns."""
    tiles = any(isinstance(x, (n.Expr, n.Region)) and isinstance(x.type, TileType) and len(x.type.shape) == 2 for x in walk(s))
    return tiles and sum(_is_along_rows(x, b) for x in walk(s)) < sum(_is_read(x, b) for x in walk(s))


def _across(s: n.Stmt, b: n.Buffer, held: n.Buffer) -> n.Stmt:
    """The statement with what it reads along columns read from a copy."""
    def leave(_: n.Node, new: n.Node) -> n.Node:
        if _is_read(new, b):
            return n.Load(n.Region(held))
        return replace(new, args=(n.Load(n.Region(b)),)) if isinstance(new, n.Call) and _is_along_rows(new, held) else new
    made: n.Stmt = transform(s, leave)
    return made


def _is_read(x: n.Node, b: n.Buffer) -> bool:
    return isinstance(x, n.Load) and x.at == n.Region(b) and x.mask is None


def _is_along_rows(x: n.Node, b: n.Buffer) -> bool:
    """Whether an expression puts a vector beside itself along a tile's columns, so that it is read along the rows."""
    return isinstance(x, n.Call) and x.fn == "expand" and len(x.args) == 1 and _is_read(x.args[0], b) and dict(x.attrs).get("axis") == 1
