"""The hand-written programs are right against the float64 oracle of their problem, tails included. (That the checker finds nothing in them, and that
what it ran is right: `tests/kir/interp/findings/test_mutants.py`.)"""
from __future__ import annotations

import pytest

from kir.analysis.normal.normal_form import normalize
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.rules.verify import verify
from kir.problem import Problem, load_problem, problem_names
from tests.programs import SHIPPED, shipped

NAIVE = sorted(problem_names())


def agrees(program: n.Program, problem: Problem, shape_name: str, distribution: str = "normal", seed: int = 0) -> None:
    shape = problem.shape(shape_name)
    inputs = problem.inputs(shape, seed, distribution)
    result = run(program, inputs, problem.scalars(shape))
    verdict = problem.compare(result.outputs, inputs, shape)
    assert verdict.ok, f"{shape_name}, {distribution}: {verdict.reason}"


@pytest.mark.parametrize(("name", "shape"), [
    (name, shape.name) for name in sorted(SHIPPED) for shape in load_problem(SHIPPED[name]["problem"]).shapes_for(shipped(name))
    if "timed" not in shape.tags])
def test_an_expert_agrees_with_the_oracle(name: str, shape: str) -> None:
    agrees(shipped(name), load_problem(SHIPPED[name]["problem"]), shape)


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_an_expert_agrees_on_adversarial_inputs(name: str) -> None:
    problem = load_problem(SHIPPED[name]["problem"])
    for seed, distribution in enumerate(problem.distributions[1:]):
        agrees(shipped(name), problem, "tail", distribution, seed)


@pytest.mark.parametrize(("name", "shape"), [
    (name, shape.name) for name in NAIVE for shape in load_problem(name).tagged("one", "odd")])
def test_a_naive_program_agrees_with_the_oracle(name: str, shape: str) -> None:
    for dtype in load_problem(name).spec.dtypes:
        agrees(load_problem(f"{name}:{dtype}").naive, load_problem(f"{name}:{dtype}"), shape)


@pytest.mark.parametrize("name", NAIVE)
def test_a_naive_program_agrees_on_adversarial_inputs(name: str) -> None:
    problem = load_problem(name)
    for seed, distribution in enumerate(problem.distributions[1:]):
        agrees(problem.naive, problem, "all" if name == "topk" else "odd", distribution, seed)


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_the_normal_form_of_an_expert_is_verified_and_agrees(name: str) -> None:
    normal = normalize(shipped(name))
    assert [d for d in verify(normal) if d.severity == "error"] == []
    agrees(normal, load_problem(SHIPPED[name]["problem"]), SHIPPED[name]["check"])
