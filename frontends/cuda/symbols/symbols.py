"""What a translation unit declares: functions, classes, aliases, variables, enumerations, and the scopes that they stand in."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Protocol

from kir.base.dataclass import dataclass

from ..source.source import Node, Unit
from ..source.syntax import function_declarator, text
from ..types.c_types import CType

Decl = object


class Value:
    """What an expression may be while a kernel is read, and what a name may be bound to: one of the classes in `values`."""


class Instance(Protocol):
    """A class under arguments, as the names in it see it."""

    def member(self, name: str) -> list[Decl] | None:
        """Static members, methods and types of a name, of the class or a base."""
        ...


@dataclass
class TParam:
    """A template parameter; `kind` is `type`, `value` or `template`. A value may be a `function`."""

    name: str
    kind: str
    default: Node | None = None
    type: Node | None = None
    pack: bool = False
    function: bool = False


@dataclass(eq=False)
class Scope:
    """Names, with the scopes around. `values` are bound ones, `decls` what the source declares."""

    parent: Scope | None
    unit: Unit
    name: str = ""
    values: dict[str, Value] = field(default_factory=dict)
    decls: dict[str, list[Decl]] = field(default_factory=dict)
    using: list[Scope] = field(default_factory=list)
    borrowed: set[str] = field(default_factory=set)
    """Names of the C++ library's functions that it has beside its own (`using std::sqrt;`)."""
    this: Value | None = None
    instance: Instance | None = None
    templates: tuple[object, ...] = ()
    """What stands for the template arguments of a function whose body this is: each instantiation has shared variables of its own."""

    def declare(self, name: str, what: Decl) -> None:
        """Add a declaration."""
        self.decls.setdefault(name, []).append(what)

    def own(self, name: str, seen: set[int] | None = None) -> list[Decl] | Value | None:
        """What this scope itself, or a namespace that it uses, says of a name."""
        if name in self.values:
            return self.values[name]
        if name in self.decls:
            return self.decls[name]
        if self.instance is not None and (found := self.instance.member(name)) is not None:
            return found
        seen = seen if seen is not None else set()
        for u in self.using:
            if id(u) not in seen:
                seen.add(id(u))
                if (inner := u.own(name, seen)) is not None:
                    return inner
        return None

    def find(self, name: str) -> list[Decl] | Value | None:
        """The innermost meaning of a name."""
        scope: Scope | None = self
        while scope is not None:
            if (found := scope.own(name)) is not None:
                return found
            scope = scope.parent
        return None

    def inner(self, **more: Value) -> Scope:
        """A scope inside this one."""
        return Scope(self, self.unit, values=dict(more), this=self.this)

    def around(self) -> Iterator[Scope]:
        """This scope and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


@dataclass(eq=False)
class Function:
    """A function definition, or a declaration without a body."""

    name: str
    node: Node
    params: tuple[TParam, ...] | None
    scope: Scope
    unit: Unit
    kernel: bool = False
    static: bool = False
    owner: Instance | None = None
    arguments: tuple[Node, ...] | None = None
    """Of an explicit specialization: its template arguments."""
    friend: bool = False
    """Whether a class defines it, of which it is no member."""
    _listed: list[Node] | None = field(default=None, init=False, repr=False)

    @property
    def body(self) -> Node | None:
        return self.node.child_by_field_name("body")

    @property
    def declarator(self) -> Node:
        """The function declarator."""
        return function_declarator(self.node)

    def parameters(self) -> list[Node]:
        """Parameter declarations; looked for once."""
        if self._listed is None:
            self._listed = parameters_of(self.declarator)
        return self._listed


def parameters_of(declarator: Node) -> list[Node]:
    """The parameter declarations of a function declarator."""
    listed = declarator.child_by_field_name("parameters")
    kinds = ("parameter_declaration", "optional_parameter_declaration", "variadic_parameter_declaration")
    return [] if listed is None else [p for p in listed.named_children if p.type in kinds and text(p) != "void"]


Bindings = dict[str, Value]
"""Template parameters with their arguments."""


@dataclass(frozen=True)
class Candidate:
    """A function under template bindings."""

    fn: Function
    bindings: Bindings
    cost: int


@dataclass(eq=False)
class ClassTemplate:
    """A class, or class template with its specializations."""

    name: str
    params: tuple[TParam, ...]
    node: Node | None
    scope: Scope
    unit: Unit
    special: list[Specialization] = field(default_factory=list)
    instances: dict[object, CType] = field(default_factory=dict)
    chosen: dict[object, CType] = field(default_factory=dict)
    """What arguments, as they are given, have named before."""


@dataclass(eq=False)
class Specialization:
    """`template <..> struct name<arguments>`."""

    params: tuple[TParam, ...]
    arguments: tuple[Node, ...]
    node: Node
    scope: Scope
    unit: Unit


@dataclass(eq=False)
class Alias:
    """`using name = type`, or a typedef."""

    name: str
    params: tuple[TParam, ...] | None
    type: Node
    declarator: Node | None
    scope: Scope
    unit: Unit


@dataclass(eq=False)
class Variable:
    """A variable of a namespace or a static member."""

    name: str
    node: Node
    declarator: Node
    init: Node | None
    scope: Scope
    unit: Unit
    params: tuple[TParam, ...] | None = None
    reading: bool = False


@dataclass(eq=False)
class Enumerator:
    """A value of an enumeration: an explicit initializer, or so many after the previous one."""

    init: Node | None
    after: Enumerator | None
    scope: Scope


@dataclass(eq=False)
class EnumType:
    """An enumeration; its values are ints (or of the type it is based on)."""

    name: str
    base: Node | None
    scope: Scope
