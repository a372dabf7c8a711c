"""Tile products that leave everything open, as CUDA: decided by passes, lowered to lanes, compiled, and run on the host."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.analysis import normalize
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal
from kir.ir.parser import parse_program
from kir.rewrite.meaning import difference, interpreted
from kir.rewrite.pipeline import run
from kir.surface import backend
from kir.target import target
from tests.backends.conftest import Arrays
from tests.backends.test_cuda_meaning import agrees

GEMM = """kir 1
program gemm
  size M: i32
  size N: i32
  size K: i32
  in A: {dtype}[M, K] align 16
  in B: {dtype}[K, N] align 16
  out C: {out}[M, N] align 16
  fact N % 8 == 0
  fact K % 8 == 0
kernel main grid (pid: ceildiv(M, 32) * ceildiv(N, 32)) threads 64
  let pid_m = pid // ceildiv(N, 32)
  let pid_n = pid % ceildiv(N, 32)
  fragment acc: {acc}[32, 32] = 0{point}
  for k in 0..ceildiv(K, 32) pipelined {{stages=3}}
    let a = load(A[pid_m * 32 +: 32, k * 32 +: 32] else 0{point}:{dtype} clip)
    let b = load(B[k * 32 +: 32, pid_n * 32 +: 32] else 0{point}:{dtype} clip)
    mma acc += a * b{precision}
  let c = cast(acc, {out})
  C[pid_m * 32 +: 32, pid_n * 32 +: 32] = c clip
"""


def gemm(dtype: str = "f16", acc: str = "f32", out: str = "f16", precision: str = "") -> n.Program:
    point = "" if dtype.startswith("i") else ".0"
    zero = "0:i32" if acc == "i32" else "0.0" + (":f16" if acc == "f16" else "")
    text = GEMM.format(dtype=dtype, acc=acc, out=out, point=point, precision=precision).replace(f"= 0{point}\n", f"= {zero}\n")
    if dtype == "f32":
        text = text.replace("0.0:f32 clip", "0.0 clip")
    return normalize(parse_program(text, "gemm.kir"))


def test_an_open_product_becomes_a_ring_with_tensor_cores() -> None:
    text = backend("cuda").emit(gemm()).text
    for part in ("copy_async<16>", "copy_async_wait<1>", "load_matrix_4(", "load_matrix_2_trans(", "mma_m16n8k16_f16(", "swizzled<"):
        assert part in text, part


def test_the_plan_is_a_pipeline_that_can_be_run_again() -> None:
    from kir.backends.cuda.planning import is_open, planned
    p = gemm()
    made, steps = planned(p, "main")
    assert is_open(p.kernels[0]) and not is_open(made.kernels[0])
    assert alpha_equal(run(p, "; ".join(steps)).program, made)
    assert difference(interpreted(p, {"M": 40, "N": 40, "K": 72}), interpreted(made, {"M": 40, "N": 40, "K": 72}), "reassociated(k)") == ""


def test_lowered_it_is_free_of_hazards() -> None:
    from kir.backends.cuda.lowering import thread_code
    made = thread_code(gemm())[0]
    assert interpreted(made, {"M": 40, "N": 40, "K": 136}, checked=True).errors == ()


@pytest.mark.gxx
def test_on_the_host_it_computes_what_the_interpreter_does(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    sizes = {"M": 40, "N": 40, "K": 72}
    arrays: Arrays = {"A": random.normal(size=(40, 72)).astype(np.float16), "B": random.normal(size=(72, 40)).astype(np.float16),
                      "C": np.zeros((40, 40), np.float16)}
    agrees(gemm(), tmp_path, arrays, sizes, tolerance=2**-9)


@pytest.mark.nvcc
def test_it_compiles_without_spills() -> None:
    cuda = backend("cuda")
    (made,) = cuda.compile(cuda.emit(gemm()), target("sm_80")).kernels
    assert made.spills == 0 and made.mix.get("HMMA", 0) >= 1
