"""What conditions of the binding say of what comes after them: which kernel is reached, what is there at all, and what a name stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.frontends.tilelang.frontend import TileLangFrontend
from kir.ir import nodes as n
from kir.ir.printer import expr_text, program_text
from kir.ir.visit import statements
from kir.learning.corpus.roundtrip.equal import same_program
from kir.surface import backend
from tests.frontends.reading import opaque
from tests.frontends.tilelang.reading import read, written


def is_read_back(file: Path, kernel: str = "kernel") -> n.Program:
    """The kernel, without a statement that is not understood, and equal to what is read of its own text."""
    program = read(file, kernel)
    assert opaque(program) == []
    text = backend("tilelang").emit(program).text
    assert same_program(program, TileLangFrontend().parse_text(file.with_name("again.py"), text, kernel))
    return program


SEVERAL = """
def make(m, n, scaled: bool, summed: bool = False):
    @T.macro
    def body(A, B, S, R):
        with T.Kernel(m, threads=32) as bx:
            tx = T.get_thread_binding()
            factor = S[bx] if scaled else None
            if tx < n:
                if scaled:
                    B[bx, tx] = A[bx, tx] * factor
                else:
                    B[bx, tx] = A[bx, tx]
                if summed and tx == 0:
                    R[bx] = A[bx, 0]

    if scaled and summed:
        raise ValueError("not both")

    if scaled:
        @T.prim_func
        def with_scale(A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32"), S: T.Tensor((m,), "float32")):
            body(A, B, S, None)

        return with_scale

    if summed:
        @T.prim_func
        def with_sum(A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32"), R: T.Tensor((m,), "float32")):
            body(A, B, None, R)

        return with_sum

    @T.prim_func
    def plain(A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32")):
        body(A, B, None, None)

    return plain
"""


@pytest.mark.parametrize(("kernel", "tensors", "stores"), [("with_scale", "ABS", 1), ("with_sum", "ABR", 2), ("plain", "AB", 1)])
def test_a_kernel_behind_a_return_knows_that_it_did_not_happen(tmp_path: Path, kernel: str, tensors: str, stores: int) -> None:
    program = is_read_back(written(tmp_path, SEVERAL), kernel)
    assert "".join(p.name for p in program.params if isinstance(p.of, n.Buffer)) == tensors
    found = [s for k in program.kernels for s in statements(k.body)]
    assert sum(isinstance(s, n.Store) for s in found) == stores
    assert not any(isinstance(s, n.If) and s.static for s in found)


TWICE = """
def make(n, flag: bool, other: bool):
    if flag:
        shift = 1
    elif other:
        return None
    else:
        shift = 2

    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(n, threads=32) as bx:
            B[bx] = A[bx] + shift

    return kernel
"""


def test_a_kernel_that_both_ways_reach_is_each_of_them(tmp_path: Path) -> None:
    file = written(tmp_path, TWICE)
    sides = dict(TileLangFrontend().sides(file, "kernel"))
    assert {label: "+ 1.0" in program_text(p) or "+ 1," in program_text(p) for label, p in sides.items()} == {"flag": True, "not(flag)": False}
    assert "which the binding decides" in opaque(read(file))[0]  # neither alone is the kernel


UNBOUND = """
def make(n, m):
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(n, threads=32) as bx:
            if m > 1:
                kept = T.alloc_shared((32,), "float32")
            if m == 1:
                B[bx] = A[bx]
            else:
                kept[0] = A[bx]
                B[bx] = kept[0] + {after}
    return kernel
"""


def test_a_name_that_one_way_lacks_says_which_way_it_is(tmp_path: Path) -> None:
    program = is_read_back(written(tmp_path, UNBOUND.replace("{after}", "1")))
    body = program.kernels[0].body
    assert sum(isinstance(s, n.Store) for s in statements(body)) == 3


NEVER = """
def make(n, flag: bool):
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(n, threads=32) as bx:
            if flag:
                one = A[bx]
            else:
                other = A[bx]
            if flag:
                B[bx] = other
            else:
                B[bx] = one
    return kernel
"""


def test_a_name_that_no_way_has_bound_makes_no_kernel(tmp_path: Path) -> None:
    with pytest.raises(KirError, match=r"KIR-F402.*is not bound"):
        TileLangFrontend().parse(written(tmp_path, NEVER), "kernel")


DTYPES = """
def make(n, dtype, in_dtype, wide: bool):
    def as_dtype(x):
        return T.cast(x, dtype) if in_dtype != dtype else x

    at = (0, 1) if wide else (1,)

    @T.prim_func
    def kernel(A: T.Tensor((n,), in_dtype), S: T.Tensor((2, 2) if wide else (2,), dtype), B: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
            for i in T.Parallel(32):
                B[bx * 32 + i] = as_dtype(A[bx * 32 + i]) * S[at]
    return kernel
"""


def test_two_dtypes_are_compared_and_a_tuple_is_several_indices(tmp_path: Path) -> None:
    file = written(tmp_path, DTYPES)
    sides = TileLangFrontend().sides(file, "kernel")
    assert [label for label, _ in sides] == ["wide", "not(wide)"]
    for _, program in sides:
        assert opaque(program) == []
        assert {m.name: m.kind for m in program.metas} == {"n": "int", "dtype": "dtype", "in_dtype": "dtype", "wide": "bool"}
    assert "S[0, 1]" in program_text(sides[0][1])
    assert "S[1]" in program_text(sides[1][1])


PAGED = """
def place(table, key, page):
    return table[key // page] * page + key % page

def make(n, page):
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), Table: T.Tensor((n,), "int32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(n, threads=32) as bx:
            B[bx] = A[place(Table, bx, page)]
    return kernel
"""


def test_a_function_that_is_handed_a_parameter_tells_its_kind(tmp_path: Path) -> None:
    program = is_read_back(written(tmp_path, PAGED))
    assert {m.name: m.kind for m in program.metas} == {"n": "int", "page": "int"}


def test_a_parameter_that_may_be_none_keeps_its_kind_open(tmp_path: Path) -> None:
    program = read(written(tmp_path, PAGED.replace("def make(n, page):", "def make(n, page=None):\n    page = 16 if page is None else page")))
    assert {m.name: m.kind for m in program.metas} == {"n": "int", "page": "any"}


ROWS = """
class Rows:
    def __init__(self, rows):
        self.rows = rows

    def blocks(self, count):
        return count // self.rows + 1

def make(rows):
    n = T.dynamic("n")
    tiling = Rows(rows)

    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(tiling.blocks(n), threads=32) as bx:
            B[bx] = A[bx]
    return kernel
"""


def test_a_grid_that_a_function_works_out_names_nothing_before_the_kernel(tmp_path: Path) -> None:
    program = is_read_back(written(tmp_path, ROWS))
    assert program.kernels[0].grid[0].extent == n.Binary("add", n.Binary("floordiv", n.Var("n", program.params[0].of), n.Var(
        "rows", program.params[0].of)), n.Const(1, program.params[0].of))  # type: ignore[arg-type]  # a number


VIEWS = """
def make(n, rows, has_bias: bool):
    @T.macro
    def body(A, B, S):
        flat = T.Tensor((n * rows,), "float32", A.data)
        with T.Kernel(n, threads=32) as bx:
            for i in T.Parallel(rows):
                B[bx, i] = flat[bx * rows + i] + (S[i] if has_bias else 0.0)

    if has_bias:
        @T.prim_func
        def with_bias(A: T.Tensor((n, rows), "float32"), B: T.Tensor((n, rows), "float32"), S: T.Tensor((rows,), "float32")):
            body(A, B, S)

        return with_bias

    @T.prim_func
    def plain(A: T.Tensor((n, rows), "float32"), B: T.Tensor((n, rows), "float32")):
        body(A, B, None)

    return plain
"""


@pytest.mark.parametrize("kernel", ["with_bias", "plain"])
def test_a_tensor_in_another_form_before_the_launch(tmp_path: Path, kernel: str) -> None:
    program = is_read_back(written(tmp_path, VIEWS), kernel)
    view = program.kernels[0].body[0]
    assert isinstance(view, n.View)
    assert (view.buffer.space, view.at.buffer.name) == ("global", "A")


STAGES = """
def make(n, mode: str, waits=None, tile: int = 32):
    rows = [1] + ([2] if mode == "wide" else [])
    stages = 0 if waits is None else 2

    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), F: T.Tensor((n,), "int32")):
        with T.Kernel(n, threads=32) as bx:
            S = T.alloc_shared((tile,), "float32")
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(A[k * tile], S)
                T.copy(S, B[k * tile])
            if mode == "wide":
                B[bx] = A[bx] * functools.reduce(T.max, [F[k] for k in range(3)]) * sum(rows)
            elif mode != "thin" or tile == 8:
                B[bx] = A[bx]
    return kernel
"""


def test_what_a_text_is_tells_what_it_is_not_and_stages_may_ask_it(tmp_path: Path) -> None:
    program = is_read_back(written(tmp_path, "import functools\n" + STAGES))
    found = [*statements(program.kernels[0].body)]
    assert next(dict(s.attrs)["stages"] for s in found if isinstance(s, n.For)) == "select(is(waits,None),0,2)"
    wide = next(s for s in found if isinstance(s, n.Store) and "F[" in program_text_of(s))
    assert program_text_of(wide).count("max") == 2


def program_text_of(s: n.Store) -> str:
    return expr_text(s.value)
