"""Words around asynchronous work that compute nothing: fences of registers, options of copies, addresses as so many elements behind others."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kir.frontends.tilelang.frontend import TileLangFrontend
from kir.ir import nodes as n
from kir.ir.printer import program_text
from kir.learning.corpus.roundtrip.equal import same_program
from kir.surface import backend
from tests.frontends.reading import opaque
from tests.frontends.tilelang.reading import execute, read, written

PRODUCT = """
def factory(k, policy="evict_last"):
    @T.prim_func
    def kernel(A: T.Tensor((64, k), "float16"), B: T.Tensor((k, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=256) as b:
            a = T.alloc_shared((64, 64), "float16")
            w = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            full = T.alloc_barrier([1])
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
def squared(x):
    var = tirx.Var("x", "float32")
    return tirx.Let(var, BOUND, var * var)
@T.prim_func
def kernel(X: T.Tensor((32,), "float32"), Y: T.Tensor((32,), "float32"), Z: T.Tensor((32,), "int32")):
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
