"""Layouts as TileLang says them: swizzled and plain shared memory, fragments and loops by functions."""

from __future__ import annotations

import libcst as cst

from kir.diagnostic import error
from kir.ir import build
from kir.ir import nodes as n

from .reader import Reader, Refused
from .values import LayoutOf, Memory, NotUnderstood, Place, Signature, Table, Value, describe

SHARED = frozenset({"make_swizzled_layout", "make_linear_layout", "make_full_bank_swizzled_layout", "make_half_bank_swizzled_layout",
                    "make_quarter_bank_swizzled_layout", "make_wgmma_swizzled_layout", "make_volta_swizzled_layout"})
BANKS = {"make_full_bank_swizzled_layout": 3, "make_half_bank_swizzled_layout": 2, "make_quarter_bank_swizzled_layout": 1}


def layout_word(r: Reader, word: str, given: Signature, e: cst.CSTNode) -> Value:
    """A layout as the source makes it."""
    return LayoutOf(word, tuple(given.args), tuple(given.named.items()), r.out.origin)


def loop_layout(r: Reader, named: dict[str, Value]) -> n.Attrs:
    """What `T.Parallel` is told besides its extents: a width of accesses. How a loop is dealt to threads is left to the lowering."""
    width = r.known_int(named["coalesced_width"]) if named.get("coalesced_width") is not None else None
    unknown = set(named) - {"coalesced_width", "loop_layout", "annotations", "prefer_async"}
    if unknown:
        raise NotUnderstood(f"'{sorted(unknown)[0]}' of T.Parallel")
    return n.attrs(coalesced_width=width) if width is not None else ()


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
        from .spreads import fragment_layout

        made = fragment_layout(r, buffer, layout)
        if made is not None:
            r.dealt[buffer.name] = made


def _differ(a: LayoutOf, b: LayoutOf) -> bool:
    if a.word != b.word:
        return True
    return a.word not in SHARED and (a.args, a.named) != (b.args, b.named)


def _said(a: LayoutOf) -> str:
    return a.word.removeprefix("make_").replace("_", " ")


def laid_out(r: Reader, body: n.Block) -> n.Block:
    """The body with annotated layouts on the declarations that have them."""
    from kir.ir.visit import substitute_buffers

    changed: dict[str, n.Buffer] = {}
    for s in _allocs(body):
        layout = r.layouts.get(s.buffer.name)
        made = r.dealt.get(s.buffer.name) or (memory_layout(s.buffer, layout) if layout is not None else None)
        if made is not None:
            from dataclasses import replace

            changed[s.buffer.name] = replace(s.buffer, layout=made)
    return tuple(substitute_buffers(s, changed) for s in body) if changed else body


def _allocs(body: n.Block) -> list[n.Alloc]:
    from kir.ir.visit import statements

    return [s for s in statements(body) if isinstance(s, n.Alloc)]


def memory_layout(buffer: n.Buffer, layout: LayoutOf) -> n.Layout | None:
    """The layout of the IR for a swizzle whose rows are a whole pattern of 128, 64 or 32 bytes; None for others, which stay open."""
    if buffer.space != "shared" or layout.word not in SHARED or layout.word == "make_linear_layout":
        return None
    width = build.int_value(buffer.shape[-1]) if buffer.shape else None
    if width is None or buffer.dtype.is_symbolic:
        return None
    row = width * buffer.dtype.bits // 8
    bits = {128: 3, 64: 2, 32: 1}.get(row)
    wanted = BANKS.get(layout.word)
    if bits is None or (wanted is not None and wanted != bits):
        return None
    return n.Layout("swizzle", (bits, 4, 3))
