"""Integer arithmetic in the IR's own words: what compilers write as masks and shifts is a quotient or a rest again, and adding where no bit meets."""

from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, I64, DType
from kir.surface.ptx.form.bits import KINDS, Kind, reinterpret
from kir.surface.ptx.form.operands import Pointer
from kir.surface.ptx.form.syntax import Instruction, Name, Operand, Pair
from kir.surface.ptx.instructions import arithmetic, moves
from kir.surface.ptx.registers.reader import PREDICATE, Handler, Reader

from .machine import Machine

SIGNED = {32: I32, 64: I64}


def _number(m: Machine, o: Operand, bits: int) -> n.Expr:
    """An operand as a signed integer."""
    return m.value(o, Kind(SIGNED[bits]))


def masked(m: Machine, x: n.Expr, mask: int) -> n.Expr | None:
    """`x & mask` for a run of ones, as a rest and a quotient."""
    dtype = x.type
    assert isinstance(dtype, DType)
    if mask <= 0:
        return None
    low = (mask & -mask).bit_length() - 1
    ones = (mask >> low).bit_length()
    if mask != ((1 << ones) - 1) << low or low + ones >= dtype.bits:
        return None
    known = m.numbers.of(x)
    if known.lo >= 0 and ~known.zero & ((1 << 64) - 1) & ~mask == 0:
        return x
    part = build.floordiv(x, 1 << low) if low else x
    if not (known.lo >= 0 and known.hi >> low < 1 << ones):
        if ones == dtype.bits - 1:  # all but the sign: one more than the greatest number is none
            return None
        part = build.mod(part, 1 << ones)
    return build.mul(part, 1 << low) if low else part


def _logic(r: Reader, i: Instruction) -> None:
    assert isinstance(r, Machine)
    op, bits = i.parts[0], {"b32": 32, "b64": 64}.get(i.parts[-1])
    if bits is None or len(i.parts) != 2:
        arithmetic.HANDLERS[op](r, i)
        return
    a, b = (_number(r, o, bits) for o in i.operands[1:3])
    if isinstance(a, n.Const):
        a, b = b, a
    made: n.Expr | None = None
    if op == "and" and isinstance(b, n.Const):
        mask = int(b.value)
        low = (-mask).bit_length() - 1
        if mask < 0 and -mask == 1 << low and low < bits - 1:
            made = build.mul(build.floordiv(a, 1 << low), 1 << low) if low else a
        elif mask >= 0:
            made = masked(r, a, mask)
    elif op in ("or", "xor") and r.numbers.disjoint(a, b):
        made = build.add(a, b)
    r.result(i.operands[0], made if made is not None else build.binary(op, a, b))


def _shift(r: Reader, i: Instruction) -> None:
    assert isinstance(r, Machine)
    op, kind = i.parts[0], KINDS.get(i.parts[-1])
    by = i.operands[2]
    if kind is None or kind.bits not in (32, 64) or len(i.parts) != 2:
        arithmetic.HANDLERS[op](r, i)
        return
    amount = r.value(by, KINDS["u32"])
    if not isinstance(amount, n.Const) or not 0 <= int(amount.value) < kind.bits - 1:
        arithmetic.HANDLERS[op](r, i)
        return
    x, s = _number(r, i.operands[1], kind.bits), int(amount.value)
    if op == "shr" and kind.bits == 64 and (whole := _divided(r, x, s)) is not None:
        r.result(i.operands[0], whole)
        return
    if op == "shl":
        r.result(i.operands[0], build.mul(x, 1 << s))
    elif kind.dtype.kind == "int" or r.numbers.of(x).lo >= 0:
        r.result(i.operands[0], build.floordiv(x, 1 << s))
    else:
        arithmetic.HANDLERS[op](r, i)


def _divided(m: Machine, x: n.Expr, s: int) -> n.Expr | None:
    """A quotient by a number, which compilers make of a product with its reciprocal and a shift; None for anything else."""
    of = m.numbers.made.get(x.name) if isinstance(x, n.Var) else x
    while isinstance(of, n.Cast) and of.rounding in ("rn", "bits"):
        of = m.numbers.made.get(of.x.name) if isinstance(of.x, n.Var) else of.x
    if not (isinstance(of, n.Binary) and of.op == "mul" and isinstance(of.b, n.Const)):
        return None
    known, factor = m.numbers.of(of.a), int(of.b.value) & ((1 << 64) - 1)
    if known.lo < 0 or known.hi >= 1 << 32 or factor <= 1 or factor >= 1 << 33:
        return None
    divisor = -(-(1 << s) // factor)
    for d in (divisor - 1, divisor):
        if d > 1 and factor * d - (1 << s) >= 0 and (factor * d - (1 << s)) * known.hi < 1 << s:  # (Granlund, Montgomery 1994, theorem 4.2)
            return build.floordiv(build.cast(of.a, I64), d)
    return None


def _field(r: Reader, i: Instruction) -> None:
    assert isinstance(r, Machine)
    if i.parts[0] == "bfe" and i.parts[-1] in ("u32", "u64"):
        bits = int(i.parts[-1][1:])
        position, length = (r.value(o, KINDS["u32"]) for o in i.operands[2:4])
        if isinstance(position, n.Const) and isinstance(length, n.Const):
            low, ones = int(position.value), int(length.value)
            if 0 < ones < bits - 1 and low + ones < bits:
                x = _number(r, i.operands[1], bits)
                part = build.floordiv(x, 1 << low) if low else x
                r.result(i.operands[0], build.mod(part, 1 << ones))
                return
    arithmetic.HANDLERS[i.parts[0]](r, i)


def _mad(r: Reader, i: Instruction) -> None:
    """A product added to an address is an address."""
    assert isinstance(r, Machine)
    last = i.operands[3]
    got = r.held(last) if isinstance(last, Name) else None
    if not isinstance(got, Pointer):
        arithmetic.HANDLERS["mad"](r, i)
        return
    m = r.modifiers()
    part, name = m.one("lo", "hi", "wide"), m.type_name("u16", "s16", "u32", "s32", "u64", "s64")
    m.done()
    a, b = (r.value(o, KINDS[name]) for o in i.operands[1:3])
    product = arithmetic.product(r, part, name, a, b)
    wide = I32 if r.width(i.operands[0]) == 32 else I64
    r.write(i.operands[0], r.further(got, build.cast(product, wide)))


def _mul(r: Reader, i: Instruction) -> None:
    """A wide product of numbers that are not negative is one of signed numbers."""
    assert isinstance(r, Machine)
    if i.parts[1:] in (("wide", "u32"), ("wide", "s32")):
        a, b = (_number(r, o, 32) for o in i.operands[1:3])
        if i.parts[2] == "s32" or (r.numbers.of(a).lo >= 0 and r.numbers.of(b).lo >= 0):
            r.result(i.operands[0], build.mul(build.cast(a, I64), build.cast(b, I64)))
            return
    arithmetic.HANDLERS["mul"](r, i)


def _cvt(r: Reader, i: Instruction) -> None:
    """Widening a number that is not negative; an address stays one."""
    assert isinstance(r, Machine)
    if i.parts[1:] in (("u64", "u32"), ("s64", "s32"), ("s64", "u32"), ("u64", "s32"), ("u32", "u64")) and isinstance(i.operands[1], Name):
        held = r.held(i.operands[1])
        if isinstance(held, Pointer) and held.at.buffer.space == "shared":
            r.write(i.operands[0], held)
            return
        if not isinstance(held, Pointer) and i.parts[1] != "u32":
            x = _number(r, i.operands[1], 32)
            if i.parts[2] == "s32" or r.numbers.of(x).lo >= 0:
                r.result(i.operands[0], build.cast(x, I64))
                return
    moves.HANDLERS["cvt"](r, i)


def _add(r: Reader, i: Instruction) -> None:
    """A number added to an address is an address; of two, only one can be."""
    assert isinstance(r, Machine)
    op = i.parts[0]
    if i.parts[-1] in ("s64", "u64", "s32", "u32") and "cc" not in i.parts and "sat" not in i.parts:
        held = [r.held(o) if isinstance(o, Name) else None for o in i.operands[1:3]]
        wide = I32 if i.parts[-1][1:] == "32" else I64
        if isinstance(held[0], Pointer) and (op == "add" or not isinstance(held[1], Pointer)):
            step = r.value(i.operands[2], Kind(wide))
            r.write(i.operands[0], r.further(held[0], build.negate(step) if op == "sub" else step))
            return
        if isinstance(held[1], Pointer) and op == "add":
            r.write(i.operands[0], r.further(held[1], r.value(i.operands[1], Kind(wide))))
            return
        if isinstance(held[0], Pointer) and isinstance(held[1], Pointer) and held[0].at.buffer.name == held[1].at.buffer.name:
            r.result(i.operands[0], build.sub(r.bytes_of(held[0]), r.bytes_of(held[1])))
            return
    arithmetic.HANDLERS[op](r, i)


def _setp(r: Reader, i: Instruction) -> None:
    """A comparison of numbers that are not negative, unsigned or of bits, is one of signed numbers."""
    assert isinstance(r, Machine)
    word = i.parts[-1]
    if i.parts[0] == "setp" and word in ("u32", "b32", "u64", "b64") and len(i.parts) == 3 and not isinstance(i.operands[0], Pair):
        op = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(i.parts[1], i.parts[1])
        a, b = (_number(r, o, int(word[1:])) for o in i.operands[1:3])
        if op in ("eq", "ne") or (r.numbers.of(a).lo >= 0 and r.numbers.of(b).lo >= 0):
            r.write(i.operands[0], r.bind("p", build.compare(op, a, b)))
            return
    arithmetic.HANDLERS[i.parts[0]](r, i)


def _not(r: Reader, i: Instruction) -> None:
    """All bits turned over, as a difference."""
    assert isinstance(r, Machine)
    if i.parts[1:] in (("b32",), ("b64",)):
        bits = int(i.parts[1][1:])
        r.result(i.operands[0], build.sub(build.const(-1, SIGNED[bits]), _number(r, i.operands[1], bits)))
        return
    arithmetic.HANDLERS["not"](r, i)


def _selp(r: Reader, i: Instruction) -> None:
    """One of two addresses from one place."""
    assert isinstance(r, Machine)
    held = [r.held(o) if isinstance(o, Name) else None for o in i.operands[1:3]]
    a, b = held
    if isinstance(a, Pointer) and isinstance(b, Pointer) and a.at.buffer.name == b.at.buffer.name:
        cond = r.value(i.operands[3], PREDICATE)
        r.write(i.operands[0], Pointer(a.at, build.select(cond, r.bytes_of(a), r.bytes_of(b))))
        return
    to = i.operands[0]
    if i.parts[1:] in (("b32",), ("b64",)) and isinstance(to, Name) and to.name in r.form.registers:
        dtype, count = r.kinds.of(to.name)
        kind = Kind(dtype if count == 1 and dtype.is_float else SIGNED[int(i.parts[1][1:])])
        r.result(to, build.select(r.value(i.operands[3], PREDICATE), *(r.value(o, kind) for o in i.operands[1:3])))
        return
    arithmetic.HANDLERS["selp"](r, i)


def signed(e: n.Expr) -> n.Expr:
    """An unsigned number that is never large as a signed one."""
    return reinterpret(e, SIGNED[e.type.bits]) if isinstance(e.type, DType) and e.type.kind == "uint" and e.type.bits in SIGNED else e


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("and", "or", "xor"), _logic), **dict.fromkeys(("shl", "shr"), _shift), **dict.fromkeys(("bfe", "bfi"), _field),
    **dict.fromkeys(("add", "sub"), _add), "mad": _mad, "mul": _mul, "cvt": _cvt, "selp": _selp, "setp": _setp, "not": _not}
