"""What is refused, and what is kept as text: each with its place and its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.frontends.tilelang.frontend import TileLangFrontend
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.bindings.specialize import specialize
from kir.ir.types import TileType
from kir.ir.visit import statements
from tests.frontends.reading import opaque
from tests.frontends.tilelang.reading import HEAD, read, written

BODY = """
@T.prim_func
def kernel(x: T.Tensor((64,), "float32"), y: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64) as b:
        s = T.alloc_shared((64,), "float32")
        {}
        T.copy(s, y)
"""


def test_an_unknown_word_names_the_nearest_and_is_kept_with_what_it_touches(tmp_path: Path) -> None:
    program = read(written(tmp_path, BODY.format("T.copi(x, s)")))
    found = next(s for s in statements(program.kernels[0].body) if isinstance(s, n.Opaque))
    assert "did you mean 'copy'" in found.reason
    assert found.text == "T.copi(x, s)"
    assert found.reads == found.writes == ("x", "s")
    assert found.origin is not None and found.origin.line == HEAD.count("\n") + 6


@pytest.mark.parametrize(("line", "reason"), [
    ("t = T.alloc_tmem((64, 64), 'float32')", "Blackwell"),
    ("T.copy(x[0:32], s)", "a copy of [32] to [64]"),
    ("T.gemm(s, s, s)", "as a matrix"),
    ("s[0:4] = 1.0", "region"),
    ("T.rng_init(3)", "not read yet"),
    ("T.tma_copy(x, s)", "without a barrier"),
    ("v = missing + 1", "'missing' is not defined"),
    ("T.copy(x, s, speed=3)", "'speed' of 'T.copy'"),
    ("T.reduce_sum(s, s, dim=4)", "axis 4"),
    ("T.copy(s[0:63], s[1:64])", "a slice of itself that overlaps"),
    ("T.copy(y[16:64], y[0:48])", "a slice of itself that overlaps"),
    ("t = T.get_thread_binding()\n        g = t // 32\n        s[t] = x[t]\n        T.sync_threads(g + 1, 32)", "whose number each thread works out"),
])
def test_a_statement_that_is_not_understood_has_its_reason(tmp_path: Path, line: str, reason: str) -> None:
    program = read(written(tmp_path, BODY.format(line)))
    assert any(reason in x for x in opaque(program)), opaque(program)


@pytest.mark.parametrize(("line", "races"), [("s[i + 1] = s[i]", True), ("s[i] = s[i + 1] * 2.0", True), ("s[i] = s[i] + 1.0", False)])
def test_iterations_that_read_what_others_write_are_not_one_statement_on_tiles(tmp_path: Path, line: str, races: bool) -> None:
    program = read(written(tmp_path, BODY.format(f"T.copy(x, s)\n        for i in T.Parallel(63):\n            {line}")))
    stores = [s for s in statements(program.kernels[0].body) if isinstance(s, n.Store) and s.at.buffer.space == "shared"]
    assert not opaque(program) and any(isinstance(s.value.type, TileType) for s in stores) is not races


def test_what_an_opaque_statement_binds_is_unknown_from_there_on(tmp_path: Path) -> None:
    program = read(written(tmp_path, BODY.format("v = T.no_such_word()\n        s[0] = v")))
    assert len(opaque(program)) == 2
    assert opaque(program)[0] == opaque(program)[1]


def test_threads_that_part_around_a_tile_operation_are_kept_as_text(tmp_path: Path) -> None:
    program = read(written(tmp_path, BODY.format("if x[T.get_thread_binding()] > 0:\n            T.copy(x, s)")))
    assert opaque(program) == ["a branch on what differs between threads, around a tile operation"]


def test_two_layouts_for_one_buffer_are_refused_with_both_places(tmp_path: Path) -> None:
    file = written(tmp_path, BODY.format(
        "T.annotate_layout({s: tilelang.layout.make_swizzled_layout(s)})\n        T.annotate_layout({s: tilelang.layout.make_linear_layout(s)})"))
    with pytest.raises(KirError) as bad:
        TileLangFrontend().parse(file, "kernel")
    found = bad.value.diagnostics[0]
    first = HEAD.count("\n") + 6
    assert found.id == "KIR-F401"
    assert found.origin is not None and found.origin.line == first + 1
    assert f"line {first}" in found.message


FACTORY = """
{}
@tilelang.jit
def factory(n, flag: bool):
    assert n % 8 == 0
    if flag:
        @T.prim_func
        def kernel(x: T.Tensor((n,), "float32")):
            with T.Kernel(1, threads=32) as b:
                T.fill(x, WIDTH)
    else:
        @T.prim_func
        def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
            with T.Kernel(1, threads=32) as b:
                T.copy(y, x)
    return kernel
"""


@pytest.mark.parametrize(("metas", "kernel"), [({"n": 12, "flag": True}, "kernel"), ({"n": 8, "flag": False}, "kernel"), ({"n": 8, "flag": True}, "kernel__2")])
def test_values_for_which_the_factory_makes_no_such_kernel_are_refused(tmp_path: Path, metas: dict[str, int], kernel: str) -> None:
    file = written(tmp_path, FACTORY.format("WIDTH = 4"))
    with pytest.raises(KirError) as bad:
        TileLangFrontend().instantiate(file, kernel, Binding(metas=dict(metas)))
    assert bad.value.diagnostics[0].id == "KIR-F402"


def test_what_the_host_asks_of_its_machine_stays_open(tmp_path: Path) -> None:
    file = written(tmp_path, FACTORY.format("WIDTH = 4 if torch.cuda.get_device_capability()[0] >= 9 else 2"))
    program = read(file)
    assert opaque(program) == []
    asked = [m.name for m in program.metas if m.name not in ("n", "flag")]
    assert len(asked) == 1
    for answer, width in ((9, 4), (8, 2)):
        binding = Binding(metas={"n": 8, "flag": True, asked[0]: answer})
        made = specialize(TileLangFrontend().instantiate(file, "kernel", binding), binding)
        store = next(s for s in statements(made.kernels[0].body) if isinstance(s, n.Store))
        assert isinstance(store.value, n.Const) and store.value.value == width


def test_a_binding_with_a_name_that_there_is_not_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, FACTORY.format("WIDTH = 4"))
    binding = Binding(metas={"n": 8, "flag": True, "flga": 1})
    with pytest.raises(KirError) as bad:
        specialize(TileLangFrontend().instantiate(file, "kernel", binding), binding)
    assert bad.value.diagnostics[0].id == "KIR-F011"


def test_a_misspelled_kernel_and_a_file_without_one(tmp_path: Path) -> None:
    file = written(tmp_path, FACTORY.format("WIDTH = 4"))
    assert [k.name for k in TileLangFrontend().kernels(file)] == ["kernel", "kernel__2"]
    for source, name in ((file, "kernle"), (written(tmp_path, "x = 1"), "kernel")):
        with pytest.raises(KirError) as bad:
            TileLangFrontend().parse(source, name)
        assert bad.value.diagnostics[0].id == "KIR-F003"


def test_broken_files_and_recursion_do_not_crash(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import tilelang\n@T.prim_func\ndef f(:\n")
    with pytest.raises(KirError) as bad:
        TileLangFrontend().kernels(tmp_path / "broken.py")
    assert bad.value.diagnostics[0].id == "KIR-F002"
    file = written(tmp_path, "@T.macro\ndef again(x):\n    return again(x)\n" + BODY.format("again(x)"))
    assert "'again' calls itself too often to follow (again -> again)" in opaque(read(file))


def test_branches_at_the_top_of_a_module_count_with_all_their_conditions(tmp_path: Path) -> None:
    file = written(tmp_path, FACTORY.format("""import os
os.system("touch executed")
if torch.cuda.is_available():
    WIDTH = 1
elif os.environ.get("SMALL") == "1":
    WIDTH = 2
elif "TINY" in os.environ:
    WIDTH = 3
else:
    WIDTH = 4"""))
    assert opaque(read(file)) == []
    assert not (tmp_path / "executed").exists() and not Path("executed").exists()
    for answers, width in (((True,), 1), ((False, "1"), 2), ((False, "0", True), 3), ((False, "0", False), 4)):
        binding = Binding(metas={"n": 8, "flag": True, **dict(zip(("is_available", "SMALL", "TINY"), answers))})
        made = specialize(TileLangFrontend().instantiate(file, "kernel", binding), binding)
        store = next(s for s in statements(made.kernels[0].body) if isinstance(s, n.Store))
        assert isinstance(store.value, n.Const) and store.value.value == width


@pytest.mark.parametrize(("line", "reason"), [
    ("for k in T.Pipelined(4, num_stage=2):\n            T.copy(x, s)", "did you mean 'num_stages'"),
    ("T.fill(buffer=s)", "'T.fill' lacks 'value'"),
    ("T.reduce_max(s, s, axis=0)", "'axis' of 'T.reduce_max'"),
])
def test_a_misspelled_or_missing_parameter_is_said(tmp_path: Path, line: str, reason: str) -> None:
    assert any(reason in x for x in opaque(read(written(tmp_path, BODY.format(line)))))


def test_a_layout_of_a_view_is_one_of_its_memory(tmp_path: Path) -> None:
    both = "T.annotate_layout({s: tilelang.layout.make_swizzled_layout(s)})\n        v = T.view(s, (8, 8))\n        "
    file = written(tmp_path, BODY.format(both + "T.annotate_layout({v: tilelang.layout.make_linear_layout(v)})"))
    with pytest.raises(KirError) as bad:
        TileLangFrontend().parse(file, "kernel")
    assert bad.value.diagnostics[0].id == "KIR-F401"
    alone = "v = T.view(s, (8, 8))\n        T.annotate_layout({v: tilelang.layout.make_linear_layout(v)})"
    assert any("another form of 's'" in x for x in opaque(read(written(tmp_path, BODY.format(alone)))))


def test_what_the_binding_says_of_threads_decides_an_all_reduce(tmp_path: Path) -> None:
    reduce = ("with T.attr(T.comm_reducer(lambda a, b: a + b, [0.0]), 'reduce_scope', T.reinterpret(T.uint64(0), dtype='handle')):\n"
              "            T.evaluate(T.tvm_thread_allreduce(T.uint32(1), x[0], True, s[0], T.get_thread_binding(0), dtype='handle'))")
    assert any("48 threads, which are no power of two" in x for x in opaque(read(written(tmp_path, BODY.format(reduce).replace("threads=64", "threads=48")))))
