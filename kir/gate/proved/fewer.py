"""Sizes that a program is compared at, and sizes that it is not for: said beside a verdict, and no reason to refuse."""
from __future__ import annotations

from collections.abc import Iterator

from kir.analysis.facts import Facts
from kir.analysis.proof.decide import MOST_CTAS
from kir.analysis.solver import decide
from kir.base.diagnostic import Diagnostic, KirError
from kir.gate.goals import promised
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text


def fewer(program: n.Program, against: n.Program) -> Iterator[Diagnostic]:
    """A warning (KIR-G150) for each fact that a program has and the one that it is compared with has not, and for each axis of a grid that a launch takes up to
    65,535 CTAs along, where that one has no such axis: sizes at which nothing was compared, and at which the other one may be called."""
    theirs = Facts.from_program(against)
    for fact in promised(program):
        if not _always(fact, theirs):
            yield Diagnostic("KIR-G150", f"compared only where {expr_text(fact)}, which the other program does not ask of its callers", subject=expr_text(fact),
                             severity="warning")
    along = {axis.extent for k in against.kernels for axis in k.grid[1:]}
    for kernel in program.kernels:
        for axis, most in zip(kernel.grid[1:], MOST_CTAS[1:], strict=False):
            fits = build.compare("le", axis.extent, most)
            if axis.extent not in along and not _always(fits, Facts.in_kernel(program, kernel.name)):
                yield Diagnostic("KIR-G150", f"it cannot be launched but where {expr_text(fits)}: a launch takes no more CTAs along the second and third axis",
                                 kernel.origin, kernel.name, axis.name, severity="warning")


def _always(cond: n.Expr, facts: Facts) -> bool:
    try:
        return decide(cond, facts).kind == "always"
    except KirError:
        return False


__all__ = ["fewer"]
