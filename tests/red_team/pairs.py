"""Small kernels, each wrong in one way that few inputs and few sizes show, beside changes that look like it and are right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.surface.reading import load_expert
from tests.red_team.amounts import AMOUNTS
from tests.red_team.places import PLACES

SOFTMAX = """kir 1
program softmax
  size M: i32
  size N: i32
  in X: f32[M, N]
  out Y: f32[M, N]
kernel main grid (row: M) threads 1
  register top: f32 = -inf
  for k in 0..N
    top = max(top, X[row, k])
  register total: f32 = 0.0
  for k1 in 0..N
    total = total + exp(X[row, k1] - top)
  for k2 in 0..N
    Y[row, k2] = exp(X[row, k2] - top) / total
"""
PIECES = """kir 1
program pieces
  size M: i32
  size N: i32
  in X: f32[M, N, 64]
  out Y: f32[M, 64]
kernel main grid (row: M) threads 64
  shared buf: f32[2, 64]
  for t in 0..64 parallel thread
    register sum: f32 = 0.0
    register slot: i32 = 0
    for k in 0..N
      buf[k % 2, t] = X[row, k, t]
      barrier()
      sum = sum + buf[slot, 63 - t]
      slot = 1 - slot
    Y[row, t] = sum
"""
VECTORS = """kir 1
program vectors
  size M: i32
  size N: i32
  in X: f32[M, N] align 16
  out Y: f32[M, N] align 16
kernel main grid (row: M) threads 32
  for t in 0..32 parallel thread
    if N % 4 == 0
      for j in t..N // 4 step 32
        copy X[row, j * 4 +: 4] -> Y[row, j * 4 +: 4] via vector(4)
    else
      for j1 in t..N step 32
        Y[row, j1] = X[row, j1]
"""
BARRIER = """kir 1
program barred
  size M: i32
  in X: f32[M, 64]
  in F: i32[M, 64]
  out Y: f32[M, 64]
kernel main grid (row: M) threads 64
  shared buf: f32[64]
  for t in 0..64 parallel thread
    buf[t] = X[row, t]
    barrier()
    if F[row, 0] > 500
      barrier()
    Y[row, t] = buf[63 - t]
"""
STRIDED = """kir 1
program strided
  size M: i32
  size N: i32
  size S: i32
  fact M >= 1
  fact N >= 1
  fact S >= N
  in X: f32[M, N]
  out Y: f32[S * M]
kernel main grid (row: M) threads 32
  shared buf: f32[32]
  for t in 0..32 parallel thread
    for j in 0..ceildiv(N, 32)
      buf[t] = load(X[row, j * 32 + 31 - t] else 0.0 clip)
      barrier()
      if j * 32 + t < N & S > N
        Y[row * S + j * 32 + t] = buf[31 - t]
      if j * 32 + t < N & S == N
        Y[row * S + j * 32 + t] = load(X[row, j * 32 + t] else 0.0 clip)
      barrier()
"""
HISTOGRAM = r"""
__global__ void hist(const int* __restrict__ x, int* h, int n) {
  __shared__ int bins[64];
  int t = threadIdx.x;
  if (t < 64) bins[t] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 128 + t; i < n; i += gridDim.x * 128) atomicAdd(&bins[x[i] & 63], 1);
  __syncthreads();
  if (t < 64) atomicAdd(&h[t], bins[t]);
}
"""
HISTOGRAM_BINDING = """kernel = "hist"
sizes = ["n"]
facts = ["n >= 1"]
grid = ["ceildiv(n, 512)"]
[metas]
threads_x = 128
[tensors.x]
shape = ["n"]
dtype = "i32"
[tensors.h]
shape = [64]
dtype = "i32"
"""
ARGMAX = r"""
__global__ void argmax(const float* __restrict__ x, int* __restrict__ y, int M, int N) {
  int row = blockIdx.x, t = threadIdx.x;
  float best = -INFINITY; int at = 0x7fffffff;
  for (int j = t; j < N; j += 32) { float v = x[row * N + j]; if (v > best) { best = v; at = j; } }
  for (int o = 16; o > 0; o >>= 1) {
    float v = __shfl_xor_sync(0xffffffff, best, o);
    int a = __shfl_xor_sync(0xffffffff, at, o);
    if (v > best || (v == best && a < at)) { best = v; at = a; }
  }
  if (t == 0) y[row] = at;
}
void run(const float* x, int* y, int M, int N) { argmax<<<M, 32>>>(x, y, M, N); }
"""
ROUNDED = r"""
#include <cuda_fp16.h>
__global__ void rounded(const float* __restrict__ x, half* __restrict__ y, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) y[i] = __float2half_rn(x[i] * 1.5f);
}
void run(const float* x, half* y, int n) { rounded<<<(n + 127) / 128, 128>>>(x, y, n); }
"""
TRITON = '''
import triton
import triton.language as tl

@triton.jit
def softmax(X, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top = -float("inf")
    for k in range(0, tl.cdiv(N, BLOCK)):
        j = k * BLOCK + tl.arange(0, BLOCK)
        top = tl.maximum(top, tl.max(tl.load(X + row * N + j, mask=j < N, other=-float("inf")).to(tl.float32), axis=0))
    total = 0.0
    for k in range(0, tl.cdiv(N, BLOCK)):
        j = k * BLOCK + tl.arange(0, BLOCK)
        total += tl.sum(tl.exp(tl.load(X + row * N + j, mask=j < N, other=-float("inf")).to(tl.float32) - top), axis=0)
    for k in range(0, tl.cdiv(N, BLOCK)):
        j = k * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(X + row * N + j, mask=j < N, other=0.0).to(tl.float32)
        tl.store(Y + row * N + j, (tl.exp(x - top) / total).to(tl.float16), mask=j < N)
'''
TRITON_BINDING = """kernel = "softmax"
sizes = ["M", "N"]
facts = ["M >= 1", "M <= 16384", "N >= 1", "N <= 65536"]
grid = ["M"]
[metas]
BLOCK = 128
[tensors.X]
shape = ["M", "N"]
dtype = "f16"
[tensors.Y]
shape = ["M", "N"]
dtype = "f16"
[options]
num_warps = 4
"""
ROWS = r"""
__global__ void rows(const float* __restrict__ x, float* __restrict__ y, int M, int N) {
  __shared__ float s[4];
  int t = threadIdx.x;
  for (int row = blockIdx.x; row < M; row += gridDim.x) {
    float v = 0.f;
    for (int j = t; j < N; j += 128) v += x[(long)row * N + j];
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
    if (t % 32 == 0) s[t / 32] = v;
    __syncthreads();
    if (t == 0) y[row] = s[0] + s[1] + s[2] + s[3];
    __syncthreads();
  }
}
void run(const float* x, float* y, int M, int N) { rows<<<M < 264 ? M : 264, 128>>>(x, y, M, N); }
"""
BATCHES = r"""
__global__ void batches(const float* __restrict__ x, const float* __restrict__ s, float* __restrict__ y, int B, int H, int N) {
  long i = blockIdx.x * 128L + threadIdx.x;
  if (i < (long)B * H * N) { long b = i / ((long)H * N); long h = i / N % H; y[i] = x[i] + s[b * H + h] + (float)(i % N % 7); }
}
"""
BATCHES_BINDING = """kernel = "batches"
sizes = ["B", "H", "N"]
facts = ["B >= 1", "H >= 1", "N >= 1", "B <= 4096", "H <= 4096", "N <= 65536"]
grid = ["ceildiv(B * H * N, 128)"]
[metas]
threads_x = 128
[tensors.x]
shape = ["B", "H", "N"]
dtype = "f32"
[tensors.s]
shape = ["B", "H"]
dtype = "f32"
[tensors.y]
shape = ["B", "H", "N"]
dtype = "f32"
"""
OUTER = r"""
__global__ void outer(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ y, int M, int N) {
  int j = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y;
  if (j < N) y[(long)i * N + j] = a[i] * b[j];
}
void run(const float* a, const float* b, float* y, int M, int N) { dim3 g((N + 31) / 32, M); outer<<<g, 32>>>(a, b, y, M, N); }
"""
HALO = r"""
__global__ void halo(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float s[130];
  int t = threadIdx.x, i = blockIdx.x * 128 + t;
  s[t + 1] = i < n ? x[i] : 0.f;
  if (t == 0) s[0] = i > 0 ? x[i - 1] : 0.f;
  if (t == 127) s[129] = i + 1 < n ? x[i + 1] : 0.f;
  __syncthreads();
  if (i < n) y[i] = s[t] + s[t + 1] + s[t + 2];
}
void run(const float* x, float* y, int n) { halo<<<(n + 127) / 128, 128>>>(x, y, n); }
"""
VOTES = r"""
__global__ void votes(const int* __restrict__ x, int* __restrict__ y, int M, int N) {
  int row = blockIdx.x, t = threadIdx.x; int c = 0;
  for (int j = 0; j < N; j += 32) {
    bool p = j + t < N && x[(long)row * N + (j + t < N ? j + t : 0)] > 100;
    c += __popc(__ballot_sync(0xffffffff, p));
  }
  if (t == 0) y[row] = c;
}
void run(const int* x, int* y, int M, int N) { votes<<<M, 32>>>(x, y, M, N); }
"""
LAST = """kir 1
program last
  size N: i32
  fact N >= 1
  fact N <= 1048576
  in X: f32[N]
  out Y: f32[1]
  workspace P: f32[ceildiv(N, 128)]
  workspace C: i32[1] = 0
kernel main grid (b: ceildiv(N, 128)) threads 128
  shared s: f32[128]
  shared done: i32[1]
  for t in 0..128 parallel thread
    s[t] = load(X[b * 128 + t] else 0.0 clip)
    barrier()
    if t == 0
      register v: f32 = 0.0
      for q in 0..128
        v = v + s[q]
      P[b] = v
      fence(scope="gpu")
      let old = atomic_add(&C[0], 1)
      done[0] = old
    barrier()
    if done[0] == ceildiv(N, 128) - 1
      fence(scope="gpu")
      if t == 0
        register w: f32 = 0.0
        for q1 in 0..ceildiv(N, 128)
          w = w + P[q1]
        Y[0] = w
        C[0] = 0
"""
RING = """kir 1
program ring
  size M: i32
  size N: i32
  fact M >= 1
  fact N >= 1
  in X: f32[M, N, 64] align 16
  out Y: f32[M, 64]
kernel main grid (row: M) threads 64
  shared buf: f32[3, 64] align 128
  shared full: mbarrier[3]
  for t in 0..64 parallel thread
    if t == 0
      mbar_init(&full[0], 1)
      mbar_init(&full[1], 1)
      mbar_init(&full[2], 1)
      fence_mbar_init()
    barrier()
    register sum: f32 = 0.0
    for k in 0..N
      if t == 0
        mbar_arrive_expect(&full[k % 3], 256)
        copy X[row, k, 0 +: 64] -> buf[k % 3, 0 +: 64] via bulk signal full[k % 3]
      mbar_wait(&full[k % 3], (k // 3) % 2)
      sum = sum + buf[k % 3, 63 - t]
      barrier()
    Y[row, t] = sum
"""
ONE_TILE = '''
import triton
import triton.language as tl

@triton.jit
def softmax(X, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    x = tl.load(X + row * N + j, mask=j < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(Y + row * N + j, e / tl.sum(e, axis=0), mask=j < N)
'''
ONE_TILE_BINDING = TRITON_BINDING.replace("65536", "1024").replace("BLOCK = 128", "BLOCK = 1024").replace("f16", "f32")
QUARTER = r"""
__global__ void quarter(const int* __restrict__ x, const int* __restrict__ z, int* __restrict__ y, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) y[i] = x[i] / 4 + (x[i] > z[i] ? x[i] : z[i]);
}
void run(const int* x, const int* z, int* y, int n) { quarter<<<(n + 127) / 128, 128>>>(x, z, y, n); }
"""
SOURCES = {"softmax": (SOFTMAX, "", ""), "pieces": (PIECES, "", ""), "vectors": (VECTORS, "", ""), "barrier": (BARRIER, "", ""), "strided": (STRIDED, "", ""),
           "quarter": (QUARTER, "cu", ""), "histogram": (HISTOGRAM, "cu", HISTOGRAM_BINDING), "argmax": (ARGMAX, "cu", ""), "rounded": (ROUNDED, "cu", ""),
           "rows": (ROWS, "cu", ""), "batches": (BATCHES, "cu", BATCHES_BINDING), "outer": (OUTER, "cu", ""), "halo": (HALO, "cu", ""),
           "votes": (VOTES, "cu", ""), "last": (LAST, "", ""), "ring": (RING, "", ""), "one tile": (ONE_TILE, "py", ONE_TILE_BINDING),
           "triton softmax": (TRITON, "py", TRITON_BINDING), **PLACES, **AMOUNTS}


@dataclass(frozen=True)
class Changed:
    """One change of a source. Refused with a reason that has these words; accepted where there are none. `problem` judges, or the source itself."""

    of: str
    name: str
    old: str
    new: str
    words: str = ""
    problem: str = ""

    @property
    def text(self) -> str:
        """The changed source."""
        assert self.old in SOURCES[self.of][0]
        return SOURCES[self.of][0].replace(self.old, self.new)

    @property
    def program(self) -> Program:
        """The changed program."""
        return loaded(self.text, *SOURCES[self.of][1:])

    @property
    def against(self) -> Program:
        """The program as it was."""
        return loaded(*SOURCES[self.of])


@cache
def loaded(text: str, suffix: str, binding: str) -> Program:
    """A program of a text of IR, or of a source file with this suffix."""
    if not suffix:
        return parse_program(text)
    with TemporaryDirectory() as folder:
        source, bound = Path(folder) / f"kernel.{suffix}", Path(folder) / "kernel.toml"
        source.write_text(text)
        bound.write_text(binding)
        return load_expert(str(source), bound if binding else None).program


BY_FOUR = "if N % 4 == 0\n      for j in t..N // 4 step 32\n        copy X[row, j * 4 +: 4] -> Y[row, j * 4 +: 4] via vector(4)"
SLOT = "slot = 1 - slot"
EXPONENT = 'tl.load(X + row * N + j, mask=j < N, other=-float("inf")).to(tl.float32) - top'
TERM, TOTAL = f"tl.exp({EXPONENT})", "total = 0.0\n    for k in range(0, tl.cdiv(N, BLOCK))"
WRONG = (
    Changed("softmax", "a maximum of the first 512", "for k in 0..N", "for k in 0..min(N, 512)", "nan", "softmax:f32"),
    Changed("softmax", "a maximum of the first 512, beside the right one", "for k in 0..N", "for k in 0..min(N, 512)", "nan"),
    Changed("softmax", "a maximum from -1000 on", "-inf", "-1000.0", "nan", "softmax:f32"),
    Changed("softmax", "a maximum from nothing on, beside the right one", "top: f32 = -inf", "top: f32", "undefined"),
    Changed("softmax", "no maximum", "exp(X[row, k1] - top)\n  for k2 in 0..N\n    Y[row, k2] = exp(X[row, k2] - top)",
            "exp(X[row, k1])\n  for k2 in 0..N\n    Y[row, k2] = exp(X[row, k2])", "nan"),
    Changed("softmax", "large elements left out", "total = total + exp(X[row, k1] - top)",
            "total = total + select(X[row, k1] < 900.0, exp(X[row, k1] - top), 0.0)", "the reference program says"),
    Changed("triton softmax", "little terms left out, of which many are much", TERM, f"tl.where({EXPONENT} > -13.8, {TERM}, 0.0)", "14.0 below a peak"),
    Changed("triton softmax", "a sum of the first 60000", TOTAL, TOTAL.replace("cdiv(N", "cdiv(tl.minimum(N, 60000)"), "the reference program says"),
    Changed("quarter", "the greater by the sign of the difference", "x[i] > z[i] ?", "x[i] - z[i] > 0 ?", "the reference program says"),
    Changed("pieces", "the fourth piece from the other half", SLOT, "slot = select(k == 2, slot, 1 - slot)", "the reference program says"),
    Changed("pieces", "the sixth piece twice", SLOT, "slot = select(k == N - 1 & k == 5, slot, select(k > 4, slot, 1 - slot))", "the reference program says"),
    Changed("vectors", "rows two elements off", "if N % 4 == 0", "if N % 2 == 0", "the reference program says"),
    Changed("vectors", "vectors of whatever rows", BY_FOUR,
            "if N % 2 == 0\n      for j in t..ceildiv(N, 4) step 32\n        if j * 4 + 4 <= N\n"
            "          copy X[row, j * 4 +: 4] -> Y[row, j * 4 +: 4] via vector(4)\n"
            "        else\n          for q in j * 4..N\n            Y[row, q] = X[row, q]", "KIR-I011"),
    Changed("barrier", "behind data of each thread", "F[row, 0] > 500", "F[row, t] > 500", "KIR-G117"),
    Changed("barrier", "behind a float of each thread", "F[row, 0] > 500", "X[row, t] > 1e30", "KIR-G117"),
    Changed("barrier", "behind what some inputs decide apart", "F[row, 0] > 500", "X[row, t] > 0.25", "KIR-I023"),
    Changed("strided", "a barrier less where rows are apart", "      barrier()\n      if j * 32 + t < N & S > N",
            "      if S == N\n        barrier()\n      if j * 32 + t < N & S > N", "KIR-I014"),
    Changed("histogram", "a remainder of negative numbers", "x[i] & 63", "x[i] % 64", "the reference program says"),
    Changed("histogram", "half of the bins", "x[i] & 63", "x[i] & 31", "the reference program says"),
    Changed("histogram", "counts of eight bits", "bins[t]);", "(int)(unsigned char)bins[t]);", "the reference program says"),
    Changed("argmax", "begun from -1e4", "-INFINITY", "-1e4f", "the reference program says"),
    Changed("argmax", "ties to the last", "a < at", "a > at", "the reference program says"),
    Changed("rounded", "toward zero", "__float2half_rn", "__float2half_rz", "toward zero in nearly all of them"),
    Changed("rows", "a barrier less, where a CTA takes a second row", "    __syncthreads();\n  }\n}", "  }\n}", "KIR-I014"),
    Changed("rows", "a sum that is kept for the next row",
            "  for (int row = blockIdx.x; row < M; row += gridDim.x) {\n    float v = 0.f;",
            "  float v = 0.f;\n  for (int row = blockIdx.x; row < M; row += gridDim.x) {",
            "the reference program says"),
    Changed("rows", "the last warp left out below 101", "+ s[3]", "+ (N > 100 ? s[3] : 0.f)", "the reference program says"),
    Changed("product", "a million of a row", "tl.cdiv(K, BK)", "tl.cdiv(tl.minimum(K, 1000000), BK)", "KIR-G134"),
    Changed("product", "four million of a row", "(kk[None, :] < K)", "(kk[None, :] < K) & (kk[None, :] - m[:, None] < 4096000)", "KIR-G146"),
    Changed("batches", "divided as floats", "long b = i / ((long)H * N)", "long b = (long)((float)i / (float)(H * N))", "KIR-G135"),
    Changed("batches", "divided as floats, rounded down", "i / N % H", "(long)floorf((float)i / (float)N) % H", "KIR-G135"),
    Changed("batches", "a product of eleven bits too many", "s[b * H + h]", "s[(int)(b * H * 2048 + h * 2048) / 2048]", "KIR-G135"),
    Changed("outer", "exchanged where rows and columns are as many", "a[i] * b[j]", "(M == N ? a[j] * b[i] : a[i] * b[j])", "the reference program says"),
    Changed("outer", "nothing for one number of columns", "a[i] * b[j]", "(N == 1000 ? 0.f : a[i] * b[j])", "the reference program says"),
    Changed("halo", "below the first as sixteen bits", "s[0] = i > 0 ? x[i - 1] : 0.f", "s[0] = (unsigned short)(i - 1) < n ? x[i - 1] : 0.f",
            "KIR-G135"),
    Changed("halo", "not set behind the end of full tiles", "if (t == 127) s[129]", "if (t == 127 && i + 1 < n) s[129]", "the reference program says"),
    Changed("votes", "counts of eight bits", "int c = 0", "unsigned char c = 0", "the reference program says"),
    Changed("last", "the last by its number", "if done[0] ==", "if b ==", "KIR-I014"),
    Changed("last", "a counter that each CTA sets back", "      done[0] = old", "      done[0] = old\n      C[0] = 0", "KIR-I014"),
    Changed("ring", "a phase of eight bits", "(k // 3) % 2", "cast(cast(k, u8), i32) // 3 % 2", "KIR-G135"),
    Changed("ring", "a phase that begins again", "(k // 3) % 2", "(k % 64 // 3) % 2", "the reference program says"),
    Changed("one tile", "a maximum of the first half", "tl.max(x, axis=0)", "tl.max(tl.where(j < 512, x, -float('inf')), axis=0)", "nan"),
    Changed("one tile", "no maximum", "x - tl.max(x, axis=0)", "x", "nan"),
    Changed("triton softmax", "begun from -1000", 'top = -float("inf")', "top = -1000.0", "nan", "softmax"),
    Changed("gather", "clamped", "int v = at[row]", "int v = min(at[row], 255)", "the reference program says"),
    Changed("gather", "one of two", "int v = at[row]", "int v = at[row] & 1", "the reference program says"),
    Changed("gather", "eight bits", "int v = at[row]", "unsigned char v = at[row]", "the reference program says"),
    Changed("gather", "a product of six bits too many", "x[(long)v * N + j]", "x[v * (N * 64) / 64 + j]", "KIR-G135"),
    Changed("rotated", "a half by way of f32", "h = D / 2", "h = (int)(D * 0.5f)", "KIR-G135"),
    Changed("rotated", "the end of a half that ends late", "j < h; j += 64", "j + (h % 64 > 60 ? 1 : 0) < h; j += 64", "the reference program says"),
    Changed("quantized", "no floor", "fmaxf(m, 1e-10f)", "m", "the reference program says"),
    Changed("embedded", "clamped", "v * N", "tl.minimum(v, 1023) * N", "the reference program says"),
    Changed("embedded", "sixteen bits", "v * N", "(v & 0xFFFF) * N", "the reference program says"),
    Changed("rooted", "nothing added to a sum that may be zero", " + 1e-6", "", "the reference program says"),
    Changed("rooted", "a sum that stops", "tl.sum(s, axis=0) + 1e-6", "tl.minimum(tl.sum(s, axis=0), 10000.0) + 1e-6", "the reference program says"),
    Changed("tiled", "clamped", "v = A[row]", "v = T.min(A[row], 4095)", "the reference program says"),
    Changed("tiled", "values that stop before the largest",
            "X[v, bx * bN + j] * T.float16(2.0)", "T.min(X[v, bx * bN + j] * T.float16(2.0), T.float16(50000.0))", "the reference program says"),
    Changed("padded", "rows that are none read as the first", "if v >= 0", "if v >= -1", "the reference program says"),
    Changed("rows apart", "sixteen at most", "..P[row + 1]", "..min(P[row + 1], P[row] + 16)", "the reference program says"),
    Changed("rows apart", "columns of eight bits", "X[A[k]]", "X[A[k] & 255]", "the reference program says"),
    Changed("lengths", "128 at most", "0..L[b]", "0..min(L[b], 128)", "the reference program says"),
    Changed("paged", "pages of eight bits", "G[i // 16]", "cast(cast(G[i // 16], u8), i32)", "the reference program says"),
    Changed("scattered", "the last left out", "< M\n", "< M & A[b * 32 + t] < V - 1\n", "the reference program says"),
    Changed("unrolled", "the end of a third that ends late",
            "for (; j < N; ++j)", "for (; j < N - ((N / 3) % 64 == 63 ? 1 : 0); ++j)", "the reference program says"),
    Changed("product", "clamped before the largest",
            "acc.to(tl.float16), mask", "tl.where(acc < 60000.0, acc, 60000.0).to(tl.float16), mask", "the reference program says"),
    Changed("counts", "sixteen bits", "Y[row] = c", "Y[row] = cast(cast(c, u16), i32)", "the reference program says"),
    Changed("columns", "to the wrong size", "0..ceildiv(M, 32)", "0..ceildiv(N, 32)", "the reference program says"),
    Changed("picked", "the greatest at its place, where it is not large", "at == iota(256)", "at == iota(256) & x == best & x < 5000000.0", "KIR-G146"),
    Changed("picked", "one that is loaded, but for the last of many", "at == iota(256)", "at == iota(256) & iota(256) < min(N, 255)", "KIR-G1"),
    Changed("cubes", "what is little is nothing", "cast(x * x * x, f16)", "cast(select(abs(x) < 0.02, 0.0, x * x * x), f16)", "the reference program says"),
    Changed("means", "by a large size in f16", "cast(N, f32)", "select(N > 60000, cast(cast(N, f16), f32), cast(N, f32))", "KIR-G1"),
    Changed("products", "added up in a float", "int c = 0", "float c = 0.f", "the reference program says"),
    Changed("bytes", "ties away from zero", "rintf", "roundf", "the reference program says"),
    Changed("bytes", "no upper end", "fminf(fmaxf(v, -128.f), 127.f)", "fmaxf(v, -128.f)", "the reference program says"),
)
RIGHT = (
    Changed("columns", "to a size that is no less", "0..ceildiv(M, 32)", "0..ceildiv(max(M, 1), 32)"),
    Changed("picked", "the greatest at its place", "at == iota(256)", "at == iota(256) & x == best"),
    Changed("picked", "one that is loaded", "at == iota(256)", "at == iota(256) & iota(256) < N"),
    Changed("cubes", "in another order", "x * x * x", "x * (x * x)"),
    Changed("products", "added up in 64 bits", "c += (int)a", "c += (int)(long long)a"),
    Changed("bytes", "by way of 32 bits", "(signed char)fminf(fmaxf(v, -128.f), 127.f)", "(signed char)(int)fminf(fmaxf(v, -128.f), 127.f)"),
    Changed("quarter", "shifted, and rounded to zero", "x[i] / 4", "((x[i] + ((x[i] >> 31) & 3)) >> 2)"),
    Changed("triton softmax", "terms left out that are nothing together", TERM, f"tl.where({EXPONENT} > -50.0, {TERM}, 0.0)"),
    Changed("softmax", "a maximum in two halves", "for k in 0..N", "for k3 in 0..min(N, 512)\n    top = max(top, X[row, k3])\n  for k in min(N, 512)..N"),
    Changed("softmax", "a maximum from the least f32 on", "-inf", "-3.0e38", "", "softmax:f32"),
    Changed("softmax", "what adds nothing left out", "total = total + exp(X[row, k1] - top)",
            "total = total + select(X[row, k1] - top > -104.0, exp(X[row, k1] - top), 0.0)", "", "softmax:f32"),
    Changed("pieces", "a slot counted otherwise", SLOT, "slot = (k + 1) % 2"),
    Changed("vectors", "vectors of two", BY_FOUR,
            "if N % 2 == 0\n      for j in t..N // 2 step 32\n        copy X[row, j * 2 +: 2] -> Y[row, j * 2 +: 2] via vector(2)"),
    Changed("barrier", "behind one element for all", "F[row, 0] > 500", "X[row, 3] > 1e30"),
    Changed("barrier", "behind the word of one thread", "    buf[t] = X[row, t]\n    barrier()\n    if F[row, 0] > 500\n      barrier()",
            "    buf[t] = X[row, t]\n    barrier()\n    if buf[7] > 1e30\n      barrier()"),
    Changed("strided", "as it is", "S > N", "N < S"),
    Changed("histogram", "an unsigned remainder", "x[i] & 63", "(int)((unsigned)x[i] % 64u)"),
    Changed("argmax", "a maximum first", "v > best || (v == best && a < at)", "v >= best && (v > best || a < at)"),
    Changed("rounded", "by the usual function", "__float2half_rn", "__float2half"),
    Changed("rows", "no barrier after the last row", "    __syncthreads();\n  }\n}", "    if (row + gridDim.x < M) __syncthreads();\n  }\n}"),
    Changed("rows", "the last warp left out where it has nothing", "+ s[3]", "+ (N > 96 ? s[3] : 0.f)"),
    Changed("rows", "another loop for long rows", "    for (int j = t; j < N; j += 128) v += x[(long)row * N + j];",
            "    if (N > 2000000) { for (int j = t; j < N; j += 128) v = v + x[(long)row * N + j]; }\n"
            "    else { for (int j = t; j < N; j += 128) v += x[(long)row * N + j]; }"),
    Changed("product", "a bound that holds of itself", "(kk[None, :] < K)", "(kk[None, :] < K) & (kk[None, :] - m[:, None] < K)"),
    Changed("batches", "divided as doubles", "long b = i / ((long)H * N)", "long b = (long)((double)i / (double)((long)H * N))"),
    Changed("outer", "another order where rows and columns are as many", "a[i] * b[j]", "(M == N ? b[j] * a[i] : a[i] * b[j])"),
    Changed("halo", "below the first as a large unsigned", "s[0] = i > 0 ? x[i - 1] : 0.f", "s[0] = (unsigned)(i - 1) < (unsigned)n ? x[i - 1] : 0.f"),
    Changed("halo", "not set by others than the last", "if (t == 127) s[129] = i + 1 < n ? x[i + 1] : 0.f;",
            "if (t == 127 && i + 1 < n) s[129] = x[i + 1]; else if (t == 127) s[129] = 0.f;"),
    Changed("votes", "counts without a sign", "int c = 0", "unsigned c = 0"),
    Changed("last", "as it is", "Y[0] = w\n        C[0] = 0", "Y[0] = w\n        C[0] = 0"),
    Changed("last", "a counter set back by an exchange", "        C[0] = 0", "        let was = atomic_exch(&C[0], 0)"),
    Changed("ring", "a phase that begins again where it would", "(k // 3) % 2", "(k % 24 // 3) % 2"),
    Changed("one tile", "a maximum of the elements that are there", "tl.max(x, axis=0)", "tl.max(tl.where(j < N, x, -float('inf')), axis=0)"),
    Changed("triton softmax", "a product with the reciprocal", "tl.exp(x - top) / total", "tl.exp(x - top) * (1.0 / total)", "", "softmax"),
    Changed("gather", "clamped to the last", "int v = at[row]", "int v = min(at[row], V - 1)"),
    Changed("rotated", "a half by way of f64", "h = D / 2", "h = (int)(D * 0.5)"),
    Changed("quantized", "a floor below", "fmaxf(m, 1e-10f)", "fmaxf(1e-10f, m)"),
    Changed("embedded", "clamped to the last", "v * N", "tl.minimum(v, V - 1) * N"),
    Changed("rooted", "the root's reciprocal", "1.0 / tl.sqrt(tl.sum(s, axis=0) + 1e-6)", "tl.rsqrt(tl.sum(s, axis=0) + 1e-6)"),
    Changed("tiled", "clamped at the least", "X[v, bx * bN + j] * T.float16(2.0)", "T.max(X[v, bx * bN + j] * T.float16(2.0), T.float16(-65504.0))"),
    Changed("padded", "the other way around", "if v >= 0", "if -1 < v"),
    Changed("rows apart", "by a name", "    s = s + W[k] * X[A[k]]", "    let c = A[k]\n    s = s + X[c] * W[k]"),
    Changed("lengths", "as many as there are at most", "0..L[b]", "0..min(L[b], K)"),
    Changed("paged", "as many pages as there are", "G[i // 16]", "min(G[i // 16], P - 1)"),
    Changed("product", "clamped at the largest", "acc.to(tl.float16), mask", "tl.where(acc < 65504.0, acc, 65504.0).to(tl.float16), mask"),
    Changed("counts", "without a sign", "Y[row] = c", "Y[row] = cast(cast(c, u32), i32)"),
    Changed("histogram", "sixteen bits of 512 elements", "bins[t]);", "(int)(unsigned short)bins[t]);"),
)
