"""Arithmetic on widened integers, done in the width that they came from where that is exact: casts move outward and meet.

`cast(a, i64) + cast(b, i64)` is `cast(a + b, i64)` when the i32 sum cannot wrap; a comparison needs no cast at all.
"""
from __future__ import annotations

from kir.analysis.facts import Facts
from kir.analysis.order import at_most
from kir.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType, dtype_of
from kir.ir.visit import statements, substitute, transform

_RING = frozenset({"add", "sub", "mul"})
_DIVISIONS = frozenset({"floordiv", "mod", "ceildiv", "tdiv", "trem"})


def _origin(*operands: n.Expr) -> DType | None:
    """The narrow dtype that operands were widened from: that of every cast, with literals in its range; None when there is none."""
    found: DType | None = None
    for e in operands:
        if isinstance(e, n.Cast) and _widens(e):
            own = dtype_of(e.x.type)
            if found is not None and own != found:
                return None
            found = own
    if found is None:
        return None
    low, high = found.range
    for e in operands:
        if not (isinstance(e, n.Cast) and _widens(e)) and not (isinstance(e, n.Const) and low <= int(e.value) <= high):
            return None
    return found


def _widens(e: n.Cast) -> bool:
    own = dtype_of(e.x.type)
    return own.is_integer and e.dtype.is_integer and own.kind == e.dtype.kind == "int" and own.bits < e.dtype.bits and e.rounding == "rn"


def _narrow(e: n.Expr, dtype: DType) -> n.Expr:
    return e.x if isinstance(e, n.Cast) else build.const(e.value, dtype) if isinstance(e, n.Const) else e


def narrowed(e: n.Expr, known: Facts) -> n.Expr | None:
    """The expression with its outermost operation done in the narrow width, or None where nothing is to be narrowed."""
    match e:
        case n.Cast() if isinstance(e.x, n.Cast) and _widens(e.x) and e.dtype == dtype_of(e.x.x.type) and e.rounding == "rn":
            return e.x.x
        case n.Binary() if dtype_of(e.a.type).is_integer and (dtype := _origin(e.a, e.b)) is not None:
            made = build.binary(e.op, _narrow(e.a, dtype), _narrow(e.b, dtype))
            if e.op in n.COMPARISONS:
                return made
            if e.op in _RING and not (known.is_exact(made) and (e.op != "mul" or isinstance(e.a, n.Const) or isinstance(e.b, n.Const))):
                return None
            if e.op in _DIVISIONS and not _is_plain(_narrow(e.b, dtype), known):
                return None
            if e.op not in _RING and e.op not in _DIVISIONS and e.op not in ("min", "max"):
                return None
            return build.cast(made, dtype_of(e.type))
        case n.Select() if dtype_of(e.type).is_integer and (dtype := _origin(e.a, e.b)) is not None:
            return build.cast(build.select(e.cond, _narrow(e.a, dtype), _narrow(e.b, dtype)), dtype_of(e.type))
        case n.Call() if e.of is None and instruction(e.fn).effect == "hint" and isinstance(e.args[0], n.Cast) and _widens(e.args[0]):
            return build.cast(n.Call(e.fn, (e.args[0].x, *e.args[1:]), e.attrs), e.args[0].dtype)
        case _:
            return None


def _is_plain(divisor: n.Expr, known: Facts) -> bool:
    """Whether a divisor is known not to be -1, the one for which a narrow quotient may wrap."""
    found = known.domain(divisor)
    if (found.lo is not None and found.lo > -1) or (found.hi is not None and found.hi < -1):
        return True
    return isinstance(divisor.type, DType) and at_most(build.const(1, divisor.type), divisor, known)


def narrow_lets(k: n.Kernel) -> n.Kernel:
    """The kernel with lets that widen an integer giving the narrow value a name instead."""
    found = {s.names[0]: s.value for s in statements(k.body)
             if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Cast) and _widens(s.value)}
    if not found:
        return k

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Let) and new.names[0] in found and isinstance(new.value, n.Cast):
            return n.Let(new.names, new.value.x, new.label, new.origin)
        return new
    renamed: n.Kernel = substitute(k, {name: n.Cast(n.Var(name, value.x.type), value.dtype) for name, value in found.items()})
    made: n.Kernel = transform(renamed, leave)
    return made
