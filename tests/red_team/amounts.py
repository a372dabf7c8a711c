"""Small kernels whose sums, roundings and loops go wrong at sizes in another order, beyond what a number holds, or in what is little, beside the others of
`pairs`."""

from __future__ import annotations

COLUMNS = """kir 1
program columns
  size M: i32
  size N: i32
  fact M >= 1
  fact N >= 1
  in X: f32[M, N]
  out Y: f32[N]
kernel main grid (b: ceildiv(N, 32)) threads 128
  fragment acc: f32[32, 32] = 0.0
  for k in 0..ceildiv(M, 32)
    acc = acc + load(X[k * 32 +: 32, b * 32 +: 32] else 0.0 clip)
  Y[b * 32 +: 32] = reduce(acc, axis=0, op=sum) clip
"""
CUBES = """kir 1
program cubes
  size N: i32
  fact N >= 1
  in X: f16[N]
  out Y: f16[N]
kernel main grid (b: ceildiv(N, 128)) threads 128
  for t in 0..128 parallel thread
    if b * 128 + t < N
      let x = cast(X[b * 128 + t], f32)
      Y[b * 128 + t] = cast(x * x * x, f16)
"""
MEANS = """kir 1
program means
  size M: i32
  size N: i32
  fact M >= 1
  fact N >= 1
  in X: f32[M, N]
  out Y: f32[M]
kernel main grid (row: M) threads 1
  register s: f32 = 0.0
  for k in 0..N
    s = s + X[row, k]
  Y[row] = s / cast(N, f32)
"""
PRODUCTS = r"""
__global__ void products(const signed char* __restrict__ a, const signed char* __restrict__ b, int* __restrict__ y, int M, int N) {
  int row = blockIdx.x, t = threadIdx.x; int c = 0;
  for (int j = t; j < N; j += 32) c += (int)a[(long)row * N + j] * (int)b[j];
  for (int o = 16; o > 0; o >>= 1) c += __shfl_xor_sync(0xffffffff, c, o);
  if (t == 0) y[row] = c;
}
void run(const signed char* a, const signed char* b, int* y, int M, int N) { products<<<M, 32>>>(a, b, y, M, N); }
"""
BYTES = r"""
__global__ void bytes(const float* __restrict__ x, signed char* __restrict__ y, int n) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) { float v = rintf(x[i] * 16.f); y[i] = (signed char)fminf(fmaxf(v, -128.f), 127.f); }
}
void run(const float* x, signed char* y, int n) { bytes<<<(n + 63) / 64, 64>>>(x, y, n); }
"""
PICKED = """kir 1
program picked
  size M: i32
  size N: i32
  fact M >= 1
  fact N >= 4
  fact N <= 256
  in X: f32[M, N]
  out Y: f32[M, 4]
kernel main grid (row: M) threads 128
  fragment x: f32[256] = load(X[row, 0 +: 256] else -inf clip)
  for k in 0..4
    let best = reduce(x, axis=0, op=max)
    let at = reduce(x, axis=0, op=argmax)
    Y[row, k] = best
    x = select(at == iota(256), -inf, x)
"""
AMOUNTS = {"picked": (PICKED, "", ""), "columns": (COLUMNS, "", ""), "cubes": (CUBES, "", ""), "means": (MEANS, "", ""), "products": (PRODUCTS, "cu", ""),
           "bytes": (BYTES, "cu", "")}

__all__ = ["AMOUNTS"]
