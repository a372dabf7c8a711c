"""Views of pixels by taps and channels beside the copies that read them: `T.im2col` says both."""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.tiles.mapped_views import pixels
from kir.ir import nodes as n
from kir.ir.paths import child_blocks, with_block
from kir.ir.visit import statements, substitute_buffers, walk
from kir.rewrite.edit import fresh


def beside_copies(k: n.Kernel, taken: set[str]) -> n.Kernel:
    """The kernel with each such view right before what is expected of the copy that reads it, one for each copy; views that others read stay."""
    views = {s.buffer.name: s for s in statements(k.body) if isinstance(s, n.View) and s.axes and s.buffer.space == "global" and pixels(s) is not None}
    reads = [x.at.buffer.name for s in statements(k.body) for x in walk(s) if isinstance(x, n.Load) and x.at.buffer.name in views and not child_blocks(s)]
    copies = [s.src.at.buffer.name for s in statements(k.body) if isinstance(s, n.Copy) and s.signal is not None and s.src.at.buffer.name in views]
    only = {name: views[name] for name in views if name in copies and reads.count(name) == copies.count(name)}
    return replace(k, body=_block(k.body, only, set(), taken)) if only else k


def _block(block: n.Block, views: dict[str, n.View], used: set[str], taken: set[str]) -> n.Block:
    out: list[n.Stmt] = []
    for s in block:
        if isinstance(s, n.View) and s.buffer.name in views:
            continue
        for steps, inner in child_blocks(s):
            s = with_block(s, steps, _block(inner, views, used, taken))
        view = views.get(s.src.at.buffer.name) if isinstance(s, n.Copy) else None
        if view is not None:
            if view.buffer.name in used:
                other = replace(view.buffer, name=fresh(view.buffer.name, taken))
                s, view = substitute_buffers(s, {view.buffer.name: other}), replace(view, buffer=other)
            used.add(view.buffer.name)
            expected = bool(out) and isinstance(out[-1], n.Eval) and out[-1].call.fn == "mbar_expect"
            out.insert(len(out) - expected, view)
        out.append(s)
    return tuple(out)
