"""Every problem that KIR ships is accepted by its own gate: its naive program is right, and whatever else its folder names is known."""
from __future__ import annotations

import tomllib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kir.gate.cpu import gate_cpu
from kir.gate.gpu.panel import require_known
from kir.gate.gpu.references import REFERENCES
from kir.ir.parser import parse_program
from kir.problem import load_problem
from kir.problem.load import problem_names
from kir.problem.schema import evaluate

SHIPPED = Path(__file__).parents[3] / "skills/problems"
FOLDERS = sorted(p.parent.name for p in SHIPPED.glob("*/problem.toml"))


def test_every_folder_is_a_problem() -> None:
    assert FOLDERS and sorted(problem_names()) == FOLDERS == sorted(p.name for p in SHIPPED.iterdir() if p.is_dir())


@pytest.mark.parametrize("name", FOLDERS)
def test_a_problem_names_only_references_that_are_known(name: str) -> None:
    problem = load_problem(name)
    own = tomllib.loads((SHIPPED / name / "problem.toml").read_text()).get("references", [])
    assert set(own) <= set(problem.spec.references) <= set(REFERENCES)
    require_known(problem)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_problem_s_own_naive_program_passes_its_gate(name: str) -> None:
    file = SHIPPED / name / "naive.kir"
    verdict = gate_cpu(parse_program(file.read_text(), str(file)), load_problem(name), "kir", [])
    assert verdict.accepted and verdict.correctness is not None, verdict.reason
    assert verdict.correctness.coverage is not None and "coverage" in verdict.correctness.coverage.line


def _called(name: str, tensors: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    torch = pytest.importorskip("torch")
    found = REFERENCES[name]({k: torch.from_numpy(x) for k, x in tensors.items()}, {})()
    return {k: x.numpy() for k, x in found.items()}


@pytest.mark.parametrize(("name", "problem"), [("torch.cumsum", "scan"), ("torch.Tensor.t", "transpose")])
def test_a_reference_computes_its_problem(name: str, problem: str) -> None:
    wanted = load_problem(problem)
    shape = wanted.shape("tail")
    given = wanted.inputs(shape, 0, "normal")
    assert wanted.compare(_called(name, dict(given)), given, shape).ok


@pytest.mark.parametrize("name", ["fmha_varlen", "fmha_varlen_causal"])
def test_where_lengths_decide_what_is_read_only_what_is_written_is_sure_to_be_moved(name: str) -> None:
    """A floor that counted padding refused times that were measured: at 16 sequences of up to 600 of 4,096 keys most inputs are padding."""
    problem = load_problem(name)
    sizes = {"B": 16, "H": 16, "L": 4096}
    out = next(t for t in problem.spec.tensors if t.role == "out")
    assert evaluate(problem.spec.bytes, sizes) == 2 * prod(evaluate(d, sizes) for d in out.shape)
