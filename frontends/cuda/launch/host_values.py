"""What the host side of CUDA is to a reader that does not run it: memory that was allocated, tensors of torch's C++, extents of a launch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DTYPES
from kir.surface.launches.values import Array, Dtype, Known, Unknown, Value, floored, is_number

from .records import Record

TYPES = {
    "float": "f32", "double": "f64", "half": "f16", "__half": "f16", "at::Half": "f16", "c10::Half": "f16", "torch::Half": "f16", "__nv_bfloat16": "bf16",
    "nv_bfloat16": "bf16", "at::BFloat16": "bf16", "c10::BFloat16": "bf16", "torch::BFloat16": "bf16", "int": "i32", "int32_t": "i32", "unsigned": "u32",
    "unsigned int": "u32", "uint32_t": "u32", "long": "i64", "int64_t": "i64", "long long": "i64", "size_t": "u64", "uint64_t": "u64", "char": "i8",
    "int8_t": "i8", "unsigned char": "u8", "uint8_t": "u8", "bool": "bool", "short": "i16", "int16_t": "i16", "uint16_t": "u16",
    **{f"{owner}::{name}": dtype for owner in ("at", "c10", "torch") for name, dtype in (("Float8_e4m3fn", "f8e4m3"), ("Float8_e5m2", "f8e5m2"))},
    "__nv_fp8_e4m3": "f8e4m3", "__nv_fp8_e5m2": "f8e5m2", "uint": "u32", "ushort": "u16", "uchar": "u8", "ulong": "u64", "unsigned long": "u64",
    "unsigned long long": "u64", "long int": "i64", "long long int": "i64", "signed char": "i8", "unsigned short": "u16", "ptrdiff_t": "i64", "ssize_t": "i64",
}
"""IR dtypes by the names of C++ types."""
ELEMENTS = {"uint": "unsigned", "uchar": "unsigned char", "ushort": "uint16_t", "ulonglong": "uint64_t", "longlong": "int64_t"}
"""The element of a vector type where it is called otherwise."""
VECTOR = re.compile(r"(float|double|int|uint|char|uchar|short|ushort|longlong|ulonglong|half|__half|nv_bfloat16|__nv_bfloat16)([1-4])")
SCALARS = {"kFloat32": "f32", "kFloat": "f32", "kFloat16": "f16", "kHalf": "f16", "kBFloat16": "bf16", "kFloat64": "f64", "kDouble": "f64", "kInt32": "i32",
           "kInt": "i32", "kInt64": "i64", "kLong": "i64", "kInt8": "i8", "kUInt8": "u8", "kBool": "bool", "kFloat8_e4m3fn": "f8e4m3", "kFloat8_e5m2": "f8e5m2"}
"""IR dtypes by torch's `ScalarType`."""
MAKERS = frozenset({"empty", "zeros", "ones", "full", "rand", "randn"})


@dataclass(frozen=True)
class Extents:
    """A `dim3`."""

    of: tuple[Value, ...]


@dataclass(frozen=True)
class Pointed:
    """A variable whose address is taken: `&d_x`."""

    name: str


def asked_for(args: Sequence[Value], scope: Mapping[str, Value]) -> list[str]:
    """The integers that a call of CUDA's is to fill in, and that nothing says yet: of the device, or how many CTAs fit there."""
    held = {a.name: scope.get(a.name) for a in args if isinstance(a, Pointed)}
    return [name for name, v in held.items() if isinstance(v, Unknown) and TYPES.get(v.reason, " ")[0] in "iu"]


class Memory(Array):
    """A pointer of the host's, whose extent shows when memory is allocated for it."""


def bytes_of(dtype: str) -> int:
    """Bytes of an element; 0 where the dtype is open."""
    return (DTYPES[dtype].bits + 7) // 8 if dtype in DTYPES else 0


def width_of(kind: str) -> int:
    """Bytes of a C++ type, also of a vector (`float4`, `__half2`); 0 for one that is not known."""
    if kind in TYPES:
        return bytes_of(TYPES[kind])
    found = VECTOR.fullmatch(kind)
    return bytes_of(TYPES[ELEMENTS.get(found[1], found[1])]) * int(found[2]) if found is not None else 0


def allocated(pointer: Array, size: Value) -> None:
    """Memory of so many bytes for a pointer."""
    width = bytes_of(pointer.dtype)
    if width and isinstance(size, n.Expr) and is_number(size):
        pointer.shape = (divided(pointer.known.resolved(size), width),)


def divided(e: n.Expr, by: int) -> n.Expr:
    """A number of bytes as one of elements."""
    terms = build.polynomial(e)
    if all(c % by == 0 for c in terms.values()):
        return build.from_polynomial({m: c // by for m, c in terms.items()}, e.type)  # type: ignore[arg-type]  # an i32
    return floored(e, build.const(by))


def dims(known: Known, values: Sequence[Value]) -> list[n.Expr] | None:
    """A shape; a number that is written out is a size of its own, of which it is an example."""
    out: list[n.Expr] = []
    for v in values:
        if not isinstance(v, n.Expr) or not is_number(v):
            return None
        out.append(known.fresh("", int(v.value)) if isinstance(v, n.Const) and int(v.value) > 1 else v)
    return out


def torch_made(known: Known, word: str, args: Sequence[Value]) -> Value:
    """A tensor that torch's C++ makes."""
    if word.endswith("_like") and args and isinstance(args[0], Array):
        made = Array(known, "", args[0].shape, args[0].dtype, None)
        made.like = args[0]
        return made
    if word in MAKERS and args:
        shape = dims(known, args[0]) if isinstance(args[0], list) else list(args[0].shape or ()) if isinstance(args[0], Array) else None
        dtype = next((x.name for x in args[1:] if isinstance(x, Dtype)), "f32")
        return Array(known, "", shape, dtype)
    return Unknown(word)


def method(a: Array, name: str, args: Sequence[Value], templates: Sequence[Value]) -> Value:
    """What a method of a tensor gives."""
    first = args[0] if args else None
    axis = int(first.value) if isinstance(first, n.Const) else None
    if name == "size" and axis is not None:
        found = a.extent(axis)
        return found if found is not None else Unknown("an extent")
    if name == "stride" and axis is not None:
        return a.stride(axis)
    if name in ("numel", "nelement") or (name == "size" and not args):
        return a.elements()
    if name == "resize" and isinstance(first, n.Expr) and is_number(first):
        a.shape = (first,)
        return None
    if name in ("data_ptr", "mutable_data_ptr", "const_data_ptr", "data", "get"):
        if templates and isinstance(templates[0], Dtype) and templates[0].name and not a.dtype:
            a.dtype = templates[0].name
        return a
    if name in ("scalar_type", "dtype", "options", "type"):
        return Dtype(a.dtype)
    if name in ("to", "toType") and isinstance(first, Dtype):
        return Array(a.known, a.hint, a.shape, first.name, a.strides)
    if name in ("to", "contiguous", "cuda", "clone", "detach", "value"):
        return a
    if name in ("dim", "ndimension"):
        return Rank(a)
    if "packed_accessor" in name:
        return _accessor(a, name, templates)
    if name == "sizes":
        return Sizes(a)
    return True if name.startswith("is_") or name == "defined" or name == "has_value" else Unknown(f".{name}()")


def _accessor(a: Array, name: str, templates: Sequence[Value]) -> Value:
    """A packed accessor of a tensor: its members as `grammars/cuda/torch.cuh` has them."""
    element, rank = (*templates, None, None)[:2]
    shape = a.of_rank(int(rank.value)) if isinstance(rank, n.Const) else None
    if shape is None:
        return Unknown(name)
    if isinstance(element, Dtype) and not a.dtype:
        a.dtype = element.name
    numbers = {f"sizes__{k}": x for k, x in enumerate(shape)} | {f"strides__{k}": a.stride(k) for k in range(len(shape))}
    kind = next((c for c, x in TYPES.items() if x == a.dtype), "")
    return Record({"first": a, **numbers}, {"first": f"{kind}* first;", **{x: f"int {x};" for x in numbers}})


@dataclass(frozen=True)
class Rank:
    """The number of axes of a tensor, before it is compared."""

    of: Array


@dataclass(frozen=True)
class Sizes:
    """All extents of a tensor."""

    of: Array


def named_types(words: str) -> Value:
    """A type as a template argument."""
    plain = " ".join(words.replace("const", " ").split()).rstrip("*& ")
    return Dtype(TYPES[plain]) if plain in TYPES else Unknown(plain)


Scope = Mapping[str, Value]
