"""More kernels in the manner of tutorials: what is found of launches whose tensors only runs show, and walks of products, of sums in parts, of transposes."""
from __future__ import annotations

from tests.users.unseen_kernels import Unseen, Walk

CUDA = {
    "words of eight numbers, a scale for each 32 rows, zeros packed beside one another": Unseen("""
#include <cuda_fp16.h>
__global__ void unpack(const unsigned* __restrict__ packed, const __half* __restrict__ scale, const unsigned* __restrict__ zeros, __half* __restrict__ w,
                       int rows, int cols, int group) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
  if (c >= cols) return;
  unsigned word = packed[r * cols + c];
  int g = r * 8 / group, zero = (zeros[g * (cols / 8) + c / 8] >> (c % 8 * 4)) & 15;
  for (int k = 0; k < 8; k++) w[(r * 8 + k) * cols + c] = __float2half(((int)(word >> (4 * k) & 15) - zero) * __half2float(scale[g * cols + c]));
}
void run(const unsigned* packed, const __half* scale, const unsigned* zeros, __half* w, int rows, int cols) {
  unpack<<<dim3((cols + 63) / 64, rows / 8), 64>>>(packed, scale, zeros, w, rows, cols, 32);
}
""", {"packed": ["(rows // 8)", "cols"], "scale": ["(ceildiv(rows, 32))", "cols"], "zeros": ["(cols // 8) * ceildiv(rows, 32)"], "w": ["rows", "cols"]},
        {"threads_x": 64}, ("cols % 8 == 0", "rows % 8 == 0")),
    "rows of a cache that slots choose, on as many CTAs as the device has": Unseen("""
__global__ void append(const float* k, const float* v, float* keys, float* values, const int* slots, int tokens, int heads, int width, int page) {
  for (int t = blockIdx.x; t < tokens; t += gridDim.x) {
    int slot = slots[t];
    if (slot < 0) continue;
    for (int i = threadIdx.x; i < heads * width; i += blockDim.x) {
      int to = ((slot / page * heads + i / width) * page + slot % page) * width + i % width;
      keys[to] = k[t * heads * width + i];
      values[to] = v[t * heads * width + i];
    }
  }
}
void run(const float* k, const float* v, float* keys, float* values, const int* slots, int tokens, int heads, int width, int page) {
  int sms;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
  append<<<sms, 64>>>(k, v, keys, values, slots, tokens, heads, width, page);
}
""", {"keys": ["keys_rows", "heads * page * width"], "values": ["keys_rows", "heads * page * width"], "slots": ["tokens"]},
        {"threads_x": 64}, ("keys_rows >= 2",), grid=["sms"]),
    "tiles between a beginning and an end": Unseen("""
template <int T>
__global__ void product(float* C, const float* A, const float* B, int wA, int wB) {
  int x = threadIdx.x, y = threadIdx.y, begin = wA * T * (int)blockIdx.y, end = begin + wA - 1;
  float sum = 0;
  for (int a = begin, b = T * (int)blockIdx.x; a <= end; a += T, b += T * wB) {
    __shared__ float As[T][T], Bs[T][T];
    As[y][x] = A[a + wA * y + x];
    Bs[y][x] = B[b + wB * y + x];
    __syncthreads();
    for (int k = 0; k < T; ++k) sum += As[y][k] * Bs[k][x];
    __syncthreads();
  }
  C[wB * T * (int)blockIdx.y + T * (int)blockIdx.x + wB * y + x] = sum;
}
void run(float* C, const float* A, const float* B, int hA, int wA, int wB) {
  product<8><<<dim3(wB / 8, hA / 8), dim3(8, 8)>>>(C, A, B, wA, wB);
}
""", {"A": ["hA", "wA"], "B": ["wA", "wB"], "C": ["hA", "wB"]}, {"T": 8}, ("wB % 8 == 0", "hA % 8 == 0", "wA % 8 == 0")),
    "a product of one size, of which only the lengths of rows are told, in flat shared arrays": Unseen("""
__global__ void product(float* C, const float* A, const float* B, int wA, int wB) {
  __shared__ float As[32], Bs[64];
  unsigned x = threadIdx.x % 8, y = threadIdx.x / 8, row = blockIdx.y, col = blockIdx.x;
  A += row * 4 * wA; B += col * 8; C += row * 4 * wB + col * 8;
  float sum = 0;
  for (int k = 0; k < wA; k += 8) {
    As[y * 8 + x] = A[y * wA + x];
    for (unsigned i = 0; i < 8; i += 4) Bs[(y + i) * 8 + x] = B[(y + i) * wB + x];
    __syncthreads();
    A += 8; B += 8 * wB;
    for (int i = 0; i < 8; ++i) sum += As[y * 8 + i] * Bs[i * 8 + x];
    __syncthreads();
  }
  C[y * wB + x] = sum;
}
void run(float* C, const float* A, const float* B) { product<<<dim3(6, 5), 32>>>(C, A, B, 24, 48); }
""", {"A": [20, 24], "B": [24, 48], "C": [20, 48]}, {"threads_x": 32}, arrays={"Bs": [8, 8]}),
    "a function of the device as a template argument, two halves of a row": Unseen("""
template <typename T> __device__ __forceinline__ T gelu(const T& x) { return (T)(0.5f * (float)x * (1.0f + erff((float)x * 0.70710678f))); }
template <typename T, T (*ACT)(const T&)>
__global__ void gated(T* out, const T* in, int d) {
  for (long long i = threadIdx.x; i < d; i += blockDim.x)
    out[(long long)blockIdx.x * d + i] = ACT(in[(long long)blockIdx.x * 2 * d + i]) * in[(long long)blockIdx.x * 2 * d + d + i];
}
void run(float* out, const float* in, int rows, int d) { gated<float, gelu<float>><<<rows, 64>>>(out, in, d); }
""", {"in": ["rows", 2, "d"], "out": ["rows", "d"]}, {"ACT": "gelu<float>", "T": "f32"}),
    "a window of nine, steps and padding, a table of the device": Unseen("""
#include <torch/extension.h>
__constant__ float gains[5];
__global__ void depthwise(const float* x, const float* w, float* y, int total, int C, int H, int W, int OH, int OW, int stride, int pad) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= total) return;
  int ow = at % OW, oh = (at / OW) % OH, c = (at / OW / OH) % C, n = at / OW / OH / C;
  float v = gains[at % 5];
  for (int kh = 0; kh < 3; ++kh)
    for (int kw = 0; kw < 3; ++kw) {
      int ih = oh * stride - pad + kh, iw = ow * stride - pad + kw;
      if (ih >= 0 && ih < H && iw >= 0 && iw < W) v += x[((n * C + c) * H + ih) * W + iw] * w[c * 9 + kh * 3 + kw];
    }
  y[at] = v;
}
torch::Tensor run(torch::Tensor x, torch::Tensor w, int stride, int pad) {
  int N = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3);
  int OH = (H + 2 * pad - 3) / stride + 1, OW = (W + 2 * pad - 3) / stride + 1;
  auto y = torch::empty({N, C, OH, OW}, x.options());
  int total = y.numel();
  depthwise<<<(total + 255) / 256, 256>>>(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), total, C, H, W, OH, OW, stride, pad);
  return y;
}
""", {"x": ["N", "C", "H", "W"], "w": ["C", 9], "gains": [5]}, {"threads_x": 256},
        tuple(f"{x} <= 134217728" for x in ("N", "C", "H", "W", "pad", "stride"))),
}
TRITON = {
    "packed weights of which nothing is said, rows of groups": (Unseen("""import torch, triton
import triton.language as tl


@triton.jit
def rows(x_ptr, q_ptr, s_ptr, y_ptr, N, K, GROUP: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(x_ptr + k, mask=k < K, other=0.0)
        w = (tl.load(q_ptr + (k[:, None] // 8) * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0) >> ((k[:, None] % 8) * 4)) & 0xF
        s = tl.load(s_ptr + (k0 // GROUP) * N + n, mask=n < N, other=0.0)
        acc += tl.sum(w.to(tl.float32) * s[None, :] * x[:, None], axis=0)
    tl.store(y_ptr + n, acc, mask=n < N)


def call(x, q, s):
    K, N = x.shape[0], q.shape[1]
    assert q.shape[0] * 8 == K and K % 128 == 0
    y = torch.empty(N, device=x.device)
    rows[(triton.cdiv(N, 64),)](x, q, s, y, N, K, GROUP=128, BN=64, BK=64)
    return y
""", {"q_ptr": ["q_0", "N"], "y_ptr": ["N"]}, {"BN": 64}, ("q_0 * 8 % 128 == 0",), {"q_ptr": "i32", "x_ptr": "f32"}), "rows"),
    "segments between offsets, a loop that counts from one to the next": (Unseen("""import torch, triton
import triton.language as tl


@triton.jit
def segments(v_ptr, at_ptr, out_ptr, D, BD: tl.constexpr):
    s = tl.program_id(0)
    d = tl.arange(0, BD)
    end = tl.load(at_ptr + s + 1)
    acc = tl.zeros((BD,), tl.float32)
    i = tl.load(at_ptr + s)
    while i < end:
        acc += tl.load(v_ptr + i * D + d, mask=d < D, other=0.0)
        i += 1
    tl.store(out_ptr + s * D + d, acc, mask=d < D)


def call(values, at):
    B, D = at.numel() - 1, values.size(1)
    out = torch.empty((B, D), device=values.device)
    segments[(B,)](values, at, out, D, BD=128)
    return out
""", {"out_ptr": ["at_0 - 1", "D"]}, {"BD": 128}, ("values_0 >= 2",), {"at_ptr": "i64"}), "segments"),
}
WALKS = {
    "a transpose through padded shared memory, whole tiles": Walk("""
const int TILE_DIM = 32;
const int BLOCK_ROWS = 8;
__global__ void transposeNoBankConflicts(float *odata, const float *idata) {
  __shared__ float tile[TILE_DIM][TILE_DIM + 1];
  int x = blockIdx.x * TILE_DIM + threadIdx.x;
  int y = blockIdx.y * TILE_DIM + threadIdx.y;
  int width = gridDim.x * TILE_DIM;
  int height = gridDim.y * TILE_DIM;
  for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS) tile[threadIdx.y + j][threadIdx.x] = idata[(y + j) * width + x];
  __syncthreads();
  x = blockIdx.y * TILE_DIM + threadIdx.x;
  y = blockIdx.x * TILE_DIM + threadIdx.y;
  for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS) odata[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}
int main(int argc, char **argv) {
  const int nx = 1024, ny = 512;
  const int mem_size = nx * ny * sizeof(float);
  dim3 dimGrid(nx / TILE_DIM, ny / TILE_DIM, 1);
  dim3 dimBlock(TILE_DIM, BLOCK_ROWS, 1);
  float *d_idata, *d_tdata;
  cudaMalloc(&d_idata, mem_size);
  cudaMalloc(&d_tdata, mem_size);
  transposeNoBankConflicts<<<dimGrid, dimBlock>>>(d_tdata, d_idata);
  cudaDeviceSynchronize();
}
""", {"nx": 64, "ny": 32}),
    "parts of a sum that CTAs add up together": Walk("""
#include <torch/extension.h>
template <int BM, int BN, int BK>
__global__ void splitk_gemm(const float* A, const float* B, float* C, int M, int N, int K, int k_per_split) {
  __shared__ float As[BM][BK + 1];
  __shared__ float Bs[BK][BN];
  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y * BM + ty, col = blockIdx.x * BN + tx;
  int k0 = blockIdx.z * k_per_split;
  int k1 = min(k0 + k_per_split, K);
  float acc = 0.f;
  for (int k = k0; k < k1; k += BK) {
    As[ty][tx] = (row < M && k + tx < k1) ? A[row * K + k + tx] : 0.f;
    Bs[ty][tx] = (k + ty < k1 && col < N) ? B[(k + ty) * N + col] : 0.f;
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < BK; ++kk) acc += As[ty][kk] * Bs[kk][tx];
    __syncthreads();
  }
  if (row < M && col < N) atomicAdd(&C[row * N + col], acc);
}
torch::Tensor matmul_splitk(torch::Tensor a, torch::Tensor b, int splits) {
  int M = a.size(0), K = a.size(1), N = b.size(1);
  auto c = torch::zeros({M, N}, a.options());
  const int T = 16;
  int per = (K + splits - 1) / splits;
  dim3 grid((N + T - 1) / T, (M + T - 1) / T, splits);
  splitk_gemm<T, T, T><<<grid, dim3(T, T)>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, N, K, per);
  return c;
}
""", {"M": 17, "N": 18, "K": 40, "splits": 2}),
    "tiles in panels of rows, products of singles": Walk("""import torch
import triton
import triton.language as tl

@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr):
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    num_pid_in_group = GROUP_SIZE_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_am = (pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M
    offs_bn = (pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N
    offs_k = tl.arange(0, BLOCK_SIZE_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_SIZE_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_SIZE_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_SIZE_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk
    c = accumulator
    offs_cm = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    offs_cn = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    c_mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
    tl.store(c_ptrs, c, mask=c_mask)

def matmul(a, b):
    assert a.shape[1] == b.shape[0], "Incompatible dimensions"
    assert a.is_contiguous(), "Matrix A must be contiguous"
    M, K = a.shape
    K, N = b.shape
    assert a.dtype == torch.float32
    c = torch.empty((M, N), device=a.device, dtype=torch.float32)
    grid = lambda META: (triton.cdiv(M, META['BLOCK_SIZE_M']) * triton.cdiv(N, META['BLOCK_SIZE_N']), )
    matmul_kernel[grid](a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
                        BLOCK_SIZE_M=16, BLOCK_SIZE_N=16, BLOCK_SIZE_K=16, GROUP_SIZE_M=2)
    return c
""", {"M": 33, "N": 40, "K": 35}, suffix="py"),
    "a product that is scaled where it stands": Walk("""import tilelang
import tilelang.language as T

@tilelang.jit
def w8a16(M, N, K, block_M=16, block_N=16, block_K=32):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), Wq: T.Tensor((N, K), "int8"), S: T.Tensor((N,), "float16"),
             C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_s = T.alloc_shared((block_M, block_K), "float16")
            W_s = T.alloc_shared((block_N, block_K), "int8")
            W_l = T.alloc_fragment((block_N, block_K), "int8")
            W_f = T.alloc_fragment((block_N, block_K), "float16")
            W_d = T.alloc_shared((block_N, block_K), "float16")
            acc = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_s)
                T.copy(Wq[bx * block_N, k * block_K], W_s)
                T.copy(W_s, W_l)
                for i, j in T.Parallel(block_N, block_K):
                    W_f[i, j] = W_l[i, j].astype("float16")
                T.copy(W_f, W_d)
                T.gemm(A_s, W_d, acc, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                acc[i, j] = acc[i, j] * S[bx * block_N + j]
            T.copy(acc, C[by * block_M, bx * block_N])
    return main

kernel = w8a16(512, 1024, 768)
""", {"M": 20, "N": 18, "K": 40}, suffix="py"),
    "a maximum of a block by CUB": Walk("""
#include <cub/cub.cuh>
#include <cstdint>
template <int THREADS>
__global__ void dynamic_quant(const float* __restrict__ in, int8_t* __restrict__ out, float* __restrict__ scale, int hidden) {
  typedef cub::BlockReduce<float, THREADS> Reduce;
  __shared__ typename Reduce::TempStorage tmp;
  __shared__ float shared_scale;
  float m = 0.f;
  for (int i = threadIdx.x; i < hidden; i += THREADS) m = fmaxf(m, fabsf(in[blockIdx.x * hidden + i]));
  m = Reduce(tmp).Reduce(m, cub::Max());
  if (threadIdx.x == 0) { shared_scale = m / 127.f; scale[blockIdx.x] = m / 127.f; }
  __syncthreads();
  for (int i = threadIdx.x; i < hidden; i += THREADS) out[blockIdx.x * hidden + i] = static_cast<int8_t>(rintf(in[blockIdx.x * hidden + i] / shared_scale));
}
void run(const float* x, int8_t* q, float* s, int rows, int hidden) { dynamic_quant<128><<<rows, 128>>>(x, q, s, hidden); }
""", {"rows": 2, "hidden": 300}),
    "two parts of a row, gated in place": Walk("""import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=-1)
def gated(tokens, hidden, block_t=8, block_h=64):
    @T.prim_func
    def kernel(x: T.Tensor([tokens, 2 * hidden], "float32"), y: T.Tensor([tokens, hidden], "float32")):
        with T.Kernel(T.ceildiv(hidden, block_h), T.ceildiv(tokens, block_t), threads=128) as (bx, by):
            g = T.alloc_fragment([block_t, block_h], "float32")
            u = T.alloc_fragment([block_t, block_h], "float32")
            T.copy(x[by * block_t, bx * block_h], g)
            T.copy(x[by * block_t, hidden + bx * block_h], u)
            for i, j in T.Parallel(block_t, block_h):
                g[i, j] = g[i, j] / (1.0 + T.exp(-g[i, j])) * u[i, j]
            T.copy(g, y[by * block_t, bx * block_h])
    return kernel


def forward(x):
    tokens, two = x.shape
    return gated(tokens, two // 2)(x)
""", {"tokens": 10, "hidden": 70}, suffix="py"),
    "attention as it is written first, a query for each thread": Walk("""
#include <math.h>
__global__ void attention(const float* Q, const float* K, const float* V, float* O, int L, int D) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, h = blockIdx.y;
  if (i >= L) return;
  float mx = -INFINITY, den = 0.f;
  for (int j = 0; j < L; j++) {
    float s = 0.f;
    for (int d = 0; d < D; d++) s += Q[(h * L + i) * D + d] * K[(h * L + j) * D + d];
    mx = fmaxf(mx, s * rsqrtf((float)D));
  }
  for (int d = 0; d < D; d++) O[(h * L + i) * D + d] = 0.f;
  for (int j = 0; j < L; j++) {
    float s = 0.f;
    for (int d = 0; d < D; d++) s += Q[(h * L + i) * D + d] * K[(h * L + j) * D + d];
    float p = expf(s * rsqrtf((float)D) - mx);
    den += p;
    for (int d = 0; d < D; d++) O[(h * L + i) * D + d] += p * V[(h * L + j) * D + d];
  }
  for (int d = 0; d < D; d++) O[(h * L + i) * D + d] /= den;
}
void forward(const float* Q, const float* K, const float* V, float* O, int H, int L, int D) {
  attention<<<dim3((L + 31) / 32, H), 32>>>(Q, K, V, O, L, D);
}
""", {"H": 2, "L": 35, "D": 3}),
    "a warp for a row, sixteen bytes a load, products of pairs of halves": Walk("""
#include <cuda_fp16.h>
template <int WARPS>
__global__ void gemv(const half* __restrict__ A, const half* __restrict__ x, half* __restrict__ y, int M, int K) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.x * WARPS + warp;
  if (row >= M) return;
  const float4* a4 = reinterpret_cast<const float4*>(A + (size_t)row * K);
  const float4* x4 = reinterpret_cast<const float4*>(x);
  float acc = 0.f;
  for (int i = lane; i < K / 8; i += 32) {
    float4 av = a4[i], xv = x4[i];
    const half2 *ah = reinterpret_cast<const half2*>(&av), *xh = reinterpret_cast<const half2*>(&xv);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float2 p = __half22float2(ah[j]), q = __half22float2(xh[j]);
      acc += p.x * q.x + p.y * q.y;
    }
  }
  for (int o = 16; o > 0; o >>= 1) acc += __shfl_xor_sync(0xffffffffu, acc, o);
  if (lane == 0) y[row] = __float2half(acc);
}
void run(const half* A, const half* x, half* y, int M, int K) { gemv<4><<<(M + 3) / 4, 128>>>(A, x, y, M, K); }
""", {"M": 3, "K": 272}, last=("shuffle-exchange",)),
}

TRITON["lengths that only the call tells"] = (Unseen("""import torch, triton
import triton.language as tl
@triton.jit
def decode(q, k, table, lens, cos, out, stride_t, kvh, EVEN: tl.constexpr, GROUP: tl.constexpr, HEAD: tl.constexpr, PAGE: tl.constexpr):
    seq, h = tl.program_id(0), tl.program_id(1)
    d, t = tl.arange(0, HEAD), tl.arange(0, PAGE)
    n = tl.load(lens + seq)
    x = tl.load(q + (seq * kvh * GROUP + h) * HEAD + d) * tl.load(cos + seq * HEAD + d)
    acc = tl.zeros((HEAD,), tl.float32)
    for p in range(tl.cdiv(n, PAGE)):
        at = ((tl.load(table + seq * stride_t + p) * PAGE + t) * kvh + h // GROUP)[:, None] * HEAD + d[None, :]
        acc += tl.sum(tl.load(k + at, mask=(EVEN | (p * PAGE + t < n))[:, None], other=0.0), 0)
    tl.store(out + (seq * kvh * GROUP + h) * HEAD + d, x * acc)
def run(q, k, table, lens, cos):
    seqs, heads, dim = q.shape
    page, kvh = k.shape[1:3]
    out = torch.empty_like(q)
    decode[(seqs, heads)](q, k, table, lens, cos, out, table.stride(0), kvh, EVEN=seqs % page == 0, GROUP=heads // kvh, HEAD=dim, PAGE=page)
    return out
make = lambda *shape: torch.randn(*shape, dtype=torch.float16)
if __name__ == "__main__":
    run(make(3, 8, 64), make(40, 16, 2, 64), torch.zeros(3, 12, dtype=torch.int32), torch.tensor([1, 17, 190], dtype=torch.int32), -make(3, 64))
""", {"q": ["seqs", "kvh * 4", 64], "k": ["n", 16, "kvh", 64], "table": ["seqs", "stride_t"], "lens": ["seqs"], "cos": ["seqs", 64]},
    {"EVEN": False, "GROUP": 4, "HEAD": 64, "PAGE": 16}, ("n >= 2",), {"q": "f16", "k": "f16", "lens": "i32"}, grid=["seqs", "kvh * 4"]), "decode")
TRITON["lengths of the launching function's own"] = (Unseen("""import torch, triton
import triton.language as tl
@triton.jit
def gather(x, part, lock, n, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = row % GROUPS
    cols = tl.arange(0, BLOCK)
    while tl.atomic_cas(lock + at, 0, 1) == 1:
        pass
    seen = tl.load(lock + GROUPS + at)
    v = tl.load(x + row * n + cols, mask=cols < n)
    if seen != 0:
        v += tl.load(part + at * n + cols, mask=cols < n)
    tl.store(part + at * n + cols, v, mask=cols < n)
    tl.atomic_xchg(lock + GROUPS + at, 1)
    tl.atomic_xchg(lock + at, 0)
def run(x):
    m, n = x.shape
    G = 32
    lock = torch.zeros(2 * G, dtype=torch.int32, device=x.device)
    part = torch.zeros((G, n), dtype=torch.float32, device=x.device)
    gather[(m,)](x, part, lock, n, GROUPS=G, BLOCK=triton.next_power_of_2(n))
    return part.sum(0)
""", {"x": ["m", "n"], "part": [32, "n"], "lock": [64]}, {"GROUPS": 32}, ("n <= 1024",)), "gather")
TRITON["heads that share, a call that divides them"] = (Unseen("""import torch, triton
import triton.language as tl
@triton.jit
def scaled(q, k, o, H, KV, D: tl.constexpr):
    b, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, D)
    at = (b * H + h) * D + d
    tl.store(o + at, tl.load(q + at) * tl.load(k + (b * KV + h // (H // KV)) * D + d))
def run(q, k):
    B, H, D = q.shape
    o = torch.empty_like(q)
    scaled[(B, H)](q, k, o, H, k.shape[1], D)
    return o
run(torch.randn(3, 8, 64), torch.randn(3, 2, 64))
""", {"q": ["B", "H", 64], "k": ["B", "KV", 64]}, {"D": 64}, ("H % KV == 0",), grid=["B", "H"]), "scaled")
TRITON["a state of which only strides are passed, lengths that end a row, conditions and texts that nothing says"] = (Unseen("""import torch, triton
import triton.language as tl
@triton.jit
def step(x, lens, state, out, T, C, ss_b, ss_r, ALONG: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr):
    b, c = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = c < C
    state += b * ss_b
    held = tl.load(state + c, mask=mask)
    most = tl.load(state + 2 * ss_r + c, mask=mask)
    n = tl.load(lens + b)
    for t in range(T):
        if t >= n:
            held = held * 0.5
        v = tl.load(x + (b * T + t) * C + c, mask=mask)
        if KIND == "max":
            held = tl.maximum(held, v)
        else:
            held += v
        held = tl.minimum(held, most)
        if ALONG:
            held = held * 2.0
        tl.store(out + (b * T + t) * C + c, held, mask=mask)
    tl.store(state + ss_r + c, held, mask=mask)
def run(x, lens, state, along, kind):
    B, T, C = x.shape
    out = torch.empty_like(x)
    step[(B, triton.cdiv(C, 32))](x, lens, state, out, T, C, state.stride(0), state.stride(1), ALONG=along, KIND=kind, BLOCK=32)
    return out
""", {"x": ["B", "T", "C"], "lens": ["B"], "state": ["B", 3, "C"]}, {"ALONG": False, "KIND": "max"}, (), {"lens": "i64", "state": "f32"},
    {"ss_b": "3 * C", "ss_r": "C"}), "step")
TRITON["every number a literal"] = (Unseen("""import torch, triton
import triton.language as tl
@triton.jit
def scale(x, s, y, D: tl.constexpr, BLOCK: tl.constexpr):
    d = tl.arange(0, BLOCK)
    at = tl.program_id(0) * D + d
    tl.store(y + at, tl.load(x + at, mask=d < D) * tl.load(s + d, mask=d < D), mask=d < D)
def run(x, s, y):
    scale[(7,)](x, s, y, D=50, BLOCK=64)
""", {"x": [350], "s": [50], "y": [350]}, {"D": 50}, grid=[7]), "scale")
CUDA["pointers in memory: a product for each of a batch"] = Unseen("""
__global__ void each(const float** A, const float** B, float** C, int M, int N, int K) {
  const float* a = A[blockIdx.z]; const float* b = B[blockIdx.z]; float* c = C[blockIdx.z];
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0.f;
  for (int k = 0; k < K; ++k) sum += a[row * K + k] * b[k * N + col];
  c[row * N + col] = sum;
}
void run(const float** A, const float** B, float** C, int batch, int M, int N, int K) {
  each<<<dim3((N + 15) / 16, (M + 15) / 16, batch), dim3(16, 16)>>>(A, B, C, M, N, K);
}
""", {"A_rows": ["batch", "M", "K"], "B_rows": ["batch", "K", "N"], "C_rows": ["batch", "M", "N"]}, {"threads_x": 16},
    scalars={"A_rows_step": "M * K", "B_rows_step": "N * K", "C_rows_step": "M * N"})
CUDA["tiles of rows, whose first row alone is compared with a size"] = Unseen("""
__global__ void twice(const float* x, float* y, int M, int N) {
  int row = blockIdx.x * 4;
  if (row >= M) return;
  for (int r = 0; r < 4; ++r)
    for (int i = threadIdx.x; i < N; i += blockDim.x) y[(row + r) * N + i] = 2.f * x[(row + r) * N + i];
}
int main() {
  int M = 512, N = 100; float *x, *y;
  cudaMalloc(&x, M * N * sizeof(float)); cudaMalloc(&y, M * N * sizeof(float));
  twice<<<(M + 3) / 4, 32>>>(x, y, M, N);
}
""", {"x": ["M", "N"], "y": ["M", "N"]}, {"threads_x": 32}, ("M % 4 == 0",))
