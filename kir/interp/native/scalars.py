"""Machine numbers in LLVM: how a dtype is held and stored, and the operations that come out bit for bit as `kir.interp.numerics.number` does them.

What is not here is computed by NumPy itself, from a callback. Floats of 16 bits are held as the f32 that they are, rounded after every operation.
"""
from __future__ import annotations

from typing import Any

from kir.interp.numerics import number
from kir.ir import nodes as n
from kir.ir.types import BF16, BOOL, F16, F32, F64, I32, U32, DType, dtype_of

Value = Any
"""An LLVM value (`llvmlite.ir.Value`)."""
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_RING = {"add", "sub", "mul"}


def plain_integer(dtype: DType) -> bool:
    """Whether a dtype is an integer that wraps as machine words do."""
    return dtype.is_integer and dtype.bits >= 8


def plain_float(dtype: DType) -> bool:
    """Whether a dtype is a float that is computed here."""
    return dtype in (F16, BF16, F32, F64)


class Scalars:
    """Emits operations with a builder. `half` says whether the processor converts f16 itself."""

    def __init__(self, half: bool) -> None:
        from llvmlite import ir
        self.ir, self.half = ir, half
        self.byte, self.word, self.long = ir.IntType(8), ir.IntType(32), ir.IntType(64)

    def stored(self, dtype: DType) -> Any:
        """The LLVM type of an element in memory."""
        if dtype in (F32, F64):
            return self.ir.FloatType() if dtype == F32 else self.ir.DoubleType()
        return self.ir.IntType(8 * number.storage(dtype).itemsize)

    def held(self, dtype: DType) -> Any:
        """The LLVM type of a value."""
        if dtype == BOOL:
            return self.ir.IntType(1)
        return self.ir.FloatType() if dtype in (F16, BF16) else self.stored(dtype)

    def constant(self, dtype: DType, value: Any) -> Value:
        """A literal, by the bits that NumPy gives it. `value` is a NumPy scalar or array of one element in the dtype's storage."""
        import numpy as np
        bits = np.asarray(value).reshape(1)
        if dtype == BOOL:
            return self.ir.Constant(self.held(dtype), int(bool(bits[0])))
        if plain_float(dtype):
            kind, whole = (np.float64, np.uint64) if dtype == F64 else (np.float32, np.uint32)
            raw = int(bits.astype(kind).view(whole)[0])
            return self.ir.Constant(self.ir.IntType(64 if dtype == F64 else 32), raw).bitcast(self.held(dtype))
        return self.ir.Constant(self.held(dtype), int(bits.view(f"u{bits.dtype.itemsize}")[0]))

    def load(self, b: Any, dtype: DType, raw: Value) -> Value:
        """A value as it is held, from the element that was read."""
        if dtype == BOOL:
            return b.icmp_unsigned("!=", raw, self.ir.Constant(self.byte, 0))
        if dtype == F16:
            return b.fpext(b.bitcast(raw, self.ir.HalfType()), self.ir.FloatType())
        if dtype == BF16:
            return b.bitcast(b.shl(b.zext(raw, self.word), self.ir.Constant(self.word, 16)), self.ir.FloatType())
        return raw

    def store(self, b: Any, dtype: DType, value: Value) -> Value:
        """The element to write, from a value as it is held."""
        if dtype == BOOL:
            return b.zext(value, self.byte)
        if dtype == F16:
            return b.bitcast(b.fptrunc(value, self.ir.HalfType()), self.ir.IntType(16))
        if dtype == BF16:
            return b.trunc(b.lshr(self._to_bf16(b, value), self.ir.Constant(self.word, 16)), self.ir.IntType(16))
        return value

    def _to_bf16(self, b: Any, value: Value) -> Value:
        """The bits of an f32 rounded to bf16, to nearest even; NaN to a quiet one of its sign."""
        def c(x: int) -> Value:
            return self.ir.Constant(self.word, x)
        bits = b.bitcast(value, self.word)
        odd = b.and_(b.lshr(bits, c(16)), c(1))
        near = b.and_(b.add(bits, b.add(odd, c(0x7FFF))), c(0xFFFF0000))
        quiet = b.or_(b.and_(bits, c(0x80000000)), c(0x7FC00000))
        return b.select(b.fcmp_unordered("uno", value, value), quiet, near)

    def rounded(self, b: Any, dtype: DType, value: Value) -> Value:
        """An f32 rounded to the dtype whose values are held as f32."""
        if dtype == F16:
            return b.fpext(b.fptrunc(value, self.ir.HalfType()), self.ir.FloatType())
        if dtype == BF16:
            return b.bitcast(self._to_bf16(b, value), self.ir.FloatType())
        return value

    # ------------------------------------------------------------------------------------------------------------ operations
    def has_binary(self, op: str, dtype: DType) -> bool:
        """Whether `binary` knows an operation."""
        if not self.knows(dtype):
            return False
        if op in _COMPARE:
            return True
        if dtype == BOOL:
            return op in ("and", "or", "xor", "min", "max")
        if dtype.is_float:
            return op in ("add", "sub", "mul", "div", "min", "max")
        return op in _RING or op in ("and", "or", "xor", "min", "max", "floordiv", "mod", "ceildiv", "tdiv", "trem", "shl", "shr")

    def knows(self, dtype: DType) -> bool:
        """Whether values of a dtype are computed here."""
        return dtype == BOOL or plain_integer(dtype) or (plain_float(dtype) and (dtype != F16 or self.half))

    def binary(self, b: Any, op: str, dtype: DType, x: Value, y: Value) -> Value:
        """`x op y`, as `number.binary`."""
        if op in _COMPARE:
            if dtype.is_float:
                return (b.fcmp_unordered if op == "ne" else b.fcmp_ordered)(_COMPARE[op], x, y)
            return (b.icmp_signed if dtype.kind == "int" else b.icmp_unsigned)(_COMPARE[op], x, y)
        if dtype == BOOL:
            return {"and": b.and_, "min": b.and_, "or": b.or_, "max": b.or_, "xor": b.xor}[op](x, y)
        if dtype.is_float:
            made = self._extreme(b, op, x, y) if op in ("min", "max") else {"add": b.fadd, "sub": b.fsub, "mul": b.fmul, "div": b.fdiv}[op](x, y)
            return self.rounded(b, dtype, made)
        match op:
            case "add" | "sub" | "mul" | "xor":
                return getattr(b, op)(x, y)
            case "and" | "or":
                return getattr(b, f"{op}_")(x, y)
            case "min" | "max":
                less = (b.icmp_signed if dtype.kind == "int" else b.icmp_unsigned)("<", x, y)
                return b.select(less, x, y) if op == "min" else b.select(less, y, x)
            case "shl" | "shr":
                return self._shift(b, op, dtype, x, y)
            case _:
                return self._divided(b, op, dtype, x, y)

    def called(self, b: Any, module: Any, e: n.Call, x: list[Value]) -> Value:
        """A function worked out in f64 and rounded once."""
        dtype, double = dtype_of(e.type), self.held(F64)
        if e.fn == "abs":
            return b.call(module.declare_intrinsic("llvm.fabs", [x[0].type]), [x[0]])
        if e.fn == "to_tf32":
            return self.to_tf32(b, x[0], str(dict(e.attrs).get("rounding", "rn")))
        wide = [self.cast(b, dtype, F64, v) for v in x]
        match e.fn:
            case "fma":
                made = b.fadd(b.fmul(wide[0], wide[1]), wide[2])
            case "rcp":
                made = b.fdiv(self.ir.Constant(double, 1.0), wide[0])
            case _:
                made = b.call(module.declare_intrinsic("llvm.sqrt", [double]), [wide[0]])
                if e.fn == "rsqrt":
                    made = b.fdiv(self.ir.Constant(double, 1.0), made)
        return self.cast(b, F64, dtype, made)

    def _extreme(self, b: Any, op: str, x: Value, y: Value) -> Value:
        """The lesser or greater; the other one of a NaN; of two zeros -0 is the lesser."""
        wide = x.type == self.ir.DoubleType()
        whole = self.long if wide else self.word
        kept = b.select(b.fcmp_ordered("<" if op == "min" else ">", x, y), x, y)
        kept = b.select(b.fcmp_unordered("uno", y, y), x, kept)
        bits = (b.or_ if op == "min" else b.and_)(b.bitcast(x, whole), b.bitcast(y, whole))
        return b.select(b.fcmp_ordered("==", x, y), b.bitcast(bits, x.type), kept)

    def _shift(self, b: Any, op: str, dtype: DType, x: Value, y: Value) -> Value:
        """By the width or more, or by less than nothing: 0, or the sign where that is shifted in."""
        bits, signed = dtype.bits, dtype.kind == "int"
        zero = self.ir.Constant(x.type, 0)
        far = b.icmp_unsigned(">=", y, self.ir.Constant(y.type, bits))
        by = b.select(far, zero, y)
        if op == "shl":
            return b.select(far, zero, b.shl(x, by))
        beyond = b.ashr(x, self.ir.Constant(x.type, bits - 1)) if signed else zero
        return b.select(far, beyond, (b.ashr if signed else b.lshr)(x, by))

    def _divided(self, b: Any, op: str, dtype: DType, x: Value, y: Value) -> Value:
        """Quotients and remainders; by zero 0, as NumPy gives. The least number by -1 wraps to itself."""
        signed = dtype.kind == "int"
        zero, one = self.ir.Constant(x.type, 0), self.ir.Constant(x.type, 1)
        none = b.icmp_unsigned("==", y, zero)
        by = b.select(none, one, y)
        if not signed:
            q, r = b.udiv(x, by), b.urem(x, by)
            inexact = b.icmp_unsigned("!=", r, zero)
            q, r = b.select(none, zero, q), b.select(none, zero, r)
            match op:
                case "floordiv" | "tdiv":
                    return q
                case "ceildiv":
                    return b.select(b.and_(inexact, b.not_(none)), b.add(q, one), q)
                case "mod":
                    return r
                case _:
                    return b.sub(x, b.mul(q, y))
        minus = b.icmp_signed("==", by, self.ir.Constant(x.type, -1))
        safe = b.select(minus, one, by)
        q = b.select(minus, b.neg(x), b.sdiv(x, safe))
        r = b.select(minus, zero, b.srem(x, safe))
        apart = b.and_(b.icmp_signed("!=", r, zero), b.icmp_signed("<", b.xor(r, by), zero))
        inexact = b.icmp_signed("!=", r, zero)
        floor = b.select(apart, b.sub(q, one), q)
        match op:
            case "floordiv":
                return b.select(none, zero, floor)
            case "ceildiv":
                return b.select(none, zero, b.select(inexact, b.add(floor, one), floor))
            case "tdiv":
                return b.select(none, zero, q)
            case "mod":
                return b.select(none, zero, b.select(apart, b.add(r, by), r))
            case _:
                return b.select(none, x, r)

    def has_cast(self, source: DType, target: DType, rounding: str) -> bool:
        """Whether `cast` knows a conversion."""
        if not self.knows(source) or not self.knows(target):
            return False
        if rounding == "bits":
            return self.stored(source) != self.byte and number.storage(source).itemsize == number.storage(target).itemsize
        if rounding != "rn":
            return False
        if target == BOOL or not source.is_float:
            return True
        if target.is_float:
            return target in (F32, F64) or source != F64
        return target.bits < 64

    def cast(self, b: Any, source: DType, target: DType, x: Value, rounding: str = "rn") -> Value:
        """`x` converted to nearest even, or its bits, as `number.cast`."""
        if rounding == "bits":
            raw = self.store(b, source, x)
            return self.load(b, target, b.bitcast(raw, self.stored(target)))
        if target == BOOL:
            zero = self.ir.Constant(x.type, 0)
            return b.fcmp_unordered("!=", x, zero) if source.is_float else b.icmp_unsigned("!=", x, zero)
        if not source.is_float:
            if target.is_integer:
                return self._resized(b, source, x, self.held(target))
            wide = self._resized(b, source, x, self.long)
            if target == F64:
                return (b.uitofp if source.name == "u64" else b.sitofp)(wide, self.held(target))
            return self.rounded(b, target, (b.uitofp if source.name == "u64" else b.sitofp)(wide, self.ir.FloatType()))
        if target.is_integer:
            return self._truncated(b, target, x if source == F64 else b.fpext(x, self.ir.DoubleType()))
        if target == F64:
            return x if source == F64 else b.fpext(x, self.held(target))
        if source == F64:
            return b.fptrunc(x, self.held(target))
        return self.rounded(b, target, x)

    def _truncated(self, b: Any, target: DType, x: Value) -> Value:
        """An f64 cut off to an integer of less than 64 bits, clamped to the range of 32 bits, of which a narrower one has the low ones; NaN gives 0."""
        low, high = (self.ir.Constant(x.type, float(v)) for v in (I32 if target.kind == "int" else U32).range)
        x = b.select(b.fcmp_unordered("uno", x, x), self.ir.Constant(x.type, 0.0), x)
        x = b.select(b.fcmp_ordered("<", x, low), low, x)
        x = b.select(b.fcmp_ordered(">", x, high), high, x)
        return b.trunc(b.fptosi(x, self.long), self.held(target))

    def to_tf32(self, b: Any, x: Value, rounding: str) -> Value:
        """An f32 with the 10 bits of mantissa of tf32, as `kir.interp.numerics.rounding` gives it."""
        def c(v: int) -> Value:
            return self.ir.Constant(self.word, v)
        bits = b.bitcast(x, self.word)
        if rounding == "rn":
            up = b.add(bits, b.add(b.and_(b.lshr(bits, c(13)), c(1)), c(0xFFF)))
        else:
            up = b.add(bits, c(0x1000 if rounding == "rna" else 0))
        finite = b.icmp_unsigned("<", b.and_(bits, c(0x7F800000)), c(0x7F800000))
        return b.bitcast(b.select(finite, b.and_(up, c(0xFFFFE000)), bits), x.type)

    def _resized(self, b: Any, source: DType, x: Value, kind: Any) -> Value:
        if x.type.width == kind.width:
            return x
        if x.type.width > kind.width:
            return b.trunc(x, kind)
        return (b.sext if source.kind == "int" else b.zext)(x, kind)

    def index(self, b: Any, dtype: DType, x: Value) -> Value:
        """An integer as 64 bits."""
        return self._resized(b, dtype, x, self.long)
