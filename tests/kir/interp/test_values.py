"""Values that the interpreter computes, against NumPy: the naive, the tile and the thread dialect, tails included."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.interp import run
from kir.ir.parser import parse_program

NAIVE_GEMM = """kir 1
program gemm
  size M: i32
  size N: i32
  size K: i32
  in A: f32[M, K]
  in B: f32[K, N]
  out C: f32[M, N]
kernel main grid (i: M, j: N) threads 1
  register acc: f32 = 0.0
  for k in 0..K
    acc = acc + A[i, k] * B[k, j]
  C[i, j] = acc
"""
TILE_GEMM = """kir 1
program gemm
  size M: i32
  size N: i32
  size K: i32
  in A: bf16[M, K]
  in B: bf16[K, N]
  out C: f32[M, N]
kernel main grid (bx: ceildiv(N, 64), by: ceildiv(M, 64)) threads 128
  shared As: bf16[64, 32] layout swizzle(2, 4, 3)
  shared Bs: bf16[32, 64]
  fragment acc: f32[64, 64] = 0.0
  @k_loop for k in 0..ceildiv(K, 32) pipelined {stages=3}
    copy load(A[by*64 +: 64, k*32 +: 32] else 0.0:bf16 clip) -> As
    copy load(B[k*32 +: 32, bx*64 +: 64] else 0.0:bf16 clip) -> Bs
    mma acc += As * Bs
  C[by*64 +: 64, bx*64 +: 64] = acc clip
"""
TREE_SUM = """kir 1
program tree_sum
  size N: i32
  in X: f32[N]
  out Y: f32[ceildiv(N, 128)]
kernel main grid (b: ceildiv(N, 128)) threads 128
  shared s: f32[128]
  for t in 0..128 parallel thread
    s[t] = load(X[b*128 + t] else 0.0 clip)
    barrier()
    register w: i32 = 64
    while w > 0
      if t < w
        s[t] = s[t] + s[t + w]
      barrier()
      w = w // 2
    if t == 0
      Y[b] = s[0]
"""


def test_naive_gemm() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(9, 7)).astype(np.float32), rng.normal(size=(7, 5)).astype(np.float32)
    result = run(parse_program(NAIVE_GEMM, "gemm.kir"), {"A": a, "B": b})
    np.testing.assert_allclose(result.outputs["C"], a @ b, rtol=1e-5)
    assert not result.findings


@pytest.mark.parametrize("shape", [(64, 64, 32), (70, 66, 40), (1, 1, 1)])
def test_tile_gemm_with_tails(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(m, k)).astype(ml_dtypes.bfloat16), rng.normal(size=(k, n)).astype(ml_dtypes.bfloat16)
    result = run(parse_program(TILE_GEMM, "gemm.kir"), {"A": a, "B": b})
    np.testing.assert_allclose(result.outputs["C"], a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("extent", [1, 128, 1000])
def test_tree_sum_in_the_thread_dialect(extent: int) -> None:
    x = np.random.default_rng(2).normal(size=extent).astype(np.float32)
    result = run(parse_program(TREE_SUM, "sum.kir"), {"X": x})
    padded = np.pad(x, (0, -extent % 128)).reshape(-1, 128)
    np.testing.assert_allclose(result.outputs["Y"], padded.sum(1), rtol=1e-5, atol=1e-5)
    assert not result.findings


def test_a_tensor_of_fewer_elements_than_none_is_refused() -> None:
    """A window that is larger than what it moves over leaves such an extent."""
    program = parse_program("""kir 1
program p
  size n: i32
  out y: f32[n - 3]
kernel k grid (b: n) threads 1
  if b < n - 3
    y[b] = 1.0
""")
    assert run(program, {}, {"n": 3}).outputs["y"].shape == (0,)
    with pytest.raises(KirError, match=r"KIR-I008.*'y' has -1 elements along an axis"):
        run(program, {}, {"n": 2})
