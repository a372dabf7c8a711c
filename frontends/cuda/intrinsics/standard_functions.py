"""Functions of the C++ library that need no declaration: `std::min`, `std::clamp`, `std::numeric_limits`."""

from __future__ import annotations

import math
from collections.abc import Callable

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, DType, dtype_of

from ..source.source import Node
from ..symbols.symbols import Value
from ..types.c_types import Prim, usual
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted
from ..values.conversions import convert, scalar
from ..values.loads import rvalue
from ..values.reading import Reading
from ..values.values import Builtin, Pack, Scalar, TypeName, constant

_SIGNS = {"plus": "+", "minus": "-", "multiplies": "*", "divides": "/", "modulus": "%", "bit_and": "&", "bit_or": "|", "bit_xor": "^", "greater": ">",
          "less": "<", "equal_to": "==", "not_equal_to": "!=", "greater_equal": ">=", "less_equal": "<="}
FUNCTORS = frozenset(_SIGNS)
_BITS: dict[str, Callable[[int, int], int]] = {
    "has_single_bit": lambda x, bits: x.bit_count() == 1, "popcount": lambda x, bits: x.bit_count(), "bit_width": lambda x, bits: x.bit_length(),
    "countl_zero": lambda x, bits: bits - x.bit_length(), "countr_zero": lambda x, bits: bits if not x else (x & -x).bit_length() - 1,
    "bit_ceil": lambda x, bits: 1 << max(0, x - 1).bit_length(), "bit_floor": lambda x, bits: 1 << x.bit_length() - 1 if x else 0}
"""Functions of <bit> of a number that is known when it is compiled, and its bits."""
FUNCTIONS = frozenset({"min", "max", "move", "forward", "get", "size", "clamp", "abs", "gcd", "declval", "bit_cast", "exchange", *_BITS})


def standard(r: Reading, f: Builtin, args: list[Value], node: Node) -> Value | None:
    """A function of the C++ library; None when it is none of those that are known."""
    if f.name.startswith("numeric_limits."):
        assert f.args is not None and isinstance(f.args[0], TypeName) and isinstance(f.args[0].type, Prim)
        return Scalar(limit(f.args[0].type.dtype, f.name.split(".")[1], node))
    if f.name in FUNCTORS and not args:
        return f
    if f.name in FUNCTORS and len(args) == 2:
        of = f.args[0].type if f.args and isinstance(f.args[0], TypeName) else None
        a, b = (convert(r, x, of) if isinstance(of, Prim) else x for x in args)
        return r.operators.binary(r, _SIGNS[f.name], a, b, node)
    if f.name in _BITS and len(args) == 1 and isinstance(v := rvalue(r, args[0]), Scalar) and (known := constant(v)) is not None:
        found = _BITS[f.name](known & (1 << v.dtype.bits) - 1, v.dtype.bits)
        return Scalar(build.const(found, BOOL if f.name == "has_single_bit" else v.dtype if f.name.startswith("bit_") and f.name != "bit_width" else I32))
    match f.name:
        case "move" | "forward":
            return args[0]
        case "clamp":
            low = _smaller(r, args[0], args[1], False, node)
            return _smaller(r, low, args[2], True, node)
        case "bit_cast" if f.args and isinstance(f.args[0], TypeName):
            v = rvalue(r, args[0])
            if isinstance(v, Scalar) and isinstance(f.args[0].type, Prim) and v.dtype.bits == f.args[0].type.dtype.bits:
                return Scalar(build.cast(v.expr, f.args[0].type.dtype, "bits"))
        case "min" | "max" if len(args) == 1 and isinstance(listed := args[0], Pack) and listed.items:
            found_one = listed.items[0]
            for each in listed.items[1:]:
                found_one = _smaller(r, found_one, each, f.name == "min", node)
            return found_one
        case "gcd":
            first, second = constant(rvalue(r, args[0])), constant(rvalue(r, args[1]))
            if first is not None and second is not None:
                return Scalar(build.const(math.gcd(first, second)))
    return None


def _smaller(r: Reading, a: Value, b: Value, least: bool, node: Node) -> Value:
    x, y = scalar(r, a, node), scalar(r, b, node)

    d = usual(dtype_of(x.type), dtype_of(y.type))
    return Scalar(build.binary("min" if least else "max", converted(x, d), converted(y, d)))


def limit(d: DType, name: str, node: Node) -> n.Expr:
    """`std::numeric_limits<T>::name()`."""
    if d.is_integer:
        low, high = d.range
        found: dict[str, int] = {"max": high, "min": low, "lowest": low, "digits": d.bits - (d.kind == "int")}
        if name in found:
            return build.const(found[name], d if name != "digits" else I32)
    elif d.is_float:
        import ml_dtypes
        import numpy as np

        from kir.interp.numerics.number import storage
        info = ml_dtypes.finfo(storage(d)) if d.bits < 32 else np.finfo(storage(d))
        values = {"max": float(info.max), "lowest": float(info.min), "min": float(info.tiny), "epsilon": float(info.eps), "infinity": math.inf,
                  "quiet_NaN": math.nan}  # fmt: skip
        if name in values:
            return build.const(values[name], d)
    raise NotUnderstood(f"the limit '{name}' of {d}", node)
