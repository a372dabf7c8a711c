"""The reading of one kernel: what is known so far, as data, and what one part of the reader may ask of others that stand above it."""

from __future__ import annotations

from dataclasses import field
from typing import Protocol

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.binding import Map
from kir.ir.types import I32, DType

from ..launch.geometry import Geometry
from ..source.source import Node, Sources
from ..symbols.index import Index
from ..symbols.symbols import Bindings, Candidate, ClassTemplate, Function, Scope, TParam, Value
from ..types.c_types import CType
from .emitter import Emitter
from .memory import Parts, Store
from .values import Located, Wide

MAX_CALLS = 96
"""How deep device functions may call one another."""


@dataclass
class Frame:
    """A function being read. Of an inlined one: where its result goes (`slot`), and the flag that a return inside a loop sets."""

    kernel: bool
    result: CType | None = None
    value: Value | None = None
    slot: Value | None = None
    flag: Value | None = None
    entry: list[n.Stmt] = field(default_factory=list)
    position: int = 0
    dynamic: int = 0
    loops: int = 0
    steps: list[tuple[Node, Scope] | None] = field(default_factory=list)
    after: list[tuple[list[Node], Scope]] = field(default_factory=list)
    """What follows the blocks that are being read, the innermost last: where one part of a branch leaves the function, the other goes on with all of it."""


class Types(Protocol):
    """Type names and declarators as types, and template arguments."""

    def base_type(self, node: Node, scope: Scope) -> CType:
        """The type that a type specifier names."""
        ...

    def declared_as_type(self, d: object, scope: Scope) -> CType | None:
        """The type that a declaration without arguments names."""
        ...

    def of_class(self, t: ClassTemplate, args: tuple[Value, ...], scope: Scope) -> CType:
        """A class template under arguments."""
        ...

    def of_template(self, name: str, args: tuple[Value, ...], scope: Scope, node: Node, own: bool = False) -> CType:
        """A class or alias template under arguments."""
        ...

    def declared_type(self, node: Node, d: Node | None, scope: Scope) -> tuple[CType, bool]:
        """The type of a declarator of a declaration or parameter, and whether it is a reference."""
        ...

    def constant_text(self, node: Node, scope: Scope) -> int | None:
        """The number in `alignas(16)`, None when there is none."""
        ...

    def stood_for(self, name: str, args: tuple[Value, ...], scope: Scope, node: Node) -> CType | None:
        """A template that a template's parameter stands for, under arguments."""
        ...

    def arguments(self, listed: Node, scope: Scope) -> tuple[Value, ...]:
        """Template arguments."""
        ...

    def bound(self, params: tuple[TParam, ...], args: tuple[Value, ...], scope: Scope, node: Node, known: Bindings | None = None) -> Bindings:
        """Template parameters with their arguments, deduced values and defaults."""
        ...

    def fitted(self, p: TParam, v: Value, scope: Scope) -> Value:
        """An argument converted to the type of its parameter."""
        ...

    def fits(self, pattern: Node, given: Value, names: dict[str, TParam], found: Bindings, scope: Scope) -> bool:
        """Whether a template argument has the form of a pattern; parameters are bound in `found`."""
        ...

    def fits_type(self, node: Node, d: Node | None, t: CType, names: dict[str, TParam], found: Bindings, scope: Scope) -> bool:
        """Whether a type has the form of a type specifier with a declarator; parameters in it are bound in `found`."""
        ...


class Library(Protocol):
    """Names of the C++ library and of CUDA's headers."""

    def value(self, name: str, node: Node) -> Value:
        """A plain name. Raises NotUnderstood for one that nothing declares."""
        ...

    def qualified_value(self, node: Node, scope: Scope) -> Value:
        """`std::name`."""
        ...

    def type(self, name: str, args: tuple[Value, ...]) -> CType | None:
        """A type by its plain name and arguments."""
        ...

    def qualified_type(self, node: Node, scope: Scope) -> CType:
        """`std::name<..>` as a type."""
        ...


class Expressions(Protocol):
    """Expressions as values."""

    def value(self, r: Reading, node: Node, scope: Scope) -> Value:
        """The value of an expression, a place where it has an address."""
        ...

    def type_of(self, r: Reading, node: Node, scope: Scope) -> CType:
        """The type of an expression, without its effects."""
        ...

    def braced(self, r: Reading, node: Node, t: CType, scope: Scope) -> Value:
        """`{a, b, ..}` as a value of a type."""
        ...


class Operators(Protocol):
    """Operators on values."""

    def binary(self, r: Reading, sign: str, a: Value, b: Value, node: Node) -> Value:
        """`a sign b`."""
        ...


class Calls(Protocol):
    """Calls of functions that the source defines, and objects of its classes."""

    def apply(self, r: Reading, callee: Value, args: list[Value], node: Node) -> Value:
        """A callee on arguments."""
        ...

    def invoke(self, r: Reading, c: Candidate, args: list[Value], this: Value | None, node: Node) -> Value:
        """The result of a function whose body is read in place."""
        ...

    def construct(self, r: Reading, t: CType, args: list[Value]) -> Value:
        """`T(args)`."""
        ...

    def spilled(self, r: Reading, v: Wide) -> Located:
        """A value put in memory of its own."""
        ...

    def conversion(self, r: Reading, v: Value, to: CType | None) -> Value | None:
        """What a class's conversion operator makes of an object; None when it has none for that type."""
        ...


class Statements(Protocol):
    """Statements, and bodies of functions."""

    def function(self, r: Reading, f: Function, scope: Scope) -> Value:
        """The body of a device function, read in place. Its result, Nothing for void."""
        ...

    def lambda_body(self, r: Reading, body: Node, scope: Scope) -> Value:
        """The body of a lambda."""
        ...

    def block(self, r: Reading, nodes: list[Node], scope: Scope, frame: Frame) -> bool:
        """Statements in order; whether control never leaves them at their end."""
        ...

    def statement(self, r: Reading, node: Node, scope: Scope, frame: Frame, rest: list[Node], unroll: Node | None = None) -> bool:
        """One statement; True where what follows it in the block is never reached, or has been read with it."""
        ...

    def go_on(self, r: Reading, rest: list[Node], scope: Scope, frame: Frame) -> bool:
        """The rest of a block, and of those around it to the end of the function."""
        ...


@dataclass(frozen=True)
class Handlers:
    """What reads expressions, operators, calls and statements: joined in `reader`."""

    expressions: Expressions
    operators: Operators
    calls: Calls
    statements: Statements


class Reading:
    """The state of the reading of one kernel under known template arguments."""

    types: Types
    library: Library

    def __init__(self, sources: Sources, index: Index, geometry: Geometry, handlers: Handlers, absent: frozenset[str] | None = None) -> None:
        self.sources, self.index, self.geometry = sources, index, geometry
        self.expressions, self.operators, self.calls, self.statements = handlers.expressions, handlers.operators, handlers.calls, handlers.statements
        self.m = Emitter()
        self.m.taken |= set(geometry.words.values())
        self.stores: list[Store] = []
        self.shared: list[Store] = []
        self.pool: Store | None = None
        self.parts = Parts()
        self.pool_bytes: n.Expr = n.Var(geometry.words["shared_bytes"], I32)
        self.hint = ""
        self.hint_align = 0
        """Bytes that the part of a pool which is being declared is said to start at a multiple of; 0 where nothing says so."""
        self.spinning = False
        self.unparted: set[str] = set()
        """Masks of the active lanes that were asked for where nothing is conditional."""
        self.alignments: dict[str, int] = {}
        """Bytes that tensors are aligned to, where the binding says it."""
        self.arrays: dict[str, tuple[int, ...]] = {}
        self.maps: dict[str, Map] = {}
        self.starts: dict[int, tuple[Value, list[n.Stmt]]] = {}
        """Variables that still hold the number which they were declared with, by their object: the number, and the block."""
        self.words: dict[int, tuple[Value, list[n.Stmt]]] = {}
        """Integer variables that hold bits of an address, by their object: the value, and the block that set it."""
        self.tensors: dict[str, tuple[DType, int]] = {}
        self.cluster: tuple[int, ...] = ()
        self.depth = 0
        self.converting = False
        """Whether a constructor is looked for that makes an argument what a parameter asks for."""
        self.absent = absent
        self.mutable: dict[int, frozenset[str]] = {}
        self.missing: list[str] = [name for u in sources.units for name, _ in u.missing]
        self.static_shared: dict[int, Value] = {}
        self.constants: dict[int, Value] = {}
        self.fitted: dict[object, tuple[tuple[Function, ...], Candidate | None]] = {}
        """Which of several functions calls have meant, by the functions (which are held, so that no others have their `id`) and the types of the arguments."""
        self.devices: dict[str, Store] = {}
        """Variables of the device that the kernel uses: tensors of the program."""

    def value(self, node: Node, scope: Scope) -> Value:
        """The value of an expression, a place where it has an address."""
        return self.expressions.value(self, node, scope)

    def type_of(self, node: Node, scope: Scope) -> CType:
        """The type of an expression, without its effects."""
        return self.expressions.type_of(self, node, scope)

    def braced(self, node: Node, t: CType, scope: Scope) -> Value:
        """`{a, b, ..}` as a value of a type."""
        return self.expressions.braced(self, node, t, scope)

    def construct(self, t: CType, args: list[Value]) -> Value:
        """`T(args)`."""
        return self.calls.construct(self, t, args)

    def missing_note(self) -> str:
        """Includes that were not found, for messages about unknown names."""
        return f" (not found: {', '.join(self.missing[:3])})" if self.missing else ""
