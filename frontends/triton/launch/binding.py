"""A skeleton of a binding, from what the source says: metas with their defaults or tuned values, heuristics, tensors to fill in."""

from __future__ import annotations

import libcst as cst

from kir.ir import nodes as n
from kir.ir.binding import Binding, Setting, Tensor
from kir.ir.bindings.binding_uses import unmentioned
from kir.ir.types import DType
from kir.ir.visit import statements

from ..._python.project import Module, Project
from .autotune import Tuning

UNKNOWN = "?"
"""What stands where a person must decide."""


def skeleton(project: Project, module: Module, node: cst.FunctionDef, program: n.Program) -> Binding:
    """A binding for a kernel: every meta, tensor and scalar that needs a value is in it."""
    tuning = Tuning(project, module, node)
    configs, heuristics = tuning.configurations(), tuning.heuristics()
    tuned: dict[str, Setting] = configs[0] if configs else {}
    metas: dict[str, Setting] = {}
    for m in program.metas:
        if m.name in heuristics:
            continue
        if m.kind == "dtype" and isinstance(m.default, str) and "(" in m.default:
            continue
        if m.name in ("num_warps", "num_stages"):
            continue
        value = tuned.get(m.name, m.default)
        metas[m.name] = value if value is not None else UNKNOWN
    stored = _stored(program)
    tensors = {
        p.name: Tensor(
            shape=[UNKNOWN] * max(1, len(p.of.shape)),
            dtype=p.of.dtype.name if not p.of.dtype.is_symbolic else stored.get(p.name, UNKNOWN),
            role=p.role,
        )
        for p in program.params
        if isinstance(p.of, n.Buffer)
    }
    scalars: dict[str, str | int | float] = {
        p.name: UNKNOWN for p in program.params if isinstance(p.of, DType) and not dict(p.attrs).get("implicit") and p.of.is_integer
    }
    dtypes = {p.name: "f32" for p in program.params if isinstance(p.of, DType) and p.of.is_symbolic}
    for name in unmentioned(program, {*metas, *scalars, *dtypes}):  # nothing would come of what is said of it
        metas.pop(name, None)
        scalars.pop(name, None)
        dtypes.pop(name, None)
    options: dict[str, Setting] = {k: v for k, v in tuned.items() if k in ("num_warps", "num_stages")}
    grid: list[str | int] = [UNKNOWN for _ in program.kernels[0].grid]
    return Binding(kernel=program.name, grid=grid, metas=metas, dtypes=dtypes, scalars=scalars, heuristics=heuristics, tensors=tensors,
                   options=options, configs=configs)


def _stored(program: n.Program) -> dict[str, str]:
    """Tensors of open dtype whose every store first rounds to one and the same narrow dtype: they are of that."""
    found: dict[str, set[str]] = {}
    for s in (x for k in program.kernels for x in statements(k.body) if isinstance(x, n.Store)):
        value = s.value
        while isinstance(value, n.Cast) and isinstance(value.dtype, DType) and value.dtype.is_symbolic:
            value = value.x
        narrow = isinstance(value, n.Cast) and isinstance(value.dtype, DType) and value.dtype.is_float and value.dtype.bits < 32
        found.setdefault(s.at.buffer.name, set()).add(value.dtype.name if narrow and isinstance(value, n.Cast) else "")
    return {name: next(iter(said)) for name, said in found.items() if len(said) == 1 and "" not in said}
