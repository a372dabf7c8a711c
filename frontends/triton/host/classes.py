"""Constants that a host class holds, and members of enumerations, from the class's own body."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from ..._python.project import decorator_name, dotted_name
from ..values.values import Host, Member, NotUnderstood, Value, is_known

NAMES_ONLY = frozenset({"Enum", "enum.Enum", "Flag", "enum.Flag"})
"""Enumerations whose members are no numbers or texts."""
VALUES = frozenset({"IntEnum", "enum.IntEnum", "IntFlag", "enum.IntFlag", "StrEnum", "enum.StrEnum", "object", ""})
"""Bases under which what a class binds is a value as it is written."""
HARMLESS = frozenset({"unique", "dataclass"})
"""Decorators that leave what a class binds alone."""


def member(owner: Host, name: str, evaluate: Callable[[cst.BaseExpression], Value]) -> Value:
    """What `class.name` is; `evaluate` gives the value of an expression where the class stands. Raises NotUnderstood for what the class's
    own body does not bind to a value, and for a class that others may have changed the meaning of (decorators, metaclasses, bases)."""
    node = owner.node
    assert isinstance(node, cst.ClassDef)
    title = node.name.value
    bases = [dotted_name(a.value) for a in node.bases]
    if node.keywords or any(decorator_name(d) not in HARMLESS for d in node.decorators) or not NAMES_ONLY.union(VALUES).issuperset(bases):
        raise NotUnderstood(f"attribute '{name}' of the class '{title}', which is more than its body")
    value: Value | None = None
    found = False
    for line in node.body.body:
        for s in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            match s:
                case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=bound))], value=given) if bound == name:
                    value, found = evaluate(given), True
                case cst.AnnAssign(target=cst.Name(value=bound), value=cst.BaseExpression() as given) if bound == name:
                    value, found = evaluate(given), True
                case _:
                    pass
    if not found:
        raise NotUnderstood(f"the class '{title}' has no '{name}' that can be read")
    if not NAMES_ONLY.intersection(bases):
        return value
    if not is_known(value):
        raise NotUnderstood(f"'{title}.{name}' is no number or text")
    assert value is None or isinstance(value, (int, float, str))
    return Member(title, name, value)
