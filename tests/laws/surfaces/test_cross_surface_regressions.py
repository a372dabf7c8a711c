"""Kernels in ways of writing that once went wrong, from one surface to every surface: rows that are counted in vectors, loops and tiles of nothing,
names that a binding takes too, cases that go on into the next, groups of the whole grid, whole numbers as halves."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from kir.analysis.normal.normal_form import normalize
from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.ir.printer import program_text
from kir.ir.visit import statements, transform
from kir.lineage.legalize_for_surface import brought
from kir.rewrite import Trace
from kir.rewrite.meaning import draw, interpreted
from kir.surface import backend

from .test_cross_surface import AS_IT_IS, PERHAPS, TAKEN_BACK, Kernel, loaded, means_the_same_everywhere, tensor, within

EVERYWHERE = {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": TAKEN_BACK}
PAIRS = Kernel("cu", '''
__global__ void kernel(const half* __restrict__ x, const half* __restrict__ b, half* __restrict__ y, int cols) {
  const half2* x2 = reinterpret_cast<const half2*>(x) + blockIdx.x * (cols / 2);
  const half2* b2 = reinterpret_cast<const half2*>(b);
  half2* y2 = reinterpret_cast<half2*>(y) + blockIdx.x * (cols / 2);
  const half2 one = __float2half2_rn(1.0f);
  for (int i = threadIdx.x; i < cols / 2; i += blockDim.x) {
    half2 v = __hadd2(x2[i], b2[i]);
    y2[i] = __hfma2(__hmul2(v, v), v, one);
  }
}
''', Binding(sizes=["R", "cols"], facts=[*within("R", "cols"), "cols % 2 == 0"], grid=["R"], metas={"threads_x": 64},
             tensors={"x": tensor("f16", "R", "cols"), "b": tensor("f16", "cols"), "y": tensor("f16", "R", "cols")}), {"R": 3, "cols": 136}, EVERYWHERE)
SWITCH = Kernel("cu", '''
__constant__ const float steps[4] = {1.f, 0.5f, 0.25f, 0.125f};
__global__ void kernel(const float* x, const int* kind, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  switch (kind[i] & 3) {
    case 0: v *= 3.f; break;
    case 1:
    case 2: v -= steps[2];
    default: v = v * steps[3];
  }
  y[i] = v;
}
''', Binding(sizes=["n"], facts=within("n"), grid=["ceildiv(n, 128)"], metas={"threads_x": 128},
             tensors={"x": tensor("f32", "n"), "kind": tensor("i32", "n"), "y": tensor("f32", "n")}), {"n": 200},
    {"cuda": AS_IT_IS, "tilelang": PERHAPS, "triton": PERHAPS})
PERMUTED = Kernel("cu", '''
struct Shape { int b, s, h, d; };
__global__ void kernel(const half* in, half* out, const Shape sh) {
  int total = sh.b * sh.s * sh.h * sh.d;
  for (int idx = threadIdx.x + blockIdx.x * blockDim.x; idx < total; idx += blockDim.x * gridDim.x) {
    int d = idx % sh.d, h = idx / sh.d % sh.h, s = idx / (sh.d * sh.h) % sh.s, b = idx / (sh.d * sh.h * sh.s);
    out[((b * sh.h + h) * sh.s + s) * sh.d + d] = in[idx];
  }
}
''', Binding(sizes=["b", "s", "h", "d"], facts=[f for x in "bshd" for f in (f"{x} >= 1", f"{x} <= 64")], grid=["4"], metas={"threads_x": 64},
             scalars={f"sh_{x}": x for x in "bshd"}, tensors={"in": tensor("f16", *"bshd"), "out": tensor("f16", *"bhsd")}),
    {"b": 2, "s": 5, "h": 3, "d": 8}, {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": PERHAPS})
GROUPS = Kernel("cu", '''
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void kernel(const float* __restrict__ in, float* __restrict__ twice, float* __restrict__ sums, int n) {
  auto grid = cg::this_grid();
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<32>(block);
  __shared__ float part[4];
  float v = 0.f;
  for (size_t i = grid.thread_rank(); i < n; i += grid.size()) { v += in[i]; twice[i] = in[i] * 2.f; }
  v = cg::reduce(tile, v, cg::plus<float>());
  if (tile.thread_rank() == 0) part[tile.meta_group_rank()] = v;
  block.sync();
  if (block.thread_rank() == 0) sums[block.group_index().x] = part[0] + part[1] + part[2] + part[3];
}
''', Binding(sizes=["n"], facts=within("n"), grid=["3", "1", "1"], metas={"threads_x": 128},
             tensors={"in": tensor("f32", "n"), "twice": tensor("f32", "n"), "sums": tensor("f32", 3)}), {"n": 1000},
    {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": PERHAPS})
BYTES = Kernel("cu", '''
__global__ void kernel(const int8_t* __restrict__ W, const int8_t* __restrict__ x, int* __restrict__ y, int K) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  const int* w4 = reinterpret_cast<const int*>(W + (size_t)row * K);
  const int* x4 = reinterpret_cast<const int*>(x);
  int acc = 0;
  for (int i = threadIdx.x; i < K / 4; i += 32) acc = __dp4a(__ldg(w4 + i), __ldg(x4 + i), acc);
  for (int o = 16; o > 0; o >>= 1) acc += __shfl_down_sync(0xffffffff, acc, o);
  if (threadIdx.x == 0) y[row] = acc;
}
''', Binding(sizes=["M", "K"], facts=[*within("M", "K"), "M % 4 == 0", "K % 4 == 0"], grid=["M // 4"], metas={"threads_x": 32, "threads_y": 4},
             tensors={"W": tensor("i8", "M", "K"), "x": tensor("i8", "K"), "y": tensor("i32", "M")}), {"M": 8, "K": 256},
    {"cuda": AS_IT_IS, "tilelang": PERHAPS, "triton": PERHAPS})
NIBBLES = Kernel("py", '''
@triton.jit
def kernel(Q, S, Y, Out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q = (tl.load(Q + i // 8, mask=i < n, other=0) >> (i % 8 * 4)) & 0xF
    tl.store(Y + i, (q.to(tl.float16) - 8.0) * tl.load(S), mask=i < n)
    h = tl.histogram(q, BINS, mask=i < n)
    tl.atomic_add(Out + tl.arange(0, BINS), h)
''', Binding(sizes=["n"], facts=within("n"), grid=["ceildiv(n, BLOCK)"], metas={"BLOCK": 128, "BINS": 16}, options={"num_warps": 4},
             tensors={"Q": tensor("i32", "ceildiv(n, 8)"), "S": tensor("f16", 1), "Y": tensor("f16", "n"),
                      "Out": Tensor(shape=[16], dtype="i32", role="inout")}), {"n": 300}, {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": AS_IT_IS})
TAPS = Kernel("cu", '''
template <int TAPS, int BLOCK>
__global__ void kernel(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int L) {
  __shared__ float s[BLOCK + TAPS - 1];
  const int c = blockIdx.y, l0 = blockIdx.x * BLOCK, t = threadIdx.x;
  for (int i = t; i < BLOCK + TAPS - 1; i += BLOCK) {
    int l = l0 + i - (TAPS - 1);
    s[i] = l >= 0 && l < L ? x[c * L + l] : 0.f;
  }
  float wr[TAPS];
  #pragma unroll
  for (int k = 0; k < TAPS; ++k) wr[k] = __ldg(&w[c * TAPS + k]);
  __syncthreads();
  float acc = 0.f;
  #pragma unroll
  for (int k = 0; k < TAPS; ++k) acc += wr[k] * s[t + k];
  if (l0 + t < L) y[c * L + l0 + t] = acc / (1.f + __expf(-acc));
}
''', Binding(sizes=["C", "L"], facts=within("C", "L"), grid=["ceildiv(L, 64)", "C"], metas={"threads_x": 64, "TAPS": 4, "BLOCK": 64},
             tensors={"x": tensor("f32", "C", "L"), "w": tensor("f32", "C", 4), "y": tensor("f32", "C", "L")}), {"C": 2, "L": 100},
    {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": PERHAPS})
NOTHING = Kernel("py", '''
def nothing(M, N, items=0):
    @T.prim_func
    def kernel(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=128) as bx:
            a = T.alloc_fragment((items,), "float32")
            for k in T.Parallel(items):
                a[k] = X[bx, k]
            T.copy(X[bx, 0:items], Y[bx, 0:items])
            for k in T.Pipelined(items, num_stages=2):
                T.copy(Y[bx, 0:N], X[bx, 0:N])
            for k in T.Parallel(items):
                Y[bx, k] = a[k] * 2.0
            for k in T.Parallel(N):
                Y[bx, k] = X[bx, k]
    return kernel
''', Binding(sizes=["M"], facts=within("M"), metas={"N": 256}), {"M": 3}, {"cuda": AS_IT_IS, "tilelang": AS_IT_IS, "triton": AS_IT_IS})
ASYNC = Kernel("cu", '''
__device__ __forceinline__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void fetch(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\\n" ::"r"(shared_address(to)), "l"(from));
}
__device__ __forceinline__ void rows(unsigned (&r)[4], const half* p) {
  asm volatile("ldmatrix.sync.aligned.x4.m8n8.shared.b16 {%0, %1, %2, %3}, [%4];\\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)));
}
__device__ __forceinline__ void columns(unsigned (&r)[2], const half* p) {
  asm volatile("ldmatrix.sync.aligned.x2.trans.m8n8.shared.b16 {%0, %1}, [%2];\\n" : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(p)));
}
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\\n"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <int TILE_M = 64, int TILE_N = 64, int TILE_K = 32, int SLOTS = 2>
__global__ void __launch_bounds__(128) kernel(const half* __restrict__ A, const half* __restrict__ B, half* __restrict__ C, int M, int N, int K) {
  __shared__ half left[SLOTS][TILE_M][TILE_K + 8], right[SLOTS][TILE_K][TILE_N + 8];
  const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, down = warp % 2, across = warp / 2, panels = K / TILE_K;
  float sums[2][4][4] = {};
  auto load = [&](int slot, int panel) {
    #pragma unroll
    for (int share = 0; share < 2; ++share) {
      const int chunk = tid + share * 128;
      const int m = chunk / 4, k = chunk % 4 * 8;
      fetch(&left[slot][m][k], &A[(blockIdx.y * TILE_M + m) * K + panel * TILE_K + k]);
      const int d = chunk / 8, n = chunk % 8 * 8;
      fetch(&right[slot][d][n], &B[(panel * TILE_K + d) * N + blockIdx.x * TILE_N + n]);
    }
  };
  load(0, 0);
  asm volatile("cp.async.commit_group;\\n" ::);
  for (int panel = 0; panel < panels; ++panel) {
    if (panel + 1 < panels) load((panel + 1) % SLOTS, panel + 1);
    asm volatile("cp.async.commit_group;\\n" ::);
    asm volatile("cp.async.wait_group 1;\\n" ::);
    __syncthreads();
    const int slot = panel % SLOTS;
    #pragma unroll
    for (int k = 0; k < TILE_K; k += 16) {
      unsigned a[2][4], b[4][2];
      #pragma unroll
      for (int i = 0; i < 2; ++i) rows(a[i], &left[slot][down * 32 + i * 16 + lane % 16][k + lane / 16 * 8]);
      #pragma unroll
      for (int j = 0; j < 4; ++j) columns(b[j], &right[slot][k + lane % 16][across * 32 + j * 8]);
      #pragma unroll
      for (int i = 0; i < 2; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) multiply(sums[i][j], a[i], b[j]);
    }
    __syncthreads();
  }
  #pragma unroll
  for (int i = 0; i < 2; ++i)
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int row = blockIdx.y * TILE_M + down * 32 + i * 16 + lane / 4, column = blockIdx.x * TILE_N + across * 32 + j * 8 + lane % 4 * 2;
      const half2 upper = __floats2half2_rn(sums[i][j][0], sums[i][j][1]), lower = __floats2half2_rn(sums[i][j][2], sums[i][j][3]);
      *reinterpret_cast<half2*>(&C[row * N + column]) = upper;
      *reinterpret_cast<half2*>(&C[(row + 8) * N + column]) = lower;
    }
}
''', Binding(sizes=["M", "N", "K"], facts=[*within("M", "N", "K"), "M % 64 == 0", "N % 64 == 0", "K % 32 == 0"], grid=["N // 64", "M // 64"],
             metas={"threads_x": 128}, tensors={"A": tensor("f16", "M", "K"), "B": tensor("f16", "K", "N"), "C": tensor("f16", "M", "N")}),
    {"M": 64, "N": 128, "K": 96}, {"cuda": AS_IT_IS, "tilelang": TAKEN_BACK, "triton": TAKEN_BACK})
KERNELS = {"a product by cp.async": ASYNC, "pairs": PAIRS, "a switch": SWITCH, "sizes named as locals": PERMUTED, "groups": GROUPS, "bytes": BYTES,
           "nibbles": NIBBLES, "taps": TAPS, "nothing": NOTHING}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_written_on_every_surface_and_means_the_same(name: str, tmp_path: Path) -> None:
    case = KERNELS[name]
    p = means_the_same_everywhere(case, tmp_path)
    found = interpreted(p, case.sizes, checked=True)  # type: ignore[arg-type]  # integers all
    assert [str(x) for x in found.findings if x.severity == "error"] == []
    x, y = draw(p, case.sizes), found.outputs  # type: ignore[arg-type]
    match name:
        case "a product by cp.async":
            wanted = x["A"].astype(np.float32) @ x["B"].astype(np.float32)
            assert np.abs(y["C"].astype(np.float32) - wanted).max() <= 2e-3 * np.abs(wanted).max()
        case "pairs":
            v = x["x"].astype(np.float32) + x["b"].astype(np.float32)
            assert np.allclose(y["y"].astype(np.float32), v ** 3 + 1, rtol=2e-2, atol=2e-2)
        case "a switch":
            assert np.array_equal(y["y"], np.select([x["kind"] == 0, x["kind"] == 3], [x["x"] * 3, x["x"] / 8], (x["x"] - np.float32(0.25)) / 8))
        case "sizes named as locals":
            assert np.array_equal(y["out"], x["in"].transpose(0, 2, 1, 3))
        case "groups":
            assert np.array_equal(y["twice"], x["in"] * 2) and np.isclose(y["sums"].sum(), x["in"].sum(), rtol=1e-4)
        case "bytes":
            assert np.array_equal(y["y"], x["W"].astype(int) @ x["x"].astype(int))
        case "nibbles":
            q = (np.repeat(x["Q"], 8)[:300] >> (np.arange(300) % 8 * 4)) & 15
            assert np.array_equal(y["Out"], x["Out"] + np.bincount(q, minlength=16))
        case "nothing":
            assert np.array_equal(y["Y"], x["X"])


def test_rows_that_a_part_of_a_row_counts_are_rows_only_where_it_divides(tmp_path: Path) -> None:
    """`blockIdx.x * (cols / 2)` pairs are row blockIdx.x of an even number of columns; of others they are places in flat memory, never of row 0."""
    assert "x[block_x, " in program_text(loaded(PAIRS, tmp_path))
    odd = Kernel("cu", PAIRS.source, replace(PAIRS.binding, facts=within("R", "cols")), {}, {})
    text = program_text(loaded(odd, tmp_path))
    assert "x_flat[" in text and "x[0," not in text


def test_topk_is_the_beginning_of_what_is_sorted(tmp_path: Path) -> None:
    case = Kernel("py", '''
@triton.jit
def kernel(X, Y, N, BLOCK: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(X + row * N + c, mask=c < N, other=-float("inf"))
    tl.store(Y + row * K + tl.arange(0, K), tl.topk(x, K))
''', Binding(sizes=["M", "N"], facts=[*within("M"), "N >= 8", "N <= 64"], grid=["M"], metas={"BLOCK": 64, "K": 8}, options={"num_warps": 4},
             tensors={"X": tensor("f32", "M", "N"), "Y": tensor("f32", "M", 8)}), {"M": 3, "N": 50}, {"triton": AS_IT_IS})
    p = means_the_same_everywhere(case, tmp_path)
    sizes = {"M": 3, "N": 50}
    assert np.array_equal(interpreted(p, sizes).outputs["Y"], -np.sort(-draw(p, sizes)["X"], axis=1)[:, :8])


def _without(never: Sequence[n.Stmt], old: n.Node, new: n.Node) -> n.Node:
    """A loop as one that runs never, if it is one of those."""
    return replace(new, hi=new.lo) if isinstance(new, n.For) and any(old is x for x in never) else new


@pytest.mark.parametrize("surface", ["cuda", "triton", "tilelang"])
def test_kernels_whose_loops_run_never_are_written_or_refused(surface: str, tmp_path: Path) -> None:
    """Whatever loops run zero times: one after the other, and all, of kernels from each surface."""
    by = backend(surface)
    for name, case in {"taps": TAPS, "groups": GROUPS, "nibbles": NIBBLES, "pairs": PAIRS}.items():
        p = loaded(case, tmp_path)
        loops = [s for s in statements(p.kernels[0].body) if isinstance(s, n.For) and s.kind != "thread"]
        for never in ([x] for x in loops) if len(loops) < 2 else (*([x] for x in loops), loops):
            q = normalize(transform(p, partial(_without, never)))
            try:
                done = brought(Trace(q), by)[0].program if by.accepts(q) else q
            except KirError as refused:
                assert refused.diagnostics[-1].id == "KIR-B308", (name, refused)
                continue
            assert by.emit(done).text


@pytest.mark.nvcc
def test_whole_numbers_become_halves_by_one_rounding(tmp_path: Path) -> None:
    by = backend("cuda")
    emitted = by.emit(loaded(NIBBLES, tmp_path))
    assert "__int2half_rn(" in emitted.text
    assert by.compile(emitted, target("sm_80")).kernels


@pytest.mark.tilelang
def test_arrays_of_a_team_that_parallel_loops_write_are_fragments(tmp_path: Path) -> None:
    """One thread does all the work of a CTA: its arrays are the CTA's."""
    from kir.rewrite import pass_class, sites
    from kir.rewrite.driver import apply
    p = loaded(TAPS, tmp_path)
    for name in ("spread-threads", "read-only-load", "approximate-intrinsic"):
        site = sites(pass_class(name).with_options({}), p, "backward")[0]
        p = apply(p, site.params, site, "backward").program
    by = backend("tilelang")
    emitted = by.emit(p)
    assert "wr = T.alloc_fragment((4,)" in emitted.text
    assert by.compile(emitted, target("sm_80")).kernels
