"""Loops around one statement, as what they are a loop over."""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.elements import NotElementwise, element, element_region
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import int_value, is_const
from kir.ir.types import I32, TileType


@dataclass(frozen=True)
class Nest:
    """A store in loops over slots (`slots`: variable to extent, outermost first), perhaps under a condition; its elements are scalars."""

    store: n.Store
    slots: dict[str, int]
    cond: n.Expr | None


def nest_of(s: n.Stmt, cond: n.Expr | None = None, slots: dict[str, int] | None = None) -> Nest | None:
    """A statement as a nest around one store; None where it is none."""
    slots = slots or {}
    match s:
        case n.If() if not slots and cond is None and len(s.then) == 1 and not s.orelse:
            return nest_of(s.then[0], s.cond)
        case n.For() if s.kind == "unroll" and is_const(s.lo, 0) and is_const(s.step, 1) and len(s.body) == 1:
            extent = int_value(s.hi)
            return nest_of(s.body[0], cond, {**slots, s.var.name: extent}) if extent is not None else None
        case n.Store():
            return _scalar_nest(s, slots, cond)
        case _:
            return None


def _scalar_nest(s: n.Store, slots: dict[str, int], cond: n.Expr | None) -> Nest | None:
    """The store of one element, the elements of a vector as one more loop."""
    spans = [i for i in s.at.index if isinstance(i, n.Span)]
    if not spans:
        return None if isinstance(s.at.type, TileType) else Nest(s, slots, cond)
    extent = int_value(spans[0].extent)
    if len(spans) > 1 or extent is None:
        return None
    v = n.Var("%v", I32)
    try:
        value = element(s.value, [v]) if isinstance(s.value.type, TileType) else s.value
        mask = element(s.mask, [v]) if s.mask is not None and isinstance(s.mask.type, TileType) else s.mask
        made = replace(s, at=element_region(s.at, [v]), value=value, mask=mask)
    except NotElementwise:
        return None
    return Nest(made, {**slots, v.name: extent}, cond)
