"""Indices of 32 bits in a program as it was written, whose normal form leaves no trace of them: said of what is judged, and refused beside a reference that
computes them in 64."""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.proof.decide import Contradiction, Obligation, of_widths
from kir.base.diagnostic import Diagnostic, KirError, Severity
from kir.gate.verdict import Verdict
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.types import DType
from kir.ir.visit import substitute, with_own_statements


def require_wide(written: n.Program | None, against: n.Program | None) -> None:
    """Raises KirError KIR-G147 where a sum of indices of the program as it was written does not fit its 32 bits at sizes that the other program's facts
    allow too, and all of the other's, as that was written, fit at all sizes."""
    if written is None or against is None or not (found := _beyond(written)):
        return
    there = [o for o in found if _allowed(against, o)]
    if there and (own := _all(against)) and all(o.status == "proved" for o in own):
        raise KirError(_said("KIR-G147", written, there[0], "the width in which the other program computes them"))


def with_widths_said(verdict: Verdict, written: n.Program | None) -> Verdict:
    """An accepted verdict with KIR-G136, where nothing says that yet: at which sizes an index of the program as it was written does not fit its 32 bits."""
    right = verdict.correctness
    if written is None or right is None or not verdict.accepted or any(d.id == "KIR-G136" for d in right.weak) or not (found := _beyond(written)):
        return verdict
    said = _said("KIR-G136", written, found[0], "an index of 64 bits, or a fact about the sizes", "warning")
    return replace(verdict, correctness=replace(right, weak=(*right.weak, said)))


def _all(program: n.Program) -> list[Obligation]:
    """What is decided of the widths of indices."""
    try:
        return [o for p in of_widths(with_own_statements(program)) for o in p.obligations if "can be launched" not in o.what]
    except Contradiction:
        return []


def _beyond(program: n.Program) -> list[Obligation]:
    """Those of which a counterexample was worked out."""
    return [o for o in _all(program) if o.status == "refuted"]


def _allowed(program: n.Program, o: Obligation) -> bool:
    """Whether the sizes of a counterexample are sizes of a program, by their names, at which its facts hold."""
    known = {p.name: const(o.values[p.name], p.of) for p in program.params if p.name in o.values and isinstance(p.of, DType)}
    return all(isinstance(f := substitute(fact, known), n.Const) and bool(f.value) for fact in program.facts)


def _said(id: str, program: n.Program, o: Obligation, needs: str, severity: Severity = "error") -> Diagnostic:
    sizes = {p.name for p in program.params}
    at = ", ".join(f"{k} = {v}" for k, v in o.values.items() if k in sizes)
    message = {"KIR-G136": f"right only where indices fit 32 bits: {o.what}, but not at {at}",
               "KIR-G147": f"{o.what}, but not at {at}, where all of the other program's indices fit"}[id]
    return Diagnostic(id, message, anchor=o.anchor, witness=(at,), needs=needs, severity=severity)


__all__ = ["require_wide", "with_widths_said"]
