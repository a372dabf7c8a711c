"""A skeleton of a binding, from what the source says: metas with their defaults or tuned values."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from kir.ir import nodes as n
from kir.ir.binding import Binding, Setting
from kir.ir.types import DType

from ..._python.project import Module, Project, decorator_name
from ..launch.language import HANDLERS
from ..state.evaluate import evaluate
from ..state.functions import called
from ..state.reader import OWN, Reader, Undecided
from ..values.values import Function, Items, NotUnderstood, Scope, Table, TypeOf, Value, is_known

UNKNOWN = "?"
"""What stands where a person must decide."""


def skeleton(project: Project, module: Module, node: cst.FunctionDef, program: n.Program, questions: Mapping[str, str]) -> Binding:
    """A binding for a kernel: every meta and open scalar that needs a value is in it, but for what the other values answer."""
    configs = configurations(project, module, node)
    tuned: dict[str, Setting] = configs[0] if configs else {}
    metas: dict[str, Setting] = {}
    for m in program.metas:
        if questions.get(m.name, "").startswith(OWN):
            continue
        value = tuned.get(m.name, m.default)
        metas[m.name] = value if value is not None else UNKNOWN
    scalars: dict[str, str | int | float] = {
        p.name: UNKNOWN for p in program.params if isinstance(p.of, DType) and p.role == "scalar" and p.of.is_integer
    }
    sizes = [p.name for p in program.params if p.role == "size"]
    return Binding(kernel=program.name, sizes=sizes, metas=metas, scalars=scalars, configs=configs)


def configurations(project: Project, module: Module, node: cst.FunctionDef) -> list[dict[str, Setting]]:
    """The table of `tilelang.autotune(configs=..)` over the factory, where it is one that can be worked out."""
    owners = module.owners.get(id(node), ()) or (node,)
    r = Reader(HANDLERS, project, module, {})
    for f in owners:
        for d in f.decorators:
            if decorator_name(d) != "autotune" or not isinstance(d.decorator, cst.Call):
                continue
            for a in d.decorator.args:
                if a.keyword is not None and a.keyword.value == "configs":
                    return _table(r, module, a.value)
    return []


def _table(r: Reader, module: Module, e: cst.BaseExpression) -> list[dict[str, Setting]]:
    scope = Scope({}, module)
    try:
        found: Value = evaluate(r, scope, e)
        if isinstance(found, Function):
            found = called(r, found, [], {})
    except (NotUnderstood, Undecided):
        return []
    out: list[dict[str, Setting]] = []
    for item in found.items if isinstance(found, Items) else ():
        if isinstance(item, Table):
            made = {str(k): v.dtype.name if isinstance(v, TypeOf) else v for k, v in item.items if isinstance(v, TypeOf) or is_known(v)}
            out.append({k: v for k, v in made.items() if isinstance(v, (int, float, bool, str))})
    return out


