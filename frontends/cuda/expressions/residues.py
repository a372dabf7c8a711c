"""Integers that addresses in global memory go into, as far as alignment says what they are: their remainders by powers of two.

A tensor begins at a multiple of 16 bytes unless its binding says otherwise (`align`). A parameter of which a kernel asks more than that is not read; what
was taken for granted stands at the parameter (`aligned`), and a binding that gives less is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I64, U64

from ..source.source import Node
from ..symbols.symbols import Value
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted
from ..values.memory import Store
from ..values.reading import Reading
from ..values.values import Pointer, Residue, Scalar, constant

ALIGN = 16
"""Bytes that a tensor is aligned to where no binding says it (`kir.ir.binding.Tensor`)."""
_RING = {"+": "add", "-": "sub", "*": "mul", "|": "or", "^": "xor", "&": "and"}


def is_residue(a: Value, b: Value, sign: str) -> bool:
    """Whether an operator makes or changes such an integer."""
    if isinstance(a, Residue) or isinstance(b, Residue):
        return True
    if sign == "-":
        return isinstance(a, Scalar) and _global(b)
    return sign in ("&", "|", "^", "%") and (_global(a) or _global(b))


def combined(r: Reading, sign: str, a: Value, b: Value, node: Node) -> Value:
    """`a sign b`, where one of them holds an address. Raises NotUnderstood where more than a remainder is asked for."""
    if sign == "&" and constant(a) is not None:
        a, b = b, a
    by = constant(b)
    if sign in ("&", "%") and by is not None:
        span = by + 1 if sign == "&" else by
        if span > 0 and span & (span - 1) == 0:
            return remainder(r, a, span, node)
    parts = [_expression(x) for x in (a, b)]
    if sign in _RING and parts[0] is not None and parts[1] is not None:
        return Residue(build.binary(_RING[sign], parts[0], parts[1]), tuple(dict.fromkeys([*_stores(a), *_stores(b)])))
    raise NotUnderstood(f"the operator {sign} on the bits of an address", node)


def negated(sign: str, v: Value) -> Value | None:
    """`-v` or `~v` of such an integer, None of another value."""
    e = _expression(v) if isinstance(v, Residue) or _global(v) else None
    if e is None or sign not in ("-", "~"):
        return None
    return Residue(build.negate(e) if sign == "-" else build.invert(e), tuple(_stores(v)))


def remainder(r: Reading, v: Value, span: int, node: Node) -> Value:
    """What is left of it by a power of two. Raises NotUnderstood where that is more than a tensor is aligned to."""
    e = _expression(v)
    if e is None:
        raise NotUnderstood("the bits of an address", node)
    for s in _stores(v):
        known = r.alignments.get(s.name, ALIGN)
        if s.promised < 0 or span > known:
            raise NotUnderstood(f"what '{s.name}' is aligned to: {span} bytes, where {known if s.promised >= 0 else 'nothing'} is known", node)
        s.promised = max(s.promised, span)
    if all(c % span == 0 for c in build.polynomial(e).values()):
        return Scalar(build.const(0, U64))
    return Scalar(converted(build.binary("and", e, build.const(span - 1, I64)), U64))


def _global(v: Value) -> bool:
    return isinstance(v, Pointer) and v.place.store.is_global and v.place.store.tensor is not None


def _expression(v: Value) -> n.Expr | None:
    match v:
        case Residue():
            return v.expr
        case Pointer() if _global(v):
            return converted(v.place.byte, I64)
        case Scalar() if not v.dtype.is_float:
            return converted(v.expr, I64)
    return None


def _stores(v: Value) -> Sequence[Store]:
    return v.stores if isinstance(v, Residue) else (v.place.store,) if isinstance(v, Pointer) else ()
