"""Names: of a function and what surrounds it, of a module and what it imports, of packages that are known and not read.

What the host asks of its machine or of a package outside its own is `Open`: the binding decides it. A module's name with several
definitions under conditions is a choice of them.
"""

from __future__ import annotations

import libcst as cst

from kir.diagnostic import KirError, did_you_mean
from kir.ir import build
from kir.ir import nodes as n

from ..triton.source import Definition, Guarded, Imported, Module, dotted_name
from .evaluate import evaluate
from .names import CONSTANTS, DTYPES, LANGUAGE, PACKAGES, PYTHON, absolute
from .reader import Reader
from .values import (
    Builtin,
    Choice,
    Class,
    Function,
    Instance,
    Listed,
    ModuleValue,
    NotUnderstood,
    Open,
    Scope,
    State,
    Table,
    TypeOf,
    Value,
    is_known,
)


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
            return Choice(when, _value(r, module, d), _candidates(r, module, found, name))
        try:
            return _value(r, module, d)
        except NotUnderstood as bad:
            reason = bad
    raise reason


def asked_name(text: str) -> str:
    """A name for a question of the host that is not understood: its own words."""
    name = "".join(c if c.isalnum() else "_" for c in text)[:40].strip("_")
    return name if name and not name[0].isdigit() else f"when_{name}"


def _value(r: Reader, module: Module, d: Definition) -> Value:
    scope = Scope({}, module)
    match d:
        case Guarded():
            return _value(r, module, d.definition)
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
        return (r.project.module(name) if root == module.name.split(".")[0] else None) or r.project.beside(module, name)
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
            held = of_class(r, owner, name)
            if held is not None:
                return held
            for c in lineage(r, owner):
                method = _method(c, name)
                if method is not None:
                    return Function(method, c.scope, leading=(owner,) if _is(method, "classmethod") else ())
            raise NotUnderstood(f"the class '{owner.node.name.value}' has no '{name}' that can be read")
        case Instance():
            if name in owner.fields:
                return owner.fields[name]
            found = member(r, owner, owner.of, name)
            return of_class(r, owner.of, name) if found is None else found
        case _:
            return None


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
        method = _method(c, name)
        if method is not None:
            if _is(method, "property") or _is(method, "cached_property"):
                from .execute import called

                return called(r, Function(method, c.scope), [owner], {})
            return Function(method, c.scope, leading=() if _is(method, "staticmethod") else (of,) if _is(method, "classmethod") else (owner,))
    return None


def initializer(r: Reader, of: Class) -> Function | None:
    """The `__init__` of a class or its bases; None where there is none that can be read."""
    for c in lineage(r, of):
        method = _method(c, "__init__")
        if method is not None:
            return Function(method, c.scope)
    return None


def inherited(r: Reader, scope: Scope, call: cst.Call, word: str) -> Value:
    """A method of the class after the one in whose body a call stands. Raises NotUnderstood."""
    from ..triton.signature import nodes_below

    here: Scope | None = scope
    while here is not None and not isinstance(here.names.get("self"), Instance):
        here = here.parent
    owner = here.names["self"] if here is not None else None
    if isinstance(owner, Instance):
        classes = lineage(r, owner.of)
        for k, c in enumerate(classes):
            if any(x is call for x in nodes_below(c.node)):
                for other in classes[k + 1:]:
                    if (method := _method(other, word)) is not None:
                        return Function(method, other.scope, leading=(owner,))
                if word == "__init__" and all(dotted_name(b.value) in ("object", "NamedTuple", "ABC") for b in c.node.bases):
                    return Builtin("builtins.print")
    raise NotUnderstood(f"'super().{word}', of a class that is not read")


def unpacked(r: Reader, v: Instance) -> tuple[Value, ...]:
    """The elements of an object that is a named tuple. Raises NotUnderstood for another."""
    if any(dotted_name(b.value).split(".")[-1] == "NamedTuple" for c in lineage(r, v.of) for b in c.node.bases):
        return tuple(v.fields[name] for _, name, _ in fields_of(r, v.of) if name in v.fields)
    raise NotUnderstood(f"an object of '{v.of.node.name.value}' taken apart")


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


def _method(of: Class, name: str) -> cst.FunctionDef | None:
    return next((s for s in of.node.body.body if isinstance(s, cst.FunctionDef) and s.name.value == name), None)


def _is(f: cst.FunctionDef, word: str) -> bool:
    return any(dotted_name(d.decorator).split(".")[-1] == word for d in f.decorators)


def nearest(name: str, known: frozenset[str]) -> str:
    """The sentence for an unknown word of TileLang."""
    hint = did_you_mean(name, known)
    return f"TileLang has no 'T.{name}' that is known here" + (f"; {hint}" if hint else "")


def literal_of(v: Value) -> bool:
    """Whether a value is known."""
    return is_known(v)
