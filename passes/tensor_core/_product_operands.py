"""The factors of a product of panels, as the product rounds them."""
from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType, dtype_of


def rounded(e: n.Expr, precision: str) -> n.Expr:
    """A factor as the product rounds it."""
    return build.call("to_tf32", e, rounding="rn") if precision == "tf32" else e


def bare(e: n.Expr, dtype: DType, precision: str) -> n.Expr | None:
    """A factor as the product has it: without the cast that widens it exactly, or the rounding that the product does (None without it)."""
    if precision == "tf32":
        return e.args[0] if isinstance(e, n.Call) and e.fn == "to_tf32" and isinstance(e.args[0], n.Expr) and e == rounded(e.args[0], precision) else None
    narrow = isinstance(e, n.Cast) and e.rounding == "rn" and dtype_of(e.x.type).bits < dtype.bits and (
        dtype_of(e.x.type).is_float or (dtype_of(e.x.type).bits == 8 and dtype.is_integer))
    return e.x if narrow and isinstance(e, n.Cast) else e
