"""Functions around a kernel: their parameters, and what the kernel sees of each."""

from __future__ import annotations

import libcst as cst

from ..._python.project import Module, decorator_name
from ..intrinsics.annotations import configured
from ..state.evaluate import evaluate
from ..state.execute import run_block
from ..state.open_values import parameter
from ..state.reader import Reader, Undecided
from ..state.static_branches import Found
from ..syntax.parameter_kinds import kinds, perhaps_none
from ..values.values import Frame, NotUnderstood, Open, Raised, Scope, Text, TypeOf, Value


def run_factories(r: Reader, module: Module, node: cst.FunctionDef, owners: tuple[cst.FunctionDef, ...]) -> Scope:
    """What the function sees: each function around it run up to where the next is defined."""
    scope = Scope({}, module)
    for k, f in enumerate(owners):
        for key, kind in kinds(f).items():
            r.kinds.setdefault(key, kind)
        r.optional |= perhaps_none(f)
        target = owners[k + 1] if k + 1 < len(owners) else node
        scope = Scope({}, module, scope)
        for p in (*f.params.posonly_params, *f.params.params, *f.params.kwonly_params):
            scope.names[p.name.value] = of_kind(r, parameter(r, p, scope))
        if k == 0:
            _configured(r, f, scope)
        try:
            run_block(r, Frame(scope, target), f.body.body)
        except Found as found:
            scope = found.scope
            continue
        if r.bound:
            raise Raised
        raise NotUnderstood(f"'{target.name.value}' is not reached in '{f.name.value}'")
    return scope


def of_kind(r: Reader, v: Value) -> Value:
    """A parameter of the factory with the kind that its default or its use tells."""
    if not isinstance(v, Open) or v.kind or v.of is not None:
        return v
    default = r.defaults.get(v.name)
    found = r.kinds.get(v.name, "")
    if isinstance(default, bool) and found != "int":
        found = "bool"
    elif isinstance(default, float):
        found = "float"
    elif isinstance(default, TypeOf):
        found = "dtype"
    elif isinstance(default, str) and found != "dtype":
        found = "str"
    elif default is None and v.name in r.defaults and not (found in ("int", "dtype") and v.name not in r.optional):
        found = "any"
    elif not found:
        found = "int" if isinstance(default, int) else "any"
    r.kinds[v.name] = found
    if found == "str":
        r.meta(v.name, "str")
        return Text(v.name)
    return Open(v.name, None, found)


def _configured(r: Reader, f: cst.FunctionDef, scope: Scope) -> None:
    """`pass_configs` of `tilelang.jit` as attributes of the kernel."""
    for d in f.decorators:
        if decorator_name(d) != "jit" or not isinstance(d.decorator, cst.Call):
            continue
        for a in d.decorator.args:
            if a.keyword is None or a.keyword.value != "pass_configs":
                continue
            try:
                configured(r, r.decided(evaluate(r, scope, a.value)))
            except (NotUnderstood, Undecided):  # how it is compiled, not what it computes
                continue


def is_eager(node: cst.FunctionDef) -> bool:
    """Whether a kernel is its own factory: under no `T.prim_func`."""
    return not any(decorator_name(d) == "prim_func" for d in node.decorators)
