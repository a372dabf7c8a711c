"""Tiles that have names and statements that share no loop over elements: each is written in a loop of its own, which works out what it uses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.frontends.tilelang.frontend import TileLangFrontend
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.parser import parse_program
from kir.learning.corpus.roundtrip.equal import same_program
from kir.surface import backend
from tests.frontends.reading import opaque
from tests.frontends.tilelang.numpy_kernels import F32, Arrays, Kernel, between, means_what_it_says_and_is_read_back
from tests.frontends.tilelang.reading import read, written

ROTATED = Kernel("""
def make(n, half, style: str = "halves"):
    @T.prim_func
    def kernel(A: T.Tensor((n, half * 2), "float32"), C: T.Tensor((half,), "float32"), B: T.Tensor((n, half * 2), "float32")):
        with T.Kernel(n, threads=32) as bx:
            for i in T.Parallel(half):
                first = i if style == "halves" else i * 2
                second = i + half if style == "halves" else i * 2 + 1
                c = C[i] * 0.5
                x = A[bx, first]
                y = A[bx, second]
                B[bx, first] = x * c - y
                B[bx, second] = y * c + x
    return kernel
""", lambda rng: {"A": rng.standard_normal((3, 16)).astype(F32), "C": rng.standard_normal(8).astype(F32)}, lambda a: {"B": rotated(a)},
                 Binding(metas={"half": 8, "style": "pairs"}, sizes=["n"], facts=between("n")))


def rotated(a: Arrays) -> np.ndarray:
    out = a["A"].reshape(3, 8, 2).copy()
    x, y, c = out[..., 0].copy(), out[..., 1].copy(), a["C"] * F32(0.5)
    out[..., 0], out[..., 1] = x * c - y, y * c + x
    return out.reshape(3, 16)


def test_named_tiles_that_two_loops_use_are_worked_out_in_each(tmp_path: Path) -> None:
    means_what_it_says_and_is_read_back(ROTATED, tmp_path)
    program = read(written(tmp_path, ROTATED.source))
    assert opaque(program) == []
    text = backend("tilelang").emit(program).text
    assert text.count("T.Parallel") == 2
    assert same_program(program, TileLangFrontend().parse_text(tmp_path / "again.py", text, "kernel"))


def test_a_named_tile_of_what_is_written_before_its_second_use_is_refused(tmp_path: Path) -> None:
    inplace = ROTATED.source.replace("B: T.Tensor((n, half * 2)", "B: T.Tensor((n,)").replace("B[bx", "A[bx")
    program = read(written(tmp_path, inplace))
    assert opaque(program) == []
    with pytest.raises(KirError, match="KIR-B306"):
        backend("tilelang").emit(program)


TWICE = """kir 1
program p
  in A: f32[64]
  inout B: f32[64]
kernel k grid (x: 2) threads 32
  shared S: f32[32]
  let a = load(B[x] else 0.0 clip)
  {between}
  let b = load(B[x] else 0.0 clip)
  B[x + 2] = a + {second}
"""


@pytest.mark.parametrize(("between", "one"), [("S[0] = 1.0", True), ("B[x + 4] = 1.0", False), ("barrier()", False)])
def test_a_value_is_worked_out_once_where_nothing_writes_what_it_reads(between: str, one: bool) -> None:
    twice, once = (parse_program(TWICE.format(between=between, second=x)) for x in "ba")
    assert same_program(twice, once) is one
    assert same_program(once, twice) is one


def test_two_names_of_one_memory_are_one_for_what_is_written_between() -> None:
    text = TWICE.format(between="B[x + 4] = 1.0", second="{}").replace("  let a", "  view global V: f32[64] at B[0]\n  let a").replace("load(B[x]", "load(V[x]")
    twice, once = (parse_program(text.format(x)) for x in "ba")
    assert not same_program(twice, once)
    quiet = [parse_program(TWICE.format(between="S[0] = 1.0", second=x)) for x in "ba"]
    alike = [replace(p, params=tuple(replace(q, attrs=n.attrs(alias=True)) for q in p.params)) for p in quiet]
    assert not same_program(*alike)


BEGUN = """
def make(n, staged: bool):
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n,), "int32")):
        with T.Kernel(n, threads=128) as bx:
            tx = T.get_thread_binding()
            if staged:
                ready = T.alloc_barrier([128] * 2)
            before = T.atomic_add(C[bx], 1, memory_order="acq_rel", return_prev=True)
            if staged:
                T.barrier_arrive(ready[0])
                T.barrier_wait(ready[0], 0)
            if tx == 0:
                B[bx] = A[bx] + before
    return kernel
"""


def test_barriers_that_a_branch_begins_and_orders_of_what_was_there_before(tmp_path: Path) -> None:
    program = read(written(tmp_path, BEGUN))
    assert opaque(program) == []
    text = backend("tilelang").emit(program).text
    assert "        if staged:\n                ready = T.alloc_barrier([128] * 2)" in text
    assert 'T.atomic_add(C[bx], 1, memory_order="acq_rel", return_prev=True)' in text
    assert same_program(program, TileLangFrontend().parse_text(tmp_path / "again.py", text, "kernel"))


MASKED = """kir 1
program p
  inout C: i32[8]
  out B: i32[8]
kernel k grid (x: 8) threads 1
  let before = atomic_add(&C[x], 1, {third})
  B[x] = before clip
"""


@pytest.mark.parametrize("third", ["x < 7", "scope=cta"])
def test_what_was_there_before_is_refused_under_a_mask_or_in_another_scope(third: str) -> None:
    with pytest.raises(KirError, match="KIR-B008"):
        backend("tilelang").emit(parse_program(MASKED.replace("{third}", third)))


RUNNING = """
def make(n):
    @T.prim_func
    def kernel(A: T.Tensor((n, 8), "float32"), B: T.Tensor((n, 8), "float32")):
        with T.Kernel(1, threads=32) as bx:
            S = T.alloc_shared((16, 8), "float32")
            for i in T.Parallel(8):
                S[0, i] = A[0, i]
            for k in T.serial(1, 16):
                for i in T.Parallel(8):
                    S[k, i] = S[{row}, i] + A[k, i]
            for k, i in T.Parallel(16, 8):
                B[k, i] = S[k, i]
    return kernel
"""


def test_a_row_is_made_of_the_row_before(tmp_path: Path) -> None:
    program = read(written(tmp_path, RUNNING.replace("{row}", "k - 1")))
    assert opaque(program) == []
    text = backend("tilelang").emit(program).text
    assert same_program(program, TileLangFrontend().parse_text(tmp_path / "again.py", text, "kernel"))


def test_a_row_that_may_be_the_one_that_is_written_is_refused() -> None:
    text = """kir 1
program p
  in A: i32[16]
  out B: f32[8]
kernel k grid (x: 8) threads 32
  shared S: f32[16, 8]
  S[3, 0 +: 8] = S[load(A[x]), 0 +: 8] + 1.0
  B[x] = S[0, 0]
"""
    program = parse_program(text)
    same = parse_program(text.replace("S[3, 0 +: 8] = S[load(A[x]), 0 +: 8] + 1.0", "S[3, 0 +: 7] = S[3, 1 +: 7] + 1.0"))
    for each in (program, same):
        with pytest.raises(KirError, match="KIR-B328"):
            backend("tilelang").emit(each)
