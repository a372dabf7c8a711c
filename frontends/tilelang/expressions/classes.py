"""Classes of the source: their bases, fields, methods, and what their bodies assign."""

from __future__ import annotations

import libcst as cst

from ..._python.project import dotted_name
from ..._python.signature import nodes_below
from ..state.evaluate import evaluate
from ..state.functions import called
from ..state.reader import Reader
from ..values.values import Builtin, Class, Function, Instance, NotUnderstood, Scope, Value


def of_class(r: Reader, of: Class, name: str) -> Value | None:
    """What a class or its bases assign to a name in their bodies; None where they do not."""
    for c in lineage(r, of):
        for s in _statements(c.node):
            match s:
                case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=held)), *_], value=value) if held == name:
                    return evaluate(r, c.scope, value)
                case cst.AnnAssign(target=cst.Name(value=held), value=value) if held == name and value is not None:
                    return evaluate(r, c.scope, value)
                case _:
                    pass
    return None


def member(r: Reader, owner: Value, of: Class, name: str) -> Value | None:
    """A property or method of an object; None when its class has no such function."""
    for c in lineage(r, of):
        method = method_of(c, name)
        if method is not None:
            if is_decorated(method, "property") or is_decorated(method, "cached_property"):
                return called(r, Function(method, c.scope), [owner], {})
            return Function(method, c.scope, leading=() if is_decorated(method, "staticmethod") else (of,) if is_decorated(method, "classmethod") else (owner,))
    return None


def initializer(r: Reader, of: Class) -> Function | None:
    """The `__init__` of a class or its bases; None where there is none that can be read."""
    for c in lineage(r, of):
        method = method_of(c, "__init__")
        if method is not None:
            return Function(method, c.scope)
    return None


def inherited(r: Reader, scope: Scope, call: cst.Call, word: str) -> Value:
    """A method of the class after the one in whose body a call stands. Raises NotUnderstood."""
    here: Scope | None = scope
    while here is not None and not isinstance(here.names.get("self"), Instance):
        here = here.parent
    owner = here.names["self"] if here is not None else None
    if isinstance(owner, Instance):
        classes = lineage(r, owner.of)
        for k, c in enumerate(classes):
            if any(x is call for x in nodes_below(c.node)):
                for other in classes[k + 1:]:
                    if (method := method_of(other, word)) is not None:
                        return Function(method, other.scope, leading=(owner,))
                if word == "__init__" and all(dotted_name(b.value) in ("object", "NamedTuple", "ABC") for b in c.node.bases):
                    return Builtin("builtins.print")
    raise NotUnderstood(f"'super().{word}', of a class that is not read")


def unpacked(r: Reader, v: Instance) -> tuple[Value, ...]:
    """The elements of an object that is a named tuple. Raises NotUnderstood for another."""
    if any(dotted_name(b.value).split(".")[-1] == "NamedTuple" for c in lineage(r, v.of) for b in c.node.bases):
        return tuple(v.fields[name] for _, name, _ in fields_of(r, v.of) if name in v.fields)
    raise NotUnderstood(f"an object of '{v.of.node.name.value}' taken apart")


def is_enumeration(r: Reader, of: Class) -> bool:
    """Whether the members of a class are values that are written out: one of Python's enumerations, of texts or numbers that are compared as such."""
    bases = [dotted_name(b.value).split(".")[-1] for c in lineage(r, of) for b in c.node.bases]
    return "StrEnum" in bases or "IntEnum" in bases or ("Enum" in bases and bool({"str", "int"} & {*bases}))


def members(r: Reader, of: Class) -> list[Value]:
    """The values of an enumeration. Raises NotUnderstood where one is not written out."""
    out: list[Value] = []
    for s in _statements(of.node):
        match s:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name())], value=value):
                out.append(evaluate(r, of.scope, value))
            case _:
                pass
    if not all(isinstance(x, (str, int)) for x in out):
        raise NotUnderstood(f"the members of '{of.node.name.value}', of which one is not written out")
    return out


def lineage(r: Reader, of: Class) -> list[Class]:
    """A class and those of its bases that are in the source."""
    out = [of]
    for base in of.node.bases:
        try:
            found = evaluate(r, of.scope, base.value)
        except NotUnderstood:
            continue
        if isinstance(found, Class):
            out += lineage(r, found)
    return out


def field_of(r: Reader, of: Class, name: str) -> tuple[Class, cst.AnnAssign] | None:
    """The annotated field of a class or its bases."""
    for c in lineage(r, of):
        for s in _statements(c.node):
            if isinstance(s, cst.AnnAssign) and isinstance(s.target, cst.Name) and s.target.value == name:
                return c, s
    return None


def fields_of(r: Reader, of: Class) -> list[tuple[Class, str, cst.AnnAssign]]:
    """All annotated fields, those of bases first."""
    out: dict[str, tuple[Class, str, cst.AnnAssign]] = {}
    for c in reversed(lineage(r, of)):
        for s in _statements(c.node):
            if isinstance(s, cst.AnnAssign) and isinstance(s.target, cst.Name):
                out[s.target.value] = (c, s.target.value, s)
    return list(out.values())


def _statements(node: cst.ClassDef) -> list[cst.BaseSmallStatement]:
    return [small for s in node.body.body if isinstance(s, cst.SimpleStatementLine) for small in s.body]


def method_of(of: Class, name: str) -> cst.FunctionDef | None:
    """The method that a class itself defines under a name."""
    return next((s for s in of.node.body.body if isinstance(s, cst.FunctionDef) and s.name.value == name), None)


def is_decorated(f: cst.FunctionDef, word: str) -> bool:
    """Whether a function is under a decorator of that name."""
    return any(dotted_name(d.decorator).split(".")[-1] == word for d in f.decorators)
