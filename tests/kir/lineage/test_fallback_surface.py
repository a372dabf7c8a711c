"""A state that its own surface's compiler refuses is compiled on another, which its record says; neighbors are compared on one surface."""
from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kir.base.diagnostic import Diagnostic
from kir.gate.cpu import gate_cpu
from kir.gate.verdict import CompileRecord, ProfileRecord, Verdict
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.lineage import judge as judged
from kir.lineage.judge import CpuJudge, GpuJudge


def _verdict(program: Program, surface: str, instead: str) -> Verdict:
    """Of a gate whose surfaces but CUDA take only the program `plain`."""
    said = (Diagnostic("KIR-B010", "refused"),)
    if surface == "cuda" or program.name == "plain":
        made = CompileRecord(surface, True)
    else:
        made = CompileRecord(instead, True, passed_over=said) if instead else CompileRecord(surface, False, refusals=said)
    return Verdict(made.ok, "profile" if made.ok else "compile", "right" if made.ok else "KIR-B010: refused", program.name, "p", made)


@pytest.mark.parametrize("surface", ["tilelang", "triton"])
def test_what_a_surface_refuses_is_compiled_as_cuda_and_said(surface: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def gate(program: Program, problem: Any, surface: str, targets: Any, **options: Any) -> Verdict:
        asked.append((program.name, surface))
        return _verdict(program, surface, options.get("instead", ""))
    monkeypatch.setattr(judged, "gate_cpu", gate)
    by = CpuJudge(surface, ())
    plain, odd = by.gate(Program("plain")), by.gate(Program("odd"))
    assert plain.accepted and plain.surface == surface and "refused_by" not in plain.record
    assert odd.accepted and odd.surface == "cuda" and odd.record["refused_by"] == {surface: "KIR-B010: refused"}
    asked.clear()
    by.realized(plain, odd)
    assert asked == [("plain", "cuda")]
    assert "cuda" not in judged.INSTEAD  # nothing stands in for CUDA


def test_a_record_does_not_say_where_a_machine_keeps_its_files() -> None:
    def at(file: str) -> dict[str, Any]:
        return {"compile": {"refusals": [{"id": "KIR-B305", "origin": {"file": file, "line": 3, "end_line": 3, "column": 1, "end_column": 9}}]}}
    assert judged.portable(at("/opt/lib/python3.11/site-packages/pack/quant/kernel.py")) == at("pack/quant/kernel.py")
    assert judged.portable(at("/home/me/own.py")) == at("own.py") and judged.portable(at("skills/own.py")) == at("skills/own.py")


COUNTED = """kir 1
program p
  inout Y: i32[64]
kernel main grid (g: 1) threads 64
  let h = histogram({0})
  Y = h
"""


def test_both_surfaces_are_asked_and_the_program_is_interpreted_once() -> None:
    p = parse_program(COUNTED.format("Y % 64"))
    verdict = gate_cpu(p, None, "tilelang", (), against=p, instead="cuda")
    assert verdict.accepted and verdict.compile.surface == "cuda" and verdict.compile.passed_over and verdict.correctness is not None
    odd = parse_program(COUNTED.format("sort(Y, axis=0) % 64"))
    both = gate_cpu(odd, None, "tilelang", (), against=odd, instead="cuda")
    assert (both.accepted, both.stage, both.compile.surface) == (False, "compile", "tilelang")
    assert len({d.message for d in both.compile.refusals}) > 1 and {d.id for d in both.compile.refusals} > {"KIR-B030"}


def test_on_a_device_it_is_measured_so_too_and_never_compared_with_times_of_the_surface(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def gate(program: Program, problem: Any, surface: str, targets: Any, **options: Any) -> Verdict:
        return _verdict(program, surface, options.get("instead", ""))

    def device(gpu: Any, program: Program, problem: Any, surface: str, *, options: Any, first: Verdict) -> Verdict:
        asked.append(surface)
        return replace(first, profile=(ProfileRecord("NVIDIA H200", "s", 1e-4, "", {}, "measured", (0.9e-4, 1.1e-4), 9),))
    monkeypatch.setattr(judged, "gate_cpu", gate)
    monkeypatch.setattr(judged, "gate_gpu", device)
    by = GpuJudge("tilelang", (), SimpleNamespace(timed_for=lambda p: ()), None, Program("expert"), SimpleNamespace(cache=None))  # type: ignore[arg-type]  # stand-ins
    plain, odd = by.gate(Program("plain")), by.gate(Program("odd"))
    assert asked == ["tilelang", "cuda"] and odd.surface == "cuda" and odd.record["refused_by"] == {"tilelang": "KIR-B010: refused"}
    assert list(plain.measured) == ["NVIDIA H200"] and list(odd.measured) == ["NVIDIA H200, as cuda"]
