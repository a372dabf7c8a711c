"""The gate on a GPU: everything of the CPU gate first, then run and measured on the device by processes that hold no candidate host code.

    with Gpu.open() as gpu:
        verdict = gate_gpu(gpu, program, load_problem("gemm"), "triton")
        verdict.accepted, verdict.reason, verdict.device.timings

Order: images, interpreting, references, relative, oracle, standby, machine, ahead, candidate, checks, conformance, sanitizer, statistics,
panel, timing, judge.
"""
from __future__ import annotations

from kir.gate.gpu.judge import Options, gate_gpu
from kir.gate.gpu.machine import Gpu

__all__ = ["Gpu", "Options", "gate_gpu"]
