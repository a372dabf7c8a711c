"""Layouts as TileLang's own functions make them: swizzled rows of shared memory, fragments by a function of the index."""
from __future__ import annotations

from collections.abc import Mapping

from kir.analysis.tiles.fragments import STILL, Spread, layout_of, slot_of, spread
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import I32

from .expressions import Expressions, refuse

_BY_ROW = {128: (3, 4, 3), 64: (2, 4, 3), 32: (1, 4, 3)}
"""The swizzle of `make_swizzled_layout` by the bytes of a row."""
INDEX = ("i", "j", "k", "l", "m", "n")


def annotation(b: n.Buffer, name: str, to: Expressions) -> str:
    """The function that makes a buffer's layout. Raises KirError KIR-B302."""
    assert b.layout is not None
    row = int_value(b.shape[-1]) if b.shape else None
    if b.layout.name == "swizzle" and row is not None and b.space == "shared" and len(b.shape) > 1:
        width = row * b.dtype.bytes
        if b.layout.args == _BY_ROW.get(width if width in _BY_ROW else 128 if width % 128 == 0 else 0):
            return f"tilelang.layout.make_swizzled_layout({name})"
    if b.space == "fragment" and (made := _spread(b)) is not None:
        return _function(b, made, to)
    raise refuse("KIR-B302", f"TileLang has no function that makes this layout of '{b.name}'", "its own swizzle for these rows, or no layout")


def said(b: n.Buffer) -> n.Layout | None:
    """The layout of a fragment as a function of TileLang says it, by digits; others as they are."""
    made = _spread(b) if b.space == "fragment" else None
    return b.layout if made is None else layout_of(made.canonical)


def _spread(b: n.Buffer) -> Spread | None:
    """How a fragment is distributed over threads, each element to one; None for another layout."""
    shape = [int_value(d) for d in b.shape]
    known = [d for d in shape if d is not None]
    if b.layout is None or b.layout.name == "auto" or len(known) != len(shape) or len(known) > len(INDEX):
        return None
    try:
        made = spread(b.layout, known, b.dtype)
        slot_of(layout_of(made), known, b.dtype, [n.Const(0, I32) for _ in known])
    except KirError:
        return None
    return None if any(d.axis == STILL for d in (*made.threads, *made.slots)) else made


def _function(b: n.Buffer, made: Spread, to: Expressions) -> str:
    """`T.Fragment(shape, forward_fn=lambda i, j: (thread, slot))`."""
    index = [n.Var(f"%index {x}", I32) for x in INDEX[:len(made.shape)]]
    thread, slot = slot_of(layout_of(made), made.shape, b.dtype, index)
    names: Mapping[str, str] = {v.name: v.name.removeprefix("%index ") for v in index}
    inner = Expressions(names, to.facts)
    shape = f"({', '.join(map(str, made.shape))}{',' if len(made.shape) == 1 else ''})"
    return f"T.Fragment({shape}, forward_fn=lambda {', '.join(names.values())}: ({inner.text(thread)}, {inner.text(slot)}))"
