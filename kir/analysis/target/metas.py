"""Metas of a generic program written out."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import substitute, transform


def instantiated(kernel: n.Kernel, meta: str, value: int) -> n.Kernel:
    """The kernel with a meta's value written out, in expressions, types and attributes."""
    def leave(old: n.Node, new: n.Node) -> Any:
        if isinstance(new, n.For) and dict(new.attrs).get("stages") == meta:
            return replace(new, attrs=n.attrs(**{**dict(new.attrs), "stages": value}))
        return new
    made: n.Kernel = transform(substitute(kernel, {meta: build.const(value)}), leave)
    return made


def at_defaults(program: n.Program, changed: Mapping[str, int] | None = None) -> n.Program:
    """The program with the integer metas that have a default written out at it, or at the value that `changed` gives."""
    values = {m.name: m.default for m in program.metas if m.kind == "int" and isinstance(m.default, int)} | dict(changed or {})
    if not values:
        return program
    kernels = program.kernels
    for name, value in values.items():
        kernels = tuple(instantiated(k, name, value) for k in kernels)
    return replace(program, metas=tuple(m for m in program.metas if m.name not in values), kernels=kernels)
