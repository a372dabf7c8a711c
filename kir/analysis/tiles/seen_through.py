"""Views of other elements (gathers such as those of a convolution) seen through: what is read of them is read of what they view, element by element."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.paths import child_blocks, with_block
from kir.ir.types import TileType, dtype_of
from kir.ir.visit import statements, substitute, transform, walk


def gathered(view: n.View, e: n.Load) -> n.Load:
    """A load of a view with axes as a load of what it views. Reads outside what is viewed give the view's fill; a load that is clipped to the view is
    masked to it, and gives its own value outside, which must be the fill then. Raises ValueError where it is another."""
    index = e.at.index or tuple(build.span(0, d) for d in view.buffer.shape)
    spans = [a for a, i in enumerate(index) if isinstance(i, n.Span)]
    places: dict[str, n.Expr] = {}
    mask = e.mask
    for axis, (name, i, size) in enumerate(zip(view.axes, index, view.buffer.shape, strict=True)):
        place: n.Expr
        if isinstance(i, n.Expr):
            place = i
        else:
            place = build.add(build.broadcast(i.lo, TileType(dtype_of(i.lo.type), (i.extent,))), build.mul(build.iota(i.extent), i.step))
            for other in range(len(spans)):
                if spans[other] != axis:
                    place = build.expand(place, other)
        places[name] = place
        if e.clip:
            inside = build.below(place, size)
            mask = inside if mask is None else build.logical_and(mask, inside)
    if e.clip and e.other is not None and view.fill is not None and e.other != view.fill:
        raise ValueError(f"outside of '{view.buffer.name}' it gives another value than the view where it shows nothing")
    at: n.Region = substitute(view.at, places)
    return n.Load(at, mask, e.other if e.other is not None else view.fill, view.fill is not None, e.cache)


def seen_through(program: n.Program) -> n.Program:
    """The program with its reads of views of other elements in global memory written as reads of what they view; copies by the tensor memory accelerator,
    which shows such views itself, stay. Views that nothing reads any more stay where they are declared. Reads that cannot be written so stay too."""
    kernels = []
    for k in program.kernels:
        views = {s.buffer.name: s for s in statements(k.body) if isinstance(s, n.View) and s.axes and s.buffer.space == s.at.buffer.space == "global"}
        kernels.append(replace(k, body=_block(k.body, views)) if views else k)
    return replace(program, kernels=tuple(kernels)) if tuple(kernels) != program.kernels else program


def without_idle_views(program: n.Program) -> n.Program:
    """The program without the views of other elements that nothing uses."""
    def kept(block: n.Block, used: frozenset[str]) -> n.Block:
        out: list[n.Stmt] = []
        for s in block:
            for steps, inner in child_blocks(s):
                s = with_block(s, steps, kept(inner, used))
            if not (isinstance(s, n.View) and s.axes and s.buffer.name not in used):
                out.append(s)
        return tuple(out)
    kernels = []
    for k in program.kernels:
        used = frozenset(x.buffer.name for x in walk(k) if isinstance(x, n.Region))
        idle = any(isinstance(s, n.View) and s.axes and s.buffer.name not in used for s in statements(k.body))
        kernels.append(replace(k, body=kept(k.body, used)) if idle else k)
    return replace(program, kernels=tuple(kernels)) if tuple(kernels) != program.kernels else program


def _block(block: n.Block, views: dict[str, n.View]) -> n.Block:
    out: list[n.Stmt] = []
    for s in block:
        for steps, inner in child_blocks(s):
            s = with_block(s, steps, _block(inner, views))
        out.append(_statement(s, views) if isinstance(s, n.Let | n.Store | n.Mma | n.Copy | n.Eval) else s)
    return tuple(out)


def _statement(s: n.Stmt, views: dict[str, n.View]) -> n.Stmt:
    if not _reads(s, views) or (isinstance(s, n.Copy) and s.via != "plain"):
        return s

    def leave(old: n.Node, new: n.Node) -> n.Node:
        return gathered(views[new.at.buffer.name], new) if isinstance(new, n.Load) and new.at.buffer.name in views else new
    try:
        if isinstance(s, n.Copy):
            value: n.Expr = transform(s.src, leave)
            return n.Store(s.dst, value, s.mask, s.clip, label=s.label, origin=s.origin)
        made: n.Stmt = transform(s, leave)
    except ValueError:
        return s
    return made


def _reads(s: n.Node, names: Iterable[str]) -> bool:
    return any(isinstance(x, n.Load) and x.at.buffer.name in names for x in walk(s))
