"""Kernels as they are usually written, in all three languages, walked back with registered passes: each ends in N, means the same, and meets the
naive program of its problem or the walks of others."""
from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kir.ir import nodes as n
from kir.ir.measures.naive import is_naive
from kir.ir.parser import parse_program
from kir.lineage.convergence import form_hashes
from kir.lineage.engine import PassEngine
from kir.problem import load_problem
from kir.rewrite.meaning import difference, interpreted
from tests.laws.walks import Item, walked
from tests.programs import from_source

CUDA = """
#include <cuda_fp16.h>

__inline__ __device__ float warp_sum(float v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
  return v;
}

__inline__ __device__ float block_sum(float v) {
  static __shared__ float sums[32];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  v = warp_sum(v);
  if (lane == 0) sums[warp] = v;
  __syncthreads();
  v = threadIdx.x < blockDim.x / 32 ? sums[lane] : 0.f;
  if (warp == 0) v = warp_sum(v);
  return v;
}

__global__ void layer_norm(const half* X, const half* W, const half* B, half* Y, int N, float eps) {
  __shared__ float mean, scale;
  const half* x = X + blockIdx.x * N;
  float sum = 0.f;
  for (int i = threadIdx.x; i < N; i += blockDim.x) sum += __half2float(x[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) mean = sum / N;
  __syncthreads();
  float squares = 0.f;
  for (int i = threadIdx.x; i < N; i += blockDim.x) {
    float d = __half2float(x[i]) - mean;
    squares += d * d;
  }
  squares = block_sum(squares);
  if (threadIdx.x == 0) scale = rsqrtf(squares / N + eps);
  __syncthreads();
  for (int i = threadIdx.x; i < N; i += blockDim.x)
    Y[blockIdx.x * N + i] = __float2half((__half2float(x[i]) - mean) * scale * __half2float(W[i]) + __half2float(B[i]));
}

__global__ void softmax(const float* X, float* Y, int N) {
  __shared__ float s[128];
  const int t = threadIdx.x;
  const float* x = X + blockIdx.x * N;
  float m = -INFINITY;
  for (int i = t; i < N; i += 128) m = fmaxf(m, x[i]);
  s[t] = m;
  __syncthreads();
  for (int k = 64; k > 0; k >>= 1) {
    if (t < k) s[t] = fmaxf(s[t], s[t + k]);
    __syncthreads();
  }
  m = s[0];
  __syncthreads();
  float sum = 0.f;
  for (int i = t; i < N; i += 128) sum += expf(x[i] - m);
  s[t] = sum;
  __syncthreads();
  for (int k = 64; k > 0; k >>= 1) {
    if (t < k) s[t] += s[t + k];
    __syncthreads();
  }
  sum = s[0];
  for (int i = t; i < N; i += 128) Y[blockIdx.x * N + i] = expf(x[i] - m) / sum;
}

#define TILE 16
__global__ void gemm(const half* A, const half* B, half* C, int M, int N, int K) {
  __shared__ half As[TILE][TILE], Bs[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float acc = 0.f;
  for (int k0 = 0; k0 < (K + TILE - 1) / TILE; ++k0) {
    As[threadIdx.y][threadIdx.x] = row < M && k0 * TILE + threadIdx.x < K ? A[row * K + k0 * TILE + threadIdx.x] : __float2half(0.f);
    Bs[threadIdx.y][threadIdx.x] = k0 * TILE + threadIdx.y < K && col < N ? B[(k0 * TILE + threadIdx.y) * N + col] : __float2half(0.f);
    __syncthreads();
    for (int k = 0; k < TILE; ++k) acc += __half2float(As[threadIdx.y][k]) * __half2float(Bs[k][threadIdx.x]);
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = __float2half(acc);
}

__global__ void row_sum(const half* X, float* S, int M, int N) {
  int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= M) return;
  float sum = 0.f;
  for (int i = threadIdx.x; i < N; i += 32) sum += __half2float(X[row * N + i]);
  sum = warp_sum(sum);
  if (threadIdx.x == 0) S[row] = sum;
}

__global__ void add(const half* A, const half* B, half* C, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) C[i] = __hadd(A[i], B[i]);
}
"""
TRITON = """
import triton
import triton.language as tl


@triton.jit
def gemm(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    rows, cols = tl.cdiv(M, BM), tl.cdiv(N, BN)
    width = GROUP * cols
    first = pid // width * GROUP
    height = min(rows - first, GROUP)
    pm = first + pid % width % height
    pn = pid % width // height
    rm = (pm * BM + tl.arange(0, BM)) % M
    rn = (pn * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    a = A + rm[:, None] * K + rk[None, :]
    b = B + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        acc = tl.dot(tl.load(a, mask=rk[None, :] < K - k * BK, other=0.0), tl.load(b, mask=rk[:, None] < K - k * BK, other=0.0), acc)
        a += BK
        b += BK * N
    cm, cn = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN)
    tl.store(C + cm[:, None] * N + cn[None, :], acc.to(tl.float16), mask=(cm[:, None] < M) & (cn[None, :] < N))


@triton.jit
def row_sum(X, S, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        acc += tl.load(X + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)
    tl.store(S + row, tl.sum(acc, axis=0))


@triton.jit
def add(A, B, C, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(C + at, tl.load(A + at, mask=at < n) + tl.load(B + at, mask=at < n), mask=at < n)
"""
TILELANG = """
import tilelang
import tilelang.language as T


@tilelang.jit
def sums(M, N, BM: int, BN: int, threads: int):
    @T.prim_func
    def row_sum(X: T.Tensor((M, N), "float16"), S: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, BM), threads=threads) as b:
            x = T.alloc_fragment((BM, BN), "float32")
            acc = T.alloc_fragment((BM,), "float32")
            T.clear(acc)
            for k in T.serial(T.ceildiv(N, BN)):
                T.copy(X[b * BM, k * BN], x)
                T.reduce_sum(x, acc, dim=1, clear=False)
            T.copy(acc, S[b * BM])

    return row_sum


@tilelang.jit
def adds(N, BLOCK: int, threads: int):
    @T.prim_func
    def add(A: T.Tensor((N,), "float16"), B: T.Tensor((N,), "float16"), C: T.Tensor((N,), "float16")):
        with T.Kernel(T.ceildiv(N, BLOCK), threads=threads) as b:
            for i in T.Parallel(BLOCK):
                C[b * BLOCK + i] = A[b * BLOCK + i] + B[b * BLOCK + i]

    return add
"""
SOURCES = {"cu": CUDA, "triton.py": TRITON, "tilelang.py": TILELANG}


@dataclass(frozen=True)
class Usual:
    """A kernel: its binding, the problem whose naive program it ends in ("" for those that meet each other), what must be among the intents of
    its steps, the passes undone last, and sizes to interpret both ends at."""

    binding: str
    problem: str
    intents: frozenset[str]
    last: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...]

    @property
    def item(self) -> Item:
        """What one thread is to compute."""
        problem = load_problem(self.problem) if self.problem else None
        return Item(problem.work_item.kind, tuple(problem.work_item.axes)) if problem is not None else Item(
            "row", ("M",)) if any(s == "M" for s, _ in self.sizes) else Item("element", ("N",))


def _facts(*sizes: str) -> str:
    return f"sizes = {[*sizes]}\nfacts = {[f'{s} >= 1' for s in sizes] + [f'{s} <= 8192' for s in sizes]}\n".replace("'", '"')


def _tensors(**shapes: str) -> str:
    return "".join(f"[tensors.{name}]\nshape = {text.split(':')[0]}\ndtype = \"{text.split(':')[1]}\"\n" + (
        f'role = "{text.split(":")[2]}"\n' if text.count(":") > 1 else "") for name, text in shapes.items())


ROW, COL = '["M", "N"]', '["N"]'
GEMM = _tensors(A='["M", "K"]:f16', B='["K", "N"]:f16', C='["M", "N"]:f16:out')
ADD = _tensors(A=f"{COL}:f16", B=f"{COL}:f16", C=f"{COL}:f16:out")
SUMS = _tensors(X=f"{ROW}:f16", S='["M"]:f32:out')
KERNELS = {
    ("layer_norm", "cu"): Usual(
        _facts("M", "N") + 'grid = ["M"]\n[metas]\nthreads_x = 128\n' + _tensors(X=f"{ROW}:f16", W=f"{COL}:f16", B=f"{COL}:f16", Y=f"{ROW}:f16:out"), "",
        frozenset({"alias-shared-lifetimes", "shuffle-exchange", "tree-reduction", "partition-reduction"}), ("shuffle-exchange",), (("M", 2), ("N", 150))),
    ("softmax", "cu"): Usual(
        _facts("M", "N") + 'grid = ["M"]\n[metas]\nthreads_x = 128\n' + _tensors(X=f"{ROW}:f32", Y=f"{ROW}:f32:out"), "softmax:f32",
        frozenset({"alias-shared-lifetimes", "tree-reduction", "partition-reduction"}), (), (("M", 2), ("N", 150))),
    ("gemm", "cu"): Usual(
        _facts("M", "N", "K") + 'grid = ["ceildiv(N, 16)", "ceildiv(M, 16)"]\n[metas]\nthreads_x = 16\nthreads_y = 16\n' + GEMM, "gemm",
        frozenset({"stage-shared", "multi-threaded-block", "tile"}), (), (("M", 17), ("N", 20), ("K", 35))),
    ("gemm", "triton.py"): Usual(
        _facts("M", "N", "K") + 'grid = ["ceildiv(M, BM) * ceildiv(N, BN)"]\n[metas]\nBM = 64\nBN = 32\nBK = 16\nGROUP = 4\n' + GEMM, "gemm",
        frozenset({"pipeline", "mma", "raster-l2", "stage-shared", "tile"}), ("panel-product", "partition-rows", "partition-block"),
        (("M", 70), ("N", 40), ("K", 35))),
    ("row_sum", "cu"): Usual(
        _facts("M", "N") + 'grid = ["ceildiv(M, 4)"]\n[metas]\nthreads_x = 32\nthreads_y = 4\n' + SUMS, "",
        frozenset({"shuffle-exchange", "predicate", "multi-threaded-block"}), ("shuffle-exchange",), (("M", 5), ("N", 70))),
    ("row_sum", "triton.py"): Usual(
        _facts("M", "N") + 'grid = ["M"]\n[metas]\nBLOCK = 64\n' + SUMS, "", frozenset({"tree-reduction", "stage-shared"}), (), (("M", 3), ("N", 150))),
    ("row_sum", "tilelang.py"): Usual(
        _facts("M", "N") + "[metas]\nBM = 16\nBN = 64\nthreads = 128\n", "", frozenset({"tile", "stage-shared"}), ("partition-rows",),
        (("M", 5), ("N", 70))),
    ("add", "cu"): Usual(
        _facts("N") + "grid = [8]\n[metas]\nthreads_x = 64\n[scalars]\nn = \"N\"\n" + ADD, "", frozenset({"multi-threaded-block", "persistent"}), (),
        (("N", 700),)),
    ("add", "triton.py"): Usual(
        _facts("N") + 'grid = ["ceildiv(N, BLOCK)"]\n[metas]\nBLOCK = 256\n[scalars]\nn = "N"\n' + ADD, "",
        frozenset({"tile"}), ("partition-rows",), (("N", 700),)),
    ("add", "tilelang.py"): Usual(
        _facts("N") + "[metas]\nBLOCK = 256\nthreads = 128\n", "", frozenset({"tile"}), ("partition-rows",), (("N", 700),)),
}


@cache
def way(name: str, surface: str) -> tuple[n.Program, n.Program, tuple[str, ...]]:
    """A kernel, where its walk ends, and the intents on the way."""
    usual = KERNELS[name, surface]
    with TemporaryDirectory() as folder:
        scalars = {"layer_norm": "N", "softmax": "N"}.get(name, "N,M,K" if name == "gemm" else "N,M" if name == "row_sum" else "")
        eps = "eps = 1e-6\n" if name == "layer_norm" else ""
        missing = "" if "[scalars]" in usual.binding or surface == "tilelang.py" else "[scalars]\n" + "".join(
            f'{s} = "{s}"\n' for s in scalars.split(",") if not (name == "row_sum" and surface == "triton.py" and s == "M"))
        file = "kernels.cu" if surface == "cu" else f"kernels_{surface}"
        expert = from_source(Path(folder), file, SOURCES[surface], name, f'kernel = "{name}"\n{usual.binding}{missing}{eps}')
    found = walked(PassEngine({"work_item": usual.item}), expert, usual.last)
    return expert, found.program, found.intents


@pytest.mark.parametrize(("name", "surface"), KERNELS)
def test_a_usual_kernel_ends_in_a_naive_program_of_the_same_meaning(name: str, surface: str) -> None:
    usual = KERNELS[name, surface]
    expert, found, intents = way(name, surface)
    assert is_naive(found, work_item=usual.item) == () and usual.intents <= set(intents), intents
    assert difference(interpreted(expert, dict(usual.sizes), 1), interpreted(found, dict(usual.sizes), 1), "reassociated(k)") == ""
    if usual.problem:
        assert form_hashes([found]) == form_hashes([load_problem(usual.problem).naive])


@pytest.mark.parametrize("name", ["row_sum"])
def test_what_three_surfaces_compute_meets(name: str) -> None:
    assert len(set(form_hashes([way(name, surface)[1] for surface in SOURCES]))) == 1


TILED = """kir 1
program transpose_tiled
  size h: i32
  size w: i32
  in src: f32[h, w]
  out dst: f32[w, h]
  fact h >= 1
  fact w >= 1
kernel transpose_tiled grid (block_x: ceildiv(w, 32), block_y: ceildiv(h, 32)) threads 256
  shared tile: f32[32, 32] strides [33, 1]
  for t in 0..256 parallel thread
    let x = block_x * 32 + t % 32
    let y = block_y * 32 + t // 32
    for j_tile in 0..4
      if x < w & j_tile * 8 + y < h
        tile[j_tile * 8 + t // 32, t % 32] = src[j_tile * 8 + y, x]
    barrier()
    let x_1 = block_y * 32 + t % 32
    let y_1 = block_x * 32 + t // 32
    for j_1_tile in 0..4
      if x_1 < h & j_1_tile * 8 + y_1 < w
        dst[j_1_tile * 8 + y_1, x_1] = tile[t % 32, j_1_tile * 8 + t // 32]
"""
"""The transposition as every course teaches it: a padded tile of shared memory, eight of its rows at once."""


def test_a_tile_that_is_padded_and_filled_under_a_mask_is_undone() -> None:
    expert = parse_program(TILED, "tiled.kir")
    found = walked(PassEngine(), expert, ())
    assert is_naive(found.program) == () and {"pad-shared", "promote-scratch", "partition-rows"} <= set(found.intents)
    sizes = {"h": 37, "w": 70}
    assert difference(interpreted(expert, sizes, 1), interpreted(found.program, sizes, 1), "") == ""
