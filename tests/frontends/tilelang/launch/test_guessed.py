"""Kernels that only values of a binding make whole: read under values that the code beside them gives, and usual ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kir.frontends.tilelang.frontend import TileLangFrontend
from kir.frontends.tilelang.launch.guessed import repaired
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.nodes import Program
from kir.ir.types import I32
from kir.learning.corpus.roundtrip.one import examine
from tests.frontends.reading import opaque
from tests.frontends.tilelang.reading import read, written

ROLES = """
SETTINGS = {"block": 32, "threads": 160}


def factory(rows, dim, wide, dtype="float16"):
    if dim % 48 != 0:
        raise ValueError("whole tiles alone")

    @tilelang.jit(out_idx=[1])
    def build(block, threads):
        consumers = 128
        if wide:
            @T.prim_func
            def broad(X: T.Tensor((rows, dim), dtype), Y: T.Tensor((rows, dim), dtype)):
                with T.Kernel(1, threads=threads) as b:
                    T.copy(X, Y)
            return broad

        @T.prim_func
        def kernel(X: T.Tensor((rows, dim), dtype), Y: T.Tensor((rows, dim), dtype)):
            with T.Kernel(T.ceildiv(rows, block), threads=threads) as b:
                held = T.alloc_shared((block, 48), dtype)
                full = T.alloc_barrier([threads - consumers])
                tx = T.get_thread_binding()
                if tx >= consumers:
                    T.tma_copy(X[b * block:(b + 1) * block, 0:48], held, barrier=full[0])
                    T.barrier_arrive(full[0])
                else:
                    T.barrier_wait(full[0], 0)
                    T.copy(held, Y[b * block:(b + 1) * block, 0:48])
        return kernel
    return build
"""


def guesses(file: Path, kernel: str = "kernel", side: str = "") -> Iterator[tuple[Program, tuple[str, ...]]]:
    """What a kernel is read as under each guess."""
    return TileLangFrontend().guessed(file, kernel, side)


def test_threads_come_from_a_table_beside_the_kernel(tmp_path: Path) -> None:
    file = written(tmp_path, ROLES)
    assert opaque(read(file)) == ["a branch on the thread's number, where the binding decides how many threads there are"]
    made, said = next(guesses(file))
    assert opaque(made) == [] and build.int_value(made.kernels[0].threads) == 160
    assert [m.default for m in made.metas if m.name == "block"] == [32]
    assert {"block", "threads"}.isdisjoint(said)  # the table says these
    record, = (r for r in examine(file, frozenset(), lambda name: None) if r["kernel"] == "kernel")
    assert record["state"] == "equal" and {"block", "threads"}.isdisjoint(record["guessed"])


def test_what_nothing_says_is_guessed_and_the_rest_stays_open(tmp_path: Path) -> None:
    file = written(tmp_path, ROLES.replace('SETTINGS = {"block": 32, "threads": 160}', ""))
    made, said = list(guesses(file))[-1]
    values = {m.name: m.default for m in made.metas}
    assert {"block", "threads"} <= set(said) and values["wide"] is False  # or it is the other function
    assert opaque(made) == [] and [values[x] for x in ("rows", "dim")] == [None, None]


def test_a_factory_that_makes_no_kernel_is_not_read_by_guessing(tmp_path: Path) -> None:
    """No CTA has that many threads: nothing is found for which the factory's own check holds."""
    file = written(tmp_path, ROLES.replace("consumers = 128", "consumers = 128\n        if threads < 4096:\n            raise ValueError(threads)"))
    assert all(opaque(made) for made, _ in guesses(file))


def test_a_side_of_a_kernel_is_guessed_as_that_side(tmp_path: Path) -> None:
    file = written(tmp_path, """
def factory(n, lanes, twice=False):
    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        if twice:
            with T.Kernel(T.ceildiv(n, 128), threads=128) as b:
                T.copy(X[b * 128], Y[b * 128])
            with T.Kernel(T.ceildiv(n, 64), threads=64) as b:
                tid = T.get_thread_binding()
                Y[b * 64 + tid] = T.shfl_xor(Y[b * 64 + tid], 1, lanes)
        else:
            with T.Kernel(T.ceildiv(n, 64), threads=64) as b:
                tid = T.get_thread_binding()
                Y[b * 64 + tid] = T.shfl_xor(X[b * 64 + tid], 1, lanes)
    return kernel


def run(x):
    return factory(n=x.shape[0], lanes=16)
""")
    records = {r["kernel"]: r for r in examine(file, frozenset(), lambda name: None)}
    assert list(records) == ["kernel where twice", "kernel where not(twice)"]
    assert {r["state"] for r in records.values()} == {"equal"}
    for side, kernels in (("twice", 2), ("not(twice)", 1)):
        made, _ = list(guesses(file, side=side))[-1]
        assert len(made.kernels) == kernels


@pytest.mark.parametrize("listed", ["for x in extents:\n            total = total * x", "total = len(extents)"])
def test_lists_are_given_by_their_elements(tmp_path: Path, listed: str) -> None:
    file = written(tmp_path, f"""
def factory(rows, extents, dtype):
    def count():
        total = 1
        {listed}
        return total

    @T.prim_func
    def kernel(X: T.Tensor((rows,), dtype), Y: T.Tensor((rows,), dtype)):
        with T.Kernel(T.ceildiv(rows, 32), threads=32) as b:
            for i in T.Parallel(32):
                Y[b * 32 + i] = X[b * 32 + i] * count()
    return kernel
""")
    assert any("extents_0, extents_1" in reason for reason in opaque(read(file)))
    _, said = next(each for each in guesses(file) if not opaque(each[0]))
    assert {"extents_0", "extents_1"} <= set(said)


def test_lists_of_lists_are_given_as_such(tmp_path: Path) -> None:
    file = written(tmp_path, """
def factory(rows, shapes, count):
    first, second = shapes[0]
    wide = sum(a * b for a, b in shapes[:count])

    @T.prim_func
    def kernel(X: T.Tensor((rows, wide), "float32"), Y: T.Tensor((rows, first + second), "float32")):
        with T.Kernel(rows, threads=32) as b:
            for i in T.Parallel(first + second):
                Y[b, i] = X[b, i]
    return kernel
""")
    assert opaque(read(file))
    _, said = next(each for each in guesses(file) if not opaque(each[0]))
    assert "shapes_0" in said


def test_dtypes_and_texts_are_what_the_source_knows(tmp_path: Path) -> None:
    file = written(tmp_path, """
WIDTHS = {"bfloat16": 4, "float32": 2}


def factory(rows, dtype, kind):
    width = WIDTHS[dtype]

    @T.prim_func
    def kernel(X: T.Tensor((rows,), dtype), Y: T.Tensor((rows,), dtype)):
        with T.Kernel(T.ceildiv(rows, 32), threads=32) as b:
            tid = T.get_thread_binding()
            if kind == "turned":
                Y[b * 32 + tid] = T.shfl_xor(X[b * 32 + tid], 1, 16 // width * 2)
            else:
                Y[b * 32 + tid] = T.shfl_down(X[b * 32 + tid], 1, 16 // width * 2)
    return kernel
""")
    assert opaque(read(file))
    _, said = next(each for each in guesses(file) if not opaque(each[0]))
    assert {"dtype", "kind"} <= set(said)


def test_a_list_of_buffers_is_told_from_a_buffer(tmp_path: Path) -> None:
    source = """
def factory(rows):
    def cleared(buffers):
        for x in buffers if isinstance(buffers, KIND) else [buffers]:
            T.clear(x)

    @T.prim_func
    def kernel(X: T.Tensor((rows, 32), "float32"), Y: T.Tensor((rows, 32), "float32")):
        with T.Kernel(rows, threads=32) as b:
            one = T.alloc_shared((32,), "float32")
            two = [T.alloc_shared((32,), "float32") for _ in range(2)]
            cleared(two)
            cleared(one)
            T.copy(one, Y[b, 0])
    return kernel
"""
    for kind in ("list", "(list, tuple)"):
        assert opaque(read(written(tmp_path, source.replace("KIND", kind)))) == []
    assert opaque(read(written(tmp_path, source.replace("KIND", "str"))))  # nothing clears a list


def test_layouts_that_another_package_makes_stay_open(tmp_path: Path) -> None:
    source = """
from elsewhere import Emitter


def factory(rows):
    emitter = Emitter(rows)

    @T.prim_func
    def kernel(X: T.Tensor((rows, 32), "float32"), Y: T.Tensor((rows, 32), "float32")):
        with T.Kernel(rows, threads=32) as b:
            acc = T.alloc_fragment((32,), "float32")
            USE
            T.copy(X[b, 0], acc)
            T.copy(acc, Y[b, 0])
    return kernel
"""
    assert opaque(read(written(tmp_path, source.replace("USE", "T.annotate_layout({acc: emitter.make_store_layout(acc)})")))) == []
    for other in ("T.copy(X[b, 0], emitter.make_store_layout(acc))", "acc[0] = emitter.make_store(acc)"):
        assert len(opaque(read(written(tmp_path, source.replace("USE", other))))) == 1


def test_texts_are_changed_until_conditions_hold(tmp_path: Path) -> None:
    file = written(tmp_path, """
def factory(rows, kind, lanes):
    if kind != "plain" and kind != "turned":
        raise ValueError(kind)
    if kind == "plain":
        raise NotImplementedError

    @T.prim_func
    def kernel(X: T.Tensor((rows,), "float32"), Y: T.Tensor((rows,), "float32")):
        with T.Kernel(T.ceildiv(rows, 32), threads=32) as b:
            tid = T.get_thread_binding()
            Y[b * 32 + tid] = T.shfl_xor(X[b * 32 + tid], 1, lanes)
    return kernel


DEFAULTS = {"kind": "plain", "lanes": 16}
""")
    made, said = next(each for each in guesses(file) if not opaque(each[0]))
    assert {m.name: m.default for m in made.metas}["kind"] == "turned" and "kind" in said


def test_values_are_changed_until_conditions_hold() -> None:
    def var(name: str) -> n.Var:
        return n.Var(name, I32)

    needed = [build.compare("eq", build.mod(var("a"), var("b")), 0), build.compare("gt", var("a"), 100), build.compare("eq", var("c"), 1)]
    kinds = dict.fromkeys("abc", "int")
    made = repaired({"a": 64, "b": 48, "c": 64}, needed, kinds, {"b"})
    assert made["b"] == 48 or made["a"] % made["b"] == 0  # type: ignore[operator]  # numbers
    assert made["c"] == 1
    assert repaired({"a": 64}, needed[:1], kinds, set()) == {"a": 64}  # what is left to the binding is no fault
