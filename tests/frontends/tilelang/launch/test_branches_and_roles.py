"""Functions that are several kernels by conditions of the binding, and branches on the thread's number around what threads do together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.frontends.tilelang.frontend import TileLangFrontend
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.printer import program_text
from kir.ir.visit import statements
from kir.learning.corpus.roundtrip.equal import same_program
from kir.learning.corpus.roundtrip.one import examine
from kir.surface import backend
from tests.frontends.reading import opaque
from tests.frontends.tilelang.numpy_kernels import F32
from tests.frontends.tilelang.reading import bound, execute, read, written

PARTS = """
def factory(n, parts, dtype="float32"):
    @T.macro
    def part(X, Z):
        with T.Kernel(T.ceildiv(n, 32), parts, threads=32) as (b, p):
            for i in T.Parallel(32):
                Z[p, b * 32 + i] = X[b * 32 + i] * (p + 1)

    @T.macro
    def joined(Z, Y):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as b:
            acc = T.alloc_fragment((32,), dtype)
            T.clear(acc)
            for p in T.serial(parts):
                for i in T.Parallel(32):
                    acc[i] += Z[p, b * 32 + i]
            T.copy(acc, Y[b * 32])

    @T.macro
    def whole(X, Y):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as b:
            for i in T.Parallel(32):
                Y[b * 32 + i] = X[b * 32 + i]

    @T.prim_func
    def kernel(X: T.Tensor((n,), dtype), Z: T.Tensor((parts, n), dtype), Y: T.Tensor((n,), dtype)):
        if parts > 1:
            part(X, Z)
            joined(Z, Y)
        else:
            whole(X, Y)
    return kernel
"""


def test_a_function_that_is_several_kernels_by_a_condition_is_read_as_each(tmp_path: Path) -> None:
    file = written(tmp_path, PARTS)
    assert opaque(read(file)) == ["it is another kernel where gt(parts,1) holds, which the binding decides"]
    made = dict(TileLangFrontend().sides(file, "kernel"))
    assert [(side, len(p.kernels), opaque(p)) for side, p in made.items()] == [("gt(parts,1)", 2, []), ("not(gt(parts,1))", 1, [])]
    assert [r["state"] for r in examine(file, frozenset(), lambda name: None)] == ["equal", "equal"]
    x = np.arange(40, dtype=F32)
    for parts, times in ((1, 1), (3, 6)):
        out = execute(file, {"X": x, "Z": np.zeros((parts, 40), F32), "Y": np.zeros(40, F32)}, {"parts": parts}, sizes=["n"], facts=["n >= 1"])
        np.testing.assert_array_equal(out["Y"], x * times)


def test_a_kernel_inside_a_kernel_stays_text(tmp_path: Path) -> None:
    body = "            for i in T.Parallel(32):\n                Y[b"
    source = PARTS.replace(body, f"            joined(Z, Y)\n{body}").replace("whole(X, Y)", "whole(X, Y, Z)")
    made = dict(TileLangFrontend().sides(written(tmp_path, source), "kernel"))
    assert opaque(made["not(gt(parts,1))"]) == ["a kernel inside a kernel"]


def test_two_kernels_of_a_side_that_something_else_makes_are_two_kernels(tmp_path: Path) -> None:
    """What a side assumes is no branch around the kernels: each has a launch of its own."""
    last = "        else:\n            whole(X, Y)"
    source = PARTS.replace("factory(n, parts", "factory(n, parts, twice")
    source = source.replace(last, f"        elif twice:\n            whole(X, Y)\n            whole(Y, X)\n{last}")
    made = dict(TileLangFrontend().sides(written(tmp_path, source), "kernel"))
    assert {side: len(p.kernels) for side, p in made.items()} == {"gt(parts,1)": 2, "not(gt(parts,1)), twice": 2, "not(gt(parts,1)), not(twice)": 1}
    assert not any(opaque(p) for p in made.values())


EARLY = """
def factory(n, turned, LEFT):
    @T.macro
    def body(X, At, Y):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as b:
            for i in T.Parallel(32):
                if turned:
                    Y[b * 32 + i] = At[b, i, 0] + X[b * 32 + i]
                else:
                    Y[b * 32 + i] = X[b * 32 + i]

    if turned:
        @T.prim_func
        def other(X: T.Tensor((n,), "float32"), At: T.Tensor((n // 32, 32, 1), "float32"), Y: T.Tensor((n,), "float32")):
            body(X, At, Y)
        LEAVES

    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        body(X, X, Y)
    return kernel
"""


def test_what_follows_a_way_that_left_before_is_read_as_where_it_did_not(tmp_path: Path) -> None:
    for leaves in ("return other", "raise ValueError(n)", "if LEFT:\n            return other\n        else:\n            raise ValueError(n)"):
        assert opaque(read(written(tmp_path, EARLY.replace("LEAVES", leaves)))) == [], leaves
    assert opaque(read(written(tmp_path, EARLY.replace("LEAVES", "return other")), "other")) == []
    for leaves in ("pass", "if LEFT:\n            return other"):  # the kernel is made where it is turned, too
        assert opaque(read(written(tmp_path, EARLY.replace("LEAVES", leaves)))), leaves


ROLES = """
def factory(n):
    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32"), Y: T.Tensor((64, 32), "float32")):
        with T.Kernel(1, threads=192) as b:
            held = T.alloc_shared((2, 64, 32), "float32")
            told = T.alloc_shared((2,), "int32")
            full = T.alloc_barrier([64])
            which = T.alloc_local((1,), "int32")
            tx = T.get_thread_binding()
            if tx >= 128:
                which[0] = (tx - 128) % 3
                if tx == 128:
                    told[0] = n % 2
                for i in T.serial(16):
                    held[tx % 2, (tx - 128) // 2 * 2 + i % 2, i] = which[0]
                T.barrier_arrive(full[0])
            if tx < 128:
                T.barrier_wait(full[0], 0)
                which[0] = OTHER
                if which[0] == 1:
                    for i, j in T.Parallel(64, 32):
                        Y[i, j] = i + j
                else:
                    for i, j in T.Parallel(64, 32):
                        Y[i, j] = i - j
    return kernel
"""


def test_what_one_role_keeps_says_nothing_of_another(tmp_path: Path) -> None:
    file = written(tmp_path, ROLES.replace("OTHER", "told[0]"))
    program = read(file)
    assert opaque(program) == []
    roles, = (s for s in statements(program.kernels[0].body) if isinstance(s, n.Roles))
    assert [r.name for r in roles.roles] == ["warps_0_4"]
    i, j = np.indices((64, 32))
    for count in (4, 5):
        out = execute(file, {"X": np.zeros(count, F32), "Y": np.zeros((64, 32), F32)}, sizes=["n"], facts=["n >= 1"])
        np.testing.assert_array_equal(out["Y"], i + j if count % 2 else i - j)
    for other in ("tx % 2", "which[0] + tx // 64"):  # its own threads differ
        assert "a branch on what differs between threads, around a tile operation" in opaque(read(written(tmp_path, ROLES.replace("OTHER", other))))
    shared = ROLES.replace("OTHER", "told[0]").replace("if tx < 128:", "if tx < 160:")  # some threads are in both
    assert "a branch on what differs between threads, around a tile operation" in opaque(read(written(tmp_path, shared)))


COPIES = """
def factory(n):
    @T.prim_func
    def kernel(X: T.Tensor((n, 64), "float16"), Y: T.Tensor((n, 64), "float16")):
        with T.Kernel(T.ceildiv(n, 64), threads=256) as b:
            held = T.alloc_shared((64, 64), "float16")
            full = T.alloc_barrier([1])
            tx = T.get_thread_binding()
            if tx < 128:
                for k in T.serial(1):
                    if tx == 0:
                        T.tma_copy(X[b * 64:b * 64 + 64, 0:64], held, barrier=full[0])
                        T.barrier_arrive(full[0])
                    ALL
            else:
                T.barrier_wait(full[0], 0)
                T.copy(held, Y[b * 64:b * 64 + 64, 0:64])
    return kernel
"""


def test_a_branch_of_one_thread_that_copies_parts_no_roles(tmp_path: Path) -> None:
    program = read(written(tmp_path, COPIES.replace("ALL", "T.sync_warp()")))
    assert opaque(program) == [] and "role warps_0_4 warps 0..4" in program_text(program)
    together = COPIES.replace("ALL", "pass").replace("T.barrier_arrive(full[0])\n", "T.clear(held)\n")  # all threads of a team clear it
    assert opaque(read(written(tmp_path, together))) == ["a branch on what differs between threads, around a tile operation"]


def test_a_role_that_a_binding_gives_its_threads_is_one(tmp_path: Path) -> None:
    file = written(tmp_path, COPIES.replace("ALL", "T.sync_warp()").replace("factory(n)", "factory(n, threads)").replace("threads=256", "threads=threads"))
    assert opaque(read(file)) == ["a branch on the thread's number, where the binding decides how many threads there are"]
    assert opaque(bound(file, Binding(metas={"threads": 256}, sizes=["n"], facts=["n >= 1"]))) == []


APART = """
def factory(n):
    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32"), Y: T.Tensor((64, 32), "float32")):
        with T.Kernel(1, threads=THREADS) as b:
            held = T.alloc_shared((64, 32), "float32")
            full = T.alloc_barrier([COUNT])
            tx = T.get_thread_binding()
            if FIRST:
                T.clear(held)
                T.barrier_arrive(full[0])
            if SECOND:
                T.barrier_wait(full[0], 0)
                T.copy(held, Y)
"""


@pytest.mark.parametrize(("threads", "count", "first", "second", "roles"), [
    (288, 32, "tx >= 256", "tx < 128", ["warps_0_4", "warps_8_9"]),
    (384, 128, "tx < 128", "tx >= 128 and tx < 256", ["warps_0_4", "warps_4_8"]),
    (384, 64, "tx >= 32 and tx < 96", "tx >= 96 and tx < 352", ["warps_1_3", "warps_3_11"]),
    (128, 96, "tx < 96", "tx >= 96", ["warps_0_3", "warps_3_4"]),
])
def test_roles_of_some_warps_are_written_as_branches_of_theirs(tmp_path: Path, threads: int, count: int, first: str, second: str, roles: list[str]) -> None:
    source = APART.replace("THREADS", str(threads)).replace("COUNT", str(count)).replace("FIRST", first).replace("SECOND", second)
    file = written(tmp_path, source)
    program = read(file)
    found, = (s for s in statements(program.kernels[0].body) if isinstance(s, n.Roles))
    assert [r.name for r in found.roles] == roles
    assert same_program(program, TileLangFrontend().parse_text(tmp_path / "again.py", backend("tilelang").emit(program).text, "kernel"))
    assert [r["state"] for r in examine(file, frozenset(), lambda name: None)] == ["equal"]


def test_registers_of_part_of_a_warpgroup_are_refused(tmp_path: Path) -> None:
    source = APART.replace("THREADS", "384").replace("COUNT", "32").replace("FIRST", "tx >= 32 and tx < 64").replace("SECOND", "tx >= 128 and tx < 256")
    program = read(written(tmp_path, source.replace("T.clear(held)", "T.set_max_nreg(40, 0)\n                T.clear(held)")))
    with pytest.raises(KirError, match="KIR-B304"):
        backend("tilelang").emit(program)


def test_a_condition_on_threads_and_on_something_else_is_two(tmp_path: Path) -> None:
    source = APART.replace("THREADS", "288").replace("COUNT", "32").replace("FIRST", "tx >= 256").replace("with T.Kernel(1", "with T.Kernel(n")
    program = read(written(tmp_path, source.replace("SECOND", "b == n - 1 and tx < 128")))
    assert opaque(program) == []
    found, = (s for s in statements(program.kernels[0].body) if isinstance(s, n.Roles))
    assert [r.name for r in found.roles] == ["warps_0_4", "warps_8_9"]
    inner, = found.roles[0].body
    assert isinstance(inner, n.If) and "b == n - 1" in program_text(program)
    for second in ("tx < 128 and X[tx] > 0.0", "b == n - 1 or tx < 128"):  # no role of warps
        assert "a branch on what differs between threads, around a tile operation" in opaque(read(written(tmp_path, source.replace("SECOND", second))))
