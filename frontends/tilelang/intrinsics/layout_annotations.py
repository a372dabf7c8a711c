"""`T.annotate_layout`: which layout a buffer is given."""

from __future__ import annotations

from kir.base.diagnostic import error
from kir.ir import nodes as n

from ..state.layouts import SHARED
from ..state.reader import Reader, Refused
from ..values.values import LayoutOf, Memory, NotUnderstood, Place, Table, Value, describe


def annotated_layouts(r: Reader, v: Value) -> None:
    """`T.annotate_layout({buffer: layout})`. Two different layouts for one buffer are refused with both places."""
    v = r.decided(v)
    if not isinstance(v, Table):
        raise NotUnderstood(f"layouts given by {describe(v)}")
    for key, layout in v.items:
        key, layout = r.decided(key), r.decided(layout)
        if not isinstance(key, (Memory, Place)):
            raise NotUnderstood(f"a layout of {describe(key)}")
        if not isinstance(layout, LayoutOf):
            layout = LayoutOf("function", (layout,), (), r.out.origin)
        _annotate(r, key.buffer, layout)


def _annotate(r: Reader, buffer: n.Buffer, layout: LayoutOf) -> None:
    memory = r.aliases.get(buffer.name, buffer.name)
    held = r.layouts.get(memory)
    if held is not None and _differ(held, layout):
        place = f" (line {held.origin.line})" if held.origin is not None else ""
        raise Refused(error(
            "KIR-F401", f"'{memory}' is given two layouts: {_said(held)}{place}, and {_said(layout)}", origin=layout.origin,
            needs="one layout for a buffer", notes=(f"the first is given{place or ' before'}",)))
    if memory != buffer.name:
        if held is None:
            raise NotUnderstood(f"a layout of '{buffer.name}', which is another form of '{memory}'")
        return
    r.layouts[buffer.name] = layout
    if buffer.space == "fragment":
        from .fragment_layouts import fragment_layout

        made = fragment_layout(r, buffer, layout)
        if made is not None:
            r.distributed[buffer.name] = made


def _differ(a: LayoutOf, b: LayoutOf) -> bool:
    if a.word != b.word:
        return True
    return a.word not in SHARED and (a.args, a.named) != (b.args, b.named)


def _said(a: LayoutOf) -> str:
    return a.word.removeprefix("make_").replace("_", " ")
