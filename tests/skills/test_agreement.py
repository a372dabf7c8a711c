"""The hand-written programs are right against the float64 oracle of their problem, tails included, and free of hazards."""
from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import kir.skills
from kir.analysis.normal_form import normalize
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.verify import verify
from kir.problem import Problem, load_problem, problem_names

HOME = Path(next(iter(kir.skills.__path__)))
EXPERTS = tomllib.loads((HOME / "experts" / "experts.toml").read_text())
NAIVE = sorted(problem_names())


def expert(name: str) -> n.Program:
    path = HOME / "experts" / EXPERTS[name]["file"]
    return parse_program(path.read_text(), str(path))


def agrees(program: n.Program, problem: Problem, shape_name: str, distribution: str = "normal", seed: int = 0) -> None:
    shape = problem.shape(shape_name)
    inputs = problem.inputs(shape, seed, distribution)
    result = run(program, inputs, problem.scalars(shape))
    verdict = problem.compare(result.outputs, inputs, shape)
    assert verdict.ok, f"{shape_name}, {distribution}: {verdict.reason}"


@pytest.mark.parametrize(("name", "shape"), [
    (name, shape.name) for name in sorted(EXPERTS) for shape in load_problem(EXPERTS[name]["problem"]).shapes_for(expert(name))
    if "timed" not in shape.tags])
def test_an_expert_agrees_with_the_oracle(name: str, shape: str) -> None:
    agrees(expert(name), load_problem(EXPERTS[name]["problem"]), shape)


@pytest.mark.parametrize("name", sorted(EXPERTS))
def test_an_expert_agrees_on_adversarial_inputs(name: str) -> None:
    problem = load_problem(EXPERTS[name]["problem"])
    for seed, distribution in enumerate(problem.distributions[1:]):
        agrees(expert(name), problem, "tail", distribution, seed)


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


@pytest.mark.parametrize("name", sorted(EXPERTS))
def test_the_normal_form_of_an_expert_is_verified_and_agrees(name: str) -> None:
    normal = normalize(expert(name))
    assert [d for d in verify(normal) if d.severity == "error"] == []
    agrees(normal, load_problem(EXPERTS[name]["problem"]), EXPERTS[name]["check"])


@pytest.mark.parametrize("name", sorted(EXPERTS))
def test_the_checker_finds_no_error_in_an_expert(name: str) -> None:
    program = expert(name)
    problem = load_problem(EXPERTS[name]["problem"])
    shape = problem.shape(EXPERTS[name]["check"])
    inputs = problem.inputs(shape)
    result = run(program, inputs, problem.scalars(shape), mode="check")
    assert [f for f in result.findings if f.severity == "error"] == []
    assert problem.compare(result.outputs, inputs, shape).ok
