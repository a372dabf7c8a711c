"""Small kernels that find memory by numbers that they load, or that need a floor, beside the others of `pairs`."""

from __future__ import annotations

GATHER = """
__global__ void gather(const float* __restrict__ x, const int* __restrict__ at, float* __restrict__ y, int V, int M, int N) {
  int row = blockIdx.x; int v = at[row];
  for (int j = threadIdx.x; j < N; j += 128) y[(long)row * N + j] = x[(long)v * N + j];
}
"""
GATHER_BINDING = """kernel = "gather"
sizes = ["V", "M", "N"]
facts = ["V >= 2", "M >= 1", "N >= 1"]
grid = ["M"]
[metas]
threads_x = 128
[tensors.x]
shape = ["V", "N"]
dtype = "f32"
[tensors.at]
shape = ["M"]
dtype = "i32"
[tensors.y]
shape = ["M", "N"]
dtype = "f32"
"""
ROTATED = """
__global__ void rope(const float* __restrict__ x, const float* __restrict__ c, const float* __restrict__ s, float* __restrict__ y, int T, int D) {
  int row = blockIdx.x, t = threadIdx.x, h = D / 2;
  for (int j = t; j < h; j += 64) {
    float a = x[(long)row * D + j], b = x[(long)row * D + h + j];
    y[(long)row * D + j] = a * c[row * h + j] - b * s[row * h + j];
    y[(long)row * D + h + j] = b * c[row * h + j] + a * s[row * h + j];
  }
}
"""
ROTATED_BINDING = """kernel = "rope"
sizes = ["T", "D"]
facts = ["T >= 1", "D >= 2", "D % 2 == 0"]
grid = ["T"]
[metas]
threads_x = 64
[tensors.x]
shape = ["T", "D"]
dtype = "f32"
[tensors.c]
shape = ["T", "D // 2"]
dtype = "f32"
[tensors.s]
shape = ["T", "D // 2"]
dtype = "f32"
[tensors.y]
shape = ["T", "D"]
dtype = "f32"
"""
QUANTIZED = """
#include <cuda_fp16.h>
__global__ void quant(const float* __restrict__ x, signed char* __restrict__ q, float* __restrict__ s, int M, int N) {
  int row = blockIdx.x, t = threadIdx.x; float m = 0.f;
  for (int j = t; j < N; j += 32) m = fmaxf(m, fabsf(x[(long)row * N + j]));
  for (int o = 16; o > 0; o >>= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, o));
  float sc = fmaxf(m, 1e-10f) / 127.f;
  for (int j = t; j < N; j += 32) q[(long)row * N + j] = (signed char)rintf(x[(long)row * N + j] / sc);
  if (t == 0) s[row] = sc;
}
void run(const float* x, signed char* q, float* s, int M, int N) { quant<<<M, 32>>>(x, q, s, M, N); }
"""
EMBEDDED = """
import triton
import triton.language as tl

@triton.jit
def k(X, At, Y, V, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(At + row)
    x = tl.load(X + v * N + j, mask=j < N)
    tl.store(Y + row * N + j, x, mask=j < N)
"""
EMBEDDED_BINDING = """kernel = "k"
sizes = ["V", "M", "N"]
facts = ["V >= 2", "M >= 1", "N >= 1"]
grid = ["M", "ceildiv(N, BLOCK)"]
[metas]
BLOCK = 64
[tensors.X]
shape = ["V", "N"]
dtype = "f32"
[tensors.At]
shape = ["M"]
dtype = "i64"
[tensors.Y]
shape = ["M", "N"]
dtype = "f32"
"""
ROOTED = """
import triton
import triton.language as tl

@triton.jit
def k(X, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    s = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, N, BLOCK):
        j = k + tl.arange(0, BLOCK)
        x = tl.load(X + row * N + j, mask=j < N, other=0.0).to(tl.float32)
        s += x * x
    r = 1.0 / tl.sqrt(tl.sum(s, axis=0) + 1e-6)
    for k in range(0, N, BLOCK):
        j = k + tl.arange(0, BLOCK)
        x = tl.load(X + row * N + j, mask=j < N, other=0.0).to(tl.float32)
        tl.store(Y + row * N + j, (x * r).to(tl.float16), mask=j < N)
"""
ROOTED_BINDING = """kernel = "k"
sizes = ["M", "N"]
facts = ["M >= 1", "N >= 1"]
grid = ["M"]
[metas]
BLOCK = 128
[tensors.X]
shape = ["M", "N"]
dtype = "f16"
[tensors.Y]
shape = ["M", "N"]
dtype = "f16"
"""
TILED = """import tilelang
import tilelang.language as T


@tilelang.jit
def f(V, M, N, bN: int, threads: int):
    @T.prim_func
    def main(X: T.Tensor((V, N), "float16"), A: T.Tensor((M,), "int32"), Y: T.Tensor((M, N), "float16")):
        with T.Kernel(M, T.ceildiv(N, bN), threads=threads) as (row, bx):
            v = A[row]
            for j in T.Parallel(bN):
                if bx * bN + j < N:
                    Y[row, bx * bN + j] = X[v, bx * bN + j] * T.float16(2.0)

    return main
"""
TILED_BINDING = """kernel = "main"
sizes = ["V", "M", "N"]
facts = ["V >= 2", "M >= 1", "N >= 1"]
[metas]
bN = 64
threads = 64
"""
PADDED = """kir 1
program pad
  size V: i32
  size M: i32
  size N: i32
  fact V >= 2
  fact M >= 1
  fact N >= 1
  in X: f32[V, N]
  in A: i32[M]
  out Y: f32[M, N]
kernel main grid (row: M) threads 32
  for t in 0..32 parallel thread
    let v = A[row]
    for j in t..N step 32
      if v >= 0
        Y[row, j] = X[v, j]
      else
        Y[row, j] = 0.0
"""
ROWS_APART = """kir 1
program csr
  size M: i32
  size K: i32
  size N: i32
  fact M >= 1
  fact K >= 1
  fact N >= 2
  in P: i32[M + 1]
  in A: i32[K]
  in X: f32[N]
  in W: f32[K]
  out Y: f32[M]
kernel main grid (row: M) threads 1
  register s: f32 = 0.0
  for k in P[row]..P[row + 1]
    s = s + W[k] * X[A[k]]
  Y[row] = s
"""
LENGTHS = """kir 1
program lens
  size B: i32
  size K: i32
  fact B >= 1
  fact K >= 1
  in L: i32[B]
  in X: f32[B, K]
  out Y: f32[B]
kernel main grid (b: B) threads 1
  register s: f32 = 0.0
  for k in 0..L[b]
    s = s + X[b, k]
  Y[b] = s
"""
PAGED = """kir 1
program paged
  size P: i32
  size T: i32
  fact P >= 2
  fact T >= 1
  in G: i32[ceildiv(T, 16)]
  in X: f32[P, 16, 32]
  out Y: f32[T, 32]
kernel main grid (i: T) threads 32
  for t in 0..32 parallel thread
    Y[i, t] = X[G[i // 16], i % 16, t]
"""
SCATTERED = """kir 1
program scatter
  size V: i32
  size M: i32
  fact V >= 2
  fact M >= 1
  in A: i32[M]
  in X: f32[M]
  inout Y: f32[V]
kernel main grid (b: ceildiv(M, 32)) threads 32
  for t in 0..32 parallel thread
    if b * 32 + t < M
      atomic_add(&Y[A[b * 32 + t]], X[b * 32 + t])
"""
UNROLLED = """
__global__ void dotp(const float* __restrict__ x, float* __restrict__ y, int M, int N) {
  int row = blockIdx.x * 32 + threadIdx.x; if (row >= M) return;
  float s = 0.f; int j = 0;
  for (; j + 4 <= N; j += 4) s += x[(long)row * N + j] + x[(long)row * N + j + 1] + x[(long)row * N + j + 2] + x[(long)row * N + j + 3];
  for (; j < N; ++j) s += x[(long)row * N + j];
  y[row] = s;
}
void run(const float* x, float* y, int M, int N) { dotp<<<(M + 31) / 32, 32>>>(x, y, M, N); }
"""
PRODUCT = """
import triton
import triton.language as tl

@triton.jit
def k(A, B, C, M, N, K, BK: tl.constexpr):
    pid = tl.program_id(0)
    nn = tl.cdiv(N, 32)
    m = pid // nn * 32 + tl.arange(0, 32)
    n = pid % nn * 32 + tl.arange(0, 32)
    acc = tl.zeros((32, 32), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        kk = k * BK + tl.arange(0, BK)
        a = tl.load(A + m[:, None] * K + kk[None, :], mask=(m[:, None] < M) & (kk[None, :] < K), other=0.0)
        b = tl.load(B + kk[:, None] * N + n[None, :], mask=(kk[:, None] < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(C + m[:, None] * N + n[None, :], acc.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))
"""
PRODUCT_BINDING = """kernel = "k"
sizes = ["M", "N", "K"]
facts = ["M >= 1", "N >= 1", "K >= 1"]
grid = ["ceildiv(M, 32) * ceildiv(N, 32)"]
[metas]
BK = 32
[tensors.A]
shape = ["M", "K"]
dtype = "f16"
[tensors.B]
shape = ["K", "N"]
dtype = "f16"
[tensors.C]
shape = ["M", "N"]
dtype = "f16"
"""
COUNTS = """kir 1
program counts
  size M: i32
  size N: i32
  fact M >= 1
  fact N >= 1
  in X: i32[M, N]
  out Y: i32[M]
kernel main grid (row: M) threads 1
  register c: i32 = 0
  for k in 0..N
    if X[row, k] > 0
      c = c + 1
  Y[row] = c
"""
PLACES = {
    "gather": (GATHER, "cu", GATHER_BINDING),
    "rotated": (ROTATED, "cu", ROTATED_BINDING),
    "quantized": (QUANTIZED, "cu", ""),
    "embedded": (EMBEDDED, "py", EMBEDDED_BINDING),
    "rooted": (ROOTED, "py", ROOTED_BINDING),
    "tiled": (TILED, "py", TILED_BINDING),
    "padded": (PADDED, "", ""),
    "rows apart": (ROWS_APART, "", ""),
    "lengths": (LENGTHS, "", ""),
    "paged": (PAGED, "", ""),
    "scattered": (SCATTERED, "", ""),
    "unrolled": (UNROLLED, "cu", ""),
    "product": (PRODUCT, "py", PRODUCT_BINDING),
    "counts": (COUNTS, "", ""),}
