"""Rows of the instruction table as PTX: what a backend writes where its language has no call of its own."""
from __future__ import annotations

from collections.abc import Mapping

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import DType

LETTERS = {"f32": "f", "f64": "d", "i32": "r", "u32": "r", "i64": "l", "u64": "l", "f16": "h", "bf16": "h", "i16": "h", "u16": "h"}
"""Constraint letters by dtype."""
_ROUNDINGS = {"rn": "rn", "rz": "rz", "ru": "rp", "rd": "rm"}
_APPROXIMATE = {"exp2_approx": "ex2", "log2_approx": "lg2", "rsqrt_approx": "rsqrt", "sin_approx": "sin", "cos_approx": "cos",
                "tanh_approx": "tanh", "rcp_approx": "rcp", "sqrt_approx": "sqrt", "div_approx": "div"}
_ROUNDED = ("add", "sub", "mul", "fma", "div", "sqrt", "rcp")


@dataclass(frozen=True)
class Ptx:
    """One instruction: its opcode, the dtype of its result, those of its operands in the order of the row, the order in which the opcode
    takes them, and immediates after them."""

    opcode: str
    result: DType
    operands: tuple[DType, ...]
    order: tuple[int, ...]
    immediates: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """A name for a function that is this instruction."""
        return "_".join(["ptx", *self.opcode.replace("::", "_").split("."), *map(str, self.immediates)])

    def text(self, mark: str) -> str:
        """The asm text; `mark` is `%` (CUDA) or `$` (LLVM). Operand 0 is the result."""
        places = [f"{mark}{i}" for i in (0, *(k + 1 for k in self.order))]
        return f"{self.opcode} {', '.join([*places, *map(str, self.immediates)])};"


def spelled(fn: str, operands: tuple[DType, ...], attrs: Mapping[str, n.Attr]) -> Ptx | None:
    """An elementwise row on scalars as one instruction; None where there is none."""
    if not operands:
        return None
    first, plain = operands[0], tuple(range(len(operands)))
    same = Ptx("", first, operands, plain)
    if fn in _APPROXIMATE:
        return _approximate(fn, same, attrs)
    stem, _, word = fn.rpartition("_")
    if word == "rounded" and stem in _ROUNDED and first.name in ("f32", "f64"):
        how = "".join(f".{x}" for x in ("ftz", "sat") if attrs.get(x))
        return Ptx(f"{stem}.{_ROUNDINGS[str(attrs.get('rounding', 'rn'))]}{how}.{first}", first, operands, plain)
    if fn == "to_tf32" and attrs.get("rounding") == "rna":
        return Ptx("cvt.rna.tf32.f32", first, operands, plain)
    if first.bits != 32 or not first.is_integer:
        return None
    signed = "s32" if first.kind == "int" else "u32"
    match fn:
        case "lop3":
            return Ptx("lop3.b32", first, operands, plain, (int(attrs["lut"]),))
        case "bit_extract":
            return Ptx(f"bfe.{signed}", first, operands, plain)
        case "bit_insert":
            return Ptx("bfi.b32", first, operands, (1, 0, 2, 3))
        case "nth_bit":
            return Ptx("fns.b32", first, operands, plain)
        case "funnel_left" | "funnel_right":
            return Ptx(f"shf.{fn[7]}.{'clamp' if attrs.get('clamp') else 'wrap'}.b32", first, operands, plain)
        case "dp4a":
            kinds = ["s32" if d.kind == "int" else "u32" for d in operands]
            return Ptx(f"dp4a.{kinds[0]}.{kinds[1]}", operands[2], operands, plain)
        case "mulhi":
            return Ptx(f"mul.hi.{signed}", first, operands, plain)
        case "prmt":
            return Ptx("prmt.b32", first, operands, plain)
    return None


def _approximate(fn: str, same: Ptx, attrs: Mapping[str, n.Attr]) -> Ptx | None:
    base, dtype = _APPROXIMATE[fn], same.result.name
    if base in ("tanh", "sqrt") and attrs.get("subnormal"):
        return None
    if dtype == "f32":
        flushes = ".ftz" if not attrs.get("subnormal") and base != "tanh" else ""
        return Ptx(f"{base}.approx{flushes}.f32", same.result, same.operands, same.order)
    if dtype in ("f16", "bf16") and base in ("ex2", "tanh"):
        flushes = ".ftz" if dtype == "bf16" and base == "ex2" else ""
        if base == "ex2" and bool(flushes) == bool(attrs.get("subnormal")):
            return None
        return Ptx(f"{base}.approx{flushes}.{dtype}", same.result, same.operands, same.order)
    return None
