"""GEMM in TileLang as it is first written: a CTA of one thread sums each element of C."""
import tilelang
import tilelang.language as T


@tilelang.jit
def gemm(M, N, K, dtype="float16"):
    @T.prim_func
    def gemm_naive(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(N, M, threads=1) as (j, i):
            total = T.alloc_var("float32", init=0.0)
            for k in T.serial(K):
                total += T.Cast("float32", A[i, k]) * T.Cast("float32", B[k, j])
            C[i, j] = T.Cast(dtype, total)

    return gemm_naive
