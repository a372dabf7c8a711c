"""Kernels as a user brings them: each with the host code that launches it, in a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

T1_SCALED = """\
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_scale_kernel(x_ptr, y_ptr, scale, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=-float("inf")) * scale
    x = x - tl.max(x, axis=0)
    e = tl.exp(x)
    tl.store(y_ptr + row * y_stride + cols, e / tl.sum(e, axis=0), mask=mask)


def softmax_scale(x, scale=1.0):
    m, n = x.shape
    y = torch.empty_like(x)
    softmax_scale_kernel[(m,)](x, y, scale, x.stride(0), y.stride(0), n, BLOCK=triton.next_power_of_2(n))
    return y


if __name__ == "__main__":
    x = torch.randn(512, 781, device="cuda")
    torch.testing.assert_close(softmax_scale(x, 0.5), torch.softmax(x * 0.5, dim=-1))
"""

T2_RMS = """\
import triton
import triton.language as tl
import torch


@triton.jit
def _rms_fwd(X, W, Y, stride, N, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + row * stride + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc += x * x
    rstd = 1 / tl.sqrt(tl.sum(acc, axis=0) / N + eps)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        mask = cols < N
        x = tl.load(X + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(W + cols, mask=mask)
        tl.store(Y + row * stride + cols, x * rstd * w, mask=mask)


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        y = torch.empty_like(x)
        x_arg = x.reshape(-1, x.shape[-1])
        M, N = x_arg.shape
        MAX_FUSED_SIZE = 65536 // x.element_size()
        BLOCK_SIZE = 256
        num_warps = 4
        if N > MAX_FUSED_SIZE:
            raise RuntimeError("too wide")
        _rms_fwd[(M,)](x_arg, weight, y, x_arg.stride(0), N, eps, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps)
        return y
"""

T3_MM = """\
import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=3),
                          triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=3)], key=["M", "N", "K"])
@triton.jit
def mm_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
              BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        rk = k * BLOCK_K + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rm[:, None] * stride_am + rk[None, :] * stride_ak, mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        b = tl.load(b_ptr + rk[:, None] * stride_bk + rn[None, :] * stride_bn, mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(a, b)
    tl.store(c_ptr + rm[:, None] * stride_cm + rn[None, :] * stride_cn, acc.to(tl.float16), mask=(rm[:, None] < M) & (rn[None, :] < N))


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    assert a.shape[1] == b.shape[0], "Incompatible dimensions"
    M, K = a.shape
    K, N = b.shape
    c = torch.empty((M, N), device=a.device, dtype=torch.float16)
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]), triton.cdiv(N, META["BLOCK_N"]))
    mm_kernel[grid](a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1))
    return c
"""

T3_TEST_MM = """\
import pytest, torch
from mm import matmul

@pytest.mark.parametrize("m, n, k", [(128, 256, 512), (100, 200, 300)])
@pytest.mark.parametrize("dtype", [torch.float16])
def test_matmul(m, n, k, dtype):
    a = torch.randn((m, k), device="cuda", dtype=dtype)
    b = torch.randn((k, n), device="cuda", dtype=dtype)
    torch.testing.assert_close(matmul(a, b), a @ b)
"""

C1_RMSNORM = """\
#include <cuda_runtime.h>
#include <cstdio>
#include <vector>

template <int THREADS>
__global__ void rmsnorm_kernel(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int n, float eps) {
    __shared__ float partial[THREADS];
    int row = blockIdx.x;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        float v = x[row * n + i];
        sum += v * v;
    }
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int s = THREADS / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) partial[threadIdx.x] += partial[threadIdx.x + s];
        __syncthreads();
    }
    float scale = rsqrtf(partial[0] / n + eps);
    for (int i = threadIdx.x; i < n; i += THREADS) y[row * n + i] = x[row * n + i] * scale * w[i];
}

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { printf("%s\\n", cudaGetErrorString(e)); return 1; } } while (0)

int main(int argc, char** argv) {
    int m = 2048, n = 4096;
    float *x, *w, *y;
    CHECK(cudaMalloc(&x, m * n * sizeof(float)));
    CHECK(cudaMalloc(&w, n * sizeof(float)));
    CHECK(cudaMalloc((void**)&y, m * n * sizeof(float)));
    rmsnorm_kernel<256><<<m, 256>>>(x, w, y, n, 1e-6f);
    CHECK(cudaDeviceSynchronize());
    return 0;
}
"""

C2_GELU_EXT = """\
#include <torch/extension.h>
#include <cuda_runtime.h>

template <typename scalar_t>
__global__ void bias_gelu_kernel(const scalar_t* x, const scalar_t* bias, scalar_t* out, int64_t rows, int64_t cols) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < rows * cols) {
        float v = static_cast<float>(x[i]) + static_cast<float>(bias[i % cols]);
        out[i] = static_cast<scalar_t>(0.5f * v * (1.0f + erff(v * 0.70710678f)));
    }
}

torch::Tensor bias_gelu(torch::Tensor x, torch::Tensor bias) {
    TORCH_CHECK(x.dim() == 2, "x must be a matrix");
    TORCH_CHECK(x.is_cuda() && bias.is_cuda(), "on the GPU");
    TORCH_CHECK(x.size(1) == bias.size(0), "sizes");
    auto out = torch::empty_like(x);
    const int64_t rows = x.size(0);
    const int64_t cols = x.size(1);
    const int threads = 256;
    const int blocks = (rows * cols + threads - 1) / threads;
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "bias_gelu", ([&] {
        bias_gelu_kernel<scalar_t><<<blocks, threads>>>(x.data_ptr<scalar_t>(), bias.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), rows, cols);
    }));
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("bias_gelu", &bias_gelu); }
"""

C3_GEMM = """\
#include <cuda_fp16.h>
#define TILE 16

__global__ void matmul(const half* A, const half* B, float* C, int M, int N, int K) {
    __shared__ half As[TILE][TILE];
    __shared__ half Bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int col = blockIdx.x * TILE + threadIdx.x;
    float acc = 0.0f;
    for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
        As[threadIdx.y][threadIdx.x] = (row < M && t * TILE + threadIdx.x < K) ? A[row * K + t * TILE + threadIdx.x] : __float2half(0.0f);
        Bs[threadIdx.y][threadIdx.x] = (col < N && t * TILE + threadIdx.y < K) ? B[(t * TILE + threadIdx.y) * N + col] : __float2half(0.0f);
        __syncthreads();
        for (int k = 0; k < TILE; ++k) acc += __half2float(As[threadIdx.y][k]) * __half2float(Bs[k][threadIdx.x]);
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = acc;
}
"""

C3_LAUNCH = """\
#include "gemm.h"
#define TILE 16
void matmul(const half* A, const half* B, float* C, int M, int N, int K);

void run_matmul(const half* A, const half* B, float* C, int M, int N, int K, cudaStream_t stream) {
    dim3 block(TILE, TILE);
    dim3 grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
    void* args[] = {&A, &B, &C, &M, &N, &K};
    cudaLaunchKernel((void*)matmul, grid, block, args, 0, stream);
}
"""

L1_TL_MM = """\
import tilelang
import tilelang.language as T
import torch


@tilelang.jit(out_idx=[-1])
def matmul(M, N, K, block_M, block_N, block_K, dtype="float16", accum_dtype="float"):

    @T.prim_func
    def gemm(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return gemm


def main():
    kernel = matmul(1024, 1024, 512, 128, 128, 32)
    a = torch.randn(1024, 512).cuda().half()
    b = torch.randn(512, 1024).cuda().half()
    c = kernel(a, b)
    torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-2)


if __name__ == "__main__":
    main()
"""

L2_TL_RMS = """\
import tilelang
import tilelang.language as T
import torch


def rms_norm(M, N, blk_m):
    dtype = "float"

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, blk_m), threads=128) as bx:
            A_shared = T.alloc_shared((blk_m, N), dtype)
            A_pow_local = T.alloc_fragment((blk_m, N), dtype)
            A_local = T.alloc_fragment((blk_m, N), dtype)
            A_powsum = T.alloc_fragment((blk_m,), dtype)
            T.copy(A[bx * blk_m:(bx + 1) * blk_m, :], A_shared)
            T.copy(A_shared, A_local)
            for i, j in T.Parallel(blk_m, N):
                A_pow_local[i, j] = A_local[i, j] * A_local[i, j]
            T.reduce_sum(A_pow_local, A_powsum, dim=1)
            for i in T.Parallel(blk_m):
                A_powsum[i] = T.rsqrt(A_powsum[i] / N + 1e-12)
            for i, j in T.Parallel(blk_m, N):
                A_local[i, j] *= A_powsum[i]
            T.copy(A_local, A_shared)
            T.copy(A_shared, B[bx * blk_m:(bx + 1) * blk_m, :])

    return main


if __name__ == "__main__":
    M, N, blk_m = 1024, 256, 1
    program = rms_norm(M, N, blk_m)
    kernel = tilelang.compile(program, out_idx=-1, target="cuda")
    a = torch.randn(M, N, device="cuda")
    b = kernel(a)
"""

L3_TL_ADD = """\
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[2])
def elementwise_add(n, block=256, threads=128):
    @T.prim_func
    def add(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=threads) as bx:
            for i in T.Parallel(block):
                C[bx * block + i] = A[bx * block + i] + B[bx * block + i]
    return add


def vector_add(a, b):
    n = a.shape[0]
    assert b.shape[0] == n
    return elementwise_add(n)(a, b)
"""


KERNELS: Mapping[str, Mapping[str, str]] = {
    "softmax with a scale (Triton)": {"scaled.py": T1_SCALED},
    "RMS norm as an autograd function (Triton)": {"rms.py": T2_RMS},
    "autotuned GEMM, launched by a test (Triton)": {"mm.py": T3_MM, "test_mm.py": T3_TEST_MM},
    "RMS norm with a main program (CUDA)": {"rmsnorm.cu": C1_RMSNORM},
    "bias and GELU as a torch extension (CUDA)": {"gelu_ext.cu": C2_GELU_EXT},
    "GEMM launched from another file (CUDA)": {"gemm.cu": C3_GEMM, "launch.cpp": C3_LAUNCH},
    "GEMM (TileLang)": {"tl_mm.py": L1_TL_MM},
    "RMS norm (TileLang)": {"tl_rms.py": L2_TL_RMS},
    "addition (TileLang)": {"tl_add.py": L3_TL_ADD},
}


def laid(folder: Path, name: str) -> Path:
    """Put a user's files into a folder; the one that holds the kernel."""
    files = KERNELS[name]
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    return folder / next(f for f in files if "test_" not in f and not f.endswith(".cpp"))
