"""Law 5a for TileLang: what the backend writes, the frontend reads back as the same program in TileLang's form, whatever the local names.

TileLang's form (`backends/tilelang/form/form.py`) gives names to what needs a buffer there, checks accesses at the edges of tensors and writes products on
scalar units as sums; a program in that form is read back exactly, and the form of a form is itself. What other threads execute alike stands
outside of loops over threads when it is read: for code of threads a second round changes nothing, and the meaning is the same.
"""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.analysis.normal.normal_form import normalize
from kir.backends.tilelang.form.form import form
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal
from kir.ir.parser import parse_program
from kir.problem import load_problem
from kir.rewrite.meaning import difference, interpreted
from tests.backends.conftest import program
from tests.programs import SKILLS, bound, normal
from tests.round_trips import TILELANG

EXPERTS = {"gemm": "gemm_pipelined", "fmha": "fmha_forward", "softmax": "softmax_row", "rmsnorm": "rmsnorm_row"}
VARIANTS = {
    "bfloat16": lambda text: text.replace("f16", "bf16"),
    "four stages": lambda text: text.replace("stages=3", "stages=4"),
    "not pipelined": lambda text: text.replace(" pipelined {stages=3}", ""),
    "scalar units": lambda text: text.replace("C_local += A_shared * B_shared", "C_local += A_shared * B_shared via fma"),
    "one row of tiles": lambda text: text.replace("pid // n_tiles", "0"),
    "aligned": lambda text: text.replace("shared A_shared: f16[128, 32]", "shared A_shared: f16[128, 32] align 1024"),
    "swizzled": lambda text: text.replace("shared A_shared: f16[128, 32]", "shared A_shared: f16[128, 32] layout swizzle(2, 4, 3)"),
    "transposed": lambda text: text.replace("shared B_shared: f16[32, 128]", "shared B_shared: f16[128, 32]").replace(
        "in B: f16[K, N]", "in B: f16[N, K]").replace("B[k * 32 +: 32, n * 128 +: 128]", "B[n * 128 +: 128, k * 32 +: 32]").replace(
        "A_shared * B_shared", "A_shared * trans(B_shared, 1, 0)"),
}
GEMM = """kir 1
program gemm
  size M: i32
  size N: i32
  size K: i32
  in A: f16[M, K]
  in B: f16[K, N]
  out C: f16[M, N]
  fact M <= 1048576
  fact N <= 1048576
  fact K <= 1048576
kernel gemm_kernel grid (pid: ceildiv(M, 128) * ceildiv(N, 128)) threads 128
  let n_tiles = ceildiv(N, 128)
  let m = pid // n_tiles
  let n = pid % n_tiles
  shared A_shared: f16[128, 32]
  shared B_shared: f16[32, 128]
  shared C_shared: f16[128, 128]
  fragment C_local: f32[128, 128] = 0.0
  for k in 0..ceildiv(K, 32) pipelined {stages=3}
    copy load(A[m * 128 +: 128, k * 32 +: 32] else 0.0:f16 clip) -> A_shared
    copy load(B[k * 32 +: 32, n * 128 +: 128] else 0.0:f16 clip) -> B_shared
    mma C_local += A_shared * B_shared
  C_shared = cast(C_local, f16)
  copy C_shared -> C[m * 128 +: 128, n * 128 +: 128] clip
"""


def holds(p: n.Program, folder: Path, seed: int = 0) -> None:
    p = form(normalize(p))
    assert alpha_equal(form(p), p), "the form of a form is itself"
    TILELANG.is_read_back(p, folder, seed)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["gemm_tile", "softmax_tile", "rmsnorm_tile"])
def test_tile_programs_are_read_back(tmp_path: Path, name: str, seed: int) -> None:
    holds(program(name), tmp_path, seed)


@pytest.mark.parametrize("name", ["gemm", "softmax", "rmsnorm", "topk", "conv2d", "fmha", "gdn", "trisolve", "bytesort"])
def test_naive_programs_are_read_back(tmp_path: Path, name: str) -> None:
    holds(load_problem(name).naive, tmp_path)


@pytest.mark.parametrize("what", VARIANTS)
def test_variants_of_the_gemm_are_read_back(tmp_path: Path, what: str) -> None:
    text = VARIANTS[what](GEMM)
    assert text != GEMM
    holds(parse_program(text, "p.kir"), tmp_path)


@pytest.mark.parametrize("name", EXPERTS)
def test_experts_are_in_the_form_and_read_back_exactly(tmp_path: Path, name: str) -> None:
    expert = bound(f"{name}/tilelang.py::{EXPERTS[name]}", f"tilelang_{name}")
    TILELANG.is_read_back(expert, tmp_path, 1)


PACKAGES = {
    "fla_dplr_cumsum": "fla:ops/generalized_delta_rule/dplr/backends/tilelang/cumsum.py::chunk_local_cumsum_rect_tl",
    "flash_qla_kkt_solve": "flash_qla:ops/gated_delta_rule/chunk/hopper/kkt_solve.py::tilelang_kkt_solve_kernel__2",
}


@pytest.mark.zoo
@pytest.mark.parametrize("name", PACKAGES)
def test_kernels_that_others_wrote_are_read_back_exactly(tmp_path: Path, name: str) -> None:
    expert = bound(PACKAGES[name], name)
    TILELANG.is_read_back(expert, tmp_path, 1)


@pytest.mark.parametrize("name", ["softmax", "rmsnorm"])
def test_code_of_threads_keeps_its_meaning_and_comes_to_rest(tmp_path: Path, name: str) -> None:
    p = normal(SKILLS / "experts" / name / f"{name}.kir")
    once = TILELANG.read_back(p, tmp_path)
    sizes = {"M": 2, "N": 200, "eps": 1}
    assert difference(interpreted(p, sizes, 3), interpreted(once, sizes, 3), "reassociated(axis)") == ""
    assert alpha_equal(TILELANG.read_back(TILELANG.fuzzed(once, 2), tmp_path), once)
