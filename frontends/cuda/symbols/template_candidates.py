"""Template arguments to try when none are named: for measuring how much of a package is read, never for reading a kernel in earnest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, product
from types import MappingProxyType

from ..source.syntax import text
from .symbols import Function, TParam

MAX_TRIED = 24
"""Combinations that are tried for one kernel."""


def samples(fn: Function, classes: Mapping[str, Sequence[str]] = MappingProxyType({})) -> Iterator[str]:
    """Texts of template arguments for a kernel, likely ones first, then those that are another in one argument. `classes`: those that a parameter may be."""
    if not fn.params:
        return
    listed = [list(classes.get(p.name, ())) or choices(p) for p in fn.params if not p.pack]
    first = [each[0] for each in listed]
    others = ([*first[:k], x, *first[k + 1:]] for nth in (1, 2, 3) for k, each in enumerate(listed) for x in each[nth:nth + 1])
    seen = set()
    for made in chain([first], others, islice(product(*listed), 4 * MAX_TRIED)):
        shown = ", ".join(made)
        if shown not in seen:
            seen.add(shown)
            yield shown
        if len(seen) >= MAX_TRIED:
            return


def likely(p: TParam) -> str:
    """The first text that is tried for a parameter."""
    return choices(p)[0]


def choices(p: TParam) -> list[str]:
    """Texts that are tried for a parameter, likely ones first."""
    name = p.name.lower()
    if p.kind == "type":
        if re.search(r"idx|id_?type|index|offset", name) or name.endswith("id"):
            return ["int32_t"]
        if re.search(r"float|acc|compute|dtypeo32|prob", name):
            return ["float", "half"]
        if "fp8" in name or "quant" in name:
            return ["__nv_fp8_e4m3", "int8_t"]
        return ["half", "float", "nv_bfloat16", "int32_t"]
    kind = text(p.type) if p.type is not None else "int"
    if p.function:
        return ["fabsf"] if kind == "float" else ["fabs"]
    if kind == "bool":
        return ["false", "true"]
    if re.search(r"dim|hidden|dstate", name):
        return ["128", "64"]
    if re.fullmatch(r"b(lock_?)?d(im_?)?_?x", name):
        return ["32", "16"]
    if re.search(r"warps|rows_?per", name):
        return ["4" if "warps" in name else "16", "1"]
    if re.search(r"vec|elts|ele|pack", name):
        return ["8", "4", "16"]
    if re.search(r"thread|block_?size|nthr", name):
        return ["128", "256"]
    if re.search(r"rank|gpu|world", name):
        return ["8", "2"]
    if kind in ("int", "uint32_t", "size_t", "unsigned", "int32_t", "uint8_t", "unsigned int", "int64_t", "uint64_t", "auto"):
        return ["1", "2", "4", "8"]
    return [f"static_cast<{kind}>(0)", f"static_cast<{kind}>(1)"]


__all__ = ["choices", "likely", "samples"]
