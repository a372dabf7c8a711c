"""Kernels in the manner of tutorials and packages, with their host code: what is found of their launches, and which of them are walked to naive."""
from __future__ import annotations

from kir.base.dataclass import dataclass


@dataclass(frozen=True)
class Unseen:
    """A source, and what must be found: shapes by tensor, compile-time values, facts beyond `size >= 1`, dtypes, scalars."""

    text: str
    shapes: dict[str, list[str | int]]
    metas: dict[str, object]
    facts: tuple[str, ...] = ()
    dtypes: dict[str, str] | None = None
    scalars: dict[str, str | int] | None = None
    grid: list[str | int] | None = None
    arrays: dict[str, list[int]] | None = None


CUDA = {
    "sparse rows, a table looked up by columns": Unseen("""
template <typename T, int LANES, bool SCALED>
__global__ void rows_times(int rows, const int* __restrict__ start, const int* __restrict__ col, const T* __restrict__ val, const T* __restrict__ x,
                           T* __restrict__ y, T alpha) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  int row = at / LANES, lane = at % LANES;
  if (row < rows) {
    T sum = 0;
    for (int j = start[row] + lane; j < start[row + 1]; j += LANES) sum += val[j] * x[col[j]];
    for (int o = LANES / 2; o > 0; o >>= 1) sum += __shfl_down_sync(0xffffffff, sum, o, LANES);
    if (lane == 0) y[row] = SCALED ? alpha * sum : sum;
  }
}
void run(int rows, const int* start, const int* col, const float* val, const float* x, float* y) {
  rows_times<float, 8, true><<<(rows * 8 + 127) / 128, 128>>>(rows, start, col, val, x, y, 1.0f);
}
""", {"start": ["rows + 1"], "col": ["col_elements"], "val": ["col_elements"], "x": ["x_elements"], "y": ["rows"]},
        {"threads_x": 128, "T": "f32", "LANES": 8, "SCALED": True}, ("col_elements >= 2", "x_elements >= 2")),
    "a product whose pointers walk, without tails": Unseen("""
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
constexpr int TILE = 16, STEP = 4;
__global__ void product(int M, int N, int K, const float* A, const float* B, float* C) {
  __shared__ float a[TILE * STEP], b[STEP * TILE];
  int row = threadIdx.x / TILE, col = threadIdx.x % TILE;
  A += blockIdx.y * TILE * K; B += blockIdx.x * TILE; C += blockIdx.y * TILE * N + blockIdx.x * TILE;
  float acc = 0.0f;
  for (int k = 0; k < K; k += STEP) {
    if (threadIdx.x < TILE * STEP) {
      a[threadIdx.x] = A[threadIdx.x / STEP * K + threadIdx.x % STEP];
      b[threadIdx.x] = B[threadIdx.x / TILE * N + threadIdx.x % TILE];
    }
    __syncthreads();
    A += STEP; B += STEP * N;
    for (int i = 0; i < STEP; i++) acc += a[row * STEP + i] * b[i * TILE + col];
    __syncthreads();
  }
  C[row * N + col] = acc;
}
void run(int M, int N, int K, const float* A, const float* B, float* C) {
  product<<<dim3(CEIL_DIV(N, TILE), CEIL_DIV(M, TILE)), TILE * TILE>>>(M, N, K, A, B, C);
}
""", {"A": ["M", "K"], "B": ["K", "N"], "C": ["M", "N"]}, {"threads_x": 256},
        ("N % 16 == 0", "M % 16 == 0", "K % 4 == 0", *(f"{x} <= {1 << 27}" for x in "MNK"))),
    "bodies of four numbers, all in tiles": Unseen("""
__global__ void pull(const float4* at, float4* out, int n) {
  extern __shared__ float4 tile[];
  int own = blockIdx.x * blockDim.x + threadIdx.x;
  float4 my = at[own];
  float x = 0.0f, y = 0.0f;
  for (int t = 0; t < gridDim.x; ++t) {
    tile[threadIdx.x] = at[t * blockDim.x + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < blockDim.x; ++j) { x += tile[j].x - my.x; y += tile[j].w * my.y; }
    __syncthreads();
  }
  out[own] = make_float4(x, y, 0.0f, 0.0f);
}
void step(const float4* at, float4* out, int n) { int p = 32; pull<<<n / p, p, p * sizeof(float4)>>>(at, out, n); }
""", {"at": ["n", 4], "out": ["n", 4]}, {"threads_x": 32, "shared_bytes": 512}, ("n % 32 == 0",)),
    "rows of all axes before the last, and at most so many threads": Unseen("""
#include <torch/extension.h>
__global__ void doubled(float* __restrict__ out, const float* __restrict__ in, int hidden) {
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) out[blockIdx.x * hidden + i] = 2.0f * in[blockIdx.x * hidden + i];
}
void run(torch::Tensor out, torch::Tensor in) {
  int hidden = in.size(-1);
  int tokens = in.numel() / hidden;
  dim3 grid(tokens), block(std::min(hidden, 1024));
  doubled<<<grid, block>>>(out.data_ptr<float>(), in.data_ptr<float>(), hidden);
}
""", {"in": ["in_0", "hidden"], "out": ["in_0", "hidden"]}, {"threads_x": 1024}, ("hidden >= 1024",), grid=["in_0"]),
    "tiles counted in floating point, boxes of five, a remainder that counts": Unseen("""
#include <torch/extension.h>
#define DIVUP(m, n) ((m) / (n) + ((m) % (n) > 0))
__global__ void boxes(const float* box, const float* x, float* y, int many, int N, int tiles, int wide) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < many) {
    float sum = box[at * 5 + 4];
    for (int t = 0; t < tiles; t++) for (int i = 0; i < wide; i++) if (t * wide + i < N) sum += x[t * wide + i];
    y[at] = sum;
  }
}
void run(torch::Tensor box, torch::Tensor x, torch::Tensor y) {
  const int wide = 32; const int N = x.size(0);
  const int tiles = ceil((float) N / wide);
  int many = box.size(0);
  auto held = y.to(x.device());
  boxes<<<DIVUP(many, 64), 64>>>(box.data_ptr<float>(), x.data_ptr<float>(), held.data_ptr<float>(), many, N, tiles, wide);
}
""", {"box": ["many", 5], "x": ["N"], "y": ["many"]}, {"threads_x": 64}, (), scalars={"tiles": "ceildiv(N, 32)", "wide": 32}, grid=["ceildiv(many, 64)"]),
    "more shared memory than a CTA has, were the extent long": Unseen("""
__global__ void turned(const float* x, float* y, int n) {
  extern __shared__ float row[];
  for (int i = threadIdx.x; i < n * 32; i += blockDim.x) row[i] = x[blockIdx.x * n * 32 + i];
  __syncthreads();
  for (int i = threadIdx.x; i < n * 32; i += blockDim.x) y[blockIdx.x * n * 32 + i] = row[n * 32 - 1 - i];
}
void run(const float* x, float* y, int m, int n) { turned<<<m, 64, 32 * n * sizeof(float)>>>(x, y, n); }
""", {"x": ["n * m", 32], "y": ["n * m", 32]}, {"threads_x": 64, "shared_bytes": 32768}, ("n <= 256",)),
    "two halves at a time, whole rows of them": Unseen("""
#include <cuda_fp16.h>
__global__ void times(const half* __restrict__ W, const half* __restrict__ x, half* __restrict__ y, int rows, int cols) {
  int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const half2* w2 = reinterpret_cast<const half2*>(W + (size_t)row * cols);
  const half2* x2 = reinterpret_cast<const half2*>(x);
  float acc = 0.f;
  for (int i = threadIdx.x; i < cols / 2; i += 32) {
    float2 a = __half22float2(w2[i]), b = __half22float2(x2[i]);
    acc += a.x * b.x + a.y * b.y;
  }
  for (int m = 16; m > 0; m >>= 1) acc += __shfl_xor_sync(0xffffffff, acc, m);
  if (threadIdx.x == 0) y[row] = __float2half(acc);
}
void run(const half* W, const half* x, half* y, int rows, int cols) { times<<<(rows + 3) / 4, dim3(32, 4)>>>(W, x, y, rows, cols); }
""", {"W": ["rows", "cols"], "x": ["cols"], "y": ["rows"]}, {"threads_x": 32, "threads_y": 4}, ("cols % 2 == 0",)),
    "an output as large as scalars are computed": Unseen("""
__global__ void pool(const float* x, float* y, int N, int H, int W, int OH, int OW, int k, int stride, int pad) {
  for (int idx = blockIdx.x * blockDim.x + threadIdx.x; idx < N * OH * OW; idx += blockDim.x * gridDim.x) {
    int ow = idx % OW, oh = (idx / OW) % OH, n = idx / OW / OH;
    int h0 = oh * stride - pad, w0 = ow * stride - pad, h1 = min(h0 + k, H), w1 = min(w0 + k, W);
    h0 = max(h0, 0);
    w0 = max(w0, 0);
    float best = -3.4e38f;
    for (int h = h0; h < h1; ++h)
      for (int w = w0; w < w1; ++w) best = fmaxf(best, x[(n * H + h) * W + w]);
    y[idx] = best;
  }
}
void run(const float* x, float* y, int N, int H, int W) {
  const int k = 3, stride = 2, pad = 1;
  int OH = (H + 2 * pad - k) / stride + 1, OW = (W + 2 * pad - k) / stride + 1;
  pool<<<min((N * OH * OW + 255) / 256, 4096), 256>>>(x, y, N, H, W, OH, OW, k, stride, pad);
}
""", {"x": ["N", "H", "W"], "y": ["N * ((H - 1) // 2 + 1) * ((W - 1) // 2 + 1)"]}, {"threads_x": 256}),
    "one element at a time, copied asynchronously": Unseen("""
#include <cuda_pipeline.h>
__global__ void twice(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float held[64];
  for (int base = 0; base < n; base += 64) {
    int i = base + threadIdx.x;
    if (i < n) __pipeline_memcpy_async(&held[threadIdx.x], &x[blockIdx.x * n + i], sizeof(float));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    if (i < n) y[blockIdx.x * n + i] = held[threadIdx.x] * 2.f;
    __syncthreads();
  }
}
void run(const float* x, float* y, int m, int n) { twice<<<m, 64>>>(x, y, n); }
""", {"x": ["m", "n"], "y": ["m", "n"]}, {"threads_x": 64}),
    "rows between offsets, and rows times an unsigned number": Unseen("""
__global__ void segments_of(const float* x, const int* offsets, float* out, int dim) {
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    float acc = 0.f;
    for (int r = offsets[blockIdx.x]; r < offsets[blockIdx.x + 1]; ++r) acc += x[r * dim + d];
    out[blockIdx.x * dim + d] = acc;
  }
}
void run(const float* x, const int* offsets, float* out, int segments, int dim) { segments_of<<<segments, 128>>>(x, offsets, out, dim); }
""", {"x": ["x_rows", "dim"], "offsets": ["segments + 1"], "out": ["segments", "dim"]}, {"threads_x": 128}, ("x_rows >= 2",)),
}

TRITON = {
    "the backward of an autograd function": (Unseen("""import torch, triton
import triton.language as tl


@triton.jit
def forward_kernel(x_ptr, labels_ptr, lse_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n, other=float("-inf"))
    tl.store(lse_ptr + row, tl.log(tl.sum(tl.exp(x))))


@triton.jit
def backward_kernel(dx_ptr, x_ptr, labels_ptr, lse_ptr, dloss_ptr, stride, n, ignored, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    label = tl.load(labels_ptr + row)
    g = tl.where(label == ignored, 0.0, tl.load(dloss_ptr + row))
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n, other=float("-inf"))
    p = tl.exp(x - tl.load(lse_ptr + row))
    tl.store(dx_ptr + row * stride + cols, tl.where(cols == label, p - 1.0, p) * g, mask=cols < n)


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, labels, ignored=-100):
        m, n = x.shape
        lse = torch.empty(m, dtype=torch.float32, device=x.device)
        ctx.BLOCK = triton.next_power_of_2(n)
        forward_kernel[(m,)](x, labels, lse, x.stride(0), n, BLOCK=ctx.BLOCK)
        ctx.save_for_backward(x, labels, lse)
        ctx.ignored = ignored
        return lse

    @staticmethod
    def backward(context, dloss):
        x, labels, lse = context.saved_tensors
        m, n = x.shape
        dx = torch.empty_like(x)
        backward_kernel[(m,)](dx, x, labels, lse, dloss, x.stride(0), n, context.ignored, BLOCK=context.BLOCK)
        return dx, None, None
""", {"x_ptr": ["m", "n"], "dx_ptr": ["m", "n"], "labels_ptr": ["m"], "lse_ptr": ["m"], "dloss_ptr": ["m"]}, {"BLOCK": 1024}, ("n <= 1024",),
        {"labels_ptr": "i64", "x_ptr": "f32"}, {"ignored": -100, "stride": "n", "n": "n"}, ["m"]), "backward_kernel"),
    "groups with scales, limits of a dtype": (Unseen("""import torch, triton
import triton.language as tl


@triton.jit
def quantize(y_ptr, q_ptr, s_ptr, group, columns, LEAST: tl.constexpr, MOST: tl.constexpr, BLOCK: tl.constexpr):
    g = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < group
    y = tl.load(y_ptr + g * group + cols, mask=mask, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(y)) / MOST
    tl.store(q_ptr + g * group + cols, tl.clamp(y / scale, LEAST, MOST).to(q_ptr.dtype.element_ty), mask=mask)
    tl.store(s_ptr + g, scale)


def run(x: torch.Tensor, group: int, dtype=torch.float8_e4m3fn):
    assert x.shape[1] % group == 0
    limits = torch.finfo(dtype)
    q = torch.empty_like(x, dtype=dtype)
    s = torch.empty(x.shape[:-1] + (x.shape[-1] // group,), device=x.device, dtype=torch.float32)
    quantize[(x.numel() // group,)](x, q, s, group, x.shape[1], LEAST=limits.min, MOST=limits.max, BLOCK=triton.next_power_of_2(group))
    return q, s
""", {"y_ptr": ["x_0", "x_1"], "q_ptr": ["x_0", "x_1"], "s_ptr": ["x_0 * x_1 // group"]}, {"LEAST": -448.0, "MOST": 448.0, "BLOCK": 1024},
        ("x_1 % group == 0", "group <= 1024"), {"q_ptr": "f8e4m3", "y_ptr": "f32"}), "quantize"),
    "tensor descriptors made on the host": (Unseen("""import torch, triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def product(a_desc, b_desc, c_desc, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    m, n = tl.program_id(0), tl.program_id(1)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        acc = tl.dot(a_desc.load([m * BLOCK_M, k * BLOCK_K]), b_desc.load([n * BLOCK_N, k * BLOCK_K]).T, acc)
    c_desc.store([m * BLOCK_M, n * BLOCK_N], acc.to(tl.float16))


def run(a, b):
    M, K = a.shape
    N, K = b.shape
    c = torch.empty((M, N), device=a.device, dtype=torch.float16)
    described = [TensorDescriptor.from_tensor(a, [32, 16]), TensorDescriptor.from_tensor(b, [64, 16]), TensorDescriptor.from_tensor(c, [32, 64])]
    product[(triton.cdiv(M, 32), triton.cdiv(N, 64))](*described, K, BLOCK_M=32, BLOCK_N=64, BLOCK_K=16)
    return c
""", {"a_desc": ["M", "K"], "b_desc": ["N", "K"], "c_desc": ["M", "N"]}, {"a_desc_block_0": 32, "b_desc_block_0": 64, "c_desc_block_1": 64, "BLOCK_K": 16}),
        "product"),
    "a seed is a whole number, a table of rows as long as half a head": (Unseen("""import torch, triton
import triton.language as tl


@triton.jit
def turn(X, COS, OUT, seqlen, seed, HALF: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = rows[:, None] * HALF + tl.arange(0, HALF)[None, :]
    mask = rows[:, None] < seqlen
    keep = tl.rand(seed, at) > 0.5
    tl.store(OUT + at, tl.where(keep, tl.load(X + at, mask=mask) * tl.load(COS + at, mask=mask), 0.0), mask=mask)


def run(x, cos, seed):
    seqlen = x.shape[0]
    out = torch.empty_like(x)
    turn[(triton.cdiv(seqlen, 4),)](x, cos, out, seqlen, seed, HALF=cos.shape[-1] * 1, BLOCK=4)
    return out
""", {"COS": ["seqlen", 1024]}, {"HALF": 1024, "BLOCK": 4}, (), {"seed": "i32"}), "turn"),
}

TRITON |= {
    "packed weights, whole tiles": (Unseen("""import torch
import triton
import triton.language as tl
@triton.jit
def product(a_ptr, q_ptr, s_ptr, c_ptr, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + rm[:, None] * K + (k + rk)[None, :], mask=rm[:, None] < M, other=0.0)
        q = tl.load(q_ptr + ((k + rk)[:, None] // 8) * N + rn[None, :])
        s = tl.load(s_ptr + (k // GROUP) * N + rn)
        acc += tl.dot(a, ((((q >> (((k + rk)[:, None] % 8) * 4)) & 0xF) - 8).to(tl.float16) * s[None, :]).to(tl.float16))
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(tl.float16), mask=rm[:, None] < M)
def run(a: torch.Tensor, qweight: torch.Tensor, scales: torch.Tensor):
    M, K = a.shape
    N = qweight.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.float16)
    product[(triton.cdiv(M, 32), N // 64)](a, qweight, scales, c, M, N, K, GROUP=64, BM=32, BN=64, BK=64)
    return c
if __name__ == "__main__":
    run(torch.randn(70, 256, dtype=torch.float16), torch.zeros(32, 128, dtype=torch.int32), torch.randn(4, 128, dtype=torch.float16))
""", {"a_ptr": ["M", "K"], "q_ptr": ["K // 8", "N"], "s_ptr": ["K // 64", "N"]}, {"GROUP": 64}, ("N % 64 == 0", "K % 64 == 0")), "product"),
    "tables half as wide as a head, groups of channels": (Unseen("""import torch
import triton
import triton.language as tl
@triton.jit
def turn(x, cos, out, w, S, C, CG, HEAD: tl.constexpr):
    pos, g = tl.program_id(0), tl.program_id(1)
    half: tl.constexpr = HEAD // 2
    d = tl.arange(0, half)
    base = (pos * S + g) * HEAD
    lo, hi, c = tl.load(x + base + d), tl.load(x + base + half + d), tl.load(cos + pos * half + d)
    for k in range(CG):
        c += tl.load(w + g * CG + k)
    tl.store(out + base + d, lo * c - hi)
    tl.store(out + base + half + d, hi * c + lo)
def run(x, cos, w, groups):
    out, C = torch.empty_like(x), w.shape[0]
    turn[(x.shape[0], groups)](x, cos, out, w, groups, C, C // groups, HEAD=x.shape[2])
if __name__ == "__main__":
    run(torch.randn(16, 8, 64), torch.randn(16, 32), torch.randn(32), 8)
""", {"cos": ["n", 32]}, {"HEAD": 64}, ("C % 8 == 0",), scalars={"CG": "C // 8"}, grid=["n", 8]), "turn"),
}

TILELANG = Unseen("""import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[1])
def doubled(batch, rows, dim, most=128):
    shape = [batch, rows, dim]
    wide = min(tilelang.next_power_of_2(dim), most)

    @T.prim_func
    def main(X: T.Tensor(shape, "float32"), Y: T.Tensor(shape, "float32")):
        with T.Kernel(rows, batch, threads=128) as (r, b):
            x = T.alloc_fragment([wide], "float32")
            for k in T.serial(T.ceildiv(dim, wide)):
                T.copy(X[b, r, k * wide:(k + 1) * wide], x)
                for j in T.Parallel(wide):
                    x[j] = x[j] * 2.0
                T.copy(x, Y[b, r, k * wide:(k + 1) * wide])
    return main


def main(batch: int = 2, rows: int = 64, dim: int = 256):
    return doubled(batch, rows, dim)
""", {}, {"dim": 256, "most": 128})
"""Extents that a list of the factory's names, and what is allocated is made of one of them."""

HALO = """
__global__ void across(const float* x, float* y, int n) {
  int i = blockIdx.x * 32 + threadIdx.x;
  y[i] = x[i] + x[i + 3];
}
void run(const float* x, float* y, int n) { across<<<n / 32, 32>>>(x, y, n); }
"""
"""Reads three elements beyond every size: no shape of its sizes fits."""


@dataclass(frozen=True)
class Walk:
    """A source, at which sizes both ends of its walk are run, and the passes that are undone last."""

    text: str
    sizes: dict[str, int]
    kernel: str = ""
    last: tuple[str, ...] = ()
    suffix: str = "cu"


WALKS = {
    "a warp for a row, maxima and sums of lanes in one ladder, threads counted in 32 bits": Walk("""
#include <cfloat>
__global__ void softmax(const float* in, float* out, int rows, int cols) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
  if (row >= rows) return;
  const float* p = in + row * cols;
  float m = -FLT_MAX, d = 0.f;
  for (int i = lane; i < cols; i += 32) {
    float v = p[i], grown = fmaxf(m, v);
    d = d * expf(m - grown) + expf(v - grown);
    m = grown;
  }
  for (int off = 16; off > 0; off /= 2) {
    float om = __shfl_xor_sync(0xffffffff, m, off), od = __shfl_xor_sync(0xffffffff, d, off), grown = fmaxf(m, om);
    d = d * expf(m - grown) + od * expf(om - grown);
    m = grown;
  }
  for (int i = lane; i < cols; i += 32) out[row * cols + i] = expf(p[i] - m) / d;
}
void run(const float* in, float* out, int rows, int cols) { softmax<<<(rows + 3) / 4, 128>>>(in, out, rows, cols); }
""", {"rows": 5, "cols": 70}, last=("shuffle-exchange",)),
    "pointers that advance": Walk("""
#define BM 32
#define BN 32
#define BK 8
#define TM 4
__global__ void sgemm(int M, int N, int K, const float* A, const float* B, float* C) {
  __shared__ float As[BM * BK], Bs[BK * BN];
  const int threadCol = threadIdx.x % BN, threadRow = threadIdx.x / BN;
  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += blockIdx.y * BM * N + blockIdx.x * BN;
  float results[TM] = {0.0f};
  for (int bk = 0; bk < K; bk += BK) {
    As[threadIdx.x] = A[threadIdx.x / BK * K + threadIdx.x % BK];
    Bs[threadIdx.x] = B[threadIdx.x / BN * N + threadIdx.x % BN];
    __syncthreads();
    A += BK;
    B += BK * N;
    for (int d = 0; d < BK; ++d)
      for (int r = 0; r < TM; ++r) results[r] += As[(threadRow * TM + r) * BK + d] * Bs[d * BN + threadCol];
    __syncthreads();
  }
  for (int r = 0; r < TM; ++r) C[(threadRow * TM + r) * N + threadCol] = results[r];
}
void run(int M, int N, int K, const float* A, const float* B, float* C) {
  sgemm<<<dim3(N / BN, M / BM), BM * BN / TM>>>(M, N, K, A, B, C);
}
""", {"M": 32, "N": 64, "K": 16}),
    "a reduction of a block that keeps its register, loops until zero": Walk("""
#include <cstdint>
#include <cmath>
__inline__ __device__ float warp_max(float v) {
  for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}
__global__ void quantize(const float* x, int8_t* q, float* scales, int cols) {
  __shared__ float red[8];
  float amax = -INFINITY;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) amax = fmaxf(amax, fabsf(x[blockIdx.x * cols + c]));
  amax = warp_max(amax);
  if ((threadIdx.x & 31) == 0) red[threadIdx.x >> 5] = amax;
  __syncthreads();
  amax = warp_max(threadIdx.x % 32 < 8 ? red[threadIdx.x % 32] : -INFINITY);
  float scale = amax / 127.f, inverse = scale > 0.f ? 1.f / scale : 0.f;
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    int v = __float2int_rn(x[blockIdx.x * cols + c] * inverse);
    q[blockIdx.x * cols + c] = (int8_t)max(-127, min(127, v));
  }
}
void run(const float* x, int8_t* q, float* scales, int rows, int cols) { quantize<<<rows, 256>>>(x, q, scales, cols); }
""", {"rows": 2, "cols": 300}, last=("shuffle-exchange",)),
    "two halves at a time": Walk(CUDA["two halves at a time, whole rows of them"].text, {"rows": 5, "cols": 38}, last=("shuffle-exchange",)),
    "a grid that strides over an output": Walk(CUDA["an output as large as scalars are computed"].text, {"N": 2, "H": 7, "W": 9}),
    "elements of rows by their number": Walk("""import torch
import triton
import triton.language as tl
@triton.jit
def gelu(x_ptr, b_ptr, y_ptr, n, columns, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    v = tl.load(x_ptr + offs, mask=mask) + tl.load(b_ptr + offs % columns, mask=mask)
    tl.store(y_ptr + offs, 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476)), mask=mask)
def run(x: torch.Tensor, bias: torch.Tensor):
    y = torch.empty_like(x)
    gelu[(triton.cdiv(x.numel(), 256),)](x, bias, y, x.numel(), x.shape[-1], BLOCK=256)
""", {"x_0": 5, "columns": 70}, "gelu", suffix="py"),
    "a scan by a function": Walk("""import torch
import triton
import triton.language as tl
@triton.jit
def larger(a, b):
    return tl.maximum(a, b)
@triton.jit
def cummax(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * columns + offs, mask=offs < columns, other=float("-inf"))
    tl.store(y_ptr + tl.program_id(0) * columns + offs, tl.associative_scan(x, 0, larger), mask=offs < columns)
def run(x):
    rows, columns = x.shape
    y = torch.empty_like(x)
    cummax[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
if __name__ == "__main__":
    run(torch.randn(4, 100))
""", {"rows": 3, "columns": 50}, "cummax", suffix="py"),
    "arrays of one element, a thread for each": Walk("""import tilelang
import tilelang.language as T
@tilelang.jit(out_idx=[-1])
def products(B, M, N, K):
    @T.prim_func
    def main(X: T.Tensor((B, M, K), "float32"), Y: T.Tensor((B, K, N), "float32"), Z: T.Tensor((B, M, N), "float32")):
        with T.Kernel(B, threads=M * N) as b:
            t = T.get_thread_binding()
            acc = T.alloc_local((1,), "float32")
            acc[0] = 0.0
            for k in T.serial(K):
                acc[0] += X[b, t // N, k] * Y[b, k, t % N]
            Z[b, t // N, t % N] = acc[0]
    return main
products(100, 8, 8, 16)
""", {"B": 3}, suffix="py"),
    "rows as long as a tile": Walk("""import tilelang
import tilelang.language as T
@tilelang.jit(out_idx=[2])
def rms(M, N, rows=8, eps=1e-6):
    @T.prim_func
    def main(X: T.Tensor((M, N), "float16"), W: T.Tensor((N,), "float16"), Y: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
            x = T.alloc_fragment((rows, N), "float32")
            squares = T.alloc_fragment((rows, N), "float32")
            total = T.alloc_fragment((rows,), "float32")
            T.copy(X[bx * rows, 0], x)
            for i, j in T.Parallel(rows, N):
                squares[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(squares, total, dim=1)
            for i in T.Parallel(rows):
                total[i] = T.rsqrt(total[i] / N + eps)
            for i, j in T.Parallel(rows, N):
                Y[bx * rows + i, j] = x[i, j] * total[i] * W[j]
    return main
def call(x, w):
    return rms(x.shape[0], x.shape[1])(x, w)
rms(512, 64)
""", {"M": 9}, suffix="py"),
}
