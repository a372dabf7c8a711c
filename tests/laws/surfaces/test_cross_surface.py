"""Ordinary kernels, of no package and no problem, from each surface to every surface: what is written is read back, and computes the same.

Each has what once went wrong: a choice among indices in a bounds check, loads of shared memory under a mask, vectors that are declared with their
value, padded rows, fp8, functions that a surface cannot say, boxes without a tensor map, products in a row.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kir.analysis.normal.normal_form import normalize
from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.lineage.legalize_for_surface import brought
from kir.rewrite import Trace
from kir.rewrite.meaning import difference, interpreted
from kir.surface import backend
from tests.programs import from_source
from tests.round_trips import ROUND_TRIPS

HEADS = {"py": "import tilelang\nimport tilelang.language as T\nimport triton\nimport triton.language as tl\n\n",
         "cu": "#include <cuda_fp16.h>\n#include <cuda_fp8.h>\n\n"}
AS_IT_IS, TAKEN_BACK, PERHAPS = "as it is", "after steps back", "after steps back, or not"
"""How a surface writes a kernel. How many passes lead back grows with the registry; what is refused must say what is left."""


@dataclass(frozen=True)
class Kernel:
    """A source text; sizes to run it at; and how each surface writes it."""

    suffix: str
    source: str
    binding: Binding
    sizes: dict[str, int | float]
    written: dict[str, str]


def within(*sizes: str) -> list[str]:
    return [f for s in sizes for f in (f"{s} >= 1", f"{s} <= 16384")]


def tensor(dtype: str, *shape: str | int) -> Tensor:
    return Tensor(shape=list(shape), dtype=dtype)


EMBEDDING = Kernel("py", '''
def embedding(V, D, L, rows=8):
    @T.prim_func
    def kernel(ids: T.Tensor((L,), "int32"), W: T.Tensor((V, D), "float16"), Y: T.Tensor((L, D), "float16")):
        with T.Kernel(T.ceildiv(L, rows), threads=128) as bx:
            for i, j in T.Parallel(rows, D):
                Y[bx * rows + i, j] = W[ids[bx * rows + i], j]
    return kernel
''', Binding(sizes=["V", "L"], metas={"D": 128}, facts=within("V", "L")), {"V": 4, "L": 13},
    {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": AS_IT_IS})
BOXES = Kernel("py", '''
def gemm(M, N, K, block=64):
    @T.prim_func
    def kernel(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            As = T.alloc_shared((block, block), "float16")
            Bs = T.alloc_shared((block, block), "float16")
            acc = T.alloc_fragment((block, block), "float32")
            full = T.alloc_barrier([1])
            T.clear(acc)
            tx = T.get_thread_binding()
            for k in T.serial(T.ceildiv(K, block)):
                T.tma_copy(A[by * block, k * block], As, barrier=full[0])
                T.tma_copy(B[k * block, bx * block], Bs, barrier=full[0])
                if tx == 0:
                    T.barrier_arrive(full[0])
                T.barrier_wait(full[0], k % 2)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[by * block, bx * block])
    return kernel
''', Binding(sizes=["M", "N", "K"], facts=[*within("M", "N", "K"), "K % 8 == 0", "N % 8 == 0"]), {"M": 66, "N": 72, "K": 200},
    {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": PERHAPS})
QUANTIZED = Kernel("py", '''
def quantized(M, N):
    @T.prim_func
    def kernel(X: T.Tensor((M, N), "bfloat16"), Y: T.Tensor((M, N), "float8_e4m3fn"), S: T.Tensor((M,), "float32")):
        with T.Kernel(M, threads=128) as bx:
            x = T.alloc_fragment((N,), "float32")
            top = T.alloc_fragment((1,), "float32")
            T.copy(X[bx, 0], x)
            T.reduce_absmax(x, top, dim=0)
            S[bx] = top[0] / 448.0
            for j in T.Parallel(N):
                Y[bx, j] = T.cast(x[j] / (top[0] / 900.0), "float8_e4m3fn")
    return kernel
''', Binding(sizes=["M"], metas={"N": 256}, facts=within("M")), {"M": 3}, {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": AS_IT_IS})
GATED = Kernel("py", '''
@triton.jit
def kernel(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(X + i, mask=i < n, other=0.0).to(tl.float32)
    b = tl.load(X + n + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(Y + i, (a * tl.sigmoid(a) * b / tl.sqrt(b * b + 1.0)).to(tl.bfloat16), mask=i < n)
''', Binding(sizes=["n"], facts=within("n"), grid=["ceildiv(n, BLOCK)"], metas={"BLOCK": 256}, options={"num_warps": 4},
             tensors={"X": tensor("bf16", "2 * n"), "Y": tensor("bf16", "n")}), {"n": 1000},
    {"cuda": AS_IT_IS, "tilelang": TAKEN_BACK, "triton": AS_IT_IS})
SCATTERED = Kernel("py", '''
@triton.jit
def kernel(X, I, Y, n, D: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    at = tl.load(I + r, mask=r < n, other=0)
    x = tl.load(X + r[:, None] * D + d[None, :], mask=r[:, None] < n, other=0.0)
    tl.atomic_add(Y + at[:, None] * D + d[None, :], x, mask=r[:, None] < n)
''', Binding(sizes=["n", "V"], facts=within("n", "V"), grid=["ceildiv(n, BLOCK)"], metas={"BLOCK": 16, "D": 32}, options={"num_warps": 4},
             tensors={"X": tensor("f32", "n", 32), "I": tensor("i32", "n"), "Y": Tensor(shape=["V", 32], dtype="f32", role="inout")}),
    {"n": 40, "V": 5}, {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": AS_IT_IS})
ATTENTION = Kernel("py", '''
@triton.jit
def kernel(Q, K, V, O, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rd = tl.arange(0, D)
    q = tl.load(Q + rm[:, None] * D + rd[None, :], mask=rm[:, None] < S, other=0.0)
    m = tl.full([BM], -float("inf"), tl.float32)
    l = tl.zeros([BM], tl.float32)
    o = tl.zeros([BM, D], tl.float32)
    for n in range(0, S, BN):
        rn = n + tl.arange(0, BN)
        k = tl.load(K + rn[None, :] * D + rd[:, None], mask=rn[None, :] < S, other=0.0)
        s = tl.where(rn[None, :] < S, tl.dot(q, k) * scale, -float("inf"))
        top = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - top[:, None])
        alpha = tl.exp(m - top)
        l = l * alpha + tl.sum(p, 1)
        v = tl.load(V + rn[:, None] * D + rd[None, :], mask=rn[:, None] < S, other=0.0)
        o = o * alpha[:, None] + tl.dot(p.to(tl.float16), v)
        m = top
    tl.store(O + rm[:, None] * D + rd[None, :], (o / l[:, None]).to(tl.float16), mask=rm[:, None] < S)
''', Binding(sizes=["S"], facts=within("S"), grid=["ceildiv(S, BM)"], metas={"D": 32, "BM": 64, "BN": 32}, dtypes={"scale": "f32"},
             tensors={x: tensor("f16", "S", 32) for x in "QKVO"}, options={"num_warps": 4}), {"S": 70, "scale": 0.2},
    {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": AS_IT_IS})
NORM = Kernel("cu", '''
__device__ float warp_sum(float v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
    return v;
}
__global__ void kernel(const __half* X, __half* Y, int N, float eps) {
    __shared__ float part[32];
    __shared__ float scale;
    int row = blockIdx.x, tid = threadIdx.x;
    float s = 0.f;
    for (int i = tid; i < N; i += blockDim.x) { float x = __half2float(X[row * N + i]); s += x * x; }
    s = warp_sum(s);
    if (tid % 32 == 0) part[tid / 32] = s;
    __syncthreads();
    if (tid < 32) {
        float v = warp_sum(tid < blockDim.x / 32 ? part[tid] : 0.f);
        if (tid == 0) scale = rsqrtf(v / N + eps);
    }
    __syncthreads();
    for (int i = tid; i < N; i += blockDim.x) Y[row * N + i] = __float2half(__half2float(X[row * N + i]) * scale);
}
''', Binding(sizes=["M", "N"], facts=within("M", "N"), grid=["M"], metas={"threads_x": 128}, tensors={x: tensor("f16", "M", "N") for x in "XY"}),
    {"M": 2, "N": 300, "eps": 1e-5}, {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": TAKEN_BACK})
VECTORS = Kernel("cu", '''
__global__ void kernel(const float4* X, float4* Y, int n4) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n4) {
        float4 v = X[i];
        v.x = fmaxf(v.x, 0.f); v.y = fmaxf(v.y, 0.f); v.z = fmaxf(v.z, 0.f); v.w = fmaxf(v.w, 0.f);
        Y[i] = v;
    }
}
''', Binding(sizes=["n"], facts=["n >= 4", "n <= 1048576", "n % 4 == 0"], grid=["ceildiv(n, 1024)"], scalars={"n4": "n // 4"}, metas={"threads_x": 256},
             tensors={x: tensor("f32", "n") for x in "XY"}), {"n": 1500}, {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": TAKEN_BACK})
PADDED = Kernel("cu", '''
__global__ void kernel(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float As[16][16], Bs[16][17];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    float acc = 0.f;
    for (int k0 = 0; k0 < K; k0 += 16) {
        As[ty][tx] = row < M && k0 + tx < K ? A[row * K + k0 + tx] : 0.f;
        Bs[ty][tx] = k0 + ty < K && col < N ? B[(k0 + ty) * N + col] : 0.f;
        __syncthreads();
        for (int k = 0; k < 16; ++k) acc += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = acc;
}
''', Binding(sizes=["M", "N", "K"], facts=within("M", "N", "K"), grid=["ceildiv(N, 16)", "ceildiv(M, 16)"], metas={"threads_x": 16, "threads_y": 16},
             tensors={"A": tensor("f32", "M", "K"), "B": tensor("f32", "K", "N"), "C": tensor("f32", "M", "N")}), {"M": 20, "N": 18, "K": 35},
    {"cuda": AS_IT_IS, "tilelang": TAKEN_BACK, "triton": TAKEN_BACK})
NARROWED = Kernel("cu", '''
__global__ void kernel(const __nv_fp8_e5m2* X, __nv_fp8_e4m3* Y, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) Y[i] = __nv_fp8_e4m3(float(X[i]) * 400.f);
}
''', Binding(sizes=["N"], facts=within("N"), grid=["ceildiv(N, 128)"], metas={"threads_x": 128},
             tensors={"X": tensor("f8e5m2", "N"), "Y": tensor("f8e4m3", "N")}), {"N": 300},
    {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": TAKEN_BACK})
ONLINE = Kernel("cu", '''
struct MD { float m; float d; };
__device__ __forceinline__ MD join(MD a, MD b) {
    bool bigger = a.m > b.m; MD big = bigger ? a : b; MD small = bigger ? b : a;
    MD r; r.d = big.d + small.d * __expf(small.m - big.m); r.m = big.m; return r;
}
__global__ void kernel(const half* __restrict__ in, half* __restrict__ out, int V) {
    in += (size_t)blockIdx.x * V; out += (size_t)blockIdx.x * V;
    __shared__ float sm[4], sd[4];
    MD md; md.m = -65504.f; md.d = 0.f;
    for (int i = threadIdx.x; i < V; i += 128) { MD nw; nw.m = __half2float(in[i]); nw.d = 1.f; md = join(md, nw); }
    for (int o = 16; o; o >>= 1) { MD other; other.m = __shfl_xor_sync(~0u, md.m, o); other.d = __shfl_xor_sync(~0u, md.d, o); md = join(md, other); }
    if (threadIdx.x % 32 == 0) { sm[threadIdx.x / 32] = md.m; sd[threadIdx.x / 32] = md.d; }
    __syncthreads();
    MD total; total.m = sm[0]; total.d = sd[0];
    for (int w = 1; w < 4; ++w) { MD nw; nw.m = sm[w]; nw.d = sd[w]; total = join(total, nw); }
    for (int i = threadIdx.x; i < V; i += 128) out[i] = __float2half(__expf(__half2float(in[i]) - total.m) / total.d);
}
''', Binding(sizes=["R", "V"], facts=within("R", "V"), grid=["R"], metas={"threads_x": 128}, tensors={x: tensor("f16", "R", "V") for x in ("in", "out")}),
    {"R": 2, "V": 300}, {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": TAKEN_BACK})
SCAN = Kernel("cu", '''
__device__ int warp_scan(int v) {
    int lane = threadIdx.x & 31;
    #pragma unroll
    for (int o = 1; o < 32; o <<= 1) { int u = __shfl_up_sync(0xffffffff, v, o); if (lane >= o) v += u; }
    return v;
}
__global__ void kernel(const int* __restrict__ x, int* __restrict__ y, unsigned* __restrict__ bins, int n) {
    __shared__ int sums[4];
    __shared__ unsigned local[32];
    int lane = threadIdx.x & 31, w = threadIdx.x >> 5, i = blockIdx.x * n + threadIdx.x;
    if (threadIdx.x < 32) local[threadIdx.x] = 0;
    int v = threadIdx.x < n ? x[i] : 0;
    int s = warp_scan(v);
    if (lane == 31) sums[w] = s;
    __syncthreads();
    if (threadIdx.x < n) atomicAdd(&local[v], 1u);
    if (w == 0) { int a = lane < 4 ? sums[lane] : 0; a = warp_scan(a); if (lane < 4) sums[lane] = a; }
    __syncthreads();
    if (w > 0) s += sums[w - 1];
    if (threadIdx.x < n) y[i] = s;
    if (threadIdx.x < 32) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
''', Binding(sizes=["R", "n"], facts=["R >= 1", "R <= 1024", "n >= 1", "n <= 128"], grid=["R"], metas={"threads_x": 128},
             tensors={"x": tensor("i32", "R", "n"), "y": tensor("i32", "R", "n"), "bins": Tensor(shape=[32], dtype="u32", role="inout")}),
    {"R": 2, "n": 100}, {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": TAKEN_BACK})
REGISTERS = Kernel("cu", '''
__global__ void kernel(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ float As[8][32], Bs[8][32];
    int tid = threadIdx.x, tx = tid % 8, ty = tid / 8, ar = tid >> 1, ac = (tid & 1) << 2, br = tid >> 3, bc = (tid & 7) << 2;
    float c[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) c[i][j] = 0.f;
    for (int k0 = 0; k0 < K; k0 += 8) {
        float4 a = *reinterpret_cast<const float4*>(&A[(blockIdx.y * 32 + ar) * K + k0 + ac]);
        As[ac][ar] = a.x; As[ac + 1][ar] = a.y; As[ac + 2][ar] = a.z; As[ac + 3][ar] = a.w;
        *reinterpret_cast<float4*>(&Bs[br][bc]) = *reinterpret_cast<const float4*>(&B[(k0 + br) * N + blockIdx.x * 32 + bc]);
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < 8; ++k)
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                #pragma unroll
                for (int j = 0; j < 4; ++j) c[i][j] = fmaf(As[k][ty * 4 + i], Bs[k][tx * 4 + j], c[i][j]);
        __syncthreads();
    }
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        *reinterpret_cast<float4*>(&C[(blockIdx.y * 32 + ty * 4 + i) * N + blockIdx.x * 32 + tx * 4]) = make_float4(c[i][0], c[i][1], c[i][2], c[i][3]);
}
''', Binding(sizes=["M", "N", "K"], facts=[*within("M", "N", "K"), "M % 32 == 0", "N % 32 == 0", "K % 8 == 0"], grid=["N // 32", "M // 32"],
             metas={"threads_x": 64}, tensors={"A": tensor("f32", "M", "K"), "B": tensor("f32", "K", "N"), "C": tensor("f32", "M", "N")}),
    {"M": 32, "N": 64, "K": 16}, {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": TAKEN_BACK})
PASSES = Kernel("py", '''
def softmax(M, N, BN=128):
    @T.prim_func
    def kernel(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=128) as row:
            x = T.alloc_fragment((BN,), "float32")
            top = T.alloc_fragment((1,), "float32")
            new = T.alloc_fragment((1,), "float32")
            part = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.fill(top, -T.infinity("float32"))
            T.fill(total, 0)
            for k in T.serial(T.ceildiv(N, BN)):
                for j in T.Parallel(BN):
                    x[j] = T.if_then_else(k * BN + j < N, X[row, k * BN + j], -T.infinity("float32"))
                T.copy(top, new)
                T.reduce_max(x, new, dim=0, clear=False)
                for j in T.Parallel(BN):
                    x[j] = T.exp2((x[j] - new[0]) * 1.44269504)
                T.reduce_sum(x, part, dim=0)
                total[0] = total[0] * T.exp2((top[0] - new[0]) * 1.44269504) + part[0]
                top[0] = new[0]
            for k in T.serial(T.ceildiv(N, BN)):
                for j in T.Parallel(BN):
                    if k * BN + j < N:
                        Y[row, k * BN + j] = T.exp2((X[row, k * BN + j] - top[0]) * 1.44269504) / total[0]
    return kernel
''', Binding(sizes=["M", "N"], facts=within("M", "N")), {"M": 2, "N": 200}, {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": AS_IT_IS})
KERNELS = {"an online softmax": ONLINE, "a scan and a histogram": SCAN, "a product in registers": REGISTERS, "a softmax in two passes": PASSES,
           "an embedding": EMBEDDING, "boxes": BOXES, "a quantization": QUANTIZED, "a gate": GATED, "a scatter": SCATTERED, "attention": ATTENTION,
           "a norm": NORM, "vectors": VECTORS, "a product of padded tiles": PADDED, "fp8": NARROWED}


def loaded(case: Kernel, folder: Path) -> n.Program:
    return from_source(folder, f"source.{case.suffix}", HEADS[case.suffix] + case.source, "kernel", replace(case.binding, kernel="kernel").text())


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_written_on_every_surface_and_means_the_same(name: str, tmp_path: Path) -> None:
    means_the_same_everywhere(KERNELS[name], tmp_path)


def means_the_same_everywhere(case: Kernel, tmp_path: Path) -> n.Program:
    """The program of a kernel that each surface writes as the case says, reads back, and computes alike."""
    p = loaded(case, tmp_path)
    sizes: dict[str, int] = case.sizes  # type: ignore[assignment]  # scalars that are floats go the same way
    wanted = interpreted(p, sizes)
    for surface, how in case.written.items():
        by = backend(surface)
        try:
            done, notes = brought(Trace(normalize(p)), by) if by.accepts(p) else (Trace(p), ())
        except KirError as refused:
            assert how == PERHAPS, (surface, refused)
            assert refused.diagnostics[-1].id == "KIR-B308" and all(d.anchor for d in refused.diagnostics)
            continue
        assert bool(notes) == (how != AS_IT_IS), (surface, notes)
        folder = tmp_path / surface
        folder.mkdir()
        assert difference(wanted, interpreted(ROUND_TRIPS[surface].read_back(done.program, folder), sizes), "approximate") == "", surface
    return p


def test_boxes_of_one_team_wait_until_what_they_replace_has_been_read(tmp_path: Path) -> None:
    """Copies that signal come after the products of the iteration before: all threads synchronize before, and maps are of the boxes copied."""
    from kir.backends.cuda.lowering.thread_code import thread_code

    threads, _, refused = thread_code(loaded(BOXES, tmp_path))
    assert not refused and [(m.name, m.of, m.box) for m in threads.tensor_maps] == [("A_map", "A", (64, 64)), ("B_map", "B", (64, 64))]
    result = interpreted(threads, BOXES.sizes, checked=True)  # type: ignore[arg-type]  # integers all
    assert [str(x) for x in result.findings if x.severity == "error"] == []


@pytest.mark.parametrize(("change", "message"), [
    (("K % 8 == 0", "K % 4 == 0"), "rows of 'A' are not known to start at multiples of 16 bytes"),
    (("block=64", "block=512"), "no tensor map has a box of 512 x 512 elements of 'A'"),
])
def test_boxes_that_no_tensor_map_has_are_refused_where_they_are_copied(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    facts = [f.replace(*change) for f in BOXES.binding.facts]
    case = Kernel("py", BOXES.source.replace(*change), replace(BOXES.binding, facts=facts), BOXES.sizes, {})
    first, *_ = backend("cuda").accepts(loaded(case, tmp_path))
    assert first.id == "KIR-B002" and message in first.message and first.needs and first.origin is not None


@pytest.mark.nvcc
def test_fp8_compiles_and_converts_in_hardware(tmp_path: Path) -> None:
    cuda = backend("cuda")
    made = cuda.compile(cuda.emit(loaded(NARROWED, tmp_path)), target("sm_90a"))
    assert "cvt.rn.satfinite.e4m3x2.f32" in made.kernels[0].texts["ptx"]


@pytest.mark.tilelang
@pytest.mark.parametrize(("name", "few"), [("a softmax in two passes", False), ("attention", True)])
def test_what_tilelang_takes_over_into_cuda_compiles(name: str, few: bool, tmp_path: Path) -> None:
    """Names that C++ keeps for itself, and products in a row whose rows are too few for all warps."""
    case = KERNELS[name]
    if few:
        case = Kernel(case.suffix, case.source, replace(case.binding, metas={"D": 32, "BM": 32, "BN": 32}), case.sizes, {})
    by = backend("tilelang")
    emitted = by.emit(loaded(case, tmp_path))
    assert " new = " not in emitted.text and ("_shared, v" in emitted.text) == few
    assert by.compile(emitted, target("sm_80")).kernels


@pytest.mark.triton
def test_what_threads_do_compiles_as_tiles(tmp_path: Path) -> None:
    by = backend("triton")
    done, notes = brought(Trace(loaded(ONLINE, tmp_path)), by)
    assert "~element-per-thread" in {d.subject for d in notes}
    assert by.compile(by.emit(done.program), target("sm_80")).kernels
