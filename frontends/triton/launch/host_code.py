"""The launches of a Triton kernel, `kernel[grid](..)`, in the Python around it."""

from __future__ import annotations

import ast
from pathlib import Path

import libcst as cst

from kir.surface.launches.record import HostLaunch
from kir.surface.launches.values import Unknown, Value

from ..._python.host_files import decorated, host_launches
from ..._python.host_run import Called, Follower, HostFile, Kernel
from ..._python.host_values import Described
from ..._python.signature import parameters

JIT = frozenset({"jit", "autotune", "heuristics"})


def triton_launches(source: Path, node: cst.FunctionDef) -> list[HostLaunch]:
    """Every launch of a kernel that its own file and its folder show, with arguments by name."""
    names = [p.name.value for p in parameters(node)]
    persistent = "num_programs(" in cst.Module([]).code_for_node(node)

    def on_call(follower: Follower, file: HostFile, kernel: Kernel, e: ast.Call, args: list[Value], named: dict[str, Value]) -> Value:
        grid = named.pop("grid", kernel.grid)
        named.pop("warmup", None)
        given = {**(kernel.given or {}), **dict(zip(names, args)), **named} if kernel.name == node.name.value else named
        for name, v in [*given.items()]:
            if isinstance(v, Described):
                given |= {name: v.of, **{f"{name}_block_{k}": each for k, each in enumerate(v.block)}}
            elif isinstance(v, Kernel) and v.grid is None:
                given |= {name: v.name}  # a function that the kernel is given
        if isinstance(grid, Called):
            grid = follower.call(grid, [{"": "metas", **given}], {})
        extents = tuple(grid) if isinstance(grid, (list, tuple)) else (grid,)
        if persistent:  # as many as the host finds: the kernel asks how many there are
            extents = tuple(follower.known.fresh("programs") if isinstance(x, Unknown) else x for x in extents)
        made = HostLaunch(kernel.name, str(file.path), e.lineno, follower.known, (), given, extents)
        follower.launches = [x for x in follower.launches if x is not kernel.warmed] + [made]
        return Kernel(kernel.name, given=given, warmed=made) if kernel.warm else Unknown("what a launch returns")
    return host_launches(source, node.name.value, lambda f: decorated(f, JIT), on_call)
