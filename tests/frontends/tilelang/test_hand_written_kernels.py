"""Kernels as people write them: each is read without an opaque statement, computes what NumPy does, and is written and read back equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kir.analysis.normal.normal_form import normalize
from kir.interp import run
from kir.ir.binding import Binding
from kir.ir.printer import program_text
from kir.lineage.legalize_for_surface import brought
from kir.rewrite import Trace
from kir.surface import backend
from tests.frontends.tilelang.numpy_kernels import F16, F32, I32, Kernel, between, loaded, means_what_it_says_and_is_read_back
from tests.frontends.tilelang.reading import HEAD
from tests.programs import from_source


def columns(image: np.ndarray) -> np.ndarray:
    """A 3 x 3 convolution's matrix of an image [H, W, C] with a border of zeros."""
    h, w, _ = image.shape
    wide = np.pad(image, ((1, 1), (1, 1), (0, 0)))
    return np.concatenate([wide[y:y + h, x:x + w] for y in range(3) for x in range(3)], -1).reshape(h * w, -1)


SPLIT_K = Kernel("""
def matmul(M, N, K, parts: int = 2, dtype="float16"):
    each = K // parts
    @T.prim_func
    def kernel(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 16), T.ceildiv(M, 16), parts, threads=32) as (bx, by, bz):
            A_s = T.alloc_shared((16, 16), dtype)
            B_s = T.alloc_shared((16, 16), dtype)
            acc = T.alloc_fragment((16, 16), "float32")
            T.use_swizzle(panel_size=4)
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(each, 16), num_stages=2):
                T.copy(A[by * 16, bz * each + ko * 16], A_s)
                T.copy(B[bx * 16, bz * each + ko * 16], B_s)
                T.gemm(A_s, B_s, acc, transpose_B=True)
            T.atomic_add(C[by * 16, bx * 16], acc)
    return kernel
""", lambda g: {"A": g.standard_normal((20, 64)).astype(F16), "B": g.standard_normal((18, 64)).astype(F16), "C": np.zeros((20, 18), F32)},
    lambda a: {"C": a["A"].astype(F32) @ a["B"].astype(F32).T}, Binding(sizes=["M", "N", "K"], facts=[*between("M", "N", "K"), "K % 32 == 0"]))
HISTOGRAM = Kernel("""
def count(n, bins: int = 8):
    @T.prim_func
    def kernel(X: T.Tensor((n,), "int32"), first: T.int32, Counts: T.Tensor((bins,), "int32")):
        with T.Kernel(T.ceildiv(n, 64), threads=32) as bx:
            local = T.alloc_shared((bins,), "int32")
            for i in T.Parallel(bins):
                local[i] = 0
            for i in T.Parallel(64):
                if bx * 64 + i < n:
                    T.atomic_add(local[X[bx * 64 + i] % bins], 1)
            for i in T.Parallel(bins):
                if local[i] > 0:
                    T.atomic_add(Counts[first + i], local[i])
    return kernel
""", lambda g: {"X": g.integers(0, 99, 100).astype(I32), "Counts": np.zeros(8, I32)},
    lambda a: {"Counts": np.concatenate([np.zeros(3, I32), np.bincount(a["X"] % 8, minlength=8)[:5]])},
    Binding(sizes=["n"], facts=between("n"), scalars={"first": 3}))
GEMV = Kernel("""
def gemv(N, K, rows: int = 4, dtype="float16"):
    @T.prim_func
    def kernel(x: T.Tensor((K,), dtype), W: T.Tensor((N, K), dtype), y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, rows), threads=(16, rows)) as bn:
            tk = T.get_thread_binding(0)
            tn = T.get_thread_binding(1)
            a = T.alloc_local((4,), dtype)
            w = T.alloc_local((4,), dtype)
            part = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            T.clear(part)
            for bk in T.serial(T.ceildiv(K, 64)):
                for v in T.vectorized(4):
                    a[v] = x[bk * 64 + tk * 4 + v]
                    w[v] = W[bn * rows + tn, bk * 64 + tk * 4 + v]
                for v in T.serial(4):
                    part[0] += a[v].astype("float32") * w[v].astype("float32")
            with T.attr(T.comm_reducer(lambda p, q: p + q, [T.Cast("float32", 0)]), "reduce_scope", T.reinterpret(T.uint64(0), dtype="handle")):
                T.evaluate(T.tvm_thread_allreduce(T.uint32(1), part[0], True, total[0], tk, dtype="handle"))
            if tk == 0:
                y[bn * rows + tn] = total[0]
    return kernel
""", lambda g: {"x": g.standard_normal(70).astype(F16), "W": g.standard_normal((6, 70)).astype(F16)},
    lambda a: {"y": a["W"].astype(F32) @ a["x"].astype(F32)}, Binding(sizes=["N", "K"], facts=between("N", "K")))
FAR = replace(GEMV, source=GEMV.source.replace("(16, rows)", "(rows, 16)").replace("tk = T.get_thread_binding(0)", "tk = T.get_thread_binding(1)")
              .replace("tn = T.get_thread_binding(1)", "tn = T.get_thread_binding(0)"))
"""Threads that share a row are not in one warp."""
EAGER = Kernel("""
@tilelang.jit
def kernel(A, B, block: int = 32, dtype: T.dtype = T.float16):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), dtype)
    B: T.Tensor((M, N), dtype)
    C = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, block), M, threads=32) as (bx, row):
        a = T.alloc_fragment((block,), dtype)
        T.copy(A[row, bx * block], a)
        for j in T.Parallel(block):
            C[row, bx * block + j] = T.max(T.cast(a[j], "float32") + B[row, bx * block + j], 0.0)
    return C
""", lambda g: {"A": g.standard_normal((3, 70)).astype(F16), "B": g.standard_normal((3, 70)).astype(F16)},
    lambda a: {"C": np.maximum(a["A"].astype(F32) + a["B"].astype(F32), 0)}, Binding(facts=between("M", "N")))
IM2COL = Kernel("""
def convolution(H, W, C: int = 8, F: int = 16, dtype="float16"):
    @T.prim_func
    def kernel(x: T.Tensor((1, H, W, C), dtype), w: T.Tensor((3, 3, C, F), dtype), y: T.Tensor((H * W, F), "float32")):
        with T.Kernel(T.ceildiv(H * W, 16), threads=32) as by:
            tile = T.alloc_shared((16, C), dtype)
            kern = T.alloc_shared((C, F), dtype)
            flat = T.Tensor((9 * C, F), dtype, w.data)
            acc = T.alloc_fragment((16, F), "float32")
            T.clear(acc)
            for k in T.Pipelined(9, num_stages=2):
                T.im2col(x, tile, by, k, 3, 1, 1, 1)
                T.copy(flat[k * C, 0], kern)
                T.gemm(tile, kern, acc)
            T.copy(acc, y[by * 16, 0])
    return kernel
""", lambda g: {"x": g.standard_normal((1, 5, 6, 8)).astype(F16), "w": g.standard_normal((3, 3, 8, 16)).astype(F16)},
    lambda a: {"y": columns(a["x"][0].astype(F32)) @ a["w"].astype(F32).reshape(-1, 16)}, Binding(sizes=["H", "W"], facts=between("H", "W")))
STENCIL = Kernel("""
def blur(H, W, bh: int = 4, bw: int = 8):
    @T.prim_func
    def kernel(A: T.Tensor((H, W), "float32"), B: T.Tensor((H, W), "float32")):
        with T.Kernel(T.ceildiv(W, bw), T.ceildiv(H, bh), threads=32) as (bx, by):
            halo = T.alloc_shared((bh + 2, bw + 2), "float32")
            for i, j in T.Parallel(bh + 2, bw + 2):
                y = by * bh + i - 1
                x = bx * bw + j - 1
                if y >= 0 and y < H and x >= 0 and x < W:
                    halo[i, j] = A[y, x]
                else:
                    halo[i, j] = 0.0
            for i, j in T.Parallel(bh, bw):
                if by * bh + i < H and bx * bw + j < W:
                    B[by * bh + i, bx * bw + j] = halo[i, j + 1] + halo[i + 2, j + 1] + halo[i + 1, j] + halo[i + 1, j + 2]
    return kernel
""", lambda g: {"A": g.integers(0, 9, (7, 11)).astype(F32)},
    lambda a: {"B": (p := np.pad(a["A"], 1))[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]}, Binding(sizes=["H", "W"], facts=between("H", "W")))
SEARCH = Kernel("""
def lower_bound(n, q):
    @T.prim_func
    def kernel(Sorted: T.Tensor((n,), "float32"), Query: T.Tensor((q,), "float32"), Pos: T.Tensor((q,), "int32")):
        with T.Kernel(T.ceildiv(q, 32), threads=32) as bx:
            tx = T.get_thread_binding()
            lo = T.alloc_var("int32")
            hi = T.alloc_var("int32")
            lo = 0
            hi = n
            at = bx * 32 + tx
            if at < q:
                while lo < hi:
                    mid = (lo + hi) // 2
                    if Sorted[mid] < Query[at]:
                        lo = mid + 1
                    else:
                        hi = mid
                Pos[at] = lo
    return kernel
""", lambda g: {"Sorted": np.sort(g.standard_normal(20)).astype(F32), "Query": g.standard_normal(40).astype(F32)},
    lambda a: {"Pos": np.searchsorted(a["Sorted"], a["Query"])}, Binding(sizes=["n", "q"], facts=between("n", "q")))
SCALED = Kernel("""
def ceildiv(a, b):
    return (a + b - 1) // b

def scaled(M, N, dtype="float32"):
    @T.prim_func
    def kernel(X: T.Tensor((M, N), dtype), S: T.Tensor((M, ceildiv(N, 16)), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, 16), M, threads=32) as (bx, row):
            s = S[row, bx]
            for j in T.Parallel(16):
                Y[row, bx * 16 + j] = X[row, bx * 16 + j] * s
    return kernel
""", lambda g: {"X": g.standard_normal((2, 32)).astype(F32), "S": g.standard_normal((2, 2)).astype(F32)},
    lambda a: {"Y": a["X"] * np.repeat(a["S"], 16, 1)}, Binding(sizes=["M", "N"], facts=[*between("M", "N"), "N % 16 == 0"]))
BIASED = Kernel("""
def columns(M, N):
    @T.prim_func
    def kernel(X: T.Tensor((M, N), "float32"), Bias: T.Tensor((M,), "float32"), Y: T.Tensor((M, 32), "float32")):
        with T.Kernel(M, threads=32) as row:
            acc = T.alloc_fragment((32,), "float32")
            for j in T.Parallel(32):
                acc[j] = Bias[row]
            for k in T.serial(T.ceildiv(N, 32)):
                for j in T.Parallel(32):
                    acc[j] += X[row, k * 32 + j]
            for j in T.Parallel(32):
                Y[row, j] = acc[j]
    return kernel
""", lambda g: {"X": g.integers(0, 9, (2, 64)).astype(F32), "Bias": g.integers(0, 9, 2).astype(F32)},
    lambda a: {"Y": a["X"][:, :32] + a["X"][:, 32:] + a["Bias"][:, None]},
    Binding(sizes=["M", "N"], facts=[*between("M", "N"), "N % 64 == 0"]))
PREFIX = Kernel("""
def prefix(M, N: int = 32):
    @T.prim_func
    def kernel(A: T.Tensor((M, N), "float32"), B: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, 4), threads=32) as bx:
            a = T.alloc_shared((4, N), "float32")
            b = T.alloc_shared((4, N), "float32")
            T.copy(A[bx * 4, 0], a)
            T.cumsum(src=a, dst=b, dim=1, reverse=True)
            T.cumsum(src=b, dim=0)
            T.copy(b, B[bx * 4, 0])
    return kernel
""", lambda g: {"A": g.integers(0, 9, (4, 32)).astype(F32)}, lambda a: {"B": np.cumsum(np.cumsum(a["A"][:, ::-1], 1)[:, ::-1], 0)},
    Binding(sizes=["M"], facts=between("M")))
NARROW = Kernel("""
def widened(n):
    @T.prim_func
    def kernel(X: T.Tensor((n,), "int8"), U: T.Tensor((n,), "uint8"), Y: T.Tensor((n, 8), "int32")):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
            for t in T.Parallel(32):
                i = bx * 32 + t
                v = X[i]
                u = U[i]
                Y[i, 0] = v * 2
                Y[i, 1] = u + 200
                Y[i, 2] = v >> 4
                Y[i, 3] = ((u >> 4) & 15) - 8
                Y[i, 4] = T.if_then_else(v == 255, 1, u / 7)
                Y[i, 5] = T.max(v, 100) * 100
                Y[i, 6] = T.Cast("int8", v * 2) + T.Cast("int8", 1)
                Y[i, 7] = -v - 100
    return kernel
""", lambda g: {"X": np.arange(-128, 128).astype(np.int8), "U": np.arange(256).astype(np.uint8)},
    lambda a: {"Y": np.stack([(v := a["X"].astype(I32)) * 2, (u := a["U"].astype(I32)) + 200, v >> 4, (u >> 4) - 8, u // 7,
                              np.maximum(v, 100) * 100, ((v * 2).astype(np.int8) + np.int8(1)), (-a["X"]).astype(I32) - 100], 1)},
    Binding(sizes=["n"], facts=between("n")))
KERNELS = {"narrow integers": NARROW, "split k": SPLIT_K, "histogram": HISTOGRAM, "gemv": GEMV, "gemv by threads of several warps": FAR,
           "eager": EAGER, "im2col": IM2COL, "stencil": STENCIL,
           "search": SEARCH, "scaled": SCALED, "biased": BIASED, "prefix": PREFIX}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_means_what_it_says_and_is_read_back(name: str, tmp_path: Path) -> None:
    means_what_it_says_and_is_read_back(KERNELS[name], tmp_path)


BROUGHT = """
def pixels(H, W):
    @T.prim_func
    def kernel(x: T.Tensor((1, H, W, 64), "float16"), y: T.Tensor((H * W, 64), "float16")):
        with T.Kernel(T.ceildiv(H * W, 64), threads=128) as by:
            tile = T.alloc_shared((64, 64), "float16")
            full = T.alloc_barrier(128)
            T.im2col(x, tile, by, 4, 3, 1, 1, 1, annotations={"barrier": full[0]})
            T.barrier_arrive(full[0])
            T.barrier_wait(full[0], 0)
            T.copy(tile, y[by * 64, 0])
    return kernel
"""


@pytest.mark.parametrize(("old", "new", "why"), [
    ("3, 1, 1, 1, annotations", "3, 1, 2, 1, annotations", "taps that are apart"),
    ('{"barrier": full[0]}', '{"barrier": full[0], "eviction_policy": 1}', "annotations but a barrier"),
    ("3, 1, 1, 1, annotations", "3, 1, 1, 1, annotations", ""),
])
def test_pixels_that_are_waited_for_are_a_copy_of_a_view_or_text(old: str, new: str, why: str, tmp_path: Path) -> None:
    binding = Binding(kernel="kernel", sizes=["H", "W"], facts=between("H", "W"))
    text = program_text(from_source(tmp_path, "source.py", HEAD + BROUGHT.replace(old, new), "kernel", binding.text()))
    assert why in text if why else "via tma signal" in text and "opaque" not in text
    assert ("view global" in text) == (not why)


def test_panels_of_ctas_are_undone_where_the_launch_cannot_say_them(tmp_path: Path) -> None:
    program = loaded(tmp_path, SPLIT_K.source, SPLIT_K.binding)
    assert dict(program.kernels[0].attrs)["raster_panel"] == 4
    assert "T.use_swizzle(4)" in backend("tilelang").emit(program).text
    for surface in ("cuda", "triton"):
        assert any("panels" in d.message for d in backend(surface).accepts(program))
    done, notes = brought(Trace(normalize(program)), backend("cuda"))
    assert [d.subject for d in notes] == ["~panel-order"]
    assert "atomicAdd" in backend("cuda").emit(done.program).text


DECODE = """
def split_sum(n, parts: int = 4):
    @T.macro
    def first(X, Part):
        with T.Kernel(parts, threads=32) as p:
            f = T.alloc_fragment((32,), "float32")
            t = T.alloc_fragment((1,), "float32")
            T.clear(f)
            for k in T.serial(T.ceildiv(n, parts * 32)):
                for j in T.Parallel(32):
                    f[j] += X[(k * parts + p) * 32 + j]
            T.reduce_sum(f, t, dim=0)
            Part[p] = t[0]
    @T.macro
    def second(Part, Y):
        with T.Kernel(1, threads=32) as _:
            total = T.alloc_var("float32", init=0.0)
            for k in T.serial(parts):
                total += Part[k]
            Y[0] = total
    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32"), Part: T.Tensor((parts,), "float32"), Y: T.Tensor((1,), "float32")):
        first(X, Part)
        second(Part, Y)
    return kernel
"""


def test_a_function_of_two_kernels(tmp_path: Path) -> None:
    program = loaded(tmp_path, DECODE, Binding(sizes=["n"], facts=between("n")))
    assert [k.name for k in program.kernels] == ["kernel", "kernel_2"]
    x = np.arange(300, dtype=F32)
    out = run(program, {"X": x, "Part": np.zeros(4, F32)}).outputs
    np.testing.assert_allclose(out["Y"], [x.sum()])
    assert len(backend("tilelang").emit(program).entries) == 2
