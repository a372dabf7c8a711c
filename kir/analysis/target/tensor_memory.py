"""What a CTA multiplies into tensor memory (tcgen05): shapes and dtypes, who may ask for it, and what may be done with an accumulator there.

Shapes are those of the PTX ISA, tcgen05.mma, `.kind::f16` and `.cta_group::1` with 128 rows: row i of an accumulator is lane i of tensor memory, and a
column of f32 is one of its 512 columns.
"""
from __future__ import annotations

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import dtype_of, shape_of
from kir.ir.visit import statements, walk

VIA = "tcgen05"
THREADS, ROWS, DEPTH, MOST_COLUMNS, COLUMNS, LEAST = 128, 128, 16, 256, 512, 32
"""Threads that read an accumulator, each a row; rows of a product, its step along k and its most columns; columns of tensor memory, and the fewest
that are allocated."""


def product_refusal(s: n.Mma, threads: int | None) -> str:
    """Why a CTA of that many threads does not run a product by tcgen05 ("" when it does)."""
    a, b = shape_of(s.a.type), shape_of(s.b.type)
    if len(a) != 2 or not all(isinstance(d, int) for d in (*a, *b)):
        return "the product is batched, or has a symbolic extent"
    if threads != THREADS:
        return f"{threads if threads is not None else 'an unknown number of'} threads read an accumulator in tensor memory; {THREADS} do, each a row"
    names = (dtype_of(s.a.type).name, dtype_of(s.b.type).name, s.acc.buffer.dtype.name)
    if names not in (("f16", "f16", "f32"), ("bf16", "bf16", "f32")) or s.precision != "ieee":
        return f"there is no product {names[0]} x {names[1]} -> {names[2]} into tensor memory here"
    rows, depth, columns = (int(str(d)) for d in (*a, b[1]))
    if rows != ROWS:
        return f"{rows} rows are not the {ROWS} of a product into tensor memory"
    if columns % 16 or not 16 <= columns <= MOST_COLUMNS:
        return f"{columns} columns are no multiple of 16 up to {MOST_COLUMNS}"
    return f"{depth} elements along k are no whole steps of {DEPTH}" if depth % DEPTH else ""


def accumulator_refusal(kernel: n.Kernel, b: n.Buffer) -> str:
    """Why a fragment cannot be held in tensor memory ("" when it can): it starts at zero, products by tcgen05 alone add to it, and the whole CTA reads it."""
    for s in statements(kernel.body):
        inner = [x for x in walk(s) if isinstance(x, n.Region) and x.buffer.name == b.name]
        match s:
            case n.Jump(kind="return"):
                return "the kernel returns before its end, where tensor memory is given back"
            case n.Roles():
                return "the kernel has roles"
            case n.For() if s.kind in ("thread", "warp", "warpgroup") and inner:
                return f"'{b.name}' is used by parts of the CTA"
            case n.While() if any(isinstance(x, n.Load) and x.at.buffer.name == b.name for x in walk(s.cond)):
                return f"a loop's condition reads '{b.name}'"
            case n.Alloc() if s.buffer.name == b.name:
                if s.buffer.space != "fragment" or s.buffer.layout is not None or not (isinstance(s.init, n.Const) and s.init.value == 0):
                    return f"'{b.name}' is no fragment without a layout that starts at zero"
            case n.Mma() if s.acc.buffer.name == b.name:
                if s.via not in (VIA, "auto") or s.pending or s.acc.index or any(isinstance(x, n.Load) and x.at.buffer.name == b.name
                                                                                for e in (s.a, s.b) for x in walk(e)):
                    return f"'{b.name}' is updated by a product of another kind, in parts, or by one that reads it"
            case n.Store() if s.at.buffer.name == b.name:
                return f"'{b.name}' is written by other than products"
            case n.Copy() if s.dst.buffer.name == b.name:
                return f"'{b.name}' is written by other than products"
            case n.Eval() | n.Let() if any(isinstance(x, n.Call) and any(isinstance(a, n.Region) and a.buffer.name == b.name for a in x.args) for x in walk(s)):
                return f"a call takes '{b.name}' as a place"
            case n.View() if inner:
                return f"'{b.name}' has a view"
            case n.Opaque() | n.Hole() if any((x if isinstance(x, str) else x.buffer.name) == b.name for x in (*s.reads, *s.writes)):
                return f"'{b.name}' is used by text that is not understood"
            case _:
                pass
    return ""


def held(kernel: n.Kernel) -> dict[str, int]:
    """The fragments of a kernel that are held in tensor memory, each with its first column there."""
    widths: dict[str, int] = {}
    for s in statements(kernel.body):
        if isinstance(s, n.Mma) and s.via == VIA:
            name, columns = s.acc.buffer.name, shape_of(s.acc.type)[-1]
            widths[name] = max(widths.get(name, 0), columns if isinstance(columns, int) else int_value(columns) or COLUMNS)
    first, out = 0, dict[str, int]()
    for name, width in widths.items():
        out[name] = first
        first += width
    return out


def allocated(kernel: n.Kernel) -> int:
    """Columns that a kernel allocates for the fragments that it holds in tensor memory: a power of two, 0 for none."""
    names = held(kernel)
    total = sum({s.acc.buffer.name: int(str(shape_of(s.acc.type)[-1])) for s in statements(kernel.body)
                 if isinstance(s, n.Mma) and s.acc.buffer.name in names}.values())
    return max(LEAST, 1 << (total - 1).bit_length()) if total else 0
