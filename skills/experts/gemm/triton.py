"""GEMM in Triton: tensor descriptors, persistent CTAs, grouped raster."""
import triton
import triton.language as tl


@triton.jit
def gemm_persistent(
    A, B, C, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, STAGES: tl.constexpr,
):
    """C[M, N] = A[M, K] B[K, N], row-major, accumulated in f32. Each CTA takes every grid-size-th tile, in panels of GROUP_M rows."""
    a_desc = tl.make_tensor_descriptor(A, shape=[M, K], strides=[K, 1], block_shape=[BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(B, shape=[K, N], strides=[N, 1], block_shape=[BLOCK_K, BLOCK_N])
    c_desc = tl.make_tensor_descriptor(C, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N])
    rows = tl.cdiv(M, BLOCK_M)
    columns = tl.cdiv(N, BLOCK_N)
    width = GROUP_M * columns
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0)):
        panel = tile // width
        first = panel * GROUP_M
        height = min(rows - first, GROUP_M)
        m = first + tile % width % height
        n = tile % width // height
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in tl.range(0, tl.cdiv(K, BLOCK_K), num_stages=STAGES):
            a = a_desc.load([m * BLOCK_M, k * BLOCK_K])
            b = b_desc.load([k * BLOCK_K, n * BLOCK_N])
            acc = tl.dot(a, b, acc)
        c_desc.store([m * BLOCK_M, n * BLOCK_N], acc.to(C.dtype.element_ty))
