"""RMSNorm in TileLang as it is first written: a CTA of one thread walks along each row."""
import tilelang
import tilelang.language as T


@tilelang.jit
def rmsnorm(M, N, dtype="float16"):
    @T.prim_func
    def rmsnorm_naive(
        eps: T.float32,
        X: T.Tensor((M, N), dtype),
        W: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
        R: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(M, threads=1) as (i,):
            total = T.alloc_var("float32", init=0.0)
            for j in T.serial(N):
                total += T.Cast("float32", X[i, j]) * T.Cast("float32", X[i, j])
            r = T.rsqrt(total / T.Cast("float32", N) + eps)
            R[i] = r
            for j in T.serial(N):
                Y[i, j] = T.Cast(dtype, T.Cast("float32", X[i, j]) * r * T.Cast("float32", W[j]))

    return rmsnorm_naive
