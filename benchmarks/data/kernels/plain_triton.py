"""Small right Triton kernels, each with its launch."""
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(X, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    x = tl.load(X + row * N + j, mask=j < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(Y + row * N + j, e / tl.sum(e, axis=0), mask=j < N)


def launch_softmax(x):
    m, n = x.shape
    assert n <= 1024
    y = torch.empty_like(x)
    softmax_kernel[(m,)](x, y, n, BLOCK=1024)
    return y


@triton.jit
def norm_kernel(X, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    x = tl.load(X + row * N + j, mask=j < N, other=0.0)
    mean = tl.sum(x, axis=0) / N
    d = tl.where(j < N, x - mean, 0.0)
    var = tl.sum(d * d, axis=0) / N
    tl.store(Y + row * N + j, d / tl.sqrt(var + 1e-5), mask=j < N)


def launch_norm(x):
    m, n = x.shape
    assert n <= 512
    y = torch.empty_like(x)
    norm_kernel[(m,)](x, y, n, BLOCK=512)
    return y


@triton.jit
def gemm_kernel(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    i = pm * BM + tl.arange(0, BM)
    j = pn * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        a = tl.load(A + i[:, None] * K + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(B + k[:, None] * N + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(C + i[:, None] * N + j[None, :], acc.to(tl.float16), mask=(i[:, None] < M) & (j[None, :] < N))


def launch_gemm(a: "torch.float16", b: "torch.float16"):
    m, k = a.shape
    n = b.shape[1]
    c = torch.empty((m, n), dtype=torch.float16)
    a = a.to(torch.float16)
    gemm_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, c, m, n, k, BM=32, BN=32, BK=32)
    return c


@triton.jit
def atomic_kernel(X, Y, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + row * N + j, mask=j < N, other=0.0)
    tl.atomic_add(Y + j, x, mask=j < N)


def launch_atomic(x):
    m, n = x.shape
    y = torch.zeros((n,), dtype=torch.float32)
    atomic_kernel[(m, triton.cdiv(n, 64))](x, y, m, n, BLOCK=64)
    return y


@triton.jit
def add_kernel(X, Y, Z, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < N
    tl.store(Z + i, tl.load(X + i, mask=m) + tl.load(Y + i, mask=m), mask=m)


def launch_add(x, y):
    z = torch.empty_like(x)
    n = x.numel()
    add_kernel[(triton.cdiv(n, 256),)](x, y, z, n, BLOCK=256)
    return z


@triton.jit
def row_kernel(X, Y, M, N, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for j0 in range(0, N, BLOCK):
        j = j0 + tl.arange(0, BLOCK)
        acc += tl.load(X + row * stride + j, mask=j < N, other=0.0)
    tl.store(Y + row, tl.sum(acc, axis=0) / N)


def launch_row(x):
    m, n = x.shape
    y = torch.empty((m,), dtype=torch.float32)
    row_kernel[(m,)](x, y, m, n, x.stride(0), BLOCK=128)
    return y


@triton.jit
def block_kernel(X, Y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.make_block_ptr(X, shape=(M, N), strides=(N, 1), offsets=(tl.program_id(0) * BM, tl.program_id(1) * BN), block_shape=(BM, BN), order=(1, 0))
    y = tl.make_block_ptr(Y, shape=(M, N), strides=(N, 1), offsets=(tl.program_id(0) * BM, tl.program_id(1) * BN), block_shape=(BM, BN), order=(1, 0))
    v = tl.load(x, boundary_check=(0, 1))
    tl.store(y, v * 2.0, boundary_check=(0, 1))


def launch_block(x):
    m, n = x.shape
    y = torch.empty_like(x)
    block_kernel[(triton.cdiv(m, 16), triton.cdiv(n, 64))](x, y, m, n, BM=16, BN=64)
    return y


@triton.jit
def sem_kernel(X, C, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(X + i, mask=i < N, other=0)
    tl.atomic_add(C + v, 1, mask=(i < N) & (v >= 0) & (v < 64))


def launch_sem(x):
    n = x.numel()
    c = torch.zeros((64,), dtype=torch.int32)
    sem_kernel[(triton.cdiv(n, 256),)](x, c, n, BLOCK=256)
    return c


@triton.jit
def int_kernel(X, Y, M, N, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + r * N + j, tl.load(X + r * N + j, mask=j < N), mask=j < N)


def launch_int(x):
    m, n = x.shape
    y = torch.empty_like(x)
    int_kernel[(m, triton.cdiv(n, 128))](x, y, m, n, BLOCK=128)
    return y


@triton.jit
def or_kernel(X, Y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    m = (i < M)[:, None] & (j < N)[None, :]
    tl.store(Y + i[:, None] * N + j[None, :], tl.load(X + i[:, None] * N + j[None, :], mask=m) * 2, mask=m)


def launch_or(x):
    m, n = x.shape
    y = torch.empty_like(x)
    or_kernel[(triton.cdiv(m, 16), triton.cdiv(n, 32))](x, y, m, n, BM=16, BN=32)
    return y


@triton.jit
def cum_kernel(X, Y, N, B: tl.constexpr):
    r = tl.program_id(0)
    carry = 0.0
    for j0 in range(0, N, B):
        j = j0 + tl.arange(0, B)
        x = tl.load(X + r * N + j, mask=j < N, other=0.0)
        tl.store(Y + r * N + j, tl.cumsum(x, axis=0) + carry, mask=j < N)
        carry += tl.sum(x, axis=0)


def launch_cum(x):
    m, n = x.shape
    y = torch.empty_like(x)
    cum_kernel[(m,)](x, y, n, B=128)
    return y


@triton.jit
def arg_kernel(X, Y, N, B: tl.constexpr):
    r = tl.program_id(0)
    j = tl.arange(0, B)
    x = tl.load(X + r * N + j, mask=j < N, other=-float("inf"))
    tl.store(Y + r, tl.argmax(x, axis=0))


def launch_arg(x):
    m, n = x.shape
    y = torch.empty((m,), dtype=torch.int32)
    arg_kernel[(m,)](x, y, n, B=triton.next_power_of_2(n))
    return y
