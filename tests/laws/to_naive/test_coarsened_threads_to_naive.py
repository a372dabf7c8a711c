"""Kernels in which a thread does several things, walked back with registered passes: each ends in N and means the same, and where it is a problem's,
in the problem's own naive program."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from kir.ir.measures.naive import is_naive
from kir.lineage.convergence import form_hashes
from kir.lineage.engine import PassEngine
from kir.problem import load_problem
from kir.rewrite.meaning import difference, interpreted
from tests.laws.walks import Item, State, walked
from tests.programs import from_source

CUDA = """
#include <cuda_fp16.h>

__global__ void gemm(const half* A, const half* B, half* C, int M, int N, int K) {
  __shared__ float As[64][17];
  __shared__ float Bs[16][64];
  int tx = threadIdx.x, ty = threadIdx.y, tid = ty * 16 + tx;
  int row0 = blockIdx.y * 64, col0 = blockIdx.x * 64;
  float acc[4][4] = {0.f};
  for (int k0 = 0; k0 < K; k0 += 16) {
    for (int i = tid; i < 64 * 16; i += 256) {
      int r = i / 16, c = i % 16;
      As[r][c] = row0 + r < M && k0 + c < K ? __half2float(A[(row0 + r) * K + k0 + c]) : 0.f;
    }
    for (int i = tid; i < 16 * 64; i += 256) {
      int r = i / 64, c = i % 64;
      Bs[r][c] = k0 + r < K && col0 + c < N ? __half2float(B[(k0 + r) * N + col0 + c]) : 0.f;
    }
    __syncthreads();
    for (int k = 0; k < 16; ++k) {
      float a[4], b[4];
      for (int i = 0; i < 4; ++i) a[i] = As[ty * 4 + i][k];
      for (int j = 0; j < 4; ++j) b[j] = Bs[k][tx * 4 + j];
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) acc[i][j] += a[i] * b[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      int r = row0 + ty * 4 + i, c = col0 + tx * 4 + j;
      if (r < M && c < N) C[r * N + c] = __float2half(acc[i][j]);
    }
}

__global__ void transpose(const float* X, float* Y, int M, int N) {
  __shared__ float tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < N && y + j < M) tile[threadIdx.y + j][threadIdx.x] = X[(y + j) * N + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < M && y + j < N) Y[(y + j) * M + x] = tile[threadIdx.x][threadIdx.y + j];
}

__global__ void scale_by_grid(const float* X, float* Y, int N) {
  int t = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
  const float4* x = (const float4*)X;
  float4* y = (float4*)Y;
  for (int i = t; i < N / 4; i += step) {
    float4 v = x[i];
    y[i] = make_float4(v.x * 3.f, v.y * 3.f, v.z * 3.f, v.w * 3.f);
  }
  for (int i = N / 4 * 4 + t; i < N; i += step) Y[i] = X[i] * 3.f;
}

__global__ void scale_or_rest(const float* X, float* Y, int N) {
  int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (i + 3 < N) {
    float4 v = *reinterpret_cast<const float4*>(X + i);
    v.x *= 3.f; v.y *= 3.f; v.z *= 3.f; v.w *= 3.f;
    *reinterpret_cast<float4*>(Y + i) = v;
  } else {
    for (int j = i; j < N; ++j) Y[j] = X[j] * 3.f;
  }
}

__global__ void gate(const half* X, half* Y, int M, int N) {
  int row = blockIdx.y, c = (blockIdx.x * 128 + threadIdx.x) * 2;
  if (c < N) {
    half2 a = *reinterpret_cast<const half2*>(X + row * 2 * N + c);
    half2 b = *reinterpret_cast<const half2*>(X + row * 2 * N + N + c);
    float a0 = __low2float(a), a1 = __high2float(a), b0 = __low2float(b), b1 = __high2float(b);
    *reinterpret_cast<half2*>(Y + row * N + c) = __floats2half2_rn(a0 / (1.f + expf(-a0)) * b0, a1 / (1.f + expf(-a1)) * b1);
  }
}

__global__ void split(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  int part = K / 4;
  float acc = 0.f;
  for (int k = blockIdx.z * part; k < (blockIdx.z + 1) * part; ++k) acc += A[row * K + k] * B[k * N + col];
  atomicAdd(C + row * N + col, acc);
}

__global__ void conv(const float* X, const float* W, float* Y, int C, int L) {
  __shared__ float s[130];
  int c = blockIdx.y, base = blockIdx.x * 128, t = threadIdx.x;
  for (int i = t; i < 130; i += 128) {
    int at = base + i - 1;
    s[i] = at >= 0 && at < L ? X[c * L + at] : 0.f;
  }
  __syncthreads();
  if (base + t < L) {
    float acc = 0.f;
    for (int k = 0; k < 3; ++k) acc += s[t + k] * W[c * 3 + k];
    Y[c * L + base + t] = acc;
  }
}

__global__ void rope(const float* X, const float* S, float* Y, int M) {
  int m = blockIdx.x, d = threadIdx.x;
  float a = X[m * 128 + d], b = X[m * 128 + d + 64], s = S[m * 64 + d], c = 1.f - s * s;
  Y[m * 128 + d] = a * c - b * s;
  Y[m * 128 + d + 64] = b * c + a * s;
}

__global__ void quantize(const float* X, signed char* Q, float* S, int M, int N) {
  __shared__ float top[128];
  int row = blockIdx.x, t = threadIdx.x;
  float m = 0.f;
  for (int i = t; i < N; i += 128) m = fmaxf(m, fabsf(X[row * N + i]));
  top[t] = m;
  __syncthreads();
  for (int k = 64; k > 0; k >>= 1) {
    if (t < k) top[t] = fmaxf(top[t], top[t + k]);
    __syncthreads();
  }
  float scale = top[0] / 127.f;
  if (t == 0) S[row] = scale;
  for (int i = t; i < N; i += 128) Q[row * N + i] = (signed char)rintf(X[row * N + i] / scale);
}
"""
TILELANG = """
import tilelang
import tilelang.language as T


@tilelang.jit
def attention(B, H, L, block_M: int, block_N: int, threads: int, dtype="float16"):
    scale = 0.18033688011112042

    @T.prim_func
    def causal(
        Q: T.Tensor((B, H, L, 64), dtype),
        K: T.Tensor((B, H, L, 64), dtype),
        V: T.Tensor((B, H, L, 64), dtype),
        O: T.Tensor((B, H, L, 64), dtype),
    ):
        with T.Kernel(T.ceildiv(L, block_M), H, B, threads=threads) as (tile, h, b):
            Qs = T.alloc_shared((block_M, 64), dtype)
            Ks = T.alloc_shared((block_N, 64), dtype)
            Vs = T.alloc_shared((block_N, 64), dtype)
            s = T.alloc_fragment((block_M, block_N), "float32")
            p = T.alloc_fragment((block_M, block_N), "float32")
            p_half = T.alloc_fragment((block_M, block_N), dtype)
            acc = T.alloc_fragment((block_M, 64), "float32")
            top = T.alloc_fragment((block_M,), "float32")
            best = T.alloc_fragment((block_M,), "float32")
            new_top = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(Q[b, h, tile * block_M : tile * block_M + block_M, 0:64], Qs)
            T.clear(acc)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            for j in T.Pipelined(T.ceildiv((tile + 1) * block_M, block_N), num_stages=2):
                T.copy(K[b, h, j * block_N : j * block_N + block_N, 0:64], Ks)
                T.copy(V[b, h, j * block_N : j * block_N + block_N, 0:64], Vs)
                T.clear(s)
                T.gemm(Qs, Ks, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                for r, c in T.Parallel(block_M, block_N):
                    p[r, c] = T.if_then_else(j * block_N + c <= tile * block_M + r, s[r, c] * scale, -T.infinity("float32"))
                T.reduce_max(p, best, dim=1)
                for r in T.Parallel(block_M):
                    new_top[r] = T.max(top[r], best[r])
                for r in T.Parallel(block_M):
                    rescale[r] = T.exp2(top[r] - new_top[r])
                for r, c in T.Parallel(block_M, block_N):
                    p[r, c] = T.exp2(p[r, c] - new_top[r])
                T.reduce_sum(p, part, dim=1)
                for r in T.Parallel(block_M):
                    total[r] = total[r] * rescale[r] + part[r]
                for r, d in T.Parallel(block_M, 64):
                    acc[r, d] = acc[r, d] * rescale[r]
                for r in T.Parallel(block_M):
                    top[r] = new_top[r]
                T.copy(p, p_half)
                T.gemm(p_half, Vs, acc, policy=T.GemmWarpPolicy.FullRow)
            for r, d in T.Parallel(block_M, 64):
                acc[r, d] = acc[r, d] / total[r]
            T.copy(acc, O[b, h, tile * block_M : tile * block_M + block_M, 0:64])

    return causal


@tilelang.jit
def example(B, H, L, block_M: int, block_N: int, threads: int, dtype="float16"):
    scale = 0.18033688011112042

    @T.prim_func
    def begun_anew(
        Q: T.Tensor((B, H, L, 64), dtype),
        K: T.Tensor((B, H, L, 64), dtype),
        V: T.Tensor((B, H, L, 64), dtype),
        O: T.Tensor((B, H, L, 64), dtype),
    ):
        with T.Kernel(T.ceildiv(L, block_M), H, B, threads=threads) as (bx, by, bz):
            Qs = T.alloc_shared((block_M, 64), dtype)
            Ks = T.alloc_shared((block_N, 64), dtype)
            Vs = T.alloc_shared((block_N, 64), dtype)
            s = T.alloc_fragment((block_M, block_N), "float32")
            s_half = T.alloc_fragment((block_M, block_N), dtype)
            acc = T.alloc_fragment((block_M, 64), "float32")
            top = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Qs)
            T.fill(acc, 0)
            T.fill(total, 0)
            T.fill(top, -T.infinity("float32"))
            for k in T.Pipelined(T.ceildiv(L, block_N), num_stages=2):
                T.copy(K[bz, by, k * block_N : (k + 1) * block_N, :], Ks)
                for i, j in T.Parallel(block_M, block_N):
                    s[i, j] = T.if_then_else(k * block_N + j < L, 0, -T.infinity("float32"))
                T.gemm(Qs, Ks, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(top, before)
                T.fill(top, -T.infinity("float32"))
                T.reduce_max(s, top, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    top[i] = T.max(top[i], before[i])
                for i in T.Parallel(block_M):
                    rescale[i] = T.exp2(before[i] * scale - top[i] * scale)
                for i, j in T.Parallel(block_M, block_N):
                    s[i, j] = T.exp2(s[i, j] * scale - top[i] * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * rescale[i] + part[i]
                T.copy(s, s_half)
                for i, j in T.Parallel(block_M, 64):
                    acc[i, j] *= rescale[i]
                T.copy(V[bz, by, k * block_N : (k + 1) * block_N, :], Vs)
                T.gemm(s_half, Vs, acc, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, 64):
                acc[i, j] /= total[i]
            T.copy(acc, O[bz, by, bx * block_M : (bx + 1) * block_M, :])

    return begun_anew


@tilelang.jit
def example(M, threads: int):
    @T.prim_func
    def in_place(X: T.Tensor([M, 64], "float32"), R: T.Tensor([M, 64], "float32"), Y: T.Tensor([M, 64], "float32")):
        with T.Kernel(M, threads=threads) as row:
            x = T.alloc_fragment([64], "float32")
            T.copy(X[row, 0], x)
            for i in T.Parallel(64):
                x[i] = x[i] * (1.0 / (1.0 + T.exp(-x[i])))
            for i in T.Parallel(64):
                x[i] = x[i] + R[row, i]
            T.copy(x, Y[row, 0])
    return in_place
"""


@dataclass(frozen=True)
class Walk:
    """A kernel: its grid and metas, its tensors by name, what a work item is, the problem whose naive program it ends in (""), passes that must be
    among its steps, those undone last, sizes to interpret both ends at, and more facts."""

    grid: str
    tensors: dict[str, str]
    item: Item
    problem: str
    steps: frozenset[str]
    last: tuple[str, ...]
    sizes: dict[str, int]
    facts: str = ""
    source: str = "cuda"


ROWS, ONE = "[M, N]", "[N]"
VECTOR = {"X": f"{ONE}:f32", "Y": f"{ONE}:f32:out"}
HEADS = dict.fromkeys("QKV", "[B, H, L, 64]:f16") | {"O": "[B, H, L, 64]:f16:out"}
KERNELS = {
    "gemm": Walk('["ceildiv(N, 64)", "ceildiv(M, 64)"] 16 16', {"A": "[M, K]:f16", "B": "[K, N]:f16", "C": "[M, N]:f16:out"}, Item("element", ("M", "N")),
                 "gemm", frozenset({"fill-by-threads", "jam-loop", "deal-items", "hold-elements"}), (), {"M": 20, "N": 30, "K": 18}),
    "transpose": Walk('["ceildiv(N, 32)", "ceildiv(M, 32)"] 32 8', {"X": f"{ROWS}:f32", "Y": "[N, M]:f32:out"}, Item("element", ("N", "M")),
                      "transpose", frozenset({"reuse-address", "deal-rows", "stage-elements"}), ("share-scratch",), {"M": 35, "N": 40}),
    "scale_by_grid": Walk("[8] 64 1", VECTOR, Item("element", ("N",)), "", frozenset({"deal-loops", "split-remainder", "walk-items"}), (), {"N": 2055}),
    "scale_or_rest": Walk('["ceildiv(N, 256)"] 64 1', VECTOR, Item("element", ("N",)), "", frozenset({"whole-pieces", "deal-items"}), (), {"N": 303}),
    "gate": Walk('["ceildiv(N, 256)", "M"] 128 1', {"X": '[M, "2 * N"]:f16', "Y": f"{ROWS}:f16:out"}, Item("element", ("M", "N")), "",
                 frozenset({"join-loads", "write-lanes"}), ("spread-threads",), {"M": 2, "N": 70}, "N % 2 == 0"),
    "split": Walk('["ceildiv(N, 16)", "ceildiv(M, 16)", 4] 16 16', {"A": "[M, K]:f32", "B": "[K, N]:f32", "C": f"{ROWS}:f32:inout"}, Item(
        "element", ("M", "N")), "", frozenset({"split-k", "early-exit"}), (), {"M": 5, "N": 18, "K": 12}, "K % 4 == 0"),
    "conv": Walk('["ceildiv(L, 128)", "C"] 128 1', {"X": "[C, L]:f32", "W": "[C, 3]:f32", "Y": "[C, L]:f32:out"}, Item("element", ("C", "L")), "",
                 frozenset({"spread-threads", "hold-elements"}), (), {"C": 2, "L": 140}),
    "rope": Walk('["M"] 64 1', {"X": "[M, 128]:f32", "S": "[M, 64]:f32", "Y": "[M, 128]:f32:out"}, Item("row", ("M",)), "",
                 frozenset({"spread-threads"}), (), {"M": 2}),
    "quantize": Walk('["M"] 128 1', {"X": f"{ROWS}:f32", "Q": f"{ROWS}:i8:out", "S": "[M]:f32:out"}, Item("row", ("M",)), "",
                     frozenset({"shared-tree", "partition-reduction"}), ("spread-threads",), {"M": 2, "N": 150}),
    "causal": Walk("block_M = 32\nblock_N = 16\nthreads = 128", HEADS, Item("row", ("B", "H", "L")), "", frozenset({"online-normalize", "run-on", "tile"}),
                   ("partition-rows", "partition-block"), {"B": 1, "H": 1, "L": 40}, source="tilelang"),
    "begun_anew": Walk("block_M = 32\nblock_N = 16\nthreads = 128", HEADS, Item("row", ("B", "H", "L")), "", frozenset({
        "overwrite-fragment", "begin-with", "online-normalize", "stage-panels"}), ("partition-rows", "partition-block"), {"B": 1, "H": 1, "L": 40},
        source="tilelang"),
    "in_place": Walk("threads = 128", dict.fromkeys("XRY", "[M, 64]:f32"), Item("row", ("M",)), "", frozenset({"overwrite-fragment", "hold-tile"}), (),
                     {"M": 3}, source="tilelang"),
}
ATTENTION = ("causal", "begun_anew")


def _binding(name: str, walk: Walk) -> str:
    sizes = list(walk.sizes)
    facts = [f"{s} >= 1" for s in sizes] + [f"{s} <= 8192" for s in sizes] + ([walk.facts] if walk.facts else [])
    text = f'kernel = "{name}"\nsizes = {sizes}\nfacts = {facts}\n'.replace("'", '"')
    if walk.source == "tilelang":
        return f"{text}[metas]\n{walk.grid}\n"
    grid, x, y = walk.grid.rsplit(" ", 2)
    text += f"grid = {grid}\n[metas]\nthreads_x = {x}\nthreads_y = {y}\n[scalars]\n" + "".join(f'{s} = "{s}"\n' for s in sizes)
    for tensor, what in walk.tensors.items():
        shape, dtype, *role = what.split(":")
        dims = ", ".join(d if d.isdigit() or d.startswith('"') else f'"{d}"' for d in shape.strip("[]").split(", "))
        text += f'[tensors.{tensor}]\nshape = [{dims}]\ndtype = "{dtype}"\n' + (f'role = "{role[0]}"\n' if role else "")
    return text


@pytest.mark.parametrize("name", KERNELS)
def test_it_ends_in_a_naive_program_of_the_same_meaning(name: str, tmp_path: Path) -> None:
    walk = KERNELS[name]
    file, source = ("kernels.cu", CUDA) if walk.source == "cuda" else ("kernels.py", TILELANG)
    expert = from_source(tmp_path, file, source, name, _binding(name, walk))
    state = (State(),) if name in ATTENTION else ()
    done = walked(PassEngine({"work_item": walk.item, "state": state}), expert, walk.last)
    found, steps = done.program, done.names
    assert is_naive(found, work_item=walk.item, state=state) == () and walk.steps <= set(steps), steps
    assert difference(interpreted(expert, dict(walk.sizes), 1), interpreted(found, dict(walk.sizes), 1), "approximate(16)" if name in ATTENTION else
                      "reassociated(k)") == ""
    if walk.problem:
        assert form_hashes([found]) == form_hashes([load_problem(walk.problem).naive])
