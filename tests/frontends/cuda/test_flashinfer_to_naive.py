"""FlashInfer's two RMSNorms become naive by passes undone in a fixed order, each undone exactly; values stay within the problem's bounds."""
from __future__ import annotations

import pytest

from kir.interp import run
from kir.ir import nodes as n
from kir.ir.measures.measure import decreases
from kir.ir.measures.naive import is_naive
from kir.problem import load_problem
from kir.rewrite.registry import pass_class
from tests.zoo import CUDA, normal

NAMES = ["retain-tile", "retain-tile"]
LANES = ["reuse-operand", "reuse-operand", "reuse-operand", "reuse-operand", "unroll", "unroll", "unroll", "warp-leader", "warp-fold"]
SUMS = ["shuffle-exchange", "two-level-reduction", "partition-reduction", "spread-threads"]
WALKS = {
    "flashinfer_rmsnorm": [*NAMES, "vector-load", "partition-rows", *LANES, "uniform-trips", "uniform-trips", *SUMS],
    "flashinfer_fused_add_rmsnorm": [*NAMES, "retain-tile", "partition-rows", *LANES, "uniform-trips", "vectorize-shared", "keep-stored",
                                     "fuse-loops", "fuse-loops", "unroll", "uniform-trips", "vectorize-shared", "unroll", *SUMS, "share-scratch"],
}


def undone(program: n.Program, name: str) -> n.Program:
    """The first step of a pass that lowers the measure, undone: `backward` refuses what `forward` does not restore."""
    for site in pass_class(name)().inverse_sites(program):
        made, _ = site.params.backward(program, site)
        if decreases(program, made):
            return made
    raise AssertionError(f"{name} does not lead back")


@pytest.mark.zoo
@pytest.mark.parametrize("name", WALKS)
def test_flashinfer_becomes_naive(name: str) -> None:
    problem = load_problem(CUDA[name]["problem"])
    program = normal(name)
    for step in WALKS[name]:
        program = undone(program, step)
    assert is_naive(program, problem.work_item, problem.state) == ()
    shape = next(s for s in problem.shapes if s.name == "tail")
    inputs = problem.inputs(shape, seed=0, distribution="normal")
    assert problem.compare(run(program, inputs, problem.scalars(shape)).outputs, inputs, shape).ok
