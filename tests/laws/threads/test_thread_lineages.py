"""The experts written per thread, deoptimized until they are naive: each step is exact, decreases the measure and keeps the meaning."""
from __future__ import annotations

from functools import cache

import pytest

from kir.interp import run
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.measures.naive import is_naive
from kir.lineage.carrier import declared
from kir.problem import load_problem
from kir.rewrite import Applied, apply, passes
from kir.rewrite.driver import forward_site
from tests.laws.walks import lineage_of
from tests.programs import EXPERTS, normal

FILES = {"softmax": "softmax/softmax.kir", "rmsnorm": "rmsnorm/rmsnorm.kir", "topk": "topk/topk_radix.kir"}
SHAPES = {"softmax": ("odd", "tail"), "rmsnorm": ("small", "tail"), "topk": ("one", "all")}
ASSUMED = {"topk": frozenset({"KIR-P484", "KIR-P485"})}
"""One digit of a key is chosen by one thread alone, and which of several equal elements comes first is free: neither is in the text."""
INTENTS = {
    "softmax": {"unroll", "shuffle-exchange", "tree-reduction", "partition-reduction", "multi-threaded-block"},
    "rmsnorm": {"unroll", "shuffle-exchange", "tree-reduction", "partition-reduction", "pack-stores", "multi-threaded-block"},
    "topk": {"parallel-scan", "multi-threaded-block", "atomics", "promote-scratch"},
}
LAST = ("spread-threads", "partition-rows")
"""Before these come all others, and after them the carriers, which would undo all at once."""


def expert(name: str) -> n.Program:
    return normal(EXPERTS / FILES[name])


@cache
def lineage(name: str) -> tuple[tuple[n.Program, Applied], ...]:
    """Each step with the program that it was taken from, the expert's first."""
    order = sorted((c for c in passes() if c.walked), key=lambda c: (bool(declared(c)), c.name in LAST, c.name))
    return lineage_of(expert(name), load_problem(name), order, ASSUMED.get(name, frozenset()), lambda id: True)


@pytest.mark.parametrize("name", FILES)
def test_it_ends_in_a_naive_program(name: str) -> None:
    problem = load_problem(name)
    assert is_naive(lineage(name)[-1][1].program, problem.work_item, problem.state, kernels=1) == ()


@pytest.mark.parametrize("name", FILES)
def test_its_steps_say_what_was_optimized(name: str) -> None:
    assert {done.witness.params.intent for _, done in lineage(name)} >= INTENTS[name]


@pytest.mark.parametrize("name", FILES)
def test_what_is_not_proved_is_assumed_by_name(name: str) -> None:
    for _, done in lineage(name):
        assert done.record.waived == ()
        by_id = {p.id: p.kind for p in done.witness.params.preconditions}
        unproved = {id_ for id_, v in done.record.verdicts if by_id[id_] == "validity" and v.kind != "proved"}
        assert unproved <= ASSUMED.get(name, frozenset())


@pytest.mark.parametrize("name", FILES)
def test_forward_replays_to_the_same_hashes(name: str) -> None:
    p = lineage(name)[-1][1].program
    for before, done in reversed(lineage(name)):
        w = done.witness
        assume = ASSUMED.get(name, frozenset()) & {each.id for each in w.params.preconditions}
        p = apply(p, w.params, forward_site(p, w.params, w.path), left=w.residue, assume=assume).program
        assert content_hash(p) == content_hash(before)
    assert p == expert(name)


@pytest.mark.parametrize("name", FILES)
def test_every_state_solves_the_problem(name: str) -> None:
    problem = load_problem(name)
    for shape in (s for s in problem.shapes if s.name in SHAPES[name]):
        inputs = problem.inputs(shape.name, 0, "normal")
        for _, done in lineage(name):
            made = run(done.program, inputs, problem.scalars(shape))
            assert problem.compare(made.outputs, inputs, shape.name).ok, (shape.name, str(done.record.step))


@pytest.mark.parametrize("name", ["softmax", "rmsnorm"])
def test_no_state_has_a_hazard(name: str) -> None:
    problem = load_problem(name)
    shape = next(s for s in problem.shapes if s.name == SHAPES[name][0])
    inputs = problem.inputs(shape.name, 0, "normal")
    for _, done in lineage(name):
        assert run(done.program, inputs, problem.scalars(shape), mode="check").errors == (), str(done.record.step)
