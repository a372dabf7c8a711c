"""The ways in which people write TileLang: tensors typed in a function's body, reducers, copies of single threads, barriers of the grid, hints."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.frontends.tilelang.frontend import TileLangFrontend
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.canonical import alpha_equal
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rebuild.callers import called
from kir.ir.rules.verify import verify
from kir.ir.visit import statements
from kir.learning.corpus.roundtrip.equal import same_program
from kir.learning.corpus.roundtrip.one import examine
from kir.surface import backend
from tests.frontends.reading import opaque
from tests.frontends.tilelang.numpy_kernels import F16, F32, Arrays, Kernel, between, loaded, means_what_it_says_and_is_read_back
from tests.frontends.tilelang.reading import read, written

TYPED = Kernel("""
@tilelang.jit
def kernel(B, A, rows: int = 16, flip: bool = True, dtype=T.float32):
    M, N = T.const("M, N")
    wide = N
    shape = (wide, M) if flip else (M, wide)
    tile = [rows, 32]
    A: T.Tensor(shape, dtype)
    B: T.Tensor([M, wide], dtype)
    C = T.empty((M, wide), dtype)
    with T.Kernel(T.ceildiv(wide, 32), T.ceildiv(M, rows), threads=32) as (bx, by):
        a = T.alloc_fragment(tile, dtype)
        for i, j in T.Parallel(rows, 32):
            a[i, j] = A[bx * 32 + j, by * rows + i] + B[by * rows + i, bx * 32 + j]
        T.copy(a, C[by * rows, bx * 32])
    return C
""", lambda g: {"A": g.integers(0, 9, (40, 7)).astype(F32), "B": g.integers(0, 9, (7, 40)).astype(F32)}, lambda a: {"C": a["A"].T + a["B"]},
    Binding(sizes=["M", "N"], facts=between("M", "N")))
REDUCERS = Kernel("""
def peaks(M, N: int = 64):
    @T.prim_func
    def kernel(X: T.Tensor((M, N), "float32"), Top: T.Tensor((M,), "float32"), Sum: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, 16), threads=32) as bx:
            top = T.alloc_reducer((16,), "float32", op="max")
            total = T.alloc_reducer((16,), "float32", op="sum")
            T.reducer_init(top)
            T.reducer_init(total, 1.0)
            x = T.alloc_fragment((16, 16), "float32")
            for part in range(3, -1, -1):
                T.copy(X[bx * 16, part * 16], x)
                for i, j in T.Parallel(16, 16):
                    T.reducer_update(top[i], x[i, j])
                    T.reducer_update(total[i], x[i, j])
            a = T.alloc_fragment((16,), "float32")
            b = T.alloc_fragment((16,), "float32")
            T.finalize_reducer(top, a)
            T.finalize_reducer(total, b)
            T.copy(a, Top[bx * 16])
            T.copy(b, Sum[bx * 16])
    return kernel
""", lambda g: {"X": g.integers(-9, 9, (16, 64)).astype(F32)}, lambda a: {"Top": a["X"].max(1), "Sum": a["X"].sum(1) + 1},
    Binding(sizes=["M"], facts=[*between("M"), "M % 16 == 0"]))
OWN_COPIES = Kernel("""
def moved(blocks):
    @T.prim_func
    def kernel(A: T.Tensor((blocks, 256), "float16"), B: T.Tensor((blocks, 256), "float16")):
        with T.Kernel(blocks, threads=32) as bx:
            s = T.alloc_shared((256,), "float16")
            tx = T.get_thread_binding()
            T.ptx_cp_async(T.access_ptr(s[tx * 8], "w", 8), T.access_ptr(A[bx, tx * 8], "r", 8), 8)
            T.ptx_commit_group()
            T.ptx_wait_group(0)
            T.sync_threads()
            for i in T.Parallel(256):
                B[bx, i] = s[255 - i]
    return kernel
""", lambda g: {"A": g.standard_normal((2, 256)).astype(F16)}, lambda a: {"B": a["A"][:, ::-1]},
    Binding(sizes=["blocks"], facts=["blocks >= 1", "blocks <= 64"]))
PAIRS = Kernel("""
def added(M):
    @T.prim_func
    def kernel(X: T.Tensor((M, 32), "float32"), Live: T.Tensor((M, 4), "bool"), Y: T.Tensor((M, 32), "float32")):
        with T.Kernel(M, threads=32) as row:
            if T.all_of(Live[row, :]):
                for j in T.Parallel(8):
                    T.atomic_addx4(Y[row, j * 4], X[row, j * 4])
            else:
                for j in T.Parallel(16):
                    T.atomic_addx2(Y[row, j * 2], X[row, j * 2])
    return kernel
""", lambda g: {"X": g.integers(0, 9, (3, 32)).astype(F32), "Live": np.array([[1] * 4, [0, 1, 1, 1], [1] * 4], bool), "Y": np.ones((3, 32), F32)},
    lambda a: {"Y": a["X"] + 1}, Binding(sizes=["M"], facts=between("M")))
PADDED = Kernel("""
def shifted(M):
    @T.prim_func
    def kernel(X: T.Tensor((M,), "float32"), Y: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, 32), threads=32) as bx:
            T.annotate_safe_value({X: -7.0})
            s = T.alloc_fragment((32,), "float32")
            T.copy(X[bx * 32 + 3], s)
            for i in T.Parallel(32):
                Y[bx * 32 + i] = s[i]
    return kernel
""", lambda g: {"X": np.arange(40, dtype=F32)}, lambda a: {"Y": np.concatenate([a["X"][3:], np.full(3, -7, F32)])},
    Binding(sizes=["M"], facts=between("M")))
ONE_ROW = Kernel("""
def normed(M, N: int = 64):
    @T.prim_func
    def kernel(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=32) as row:
            x = T.alloc_fragment((1, N), "float32")
            squares = T.alloc_fragment((1, N), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[row, 0], x)
            for i, j in T.Parallel(1, N):
                squares[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(squares, total, dim=1)
            for i, j in T.Parallel(1, N):
                x[i, j] = x[i, j] / T.sqrt(total[i])
            T.copy(x, Y[row, 0])
    return kernel
""", lambda g: {"X": g.standard_normal((2, 64)).astype(F32)}, lambda a: {"Y": a["X"] / np.sqrt((a["X"]**2).sum(1, keepdims=True))},
    Binding(sizes=["M"], facts=between("M")))
GROUPS = Kernel("""
def summed(M, K):
    @T.prim_func
    def kernel(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, 32), "float16"), C: T.Tensor((M, 32), "float32")):
        with T.Kernel(T.ceildiv(M, 64), threads=256) as by:
            a = T.alloc_shared((2, 64, 32), "float16")
            b = T.alloc_shared((2, 32, 32), "float16")
            acc = T.alloc_fragment((64, 32), "float32")
            ready = T.alloc_barrier([128] * 4)
            with T.ws(0):
                T.clear(acc)
            for k in range(K // 32):
                with T.ws(1):
                    T.barrier_wait(ready[k % 2 + 2], (k // 2) % 2 ^ 1)
                    T.tma_copy(A[by * 64:by * 64 + 64, k * 32:k * 32 + 32], a[k % 2, :, :], barrier=ready[k % 2])
                    T.tma_copy(B[k * 32:k * 32 + 32, 0:32], b[k % 2, :, :], barrier=ready[k % 2])
                    T.barrier_arrive(ready[k % 2])
                with T.ws(0):
                    T.barrier_wait(ready[k % 2], (k // 2) % 2)
                    T.gemm(a[k % 2, :, :], b[k % 2, :, :], acc)
                    T.barrier_arrive(ready[k % 2 + 2])
            with T.ws(0):
                T.copy(acc, C[by * 64, 0])
    return kernel
""", lambda g: {"A": g.standard_normal((64, 96)).astype(F16), "B": g.standard_normal((96, 32)).astype(F16)},
    lambda a: {"C": a["A"].astype(F32) @ a["B"].astype(F32)}, Binding(sizes=["M", "K"], facts=[*between("M", "K"), "K % 32 == 0"]))
SHARED_VALUES = Kernel("""
def kept(M):
    @T.prim_func
    def kernel(X: T.Tensor((M, 64), "int32"), Y: T.Tensor((M, 64), "int32")):
        with T.Kernel(M, threads=64) as row:
            s = T.alloc_shared((64,), "int32")
            found = T.alloc_shared((1,), "int32")
            limit = T.alloc_var("int32")
            tx = T.get_thread_binding()
            if tx == 0:
                found[0] = 0
            T.sync_threads()
            if X[row, tx] > 4:
                T.atomic_add(found[0], 1)
            T.sync_threads()
            count = found[0]
            for i in T.serial(count % 3 + 1):
                s[tx] = X[row, tx] + i
            T.sync_threads()
            limit = s[0]
            T.sync_threads()
            for i in T.serial(2):
                if tx < count:
                    Y[row, tx] = s[63 - tx] + limit * i
                else:
                    Y[row, tx] = count
    return kernel
""", lambda g: {"X": g.integers(0, 9, (2, 64)).astype(np.int32)}, lambda a: {"Y": _kept(a)}, Binding(sizes=["M"], facts=between("M")))
BYTES = Kernel("""
def dots(M, K):
    @T.prim_func
    def kernel(A: T.Tensor((M, K), "int8"), B: T.Tensor((K,), "int8"), C: T.Tensor((M,), "int32")):
        with T.Kernel(T.ceildiv(M, 32), threads=32) as bx:
            tx = T.get_thread_binding()
            a = T.alloc_local((4,), "int8")
            b = T.alloc_local((4,), "int8")
            acc = T.alloc_local((1,), "int32")
            T.clear(acc)
            if bx * 32 + tx < M:
                for k in T.serial(K // 4):
                    for v in T.vectorized(4):
                        a[v] = A[bx * 32 + tx, k * 4 + v]
                        b[v] = B[k * 4 + v]
                    T.dp4a(a[0], b[0], acc[0])
                C[bx * 32 + tx] = acc[0]
    return kernel
""", lambda g: {"A": g.integers(-9, 9, (40, 16)).astype(np.int8), "B": g.integers(-9, 9, 16).astype(np.int8)},
    lambda a: {"C": a["A"].astype(np.int32) @ a["B"].astype(np.int32)}, Binding(sizes=["M", "K"], facts=[*between("M", "K"), "K % 4 == 0"]))

OWN_FRAGMENTS = Kernel("""
def dots(M):
    @T.prim_func
    def kernel(X: T.Tensor((M, 64), "float32"), W: T.Tensor((64,), "float32"), Y: T.Tensor((M, 64), "float32")):
        with T.Kernel(M, threads=32) as row:
            lane = T.get_thread_binding(0)
            part = T.alloc_fragment((1,), "float32")
            part[0] = 0.0
            for j in T.serial(2):
                part[0] += X[row, lane * 2 + j] * W[lane * 2 + j]
            whole = T.warp_reduce_sum(part[0])
            other = T.alloc_fragment((1,), "float32")
            other[0] = 0.0
            for j in T.serial(2):
                other[0] += whole * W[lane * 2 + j]
            Y[row, lane] = other[0]
            Y[row, lane + 32] = whole
    return kernel
""", lambda g: {"X": g.integers(0, 9, (2, 64)).astype(F32), "W": g.integers(0, 9, (64,)).astype(F32)}, lambda a: {"Y": _dots(a)},
    Binding(sizes=["M"], facts=between("M")))
STRIDED = Kernel("""
def doubled(M, strides):
    @T.prim_func
    def kernel(X: T.StridedTensor((M, 32), strides, "float32"), Y: T.Tensor((M, 32), "float32")):
        with T.Kernel(M, threads=32) as row:
            for j in T.Parallel(32):
                Y[row, j] = T.if_then_else(X[row, j] > 4, T.float32(float("nan")), X[row, j] * 2)
    return kernel
""", lambda g: {"X": g.integers(0, 9, (3, 32)).astype(F32)}, lambda a: {"Y": np.where(a["X"] > 4, np.nan, a["X"] * 2)},
    Binding(sizes=["M"], facts=between("M"), metas={"strides_0": 32, "strides_1": 1}))


def _dots(a: Arrays) -> np.ndarray:
    whole = a["X"] @ a["W"]
    return np.concatenate([whole[:, None] * a["W"].reshape(32, 2).sum(1), np.repeat(whole[:, None], 32, 1)], 1).astype(F32)


def _kept(a: Arrays) -> np.ndarray:
    out = np.empty_like(a["X"])
    for y, x in zip(out, a["X"], strict=True):
        count = int((x > 4).sum())
        s = x + count % 3
        y[:] = count
        y[:count] = s[::-1][:count] + s[0]
    return out


KERNELS = {"typed in the body": TYPED, "reducers": REDUCERS, "copies of threads": OWN_COPIES, "vector atomics": PAIRS, "values outside": PADDED,
           "one row": ONE_ROW, "groups of warps": GROUPS, "products of bytes": BYTES,
           "fragments of threads": OWN_FRAGMENTS, "strides in one name": STRIDED}


@pytest.mark.parametrize("name", KERNELS)
def test_a_style_means_what_it_says_and_is_read_back(name: str, tmp_path: Path) -> None:
    means_what_it_says_and_is_read_back(KERNELS[name], tmp_path)


def test_a_value_that_threads_read_before_and_after_the_team_does_something_stands_before_both(tmp_path: Path) -> None:
    program = loaded(tmp_path, SHARED_VALUES.source, SHARED_VALUES.binding)
    assert verify(program, specialized=True) == ()
    arrays = SHARED_VALUES.inputs(np.random.default_rng(0))
    result = run(program, dict(arrays), mode="check")
    assert [str(x) for x in result.findings if x.severity == "error"] == []
    np.testing.assert_array_equal(result.outputs["Y"], _kept(arrays))


def test_tensors_typed_in_the_body_come_in_the_order_of_the_signature(tmp_path: Path) -> None:
    program = read(written(tmp_path, TYPED.source))
    assert [p.name for p in program.params if isinstance(p.of, n.Buffer)] == ["B", "A", "C"]
    assert same_program(program, again(tmp_path, program))


def again(folder: Path, program: Program, kernel: str = "kernel") -> Program:
    return TileLangFrontend().parse_text(folder / "again.py", backend("tilelang").emit(program).text, kernel)


GRID = """
def two_steps(n, parts: int = 4):
    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        Sums = T.alloc_global((parts,), "float32")
        with T.Kernel(parts, threads=32) as p:
            first = p * T.ceildiv(n, parts)
            x = T.alloc_fragment((32,), "float32")
            total = T.alloc_fragment((1,), "float32")
            whole = T.alloc_var("float32")
            T.clear(x)
            for k in T.serial(T.ceildiv(n, parts * 32)):
                for j in T.Parallel(32):
                    x[j] += X[first + k * 32 + j]
            T.reduce_sum(x, total, dim=0)
            Sums[p] = total[0]
            T.sync_grid()
            whole = 0.0
            for k in T.serial(parts):
                whole += Sums[k]
            for k in T.serial(T.ceildiv(n, parts * 32)):
                for j in T.Parallel(32):
                    Y[first + k * 32 + j] = X[first + k * 32 + j] / whole
    return kernel
"""


def test_a_barrier_of_the_grid_ends_one_kernel_and_begins_the_next(tmp_path: Path) -> None:
    program = loaded(tmp_path, GRID, Binding(sizes=["n"], facts=[*between("n"), "n % 128 == 0"]))
    assert [k.name for k in program.kernels] == ["kernel", "kernel_2"]
    assert [w.buffer.name for w in program.workspaces] == ["Sums"]
    x = np.arange(1, 257, dtype=F32)
    result = run(program, {"X": x, "Y": np.zeros(256, F32)}, mode="check")
    assert [str(f) for f in result.findings if f.severity == "error"] == []
    np.testing.assert_allclose(result.outputs["Y"], x / x.sum(), rtol=1e-5)
    generic = read(tmp_path / "source.py")
    assert same_program(generic, again(tmp_path, generic))


def test_a_barrier_of_the_grid_across_which_something_lives_stays_in_its_kernel(tmp_path: Path) -> None:
    program = read(written(tmp_path, GRID.replace("whole = 0.0", "whole = total[0]")))
    assert opaque(program) == [] and len(program.kernels) == 1 and "  grid_barrier()" in program_text(program)
    assert same_program(program, again(tmp_path, program))


HINTS = """
@tilelang.jit
def hinted(M, N, raster: bool, panel: int, deep: bool, stages: int = 2, limit=None, group: int = -1, tile=None):
    @T.prim_func
    def kernel(A: T.Tensor((M, N), "float16"), B: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(M, tile), threads=128) as bx:
            T.use_swizzle(panel, enable=raster)
            T.annotate_l2_hit_ratio({A: 0.5})
            T.annotate_producer_reg_dealloc(40)
            T.annotate_consumer_reg_alloc()
            T.disable_warp_group_reg_alloc()
            s = T.alloc_shared((tile, 64), "float16")
            for k in T.Pipelined(T.ceildiv(N, 64), num_stages=stages if deep else 1):
                T.copy(A[bx * tile, k * 64], s, coalesced_width=group)
                if limit is not None:
                    T.print(limit, msg="limit")
                T.copy(s, B[bx * tile, k * 64])
            T.print("done")
    return kernel
"""


def test_options_that_settings_decide_are_written_and_read_back(tmp_path: Path) -> None:
    program = read(written(tmp_path, HINTS))
    assert opaque(program) == []
    assert {m.name: (m.kind, m.default) for m in program.metas}["group"] == ("int", -1)
    assert {m.name: m.kind for m in program.metas}["tile"] == "int"  # None is no tile: it is never asked whether it is one
    assert dict(program.kernels[0].attrs) == {
        "raster_panel": "panel", "raster_order": "row", "raster_when": "raster", "l2_hit_ratio": "A=0.5", "producer_registers": 40,
        "consumer_registers": 240, "no_set_max_nreg": True}
    loop = next(s for s in statements(program.kernels[0].body) if isinstance(s, n.For))
    assert dict(loop.attrs)["stages"] == "select(deep,stages,1)"
    assert same_program(program, again(tmp_path, program))
    bound = TileLangFrontend().instantiate(tmp_path / "source.py", "kernel", Binding(
        metas={"M": 64, "N": 64, "raster": False, "panel": 8, "deep": True, "tile": 32}, absent=["limit"]))
    assert "raster_panel" not in dict(bound.kernels[0].attrs)
    loop = next(s for s in statements(bound.kernels[0].body) if isinstance(s, n.For))
    assert dict(loop.attrs)["stages"] == 2


def test_warps_of_a_warpgroup_ask_for_registers_in_one_branch(tmp_path: Path) -> None:
    """They must execute one instruction together: their roles are branches of the one that asks."""
    program = read(written(tmp_path, """
@T.prim_func
def kernel(X: T.Tensor((4, 128), "float32"), Y: T.Tensor((4, 128), "float32")):
    with T.Kernel(1, threads=256) as b:
        tx = T.get_thread_binding()
        if tx < 128:
            T.set_max_nreg(232, 1)
            for i in T.Parallel(128):
                Y[0, i] = X[0, i]
        else:
            T.set_max_nreg(40, 0)
            if tx < 160:
                for i in T.Parallel(128):
                    Y[1, i] = X[1, i]
            else:
                for i in T.Parallel(128):
                    Y[2, i] = X[2, i]
"""))
    roles = next(s for s in statements(program.kernels[0].body) if isinstance(s, n.Roles)).roles
    assert [(r.lo, r.hi, r.registers) for r in roles] == [(0, 4, 232), (4, 5, 40), (5, 8, 40)]
    assert backend("tilelang").emit(program).text.count("set_max_nreg(40") == 1
    assert same_program(program, again(tmp_path, program))


def test_a_ratio_of_hits_in_l2_is_that_of_a_tensor(tmp_path: Path) -> None:
    """Its name is one that callers know, under which other programs have it."""
    ratio = "            T.annotate_l2_hit_ratio({A: 0.5})\n"
    plain = read(written(tmp_path, HINTS))
    other = read(written(tmp_path, re.sub(r"\bA\b", "left", HINTS)))
    assert alpha_equal(called(other, {"left": "A"}), plain)
    late = HINTS.replace(ratio, "").replace('"float16")\n            for', f'"float16")\n{ratio.replace("A", "s")}            for')
    assert opaque(read(written(tmp_path, late))) == ["a ratio of 's', which is no tensor"]


def test_a_term_that_no_meta_is_in_is_no_number_of_stages(tmp_path: Path) -> None:
    text = program_text(read(written(tmp_path, HINTS)))
    assert parse_program(text) == read(tmp_path / "source.py")
    found = verify(parse_program(text.replace("select(deep,stages,1)", "select(deep,levels,1)")))
    assert [d.id for d in found] == ["KIR-V024"]


CHECKED = """
import math
SMALL = 2
STEP = 4
if torch.cuda.is_available():
    STEP += 4
from beside import SCALE
def factory(n, width: int = 8):
    parts = math.ceil(n / width)
    assert n % width == 0, "whole parts"
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(parts, threads=32) as b:
            for i in T.Parallel(width):
                y[b * width + i] = x[b * width + i] * SCALE + STEP
    return kernel
"""


def test_a_check_that_fails_is_shown_with_its_place_and_values(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("SCALE = 3.0\n")
    file = written(tmp_path, CHECKED)
    with pytest.raises(KirError) as bad:
        TileLangFrontend().instantiate(file, "kernel", Binding(metas={"n": 12, "is_available": True}))
    found = bad.value.diagnostics[0]
    assert found.id == "KIR-F402" and "assert n % width == 0" in found.message
    assert found.witness == ("n is 12", "width is 8")
    assert found.origin is not None and found.origin.line == 5 + 10


def test_skeletons_ask_for_what_other_values_do_not_answer(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("SCALE = 3.0\n")
    file = written(tmp_path, CHECKED)
    assert set(TileLangFrontend().skeleton(file, "kernel").metas) == {"n", "width", "is_available"}
    for cuda, step in ((True, 8), (False, 4)):
        program = TileLangFrontend().instantiate(file, "kernel", Binding(metas={"n": 16, "is_available": cuda}))
        assert f"* 3.0 + {step}" in program_text(program)


def test_the_width_of_a_dtype_that_tvm_answers_is_no_question(tmp_path: Path) -> None:
    file = written(tmp_path, """
from tvm import DataType
def factory(n, dtype="float16"):
    wide = 128 // DataType(dtype).bits
    @T.prim_func
    def kernel(x: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 32 * wide), threads=32) as b:
            for i in T.Parallel(32 * wide):
                y[b * 32 * wide + i] = x[b * 32 * wide + i]
    return kernel
""")
    assert set(TileLangFrontend().skeleton(file, "kernel").metas) == {"n", "dtype"}
    program = TileLangFrontend().instantiate(file, "kernel", Binding(metas={"n": 512, "dtype": "f16"}))
    assert "ceildiv(512, 256)" in program_text(program) or "(b: 2)" in program_text(program)


def test_a_function_of_another_package_answers_nothing_about_what_the_kernel_computes(tmp_path: Path) -> None:
    file = written(tmp_path, """
from somewhere import decode
@T.prim_func
def kernel(x: T.Tensor((64,), "uint8"), y: T.Tensor((64,), "float32"), n: T.int32):
    with T.Kernel(1, threads=64) as b:
        for i in T.Parallel(64):
            y[i] = decode(x[i], 4)
        s = T.alloc_shared((n, 4), "float32")
""")
    assert opaque(read(file)) == ["the function 'somewhere.decode', of what the kernel computes",
                                  "memory of the extent 'n', which is only known when the kernel runs"]


def test_what_a_machine_answers_may_be_a_tuple(tmp_path: Path) -> None:
    file = written(tmp_path, """
def factory(n):
    wide = 128 if torch.cuda.get_device_capability() >= (9, 0) else 64
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, wide), threads=32) as b:
            for i in T.Parallel(wide):
                y[b * wide + i] = x[b * wide + i]
    return kernel
""")
    for answer, blocks in (((8, 9), 4), ((9, 0), 2), ((10, 0), 2)):
        metas: dict[str, int | float | bool | str] = {"n": 256, "get_device_capability_0": answer[0], "get_device_capability_1": answer[1]}
        made = TileLangFrontend().instantiate(file, "kernel", Binding(metas=metas))
        assert made.kernels[0].grid[0].extent == n.Const(blocks, made.kernels[0].grid[0].extent.type)  # type: ignore[arg-type]  # an i32


SIDED = """
def scaled(M, N, gain, strides=None):
    shape = (N, M) if gain else (M,)
    steps = (M, 1) if strides is None else strides
    @T.prim_func
    def kernel(X: T.StridedTensor((N, M), steps, "float32"), G: T.Tensor(shape, "float32"), Y: T.Tensor((N, M), "float32")):
        with T.Kernel(N, threads=32) as row:
            for j in T.Parallel(M):
                if gain:
                    Y[row, j] = X[row, j] * G[row, j]
                else:
                    Y[row, j] = X[row, j] + G[j]
    return kernel
"""


def test_a_function_that_a_condition_of_the_binding_makes_another_kernel_is_read_as_each(tmp_path: Path) -> None:
    sides = TileLangFrontend().sides(written(tmp_path, SIDED), "kernel")
    assert {label for label, _ in sides} == {
        f"{a}, {b}" for a in ("is(strides,None)", "not(is(strides,None))") for b in ("gain", "not(gain)")}
    for label, made in sides:
        assert not opaque(made) and verify(made) == () and parse_program(program_text(made)) == made
        gain = next(p.of for p in made.params if p.name == "G")
        assert isinstance(gain, n.Buffer) and len(gain.shape) == (1 if "not(gain)" in label else 2)
    assert opaque(read(tmp_path / "source.py"))[0].startswith("it is another kernel where")
    records = {r["kernel"]: r["state"] for r in examine(tmp_path / "source.py", frozenset(), lambda name: None)}
    assert records == {f"kernel where {label}": "equal" for label, _ in sides}


HINTED = """
AHEAD = '''
// 128 bytes
__device__ __forceinline__ int ahead(const void* at) {
    asm volatile("prefetch.global.L2 [%0];" : : "l"(__cvta_generic_to_global(at)) : "memory");
    return 0;
}
'''
@T.prim_func
def kernel(X: T.Tensor((8, 64), "float32"), scale: T.Tensor((), "float32"), Y: T.Tensor((8, 64), "float32")):
    with T.Kernel(1, threads=32) as b:
        T.import_source(AHEAD)
        tid = T.get_thread_binding()
        for row in T.serial(8):
            if row + 1 < 8 and tid % 16 == 0:
                T.call_extern("int32", "ahead", T.address_of(X[row + 1, tid * 2]))
            for j in T.serial(2):
                Y[row, tid * 2 + j] = T.call_extern("float32", "__expf", X[row, tid * 2 + j]) * scale[()]
"""


def test_functions_of_cuda_source_that_are_one_asm_are_read_and_written(tmp_path: Path) -> None:
    def inputs(rng: np.random.Generator) -> Arrays:
        return {"X": rng.standard_normal((8, 64)).astype(F32), "scale": np.array(3.0, F32)}

    means_what_it_says_and_is_read_back(Kernel(HINTED, inputs, lambda a: {"Y": np.exp(a["X"]) * a["scale"]}), tmp_path)
    program = read(written(tmp_path, HINTED))
    text = backend("tilelang").emit(program).text
    assert "T.import_source(" in text and "kir_prefetch_l2" in text and '"__expf"' in text and "scale[()]" in text
    assert same_program(program, TileLangFrontend().parse_text(tmp_path / "again.py", text, "kernel"))
    for old, new, why in (("    return 0;", "    for (;;) {}", "ends without a result"), ("prefetch.global.L2 [%0]", "bra NEXT", "inline PTX: 'bra'"),
                          (': : "l"(__cvta', ': "=r"(out) : "l"(__cvta', "'out', which is not declared"),
                          ('"ahead", T', '"other", T', "'other', which is not declared")):
        assert any(why in reason for reason in opaque(read(written(tmp_path, HINTED.replace(old, new))))), new


def test_what_a_branch_says_of_a_place_in_shared_memory_is_known_in_it(tmp_path: Path) -> None:
    source = """
def factory(count, threads):
    @T.prim_func
    def kernel(X: T.Tensor((count,), "float32"), Y: T.Tensor((count,), "float32")):
        with T.Kernel(1, threads=threads) as b:
            held = T.alloc_shared((count,), "float32")
            T.copy(X, held)
            tid = T.get_thread_binding()
            for share in T.serial(T.ceildiv(count, threads)):
                item = threads * share + tid
                if item < COUNT:
                    other = item ^ 1
                    if item < other and (item > 2 and held[item] > held[other]):
                        Y[item] = held[item]
    return kernel
"""
    inside = read(written(tmp_path, source.replace("COUNT", "count")))
    assert "& held[item] > load(held[other] where" in program_text(inside)
    outside = read(written(tmp_path, source.replace("COUNT", "count + 1")))
    assert "load(held[item] where" in program_text(outside)


def test_what_is_no_program_until_a_binding_says_more_is_not_understood(tmp_path: Path) -> None:
    file = written(tmp_path, """
def factory(n):
    @T.prim_func
    def kernel(y: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=32) as b:
            held = T.alloc_local((4,), "float32")
            T.clear(held)
            y[b] = held[4] if n > 4 else held[3]
    return kernel
""")
    assert opaque(read(file)) == ["held[4] leaves 'held': 4 in a dimension of 4"]
    assert opaque(TileLangFrontend().instantiate(file, "kernel", Binding(metas={"n": 4}))) == []
