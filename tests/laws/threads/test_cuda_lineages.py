"""The experts written in CUDA, deoptimized until they are naive: the steps that `kir lineage` takes, each exact, decreasing the measure and
keeping the meaning; forward replays to the source."""
from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from kir.interp import run
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.measures.measure import decreases
from kir.ir.measures.naive import is_naive
from kir.lineage.engine import PassEngine
from kir.lineage.plan import descend
from kir.problem import load_problem
from kir.rewrite import Applied, Pipeline, apply
from kir.rewrite.conformance.box import box_of
from kir.rewrite.driver import forward_site
from kir.rewrite.pipelines.pipeline import run as run_pipeline
from kir.rewrite.registry import pass_class
from tests.programs import bound, from_source
from tests.round_trips import CUDA

SKILLS = Path(__file__).parents[3] / "skills"
SOURCES = {"scan": "scan/scan.cu", "transpose": "transpose/transpose.cu", "topk": "topk/topk_radix.cu"}
BINDINGS = {"scan": "cuda_scan", "transpose": "cuda_transpose", "topk": "cuda_topk_radix"}
SHAPES = {"scan": "one", "transpose": "odd", "topk": "one"}
STEPS = {
    "scan": """~reuse-operand@scan/t/lane; ~reuse-operand@scan/t/warp; ~unroll{factor=0 form=hint}@scan/t/start_tile/s;
        ~shuffle-scan@scan/t/start_tile/s; ~unroll{factor=0 form=hint}@scan/t/start_tile/if#1/then/s_2;
        ~scan-by-warp@scan/t/start_tile/if#1; ~two-level-scan@scan/t/start_tile/v; ~spread-threads@scan;
        ~stage-elements@scan/start_tile/t_item""",
    "transpose": """~pad-shared{pad=1}@transpose/tile; ~reuse-operand{value="t % 32"}@transpose/t/tx;
        ~reuse-operand{value="t // 32"}@transpose/t/ty; ~spread-threads{threads=256 spread=[0,2]}@transpose;
        ~unroll{factor=0 form=hint}@transpose/t_item/i_tile; ~unroll{factor=0 form=hint}@transpose/t_item_1/i_1_tile;
        ~deal-rows@transpose/t_item; ~stage-elements@transpose/row; ~deal-rows@transpose/t_item_1;
        ~coarsen-grid{guard=first}@transpose; ~coarsen-grid{axis=1}@transpose""",
    "topk": """~parallel-scan{reverse=true}@topk_radix/t/level/store(dst=sums); ~retain-tile@topk_radix/t/level/j_tile/x;
        ~retain-tile@topk_radix/t/j_1_tile/v; ~reuse-operand@topk_radix/t/level/j_tile/key; ~reuse-operand@topk_radix/t/j_1_tile/key_1;
        ~radix-select@topk_radix""",
}


def expert(name: str) -> n.Program:
    return bound(SOURCES[name], BINDINGS[name])


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
def test_states_solve_the_problem(name: str) -> None:
    """Those of many threads, checked for hazards; of the others, which are serial and slow to interpret, the last."""
    problem = load_problem(name)
    shape = problem.shape(SHAPES[name])
    inputs = problem.inputs(shape, 0, "normal")
    every = [done for _, done in lineage(name)]
    for done in every:
        serial = build.is_const(done.program.kernels[0].threads, 1)
        if serial and done is not every[-1]:
            continue
        made = run(done.program, inputs, problem.scalars(shape), mode="fast" if serial else "check")
        assert made.errors == (), str(done.record.step)
        assert problem.compare(made.outputs, inputs, shape).ok, str(done.record.step)


def test_the_walk_finds_the_way_of_the_transposition_by_itself() -> None:
    problem = load_problem("transpose")
    engine = PassEngine({"work_item": problem.work_item, "state": problem.state})
    assert descend(expert("transpose"), engine, ("share-scratch",)).violations == 0


@pytest.mark.parametrize("name", ["coarsen-grid", "deal-rows", "pack-columns", "scan-by-warp", "shuffle-scan", "stage-elements",
                                  "strength-reduce", "two-level-scan"])
def test_what_their_passes_write_is_read_back_from_cuda(tmp_path: Path, name: str) -> None:
    box = box_of(sys.modules[pass_class(name).__module__].__doc__ or "", name)
    for p in (box.before, box.after):
        CUDA.holds(replace(p, params=tuple(sorted(p.params, key=lambda q: q.role != "size"))), tmp_path)


POINTERS = """
__global__ void __launch_bounds__(128) column_sums(const float* __restrict__ X, float* __restrict__ Y, int M, int N) {
  const int j = blockIdx.x * 128 + threadIdx.x;
  const float* p = X + j;
  const float* q = X + (M - 1) * N + j;
  float s = 0.f, most = 0.f;
  for (int i = 0; i < M; ++i) {
    s += *p;
    p += N;
  }
  for (int i = 0; i < M; ++i) {
    most = fmaxf(most, *q);
    q -= N;
  }
  Y[j] = s + most;
}
"""
BINDING = """kernel = "column_sums"
sizes = ["M", "N"]
facts = ["M >= 2", "M <= 16384", "M % 2 == 0", "N >= 128", "N <= 65536", "N % 128 == 0"]
grid = ["N // 128"]
metas = { threads_x = 128 }
[tensors]
X = { shape = ["M", "N"], dtype = "f32" }
Y = { shape = ["N"], dtype = "f32" }
"""


def test_pointers_that_a_kernel_steps_are_places_again(tmp_path: Path) -> None:
    p = from_source(tmp_path, "p.cu", POINTERS, "column_sums", BINDING)
    trace = run_pipeline(p, "~strength-reduce@column_sums/t/i; ~strength-reduce")
    assert not any(isinstance(s, n.View) for s in trace.program.kernels[0].body)
    assert trace.steps[1].witness.params.options()["place"] == "X[M - i_1 - 1, block_x * 128 + t]"
