"""Row softmax in TileLang: a CTA holds a row in registers and reads it once."""
import tilelang
import tilelang.language as T


@tilelang.jit
def softmax(M, N, block_N: int, threads: int, dtype="float16"):
    """Y[i, :] = softmax(X[i, :]) for rows of at most `block_N` columns."""

    @T.prim_func
    def softmax_row(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(M, threads=threads) as (row,):
            x = T.alloc_fragment((block_N,), "float32")
            e = T.alloc_fragment((block_N,), "float32")
            top = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")

            for j in T.Parallel(block_N):
                x[j] = T.if_then_else(j < N, T.Cast("float32", X[row, j]), -T.infinity("float32"))
            T.reduce_max(x, top, dim=0)
            for j in T.Parallel(block_N):
                e[j] = T.exp(x[j] - top[0])
            T.reduce_sum(e, total, dim=0)
            for j in T.Parallel(block_N):
                Y[row, j] = T.Cast(dtype, e[j] / total[0])

    return softmax_row
