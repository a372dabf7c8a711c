"""Layouts as TileLang says them: swizzled and plain shared memory, fragments and loops by functions."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import statements, substitute_buffers

from ..values.values import LayoutOf, NotUnderstood, Signature, Value
from .reader import Reader

SHARED = frozenset({"make_swizzled_layout", "make_linear_layout", "make_full_bank_swizzled_layout", "make_half_bank_swizzled_layout",
                    "make_quarter_bank_swizzled_layout", "make_wgmma_swizzled_layout", "make_volta_swizzled_layout"})
BANKS = {"make_full_bank_swizzled_layout": 3, "make_half_bank_swizzled_layout": 2, "make_quarter_bank_swizzled_layout": 1}


def layout_word(r: Reader, word: str, given: Signature, e: cst.CSTNode) -> Value:
    """A layout as the source makes it."""
    return LayoutOf(word, tuple(given.args), tuple(given.named.items()), r.out.origin)


def loop_layout(r: Reader, named: dict[str, Value]) -> n.Attrs:
    """What `T.Parallel` is told besides its extents: a width of accesses. How a loop is distributed over threads is left to the lowering."""
    width = r.known_int(named["coalesced_width"]) if named.get("coalesced_width") is not None else None
    unknown = set(named) - {"coalesced_width", "loop_layout", "annotations", "prefer_async"}
    if unknown:
        raise NotUnderstood(f"'{sorted(unknown)[0]}' of T.Parallel")
    return n.attrs(coalesced_width=width) if width is not None else ()


def laid_out(r: Reader, body: n.Block) -> n.Block:
    """The body with annotated layouts on the declarations that have them."""
    changed: dict[str, n.Buffer] = {}
    for s in _allocs(body):
        layout = r.layouts.get(s.buffer.name)
        made = r.distributed.get(s.buffer.name) or (memory_layout(s.buffer, layout) if layout is not None else None)
        if made is not None:
            changed[s.buffer.name] = replace(s.buffer, layout=made)
    return tuple(substitute_buffers(s, changed) for s in body) if changed else body


def _allocs(body: n.Block) -> list[n.Alloc]:
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
