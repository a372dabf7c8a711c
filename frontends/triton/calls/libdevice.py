"""Functions of libdevice that name how they round: arithmetic (`mul_rn`, `fma_rn`) and conversions (`int2float_rn`, `float2uint_rz`).

Sums and products of the IR are rounded one by one, to the nearest, so `_rn` says what they are anyway (CUDA libdevice User's Guide).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kir.ir import build
from kir.ir.types import F16, F32, F64, I16, I32, I64, U16, U32, U64, DType, dtype_of

from ..values import operators
from ..values.arguments import Arguments
from ..values.values import NotUnderstood, Run, Value

ARITHMETIC: Mapping[str, str] = {"add_rn": "add", "sub_rn": "sub", "mul_rn": "mul", "div_rn": "div"}
_NUMBERS: Mapping[str, DType] = {"int": I32, "uint": U32, "ll": I64, "ull": U64, "short": I16, "ushort": U16, "half": F16, "float": F32, "double": F64}
_CONVERSION = re.compile(rf"({'|'.join(_NUMBERS)})2({'|'.join(_NUMBERS)})(?:_(rn|rz|rd|ru))?")


def rounding_call(word: str, a: Arguments) -> Value | None:
    """A call of a function of libdevice whose name says how it rounds; None for another. Raises NotUnderstood for a rounding that no conversion of the
    IR has."""
    if word in ARITHMETIC:
        return operators.binary(ARITHMETIC[word], a.need(0, "arg0"), a.need(1, "arg1"))
    if word == "llrint":
        x = operators.run(a.need(0, "arg0"))
        return Run(build.cast(build.call("round_even", x if dtype_of(x.type) == F64 else build.cast(x, F32)), I64))
    m = _CONVERSION.fullmatch(word)
    if m is None:
        return None
    source, target, how = _NUMBERS[m[1]], _NUMBERS[m[2]], m[3] or "rn"
    x = operators.run(a.need(0, "arg0"), source)
    if dtype_of(x.type) != source:
        raise NotUnderstood(f"libdevice.{word} of {dtype_of(x.type).name}")
    if source.is_float and target.is_integer:
        if how != "rz":
            x, how = build.call({"rn": "round_even", "rd": "floor", "ru": "ceil"}[how], x), "rz"
        if how == "rz":
            return Run(build.cast(x, target))
    if how != "rn":
        raise NotUnderstood(f"the rounding of libdevice.{word}")
    return Run(build.cast(x, target))
