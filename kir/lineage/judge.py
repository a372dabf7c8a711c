"""The walk's tie to the gate: compile, check and model one program, and compare neighbors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kir.diagnostic import error
from kir.gate import gate_cpu, realized
from kir.gate.realized import summary
from kir.ir.nodes import Program
from kir.lineage.record import Header, Realization
from kir.lineage.walk import Judgement
from kir.problem import Problem, load_problem
from kir.surface import Artifact
from kir.target import Target, target

MOST_SHOWN = 6
"""Differences between two compiled programs that a record names."""


@dataclass(frozen=True)
class CpuJudge:
    """The gate without a GPU. Without a problem, the kernel that the walk starts from is the reference."""

    surface: str
    targets: tuple[Target, ...]
    problem: Problem | None = None
    against: Program | None = None

    @classmethod
    def of(cls, header: Header, expert: Program | None = None) -> CpuJudge:
        """The judge that a lineage's header asks for."""
        problem = load_problem(header.problem) if header.problem else None
        return cls(header.surface, tuple(map(target, header.targets)), problem, None if problem else expert)

    def gate(self, program: Program) -> Judgement:
        """Compile, check and model one program."""
        verdict = gate_cpu(program, self.problem, self.surface, self.targets, against=self.against)
        stage = "gate" if verdict.stage == "profile" else verdict.stage
        artifacts = {each.target: each for each in verdict.artifacts}
        emitted = verdict.emitted.text if verdict.emitted is not None else ""
        return Judgement(verdict.accepted, stage, verdict.reason, verdict.record, emitted, verdict.modelled(), artifacts)

    def realized(self, before: Judgement, after: Judgement) -> Realization:
        """Whether the compiled code of the optimized side (``before``) differs from that of the simpler side (``after``)."""
        fast: Mapping[str, Artifact] = before.artifact or {}
        slow: Mapping[str, Artifact] = after.artifact or {}
        each = {name: realized(slow[name], fast[name]) for name in sorted(slow) if name in fast}
        over = summary(each)
        differences = {name: _told(found.differs, fast[name]) for name, found in each.items() if found.differs}
        return Realization(realized=over.realized, reason="" if over.realized else over.reason, differences=differences)


def _told(differs: tuple[str, ...], artifact: Artifact) -> str:
    """The first few differences in a line; the name of an only kernel says nothing."""
    only = f"{artifact.kernels[0].kernel}: " if len(artifact.kernels) == 1 else ""
    more = f"; and {len(differs) - MOST_SHOWN} more" if len(differs) > MOST_SHOWN else ""
    return "; ".join(each.removeprefix(only) for each in differs[:MOST_SHOWN]) + more


def require(on: str) -> None:
    """Refuse a gate that this machine cannot run. Raises :class:`KirError` (KIR-S024)."""
    if on == "gpu":
        raise error("KIR-S024", "lineages are gated on the CPU; the GPU gate measures single programs", attempt="--on cpu")


__all__ = ["CpuJudge", "require"]
