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


PASSED_BY_PARTS = frozenset({"aggregate", "NamedTuple"})
"""Decorators and bases of a class whose objects Triton passes by their parts."""


def is_passed_by_parts(node: cst.CSTNode) -> bool:
    """Whether a class is an aggregate of Triton or a named tuple."""
    if not isinstance(node, cst.ClassDef):
        return False
    said = [*(decorator_name(d) for d in node.decorators), *(dotted_name(a.value) for a in node.bases)]
    return any((x or "").rpartition(".")[2].lstrip("_") in PASSED_BY_PARTS for x in said)


def needs_object(f: cst.FunctionDef) -> bool:
    """Whether a function is one of an object, which its callers alone have: it is read where it is called."""
    first = next((p.name.value for p in (*f.params.posonly_params, *f.params.params)), "")
    return first == "self" and all((decorator_name(d) or "").rpartition(".")[2] != "staticmethod" for d in f.decorators)


def method_of(node: cst.CSTNode, name: str) -> cst.FunctionDef | None:
    """A function that the body of a class defines."""
    lines = node.body.body if isinstance(node, cst.ClassDef) else ()
    return next((f for f in lines if isinstance(f, cst.FunctionDef) and f.name.value == name), None)


def declared(node: cst.CSTNode) -> dict[str, cst.BaseExpression | None]:
    """The annotated names of a class in order, with what they are where nothing is given."""
    lines = node.body.body if isinstance(node, cst.ClassDef) else ()
    found = [s for line in lines if isinstance(line, cst.SimpleStatementLine) for s in line.body if isinstance(s, cst.AnnAssign)]
    return {s.target.value: s.value for s in found if isinstance(s.target, cst.Name)}


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
