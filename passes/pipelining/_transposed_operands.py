"""First operands that lie transposed, in panels of as many columns as a warpgroup has rows: each warpgroup reads its own panel."""
from __future__ import annotations

from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.paths import child_blocks, with_block
from kir.ir.visit import statements, walk
from kir.rewrite.match.slices import panel_view


def by_panel(block: n.Block, wg: n.Var) -> n.Block:
    """Operands that are the part of a view which is one panel, read from the panel; without the views that nothing reads then."""
    views = {s.buffer.name: s for s in statements(block) if isinstance(s, n.View)}

    def changed(s: n.Stmt) -> n.Block:
        if isinstance(s, n.Mma) and (place := _turned(s.a)) is not None and (view := views.get(place.buffer.name)) is not None:
            panel = _panel(view, place, wg)
            if panel is not None:
                return (replace(s, a=build.call("trans", n.Load(panel), build.const(1), build.const(0))),)
        return (s,)
    made = _mapped(block, changed)
    read = {x.buffer.name for s in statements(made) if not isinstance(s, n.View) for x in walk(s) if isinstance(x, n.Region)}
    return _mapped(made, lambda s: () if isinstance(s, n.View) and s.buffer.name not in read and s.axes else (s,)) if made != block else block


def by_view(block: n.Block, wg: n.Var, groups: int, taken: set[str]) -> n.Block:
    """Operands that are the panel with a warpgroup's number, read as a part of a view of all panels."""
    def changed(s: n.Stmt) -> n.Block:
        place = _turned(s.a) if isinstance(s, n.Mma) else None
        if place is None or not isinstance(s, n.Mma):
            return (s,)
        b = place.buffer
        sizes = [int_value(d) for d in b.shape]
        if len(sizes) != 3 or sizes[0] != groups or place != build.region(b, wg, build.span(0, b.shape[1]), build.span(0, b.shape[2])):
            return (s,)
        rows, width = sizes[1] or 0, sizes[2] or 0
        view = panel_view(replace(b, shape=(build.const(rows), build.const(groups * width))), b, width, taken)
        part = build.region(view.buffer, build.span(0, rows), build.span(build.mul(wg, width), width))
        return (view, replace(s, a=build.call("trans", n.Load(part), build.const(1), build.const(0))))
    return _mapped(block, changed)


def _turned(e: n.Expr) -> n.Region | None:
    """The place in shared memory of which an operand is the transpose."""
    if isinstance(e, n.Call) and e.of is None and e.fn == "trans" and isinstance(x := e.args[0], n.Load) and x.at.buffer.space == "shared" \
            and x.mask is None and [int_value(a) for a in e.args[1:] if isinstance(a, n.Expr)] == [1, 0]:
        return x.at
    return None


def _panel(view: n.View, place: n.Region, wg: n.Var) -> n.Region | None:
    """The panel that a part of a view is, where it is the one with the warpgroup's number."""
    b = view.at.buffer
    if len(view.axes) != 2 or len(b.shape) != 3:
        return None
    row, column = (n.Var(x, build.const(0).dtype) for x in view.axes)
    width = int_value(b.shape[2]) or 0
    if view.at != build.region(b, build.floordiv(column, width), row, build.mod(column, width)):
        return None
    if place != build.region(place.buffer, build.span(0, b.shape[1]), build.span(build.mul(wg, width), width)):
        return None
    return build.region(b, wg, build.span(0, b.shape[1]), build.span(0, b.shape[2]))


def _mapped(block: n.Block, changed: object) -> n.Block:
    assert callable(changed)
    out: list[n.Stmt] = []
    for s in block:
        for steps, inner in child_blocks(s):
            s = with_block(s, steps, _mapped(inner, changed))
        out += changed(s)
    return tuple(out)
