"""What a binding gives a factory, against what the factory makes of it: each value of the kind that its use asks for, each name one that it mentions."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping

import libcst as cst

from kir.base.diagnostic import did_you_mean
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.bindings.binding_uses import check_kind
from kir.ir.bindings.binding_values import MOST, check_values, shown, wrong

from ..._python.project import Module, Project
from ..launch.factories import is_eager, of_kind
from ..launch.language import HANDLERS
from ..state.open_values import parameter
from ..state.reader import Reader
from ..syntax.parameter_kinds import kinds, perhaps_none
from ..values.names import DTYPES
from ..values.values import NotUnderstood, Open, Scope, Text, Value
from .kernel import read_kernel


def check_given(project: Project, module: Module, node: cst.FunctionDef, binding: Binding) -> None:
    """Raises KirError KIR-F011 for a meta that the factory cannot take, or never mentions."""
    check_values(binding)
    owners = (*module.owners.get(id(node), ()), *((node,) if is_eager(node) else ()))
    r = Reader(HANDLERS, project, module, {}, False, binding.sizes)
    told: dict[str, str] = {}
    for f in owners:
        for key, kind in kinds(f).items():
            r.kinds.setdefault(key, kind)
        r.optional |= perhaps_none(f)
        scope = Scope({}, module)
        for p in (*f.params.posonly_params, *f.params.params, *f.params.kwonly_params):
            if p.name.value in binding.metas or p.name.value in binding.absent:
                try:
                    made = of_kind(r, parameter(r, p, scope))
                except NotUnderstood:
                    continue
                told[p.name.value] = "str" if isinstance(made, Text) else made.kind if isinstance(made, Open) and made.of is None else ""
    stated = set(told)
    if set(binding.metas) - stated:  # fields of objects, and what the host asks of its machine
        asked = {m.name: m.kind for m in read_kernel(project, module, node, node.name.value).metas}
        told |= {name: asked[name] for name in binding.metas if name in asked and name not in told}
    for name, value in binding.metas.items():
        kind = told.get(name, "")
        if kind == "dtype" and isinstance(value, str):
            if value.removeprefix("torch.").removeprefix("T.") not in DTYPES:
                near = did_you_mean(value, DTYPES)
                raise wrong(binding, ("metas", name), f"'{name}' = {shown(value)}: there is no such dtype", "" if near else "a dtype, such as f16", near)
        elif kind:
            check_kind(binding, ("metas", name), name, kind, value)
    if binding.recorded or not stated:
        return
    names = mentioned(module, owners[0])
    for name in () if names is None else sorted(stated - names):
        steps = ("metas", name) if name in binding.metas else ("absent", binding.absent.index(name))
        raise wrong(binding, steps, f"the factory of '{node.name.value}' never mentions its parameter '{name}': what is said of it has no effect",
                    "no value for it", key=True)


def mentioned(module: Module, factory: cst.FunctionDef) -> set[str] | None:
    """The names that a factory's body speaks of; None where its text is no Python of this version."""
    try:
        return {x.id for x in ast.walk(ast.parse(textwrap.dedent(module.code(factory)).strip())) if isinstance(x, ast.Name)}
    except (SyntaxError, ValueError):
        return None


def is_text(program: n.Program) -> bool:
    """Whether a kernel was kept as text as a whole."""
    return any(isinstance(s, n.Opaque) for k in program.kernels for s in k.body) and all(isinstance(s, n.Opaque) for k in program.kernels for s in k.body)


def check_readable(project: Project, module: Module, node: cst.FunctionDef, kernel: str, given: Mapping[str, Value], binding: Binding, made: n.Program) -> None:
    """Raises KirError KIR-F011 for a value that no extent can have (0, less, or more than 2^31) where the kernel can be read without it only."""
    for name, value in binding.metas.items():
        if isinstance(value, bool) or not isinstance(value, int) or 0 < value <= MOST:
            continue
        if not is_text(read_kernel(project, module, node, kernel, {k: v for k, v in given.items() if k != name}, binding.sizes)):
            reason = next(s.reason for k in made.kernels for s in k.body if isinstance(s, n.Opaque))
            raise wrong(binding, ("metas", name), f"with '{name}' = {shown(value)} the kernel cannot be read: {reason}", "a number that its extents can have")
