"""Row softmax as the problem states it, in Triton: a program for each row, walking along it."""
import triton
import triton.language as tl


@triton.jit
def softmax_naive(X, Y, M, N):
    """Y[i, :] = exp(X[i, :] - max) / sum, row-major, in f32."""
    i = tl.program_id(0)
    top = float("-inf")
    for j in range(N):
        top = tl.maximum(top, tl.load(X + i * N + j).to(tl.float32))
    total = 0.0
    for j in range(N):
        total += tl.exp(tl.load(X + i * N + j).to(tl.float32) - top)
    for j in range(N):
        tl.store(Y + i * N + j, (tl.exp(tl.load(X + i * N + j).to(tl.float32) - top) / total).to(tl.float16))
