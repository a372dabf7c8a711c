"""Kernels in the manner of tutorials and packages, with their host code: what is found of their launches."""
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
""", {"A": ["K * M"], "B": ["N * K"], "C": ["M", "N"]}, {"threads_x": 256}, ("N % 16 == 0", "M % 16 == 0", "K % 4 == 0")),
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
""", {"at": ["n", 4], "out": ["n", 4]}, {"threads_x": 32, "shared_bytes": 512}),
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
""", {"x": ["n * m", 32], "y": ["n * m", 32]}, {"threads_x": 64, "shared_bytes": 32768}, ("n * 128 <= 32768",)),
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
""", {"a_ptr": ["M", "K"], "q_ptr": ["K // 8", "N"], "s_ptr": ["(K // 64)", "N"]}, {"GROUP": 64}, ("N % 64 == 0", "K % 64 == 0")), "product"),
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
""", {"cos": ["n", 32]}, {"HEAD": 64}, ("C % groups == 0",)), "turn"),
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
