"""GEMM in TileLang: a pipeline of stages in shared memory, CTAs in panels of rows, the result staged for wide stores."""
import tilelang
import tilelang.language as T


@tilelang.jit
def gemm(M, N, K, block_M: int, block_N: int, block_K: int, group: int, stages: int, threads: int, dtype="float16"):
    """C[M, N] = A[M, K] B[K, N], row-major, accumulated in f32; panels of `group` rows of tiles share what they read of B."""

    @T.prim_func
    def gemm_pipelined(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M) * T.ceildiv(N, block_N), threads=threads) as (pid,):
            rows = T.ceildiv(M, block_M)
            width = T.ceildiv(N, block_N) * group
            panel = pid // width
            height = T.min(rows - panel * group, group)
            m = panel * group + pid % width % height
            n = pid % width // height

            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_shared = T.alloc_shared((block_M, block_N), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")

            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                T.copy(A[m * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, n * block_N], B_shared)
                T.gemm(A_shared, B_shared, acc)
            T.copy(acc, C_shared)
            T.copy(C_shared, C[m * block_M, n * block_N])

    return gemm_pipelined
