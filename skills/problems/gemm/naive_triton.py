"""GEMM as the problem states it, in Triton: a program for each element of C, walking along K."""
import triton
import triton.language as tl


@triton.jit
def gemm_naive(A, B, C, M, N, K):
    """C[M, N] = A[M, K] B[K, N], row-major, accumulated in f32."""
    i = tl.program_id(0)
    j = tl.program_id(1)
    acc = 0.0
    for k in range(K):
        acc += tl.load(A + i * K + k).to(tl.float32) * tl.load(B + k * N + j).to(tl.float32)
    tl.store(C + i * N + j, acc.to(tl.float16))
