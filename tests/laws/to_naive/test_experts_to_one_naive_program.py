"""One program, three surfaces: the experts of a problem, each walked back with registered passes, end in the problem's own naive program."""
from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.surfaces.lineages_tilelang import walked
from kir.ir.canonical import content_hash
from kir.lineage.convergence import common_form, form_hashes
from kir.lineage.engine import PassEngine
from kir.lineage.records.folder import opened
from kir.lineage.replay import replay
from kir.problem import load_problem
from kir.surface.reading import load_expert

HOME = Path(__file__).parents[3] / "skills"
EXPERTS = {
    ("gemm", "tilelang"): (f"{HOME}/experts/gemm/tilelang.py::gemm_pipelined", "tilelang_gemm", ("partition-rows", "partition-block")),
    ("gemm", "triton"): (f"{HOME}/experts/gemm/triton.py::gemm_persistent", "triton_gemm", ("partition-rows", "reuse-operand")),
    ("gemm", "cuda"): (f"{HOME}/experts/gemm/gemm_sm80.cu::gemm_sm80", "gemm_sm80", ("partition-rows", "fuse-epilogue")),
    ("softmax", "tilelang"): (f"{HOME}/experts/softmax/tilelang.py::softmax_row", "tilelang_softmax", ()),
    ("softmax", "triton"): ("liger_kernel:ops/softmax.py::_softmax_single_block_forward_kernel", "liger_softmax", ()),
    ("softmax", "cuda"): (f"{HOME}/experts/softmax/softmax.cu::softmax", "cuda_softmax", ()),
    ("rmsnorm", "tilelang"): (f"{HOME}/experts/rmsnorm/tilelang.py::rmsnorm_row", "tilelang_rmsnorm", ()),
}
"""Where each expert is, its binding, and the passes that are undone last."""


@pytest.mark.parametrize(("problem", "surface"), [pytest.param(*key, marks=[pytest.mark.zoo] if "liger" in EXPERTS[key][0] else []) for key in EXPERTS])
def test_an_expert_ends_in_the_naive_program_of_its_problem(problem: str, surface: str) -> None:
    source, binding, last = EXPERTS[problem, surface]
    expert = load_expert(source, HOME / "bindings" / f"{binding}.toml")
    assert expert.surface == surface
    way = walked(expert.program, problem, last)
    found, intents = way.program, way.intents
    assert form_hashes([found]) == form_hashes([load_problem(problem).naive]), common_form(found)
    if (problem, surface) == ("gemm", "tilelang"):
        assert len(intents) >= 8 and len(set(intents)) >= 7


def test_the_shipped_lineage_of_the_tilelang_gemm_is_what_the_passes_do() -> None:
    folder = opened(HOME / "lineages" / "gemm_tilelang")
    lineage = folder.read()
    source, binding, _ = EXPERTS["gemm", "tilelang"]
    expert = load_expert(source, HOME / "bindings" / f"{binding}.toml").program
    assert content_hash(expert) == lineage.start.content, "walk it again: kir lineage"
    replayed = replay(lineage, folder, PassEngine.of(lineage.header))
    assert replayed.ok, replayed.diagnostics
    realized = [s.intent for s in lineage.accepted if s.realization is not None and s.realization.realized]
    assert lineage.outcome.ended == "naive" and len(realized) >= 8 and len(set(realized)) >= 7
    assert form_hashes([folder.program(lineage.states[-1])]) == form_hashes([load_problem("gemm").naive])
