"""What TileLang code means: small kernels read from source and run by the interpreter, against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.analysis.normal.regions import raised
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.printer import program_text
from kir.ir.visit import statements
from kir.problem import load_problem
from tests.frontends.reading import opaque
from tests.frontends.tilelang.reading import bound, execute, read, written

GEMM = """
@tilelang.jit(out_idx=[-1])
def gemm(M, N, K, block_M=32, block_N=32, block_K=16, stages=2, dtype="float16", accum_dtype="float32"):
    @T.prim_func
    def kernel(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.use_swizzle(10)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[ko * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])
    return kernel
"""


def values(*shape: int, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def test_a_gemm_factory_is_generic_and_solves_the_problem(tmp_path: Path) -> None:
    file = written(tmp_path, GEMM)
    generic = read(file)
    assert opaque(generic) == []
    assert [(m.name, m.kind, m.default) for m in generic.metas] == [
        ("M", "int", None), ("N", "int", None), ("K", "int", None), ("block_M", "int", 32), ("block_N", "int", 32), ("block_K", "int", 16),
        ("stages", "int", 2), ("dtype", "dtype", "f16"), ("accum_dtype", "dtype", "f32")]
    made = bound(file, Binding(sizes=["M", "N", "K"], metas={"stages": 3}))
    loop = next(s for s in statements(made.kernels[0].body) if isinstance(s, n.For))
    assert (loop.kind, dict(loop.attrs)) == ("pipelined", {"stages": 3})
    assert dict(made.kernels[0].attrs) == {"raster_panel": 10, "raster_order": "row"}
    problem = load_problem("gemm")
    from kir.interp import run

    for shape in [s for s in problem.shapes if "timed" not in s.tags][:4]:
        inputs = problem.inputs(shape, seed=0, distribution="normal")
        for program in (made, raised(made)):
            assert problem.compare(run(program, inputs, problem.scalars(shape)).outputs, inputs, shape).ok, shape.name


def test_elementwise_loops_with_tails_branches_and_named_values(tmp_path: Path) -> None:
    file = written(tmp_path, """
def factory(block=8):
    n = T.dynamic("n")
    m = T.dynamic("m")
    @T.prim_func
    def kernel(x: T.Tensor((n, m), "float16"), y: T.Tensor((n, m), "float32"), z: T.Tensor((m, n), "int32")):
        with T.Kernel(T.ceildiv(n, block), T.ceildiv(m, block), threads=32) as (by, bx):
            for i, j in T.Parallel(block, block):
                a = x[by * block + i, bx * block + j] * 1.5
                if i < j:
                    y[by * block + i, bx * block + j] = a
                elif i == j:
                    y[by * block + i, bx * block + j] = -1
                else:
                    y[by * block + i, bx * block + j] = T.max(a, 0)
                z[bx * block + j, by * block + i] = T.Cast("int32", x[by * block + i, bx * block + j] * 2) // 2
    return kernel
""")
    x = values(11, 13, dtype=np.float16) * np.float16(3)
    out = execute(file, {"x": x}, mode="check")
    i, j = np.arange(11)[:, None] % 8, np.arange(13)[None] % 8
    a = x.astype(np.float32) * 1.5
    np.testing.assert_array_equal(out["y"], np.where(i < j, a, np.where(i == j, -1, np.maximum(a, 0))).astype(np.float32))
    np.testing.assert_array_equal(out["z"], ((x * np.float16(2)).astype(np.int32) // 2).T)


def test_a_row_softmax(tmp_path: Path) -> None:
    file = written(tmp_path, """
@tilelang.jit
def softmax(N, BN=16, BM=4):
    M = T.symbolic("M")
    @T.prim_func
    def kernel(X: T.Tensor[(M, N), T.float32], Y: T.Tensor[(M, N), T.float32]):
        with T.Kernel(T.ceildiv(M, BM), threads=64) as bx:
            x = T.alloc_fragment([BM, BN], T.float32)
            top = T.alloc_fragment([BM], T.float32)
            total = T.alloc_fragment([BM], T.float32)
            for i, j in T.Parallel(BM, BN):
                x[i, j] = T.if_then_else(j < N, X[bx * BM + i, j], -T.infinity(T.float32))
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(BM, BN):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=-1, clear=True)
            for i, j in T.Parallel(BM, BN):
                x[i, j] /= total[i]
            T.copy(x, Y[bx * BM, 0])
    return kernel
""")
    x = values(7, 13)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(execute(file, {"X": x}, {"N": 13}, mode="check")["Y"], e / e.sum(1, keepdims=True), rtol=2e-6)


def test_products_transposed_and_accumulated_scans_and_reductions(tmp_path: Path) -> None:
    file = written(tmp_path, """
@T.prim_func
def kernel(a: T.Tensor((16, 8), "float16"), b: T.Tensor((24, 16), "float16"), c: T.Tensor((8, 24), "float32"), s: T.Tensor((8,), "float32"),
           t: T.Tensor((8, 24), "float32")):
    with T.Kernel(1, threads=128) as _:
        sa = T.alloc_shared((16, 8), "float16")
        sb = T.alloc_shared((24, 16), "float16")
        acc = T.alloc_fragment((8, 24), "float32")
        out = T.alloc_fragment((8,), "float32")
        T.copy(a, sa)
        T.copy(b, sb)
        T.fill(acc, 1.0)
        T.gemm(sa, sb, acc, transpose_A=True, transpose_B=True)
        T.copy(acc, c)
        T.gemm(sa, sb, acc, True, True, T.GemmWarpPolicy.FullRow, clear_accum=True)
        T.fill(out, 2.0)
        T.reduce_absmax(acc, out, dim=1, clear=False)
        T.copy(out, s)
        T.cumsum(acc, dim=1, reverse=True)
        T.copy(acc, t)
""")
    a, b = values(16, 8, dtype=np.float16), values(24, 16, dtype=np.float16, seed=1)
    out = execute(file, {"a": a, "b": b}, mode="check")
    product = a.astype(np.float32).T @ b.astype(np.float32).T
    np.testing.assert_allclose(out["c"], product + 1, atol=1e-4)
    np.testing.assert_allclose(out["s"], np.maximum(2, np.abs(product).max(1)), atol=1e-4)
    np.testing.assert_allclose(out["t"], np.cumsum(product[:, ::-1], 1)[:, ::-1], atol=1e-4)


def test_host_code_runs_with_the_bindings_values_and_stays_open_without(tmp_path: Path) -> None:
    file = written(tmp_path, """
TABLE = {"small": (8, 1), "large": (16, 2)}

class Config:
    width: int = 4
    twice: bool = False
    @property
    def dtype(self):
        return T.float32 if self.twice else T.float16

def round_up(x, y):
    return (x + y - 1) // y * y

def pick(n):
    for block in (32, 16, 8):
        if n % block == 0:
            return block
    raise ValueError(n)

@tilelang.jit
def factory(n: int, kind: str, cfg: Config, scale: float = 2.0):
    assert n % 8 == 0
    block = pick(n)
    half, times = TABLE[kind]
    width = math.gcd(n, 24)
    threads = 32
    while threads < n:
        threads *= 2
    if cfg.twice:
        factor = scale * 2
    else:
        factor = scale
    names = [k * half for k in range(times)]

    @T.prim_func
    def kernel(x: T.Tensor((n,), cfg.dtype), y: T.Tensor((n,), T.float32), z: T.Tensor((8,), T.int32)):
        with T.Kernel(n // block, threads=threads) as b:
            for i in T.Parallel(block):
                y[b * block + i] = x[b * block + i] * factor + sum(names)
            if cfg.twice:
                z[0] = width
            z[1] = threads
            z[2] = round_up(n, 20)
    return kernel
""")
    assert opaque(read(file)) == ["a loop of the host whose ends are not known"]
    x = values(48)
    for twice, x_, kind in ((True, x, "large"), (False, x.astype(np.float16), "small")):
        out = execute(file, {"x": x_, "z": np.zeros(8, np.int32)}, {"n": 48, "kind": kind, "cfg_twice": twice})
        np.testing.assert_allclose(out["y"], x_.astype(np.float32) * (4 if twice else 2) + (16 if kind == "large" else 0), rtol=1e-6)
        assert out["z"][1:3].tolist() == [64, 60]
        assert not twice or out["z"][0] == 24


def test_macros_variables_and_results(tmp_path: Path) -> None:
    file = written(tmp_path, """
@T.macro
def clamped(x, low, flag: bool):
    v = T.alloc_var("float32")
    v = x
    if v < low:
        v = low
    if flag:
        return v, v + 1
    return v, v + 2

@T.macro
def bump(x: T.Ref, by):
    x += by

def factory(flag=True):
    @T.prim_func
    def kernel(x: T.Tensor((4,), "float32"), y: T.Tensor((8,), "float32")):
        with T.Kernel(4, threads=1) as b:
            one, two = clamped(x[b], 0.0, flag)
            y[b] = one
            total = T.alloc_var("float32", init=0.0)
            for k in T.serial(3):
                bump(total, two)
            y[4 + b] = total
    return kernel
""")
    x = np.array([-1, 0, 2, -3], np.float32)
    for flag in (True, False):
        out = execute(file, {"x": x}, {"flag": flag}, mode="check")["y"]
        np.testing.assert_array_equal(out, np.concatenate([np.maximum(x, 0), 3 * (np.maximum(x, 0) + (1 if flag else 2))]))


def test_threads_have_variables_of_their_own_across_tiles(tmp_path: Path) -> None:
    file = written(tmp_path, """
@T.prim_func
def kernel(x: T.Tensor((64, 4), "int32"), y: T.Tensor((64,), "int32"), z: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64) as _:
        tx = T.get_thread_binding()
        lane = tx % 32
        mine = T.alloc_local((4,), "int32")
        held = T.alloc_shared((64,), "int32")
        for k in T.vectorized(4):
            mine[k] = x[tx, k]
        seen = x[tx, 0] * 2
        T.fill(held, 5)
        held[tx] += mine[3]
        other = T.shfl_xor(mine[1], 1)
        y[tx] = mine[0] + mine[2] + other + seen
        T.sync_threads()
        for i in T.Parallel(64):
            z[i] = held[63 - i]
        if lane == 0:
            T.atomic_add(z[tx], seen)
""")
    x = np.arange(256, dtype=np.int32).reshape(64, 4)
    out = execute(file, {"x": x, "z": np.zeros(64, np.int32)})
    np.testing.assert_array_equal(out["y"], x[:, 0] + x[:, 2] + x[np.arange(64) ^ 1, 1] + 2 * x[:, 0])
    want = (5 + x[:, 3])[::-1].copy()
    want[[0, 32]] += 2 * x[[0, 32], 0]
    np.testing.assert_array_equal(out["z"], want)


def test_accesses_of_threads_to_shared_memory_are_ordered(tmp_path: Path) -> None:
    file = written(tmp_path, """
@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: False})
def factory(rounds=2):
    @T.prim_func
    def kernel(x: T.Tensor((64,), "int32"), y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64) as _:
            tx = T.get_thread_binding()
            s = T.alloc_shared((64,), "int32")
            s[tx] = x[tx]
            y[tx] = s[63 - tx]
            s[tx] = 0
    return kernel
""")
    x = np.arange(64, dtype=np.int32)
    np.testing.assert_array_equal(execute(file, {"x": x}, mode="check")["y"], x[::-1])
    file.write_text(file.read_text().replace("SYNC: False", "SYNC: True"))
    assert not any(isinstance(s, n.Eval) for s in statements(read(file).kernels[0].body))


@pytest.mark.parametrize("first", ["T.alloc_var('int32', init=s[0])", "T.alloc_var('int32', init=s[0] + s[1] - s[1])"])
def test_a_variable_begins_with_what_threads_have_written(tmp_path: Path, first: str) -> None:
    """It is the same for all threads, and was declared ahead of the loop over threads that writes what it reads."""
    file = written(tmp_path, f"""
@tilelang.jit
def factory(rounds=2):
    @T.prim_func
    def kernel(x: T.Tensor((64,), "int32"), y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64) as _:
            s = T.alloc_shared((64,), "int32")
            tx = T.get_thread_binding()
            s[tx] = x[63 - tx]
            T.sync_threads()
            v = {first}
            for w in T.serial(rounds):
                v = v + s[w + 1]
            y[tx] = v
    return kernel
""")
    x = np.arange(64, dtype=np.int32)
    np.testing.assert_array_equal(execute(file, {"x": x}, mode="check")["y"], np.full(64, 63 + 62 + 61))


def test_bodies_without_a_form_as_tiles_are_dealt_to_threads(tmp_path: Path) -> None:
    file = written(tmp_path, """
@T.prim_func
def kernel(x: T.Tensor((40,), "int32"), steps: T.Tensor((40,), "int32"), counts: T.Tensor((4,), "int32")):
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(40):
            v = T.alloc_var("int32")
            c = T.alloc_var("int32", init=0)
            v = x[i]
            while v != 1:
                v = T.if_then_else(v % 2 == 0, v // 2, 3 * v + 1)
                c += 1
            steps[i] = c
            T.atomic_add(counts[c % 4], 1)
""")
    x = np.arange(1, 41, dtype=np.int32)

    def collatz(v: int) -> int:
        return 0 if v == 1 else 1 + collatz(v // 2 if v % 2 == 0 else 3 * v + 1)

    want = np.array([collatz(int(v)) for v in x])
    out = execute(file, {"x": x, "counts": np.zeros(4, np.int32)})
    np.testing.assert_array_equal(out["steps"], want)
    np.testing.assert_array_equal(out["counts"], np.bincount(want % 4, minlength=4))


def test_reducers_sum_over_the_axes_that_they_do_not_have(tmp_path: Path) -> None:
    file = written(tmp_path, """
@T.prim_func
def kernel(x: T.Tensor((8, 16), "float32"), y: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32) as _:
        r = T.alloc_reducer((8,), "float32", "sum", replication="all")
        T.fill(r, 1)
        for i, j in T.Parallel(8, 16):
            if x[i, j] > 0:
                r[i] += x[i, j]
        T.finalize_reducer(r)
        T.copy(r, y)
""")
    x = values(8, 16)
    np.testing.assert_allclose(execute(file, {"x": x}, mode="check")["y"], 1 + np.maximum(x, 0).sum(1), rtol=1e-5)


def test_roles_barriers_and_bulk_copies(tmp_path: Path) -> None:
    file = written(tmp_path, """
def factory(stages=2, rounds=5):
    @T.prim_func
    def kernel(x: T.Tensor((5, 64), "float32"), y: T.Tensor((5, 64), "float32")):
        with T.Kernel(1, threads=160) as _:
            ring = T.alloc_shared((stages, 64), "float32")
            full = T.alloc_barrier(arrive_count=[32] * stages)
            free = T.alloc_barrier(arrive_count=[128] * stages)
            tx = T.get_thread_binding()
            if tx < 128:
                T.set_max_nreg(160, 1)
                v = T.alloc_fragment((64,), "float32")
                for k in T.serial(rounds):
                    T.barrier_wait(full[k % stages], (k // stages) % 2)
                    for i in T.Parallel(64):
                        v[i] = ring[k % stages, i] + k
                    T.barrier_arrive(free[k % stages])
                    T.copy(v, y[k, 0:64])
            else:
                T.set_max_nreg(24, 0)
                for k in T.serial(rounds):
                    T.barrier_wait(free[k % stages], (k // stages + 1) % 2)
                    T.tma_copy(x[k, 0:64], ring[k % stages, :], barrier=full[k % stages])
                    T.barrier_arrive(full[k % stages])
    return kernel
""")
    x = values(5, 64)
    np.testing.assert_array_equal(execute(file, {"x": x}, mode="check")["y"], x + np.arange(5, dtype=np.float32)[:, None])
    roles = next(s for s in statements(bound(file, Binding()).kernels[0].body) if isinstance(s, n.Roles))
    assert [(r.lo, r.hi, r.registers) for r in roles.roles] == [(0, 4, 160), (4, 5, 24)]


def test_parts_of_the_cta_do_not_wait_for_one_another_between_their_branches(tmp_path: Path) -> None:
    file = written(tmp_path, """
@T.prim_func
def kernel(x: T.Tensor((3, 64), "float32"), y: T.Tensor((3, 64), "float32")):
    with T.Kernel(1, threads=256) as _:
        s = T.alloc_shared((64,), "float32")
        full = T.alloc_barrier(128)
        free = T.alloc_barrier(128)
        with T.ws(1):
            for k in range(3):
                T.barrier_wait(free, (k % 2) ^ 1)
                T.copy(x[k, 0:64], s)
                T.barrier_arrive(full)
        with T.ws(0):
            for k in range(3):
                T.barrier_wait(full, k % 2)
                T.copy(s, y[k, 0:64])
                T.barrier_arrive(free)
""")
    x = values(3, 64)
    np.testing.assert_array_equal(execute(file, {"x": x}, mode="check")["y"], x)


def test_an_eager_kernel_says_what_its_parameters_are_in_its_body(tmp_path: Path) -> None:
    file = written(tmp_path, """
@tilelang.jit
def kernel(A, B, block: int = 4):
    M, N = T.const("M, N")
    A: T.Tensor[[M, N], T.float32]
    B: T.Tensor[[N, M], T.float32]
    with T.Kernel(T.ceildiv(M, block), threads=32) as b:
        for i, j in T.Parallel(block, N):
            B[j, b * block + i] = A[b * block + i, j] + 1
""")
    x = values(6, 5)
    np.testing.assert_array_equal(execute(file, {"A": x}, sizes=["M", "N"])["B"], x.T + 1)


def test_persistent_tiles_and_asynchronous_copies(tmp_path: Path) -> None:
    file = written(tmp_path, """
@T.prim_func
def kernel(x: T.Tensor((24, 40), "float32"), y: T.Tensor((24, 40), "float32")):
    with T.Kernel(3, threads=64) as b:
        s = T.alloc_shared((8, 8), "float32")
        for i, j in T.Persistent([3, 5], 3, b, group_size=2):
            T.async_copy(x[i * 8, j * 8], s)
            T.ptx_wait_group(0)
            T.copy(s, y[i * 8:i * 8 + 8, j * 8:j * 8 + 8])
""")
    x = values(24, 40)
    np.testing.assert_array_equal(execute(file, {"x": x}, mode="check")["y"], x)


@pytest.mark.parametrize(("expression", "want"), [
    ("h[i] * 2", "f16"), ("h[i] * 1.5", "f32"), ("h[i] * f[i]", "f32"), ("h[i] + i4[i]", "f16"), ("i4[i] + u4[i]", "u32"), ("i4[i] + i8[i]", "i64"),
    ("(i4[i] > 2) + 1", "i32"), ("-h[i]", "f16"), ("T.exp2(h[i] * 1.0)", "f32"), ("T.clamp(h[i], 0, 3)", "f16"), ("i4[i] * 0.5", "f32"),
    ("T.reinterpret(f[i], T.uint32) >> 23", "u32"), ("T.Select(i4[i] > 2, h[i], h[i] * 2)", "f16"), ("b[i] + f[i]", "f32"), ("b[i] + h[i]", "f16"),
    ("c[i] * 2", "i32"), ("3 - c[i]", "i32"), ("(c[i] & 3) << 4", "i8"), ("T.max(c[i], 0)", "i32"), ("T.if_then_else(c[i] > 0, c[i], 0)", "i32"),
    ("c[i] + c[i]", "i8"), ("w[i] / 3", "i32"), ("w[i] / w[i]", "u8"), ("u4[i] + 1", "u32"), ("i8[i] * 2", "i64"), ("i4[i] + 2147483648", "i64"),
])
def test_dtypes_meet_as_tvm_says(tmp_path: Path, expression: str, want: str) -> None:
    program = read(written(tmp_path, f"""
@T.prim_func
def kernel(h: T.Tensor((4,), "float16"), b: T.Tensor((4,), "bfloat16"), f: T.Tensor((4,), "float32"), i4: T.Tensor((4,), "int32"),
           i8: T.Tensor((4,), "int64"), u4: T.Tensor((4,), "uint32"), c: T.Tensor((4,), "int8"), w: T.Tensor((4,), "uint8"), y: T.Tensor((4,), "float64")):
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(4):
            y[i] = {expression}
"""))
    store = next(s for s in statements(program.kernels[0].body) if isinstance(s, n.Store))
    assert isinstance(store.value, n.Cast)
    assert store.value.x.type.dtype.name == want  # type: ignore[union-attr]  # a tile


def test_a_skeleton_holds_the_table_of_an_autotuner(tmp_path: Path) -> None:
    from kir.frontends.tilelang.frontend import TileLangFrontend

    table = """
import itertools
from tilelang.autotuner import autotune
def get_configs():
    parameters = dict(block_M=[64, 128], stages=[2, 3])
    return [dict(zip(parameters, row)) for row in itertools.product(*parameters.values())]

@autotune(configs=get_configs(), warmup=3)
"""
    binding = TileLangFrontend().skeleton(written(tmp_path, table + GEMM.lstrip()), "kernel")
    assert binding.configs == [{"block_M": m, "stages": s} for m in (64, 128) for s in (2, 3)]
    assert binding.metas["block_M"] == 64
    assert binding.metas["M"] == "?"
    assert Binding.parse(binding.text()) == binding


def test_text_of_a_generic_kernel_is_what_the_page_says(tmp_path: Path) -> None:
    text = program_text(read(written(tmp_path, GEMM)))
    assert "for ko in 0..ceildiv(K, block_K) pipelined {stages=stages}" in text
    assert "copy load(A[block_M * by +: block_M, block_K * ko +: block_K] else cast(0, $<dtype>) clip) -> A_shared" in text
    assert "mma C_local += A_shared * B_shared precision tf32" in text
