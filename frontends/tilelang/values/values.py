"""What an expression stands for while a TileLang function is read: host values, open or known, and places and numbers of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, TypeAlias

import libcst as cst

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin
from kir.ir import nodes as n
from kir.ir.types import DType

from ..._python.project import Module


class NotUnderstood(Exception):
    """Something that this frontend does not understand; the statement becomes opaque with this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Raised(Exception):
    """The host code raises here: under these conditions there is no kernel. `text` is what does not hold, `given` what its names stand for."""

    def __init__(self, text: str = "", given: tuple[str, ...] = (), origin: Origin | None = None) -> None:
        super().__init__(text)
        self.text, self.given, self.origin = text, given, origin


@dataclass(frozen=True)
class Num:
    """A number that depends on metas, sizes or memory: a scalar expression of the IR."""

    expr: n.Expr


@dataclass(frozen=True)
class TypeOf:
    """A dtype as a value."""

    dtype: DType


@dataclass(frozen=True)
class Text:
    """A text that the binding decides: the meta `name`."""

    name: str


@dataclass(frozen=True)
class Open:
    """Something that only the binding decides, and of which is not known yet what it is: a parameter of the factory, a field of one, what
    the host asks of its machine. Its first use as a number, a dtype or a condition makes it a meta of that kind. `of` is its class."""

    name: str
    of: Class | None = None
    kind: str = ""
    key: str = ""
    """What was asked of the machine or of a package, word for word: two questions never share a name."""


@dataclass(frozen=True)
class Choice:
    """`a` where a static condition holds, else `b`: values that have no expression of their own."""

    cond: n.Expr
    a: Value
    b: Value


@dataclass(frozen=True)
class State:
    """What a thing that changes holds: elements, or pairs of a key (the name of an attribute) and a value. `lost` says why that is not known; `either`
    gives the one of two states that holds here, or raises Undecided."""

    held: tuple[Any, ...] = ()
    lost: str = ""
    either: Callable[[], State] | None = None

    def settled(self) -> State:
        """The state that holds here. Raises Undecided where a condition of the binding must be told first."""
        return self if self.either is None else self.either().settled()


@dataclass(frozen=True)
class Items:
    """A tuple."""

    items: tuple[Value, ...]


class _Changing:
    """What holds elements that change: `state` is what it holds now."""

    def __init__(self, held: Iterable[Any]) -> None:
        self.become(State(tuple(held)))

    def become(self, state: State) -> None:
        """Hold something else."""
        object.__setattr__(self, "state", state)

    @property
    def items(self) -> tuple[Any, ...]:
        """What it holds. Raises NotUnderstood where that is not known, Undecided where a condition of the binding must be told first."""
        state: State = self.state.settled()  # type: ignore[attr-defined]  # set by `become`
        if state.lost:
            raise NotUnderstood(state.lost)
        return state.held


class Listed(_Changing, Items):
    """A list: a change is seen through every name of it."""

    state: State


class Table(_Changing):
    """A dict: pairs in order. A change is seen through every name of it."""

    state: State

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Table) and self.state == other.state)

    def __hash__(self) -> int:
        return id(self)


@dataclass(frozen=True)
class Slice:
    """`lo:hi` as an index."""

    lo: Value
    hi: Value
    step: Value = None


@dataclass(frozen=True)
class Memory:
    """A buffer. A `var` is one number that is read and assigned by its name."""

    buffer: n.Buffer
    var: bool = False


@dataclass(frozen=True)
class Place:
    """Part of a buffer: an index per dimension, a span where there was a slice. `ends` are the upper ends of slices as written."""

    buffer: n.Buffer
    index: tuple[n.Expr | n.Span, ...]
    var: bool = False


@dataclass(frozen=True)
class Address(Place):
    """Where a place begins, as a pointer: its element is not read."""


@dataclass(frozen=True)
class TensorType:
    """`T.Tensor(shape, dtype)`; strides in elements, or None."""

    shape: tuple[Value, ...]
    dtype: Value
    strides: tuple[Value, ...] | None = None


@dataclass(frozen=True, eq=False)
class Scope:
    """The names of a function while it runs, and what surrounds it."""

    names: dict[str, Value]
    module: Module
    parent: Scope | None = None


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the source with the names it closes over. `own` is the class that it is a method of."""

    node: cst.FunctionDef | cst.Lambda
    scope: Scope
    partial: tuple[tuple[str, Value], ...] = ()
    leading: tuple[Value, ...] = ()


@dataclass(frozen=True, eq=False)
class Class:
    """A class of the source."""

    node: cst.ClassDef
    scope: Scope


class Instance:
    """An object of a class of the source, with its attributes. A change is seen through every name of it."""

    def __init__(self, of: Class, fields: Mapping[str, Value]) -> None:
        self.of = of
        self.state = State(tuple(fields.items()))

    def become(self, state: State) -> None:
        """Hold other attributes."""
        self.state = state

    @property
    def fields(self) -> dict[str, Value]:
        """Its attributes."""
        return dict(self.state.held)


@dataclass(frozen=True)
class Builtin:
    """A function or module of TileLang, torch, math or Python by its dotted name."""

    name: str


@dataclass(frozen=True, eq=False)
class ModuleValue:
    """A module read from source."""

    module: Module


@dataclass(frozen=True)
class Method:
    """A method of a value that is no object of the source."""

    owner: Value
    name: str


@dataclass(frozen=True)
class Loop:
    """What a `for` may run over: the word of TileLang's loop and what it was given."""

    kind: str
    args: tuple[Value, ...]
    named: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class Launch:
    """`T.Kernel(..)`."""

    grid: tuple[Value, ...]
    named: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, eq=False)
class LayoutOf:
    """A layout as the source makes it: its word (`swizzled`, `linear`, `fragment`, ..), and what it was made with."""

    word: str
    args: tuple[Value, ...] = ()
    named: tuple[tuple[str, Value], ...] = ()
    origin: Origin | None = None


@dataclass(frozen=True)
class Unknown:
    """What a statement binds that was not understood."""

    reason: str


@dataclass(frozen=True)
class Pieces(Unknown):
    """A text that is put together from known ones and one that the binding decides, in order."""

    parts: tuple[str | Open | Text, ...] = ()


@dataclass(frozen=True)
class Unbound(Unknown):
    """A name that no statement has bound on this way: to ask for it is an error of the host."""


@dataclass(frozen=True)
class Returned:
    """A function ends here with a value."""

    value: Value


@dataclass
class Frame:
    """A function while it runs; `target` is the function that is looked for in its body, `eager` are the names of the parameters of an eager
    kernel, which annotations in its body make tensors."""

    scope: Scope
    target: cst.FunctionDef | None = None
    eager: frozenset[str] = frozenset()


@dataclass
class Signature:
    """Arguments of a call, positional and by name."""

    args: list[Value] = field(default_factory=list)
    named: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.args, self.named = Arguments(self.args), Named(self.named)


class Arguments(list[Any]):
    """Arguments by their places; to ask for one that is not there is not to understand the call."""

    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, int) and not -len(self) <= k < len(self):
            raise NotUnderstood(f"a call with {len(self)} argument{'' if len(self) == 1 else 's'} by place")
        return super().__getitem__(k)


class Named(dict[str, Any]):
    """Arguments by their names; to ask for one that is not there is not to understand the call."""

    def __missing__(self, name: str) -> Any:
        raise NotUnderstood(f"a call without '{name}'")


Value: TypeAlias = (
    int | float | bool | str | Num | TypeOf | Text | Open | Choice | Items | Table | Slice | Memory | Place | TensorType | Function
    | Class | Instance | Builtin | ModuleValue | Method | Loop | Launch | LayoutOf | Unknown | None
)
Changing: TypeAlias = Listed | Table | Instance


def is_known(v: object) -> bool:
    """Whether a value is a literal of the host."""
    return v is None or isinstance(v, (bool, int, float, str))


def is_number(v: object) -> bool:
    """Whether a value is a known number."""
    return isinstance(v, (bool, int, float))


def describe(v: object) -> str:
    """A value in a reason."""
    match v:
        case Num() | Memory() | Place():
            return "a number of the kernel"
        case Builtin():
            return v.name
        case Function(node=cst.FunctionDef(name=cst.Name(value=name))):
            return f"the function '{name}'"
        case Unknown():
            return f"a value that is not known ({v.reason})"
        case Open() | Text():
            return f"'{v.name}'"
        case Listed():
            return "a list"
        case Items():
            return "a tuple"
        case Table():
            return "a dict"
        case Instance():
            return f"an object of '{v.of.node.name.value}'"
        case _:
            return f"a {type(v).__name__.lower()}" if not is_known(v) else repr(v)


def tensor_type(args: list[Value]) -> TensorType:
    """`T.Tensor(shape, dtype)` or `T.StridedTensor(shape, strides, dtype)`, with the dtype f32 when there is none."""
    def dims(v: Value) -> tuple[Value, ...]:
        return v.items if isinstance(v, Items) else (v,)

    if not args:
        raise NotUnderstood("a tensor without a shape")
    if len(args) == 1:
        return TensorType(dims(args[0]), "float32")
    if len(args) == 2:
        return TensorType(dims(args[0]), args[1])
    return TensorType(dims(args[0]), args[2], dims(args[1]))
