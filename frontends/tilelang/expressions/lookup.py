"""Names: of a function and what surrounds it, of a module and what it imports, of packages that are known and not read.

What the host asks of its machine or of a package outside its own is `Open`: the binding decides it. A module's name with several
definitions under conditions is a choice of them.
"""

from __future__ import annotations

import libcst as cst

from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n

from ..._python.project import Definition, Guarded, Imported, Module
from ..state.evaluate import evaluate
from ..state.reader import Reader
from ..values.names import CONSTANTS, DTYPES, LANGUAGE, PACKAGES, PYTHON, absolute
from ..values.values import (
    Builtin,
    Choice,
    Class,
    Function,
    Instance,
    Listed,
    ModuleValue,
    NotUnderstood,
    Open,
    Raised,
    Scope,
    State,
    Table,
    TypeOf,
    Unbound,
    Value,
)
from . import classes


def name(r: Reader, scope: Scope, e: cst.Name) -> Value:
    """The value of a name, or of one of Python's three constants."""
    match e.value:
        case "True":
            return True
        case "False":
            return False
        case "None":
            return None
        case _:
            value = r.settled(lookup(r, scope, e.value))
            if isinstance(value, Unbound):
                raise Raised(f"'{e.value}' is not bound", (), scope.module.origin(e))
            return value


def lookup(r: Reader, scope: Scope, name: str) -> Value:
    """What a name stands for. Raises NotUnderstood for one that nothing defines."""
    here: Scope | None = scope
    while here is not None:
        if name in here.names:
            return here.names[name]
        here = here.parent
    return of_module(r, scope.module, name)


def of_module(r: Reader, module: Module, name: str) -> Value:
    """A name at the top of a module."""
    key = (str(module.path), name)
    if key in r.globals:
        return r.globals[key]
    found = module.definitions.get(name)
    if found is None:
        if name in PYTHON:
            return Builtin(f"builtins.{name}")
        for star in module.definitions.get("*", ()):
            inner = star.definition if isinstance(star, Guarded) else star
            if isinstance(inner, Imported):
                other = _module(r, module, inner.module)
                if other is not None:
                    try:
                        return of_module(r, other, name)
                    except NotUnderstood:
                        continue
        raise NotUnderstood(f"the name '{name}' is not defined")
    if key in r.asking:
        raise NotUnderstood(f"'{name}' is defined by itself")
    r.asking.add(key)
    try:
        value = _candidates(r, module, list(found), name)
    finally:
        r.asking.discard(key)
    if isinstance(value, Open) and value.kind == "asked":
        value = r.ask(name, value.key, "")
    if isinstance(value, (Listed, Table)) and name in module.changed:
        value.become(State(value.state.held, f"'{name}', which statements of its module change"))
    r.globals[key] = value
    return value


def _candidates(r: Reader, module: Module, found: list[Definition], name: str) -> Value:
    """The definition that counts: the last one, unless its conditions say otherwise."""
    reason = NotUnderstood(f"'{name}' has no definition that can be worked out")
    while found:
        d = found.pop()
        conditions = []
        while isinstance(d, Guarded):
            conditions.append((d.test, d.expected))
            d = d.definition
        outside = Scope({}, module)
        counts = True
        when: n.Expr | None = None
        for test, expected in conditions:
            try:
                holds = r.truth(evaluate(r, outside, test))
            except NotUnderstood:
                if not found:
                    continue
                holds = r.meta(asked_name(module.code(test)), "bool")
            if isinstance(holds, bool):
                if holds != expected:
                    counts = False
                    break
            elif found:
                each = holds if expected else build.invert(holds)
                when = each if when is None else build.logical_and(when, each)
        if not counts:
            continue
        if when is not None:
            return Choice(when, defined(r, module, d), _candidates(r, module, found, name))
        try:
            return defined(r, module, d)
        except NotUnderstood as bad:
            reason = bad
    raise reason


def asked_name(text: str) -> str:
    """A name for a question of the host that is not understood: its own words."""
    name = "".join(c if c.isalnum() else "_" for c in text)[:40].strip("_")
    return name if name and not name[0].isdigit() else f"when_{name}"


def defined(r: Reader, module: Module, d: Definition) -> Value:
    """What a definition at the top of a module gives its name."""
    scope = Scope({}, module)
    match d:
        case Guarded():
            return defined(r, module, d.definition)
        case Imported():
            return _imported(r, module, d)
        case cst.FunctionDef():
            return Function(d, scope)
        case cst.ClassDef():
            return Class(d, scope)
        case _:
            return evaluate(r, scope, d)


def _module(r: Reader, module: Module, name: str) -> Module | None:
    """A module of the same package; others are known by name alone."""
    root = name.split(".")[0]
    if root in PACKAGES:
        return None
    try:
        return (r.project.module(name, module) if root == module.name.split(".")[0] else None) or r.project.beside(module, name)
    except KirError:
        return None


def _imported(r: Reader, module: Module, d: Imported) -> Value:
    full = d.module if d.attribute is None else f"{d.module}.{d.attribute}"
    if d.attribute is None:
        found = _module(r, module, full)
        return ModuleValue(found) if found is not None else Builtin(absolute(full))
    inner = _module(r, module, d.module)
    if inner is not None and inner is not module:
        try:
            return of_module(r, inner, d.attribute)
        except NotUnderstood:
            below = _module(r, module, full)
            if below is not None:
                return ModuleValue(below)
            raise
    return builtin(absolute(full))


def builtin(name: str) -> Value:
    """What a dotted name of a known package stands for."""
    if name in CONSTANTS:
        return CONSTANTS[name]
    root, _, last = name.rpartition(".")
    if last in DTYPES and root in (LANGUAGE, "torch", "tilelang", "tilelang.language.dtypes", "numpy"):
        return TypeOf(DTYPES[last])
    return Builtin(name)


def attribute(r: Reader, owner: Value, name: str) -> Value | None:
    """`owner.name` for modules, packages, classes and objects of the source; None where another rule holds."""
    match owner:
        case Builtin():
            full = absolute(f"{owner.name}.{name}")
            if full == "tilelang.language":
                return Builtin(LANGUAGE)
            return builtin(full)
        case ModuleValue():
            try:
                return of_module(r, owner.module, name)
            except NotUnderstood:
                inner = _module(r, owner.module, f"{owner.module.name}.{name}")
                if inner is None:
                    raise
                return ModuleValue(inner)
        case Class():
            held = classes.of_class(r, owner, name)
            if held is not None:
                return held
            for c in classes.lineage(r, owner):
                method = classes.method_of(c, name)
                if method is not None:
                    return Function(method, c.scope, leading=(owner,) if classes.is_decorated(method, "classmethod") else ())
            raise NotUnderstood(f"the class '{owner.node.name.value}' has no '{name}' that can be read")
        case Instance():
            if name in owner.fields:
                return owner.fields[name]
            found = classes.member(r, owner, owner.of, name)
            return classes.of_class(r, owner.of, name) if found is None else found
        case _:
            return None
