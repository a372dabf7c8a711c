"""Values that only the binding decides: parameters, fields and elements, with what their annotations and defaults say."""

from __future__ import annotations

import contextlib

import libcst as cst

from ..syntax.parameter_kinds import DTYPE_NAME
from ..values.names import DTYPES
from ..values.values import Class, NotUnderstood, Open, Scope, Text, TypeOf, Value
from .evaluate import evaluate
from .reader import Reader, Undecided


def item_of_open(r: Reader, owner: Open, k: int, target: cst.BaseExpression | None = None) -> Value:
    """`owner[k]` of an open tuple."""
    if owner.kind == "asked":
        name = target.value if isinstance(target, cst.Name) and target.value != "_" else f"{owner.name}_{k}"
        return r.ask(name, f"{owner.key}[{k}]", "" if target is not None else "asked")
    r.lists[owner.name] = max(k + 1, r.lists.get(owner.name, 1))
    path = f"{owner.name}_{k}" if k >= 0 else f"{owner.name}_last{-k if k < -1 else ''}"
    return r.given.get(path, Open(path))


def annotated(r: Reader, name: str, annotation: cst.BaseExpression | None, scope: Scope) -> Value:
    """A parameter or field that is open, with what its annotation says."""
    kind, of = "", None
    text = scope.module.code(annotation).replace(" ", "") if annotation is not None else ""
    plain = text.removeprefix("Optional[").removesuffix("]") if text.startswith("Optional[") else text.removesuffix("|None")
    if plain in ("int", "bool", "float", "str"):
        kind = plain
    elif plain.rsplit(".", 1)[-1] == "dtype":
        kind = "dtype"
    elif annotation is not None:
        try:
            found = evaluate(r, scope, annotation)
            of = found if isinstance(found, Class) else None
        except (NotUnderstood, Undecided):
            of = None
    if kind and text != plain and kind != "bool":
        kind = "any" if kind != "str" else "str"
    if kind in ("", "str") and r.kinds.get(name, "dtype" if DTYPE_NAME.search(name) else "") == "dtype":
        kind = "dtype"
    if r.bound and name in r.defaults and name not in r.bound_sizes and name not in r.given and f"{name}_0" not in r.given:
        r.given[name] = r.defaults[name]
    if name in r.given:
        value = r.given[name]
        return TypeOf(DTYPES[value]) if kind == "dtype" and isinstance(value, str) and value in DTYPES else value
    if kind == "str":
        r.meta(name, "str")
        return Text(name)
    if kind in ("int", "bool", "float"):
        r.kinds[name] = kind
    elif kind:
        r.kinds.setdefault(name, kind)
    if of is not None:
        r.objects.add(name)
    return Open(name, of, kind)


def parameter(r: Reader, p: cst.Param, scope: Scope) -> Value:
    """A parameter of a factory: open, with what its annotation and default say."""
    name = p.name.value
    if p.default is not None and name not in r.defaults:
        with contextlib.suppress(NotUnderstood):
            r.defaults[name] = evaluate(r, scope, p.default)
    return annotated(r, name, p.annotation.annotation if p.annotation is not None else None, scope)
