"""The gate: compile, then correctness, then profile; the only way anything is accepted.

    verdict = gate_cpu(program, load_problem("gemm"), "triton", [target("sm_80"), target("sm_90a")])
    verdict.accepted, verdict.stage, verdict.reason, verdict.record, verdict.artifacts
    realized(before.artifacts[0], after.artifacts[0])

Order: artifacts, counts, goals, mutants, operands, realized, shapes, inputs, widths, cases, verdict, cost, covered, claims, proved, correctness, checked,
cpu, gpu, records, trace.
"""
from __future__ import annotations

from kir.gate.cost import Cost, Occupancy, kernel_cost, occupancy, program_cost
from kir.gate.cpu import gate_cpu
from kir.gate.realized import Realized, realized, summary
from kir.gate.verdict import CompileRecord, CorrectnessRecord, ProfileRecord, Run, Stage, Verdict

__all__ = ["CompileRecord", "CorrectnessRecord", "Cost", "Occupancy", "ProfileRecord", "Realized", "Run", "Stage", "Verdict", "gate_cpu",
           "kernel_cost", "occupancy", "program_cost", "realized", "summary"]
