"""Kernels of other people's that stopped on the way once, walked back with registered passes: each ends in N, means the same, and its steps have the
passes that it stopped for."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kir.ir.measures.naive import is_naive
from kir.lineage.engine import PassEngine
from kir.rewrite.meaning import difference, interpreted
from tests.laws.walks import Item, State, walked
from tests.programs import from_source

CUDA = """
#include <cuda_fp16.h>

__global__ void mean_var(const float* X, const float* W, const float* Bi, float* Y, int N, float eps) {
  __shared__ float ss[4], sq[4];
  int row = blockIdx.x, tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  float s = 0.f, q = 0.f;
  for (int i = tid; i < N; i += 128) { float v = X[row * N + i]; s += v; q += v * v; }
  for (int o = 16; o > 0; o >>= 1) {
    s += __shfl_xor_sync(0xffffffff, s, o);
    q += __shfl_xor_sync(0xffffffff, q, o);
  }
  if (lane == 0) { ss[warp] = s; sq[warp] = q; }
  __syncthreads();
  s = 0.f; q = 0.f;
  for (int w = 0; w < 4; ++w) { s += ss[w]; q += sq[w]; }
  float mean = s / N, rstd = rsqrtf(q / N - mean * mean + eps);
  for (int i = tid; i < N; i += 128) Y[row * N + i] = (X[row * N + i] - mean) * rstd * W[i] + Bi[i];
}

__device__ float warp_sum(float v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
    return v;
}
__global__ void norm(const __half* X, __half* Y, int N, float eps) {
    __shared__ float part[32];
    __shared__ float scale;
    int row = blockIdx.x, tid = threadIdx.x;
    float s = 0.f;
    for (int i = tid; i < N; i += blockDim.x) { float x = __half2float(X[row * N + i]); s += x * x; }
    s = warp_sum(s);
    if (tid % 32 == 0) part[tid / 32] = s;
    __syncthreads();
    if (tid < 32) {
        float v = warp_sum(tid < blockDim.x / 32 ? part[tid] : 0.f);
        if (tid == 0) scale = rsqrtf(v / N + eps);
    }
    __syncthreads();
    for (int i = tid; i < N; i += blockDim.x) Y[row * N + i] = __float2half(__half2float(X[row * N + i]) * scale);
}

__global__ void hist_loop(const unsigned char* X, int* H, int N) {
  __shared__ int local[256];
  for (int b = threadIdx.x; b < 256; b += blockDim.x) local[b] = 0;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < N) atomicAdd(&local[X[i]], 1);
  __syncthreads();
  for (int b = threadIdx.x; b < 256; b += blockDim.x) if (local[b] > 0) atomicAdd(&H[b], local[b]);
}

__global__ void csr(const int* Ptr, const int* Col, const float* Val, const float* X, float* Y, int M) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row < M) {
    float s = 0.f;
    for (int j = Ptr[row] + lane; j < Ptr[row + 1]; j += 32) s += Val[j] * X[Col[j]];
    for (int o = 16; o > 0; o /= 2) s += __shfl_down_sync(0xffffffff, s, o);
    if (lane == 0) Y[row] = s;
  }
}

__global__ void gemv(const float4* A, const float4* X, float* Y, int M, int K4) {
  int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= M) return;
  float s = 0.f;
  for (int k = threadIdx.x; k < K4; k += 32) {
    float4 a = A[row * K4 + k], x = X[k];
    s += a.x * x.x + a.y * x.y + a.z * x.z + a.w * x.w;
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
  if (threadIdx.x == 0) Y[row] = s;
}
"""
TRITON = """
import triton
import triton.language as tl


@triton.jit
def causal2(Q, K, V, O, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    pid = tl.program_id(0)
    bh = tl.program_id(1)
    Q += bh * S * D
    K += bh * S * D
    V += bh * S * D
    O += bh * S * D
    rm = pid * BM + tl.arange(0, BM)
    rn = tl.arange(0, BN)
    rd = tl.arange(0, D)
    q = tl.load(Q + rm[:, None] * D + rd[None, :])
    m = tl.full([BM], -float("inf"), tl.float32)
    l = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for n in range(0, pid * BM, BN):
        k = tl.load(K + (n + rn)[None, :] * D + rd[:, None])
        s = tl.dot(q, k) * scale
        mn = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - mn[:, None])
        alpha = tl.exp2(m - mn)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(V + (n + rn)[:, None] * D + rd[None, :])
        acc = tl.dot(p.to(tl.float16), v, acc)
        m = mn
    for n in range(pid * BM, (pid + 1) * BM, BN):
        k = tl.load(K + (n + rn)[None, :] * D + rd[:, None])
        s = tl.dot(q, k) * scale
        s = tl.where(rm[:, None] >= (n + rn)[None, :], s, -float("inf"))
        mn = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - mn[:, None])
        alpha = tl.exp2(m - mn)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(V + (n + rn)[:, None] * D + rd[None, :])
        acc = tl.dot(p.to(tl.float16), v, acc)
        m = mn
    acc = acc / l[:, None]
    tl.store(O + rm[:, None] * D + rd[None, :], acc.to(tl.float16))


@triton.jit
def gqa(Q, K, V, O, S, scale, H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    kv = h // G
    rd = tl.arange(0, D)
    q = tl.load(Q + (b * H + h) * D + rd).to(tl.float32)
    m = -float("inf")
    l = 0.0
    acc = tl.zeros([D], tl.float32)
    for n in range(0, S, BN):
        rn = n + tl.arange(0, BN)
        k = tl.load(K + ((b * (H // G) + kv) * S + rn[:, None]) * D + rd[None, :], mask=rn[:, None] < S, other=0.0).to(tl.float32)
        s = tl.sum(k * q[None, :], 1) * scale
        s = tl.where(rn < S, s, -float("inf"))
        top = tl.maximum(m, tl.max(s, 0))
        p = tl.exp(s - top)
        alpha = tl.exp(m - top)
        l = l * alpha + tl.sum(p, 0)
        v = tl.load(V + ((b * (H // G) + kv) * S + rn[:, None]) * D + rd[None, :], mask=rn[:, None] < S, other=0.0).to(tl.float32)
        acc = acc * alpha + tl.sum(p[:, None] * v, 0)
        m = top
    tl.store(O + (b * H + h) * D + rd, (acc / l).to(tl.float16))


@triton.jit
def int8(A, B, SA, SB, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for k in range(0, K, BK):
        a = tl.load(A + rm[:, None] * K + (k + rk)[None, :], mask=(rm[:, None] < M) & ((k + rk)[None, :] < K), other=0)
        b = tl.load(B + (k + rk)[:, None] * N + rn[None, :], mask=((k + rk)[:, None] < K) & (rn[None, :] < N), other=0)
        acc = tl.dot(a, b, acc)
    sa = tl.load(SA + rm, mask=rm < M, other=0.0)
    sb = tl.load(SB + rn, mask=rn < N, other=0.0)
    tl.store(C + rm[:, None] * N + rn[None, :], (acc.to(tl.float32) * sa[:, None] * sb[None, :]).to(tl.float16), mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def xent(X, L, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(L + row)
    m = -float("inf")
    d = 0.0
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(X + row * N + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
        top = tl.maximum(m, tl.max(x, 0))
        d = d * tl.exp(m - top) + tl.sum(tl.exp(x - top), 0)
        m = top
    at = tl.load(X + row * N + label).to(tl.float32)
    tl.store(Y + row, tl.log(d) + m - at)


@triton.jit
def top1(X, I, P, E: tl.constexpr):
    t = tl.program_id(0)
    e = tl.arange(0, E)
    x = tl.load(X + t * E + e).to(tl.float32)
    top = tl.max(x, 0)
    p = tl.exp(x - top)
    tl.store(P + t, 1.0 / tl.sum(p, 0))
    tl.store(I + t, tl.argmax(x, 0))
"""
TILELANG = """
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[3])
def causal_min(B, H, L, D: int, block_M: int, block_N: int, threads: int, dtype="float16"):
    scale = (1.0 / D) ** 0.5 * 1.44269504

    @T.prim_func
    def main(
        Q: T.Tensor((B, H, L, D), dtype),
        K: T.Tensor((B, H, L, D), dtype),
        V: T.Tensor((B, H, L, D), dtype),
        Output: T.Tensor((B, H, L, D), dtype),
    ):
        with T.Kernel(T.ceildiv(L, block_M), H, B, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared([block_M, D], dtype)
            K_shared = T.alloc_shared([block_N, D], dtype)
            V_shared = T.alloc_shared([block_N, D], dtype)
            O_shared = T.alloc_shared([block_M, D], dtype)
            acc_s = T.alloc_fragment([block_M, block_N], "float32")
            acc_s_cast = T.alloc_fragment([block_M, block_N], dtype)
            acc_o = T.alloc_fragment([block_M, D], "float32")
            scores_max = T.alloc_fragment([block_M], "float32")
            scores_max_prev = T.alloc_fragment([block_M], "float32")
            scores_scale = T.alloc_fragment([block_M], "float32")
            scores_sum = T.alloc_fragment([block_M], "float32")
            logsum = T.alloc_fragment([block_M], "float32")
            T.copy(Q[bz, by, bx * block_M:(bx + 1) * block_M, :], Q_shared)
            T.fill(acc_o, 0)
            T.fill(logsum, 0)
            T.fill(scores_max, -T.infinity("float32"))
            loop_range = T.min(T.ceildiv(L, block_N), T.ceildiv((bx + 1) * block_M, block_N))
            for k in T.Pipelined(loop_range, num_stages=2):
                T.copy(K[bz, by, k * block_N:(k + 1) * block_N, :], K_shared)
                for i, j in T.Parallel(block_M, block_N):
                    acc_s[i, j] = T.if_then_else(bx * block_M + i >= k * block_N + j, 0, -T.infinity("float32"))
                T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(scores_max, scores_max_prev)
                T.fill(scores_max, -T.infinity("float32"))
                T.reduce_max(acc_s, scores_max, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    scores_max[i] = T.max(scores_max[i], scores_max_prev[i])
                for i in T.Parallel(block_M):
                    scores_scale[i] = T.exp2(scores_max_prev[i] * scale - scores_max[i] * scale)
                for i, j in T.Parallel(block_M, block_N):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * scale - scores_max[i] * scale)
                T.reduce_sum(acc_s, scores_sum, dim=1)
                for i in T.Parallel(block_M):
                    logsum[i] = logsum[i] * scores_scale[i] + scores_sum[i]
                T.copy(acc_s, acc_s_cast)
                for i, j in T.Parallel(block_M, D):
                    acc_o[i, j] *= scores_scale[i]
                T.copy(V[bz, by, k * block_N:(k + 1) * block_N, :], V_shared)
                T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, D):
                acc_o[i, j] /= logsum[i]
            T.copy(acc_o, O_shared)
            T.copy(O_shared, Output[bz, by, bx * block_M:(bx + 1) * block_M, :])

    return main
"""
SOURCES = {"cu": CUDA, "triton.py": TRITON, "tilelang.py": TILELANG}


@dataclass(frozen=True)
class Way:
    """A kernel in a surface: its binding without sizes, sizes to interpret both ends at, its tensors, what a work item is (None: what the kernel
    itself says), passes that must be among its steps, those undone last, and more facts."""

    surface: str
    binding: str
    sizes: dict[str, int]
    tensors: dict[str, str]
    item: Item | None
    steps: frozenset[str]
    last: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    kernel: str = ""
    state: tuple[State, ...] = ()


ROW, ROWS = Item("row", ("M",)), ("shuffle-exchange",)
TILES, HEAD = ("partition-rows", "partition-block"), (State(),)
CAUSAL = Way("tilelang.py", "[metas]\nD = 64\nblock_M = 32\nblock_N = 16\nthreads = 128\n", {"B": 1, "H": 1, "L": 40}, {},
             Item("row", ("B", "H", "L")), frozenset({"online-normalize", "stage-panels", "tile"}), TILES, (), "main", HEAD)
KERNELS = {
    "mean_var": Way("cu", 'grid = ["M"]\n[metas]\nthreads_x = 128\n[scalars]\nN = "N"\neps = 1e-6\n', {"M": 2, "N": 150}, {
        "X": "M,N:f32", "W": "N:f32", "Bi": "N:f32", "Y": "M,N:f32:out"}, ROW, frozenset({"share-barrier", "fuse-loops", "two-level-reduction"}), ROWS),
    "norm": Way("cu", 'grid = ["M"]\n[metas]\nthreads_x = 128\n[scalars]\nN = "N"\neps = 1e-5\n', {"M": 2, "N": 150}, {
        "X": "M,N:f16", "Y": "M,N:f16:out"}, ROW, frozenset({"two-level-reduction", "warp-fold", "partition-reduction"}), ("shuffle-exchange",)),
    "hist_loop": Way("cu", 'grid = ["ceildiv(N, 128)"]\n[metas]\nthreads_x = 128\n[scalars]\nN = "N"\n', {"N": 700}, {
        "X": "N:u8", "H": "256:i32:inout"}, None, frozenset({"privatize-atomics"}), ("spread-threads", "lower-tiles")),
    "csr": Way("cu", 'grid = ["ceildiv(M, 4)"]\n[metas]\nthreads_x = 128\n[scalars]\nM = "M"\n', {"M": 5, "NNZ": 40, "N": 9}, {
        "Ptr": "M + 1:i32", "Col": "NNZ:i32", "Val": "NNZ:f32", "X": "N:f32", "Y": "M:f32:out"}, ROW, frozenset({"partition-reduction"}), ROWS),
    "gemv": Way("cu", 'grid = ["ceildiv(M, 4)"]\n[metas]\nthreads_x = 32\nthreads_y = 4\n[scalars]\nM = "M"\nK4 = "K // 4"\n', {"M": 5, "K": 140}, {
        "A": "M,K:f32", "X": "K:f32", "Y": "M:f32:out"}, ROW, frozenset({"sum-lanes", "warps-per-cta"}), ROWS, ("K % 4 == 0",)),
    "causal2": Way("triton.py", 'grid = ["S // BM", "H"]\n[metas]\nD = 64\nBM = 64\nBN = 32\n[scalars]\nS = "S"\nscale = 0.18\n', {"H": 1, "S": 128}, {
        x: "H,S,64:f16" + ":out" * (x == "O") for x in "QKVO"}, Item("row", ("H", "S")), frozenset({"split-loop", "online-normalize"}), TILES,
        ("S % 64 == 0",), "", HEAD),
    "gqa": Way("triton.py", 'grid = ["B", "H"]\n[metas]\nH = 8\nG = 4\nD = 64\nBN = 32\n[scalars]\nS = "S"\nscale = 0.125\n', {"B": 1, "S": 50}, {
        "Q": "B,8,64:f16", "K": "B,2,S,64:f16", "V": "B,2,S,64:f16", "O": "B,8,64:f16:out"}, None,
               frozenset({"online-normalize", "guard-value"}), (), (), "", HEAD),
    "int8": Way("triton.py", 'grid = ["ceildiv(M, BM)", "ceildiv(N, BN)"]\n[metas]\nBM = 64\nBN = 64\nBK = 32\n[scalars]\nM = "M"\nN = "N"\nK = "K"\n', {
        "M": 70, "N": 40, "K": 50}, {"A": "M,K:i8", "B": "K,N:i8", "SA": "M:f32", "SB": "N:f32", "C": "M,N:f16:out"}, Item("element", ("M", "N")),
        frozenset({"stage-panels", "tile"}), TILES),
    "xent": Way("triton.py", 'grid = ["M"]\n[metas]\nBLOCK = 128\n[scalars]\nN = "N"\n', {"M": 3, "N": 300}, {
        "X": "M,N:f16", "L": "M:i32", "Y": "M:f32:out"}, ROW, frozenset({"online-normalize"})),
    "top1": Way("triton.py", 'grid = ["M"]\n[metas]\nE = 64\n', {"M": 3}, {
        "X": "M,64:f32", "I": "M:i32:out", "P": "M:f32:out"}, ROW, frozenset({"tree-reduction"})),
    "causal_min": CAUSAL,
    "causal_min of whole tiles": Way(**{**CAUSAL.__dict__, "sizes": {"B": 1, "H": 1, "L": 64}, "facts": ("L % 32 == 0",)}),
}


def _binding(name: str, way: Way) -> str:
    facts = [f"{s} >= 1" for s in way.sizes] + [f"{s} <= 8192" for s in way.sizes] + [*way.facts]
    text = f'kernel = "{way.kernel or name}"\nsizes = {[*way.sizes]}\nfacts = {facts}\n'.replace("'", '"') + way.binding
    for tensor, what in way.tensors.items():
        dims, dtype, *role = what.split(":")
        shape = ", ".join(d if d.isdigit() else f'"{d}"' for d in dims.split(","))
        text += f'[tensors.{tensor}]\nshape = [{shape}]\ndtype = "{dtype}"\n' + (f'role = "{role[0]}"\n' if role else "")
    return text


@pytest.mark.parametrize("name", KERNELS)
def test_it_ends_in_a_naive_program_of_the_same_meaning(name: str, tmp_path: Path) -> None:
    way = KERNELS[name]
    file = f"kernels.{way.surface.rsplit('.', maxsplit=1)[-1]}"
    expert = from_source(tmp_path, file, SOURCES[way.surface], way.kernel or name, _binding(name, way))
    asked: dict[str, Any] = {"work_item": way.item, "state": way.state}
    done = walked(PassEngine(asked), expert, way.last)
    found, steps = done.program, done.names
    assert is_naive(found, **asked) == () and way.steps <= set(steps), steps
    assert difference(interpreted(expert, dict(way.sizes), 1), interpreted(found, dict(way.sizes), 1), "approximate(16)") == ""
