"""The experts written in CUDA, deoptimized until they are naive: the steps that `kir lineage` takes, each exact, decreasing the measure and
keeping the meaning; forward replays to the source."""
from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from kir.interp import run
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.measure import decreases
from kir.ir.naive import is_naive
from kir.lineage.engine import PassEngine
from kir.lineage.plan import descend
from kir.lineage.source import load_expert
from kir.problem import load_problem
from kir.rewrite import Applied, Pipeline, apply
from kir.rewrite.driver import forward_site
from kir.rewrite.pipeline import run as run_pipeline

SKILLS = Path(__file__).parents[2] / "skills"
SOURCES = {"transpose": "transpose/transpose.cu", "topk": "topk/topk_radix.cu"}
BINDINGS = {"transpose": "cuda_transpose.toml", "topk": "cuda_topk_radix.toml"}
SHAPES = {"transpose": ("odd",), "topk": ("one",)}
STEPS = {
    "transpose": """~pad-shared{pad=1}@transpose/tile; ~reuse-operand{value="t % 32"}@transpose/t/tx;
        ~reuse-operand{value="t // 32"}@transpose/t/ty; ~spread-threads{threads=256 spread=[0,2]}@transpose;
        ~unroll{factor=0 form=hint}@transpose/t_item/i_tile; ~unroll{factor=0 form=hint}@transpose/t_item_1/i_1_tile;
        ~deal-rows@transpose/t_item; ~stage-elements@transpose/row; ~deal-rows@transpose/t_item_1;
        ~coarsen-grid{guard=first}@transpose; ~coarsen-grid{axis=1}@transpose""",
    "topk": """~parallel-scan{reverse=true}@topk_radix/t/level/store(dst=sums); ~retain-tile@topk_radix/t/level/j_tile/x;
        ~retain-tile@topk_radix/t/j_1_tile/v; ~reuse-operand@topk_radix/t/level/j_tile/key; ~reuse-operand@topk_radix/t/j_1_tile/key_1;
        ~radix-select@topk_radix""",
}


@cache
def expert(name: str) -> n.Program:
    return load_expert(str(SKILLS / "experts" / SOURCES[name]), SKILLS / "bindings" / BINDINGS[name]).program


@cache
def lineage(name: str) -> tuple[tuple[n.Program, Applied], ...]:
    """Each step with the program that it was taken from, the expert's first."""
    trace = run_pipeline(expert(name), Pipeline.parse(" ".join(STEPS[name].split())))
    return tuple((s.before, s.applied) for s in trace.steps)


@pytest.mark.parametrize("name", SOURCES)
def test_it_ends_in_a_naive_program(name: str) -> None:
    problem = load_problem(name)
    assert is_naive(lineage(name)[-1][1].program, problem.work_item, problem.state, kernels=1) == ()
    assert all(decreases(before, done.program) for before, done in lineage(name))


@pytest.mark.parametrize("name", SOURCES)
def test_nothing_is_assumed(name: str) -> None:
    for _, done in lineage(name):
        by_id = {p.id: p.kind for p in done.witness.params.preconditions}
        assert all(v.kind == "proved" for id_, v in done.record.verdicts if by_id[id_] == "validity"), str(done.record.step)


@pytest.mark.parametrize("name", SOURCES)
def test_forward_replays_to_the_same_hashes(name: str) -> None:
    p = lineage(name)[-1][1].program
    for before, done in reversed(lineage(name)):
        w = done.witness
        p = apply(p, w.params, forward_site(p, w.params, w.path), left=w.residue).program
        assert content_hash(p) == content_hash(before)
    assert p == expert(name)


@pytest.mark.parametrize("name", SOURCES)
def test_every_state_solves_the_problem(name: str) -> None:
    problem = load_problem(name)
    for shape in (s for s in problem.shapes if s.name in SHAPES[name]):
        inputs = problem.inputs(shape.name, 0, "normal")
        for _, done in lineage(name):
            made = run(done.program, inputs, problem.scalars(shape), mode="check")
            assert made.errors == (), str(done.record.step)
            assert problem.compare(made.outputs, inputs, shape.name).ok, (shape.name, str(done.record.step))


def test_the_walk_finds_the_way_of_the_transposition_by_itself() -> None:
    problem = load_problem("transpose")
    engine = PassEngine({"work_item": problem.work_item, "state": problem.state})
    assert descend(expert("transpose"), engine, ("share-scratch",)).violations == 0
