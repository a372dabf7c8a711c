"""Layouts of shared memory as TileLang's own functions make them."""
from __future__ import annotations

from kir.ir import nodes as n
from kir.ir.build import int_value

from .expressions import refuse

_BY_ROW = {128: (3, 4, 3), 64: (2, 4, 3), 32: (1, 4, 3)}
"""The swizzle of `make_swizzled_layout` by the bytes of a row."""


def annotation(b: n.Buffer, name: str) -> str:
    """The function that makes a buffer's layout. Raises KirError KIR-B302."""
    assert b.layout is not None
    row = int_value(b.shape[-1]) if b.shape else None
    if b.layout.name == "swizzle" and row is not None and b.space == "shared":
        width = row * b.dtype.bytes
        if b.layout.args == _BY_ROW.get(width if width in _BY_ROW else 128 if width % 128 == 0 else 0):
            return f"tilelang.layout.make_swizzled_layout({name})"
    raise refuse("KIR-B302", f"TileLang has no function that makes this layout of '{b.name}'", "its own swizzle for these rows, or no layout")
