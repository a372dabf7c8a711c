"""Pairs of elements rounded to a narrow dtype and packed into an integer, as the PTX instruction that does it: Triton has no words for them."""

from __future__ import annotations

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import F4E2M1, F16, F32, U4, U8, U16, U32, dtype_of

PAIRS = {("e8m0", "ru"): "cvt.rp.satfinite.ue8m0x2.f32", ("f4e2m1", "sat"): "cvt.rn.satfinite.e2m1x2.f32"}
"""Instructions of two float32 by the dtype and the rounding."""
BYTES = 4
"""Results of eight bits in a register."""


@dataclass(frozen=True)
class Packed:
    """An inline asm: its text, its constraints, how many elements it is for, its result's name in Triton, its operands, and what its result is cut to."""

    text: str
    constraints: str
    pack: int
    result: str
    operands: tuple[n.Expr, ...]
    cut: str = ""


def packed(e: n.Call) -> Packed | None:
    """The asm of a `pack` of two elements; None for any other."""
    dtype = str(dict(e.attrs).get("dtype", ""))
    match e.args:
        case (n.Cast(n.Call(fn="vec", args=(n.Expr() as low, n.Expr() as high)), narrow, rounding),):
            word = PAIRS.get((narrow.name, rounding))
            if word is None or dtype_of(low.type) != F32 or dtype_of(high.type) != F32:
                return None
            if dtype == U16.name and narrow.bits == 8:
                return _pair(word, low, high)
            return _bytes(word, low, high) if dtype == U8.name and narrow.bits == 4 else None
        case (n.Cast(n.Call(fn="unpack", args=(n.Expr() as both,)) as halves, narrow, rounding),) if dtype_of(halves.type) == F16 and dtype == U8.name:
            if (narrow.name, rounding) != ("f4e2m1", "sat"):
                return None
            text = "{ .reg .b8 q; cvt.rn.satfinite.e2m1x2.f16x2 q, $1; cvt.u32.u8 $0, q; }"
            return Packed(text, "=r,r", 1, "tl.uint32", (both,), "tl.uint8")
        case (n.Cast(n.Call(fn="unpack", args=(n.Expr() as byte_,)) as parts, narrow, "rn"),) if dtype_of(parts.type).name == "f4e2m1" and narrow == F16:
            text = "{ .reg .b8 q; cvt.u8.u32 q, $1; cvt.rn.f16x2.e2m1x2 $0, q; }"
            return Packed(text, "=r,r", 1, "tl.uint32", (build.cast(byte_, U32),)) if dtype == U32.name and dtype_of(byte_.type) == U8 else None
        case (n.Call(fn="vec", args=(n.Call(fn="pack") as byte, n.Const(value=0, dtype=zero))),) if dtype == U16.name and zero == U8:
            match byte.args:
                case (n.Cast(n.Call(fn="vec", args=(n.Expr() as low, n.Expr() as high)), narrow, rounding),) if (narrow.name, rounding) in PAIRS:
                    text = f"{{ .reg .b8 q; {PAIRS[narrow.name, rounding]} q, $2, $1; mov.b16 $0, {{q, 0}}; }}"
                    return Packed(text, "=h,f,f", 1, "tl.uint16", (low, high))
    return None


def nibble(e: n.Cast) -> Packed | None:
    """The asm of an f16 that is made of four bits; None for any other conversion."""
    match e:
        case n.Cast(x=n.Cast(x=n.Cast(x=n.Expr() as low, dtype=four, rounding="rn"), dtype=narrow, rounding="bits"), dtype=wide, rounding="rn") if (
                (four, narrow, wide) == (U4, F4E2M1, F16) and dtype_of(low.type).is_integer):
            text = "{ .reg .b8 q; .reg .b16 h; .reg .b32 p; cvt.u8.u32 q, $1; cvt.rn.f16x2.e2m1x2 p, q; mov.b32 {$0, h}, p; }"
            return Packed(text, "=h,r", 1, "tl.float16", (build.cast(low, U32),))
    return None


def _pair(word: str, low: n.Expr, high: n.Expr) -> Packed:
    """Two bytes in a register of 16 bits; a zero is written into the instruction."""
    if isinstance(high, n.Const) and high.value == 0:
        return Packed(f"{word} $0, 0.0, $1;", "=h,f", 1, "tl.uint16", (low,))
    return Packed(f"{word} $0, $2, $1;", "=h,f,f", 1, "tl.uint16", (low, high))


def _bytes(word: str, low: n.Expr, high: n.Expr) -> Packed:
    """A byte for each pair, four to a register of 32 bits."""
    names = ", ".join(f"q{i}" for i in range(BYTES))
    lines = " ".join(f"{word} q{i}, ${1 + BYTES + i}, ${1 + i};" for i in range(BYTES))
    return Packed(f"{{ .reg .b8 {names}; {lines} mov.b32 $0, {{{names}}}; }}", "=r" + ",f" * 2 * BYTES, BYTES, "tl.uint8", (low, high))
