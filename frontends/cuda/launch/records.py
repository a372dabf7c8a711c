"""Structs that host code fills itself: each field is an argument of its own of the kernel that takes one by value."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kir.surface.launches.values import Value

from ..source.source import Node, Unit
from ..source.syntax import text
from .dispatch import Fields
from .host_parts import members_of


def begun(units: Sequence[Unit], kind: str, d: Node, value: Callable[[Node], Value]) -> Fields | None:
    """A struct as it is declared: its fields in order, or by name, where its initializer has them; None for what is no struct of these files."""
    init = d.child_by_field_name("value")
    if (d.child_by_field_name("declarator") or d).type != "identifier" or (init is not None and init.type != "initializer_list"):
        return None
    fields = members_of(kind.removeprefix("struct ").rpartition("::")[2], units)
    if not fields:
        return None
    made: dict[str, Value] = {}
    for name, item in zip(fields, init.named_children if init is not None else (), strict=False):
        if item.type == "initializer_pair":
            made[text(item.named_children[0]).lstrip(".")] = value(item.named_children[-1])
        else:
            made[name] = value(item)
    return Fields(kind, made)
