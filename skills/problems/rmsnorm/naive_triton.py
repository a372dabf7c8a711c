"""RMSNorm as the problem states it, in Triton: a program for each row, walking along it."""
import triton
import triton.language as tl


@triton.jit
def rmsnorm_naive(X, W, Y, R, M, N, eps):
    """Y[i, :] = X[i, :] R[i] W with R[i] = 1 / sqrt(mean of X[i, :] squared + eps), row-major, in f32."""
    i = tl.program_id(0)
    total = 0.0
    for j in range(N):
        total += tl.load(X + i * N + j).to(tl.float32) * tl.load(X + i * N + j).to(tl.float32)
    r = tl.rsqrt(total / N + eps)
    tl.store(R + i, r)
    for j in range(N):
        tl.store(Y + i * N + j, (tl.load(X + i * N + j).to(tl.float32) * r * tl.load(W + j).to(tl.float32)).to(tl.float16))
