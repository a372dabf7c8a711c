"""FlashInfer-Trace: what is written is read back, a reference runs, and what is off is refused with its place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.gate.trace import Definition, Solution, Trace, definition_of, read, solution_of, text_of, traces_of, written
from kir.gate.verdict import CompileRecord, CorrectnessRecord, DeviceRecord, ProfileRecord, Run, Stage, Verdict
from kir.problem import load_problem
from kir.surface import Emitted, Entry

EXAMPLE = {
    "definition": "gemm_n_4096_k_4096",
    "workload": {"uuid": "a1", "axes": {"M": 1024}, "inputs": {"A": {"type": "random"}, "B": {"type": "safetensors", "path": "b", "tensor_key": "B"}}},
    "solution": None,
    "evaluation": None,
}


def verdict(accepted: bool, reason: str = "", stage: Stage = "profile") -> Verdict:
    run = Run("cube", {"M": 1024, "N": 1024, "K": 1024}, "normal", 1, "device", accepted, 0.5 if accepted else float("inf"), "C", 1.0, reason)
    device = DeviceRecord(device={"name": "NVIDIA H200"}, panel=({"shape": "cube", "reference": "torch.matmul", "median": 8e-6},))
    rows = (ProfileRecord("NVIDIA H200", "cube", 1.6e-5, "", {}, "measured", (1.5e-5, 1.7e-5), 40),)
    text = Emitted("cuda", "0" * 64, "__global__ void gemm_main() {}", (), (Entry("main", "gemm_main", (), (), 32),))
    return Verdict(
        accepted, stage, reason, "0" * 64, "gemm", CompileRecord("cuda", True), CorrectnessRecord("gemm", accepted, (run,)), rows, text, device=device
    )


def test_a_verdict_is_written_and_read_back(tmp_path: Path) -> None:
    problem = load_problem("gemm")
    for _ in range(2):
        written(tmp_path, verdict(True), problem)
    (definition,) = read(tmp_path / "definitions/contraction/gemm.json", Definition)
    assert definition.inputs["A"].shape == ["M", "K"] and definition.axes["M"].type == "var" and definition.outputs["C"].dtype == "float16"
    (solution,) = read(next(tmp_path.rglob("solutions/**/*.json")), Solution)
    assert solution.spec.entry_point == "kernel.cu::gemm_main" and solution.definition == definition.name
    traces = read(tmp_path / "traces/kir/contraction/gemm.jsonl", Trace)
    assert len(traces) == 2, "traces are added, not replaced"
    result = traces[0].evaluation
    assert result is not None and result.performance is not None and result.correctness is not None and result.correctness.extra is not None
    assert result.performance.speedup_factor == pytest.approx(0.5) and result.correctness.extra["error_over_bound"] == 0.5
    assert traces[0].workload.axes == {"M": 1024, "N": 1024, "K": 1024}
    assert all(Trace.model_validate_json(text_of(t)).model_dump_json() == t.model_dump_json() for t in traces)


@pytest.mark.parametrize(
    ("reason", "stage", "status"),
    [
        ("C[0] is nan, the oracle says 1", "correctness", "INCORRECT_NUMERICAL"),
        ("at shape 'odd': it did not answer within 30 s, and was killed", "correctness", "TIMEOUT"),
        ("cuEventSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)", "correctness", "RUNTIME_ERROR"),
        ("nvcc refuses this", "compile", "COMPILE_ERROR"),
    ],
)
def test_a_refusal_has_its_status(reason: str, stage: Stage, status: str) -> None:
    (trace,) = traces_of(verdict(False, reason, stage), load_problem("gemm"))
    assert trace.evaluation is not None and trace.evaluation.status == status and trace.evaluation.performance is None


@pytest.mark.parametrize("name", ["gemm", "rmsnorm", "softmax", "topk"])
def test_the_reference_of_a_definition_runs(name: str) -> None:
    torch = pytest.importorskip("torch")
    problem = load_problem(name)
    shape = problem.shape("tail")
    inputs = problem.inputs(shape, 3)
    scope: dict[str, object] = {}
    exec(definition_of(problem).reference, scope)
    run = scope["run"]
    assert callable(run)
    definition = definition_of(problem)
    sizes = {k: v for k, v in shape.sizes.items() if k in definition.inputs}
    made = run(**{k: torch.from_numpy(v) for k, v in inputs.items()}, **problem.spec.scalars, **sizes)
    outputs = made if isinstance(made, tuple) else (made,)
    assert problem.compare({k: np.asarray(v) for k, v in zip(definition.outputs, outputs, strict=True)}, inputs, shape).ok


def test_a_published_workload_is_read_and_what_is_off_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "workloads.jsonl"
    file.write_text(json.dumps(EXAMPLE) + "\n\n" + json.dumps(EXAMPLE) + "\n")
    assert [t.workload.axes for t in read(file, Trace)] == [{"M": 1024}, {"M": 1024}]
    wrong = json.loads(json.dumps(EXAMPLE))
    wrong["workload"]["inputs"]["B"].pop("path")
    file.write_text(json.dumps(EXAMPLE) + "\n" + json.dumps(wrong) + "\n")
    with pytest.raises(KirError) as refused:
        read(file, Trace)
    assert refused.value.diagnostics[0].id == "KIR-G110" and ":2:" in str(refused.value) and "inputs.B" in str(refused.value)
    with pytest.raises(KirError) as absent:
        read(tmp_path / "absent.json", Definition)
    assert absent.value.diagnostics[0].id == "KIR-G110"


def test_an_extent_that_is_computed_is_an_axis_with_a_constraint() -> None:
    problem = load_problem("gemm")
    tensors = tuple(t.model_copy(update={"shape": ("M + 1", "N")}) if t.role == "out" else t for t in problem.spec.tensors)
    changed = replace(problem, spec=problem.spec.model_copy(update={"tensors": tensors}))
    definition = definition_of(changed)
    assert definition.outputs["C"].shape == ["extent_of_C_0", "N"] and definition.constraints == ["extent_of_C_0 == M + 1"]
    assert traces_of(verdict(True), changed)[0].workload.axes == {"M": 1024, "N": 1024, "K": 1024, "extent_of_C_0": 1025}


def test_a_size_that_no_input_gives_is_a_scalar_input_too() -> None:
    problem = load_problem("topk")
    definition = definition_of(problem)
    assert definition.inputs["K"].shape is None and definition.inputs["K"].dtype == "int32" and "K" in definition.axes
    shape = problem.shape("tail")
    run = Run("tail", shape.sizes, "normal", 1, "device", False, 9.0, "V", 1.0, "wrong")
    refused = replace(verdict(False, "wrong", "correctness"), correctness=CorrectnessRecord("topk", False, (run,)))
    (trace,) = traces_of(refused, problem)
    assert trace.workload.inputs["K"].value == shape.sizes["K"] and trace.workload.axes["K"] == shape.sizes["K"]


def test_a_verdict_without_source_has_no_solution() -> None:
    with pytest.raises(KirError) as refused:
        solution_of(replace(verdict(True), emitted=None), "gemm")
    assert refused.value.diagnostics[0].id == "KIR-G111"
