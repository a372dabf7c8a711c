"""Law 5a: what the CUDA backend writes, the CUDA frontend reads back as the same program, whatever the local names and without comments."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from kir.analysis.normal.normal_form import normalize
from kir.ir.canonical import alpha_equal
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.problem import load_problem
from tests.programs import EXPERTS, normal
from tests.round_trips import CUDA

PRODUCT = """kir 1
program p
  in A: f16[M, 32, 8]
  in B: f16[M, 32, 4]
  out Y: f32[M, 32, 2, 2]
  size M: i32
kernel main grid (row: M) threads 32
  for t in 0..32 parallel thread
    register v_1_: f16[8] = A[row, t, 0 +: 8]
    for e in 0..2 unroll
      register product: f32[4] = mma_sync(v_1_, B[row, t, 0 +: 4], broadcast(0.0, 4), shape=m16n8k16)
      for f in 0..2 unroll
        Y[row, t, e, f] = product[e * 2 + f]
"""


@pytest.mark.parametrize("seed", range(3))
def test_an_array_that_is_declared_as_a_product_is_written_again(tmp_path: Path, seed: int) -> None:
    read = CUDA.read_back(CUDA.fuzzed(parse_program(PRODUCT), seed), tmp_path)
    assert re.search(r"register \w+: f32\[4\] = mma_sync", program_text(read)) is not None
    assert alpha_equal(CUDA.read_back(CUDA.fuzzed(read, seed + 1), tmp_path), read)


@pytest.mark.parametrize("name", ["softmax/softmax", "rmsnorm/rmsnorm", "topk/topk_radix", "gemm/gemm_sm80_lanes"])
def test_experts_of_threads_are_read_back(tmp_path: Path, name: str) -> None:
    CUDA.holds(normal(EXPERTS / f"{name}.kir"), tmp_path, 1)


@pytest.mark.parametrize("name", ["gemm", "softmax", "rmsnorm", "topk", "conv2d", "fmha", "fmha_causal", "gdn"])
def test_naive_programs_are_read_back(tmp_path: Path, name: str) -> None:
    CUDA.holds(load_problem(name).naive, tmp_path, 2)


TRITON_GEMMS = {"own": (f"{EXPERTS / 'gemm' / 'triton.py'}::gemm_persistent", "triton_gemm.toml"),
                "flag_gems": ("flag_gems:ops/mm.py::mm_kernel_general", "flag_gems_mm.toml")}


@pytest.mark.zoo
@pytest.mark.parametrize("name", TRITON_GEMMS)
def test_triton_gemms_written_as_cuda_are_read_back(tmp_path: Path, name: str) -> None:
    """A tile program is distributed over threads first: what is read back is that, arrays in the pool and vectors picked apart included."""
    from kir.backends.cuda.lowering.thread_code import thread_code
    from kir.surface.reading import load_expert

    source, binding = TRITON_GEMMS[name]
    program = load_expert(source, EXPERTS.parent / "bindings" / binding).program
    threads, _, refused = thread_code(program)
    assert refused == ()
    assert alpha_equal(CUDA.read_back(CUDA.fuzzed(threads, 3), tmp_path), normalize(threads))


VARIANTS = {
    "another block": ("128", "256"),
    "floats": ("f16", "f32"),
    "no unrolling": (" unroll {factor=5}", ""),
    "a longer tree": ("0..4 unroll {factor=4}", "0..4"),
}


@pytest.mark.parametrize("what", VARIANTS)
def test_variants_of_the_softmax_are_read_back(tmp_path: Path, what: str) -> None:
    source = (EXPERTS / "softmax" / "softmax.kir").read_text()
    text = source.replace(*VARIANTS[what])
    assert text != source
    CUDA.holds(parse_program(text, "p.kir"), tmp_path)
