"""Tile programs as thread code before they are written: by a pass that knows the whole kernel where one is registered, else by the rules
of `kir.lowering`, statement by statement."""
from __future__ import annotations

from kir.diagnostic import Diagnostic, KirError
from kir.ir import nodes as n
from kir.lowering import is_tiled, lowered_kernel
from kir.rewrite.base import found_sites
from kir.rewrite.edit import replace_kernel
from kir.rewrite.registry import pass_class
from kir.surface import StatementPath

LOWERING = ("lower-mma",)
"""Passes that are tried first, in this order: they lower whole kernels of a form of their own."""


def thread_code(program: n.Program) -> tuple[n.Program, dict[StatementPath, StatementPath], tuple[Diagnostic, ...]]:
    """The program with every tile kernel lowered, which statement each new one was written for, and why kernels were not lowered."""
    refusals: list[Diagnostic] = []
    places: dict[StatementPath, StatementPath] = {}
    for k in program.kernels:
        if not is_tiled(k):
            continue
        by_pass = _by_pass(program, k)
        if by_pass is not None:
            program = by_pass
            continue
        try:
            made, own = lowered_kernel(program, k)
        except KirError as refused:
            refusals += refused.diagnostics
            continue
        program = replace_kernel(program, k.name, made)
        places |= own
    return program, places, tuple(refusals)


def _by_pass(program: n.Program, k: n.Kernel) -> n.Program | None:
    """The program with a kernel lowered by the first pass that applies to it."""
    for name in LOWERING:
        try:
            item = pass_class(name).with_options({})
        except KirError:
            continue
        for site in found_sites(item.match(program, (k.name,), k)):
            return item.forward(program, site)
    return None


def placed(line: StatementPath, places: dict[StatementPath, StatementPath]) -> StatementPath:
    """The path in the program as it was given of a statement that was written for it."""
    while line and line not in places:
        line = line[:-1]
    return places.get(line, ())


