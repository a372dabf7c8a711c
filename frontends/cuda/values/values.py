"""What a C++ expression may be while a kernel is read: numbers as IR expressions, places in memory, bytes that move as a whole."""

from __future__ import annotations

from dataclasses import field

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, U64, DType, dtype_of

from ..source.source import Node, Unit
from ..symbols.classes import Rec
from ..symbols.symbols import Function, Scope, Value
from ..types.c_types import CType, Prim, Ptr
from .memory import Place, Store


@dataclass(frozen=True)
class Scalar(Value):
    """A number. Its C type is the dtype of the expression."""

    expr: n.Expr

    @property
    def type(self) -> Prim:
        return Prim(dtype_of(self.expr.type))

    @property
    def dtype(self) -> DType:
        return dtype_of(self.expr.type)


@dataclass(frozen=True)
class Wide(Value):
    """A value of several elements (a vector, an array, a class of such), held as a tile of whatever dtype its bytes were read in."""

    tile: n.Expr
    type: CType


@dataclass(frozen=True)
class Record(Value):
    """A class value, member by member."""

    fields: dict[str, Value]
    type: Rec


@dataclass(frozen=True)
class Pointer(Value):
    """The address of a place; `type.to` is what is read through it."""

    place: Place
    type: Ptr


@dataclass(frozen=True)
class Located(Value):
    """A place that has an address: what is left of an assignment."""

    place: Place
    type: CType


@dataclass(frozen=True)
class Null(Value):
    """`nullptr`."""


@dataclass(frozen=True)
class Nothing(Value):
    """The result of a call of type void."""


@dataclass(frozen=True)
class TypeName(Value):
    """A type, as template arguments and casts name it."""

    type: CType


@dataclass(frozen=True)
class Text(Value):
    """A string literal."""

    text: str


@dataclass(frozen=True)
class Lambda(Value):
    """A lambda with the scope that it was written in (captures are by reference)."""

    node: Node
    scope: Scope
    unit: Unit


@dataclass(frozen=True)
class Overloads(Value):
    """A function by its name: explicit template arguments, and the object of a method call."""

    functions: tuple[Function, ...]
    args: tuple[Value, ...] | None = None
    this: Value | None = None
    name: str = ""


@dataclass(frozen=True)
class Builtin(Value):
    """A function of CUDA or the C++ library, with explicit template arguments."""

    name: str
    args: tuple[Value, ...] | None = None


@dataclass
class Members(Value):
    """A class object whose members stand in places of their own."""

    type: Rec
    fields: dict[str, Value] = field(default_factory=dict)


@dataclass
class Aimed(Members):
    """A pointer to such an object, which never points to another: its fields are the object's own."""


@dataclass(frozen=True)
class Group(Value):
    """A cooperative group: `size` threads in a row (0: the CTA), see `grammars/cuda_names.toml`; or the lanes of a warp that a mask names."""

    kind: str
    size: int = 0
    mask: n.Expr | None = None


@dataclass(frozen=True)
class Dims(Value):
    """`threadIdx`, `blockIdx`, `blockDim` or `gridDim`."""

    name: str


@dataclass(frozen=True)
class Pack(Value):
    """A parameter pack."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class Chosen(Value):
    """A pointer that is one or the other by a condition that only the run decides."""

    cond: n.Expr
    then: Value
    orelse: Value


@dataclass(frozen=True)
class Mapped(Value):
    """A tensor map that the kernel takes, or its address."""

    map: n.TensorMap
    buffer: n.Buffer


@dataclass(frozen=True)
class Residue(Value):
    """An integer that addresses in global memory went into: that of `expr`, to the remainder by what the `stores` are aligned to."""

    expr: n.Expr
    stores: tuple[Store, ...]

    @property
    def type(self) -> Prim:
        return Prim(U64)


@dataclass(frozen=True)
class Word(Value):
    """An integer with an address in shared memory in it: the address under `mask`, shifted right by `right`, and `rest` beside it."""

    place: Place
    mask: int = -1
    right: int = 0
    rest: int = 0

    @property
    def type(self) -> Prim:
        return Prim(U64)


@dataclass(frozen=True)
class Remote(Value):
    """The address of a place in the shared memory of another CTA of the cluster."""

    at: n.Region
    type: CType


TRUE, FALSE = build.const(True, BOOL), build.const(False, BOOL)


def integer(value: int) -> Scalar:
    """An int."""
    return Scalar(build.const(value, I32))


def constant(v: Value) -> int | None:
    """The value of a compile-time integer or bool."""
    if isinstance(v, Scalar) and isinstance(v.expr, n.Const) and not isinstance(v.expr.value, float):
        return int(v.expr.value)
    return None
