"""A state that its own surface's compiler refuses is compiled on another, which its record says; neighbors are compared on one surface."""
from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kir.gate.verdict import CompileRecord, ProfileRecord, Verdict
from kir.ir.nodes import Program
from kir.lineage import judge as judged
from kir.lineage.judge import CpuJudge, GpuJudge


def test_what_tilelang_refuses_is_compiled_as_cuda_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def gate(program: Program, problem: Any, surface: str, targets: Any, **options: Any) -> Verdict:
        asked.append((program.name, surface))
        ok = surface == "cuda" or program.name == "plain"
        return Verdict(ok, "profile" if ok else "compile", "right" if ok else "KIR-B010: refused", program.name, "p", CompileRecord(surface, ok))
    monkeypatch.setattr(judged, "gate_cpu", gate)
    by = CpuJudge("tilelang", ())
    plain, odd = by.gate(Program("plain")), by.gate(Program("odd"))
    assert plain.accepted and plain.surface == "tilelang" and "refused_by" not in plain.record
    assert odd.accepted and odd.surface == "cuda" and odd.record["refused_by"] == {"tilelang": "KIR-B010: refused"}
    asked.clear()
    by.realized(plain, odd)
    assert asked == [("plain", "cuda")]
    assert not CpuJudge("triton", ()).gate(Program("odd")).accepted


def test_on_a_device_it_is_measured_so_too_and_never_compared_with_times_of_the_surface(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def gate(program: Program, problem: Any, surface: str, targets: Any, **options: Any) -> Verdict:
        ok = surface == "cuda" or program.name == "plain"
        return Verdict(ok, "profile" if ok else "compile", "right" if ok else "KIR-B010: refused", program.name, "p", CompileRecord(surface, ok))

    def device(gpu: Any, program: Program, problem: Any, surface: str, *, options: Any, first: Verdict) -> Verdict:
        asked.append(surface)
        return replace(first, profile=(ProfileRecord("NVIDIA H200", "s", 1e-4, "", {}, "measured", (0.9e-4, 1.1e-4), 9),))
    monkeypatch.setattr(judged, "gate_cpu", gate)
    monkeypatch.setattr(judged, "gate_gpu", device)
    by = GpuJudge("tilelang", (), SimpleNamespace(timed_for=lambda p: ()), None, SimpleNamespace(cache=None), Program("expert"))  # type: ignore[arg-type]  # stand-ins
    plain, odd = by.gate(Program("plain")), by.gate(Program("odd"))
    assert asked == ["tilelang", "cuda"] and odd.surface == "cuda" and odd.record["refused_by"] == {"tilelang": "KIR-B010: refused"}
    assert list(plain.measured) == ["NVIDIA H200"] and list(odd.measured) == ["NVIDIA H200, as cuda"]
