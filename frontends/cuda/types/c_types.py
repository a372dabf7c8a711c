"""Types of C++ as far as kernels use them, and the usual conversions."""

from __future__ import annotations

import re
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.ir.types import BF16, BOOL, F4E2M1, F8E4M3, F8E5M2, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType

from .errors import NotUnderstood


class CType:
    """A type of C++: one of those below, or a class (`Rec`)."""


@dataclass(frozen=True)
class Prim(CType):
    """A number."""

    dtype: DType

    def __str__(self) -> str:
        return NAMES.get(self.dtype.name, self.dtype.name)


@dataclass(frozen=True)
class Vec(CType):
    """A vector type of CUDA (`float4`, `half2`), with members x, y, z, w."""

    dtype: DType
    n: int
    name: str = ""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Ptr(CType):
    """A pointer; `const` says that what it points to is only read, `volatile` that every access through it is made (it makes no type of its own)."""

    to: CType
    const: bool = False
    volatile: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.to}*"


@dataclass(frozen=True)
class Arr(CType):
    """An array of `n` elements."""

    of: CType
    n: int

    def __str__(self) -> str:
        return f"{self.of}[{self.n}]"


@dataclass(frozen=True)
class Void(CType):
    """`void`."""

    def __str__(self) -> str:
        return "void"


@dataclass(frozen=True)
class Auto(CType):
    """`auto`: whatever the initializer is."""

    def __str__(self) -> str:
        return "auto"


@dataclass(frozen=True)
class Named(CType):
    """A type of a library that only calls know: a cooperative group, a stream."""

    name: str
    args: tuple[object, ...] = ()

    def __str__(self) -> str:
        return self.name


INT, UNSIGNED, FLOAT, DOUBLE, BOOLEAN, LONG, ULONG = (Prim(d) for d in (I32, U32, F32, F64, BOOL, I64, U64))
VOID, AUTO = Void(), Auto()
ANY_POINTER = Ptr(AUTO)
"""A pointer, to whatever it is."""
NAMES = {"i32": "int", "u32": "unsigned", "f32": "float", "f64": "double", "i64": "long long", "u64": "unsigned long long", "f16": "half",
         "bf16": "nv_bfloat16", "i8": "signed char", "u8": "unsigned char", "i16": "short", "u16": "unsigned short"}  # fmt: skip

_INTEGERS = {
    "bool": BOOL, "char": I8, "signed char": I8, "unsigned char": U8, "short": I16, "unsigned short": U16, "int": I32, "signed": I32,
    "signed int": I32, "unsigned": U32, "unsigned int": U32, "long": I64, "unsigned long": U64, "long long": I64,
    "unsigned long long": U64, "long int": I64, "short int": I16, "unsigned short int": U16, "unsigned long int": U64,
    "long long int": I64, "unsigned long long int": U64, "signed long long": I64, "long unsigned int": U64, "signed short": I16,
    "int8_t": I8, "int16_t": I16, "int32_t": I32, "int64_t": I64, "uint8_t": U8, "uint16_t": U16, "uint32_t": U32, "uint64_t": U64,
    "size_t": U64, "ssize_t": I64, "ptrdiff_t": I64, "intptr_t": I64, "uintptr_t": U64, "uint": U32, "ushort": U16, "uchar": U8,
    "ulong": U64, "ulonglong": U64, "clock_t": I64, "char8_t": U8, "byte": U8,
}  # fmt: skip
_FLOATS = {
    "float": F32, "double": F64, "half": F16, "__half": F16, "nv_half": F16, "__nv_bfloat16": BF16, "nv_bfloat16": BF16, "__nv_fp8_e4m3": F8E4M3,
    "__nv_fp8_e5m2": F8E5M2, "__nv_fp4_e2m1": F4E2M1, "long double": F64,
}  # fmt: skip
_VECTOR_BASES = {
    "char": I8, "uchar": U8, "short": I16, "ushort": U16, "int": I32, "uint": U32, "long": I64, "ulong": U64, "longlong": I64,
    "ulonglong": U64, "float": F32, "double": F64,
}  # fmt: skip
_NAMED: dict[str, CType] = {
    "half2": Vec(F16, 2, "half2"), "__half2": Vec(F16, 2, "half2"), "nv_half2": Vec(F16, 2, "half2"),
    "__nv_bfloat162": Vec(BF16, 2, "nv_bfloat162"), "nv_bfloat162": Vec(BF16, 2, "nv_bfloat162"), "dim3": Vec(U32, 3, "dim3"),
    "__nv_fp8x2_e4m3": Vec(F8E4M3, 2, "fp8x2_e4m3"), "__nv_fp8x4_e4m3": Vec(F8E4M3, 4, "fp8x4_e4m3"),
    "__nv_fp8x2_e5m2": Vec(F8E5M2, 2, "fp8x2_e5m2"), "__nv_fp8x4_e5m2": Vec(F8E5M2, 4, "fp8x4_e5m2"),
    "__half2_raw": Vec(U16, 2, "__half2_raw"), "__nv_bfloat162_raw": Vec(U16, 2, "__nv_bfloat162_raw"),
    "__half_raw": Vec(U16, 1, "__half_raw"), "__nv_bfloat16_raw": Vec(U16, 1, "__nv_bfloat16_raw"),
    "__nv_fp8_storage_t": Prim(U8), "__nv_fp8x2_storage_t": Prim(U16),
    "__nv_fp8x4_storage_t": Prim(U32), "cuuint64_t": Prim(U64), "cuuint32_t": Prim(U32), "CUtensorMap": Named("CUtensorMap"),
}  # fmt: skip


def named_type(name: str) -> CType | None:
    """The type that C++ or CUDA gives a name; None for names that a program must declare."""
    if name == "void":
        return VOID
    if name in _INTEGERS:
        return Prim(_INTEGERS[name])
    if name in _FLOATS:
        return Prim(_FLOATS[name])
    if name in _NAMED:
        return _NAMED[name]
    m = re.fullmatch(r"([a-z]+?)([1234])", name)
    if m and m[1] in _VECTOR_BASES:
        return Vec(_VECTOR_BASES[m[1]], int(m[2]), name)
    return None


def promoted(d: DType) -> DType:
    """Integral promotion: what is narrower than int becomes int."""
    return I32 if d.is_bool or (d.is_integer and d.bits < 32) else d


def usual(a: DType, b: DType) -> DType:
    """The usual arithmetic conversions; half and bfloat16 with a wider float become that float, with an integer stay what they are."""
    if a == b and a.is_float:
        return a
    if a.is_float or b.is_float:
        if not (a.is_float and b.is_float):
            return a if a.is_float else b
        order = {8: 0, 4: 0, 16: 1, 32: 2, 64: 3}
        if order[a.bits] == order[b.bits]:
            raise NotUnderstood(f"arithmetic between {a} and {b}")
        return a if order[a.bits] > order[b.bits] else b
    a, b = promoted(a), promoted(b)
    if a == b:
        return a
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    return a if a.kind == "uint" else b
