"""Kernels that host code wraps before it launches them, and what an object holds since it was made."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from kir.hardware.target import target
from kir.ir import build
from kir.ir import nodes as n
from kir.surface.launches.values import Value

from .host_parts import HostFile, Kernel
from .host_values import External

DEVICE = target("h200")
OF_DEVICE = {"multi_processor_count": DEVICE.device.sm_count, "max_threads_per_multi_processor": DEVICE.architecture.max_threads_per_sm,
             "shared_memory_per_multiprocessor": DEVICE.architecture.shared_per_sm, "warp_size": DEVICE.architecture.warp_size}
"""What torch's properties of a device are taken for, as nothing says which one it will be."""
OF_NUMBERS = frozenset({"bit_length", "bit_count", "is_integer", "numerator", "denominator"})
"""Attributes that show an argument to be a number."""
WRAPPERS = frozenset({"wrap_triton", "autotune", "heuristics", "jit", "libentry"})
"""Functions that give a kernel back that is launched as the one they are given."""


def wrapped(e: ast.Call, f: Value, args: Sequence[Value], value: Callable[[ast.expr, Mapping[str, Value]], Value]) -> Kernel | None:
    """The kernel that a call wraps, with the first configuration of a tuner that is put around it; None for another call."""
    kernel = args[0] if len(args) == 1 else None
    if not isinstance(kernel, Kernel) or kernel.grid is not None:
        return None
    if isinstance(f, External) and f.last in WRAPPERS:
        return kernel
    if isinstance(e.func, ast.Call) and isinstance(maker := value(e.func.func, {}), External) and maker.last in WRAPPERS:
        return Kernel(kernel.name, None, {**(kernel.given or {}), **_configured(e.func, value)})
    return None


def _configured(e: ast.Call, value: Callable[[ast.expr, Mapping[str, Value]], Value]) -> dict[str, Value]:
    """The compile-time values of the first configuration that a tuner is given, of a comprehension those of its first turn."""
    scope: dict[str, Value] = {}
    for x in ast.walk(e):
        for g in x.generators if isinstance(x, (ast.ListComp, ast.GeneratorExp)) else ():
            over = value(g.iter, scope)
            if isinstance(g.target, ast.Name) and isinstance(over, (list, tuple)) and over:
                scope[g.target.id] = over[0]
    for x in ast.walk(e):
        if isinstance(x, ast.Call) and (x.func.attr if isinstance(x.func, ast.Attribute) else getattr(x.func, "id", "")) == "Config" and x.args:
            found = value(x.args[0], scope)
            if isinstance(found, dict):
                return {str(k): v for k, v in found.items()}
    return {}


def turns_of(of: ast.comprehension) -> list[dict[str, ast.expr]]:
    """What a comprehension gives its name in each of a few turns that it says itself (`range(3)`, `"qkv"`); [] for another one."""
    over, most = of.iter, 16
    match over:
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int() as count)], keywords=[]) if 0 < count <= most:
            items: list[ast.expr] = [ast.Constant(k) for k in range(count)]
        case ast.Constant(value=str() as letters) if 0 < len(letters) <= most:
            items = [ast.Constant(x) for x in letters]
        case _:
            return []
    return [] if of.ifs or not isinstance(of.target, ast.Name) else [{of.target.id: x} for x in items]


def held_since_made(file: HostFile, attr: str) -> ast.expr | None:
    """What an attribute of an object is from its `__init__`, where one class of a file alone has it: a literal, or the default of the argument that it is."""
    found: list[ast.expr] = []
    for name, f in file.functions.items():
        if not name.endswith(".__init__"):
            continue
        last = [*f.args.posonlyargs, *f.args.args][-len(f.args.defaults):] if f.args.defaults else []
        usual = {p.arg: d for p, d in (*zip(last, f.args.defaults, strict=True), *zip(f.args.kwonlyargs, f.args.kw_defaults, strict=True)) if d is not None}
        for s in ast.walk(f):
            if isinstance(s, ast.Assign) and any(isinstance(t, ast.Attribute) and t.attr == attr for t in s.targets):
                found.append(usual.get(s.value.id, s.value) if isinstance(s.value, ast.Name) else s.value)
    return found[0] if len(found) == 1 and isinstance(found[0], ast.Constant) and isinstance(found[0].value, (int, float, str)) else None


class Made(dict[str, Value]):
    """An object of a class that is nothing but its fields, by their names."""


def made_of_class(file: HostFile, f: External, args: Sequence[Value], named: Mapping[str, Value], value: Callable[[ast.expr], Value]) -> Made | None:
    """What a call of a dataclass of this file gives: its fields, those that are left out as the class has them by default. None for another call."""
    node = next((s for s in file.tree.body if isinstance(s, ast.ClassDef) and f.dotted in (s.name, f"{file.path.stem}.{s.name}")), None)
    if node is None or not any("dataclass" in ast.unparse(d) for d in node.decorator_list):
        return None
    fields = [s for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
    usual = {s.target.id: value(s.value) for s in fields if s.value is not None and isinstance(s.target, ast.Name)}
    return Made({**usual, **dict(zip((s.target.id for s in fields if isinstance(s.target, ast.Name)), args, strict=False)), **named})


def constant(v: Value) -> Value:
    """A number of Python as an expression."""
    return build.const(v) if isinstance(v, int) and not isinstance(v, bool) else v


def plain_default(v: Value) -> Value:
    """A literal as an argument's default is kept: a number as Python has it."""
    return int(v.value) if isinstance(v, n.Const) and not isinstance(v.value, bool) else v
