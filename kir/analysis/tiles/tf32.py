"""What tf32 makes of a number: f32 with 10 bits of mantissa, rounded to nearest even."""
from __future__ import annotations

import struct

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.types import F32, I32, dtype_of

EXPONENT, DROPPED = 0x7F800000, 13
NARROW = frozenset({"f16", "bf16", "f8e4m3", "f8e5m2", "bool", "i8", "u8"})
"""Dtypes all of whose values tf32 has."""


def representable(e: n.Expr) -> bool:
    """Whether every value of `e` is one that tf32 has, so that rounding leaves it."""
    match e:
        case n.Const():
            return int.from_bytes(struct.pack(">f", float(e.value)), "big") & (1 << DROPPED) - 1 == 0
        case n.Select():
            return representable(e.a) and representable(e.b)
        case n.Cast(rounding="rn"):
            return dtype_of(e.x.type).name in NARROW
        case n.Call(of=None) if e.fn in ("expand", "broadcast", "reshape", "trans", "to_tf32"):
            return e.fn == "to_tf32" or (isinstance(e.args[0], n.Expr) and representable(e.args[0]))
        case _:
            return False


def rounded(e: n.Expr) -> n.Expr:
    """`e` as tf32 has it."""
    return e if representable(e) else build.call("to_tf32", e, rounding="rn")


def by_bits(e: n.Expr) -> n.Expr:
    """The same by integer arithmetic; infinities and NaN stay what they are."""
    if representable(e):
        return e
    bits = build.cast(e, I32, "bits")
    odd = build.binary("and", build.binary("shr", bits, const(DROPPED)), const(1))
    near = build.binary("and", build.add(build.add(bits, odd), (1 << DROPPED - 1) - 1), const(-(1 << DROPPED)))
    special = build.compare("eq", build.binary("and", bits, const(EXPONENT)), EXPONENT)
    return build.select(special, e, build.cast(near, F32, "bits"))
