"""The CUDA kernels of tests/zoo.toml: read without a gap, specialized and raised they solve their problem."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kir.analysis.normal.regions import raised
from kir.interp import run
from kir.ir.build import const
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import check
from kir.ir.types import BOOL
from kir.ir.visit import substitute
from kir.problem import load_problem
from tests.frontends.reading import opaque
from tests.zoo import CUDA, normal, of_each


@of_each(CUDA)
def test_nothing_is_left_opaque(name: str) -> None:
    program = normal(name)
    check(program, specialized=True)
    assert opaque(program) == []
    assert parse_program(program_text(program)) == program
    assert raised(program) == program


@of_each(CUDA, solving=True)
def test_it_solves_its_problem_without_a_hazard(name: str) -> None:
    program, problem = normal(name), load_problem(CUDA[name]["problem"])
    tried = 0
    for shape in problem.shapes:
        values = {k: const(v) for k, v in shape.sizes.items()}
        if "timed" in shape.tags or not all(substitute(f, values) == const(True, BOOL) for f in program.facts):
            continue
        inputs = problem.inputs(shape, seed=0, distribution="normal")
        result = run(program, inputs, problem.scalars(shape), mode="check" if "tail" in shape.tags and not tried else "fast")
        assert problem.compare(result.outputs, inputs, shape).ok, shape.name
        assert result.errors == ()
        tried += 1
    assert tried >= 2


@pytest.mark.zoo
def test_states_are_merged_by_their_weights() -> None:
    program = normal("flashinfer_merge_state")
    draw = np.random.default_rng(0)
    v_a, v_b = (draw.normal(size=(3, 4, 64)).astype(np.float16) for _ in range(2))
    s_a, s_b = (draw.normal(size=(3, 4)).astype(np.float32) for _ in range(2))
    out = run(program, {"v_a": v_a, "v_b": v_b, "s_a": s_a, "s_b": s_b}, {"L": 3}).outputs
    weight = np.exp2(s_a.astype(np.float64)) / (np.exp2(s_a.astype(np.float64)) + np.exp2(s_b.astype(np.float64)))
    right = weight[..., None] * v_a + (1 - weight[..., None]) * v_b
    assert np.allclose(out["v_merged"].astype(np.float64), right, atol=4e-3)
    assert np.allclose(out["s_merged"], np.log2(np.exp2(s_a) + np.exp2(s_b)), atol=1e-5)


@pytest.mark.zoo
def test_the_router_is_a_product_with_a_transposed_matrix() -> None:
    program = normal("flashinfer_router_gemm")
    draw = np.random.default_rng(0)
    a, b = (draw.normal(size=s).astype(ml_dtypes.bfloat16) for s in ((4, 2048), (16, 2048)))
    out = run(program, {"mat_a": a, "mat_b": b}, {}).outputs
    assert np.allclose(out["out"], a.astype(np.float32) @ b.astype(np.float32).T, atol=1e-2)
