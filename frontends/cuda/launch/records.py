"""Structs that host code fills and a kernel takes by value: each field is an argument of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.surface.launches.values import Unknown, Value

from ..source.source import Node, Unit
from ..source.syntax import declared_name, text


@dataclass
class Record:
    """What is known of a struct's fields: their values, how each is declared, and the struct's name."""

    members: dict[str, Value] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)
    kind: str = ""


def fields_of(units: Sequence[Unit], kind: str) -> list[tuple[str, Node]]:
    """The names of a struct's fields in order, each with its declaration; none for what is no struct of these files, or has more than plain fields."""
    words = kind.removeprefix("struct ").rpartition("::")[2]
    for unit in units:
        for node in _structs(unit.root):
            name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
            if name is not None and text(name) == words and body is not None:
                found = [(d, declared_name(x)) for d in body.named_children if d.type == "field_declaration" for x in d.children_by_field_name("declarator")]
                return [(text(name), d) for d, name in found if name is not None] if all(name is not None for _, name in found) else []
    return []


def _structs(node: Node) -> Iterator[Node]:
    for child in node.named_children:
        if child.type in ("struct_specifier", "class_specifier"):
            yield child
        elif child.type in ("namespace_definition", "declaration_list", "type_definition", "linkage_specification", "declaration"):
            yield from _structs(child)


def passed(units: Sequence[Unit], kind: str, name: str, of: Callable[[Node, str], Value]) -> Value:
    """A struct that whoever calls a function fills: `of` says what is known of a field by its declaration and a name."""
    return Record({x: of(d, x) for x, d in fields}) if (fields := fields_of(units, kind)) else Unknown(name)


def begun(units: Sequence[Unit], kind: str, init: Node | None, value: Callable[[Node], Value]) -> Record | None:
    """A struct as it is declared: its fields in order, or by name, where its initializer has them; None for what is no struct of these files."""
    fields = fields_of(units, kind)
    if not fields:
        return None
    made = Record({}, {name: text(d) for name, d in fields}, kind.removeprefix("struct "))
    for (name, _), item in zip(fields, init.named_children if init is not None else (), strict=False):
        if item.type == "initializer_pair":
            made.members[text(item.named_children[0]).lstrip(".")] = value(item.named_children[-1])
        else:
            made.members[name] = value(item)
    return made


def apart(arguments: Mapping[str, Value]) -> dict[str, Value]:
    """Arguments by name, the fields of a struct by its name and theirs."""
    out: dict[str, Value] = {}
    for name, v in arguments.items():
        out |= apart({f"{name}_{word}": x for word, x in v.members.items()}) if isinstance(v, Record) else {name: v}
    return out
