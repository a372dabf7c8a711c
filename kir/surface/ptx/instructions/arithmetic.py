"""Arithmetic, logic and comparison of PTX (ISA 9.7.1 to 9.7.7) as expressions."""
from __future__ import annotations

from collections.abc import Mapping

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BF16, F16, F32, I32, U32, dtype_of
from kir.surface.ptx.form.bits import KINDS, Kind, called, reinterpret
from kir.surface.ptx.form.operands import Descriptor, Pointer
from kir.surface.ptx.form.syntax import Instruction, Name, Operand, Pair, Place
from kir.surface.ptx.registers.reader import PREDICATE, Handler, Modifiers, Reader, advanced

ROUNDINGS: Mapping[str, str] = {"rn": "rn", "rz": "rz", "rm": "rd", "rp": "ru"}
"""PTX's names of roundings by the IR's."""
WORDS = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
_FLOATS = ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2", "f32x2")
_INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64", "u16x2", "s16x2")


def values(r: Reader, i: Instruction, kind: Kind, first: int = 1) -> list[n.Expr]:
    """The operands from the `first` on, of one type."""
    return [r.value(o, kind) for o in i.operands[first:]]


def _rounded(r: Reader, m: Modifiers, kind: Kind, plain: n.Expr, row: str, *args: n.Expr) -> n.Expr:
    """`plain` where the instruction rounds to nearest and keeps subnormals, else the row that says how."""
    rounding, ftz, sat = ROUNDINGS[m.one(*ROUNDINGS, default="rn")], m.flag("ftz"), m.flag("sat")
    m.done()
    if rounding == "rn" and not ftz and not sat:
        return plain
    if kind.dtype.name not in ("f32", "f64", "f16", "bf16"):
        raise r.refuse(f"'{row}' on {kind.dtype}")
    options: dict[str, n.Attr] = {}
    if rounding != "rn":
        options["rounding"] = rounding
    if ftz:
        options["ftz"] = True
    if sat:
        options["sat"] = True
    return called(row, options, *args)


def _add(r: Reader, i: Instruction) -> None:
    m, op = r.modifiers(), i.parts[0]
    if m.flag("cc") or op in ("addc", "subc"):
        raise r.refuse("arithmetic with a carry", "64-bit integers")
    kind = m.kind(*_FLOATS, *_INTEGERS)
    if kind.count == 1 and not kind.dtype.is_float and _moved_address(r, i, op):
        return
    a, b = values(r, i, kind)
    if kind.dtype.is_float:
        r.result(i.operands[0], _rounded(r, m, kind, build.binary(op, a, b), f"{op}_rounded", a, b))
        return
    if m.flag("sat"):
        raise r.refuse("saturating integer arithmetic")
    m.done()
    r.result(i.operands[0], build.binary(op, a, b))


def _moved_address(r: Reader, i: Instruction, op: str) -> bool:
    """An address plus a number of bytes."""
    for at, other in ((1, 2), (2, 1)):
        o, by = i.operands[at], i.operands[other]
        if isinstance(o, (Name, Place)):
            got = r.held(o)
            if isinstance(got, Descriptor):
                raise r.refuse("arithmetic on the address of a tensor map")
            if isinstance(got, Pointer):
                step = r.value(by, Kind(I32) if r.width(i.operands[0]) == 32 else KINDS["s64"])
                if op == "sub" and at == 2:
                    raise r.refuse("a number minus an address")
                amount = build.negate(step) if op == "sub" else step
                r.write(i.operands[0], advanced(got, int(amount.value) if isinstance(amount, n.Const) else amount))
                return True
    return False


def _mul(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    part = m.one("lo", "hi", "wide")
    name = m.type_name(*_FLOATS, *_INTEGERS)
    kind = KINDS[name]
    a, b = values(r, i, kind)
    if kind.dtype.is_float:
        r.result(i.operands[0], _rounded(r, m, kind, build.mul(a, b), "mul_rounded", a, b))
        return
    m.done()
    r.result(i.operands[0], product(r, part, name, a, b))


def product(r: Reader, part: str, name: str, a: n.Expr, b: n.Expr) -> n.Expr:
    """The product of two integers: its low half, its high half, or all of it."""
    if part == "wide":
        if name not in WORDS:
            raise r.fail("KIR-F302", f"there is no wide product of {name}")
        to = KINDS[WORDS[name]].dtype
        return build.mul(build.cast(a, to), build.cast(b, to))
    if part == "hi":
        return build.call("mulhi", a, b)
    if part != "lo":
        raise r.fail("KIR-F302", "an integer product takes .lo, .hi or .wide")
    return build.mul(a, b)


def _mad(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    part, name = m.one("lo", "hi", "wide"), m.type_name(*_FLOATS, *_INTEGERS)
    if KINDS[name].dtype.is_float:
        _fused(r, i, m, KINDS[name])
        return
    if m.flag("sat"):
        raise r.refuse("saturating integer arithmetic")
    m.done()
    a, b = (r.value(o, KINDS[name]) for o in i.operands[1:3])
    made = product(r, part, name, a, b)
    to = Kind(dtype_of(made.type))
    r.result(i.operands[0], build.add(made, r.value(i.operands[3], to)))


def _fma(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    _fused(r, i, m, m.kind(*_FLOATS))


def _fused(r: Reader, i: Instruction, m: Modifiers, kind: Kind) -> None:
    a, b, c = values(r, i, kind)
    relu = m.flag("relu")
    made = _rounded(r, m, kind, build.call("fma", a, b, c), "fma_rounded", a, b, c)
    r.result(i.operands[0], _relu(made) if relu else made)


def _relu(e: n.Expr) -> n.Expr:
    """Negative values and NaN as zeros (NaN: the canonical one, which `max_nan` keeps)."""
    zero = build.broadcast(build.const(0.0, dtype_of(e.type)), e.type)
    return build.call("max_nan", e, zero)


def _order(r: Reader, i: Instruction) -> None:
    m, op = r.modifiers(), i.parts[0]
    if m.flag("ftz"):
        raise r.refuse(f"'{op}' that flushes subnormals", f"{op} without .ftz")
    signed = m.flag("xorsign")
    nan, magnitude, relu = m.flag("NaN"), m.flag("abs"), m.flag("relu")
    kind = m.kind(*_FLOATS, *_INTEGERS)
    m.done()
    given = values(r, i, kind)
    if signed and (kind.dtype not in (F32, F16, BF16) or not magnitude or len(given) != 2):
        raise r.refuse("the product of the signs but of two magnitudes")
    out, *rest = (build.call("abs", v) if magnitude else v for v in given)
    for v in rest:
        out = build.call(f"{op}_nan", out, v) if nan and kind.dtype.is_float else build.binary(op, out, v)
    if signed:
        one = build.broadcast(build.const(1.0, kind.dtype), out.type)
        out = build.call("copysign", out, build.mul(*(build.call("copysign", one, v) for v in given)))
    r.result(i.operands[0], build.binary("max", out, build.broadcast(build.const(0, kind.dtype), out.type)) if relu else out)


def _divide(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    how = m.one("approx", "full")
    kind = m.kind("f32", "f64", *_INTEGERS)
    a, b = values(r, i, kind)
    if not kind.dtype.is_float:
        m.done()
        r.result(i.operands[0], build.binary("tdiv" if i.parts[0] == "div" else "trem", a, b))
    elif how:
        options: dict[str, n.Attr] = {} if m.flag("ftz") else {"subnormal": True}
        m.done()
        r.result(i.operands[0], called("div_approx", options, a, b))
    else:
        r.result(i.operands[0], _rounded(r, m, kind, build.binary("div", a, b), "div_rounded", a, b))


APPROXIMATE: Mapping[str, str] = {"ex2": "exp2_approx", "lg2": "log2_approx", "sin": "sin_approx", "cos": "cos_approx",
                                  "rsqrt": "rsqrt_approx", "tanh": "tanh_approx", "sqrt": "sqrt_approx", "rcp": "rcp_approx"}


def _function(r: Reader, i: Instruction) -> None:
    """Functions of one value: approximations, and the exact square root and reciprocal."""
    m, op = r.modifiers(), i.parts[0]
    approximate = m.flag("approx") or op in ("ex2", "lg2", "sin", "cos", "rsqrt", "tanh")
    kind = m.kind("f32", "f64", "f16", "f16x2", "bf16", "bf16x2")
    x = r.value(i.operands[1], kind)
    if approximate:
        ftz = m.flag("ftz")
        m.done()
        plain = op in ("tanh", "sqrt") or ftz
        if op == "sqrt" and not ftz:
            raise r.refuse("an approximate square root that keeps subnormals")
        r.result(i.operands[0], called(APPROXIMATE[op], {} if plain else {"subnormal": True}, x))
        return
    exact = build.call("sqrt", x) if op == "sqrt" else build.call("rcp", x)
    r.result(i.operands[0], _rounded(r, m, kind, exact, f"{op}_rounded", x))


def _unary(r: Reader, i: Instruction) -> None:
    m, op = r.modifiers(), i.parts[0]
    if m.flag("ftz"):
        raise r.refuse(f"'{op}' that flushes subnormals", f"{op} without .ftz")
    name = m.type_name()
    m.done()
    kind, x = KINDS[name], r.value(i.operands[1], KINDS[name])
    match op:
        case "neg" if not name.startswith("b") or kind.dtype.is_float:
            made = build.negate(x)
        case "abs" if kind.dtype.is_float or kind.dtype.kind == "int":
            made = build.call("abs", x)
        case "not":
            made = build.invert(x)
        case "cnot":
            made = build.select(build.compare("eq", x, 0), build.const(1, kind.dtype), build.const(0, kind.dtype))
        case "popc" | "clz" if name in ("b32", "b64"):
            made = build.cast(build.call(op, x), U32, "bits")
        case "brev" if name in ("b32", "b64"):
            made = build.call("brev", x)
        case "bfind" if name in ("u32", "u64"):
            made = build.cast(build.sub(build.const(kind.bits - 1), build.call("clz", x)), U32, "bits")
        case _:
            raise r.fail("KIR-F302", f"'{op}' has no form on {name}")
    r.result(i.operands[0], made)


def _logic(r: Reader, i: Instruction) -> None:
    m, op = r.modifiers(), i.parts[0]
    kind = m.kind("pred", "b16", "b32", "b64")
    m.done()
    a, b = values(r, i, kind)
    r.result(i.operands[0], build.binary(op, a, b))


def _shift(r: Reader, i: Instruction) -> None:
    m, op = r.modifiers(), i.parts[0]
    kind = m.kind("b16", "b32", "b64", *_INTEGERS)
    m.done()
    x, by = r.value(i.operands[1], kind), r.value(i.operands[2], KINDS["u32"])
    limited = build.minimum(by, kind.bits) if not isinstance(by, n.Const) else build.const(min(int(by.value), kind.bits), U32)
    r.result(i.operands[0], build.binary(op, x, build.cast(limited, kind.dtype)))


def _funnel(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    side, clamp = m.one("l", "r"), m.flag("clamp")
    if (not clamp and not m.flag("wrap")) or not side:
        raise r.fail("KIR-F302", "a funnel shift takes .l or .r, and .wrap or .clamp")
    kind = m.kind("b32")
    m.done()
    args = values(r, i, kind)
    r.result(i.operands[0], called("funnel_left" if side == "l" else "funnel_right", {"clamp": True} if clamp else {}, *args))


def _lop3(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    kind = m.kind("b32")
    m.done()
    a, b, c = (r.value(o, kind) for o in i.operands[1:4])
    lut = r.constant(i.operands[4])
    if not 0 <= lut <= 255:
        raise r.fail("KIR-F302", f"the table of lop3 is a byte, not {lut}")
    r.result(i.operands[0], build.call("lop3", a, b, c, lut=lut))


def _permute(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    kind = m.kind("b32")
    if m.left:
        raise r.refuse(f"the mode .{m.left[0]} of prmt", "a selector of four nibbles")
    r.result(i.operands[0], build.call("prmt", *values(r, i, kind)))


def _nth_bit(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    kind = m.kind("b32")
    m.done()
    r.result(i.operands[0], build.call("nth_bit", *values(r, i, kind)))


def _field(r: Reader, i: Instruction) -> None:
    m, op = r.modifiers(), i.parts[0]
    kind = m.kind("u32", "s32", "u64", "s64") if op == "bfe" else m.kind("b32", "b64")
    m.done()
    numbers = [r.value(o, KINDS["u32"]) for o in i.operands[-2:]]
    position, length = (reinterpret(x, kind.dtype) if kind.bits == 32 else build.cast(x, kind.dtype) for x in numbers)
    if op == "bfe":
        r.result(i.operands[0], build.call("bit_extract", r.value(i.operands[1], kind), position, length))
    else:
        field, base = (r.value(o, kind) for o in i.operands[1:3])
        r.result(i.operands[0], build.call("bit_insert", base, field, position, length))


def _dot(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    first, second = (m.type_name("u32", "s32") for _ in range(2))
    m.done()
    a, b = r.value(i.operands[1], KINDS[first]), r.value(i.operands[2], KINDS[second])
    c = r.value(i.operands[3], KINDS["s32" if "s32" in (first, second) else "u32"])
    r.result(i.operands[0], n.Call("dp4a", (a, b, c)))


# ------------------------------------------------------------------------------------------------------------- comparison
_ORDERED = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_NEGATED = {"equ": "ne", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}


def _comparison(op: str, kind: Kind, a: n.Expr, b: n.Expr) -> n.Expr:
    """PTX's ordered comparisons are false with NaN, also `ne`; those with `u` are true."""
    if kind.dtype.is_float:
        if op == "ne":
            return build.logical_or(build.compare("lt", a, b), build.compare("gt", a, b))
        if op == "equ":
            return build.invert(build.logical_or(build.compare("lt", a, b), build.compare("gt", a, b)))
        if op == "neu":
            return build.compare("ne", a, b)
        if op in ("num", "nan"):
            either = build.logical_or(build.call("isnan", a), build.call("isnan", b))
            return either if op == "nan" else build.invert(either)
        if op in _NEGATED:
            return build.invert(build.compare(_NEGATED[op], a, b))
    return build.compare(_ORDERED[op], a, b)


def _setp(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    op = m.one(*_ORDERED, *_NEGATED, "neu", "num", "nan")
    with_other = m.one("and", "or", "xor")
    kind = m.kind()
    if m.flag("ftz"):
        raise r.refuse("a comparison that flushes subnormals", "setp without .ftz")
    m.done()
    if not op or (op not in _ORDERED and not kind.dtype.is_float) or kind.count != 1:
        raise r.fail("KIR-F302", f"'{i.opcode}' does not say how to compare")
    if kind.dtype.kind == "int" and op in ("lo", "ls", "hi", "hs"):
        raise r.fail("KIR-F302", f"'.{op}' compares unsigned numbers")
    a, b = (r.value(o, kind) for o in i.operands[1:3])
    made = _comparison(op, kind, a, b)
    if with_other != "" and len(i.operands) != 4:
        raise r.fail("KIR-F302", f"'.{with_other}' takes a predicate as the last operand")
    other = r.value(i.operands[3], PREDICATE) if with_other else None
    if i.parts[0] == "set":
        raise r.refuse("a comparison that gives a number", "setp and selp")
    first = i.operands[0]
    targets: tuple[Operand, ...] = (first.first, first.second) if isinstance(first, Pair) else (first,)
    held = r.bind("p", made)
    results = [build.binary(with_other, v, other) if other is not None else v for v in (held, build.invert(held))]
    for target, value in zip(targets, results, strict=False):
        r.write(target, r.bind("p", value))


def _selp(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    kind = m.kind()
    m.done()
    a, b = (r.value(o, kind) for o in i.operands[1:3])
    r.result(i.operands[0], build.select(r.value(i.operands[3], PREDICATE), a, b))


def _testp(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    how = m.one("finite", "infinite", "number", "notanumber")
    kind = m.kind("f32", "f64")
    m.done()
    x = r.value(i.operands[1], kind)
    row = {"finite": "isfinite", "infinite": "isinf", "number": "isnan", "notanumber": "isnan"}.get(how)
    if row is None:
        raise r.refuse("a test for normal or subnormal numbers")
    made: n.Expr = build.call(row, x)
    r.result(i.operands[0], build.invert(made) if how == "number" else made)


def _copysign(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    kind = m.kind("f32", "f64")
    m.done()
    sign, magnitude = values(r, i, kind)
    r.result(i.operands[0], build.call("copysign", magnitude, sign))


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("add", "sub", "addc", "subc"), _add), "mul": _mul, "mad": _mad, "fma": _fma, **dict.fromkeys(("min", "max"), _order),
    **dict.fromkeys(("div", "rem"), _divide), **dict.fromkeys(APPROXIMATE, _function),
    **dict.fromkeys(("neg", "abs", "not", "cnot", "popc", "clz", "brev", "bfind"), _unary), **dict.fromkeys(("and", "or", "xor"), _logic),
    **dict.fromkeys(("shl", "shr"), _shift), "shf": _funnel, "lop3": _lop3, "prmt": _permute, "fns": _nth_bit, **dict.fromkeys(("bfe", "bfi"), _field),
    "dp4a": _dot, **dict.fromkeys(("setp", "set"), _setp), "selp": _selp, "testp": _testp, "copysign": _copysign}
