"""Attention in TileLang: the scores of a block of queries never leave the CTA, and the softmax goes along with the keys."""
import tilelang
import tilelang.language as T


@tilelang.jit
def fmha(B, H, L, block_M: int, block_N: int, stages: int, threads: int, dtype="float16"):
    """O[b, h, i, :] = sum_j softmax_j(Q[b, h, i, :] . K[b, h, j, :] / 8) V[b, h, j, :] over heads of 64 columns."""
    scale = 0.18033688011112042  # log2(e) / sqrt(64): the exponentials are powers of two

    @T.prim_func
    def fmha_forward(
        Q: T.Tensor((B, H, L, 64), dtype),
        K: T.Tensor((B, H, L, 64), dtype),
        V: T.Tensor((B, H, L, 64), dtype),
        O: T.Tensor((B, H, L, 64), dtype),  # noqa: E741  # the problem's name
    ):
        with T.Kernel(T.ceildiv(L, block_M), H, B, threads=threads) as (tile, h, b):
            Q_shared = T.alloc_shared((block_M, 64), dtype)
            K_shared = T.alloc_shared((block_N, 64), dtype)
            V_shared = T.alloc_shared((block_N, 64), dtype)
            O_shared = T.alloc_shared((block_M, 64), dtype)
            s = T.alloc_fragment((block_M, block_N), "float32")
            p = T.alloc_fragment((block_M, block_N), "float32")
            p_half = T.alloc_fragment((block_M, block_N), dtype)
            acc = T.alloc_fragment((block_M, 64), "float32")
            top = T.alloc_fragment((block_M,), "float32")
            best = T.alloc_fragment((block_M,), "float32")
            new_top = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")

            T.copy(Q[b, h, tile * block_M : tile * block_M + block_M, 0:64], Q_shared)
            T.clear(acc)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            for j in T.Pipelined(T.ceildiv(L, block_N), num_stages=stages):
                T.copy(K[b, h, j * block_N : j * block_N + block_N, 0:64], K_shared)
                T.copy(V[b, h, j * block_N : j * block_N + block_N, 0:64], V_shared)
                T.clear(s)
                T.gemm(Q_shared, K_shared, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                for r, c in T.Parallel(block_M, block_N):
                    p[r, c] = T.if_then_else(j * block_N + c < L, s[r, c] * scale, -T.infinity("float32"))
                T.reduce_max(p, best, dim=1)
                for r in T.Parallel(block_M):
                    new_top[r] = T.max(top[r], best[r])
                for r in T.Parallel(block_M):
                    rescale[r] = T.exp2(top[r] - new_top[r])
                for r, c in T.Parallel(block_M, block_N):
                    p[r, c] = T.exp2(p[r, c] - new_top[r])
                T.reduce_sum(p, part, dim=1)
                for r in T.Parallel(block_M):
                    total[r] = total[r] * rescale[r] + part[r]
                for r, d in T.Parallel(block_M, 64):
                    acc[r, d] = acc[r, d] * rescale[r]
                for r in T.Parallel(block_M):
                    top[r] = new_top[r]
                T.copy(p, p_half)
                T.gemm(p_half, V_shared, acc, policy=T.GemmWarpPolicy.FullRow)
            for r, d in T.Parallel(block_M, 64):
                acc[r, d] = acc[r, d] / total[r]
            T.copy(acc, O_shared)
            T.copy(O_shared, O[b, h, tile * block_M : tile * block_M + block_M, 0:64])

    return fmha_forward
