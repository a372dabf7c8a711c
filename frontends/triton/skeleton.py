"""A skeleton of a binding, from what the source says: metas with their defaults or first tuned values, tensors to fill in."""

from __future__ import annotations

import libcst as cst

from kir.ir import nodes as n
from kir.ir.binding import Binding, Setting, Tensor
from kir.ir.types import DType

from .host import HostScope
from .source import Module, Project, decorator_name, parts
from .values import NotUnderstood, Value, is_known

UNKNOWN = "?"
"""What stands where a person must decide."""


def skeleton(project: Project, module: Module, node: cst.FunctionDef, program: n.Program) -> Binding:
    """A binding for a kernel: every meta, tensor and scalar that needs a value is in it."""
    tuned = tuned_settings(project, module, node)
    metas: dict[str, Setting] = {}
    for m in program.metas:
        if m.kind == "dtype" and isinstance(m.default, str) and "(" in m.default:
            continue
        if m.name in ("num_warps", "num_stages"):
            continue
        value = tuned.get(m.name, m.default)
        metas[m.name] = value if value is not None else UNKNOWN
    tensors = {
        p.name: Tensor(
            shape=[UNKNOWN] * max(1, len(p.of.shape)), dtype=p.of.dtype.name if not p.of.dtype.is_symbolic else UNKNOWN, role=p.role
        )
        for p in program.params
        if isinstance(p.of, n.Buffer)
    }
    scalars: dict[str, str | int | float] = {
        p.name: UNKNOWN for p in program.params if isinstance(p.of, DType) and not dict(p.attrs).get("implicit") and p.of.is_integer
    }
    dtypes = {p.name: "f32" for p in program.params if isinstance(p.of, DType) and p.of.is_symbolic}
    options: dict[str, Setting] = {k: v for k, v in tuned.items() if k in ("num_warps", "num_stages")}
    grid: list[str | int] = [UNKNOWN for _ in program.kernels[0].grid]
    return Binding(kernel=program.name, grid=grid, metas=metas, dtypes=dtypes, scalars=scalars, tensors=tensors, options=options)


def tuned_settings(project: Project, module: Module, node: cst.FunctionDef) -> dict[str, Setting]:
    """The values of the first configuration that an autotuning decorator names, as far as they can be evaluated."""
    scope = HostScope(project, module, module.owners.get(id(node), ()))
    out: dict[str, Setting] = {}
    for d in node.decorators:
        if decorator_name(d) not in ("autotune", "libtuner", "heuristics") or not isinstance(d.decorator, cst.Call):
            continue
        config = first_config(d.decorator)
        if config is None:
            continue
        for a in config.args:
            if a.keyword is None and isinstance(a.value, cst.Dict):
                for e in a.value.elements:
                    if isinstance(e, cst.DictElement) and isinstance(e.key, cst.SimpleString):
                        keep(out, str(e.key.evaluated_value), scope, e.value)
            elif a.keyword is not None and a.keyword.value in ("num_warps", "num_stages", "num_ctas", "maxnreg"):
                keep(out, a.keyword.value, scope, a.value)
    return out


def keep(out: dict[str, Setting], name: str, scope: HostScope, e: cst.BaseExpression) -> None:
    """Note the value of an expression when it is a known one."""
    try:
        value: Value = scope.evaluate(e)
    except NotUnderstood:
        return
    if is_known(value) and value is not None:
        out[name] = value  # type: ignore[assignment]  # a literal, checked by is_known


def first_config(call: cst.Call) -> cst.Call | None:
    """The first `triton.Config(..)` below the arguments of a decorator, in reading order."""
    stack: list[cst.CSTNode] = list(reversed(call.args))
    while stack:
        top = stack.pop()
        if isinstance(top, cst.Call) and isinstance(top.func, (cst.Attribute, cst.Name)):
            name = top.func.attr.value if isinstance(top.func, cst.Attribute) else top.func.value
            if name == "Config":
                return top
        stack.extend(reversed(tuple(parts(top))))
    return None
