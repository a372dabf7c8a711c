"""RMSNorm in TileLang: a CTA holds a row in registers and reads it once."""
import tilelang
import tilelang.language as T


@tilelang.jit
def rmsnorm(M, N, block_N: int, threads: int, dtype="float16"):
    """Y[i, :] = X[i, :] R[i] W with R[i] = 1 / sqrt(mean of X[i, :] squared + eps), for rows of at most `block_N` columns."""

    @T.prim_func
    def rmsnorm_row(
        eps: T.float32,
        X: T.Tensor((M, N), dtype),
        W: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
        R: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(M, threads=threads) as (row,):
            x = T.alloc_fragment((block_N,), "float32")
            square = T.alloc_fragment((block_N,), "float32")
            total = T.alloc_fragment((1,), "float32")

            for j in T.Parallel(block_N):
                x[j] = T.Cast("float32", X[row, j])
            for j in T.Parallel(block_N):
                square[j] = x[j] * x[j]
            T.reduce_sum(square, total, dim=0)
            r = T.rsqrt(total[0] / T.Cast("float32", N) + eps)
            R[row] = r
            for j in T.Parallel(block_N):
                Y[row, j] = T.Cast(dtype, x[j] * r * T.Cast("float32", W[j]))

    return rmsnorm_row
