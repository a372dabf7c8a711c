"""The sm_80 GEMM, deoptimized until it is naive: each step is exact, decreases the measure and keeps the meaning; forward replays."""
from __future__ import annotations

from functools import cache

import pytest

from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.measures.naive import is_naive
from kir.problem import load_problem
from kir.rewrite import Applied, apply, passes
from kir.rewrite.driver import forward_site
from kir.rewrite.meaning import difference, interpreted
from tests.laws.walks import lineage_of
from tests.programs import EXPERTS, normal

EXPERT = EXPERTS / "gemm" / "gemm_sm80.kir"
SIZES = {"M": 3, "N": 8, "K": 168}
"""Every branch is taken, tails are cut on all three axes, and the ring of four wraps."""
LAST = ("partition-rows", "partition-block", "fuse-epilogue")
"""Passes whose inverse lengthens a program; undone when nothing else is left."""


def expert() -> n.Program:
    return normal(EXPERT)


@cache
def lineage() -> tuple[tuple[n.Program, Applied], ...]:
    """Each step with the program that it was taken from, the expert's first."""
    return lineage_of(expert(), load_problem("gemm"), sorted(passes(), key=lambda c: c.name in LAST))


def test_it_ends_in_a_naive_program() -> None:
    problem = load_problem("gemm")
    assert is_naive(lineage()[-1][1].program, problem.work_item, problem.state, kernels=1) == ()


def test_its_steps_are_of_many_intents() -> None:
    intents = [done.witness.params.intent for _, done in lineage()]
    assert len(intents) >= 12
    assert set(intents) >= {"async-copy", "pipeline", "swizzle-shared", "vectorize-global", "ldmatrix", "mma", "stage-shared",
                            "stage-epilogue", "warp-partition", "register-tile", "raster-l2", "tile", "multi-threaded-block", "unroll"}


def test_no_step_was_assumed_or_forced() -> None:
    for _, done in lineage():
        assert done.record.waived == ()
        assert {v.kind for _, v in done.record.verdicts} <= {"proved", "refuted", "unknown"}
        by_id = {p.id: p.kind for p in done.witness.params.preconditions}
        assert all(v.kind == "proved" for id_, v in done.record.verdicts if by_id[id_] == "validity")


def test_forward_replays_to_the_same_hashes() -> None:
    p = lineage()[-1][1].program
    for before, done in reversed(lineage()):
        w = done.witness
        there = forward_site(p, w.params, w.path)
        p = apply(p, w.params, there, left=w.residue).program
        assert content_hash(p) == content_hash(before)
    assert p == expert()


@pytest.mark.parametrize("seed", [0, 1])
def test_every_state_computes_the_same(seed: int) -> None:
    expected = interpreted(expert(), SIZES, seed)
    for _, done in lineage():
        assert difference(expected, interpreted(done.program, SIZES, seed), "reassociated(k)") == "", done.record.step


def test_bitwise_steps_change_no_bit() -> None:
    for before, done in lineage():
        if done.witness.params.numerics == "bitwise":
            assert difference(interpreted(before, SIZES), interpreted(done.program, SIZES)) == "", done.record.step


def test_no_state_has_a_hazard() -> None:
    for _, done in lineage():
        assert interpreted(done.program, SIZES, checked=True).errors == (), done.record.step
