"""What a Triton expression stands for while a kernel is read: abstract values, some of them run-time IR, others known or static."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

import libcst as cst

from kir.base.dataclass import dataclass
from kir.ir.nodes import Buffer, Expr
from kir.ir.types import DType, dtype_of, shape_of

if TYPE_CHECKING:
    from ..._python.project import Module

Dim: TypeAlias = int | Expr
Shape: TypeAlias = tuple[Dim, ...]
AXES = 3
"""Axes of a grid."""
MOST_AXES = 16
"""Axes that a tile is taken to have where a source only names one of them."""


class NotUnderstood(Exception):
    """Something of the source that this frontend does not understand; the statement becomes opaque with this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Refused(NotUnderstood):
    """Something that Triton's compiler refuses: no launch takes the static path that leads to it."""


@dataclass(frozen=True)
class Static:
    """A constexpr that depends on metas: an expression over them, of integer, bool, f32 or symbolic dtype."""

    expr: Expr


@dataclass(frozen=True)
class Run:
    """A run-time scalar or tile."""

    expr: Expr

    @property
    def dtype(self) -> DType:
        return dtype_of(self.expr.type)

    @property
    def shape(self) -> Shape:
        return shape_of(self.expr.type)


@dataclass(frozen=True)
class Pointer:
    """The address of element sum(terms) of a flat buffer; a tile of pointers when a term is a tile. Each term has its own width and is
    widened before the sum, as Triton does."""

    base: Buffer
    terms: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class BlockPointer:
    """`tl.make_block_ptr`: a window of `block` elements at `offsets` in a tensor of `shape` and `strides` (i64 scalars)."""

    base: Pointer
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offsets: tuple[Expr, ...]
    block: Shape


@dataclass(frozen=True)
class Descriptor:
    """A tensor descriptor: made in the kernel over a flat pointer, or a parameter (then `base` is the buffer itself and `strides` is
    empty)."""

    base: Pointer
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    block: Shape


@dataclass(frozen=True)
class TypeOf:
    """A dtype as a value; `pointer` for `tl.pointer_type(..)` and the dtype of a pointer."""

    dtype: DType
    pointer: bool = False
    shape: Shape = ()


@dataclass(frozen=True)
class Items:
    """A tuple or list."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class Record(Items):
    """An object that Triton passes by its parts: of an aggregate, or a named tuple. `names` are those of the items."""

    of: Host
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Jit:
    """A function compiled by Triton, from its source."""

    module: Module
    node: cst.FunctionDef


@dataclass(frozen=True, eq=False)
class Host:
    """A host function or class, from its source; `names` are those of the function in which it was made."""

    module: Module
    node: cst.FunctionDef | cst.ClassDef
    names: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Member:
    """A member of an enumeration of the host; its own value is a number, text or boolean."""

    of: str
    name: str
    value: int | float | bool | str | None


@dataclass(frozen=True)
class Builtin:
    """A function or module of Triton, torch, math or Python by its dotted name."""

    name: str


@dataclass(frozen=True, eq=False)
class ModuleValue:
    """A module read from source."""

    module: Module


@dataclass(frozen=True)
class Method:
    """A method bound to a value."""

    owner: Value
    name: str


@dataclass(frozen=True)
class Bound:
    """A function of a class bound to an object of it; compiled by Triton under `jit`."""

    owner: Record
    fn: Jit
    jit: bool


@dataclass(frozen=True)
class MetaFunction:
    """A constexpr parameter that is called: a function that the binding supplies."""

    name: str


@dataclass(frozen=True)
class Slice:
    """`a[lo:hi]` with known ends, `:` when both are None."""

    lo: int | None = None
    hi: int | None = None


@dataclass(frozen=True)
class Choice:
    """One of two values, by a static condition that the binding decides; of two pointers into different buffers also by a value that is
    worked out when the kernel runs, then `static` is False."""

    cond: Expr
    a: Value
    b: Value
    static: bool = True


@dataclass(frozen=True)
class Mixed:
    """Pointers of which a tile of conditions chooses each among two buffers."""

    cond: Expr
    a: Value
    b: Value


@dataclass(frozen=True)
class Unknown:
    """The value of something that was not understood."""

    reason: str


@dataclass(frozen=True)
class Undefined:
    """A name that is not bound on this path."""


@dataclass(frozen=True)
class Table:
    """A host dict with texts as keys; its values may be anything, functions too."""

    items: tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Configuration:
    """`triton.Config(..)`: metas and launch options by name."""

    settings: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, eq=False)
class HostLambda:
    """A host lambda, from its source."""

    module: Module
    node: cst.Lambda


Known: TypeAlias = int | float | bool | str | None
Value: TypeAlias = (
    Known
    | Static
    | Run
    | Pointer
    | BlockPointer
    | Descriptor
    | TypeOf
    | Items
    | Jit
    | Host
    | Member
    | Builtin
    | ModuleValue
    | Method
    | Bound
    | MetaFunction
    | Slice
    | Choice
    | Mixed
    | Table
    | Configuration
    | HostLambda
    | Unknown
    | Undefined
)


def is_known(v: Value) -> bool:
    """Whether a value is a Python literal."""
    return v is None or isinstance(v, (int, float, bool, str))


def is_number(v: Value) -> bool:
    """A constexpr number: known or static."""
    return isinstance(v, (int, float, bool, Static))


def describe(v: Value) -> str:
    """A value's kind in words, for reasons."""
    match v:
        case Run():
            return "a run-time value"
        case Static():
            return "a constexpr"
        case Pointer():
            return "a pointer"
        case BlockPointer():
            return "a block pointer"
        case Mixed():
            return "a tile of pointers into several buffers"
        case Descriptor():
            return "a tensor descriptor"
        case TypeOf():
            return "a dtype"
        case Record():
            return f"an object of {v.of.node.name.value}"
        case Items():
            return "a tuple"
        case Builtin():
            return v.name
        case Jit() | Host():
            return f"function {v.node.name.value}"
        case Undefined():
            return "an unbound name"
        case None:
            return "None"
        case _:
            return type(v).__name__.lower()


def unfit(reason: str, *values: Value) -> NotUnderstood:
    """Why an operation has no meaning; where one of the values is None, Triton refuses it."""
    return Refused(reason) if any(v is None for v in values) else NotUnderstood(reason)


def items_of(v: Value) -> tuple[Value, ...]:
    """The elements of a tuple. Raises NotUnderstood for another value."""
    if isinstance(v, Items):
        return v.items
    raise NotUnderstood(f"{describe(v)} where a tuple is needed")
