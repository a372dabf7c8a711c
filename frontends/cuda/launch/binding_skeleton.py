"""A skeleton of a binding, from what the source says."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding, Setting, Tensor
from kir.ir.bindings.binding_uses import unmentioned
from kir.ir.types import DType
from kir.ir.visit import walk

from ..source.source import Unit
from ..symbols.symbols import Function
from .geometry import BLOCK, words_of
from .launch_bounds import bounds_of

UNKNOWN = "?"
"""What stands where a person must decide."""


def skeleton(unit: Unit, fn: Function, program: n.Program, roles: Mapping[str, str] | None = None) -> Binding:
    """A binding for a kernel: every meta, tensor and scalar that needs a value is in it. `roles` are those of a template's tensors, which its program,
    not yet read, does not tell; one that they do not tell either is left to what the kernel does once it is read."""
    metas: dict[str, Setting] = {}
    bound = next((words.split(",")[0].strip() for words in bounds_of(fn) if not words.startswith("maxnreg")), "")
    words = words_of(fn)
    for m in program.metas:
        if m.name in [words[b] for b in BLOCK[1:]] and m.default is not None:
            continue
        metas[m.name] = m.default if m.default is not None else UNKNOWN
    if bound.isdigit():
        metas[words["threads_x"]] = int(bound)
    tensors = {
        p.name: Tensor(shape=_extents(p.of), dtype=p.of.dtype.name if not p.of.dtype.is_symbolic else UNKNOWN,
                       role=p.role if roles is None else roles.get(p.name, ""))
        for p in program.params
        if isinstance(p.of, n.Buffer)
    }
    scalars: dict[str, str | int | float] = {
        p.name: UNKNOWN for p in program.params if isinstance(p.of, DType) and not dict(p.attrs).get("implicit") and not p.of.is_float
    }
    for name in unmentioned(program, set(scalars)):
        if not _is_member(program, name):
            del scalars[name]
    grid: list[str | int] = [UNKNOWN for _ in program.kernels[0].grid]
    return Binding(kernel=program.name, grid=grid, metas=metas, scalars=scalars, tensors=tensors)


def _is_member(program: n.Program, name: str) -> bool:
    """Whether text that is not read mentions a number as a member of what a kernel takes by value."""
    said = [x.text for k in program.kernels for x in walk(k) if isinstance(x, n.Opaque)]
    spots = [i for i, c in enumerate(name) if c == "_"]
    return any(re.search(rf"\b{re.escape(name[:i])}\s*\.\s*{re.escape(name[i + 1:])}\b", words) for words in said for i in spots)


def _extents(b: n.Buffer) -> list[str | int]:
    """The extents of a tensor, where the source declares them (a variable of the device); otherwise one that is open."""
    known = [build.int_value(d) for d in b.shape]
    return [d for d in known if d is not None] if None not in known else [UNKNOWN]
