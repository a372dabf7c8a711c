"""The CPU gate on an answer by itself: compiled for real where a backend can say it, its registers held to the contract, its time modelled."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic
from kir.gate import gate_cpu
from kir.gate.verdict import Verdict
from kir.hardware.target import Target
from kir.lineage.carrier.checking import Checked
from kir.lineage.carrier.contract import Contract


@dataclass(frozen=True)
class Gated:
    """The gate's verdict on an accepted answer, and what it found against the contract's budget."""

    checked: Checked
    verdict: Verdict
    over: tuple[Diagnostic, ...]

    @property
    def accepted(self) -> bool:
        return self.verdict.accepted and not self.over

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Why it was refused, or what was found without refusing."""
        return (*self.over, *self.verdict.diagnostics())

    def record(self) -> dict[str, Any]:
        """What a recorded answer keeps of it: no wall times, so that the same tools give the same bytes."""
        v = self.verdict
        kernels = [{"kernel": k.kernel, "target": a.target, "registers": k.registers, "spills": k.spills, "shared_bytes": k.shared_bytes}
                   for a in v.artifacts for k in a.kernels]
        return {"dtypes": list(self.checked.dtypes), "accepted": self.accepted, "stage": v.stage, "reason": v.reason, "program": v.program,
                "surface": v.compile.surface, "not_compiled": list(v.compile.absent), "kernels": kernels, "tools": dict(sorted(v.tools.items())),
                "runs": self.checked.runs, "hazard_runs": self.checked.hazard_runs, "worst": float(f"{self.checked.worst:.3g}")}


def gate_answer(contract: Contract, checked: Checked, targets: Sequence[Target], cache: Path | None = None) -> Gated:
    """Put an accepted answer through the CPU gate, with its contract as the problem. Raises KirError for one that was refused."""
    program = checked.program_or_raise()
    surface = "" if checked.answer.surface == "kir" else checked.answer.surface
    verdict = gate_cpu(program, contract.problem(checked.dtype), surface, targets, cache=cache)
    limits = contract.spec.budget
    over = tuple(
        Diagnostic("KIR-H125", f"'{k.kernel}' compiles to {k.registers} registers a thread and {k.shared_bytes} bytes of shared memory for {a.target}",
                   anchor=k.kernel, needs=f"at most {limits.registers} registers and {limits.shared_bytes} bytes")
        for a in verdict.artifacts for k in a.kernels if k.registers > limits.registers or k.shared_bytes > limits.shared_bytes)
    return Gated(checked, verdict, over)
