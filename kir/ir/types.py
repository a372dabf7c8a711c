"""Types of the kernel IR: dtypes, the types of values built from them, and `Expr`, what has a type and stands in the shape of one.

A dtype is a fixed-width machine type. In generic programs a dtype may be symbolic: a variable bound by the binding (`T`), or the
promotion of two symbolic dtypes (`promote(T,f32)`), both resolved by `specialize`.
"""
from __future__ import annotations

from collections.abc import Iterable
from struct import pack, unpack
from typing import Literal

from kir.base.dataclass import dataclass
from kir.ir.base import Node

Space = Literal["global", "shared", "fragment", "register", "cluster", "constant"]
SPACES: tuple[Space, ...] = ("global", "shared", "fragment", "register", "cluster", "constant")


@dataclass(frozen=True)
class DType:
    """A machine type of `bits` bits. Signed and unsigned integers wrap; `token` dtypes (mbarrier, tensormap) hold no number."""

    name: str
    kind: Literal["int", "uint", "float", "bool", "token", "symbolic"]
    bits: int

    def __str__(self) -> str:
        return self.name

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def is_symbolic(self) -> bool:
        return self.kind == "symbolic"

    @property
    def may_index(self) -> bool:
        """An integer, or a symbolic dtype, which the binding may make one."""
        return self.kind in ("int", "uint", "symbolic")

    @property
    def may_decide(self) -> bool:
        """bool, or a symbolic dtype."""
        return self.kind in ("bool", "symbolic")

    @property
    def bytes(self) -> int:
        """Size in bytes of one element, rounded up (bool is one byte; packed 4-bit types count as one)."""
        return max(1, (self.bits + 7) // 8)

    def wrap(self, value: int) -> int:
        """`value` reduced to this integer dtype as two's complement hardware does."""
        value &= (1 << self.bits) - 1
        return value - (1 << self.bits) if self.kind == "int" and value >> (self.bits - 1) else value

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer dtype."""
        return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.kind == "int" else (0, (1 << self.bits) - 1)


BOOL = DType("bool", "bool", 1)
I4, I8, I16, I32, I64 = (DType(f"i{n}", "int", n) for n in (4, 8, 16, 32, 64))
U4, U8, U16, U32, U64 = (DType(f"u{n}", "uint", n) for n in (4, 8, 16, 32, 64))
F16, BF16, F32, F64 = DType("f16", "float", 16), DType("bf16", "float", 16), DType("f32", "float", 32), DType("f64", "float", 64)
F8E4M3, F8E5M2, F8E4M3FNUZ, E8M0, F4E2M1 = (DType("f8e4m3", "float", 8), DType("f8e5m2", "float", 8), DType("f8e4m3fnuz", "float", 8),
                                            DType("e8m0", "float", 8), DType("f4e2m1", "float", 4))
FP8 = frozenset({F8E4M3, F8E5M2})
MBARRIER, TENSORMAP = DType("mbarrier", "token", 64), DType("tensormap", "token", 1024)

DTYPES: dict[str, DType] = {d.name: d for d in (
    BOOL, I4, I8, I16, I32, I64, U4, U8, U16, U32, U64, F16, BF16, F32, F64, F8E4M3, F8E5M2, F8E4M3FNUZ, E8M0, F4E2M1, MBARRIER, TENSORMAP)}


def symbolic(name: str) -> DType:
    """A dtype term of a generic program, as `kir.ir.dtype_terms` reads it."""
    return DType(name, "symbolic", 0)


def mention(name: str) -> str:
    """A parameter or meta as a term names it: with a leading `%` where its name is also a dtype, `true` or `false`."""
    return f"%{name}" if name in DTYPES or name in ("true", "false") else name


def variable(name: str) -> DType:
    """The dtype of a parameter, or the meta that is a dtype, of a generic program."""
    return symbolic(mention(name))


_FLOAT_RANK = {"f4e2m1": 0, "e8m0": 0, "f8e5m2": 1, "f8e4m3": 1, "f8e4m3fnuz": 1, "bf16": 3, "f16": 3, "f32": 4, "f64": 5}


def promote(a: DType, b: DType) -> DType:
    """The common dtype of a binary operation, after the usual rules of the surfaces (float beats integer, wider beats narrower,
    bf16 with f16 gives f32, unsigned beats signed at equal width). Symbolic dtypes give a symbolic promotion."""
    if a == b:
        return a
    if a.is_symbolic or b.is_symbolic:
        first, second = sorted((a.name, b.name))
        return symbolic(f"promote({first},{second})")
    if a.is_float or b.is_float:
        if not (a.is_float and b.is_float):
            return a if a.is_float else b
        if {a, b} == {F16, BF16}:
            return F32
        return a if _FLOAT_RANK[a.name] >= _FLOAT_RANK[b.name] else b
    if a.is_bool or b.is_bool:
        return b if a.is_bool else a
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    return a if a.kind == "uint" else b


class Expr(Node):
    """A value. Evaluation is strict (both arms of a `Select`); only a call at the root of a `Let` or `Eval` may have effects."""

    @property
    def type(self) -> Type:
        """The type, computed from the operands once."""
        raise TypeError(type(self).__name__)

    @property
    def dimension(self) -> int | Expr:
        """What it is in a shape: a literal's integer, else itself."""
        return self


@dataclass(frozen=True)
class TileType:
    """A value held by a team of threads: `dtype[shape]`; a single thread's tile is its vector (float4, half2). Dimensions are
    integers, or expressions over metas in generic programs."""

    dtype: DType
    shape: tuple[int | Expr, ...]


@dataclass(frozen=True)
class PointerType:
    """The address of an element of `dtype` in `space`."""

    dtype: DType
    space: Space


@dataclass(frozen=True)
class StructType:
    """A named record of one thread's values; the fields stand in the program's `structs`."""

    name: str
    fields: tuple[tuple[str, DType | TileType], ...]


ValueType = DType | TileType | PointerType | StructType
"""What one name may hold."""


@dataclass(frozen=True)
class TupleType:
    """Several results of one call."""

    elements: tuple[ValueType, ...]


@dataclass(frozen=True)
class UnitType:
    """The type of a call that is made for its effect."""


UNIT = UnitType()
Type = ValueType | TupleType | UnitType


def value_types(types: Iterable[Type]) -> tuple[ValueType, ...]:
    """`types` as the elements of a tuple. Raises TypeError where one is no value (a tuple, or nothing at all)."""
    out: list[ValueType] = []
    for t in types:
        if isinstance(t, (TupleType, UnitType)):
            raise TypeError("a tuple holds values, neither tuples nor the results of calls made for their effect")
        out.append(t)
    return tuple(out)


def rounded(value: float, dtype: DType) -> float:
    """A finite number as a float dtype of 16 or 32 bits holds it, to nearest even; itself for others, and beyond their range."""
    if dtype not in (F16, BF16, F32) or not abs(value) < (65504.0 if dtype == F16 else 3.38e38):
        return value
    if dtype == F16:
        return float(unpack("e", pack("e", value))[0])
    narrow = unpack("f", pack("f", value))[0]
    if dtype == F32:
        return float(narrow)
    bits = unpack("I", pack("f", narrow))[0]
    return float(unpack("f", pack("I", bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000))[0])


def dtype_of(t: Type) -> DType:
    """The element dtype of a scalar, tile or pointer target."""
    if isinstance(t, DType):
        return t
    if isinstance(t, (TileType, PointerType)):
        return t.dtype
    raise TypeError(f"{t} has no single dtype")


def shape_of(t: Type) -> tuple[int | Expr, ...]:
    """The tile shape of a type; scalars have shape ()."""
    return t.shape if isinstance(t, TileType) else ()


def with_dtype(t: Type, dtype: DType) -> Type:
    """`t` with its element dtype replaced."""
    if isinstance(t, TileType):
        return TileType(dtype, t.shape)
    return dtype


def broadcast_shapes(a: tuple[int | Expr, ...], b: tuple[int | Expr, ...]) -> tuple[int | Expr, ...] | None:
    """The common shape of two shapes aligned at the right, where 1 stretches; None when they do not agree."""
    if a == b:
        return a
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    out: list[int | Expr] = []
    for x, y in zip(a, b, strict=True):
        if x == y or y == 1:
            out.append(x)
        elif x == 1:
            out.append(y)
        else:
            return None
    return tuple(out)
