"""CUDA's functions of values: mathematics, conversions between number formats, and vector types put together and taken apart."""

from __future__ import annotations

import math
from functools import cache

from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DTYPES, F32, F64, I32, U32, DType, dtype_of

from ..source.source import Node
from ..symbols.symbols import Value
from ..types.c_types import Vec, named_type, usual
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted
from ..values.conversions import as_tile, component, scalar, type_text
from ..values.loads import rvalue
from ..values.objects import assign, pinned
from ..values.reading import Reading
from ..values.values import Located, Nothing, Scalar, Wide
from .cuda_names import Handler, names
from .cuda_operands import called, place_of


def handlers() -> dict[str, Handler]:
    """What reads each of these functions, by its name."""
    data = names()
    out: dict[str, Handler] = {}
    for kinds, handler in (
        (_math(), _math_call), (data["approximate"], _approximate), (data["binary"], _binary), (data["convert"], _convert),
        (data["rounded"], _rounded), (data["bits"], _bits), (data["widen"], _widen), (data["pair"], _pair), (data["both"], _both),
        (data["half_of"], _half_of),
    ):  # fmt: skip
        out.update(dict.fromkeys(kinds, handler))
    out.update({
        "__powf": _power, "__sincosf": _sine_cosine, "sincosf": _sine_cosine,
        **dict.fromkeys(("sincos", "sincospif", "sincospi"), _sine_cosine),
        **dict.fromkeys(("sinpif", "cospif", "sinpi", "cospi"), _of_half_turns), "__exp2f": _approximate, "abs": _abs, "labs": _abs, "llabs": _abs,
        "__saturatef": _saturate, "__hneg": _negate, "__hneg2": _negate, "signbit": _signbit, "__byte_perm": _permute,
        "__dp4a": _dot, **dict.fromkeys(_BYTES, _bytewise),
    })  # fmt: skip
    return out


@cache
def _math() -> dict[str, tuple[str, str]]:
    """CUDA's math by name: row of the instruction table and dtype."""
    out: dict[str, tuple[str, str]] = {}
    for fn, row in table().items():
        spelling = row.on("cuda")
        if spelling is None or row.level != "element" or not row.is_pure:
            continue
        if spelling in ("__popc", "__clz", "__ffs", "__brev"):
            out[spelling] = (fn, "u32")
        else:
            out[spelling] = (fn, "f32")
            if spelling.endswith("f") and not spelling.startswith("__"):
                out.setdefault(spelling[:-1], (fn, ""))
    out.update({k: (v[0], v[1]) for k, v in names()["math"].items()})
    return out


def _math_call(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    fn, dtype_name = _math()[name]
    if not args:
        raise NotUnderstood(f"'{name}' without arguments", node)
    args = [rvalue(r, a) for a in args]
    if any(isinstance(a, Wide) for a in args):
        return _wide_math(r, fn, args, node)
    numbers = [scalar(r, a, node) for a in args]
    if dtype_name:
        d = DTYPES[dtype_name]
    else:
        d = dtype_of(numbers[0].type)
        for e in numbers[1:]:
            d = usual(d, dtype_of(e.type))
        if d.is_integer or d.is_bool:
            d = F64
    if fn == "ldexp" and len(numbers) == 2:
        return Scalar(build.call(fn, converted(numbers[0], d), converted(numbers[1], I32)))
    row = table()[fn]
    if len(numbers) != row.args[0] and not row.args[0] <= len(numbers) <= row.args[1]:
        raise NotUnderstood(f"'{name}' with {len(numbers)} arguments", node)
    return Scalar(_halved(fn, [converted(e, d) for e in numbers], d))


_OF_HALVES = frozenset({"fma", "abs"})
"""Functions that f16 and bf16 have of their own on every surface; the others are f32's, rounded."""


def _halved(fn: str, args: list[n.Expr], d: DType) -> n.Expr:
    """A function of numbers of a dtype; of halves by way of f32, as no surface has another."""
    if d.name not in ("f16", "bf16") or fn in _OF_HALVES:
        return build.call(fn, *args)
    made = build.call(fn, *(n.Cast(a, F32) for a in args))
    return n.Cast(made, d) if dtype_of(made.type) == F32 else made


def _wide_math(r: Reading, fn: str, args: list[Value], node: Node) -> Value:
    first = next(a for a in args if isinstance(a, Wide))
    if not isinstance(first.type, Vec):
        raise NotUnderstood(f"{fn} of {type_text(first)}", node)
    kind = first.type
    return Wide(_halved(fn, [as_tile(r, a, kind.dtype, kind.n) for a in args], kind.dtype), kind)


def _approximate(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    fn, where, factor = names()["approximate"][name]
    x = converted(scalar(r, args[0], node), F32)
    if fn not in table():
        raise NotUnderstood(f"the approximation '{name}'", node)
    constant_ = converted(build.const(factor, F64), F32)
    if where == "before":
        x = build.mul(x, constant_)
    made: n.Expr = build.call(fn, x)
    return Scalar(build.mul(made, constant_) if where == "after" else made)


def _power(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    x, y = (converted(scalar(r, a, node), F32) for a in (args[0], args[1]))
    return Scalar(build.call("exp2_approx", build.mul(y, build.call("log2_approx", x))))


def _sine_cosine(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    x = pinned(r, _angle(scalar(r, args[0], node), name), "angle")
    for a, fn in zip(args[1:], ("sin", "cos"), strict=False):
        at, kind = place_of(r, a, node)
        made = _half_turns(fn, x) if "pi" in name else build.call(f"{fn}_approx" if name.startswith("__") else fn, x)
        assign(r, Located(at, kind), Scalar(made))
    return Nothing()


def _of_half_turns(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    return Scalar(_half_turns(name[:3], _angle(scalar(r, args[0], node), name)))


def _angle(x: n.Expr, name: str) -> n.Expr:
    """An argument in the precision of a function: f32 where its name ends in `f`, or where its argument is one and there is an overload."""
    wide = not name.endswith("f") and not (dtype_of(x.type).is_float and dtype_of(x.type).bits <= 32)
    return converted(x, F64 if wide else F32)


def _half_turns(fn: str, x: n.Expr) -> n.Expr:
    """`sinpi(x)` = sin(pi x), as near as these functions are (CUDA Math API: within two units in the last place): worked out in f64."""
    return converted(build.call(fn, build.mul(converted(x, F64), build.const(math.pi, F64))), dtype_of(x.type))


def _binary(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    op = names()["binary"][name]
    a, b = rvalue(r, args[0]), rvalue(r, args[1])
    if isinstance(a, Wide) or isinstance(b, Wide):
        kind = a.type if isinstance(a, Wide) else b.type if isinstance(b, Wide) else None
        if not isinstance(kind, Vec):
            raise NotUnderstood(f"'{name}' of {type_text(a)}", node)
        return Wide(build.binary(op, as_tile(r, a, kind.dtype, kind.n), as_tile(r, b, kind.dtype, kind.n)), kind)
    x, y = scalar(r, a, node), scalar(r, b, node)
    if name == "__hadd" and not dtype_of(x.type).is_float and not dtype_of(y.type).is_float:  # of integers it is their mean, rounded down
        x, y = (pinned(r, converted(e, I32)) for e in (x, y))
        return Scalar(build.add(build.binary("and", x, y), build.binary("shr", build.binary("xor", x, y), build.const(1))))
    if name in ("__mul24", "__umul24"):
        return Scalar(build.mul(*(_low24(converted(e, U32 if name == "__umul24" else I32)) for e in (x, y))))
    if name in ("fmaxf", "fminf", "__fadd_rn", "__fmul_rn", "__fsub_rn", "__fdiv_rn"):
        d: DType = F32
    else:
        d = usual(dtype_of(x.type), dtype_of(y.type))
        if name in ("fmax", "fmin") and not d.is_float:
            d = F64
    return Scalar(build.binary(op, converted(x, d), converted(y, d)))


def _low24(e: n.Expr) -> n.Expr:
    """The low 24 bits of a number, with their sign where it has one."""
    if isinstance(e, n.Const):
        kept = int(e.value) & 0xFFFFFF
        return build.const(kept - (1 << 24) if e.dtype == I32 and kept >> 23 else kept, e.dtype)
    if dtype_of(e.type) == U32:
        return build.binary("and", e, build.const(0xFFFFFF, U32))
    return build.binary("shr", build.binary("shl", e, build.const(8)), build.const(8))


def _abs(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    x = scalar(r, args[0], node)
    d = usual(dtype_of(x.type), dtype_of(x.type)) if dtype_of(x.type).is_float else usual(dtype_of(x.type), I32)
    return Scalar(build.call("abs", converted(x, d)))


def _negate(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    v = rvalue(r, args[0])
    if isinstance(v, Wide) and isinstance(v.type, Vec):
        return Wide(build.negate(as_tile(r, v, v.type.dtype, v.type.n)), v.type)
    return Scalar(build.negate(scalar(r, v, node)))


def _signbit(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    return Scalar(build.compare("ne", build.call("signbit", converted(scalar(r, args[0], node), F32)), 0))


def _permute(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    """`__byte_perm` looks at three bits of each nibble of its selector; `prmt` repeats a sign where the fourth is set."""
    x, y, selector = (converted(scalar(r, a, node), U32) for a in (args[0], args[1], args[2]))
    return Scalar(build.call("prmt", x, y, build.binary("and", selector, build.const(0x7777, U32))))


def _dot(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    """`__dp4a(a, b, c)`: four products of bytes, signed where c is; a and b may be vectors of bytes."""
    values = [rvalue(r, a) for a in args]
    if len(values) != 3:
        raise NotUnderstood(f"'{name}' with {len(values)} arguments", node)
    c = scalar(r, values[2], node)
    own = U32 if dtype_of(c.type).kind == "uint" else I32
    words = [called("pack", v.tile, options={"dtype": own.name}) if isinstance(v, Wide) else converted(scalar(r, v, node), own) for v in values[:2]]
    return Scalar(build.call("dp4a", *words, converted(c, own)))


_BYTES: dict[str, tuple[str, tuple[int, int] | None]] = {
    "__vadd4": ("add", None), "__vsub4": ("sub", None), "__vaddss4": ("add", (-128, 127)), "__vsubss4": ("sub", (-128, 127)),
    "__vaddus4": ("add", (0, 255)), "__vsubus4": ("sub", (0, 255))}
"""Functions of the four bytes of two words: the operation, and what its results are held to (None: they wrap around)."""


def _bytewise(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    if len(args) != 2:
        raise NotUnderstood(f"'{name}' with {len(args)} arguments", node)
    op, held = _BYTES[name]
    words = [pinned(r, converted(scalar(r, a, node), U32)) for a in args]
    out: n.Expr = build.const(0, U32)
    for k in range(4):
        high = [build.binary("shl", w, build.const(24 - 8 * k, U32)) for w in words]  # where its sign is the word's
        own = I32 if held is not None and held[0] < 0 else U32
        a, b = (converted(build.binary("shr", converted(h, own), build.const(24, own)), I32) for h in high)
        made = build.binary(op, a, b)
        if held is not None:
            made = build.binary("min", build.binary("max", made, build.const(held[0])), build.const(held[1]))
        byte = build.binary("and", converted(made, U32), build.const(255, U32))
        out = build.binary("or", out, build.binary("shl", byte, build.const(8 * k, U32)))
    return Scalar(out)


def _saturate(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    x = converted(scalar(r, args[0], node), F32)
    return Scalar(build.minimum(build.maximum(x, 0.0), 1.0))


def _convert(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    to, rounding = names()["convert"][name]
    x = scalar(r, args[0], node)
    d = DTYPES[to]
    if rounding == "rn":
        return Scalar(converted(x, d))
    return Scalar(build.cast(x, d, rounding))


def _rounded(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    return Scalar(build.cast(build.call("round_even", converted(scalar(r, args[0], node), F32)), DTYPES[names()["rounded"][name]]))


def _bits(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    to = DTYPES[names()["bits"][name]]
    x = scalar(r, args[0], node)
    own = dtype_of(x.type)
    if own.bits != to.bits:
        same_kind = {16: "u16", 32: "f32" if to.is_integer else "i32", 64: "f64" if to.is_integer else "i64"}[to.bits]
        x = converted(x, DTYPES[same_kind])
    return Scalar(build.cast(x, to, "bits"))


def _widen(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    to = DTYPES[names()["widen"][name]]
    v = rvalue(r, args[0])
    if not isinstance(v, Wide) or not isinstance(v.type, Vec):
        raise NotUnderstood(f"'{name}' of {type_text(v)}", node)
    return Wide(build.cast(as_tile(r, v, v.type.dtype, 2), to), _pair_type(to))


def _pair_type(d: DType) -> Vec:
    found = named_type({"f16": "half2", "bf16": "nv_bfloat162", "f32": "float2"}[d.name])
    assert isinstance(found, Vec)
    return found


def _pair(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    d = DTYPES[names()["pair"][name]]
    return Wide(build.call("vec", *(converted(scalar(r, a, node), d) for a in args[:2])), _pair_type(d))


def _both(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    d = DTYPES[names()["both"][name]]
    x = converted(scalar(r, args[0], node), d)
    return Wide(build.call("broadcast", x, build.const(2)), _pair_type(d))


def _half_of(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    k, to = names()["half_of"][name]
    v = rvalue(r, args[0])
    if not isinstance(v, Wide):
        raise NotUnderstood(f"'{name}' of {type_text(v)}", node)
    made = component(r, v, k)
    return Scalar(converted(scalar(r, made), DTYPES[to])) if to else made


def vector_of(r: Reading, t: Vec, args: list[Value]) -> Value:
    """A vector of numbers, or of shorter vectors."""
    parts: list[n.Expr] = []
    for a in args:
        v = rvalue(r, a)
        if isinstance(v, Wide) and isinstance(v.type, Vec):
            tile = r.m.let("part", as_tile(r, v, t.dtype, v.type.n))
            parts += [build.call("pick", tile, build.const(k)) for k in range(v.type.n)]
        else:
            parts.append(converted(scalar(r, v), t.dtype))
    if t.name == "dim3":
        parts += [build.const(1, t.dtype)] * (3 - len(parts))
    if len(parts) != t.n:
        raise NotUnderstood(f"a {t} from {len(parts)} numbers")
    return Wide(build.call("vec", *parts), t)
