"""How CUDA C++ spells dtypes, literals and offsets."""
from __future__ import annotations

import math
from collections.abc import Mapping

from kir.base.diagnostic import KirError, error
from kir.ir import nodes as n
from kir.ir.build import add, const, int_value, is_const, mul
from kir.ir.printer import expr_text
from kir.ir.types import DType, TileType, Type, dtype_of, shape_of

TYPES: Mapping[str, str] = {
    "bool": "bool", "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long", "u8": "unsigned char",
    "u16": "unsigned short", "u32": "unsigned", "u64": "unsigned long long", "f16": "__half", "bf16": "__nv_bfloat16", "f32": "float",
    "f64": "double", "f8e4m3": "__nv_fp8_e4m3", "f8e5m2": "__nv_fp8_e5m2", "mbarrier": "unsigned long long",
}
"""IR dtype to C++ type."""


def refuse(id: str, message: str, needs: str = "") -> KirError:
    """A refusal without its place, which the statement that is being written adds."""
    return error(id, message, needs=needs)


def c_type(d: DType) -> str:
    """The C++ type of a dtype. Raises KirError KIR-B004 where there is none."""
    if d.name not in TYPES:
        raise refuse("KIR-B004", f"the CUDA backend has no type for {d.name}")
    return TYPES[d.name]


def of_type(d: DType, text: str) -> str:
    """A number in a C++ type: of several words only a cast takes it."""
    kind = c_type(d)
    return f"static_cast<{kind}>({text})" if " " in kind else f"{kind}({text})"


def sizes_of(t: Type) -> tuple[int, ...]:
    """The shape of a thread's value. Raises KirError KIR-B003 for an extent that is not known."""
    out = []
    for d in shape_of(t):
        value = int_value(d)
        if value is None:
            raise refuse("KIR-B003", f"an extent is not known at compile time: {d if isinstance(d, int) else expr_text(d)}")
        out.append(value)
    return tuple(out)


def literal(c: n.Const) -> str:
    """A literal of its dtype."""
    name, v = c.dtype.name, c.value
    if c.dtype.is_bool:
        return "true" if v else "false"
    if isinstance(v, float):
        number = "NAN" if math.isnan(v) else "INFINITY" if math.isinf(v) else repr(abs(v)) + ("" if name == "f64" else "f")
        text = f"-{number}" if math.copysign(1.0, v) < 0 and not math.isnan(v) else number
        return {"f16": f"__float2half_rn({text})", "bf16": f"__float2bfloat16_rn({text})",
                "f8e4m3": f"__nv_fp8_e4m3({text})", "f8e5m2": f"__nv_fp8_e5m2({text})"}.get(name, text)
    if v == c.dtype.range[0] and c.dtype.kind == "int" and c.dtype.bits >= 32:
        return f"({v + 1}{'LL' if c.dtype.bits == 64 else ''} - 1)"
    suffix = {"u32": "u", "i64": "LL", "u64": "ULL"}.get(name, "")
    return f"static_cast<{c_type(c.dtype)}>({v})" if c.dtype.bits < 32 else f"{v}{suffix}"


def flat(at: tuple[str, ...], shape: tuple[int, ...]) -> str:
    """The linear index of `at` in a row-major array."""
    terms = []
    for axis, index in enumerate(at):
        step = math.prod(shape[axis + 1:])
        if index != "0" and shape[axis] > 1:
            bare = index if index.replace("_", "").isalnum() else f"({index})"
            terms.append(bare if step == 1 else f"{bare} * {step}")
    return " + ".join(terms) or "0"


def unflattened(index: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """The indices of a linear position in a row-major array."""
    steps = [math.prod(shape[axis + 1:]) for axis in range(len(shape))]
    bare = f"({index})"
    return tuple("0" if extent == 1 else bare if step == 1 and axis == 0 else f"({bare} / {step} % {extent})"
                 for axis, (extent, step) in enumerate(zip(shape, steps, strict=True)))


def offset_of(index: tuple[n.Expr | n.Span, ...], strides: tuple[n.Expr, ...]) -> n.Expr | None:
    """The element offset of a region's first element as one expression; None where integer widths are mixed or an index is a tile."""
    out: n.Expr | None = None
    for i, stride in zip(index, strides, strict=True):
        lo = i.lo if isinstance(i, n.Span) else i
        one = is_const(stride, 1)
        if isinstance(lo.type, TileType) or (dtype_of(lo.type) != dtype_of(stride.type) and not one):
            return None
        term = lo if one else mul(lo, stride)
        if out is not None and dtype_of(out.type) != dtype_of(term.type):
            return None
        out = term if out is None else add(out, term)
    return const(0) if out is None else out


def row_major(shape: tuple[n.Expr, ...]) -> tuple[n.Expr, ...]:
    """Element strides of a row-major buffer."""
    out: list[n.Expr] = []
    step: n.Expr | None = None
    for d in reversed(shape):
        out.insert(0, const(1, dtype_of(d.type)) if step is None else step)
        step = d if step is None else mul(step, d)
    return tuple(out)
