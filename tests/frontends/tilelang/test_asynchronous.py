"""Words around asynchronous work that compute nothing: fences of registers, options of copies, addresses as so many elements behind others."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kir.frontends.tilelang.frontend import TileLangFrontend
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.ir.printer import program_text
from kir.learning.corpus.roundtrip.equal import same_program
from kir.surface import backend
from tests.frontends.reading import opaque
from tests.frontends.tilelang.reading import bound, execute, read, written

PRODUCT = """
def factory(k, policy="evict_last"):
    @T.prim_func
    def kernel(A: T.Tensor((64, k), "float16"), B: T.Tensor((k, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=256) as b:
            a = T.alloc_shared((64, 64), "float16")
            w = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            full = T.alloc_barrier([128])
            with T.ws(1):
                for i in T.serial(k // 64):
                    T.tma_copy(A[0:64, i * 64:i * 64 + 64], a, barrier=full[0], eviction_policy=POLICY)
                    T.tma_copy(B[i * 64:i * 64 + 64, 0:64], w, barrier=full[0])
                    T.barrier_arrive(full[0])
            with T.ws(0):
                T.clear(acc)
                for i in T.serial(k // 64):
                    T.barrier_wait(full[0], i % 2)
                    T.wgmma_gemm(a, w, acc)
                    T.wait_wgmma(0)
                    T.warpgroup_fence_operand(FENCED)
                T.copy(acc, C)
    return kernel
"""


def test_a_fence_of_registers_and_the_policy_of_a_copy_are_written_as_they_are_read(tmp_path: Path) -> None:
    for fenced in ("acc, num_regs=32", "acc"):
        program = read(written(tmp_path, PRODUCT.replace("FENCED", fenced).replace("POLICY", '"evict_last"')))
        assert opaque(program) == [] and f"register_fence(&acc{', 32' if '32' in fenced else ''})" in program_text(program)
        text = backend("tilelang").emit(program).text
        assert f"T.warpgroup_fence_operand({fenced})" in text and "eviction_policy='evict_last'" in text
        assert same_program(program, TileLangFrontend().parse_text(tmp_path / "again.py", text, "kernel"))


def test_a_fence_of_part_of_a_tile_or_of_shared_memory_stays_text(tmp_path: Path) -> None:
    for fenced in ("acc, offset=4, num_regs=8", "a, num_regs=8", "acc[0, 0], num_regs=8"):
        program = read(written(tmp_path, PRODUCT.replace("FENCED", fenced).replace("POLICY", '"evict_last"')))
        assert opaque(program) == ["a fence of registers that are not all of one tile's"]


BEHIND = """
def factory(rows, cols):
    @T.prim_func
    def kernel(X: T.Tensor((rows, cols), "float32"), Y: T.Tensor((rows, cols), "float32")):
        with T.Kernel(rows, threads=32) as b:
            t = T.get_thread_binding()
            held = T.alloc_shared((2, 128), "float32")
            T.ptx_cp_async(T.tvm_access_ptr(T.type_annotation("float32"), held.data, 128 + t * 4, 4, 2),
                           T.tvm_access_ptr(T.type_annotation(DTYPE), X.data, b * cols + t * 4, 4, 1), 4)
            T.ptx_commit_group()
            T.ptx_wait_group(0)
            T.sync_threads()
            for i in T.serial(4):
                Y[b, i * 32 + t] = held[1, i * 32 + t]
    return kernel
"""


def test_an_address_so_many_elements_behind_the_first_is_a_place(tmp_path: Path) -> None:
    file = written(tmp_path, BEHIND.replace("DTYPE", '"float32"'))
    program = read(file)
    assert opaque(program) == []
    assert same_program(program, TileLangFrontend().parse_text(tmp_path / "again.py", backend("tilelang").emit(program).text, "kernel"))
    x = np.arange(512, dtype=np.float32).reshape(4, 128)
    assert (execute(file, {"X": x, "Y": np.zeros_like(x)}, {"rows": 4, "cols": 128})["Y"] == x).all()
    other = opaque(read(written(tmp_path, BEHIND.replace("DTYPE", '"float16"'))))
    assert any("as one of another dtype" in reason for reason in other)


def test_a_let_of_tvm_is_its_body_with_the_value_in_place(tmp_path: Path) -> None:
    source = """
import tvm.tirx as tirx
def times(a, b):
    c = a + 0.0
    return c * b
def squared(x):
    var = tirx.Var("x", "float32")
    return tirx.Let(var, BOUND, times(var, var))
@T.prim_func
def kernel(X: T.Tensor([32], "float32"), Y: T.Tensor([32], "float32"), Z: T.Tensor([32], "int32")):
    with T.Kernel(1, threads=32) as b:
        t = T.get_thread_binding()
        Y[t] = squared(X[t] + 1.0)
        Z[t] = T.__ffs(t)
"""
    file = written(tmp_path, source.replace("BOUND", "x"))
    x = np.arange(32, dtype=np.float32)
    found = execute(file, {"X": x, "Y": np.zeros_like(x), "Z": np.zeros(32, np.int32)})
    assert (found["Y"] == (x + 1) ** 2).all() and found["Z"].tolist()[:5] == [0, 1, 2, 1, 3]
    assert opaque(read(written(tmp_path, source.replace("BOUND", "3")))) == ["a 'Let' of what is no variable of that dtype"]
    assert isinstance(read(file), n.Program)


MEETING = """
def factory(n, parts: int = 4):
    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32"), Part: T.Tensor((parts,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(parts, threads=32) as p:
            t = T.get_thread_binding()
            held = T.alloc_local((4,), "float32")
            for k in T.serial(4):
                held[k] = X[p * 128 + k * 32 + t]
            if t == 0:
                Part[p] = held[0]
            if parts > 1:
                MEET
            for k in T.serial(4):
                Y[p * 128 + k * 32 + t] = held[k] + Part[(p + 1) % parts]
    return kernel
"""


def test_a_barrier_of_the_grid_in_a_branch_stays_in_its_kernel(tmp_path: Path) -> None:
    file = written(tmp_path, MEETING.replace("MEET", "T.sync_grid()"))
    program = read(file)
    assert opaque(program) == [] and "grid_barrier()" in program_text(program)
    text = backend("tilelang").emit(program).text
    assert "T.sync_grid()" in text and same_program(program, TileLangFrontend().parse_text(tmp_path / "again.py", text, "kernel"))
    x = np.arange(512, dtype=np.float32)
    given = {"X": x, "Part": np.zeros(4, np.float32), "Y": np.zeros_like(x)}
    binding = Binding(metas={"parts": 4, "n": 512}, tensors={"X": Tensor([512], "f32"), "Part": Tensor([4], "f32"), "Y": Tensor([512], "f32")})
    result = run(bound(file, binding), given, mode="check")
    assert [str(f) for f in result.findings if f.severity == "error"] == []
    assert (result.outputs["Y"].reshape(4, 128) == x.reshape(4, 128) + x.reshape(4, 128)[[1, 2, 3, 0], :1]).all()
    racing = run(bound(written(tmp_path, MEETING.replace("MEET", "T.sync_threads()")), binding), given, mode="check")
    assert any(f.severity == "error" for f in racing.findings)


def test_a_grid_of_which_some_threads_do_not_come_to_its_barrier_is_stuck(tmp_path: Path) -> None:
    source = MEETING.replace("if parts > 1", "if p > 0").replace("MEET", "T.sync_grid()")
    binding = Binding(metas={"parts": 4, "n": 512}, tensors={"X": Tensor([512], "f32"), "Part": Tensor([4], "f32"), "Y": Tensor([512], "f32")})
    x = np.arange(512, dtype=np.float32)
    found = run(bound(written(tmp_path, source), binding), {"X": x, "Part": np.zeros(4, np.float32), "Y": np.zeros_like(x)}, mode="check").findings
    assert any(f.id == "KIR-I020" for f in found)


def test_rows_of_a_fragment_that_are_each_threads_own_are_arrays_of_the_threads(tmp_path: Path) -> None:
    source = """
@T.prim_func
def kernel(X: T.Tensor([128], "float32"), Y: T.Tensor([128], "float32")):
    with T.Kernel(1, threads=32) as b:
        t = T.get_thread_binding()
        held = T.alloc_local((4,), "float32")
        tile = T.alloc_fragment((32, 4), "float32")
        for k in T.serial(4):
            held[k] = X[t * 4 + k]
        T.fill(tile, 1.0)
        T.copy(tile[0, 0:4], Y[0:4])
        for k in T.serial(4):
            Y[t * 4 + k] = held[k]
"""
    program = read(written(tmp_path, source))
    assert "fragment held: f32[32, 4]" in program_text(program)  # threads go through two loops
    text = backend("tilelang").emit(program).text
    assert 'held = T.alloc_local((4,), "float32")' in text and 'tile = T.alloc_fragment((32, 4), "float32")' in text
    assert same_program(program, TileLangFrontend().parse_text(tmp_path / "again.py", text, "kernel"))


def test_shared_memory_that_is_read_beside_a_condition_is_read_so_again(tmp_path: Path) -> None:
    file = written(tmp_path, """
@T.prim_func
def kernel(X: T.Tensor([32], "float32"), Y: T.Tensor([32], "float32"), k: T.int32):
    with T.Kernel(1, threads=32) as b:
        t = T.get_thread_binding()
        held = T.alloc_shared((33,), "float32")
        held[t] = X[t]
        if t == 0:
            held[32] = 0.0
        T.sync_threads()
        if (t < k) & (held[t + 1] > X[t]):
            Y[t] = held[t]
""")
    program = read(file)
    text = backend("tilelang").emit(program).text
    assert "& (held[t + 1] > X[t])" in text.replace("t_1", "t") and " and " not in text
    assert same_program(program, TileLangFrontend().parse_text(tmp_path / "again.py", text, "kernel"))
