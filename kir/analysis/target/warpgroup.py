"""What warpgroups can multiply: shapes of wgmma, and how its operands must lie in shared memory.

Shapes and canonical layouts are those of the PTX ISA, "Asynchronous warpgroup-level matrix instructions" and "Strides".
"""
from __future__ import annotations

from kir.ir import nodes as n
from kir.ir.build import const, int_value, polynomial
from kir.ir.types import dtype_of, shape_of
from kir.ir.visit import statements

PAIRS = frozenset((x, x, "f32") for x in ("f16", "bf16", "f32", "f8e4m3", "f8e5m2"))
"""Operand and accumulator dtypes; f32 is multiplied as tf32."""
DESCRIBED = frozenset({"wgmma", "tcgen05"})
"""Products that read shared memory through descriptors."""
WARPGROUP, ROWS, MOST_COLUMNS = 128, 64, 256
"""Threads of a warpgroup; rows of one wgmma; the most columns of one."""


def product_refusal(s: n.Mma, threads: int | None) -> str:
    """Why a team of that many threads does not run a product by wgmma ("" when it does)."""
    if threads is None or threads % WARPGROUP:
        return f"{threads if threads is not None else 'an unknown number of'} threads are no whole warpgroups of {WARPGROUP}"
    groups, rows = threads // WARPGROUP, shape_of(s.acc.type)[0]
    if not instruction_refusal(s) and isinstance(rows, int) and rows % (ROWS * groups):
        return f"{rows} rows are not {ROWS} or a multiple for each of {groups} warpgroups"
    return instruction_refusal(s)


def instruction_refusal(s: n.Mma) -> str:
    """Why a product is not made of wgmma instructions ("" when it is)."""
    a, b = shape_of(s.a.type), shape_of(s.b.type)
    if len(a) != 2 or not all(isinstance(d, int) for d in (*a, *b)):
        return "the product is batched, or has a symbolic extent"
    pair = (dtype_of(s.a.type).name, dtype_of(s.b.type).name, s.acc.buffer.dtype.name)
    if pair not in PAIRS:
        return f"there is no wgmma {pair[0]} x {pair[1]} -> {pair[2]}"
    if dtype_of(s.a.type).bits != 16 and not along_k(s):
        return f"wgmma reads operands of {pair[0]} along k alone"
    m, k, columns = int(str(a[0])), int(str(a[1])), int(str(b[1]))
    depth = 256 // dtype_of(s.a.type).bits
    if m % ROWS:
        return f"{m} rows are no multiple of the {ROWS} of a wgmma"
    if columns % 8 or columns > MOST_COLUMNS:
        return f"{columns} columns are no multiple of 8 up to {MOST_COLUMNS}"
    return f"{k} elements along k are no whole steps of {depth}" if k % depth else ""


def along_k(s: n.Mma) -> bool:
    """Whether both operands of a product lie with their k axis contiguous, as those of other than 16 bits must."""
    def turned(e: n.Expr) -> bool:
        return isinstance(e, n.Call) and e.of is None and e.fn == "trans"
    return not turned(s.a) and turned(s.b)


def _in_panels(index: tuple[n.Expr | n.Span, ...], width: int) -> bool:
    """Whether a part of a view takes whole panels of columns."""
    columns = index[-1]
    if len(index) != 2 or not all(isinstance(i, n.Span) and i.step in (1, const(1)) for i in index) or not isinstance(columns, n.Span) or not width:
        return False
    extent = columns.extent if isinstance(columns.extent, int) else int_value(columns.extent)
    return extent is not None and extent % width == 0 and all(times % width == 0 for times in polynomial(columns.lo).values())


def operand_refusal(kernel: n.Kernel, e: n.Expr, left: bool) -> str:
    """Why no descriptor describes an operand of wgmma ("" when one does): the first (`left`, which may be in registers too) or second."""
    transposed = False
    if isinstance(e, n.Call) and e.of is None and e.fn == "trans" and [int_value(x) for x in e.args[1:] if isinstance(x, n.Expr)] == [1, 0]:
        inner = e.args[0]
        assert isinstance(inner, n.Expr)
        e, transposed = inner, True
    if not isinstance(e, n.Load) or e.mask is not None or e.clip or e.at.buffer.space != "shared":
        in_registers = left and not any(isinstance(x, n.Load) and x.at.buffer.space != "fragment" for x in (e,))
        return "" if in_registers and not transposed else "an operand does not lie in shared memory"
    b, row = e.at.buffer, shape_of(e.type)[-1]
    view = next((s for s in statements(kernel.body) if isinstance(s, n.View) and s.buffer == b), None)
    if view is not None:
        if len(view.axes) != 2 or view.fill is not None:
            return f"the view '{b.name}' is no matrix"
        columns, width = n.Var(view.axes[1], const(0).dtype), view.at.buffer.shape[-1]
        if e.at.index and not _in_panels(e.at.index, int_value(width) or 0):
            return f"only a part of a panel of the view '{b.name}' is read"
        split = (n.Binary("floordiv", columns, width), n.Binary("mod", columns, width))
        if not set(split) <= set(view.at.index):
            return f"the view '{b.name}' is no matrix in panels of columns"
        b, row = view.at.buffer, int_value(width) or 0
    layout = b.layout
    if layout is None or layout.name != "swizzle" or len(layout.args) != 3 or layout.args[1:] != (4, 3) or layout.args[0] not in (1, 2, 3):
        return f"'{b.name}' is not swizzled over 32, 64 or 128 bytes"
    span, size = 16 << int(str(layout.args[0])), b.dtype.bytes
    if not isinstance(row, int) or row * size != span or (int_value(b.shape[-1]) or 0) * size != span:
        return f"a row of '{b.name}' has {row * size if isinstance(row, int) else '?'} bytes, and its swizzle spans {span}"
    if not b.align or b.align % (8 * span):
        return f"'{b.name}' is aligned to {b.align or b.dtype.bytes} bytes, and its swizzle repeats after {8 * span}"
    return ""
