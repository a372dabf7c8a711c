"""The hand-written programs: in printed form, verified, and right against the float64 oracle of their problem, tails included."""
from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import kir.skills
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.verify import verify
from kir.problem import Problem, load_problem, problem_names

HOME = Path(next(iter(kir.skills.__path__)))
EXPERTS = tomllib.loads((HOME / "experts" / "experts.toml").read_text())
NAIVE = sorted(problem_names())


def expert(name: str) -> tuple[Path, n.Program]:
    path = HOME / "experts" / EXPERTS[name]["file"]
    return path, parse_program(path.read_text(), str(path))


def agrees(program: n.Program, problem: Problem, shape_name: str, distribution: str = "normal", seed: int = 0) -> None:
    shape = problem.shape(shape_name)
    inputs = problem.inputs(shape, seed, distribution)
    result = run(program, inputs, problem.scalars(shape))
    verdict = problem.compare(result.outputs, inputs, shape)
    assert verdict.ok, f"{shape_name}, {distribution}: {verdict.reason}"


def test_every_file_is_listed() -> None:
    listed = {EXPERTS[name]["file"] for name in EXPERTS}
    assert listed == {str(p.relative_to(HOME / "experts")) for p in (HOME / "experts").glob("*/*.kir")}


@pytest.mark.parametrize("name", sorted(EXPERTS))
def test_an_expert_is_in_printed_form_and_verified(name: str) -> None:
    path, program = expert(name)
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert program_text(program).splitlines() == lines
    assert parse_program(program_text(program)) == program
    assert [d for d in verify(program) if d.severity == "error"] == []


@pytest.mark.parametrize("name", NAIVE)
def test_a_naive_program_is_in_printed_form_and_verified(name: str) -> None:
    problem = load_problem(name)
    assert program_text(problem.naive) == (problem.folder / "naive.kir").read_text()
    for dtype in problem.spec.dtypes:
        assert [d for d in verify(load_problem(f"{name}:{dtype}").naive) if d.severity == "error"] == []


@pytest.mark.parametrize(("name", "shape"), [
    (name, shape.name) for name in sorted(EXPERTS) for shape in load_problem(EXPERTS[name]["problem"]).shapes_for(expert(name)[1])
    if "timed" not in shape.tags])
def test_an_expert_agrees_with_the_oracle(name: str, shape: str) -> None:
    agrees(expert(name)[1], load_problem(EXPERTS[name]["problem"]), shape)


@pytest.mark.parametrize("name", sorted(EXPERTS))
def test_an_expert_agrees_on_adversarial_inputs(name: str) -> None:
    problem = load_problem(EXPERTS[name]["problem"])
    for seed, distribution in enumerate(problem.distributions[1:]):
        agrees(expert(name)[1], problem, "tail", distribution, seed)


@pytest.mark.parametrize(("name", "shape"), [
    (name, shape.name) for name in NAIVE for shape in load_problem(name).shapes if "timed" not in shape.tags and shape.name != "deep"])
def test_a_naive_program_agrees_with_the_oracle(name: str, shape: str) -> None:
    for dtype in load_problem(name).spec.dtypes:
        agrees(load_problem(f"{name}:{dtype}").naive, load_problem(f"{name}:{dtype}"), shape)


@pytest.mark.parametrize("name", NAIVE)
def test_a_naive_program_agrees_on_adversarial_inputs(name: str) -> None:
    problem = load_problem(name)
    for seed, distribution in enumerate(problem.distributions[1:]):
        agrees(problem.naive, problem, "odd" if name != "topk" else "tail", distribution, seed)


@pytest.mark.parametrize("name", sorted(EXPERTS))
def test_the_checker_finds_no_error_in_an_expert(name: str) -> None:
    _, program = expert(name)
    problem = load_problem(EXPERTS[name]["problem"])
    shape = problem.shape(EXPERTS[name]["check"])
    inputs = problem.inputs(shape)
    result = run(program, inputs, problem.scalars(shape), mode="check")
    assert [f for f in result.findings if f.severity == "error"] == []
    assert problem.compare(result.outputs, inputs, shape).ok
