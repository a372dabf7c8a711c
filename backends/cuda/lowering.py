"""Tile programs as thread code before they are written: the passes that lower them, by name, on each kernel."""
from __future__ import annotations

from kir.diagnostic import Diagnostic, KirError
from kir.ir import nodes as n
from kir.rewrite.base import Miss, found_sites
from kir.rewrite.registry import pass_class
from .planning import is_open, planned

LOWERING = ("lower-mma",)
"""Passes that turn a tile kernel into the code of its threads, in the order in which they are tried."""


def thread_code(program: n.Program) -> tuple[n.Program, tuple[Diagnostic, ...]]:
    """The program with every tile kernel lowered that a pass lowers, and why others were not."""
    refusals: list[Diagnostic] = []
    for name in [k.name for k in program.kernels if is_open(k)]:
        program, _ = planned(program, name)
    for k in program.kernels:
        why: list[Diagnostic] = []
        for name in LOWERING:
            try:
                item = pass_class(name).with_options({})
            except KirError as absent:
                why += absent.diagnostics
                continue
            found = item.match(program, (k.name,), k)
            if isinstance(found, Miss):
                why.append(Diagnostic("KIR-B030", f"'{name}' does not lower the kernel: {found.reason}", anchor=k.name, origin=k.origin))
            for site in found_sites(found):
                program, why = item.forward(program, site), []
                break
        refusals += why
    return program, tuple(refusals)

