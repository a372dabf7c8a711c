"""Moves, packing and conversions of PTX (ISA 9.7.9)."""
from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, U32, DType, dtype_of
from kir.surface.ptx.form.bits import KINDS, UNSIGNED, Kind, called, joined, pack, piece, reinterpret, unpack, vector
from kir.surface.ptx.form.operands import Pointer
from kir.surface.ptx.form.syntax import Instruction, Name, Operand, Place, Vector
from kir.surface.ptx.instructions.arithmetic import ROUNDINGS
from kir.surface.ptx.registers.reader import Handler, Reader

_INTEGER_ROUNDINGS = {"rni": "round_even", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _mov(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    name = m.one("b128") or m.type_name()
    m.done()
    to, source = i.operands[0], i.operands[1]
    if name == "b128":
        raise r.refuse("a register of 128 bits")
    kind = KINDS[name]
    if isinstance(source, Vector):
        each = Kind(UNSIGNED[kind.bits // len(source.items)]) if kind.bits % len(source.items) == 0 else kind
        if isinstance(to, Vector):
            raise r.fail("KIR-F302", "mov packs or unpacks, not both")
        r.write(to, r.bind("x", pack(packed([r.value(v, each) for v in source.items]), UNSIGNED[kind.bits])))
        return
    if isinstance(to, Vector):
        count = len(to.items)
        part = UNSIGNED[kind.bits // count]
        whole = r.bind("x", r.value(source, Kind(UNSIGNED[kind.bits])))
        for k, target in enumerate(to.items):
            r.write(target, piece(unpack(whole, part), k))
        return
    if isinstance(source, (Name, Place)):
        got = r.held(source)
        if not isinstance(got, n.Expr):
            r.write(to, got)
            return
    r.write(to, r.value(source, kind))


def packed(parts: list[n.Expr]) -> n.Expr:
    """Registers of one width side by side, as a vector of what they hold: halves stay halves."""
    bare = [p.x if isinstance(p, n.Cast) and p.rounding == "bits" else p for p in parts]
    if len({dtype_of(b.type) for b in bare}) == 1 and dtype_of(bare[0].type).bits == dtype_of(parts[0].type).bits:
        return vector(bare)
    held = [b.args[0] for b in bare if isinstance(b, n.Call) and b.of is None and b.fn == "pack"]
    vectors = [v for v in held if isinstance(v, n.Expr)]
    if len(vectors) == len(parts) and len({v.type for v in vectors}) == 1:
        return joined(vectors)
    return vector(parts)


def _cvta(r: Reader, i: Instruction) -> None:
    """A generic address and one in its space are the same place."""
    m = r.modifiers()
    m.flag("to")
    m.one("shared", "global", "shared::cta", "local", "param", "const")
    m.kind("u32", "u64")
    m.done()
    source = i.operands[1]
    got = r.held(source) if isinstance(source, (Name, Place)) else None
    if not isinstance(got, Pointer):
        raise r.fail("KIR-F306", "cvta takes the address of a place in a buffer")
    r.write(i.operands[0], got)


def _cvt(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    whole = m.one(*_INTEGER_ROUNDINGS)
    rounding = m.one(*ROUNDINGS, "rna", "rs")
    ftz, sat = m.flag("ftz"), m.flag("sat")
    satfinite, relu, scaled = m.flag("satfinite"), m.flag("relu"), m.starting("scaled::")
    tf32 = m.flag("tf32")
    names = [x for x in m.left if x in KINDS]
    for name in names:
        m.left.remove(name)
    if "pack" in m.left:
        raise r.refuse("cvt.pack")
    m.done()
    if scaled or rounding == "rs":
        raise r.refuse("a stochastic or scaled conversion")
    if tf32:
        made: n.Expr = called("to_tf32", {} if rounding == "rn" else {"rounding": rounding}, r.value(i.operands[1], KINDS["f32"]))
        r.result(i.operands[0], build.call("max_nan", made, build.const(0.0, KINDS["f32"].dtype)) if relu else made)
        return
    if len(names) != 2:
        raise r.fail("KIR-F302", f"'{i.opcode}' names {len(names)} types, and a conversion has two")
    if ftz:
        raise r.refuse("a conversion that flushes subnormals", "cvt without .ftz")
    to, source = KINDS[names[0]], KINDS[names[1]]
    if to.count > 1 and source.count == 1:
        if len(i.operands) != 3:
            raise r.fail("KIR-F302", f"'{i.opcode}' takes two numbers, the high one first")
        x: n.Expr = vector([r.value(i.operands[2], source), r.value(i.operands[1], source)])
    else:
        if to.count != source.count or len(i.operands) != 2:
            raise r.fail("KIR-F302", f"'{i.opcode}' with {len(i.operands) - 1} operands")
        x = r.value(i.operands[1], source, narrowing=True)
    r_result(r, i.operands[0], converted(r, x, to.dtype, rounding, whole, sat, satfinite, relu))


def converted(r: Reader, x: n.Expr, to: DType, rounding: str, whole: str, sat: bool, satfinite: bool, relu: bool) -> n.Expr:
    """The conversion of a scalar or vector. Rounding to an integer comes first; `satfinite` clamps to the largest finite number."""
    own = dtype_of(x.type)
    if relu:
        x = build.call("max_nan", x, build.broadcast(build.const(0.0, own), x.type))
    if own.is_float and to.is_integer:
        if not whole:
            raise r.fail("KIR-F302", "a conversion to an integer takes .rni, .rzi, .rmi or .rpi")
        fits = x if whole == "rzi" else build.call(_INTEGER_ROUNDINGS[whole], x)
        if to.bits >= 32:
            return build.cast(fits, to)
        wide, (low, high) = I32 if to.kind == "int" else U32, to.range  # PTX clamps to the range of the type that it names
        within = build.cast(fits, wide)
        within = build.binary("max", within, build.broadcast(build.const(low, wide), within.type)) if low else within
        return build.cast(build.binary("min", within, build.broadcast(build.const(high, wide), within.type)), to)
    if whole:
        if own != to or not own.is_float:
            raise r.fail("KIR-F302", f"'.{whole}' rounds to whole numbers: both types must be one float, or the first an integer")
        made: n.Expr = build.call(_INTEGER_ROUNDINGS[whole], x)
    elif satfinite or (to.is_float and to.bits <= 8):
        if to.name == "e8m0" and rounding != "rp":
            raise r.refuse("a conversion to e8m0 that does not round up")
        made = build.cast(x, to, "ru" if to.name == "e8m0" else "sat")
    elif own.is_integer and to.is_integer:
        return build.cast(x, to, "sat" if sat else "rn")
    elif rounding == "rna":
        raise r.refuse(f"rounding ties away from zero to {to}")
    else:
        made = build.cast(x, to, ROUNDINGS[rounding or "rn"])
    if not sat:
        return made
    if dtype_of(made.type).name not in ("f16", "f32", "f64"):
        raise r.refuse("a conversion that clamps to [0, 1]")
    return called("mul_rounded", {"sat": True}, made, build.broadcast(build.const(1.0, dtype_of(made.type)), made.type))


def r_result(r: Reader, o: Operand, value: n.Expr) -> None:
    """Writes a result, which a wider register takes zero- or sign-extended."""
    made = pack(value) if not isinstance(value.type, DType) else value
    width, own = r.width(o), dtype_of(made.type)
    if own.bits < width and not own.is_bool:
        if own.is_float:
            raise r.fail("KIR-F302", f"a result of {own.bits} bits in a register of {width}")
        wide = build.cast(made, DType(f"{'i' if own.kind == 'int' else 'u'}{width}", own.kind, width))
        made = reinterpret(wide, UNSIGNED[width])
    r.write(o, r.bind("x", made))


HANDLERS: dict[str, Handler] = {"mov": _mov, "cvta": _cvta, "cvt": _cvt}
