"""A choice between what lies inside a tensor and a value outside is a load with that value at the edges.

`select(j < N, cast(load(X[r, j] else 0.0 clip), f32), -inf)` is `cast(load(X[r, j] else -inf clip), f32)`: surfaces whose loads read zero outside
say the first, those whose masked loads name another value the second.
"""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.bounds import axes_of, bare, conjuncts, inside, known_axes, says_bound
from kir.analysis.elements import NotElementwise, element, element_region
from kir.analysis.facts import Facts
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType, dtype_of, shape_of


def at_edges(e: n.Select, known: Facts) -> n.Expr:
    """The load with another value at its edges, where the condition says just that the place is inside; else `e`."""
    casts: list[n.Cast] = []
    x = e.a
    while isinstance(x, n.Cast) and x.rounding == "rn":
        casts.append(x)
        x = x.x
    if not (isinstance(e.b, n.Const) and isinstance(x, n.Load) and x.clip and x.mask is None and x.at.buffer.space == "global"
            and x.at.index and isinstance(x.other, n.Const) and shape_of(x.type) == shape_of(e.type)):
        return e
    outside = _narrowed(e.b, x.at.buffer.dtype, casts)
    if outside is None or not _says_inside(e.cond, x, known):
        return e
    made: n.Expr = replace(x, other=outside)
    for c in reversed(casts):
        made = build.cast(made, c.dtype, c.rounding)
    return made


def _narrowed(c: n.Const, dtype: DType, casts: list[n.Cast]) -> n.Const | None:
    """The constant of `dtype` that the conversions turn into `c`: zero and infinities of floats, zero of integers."""
    if all(d.is_float for d in (dtype, *(x.dtype for x in casts))) and repr(c.value) in ("0.0", "inf", "-inf"):
        return n.Const(c.value, dtype) if dtype.name in ("f16", "bf16", "f32", "f64") else None
    return n.Const(0, dtype) if dtype.is_integer and all(x.dtype.is_integer for x in casts) and c.value == 0 else None


def _says_inside(cond: n.Expr, x: n.Load, known: Facts) -> bool:
    """Whether a condition holds exactly where the loaded place lies inside its tensor."""
    axes = axes_of(x.type)
    index = [build.const(0) if d == 1 else v for v, d in axes]
    known = known_axes(known, axes)
    shape = shape_of(cond.type)
    try:
        atoms = list(conjuncts(element(cond, [build.const(0) if d == 1 else i for i, d in zip(index[len(index) - len(shape):], shape, strict=True)])))
        place = element_region(x.at, index)
    except NotElementwise:
        return False
    left = list(atoms)
    for i, d in zip(place.index, x.at.buffer.shape, strict=True):
        if not isinstance(i, n.Expr) or not dtype_of(i.type).is_integer:
            return False
        said = [a for a in atoms if says_bound(a, i, d)]
        left = [a for a in left if a not in said]
        low = known.domain(known.expanded(i)).lo
        below = any(isinstance(a, n.Binary) and not _from_zero(a) for a in said) or inside(bare(i), bare(d), known)
        if not below or not (any(map(_from_zero, said)) or (low is not None and low >= 0)):
            return False
    return not left


def _from_zero(a: n.Expr) -> bool:
    """Whether a comparison is with zero."""
    return isinstance(a, n.Binary) and (build.is_const(a.a, 0) or build.is_const(a.b, 0))
