"""What conditions of the binding say of what comes after them: which kernel is reached, what is there at all, and what a name stands for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.frontends.tilelang.frontend import TileLangFrontend
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.printer import expr_text, program_text
from kir.ir.visit import statements
from kir.learning.corpus.roundtrip.equal import same_program
from kir.surface import backend
from tests.frontends.reading import opaque
from tests.frontends.tilelang.reading import execute, read, written


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
    assert expr_text(program.kernels[0].grid[0].extent) == "n // rows + 1"


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


def test_a_long_sum_is_no_deeper_than_a_short_one(tmp_path: Path) -> None:
    terms = PAGED.replace("A[place(Table, bx, page)]", " + ".join(f"A[bx + {k}]" for k in range(150))).replace("Table: T", "Table: T")
    program = read(written(tmp_path, terms))
    assert opaque(program) == []
    deep = "".join(f"(A[bx + {k}] + " for k in range(80)) + "A[bx]" + ")" * 80
    assert any("too deeply" in x for x in opaque(read(written(tmp_path, PAGED.replace("A[place(Table, bx, page)]", deep)))))


TIMES = """
def make(n, size: int = 24):
    @T.macro
    def fill(S, k: int, step: int):
        if k < size:
            S[k] = k * step
            fill(S, k + 1, step)

    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n, 32), "float32")):
        with T.Kernel(n, threads=32) as bx:
            S = T.alloc_local((32,), "float32")
            fill(S, 0, {step})
            B[bx, 0] = S[3] + A[bx]
    return kernel
"""


def test_a_macro_that_calls_itself_is_followed_as_far_as_the_binding_says(tmp_path: Path) -> None:
    file = written(tmp_path, TIMES.replace("{step}", "2"))
    made = TileLangFrontend().instantiate(file, "kernel", Binding(kernel="kernel", sizes=["n"], metas={"size": 24}))
    assert opaque(made) == []
    assert sum(isinstance(s, n.Store) for s in statements(made.kernels[0].body)) == 25
    assert any("calls itself too often" in x for x in opaque(TileLangFrontend().instantiate(
        file, "kernel", Binding(kernel="kernel", sizes=["n"], metas={"size": 60}))))


MODES = """
import enum

class Mode(str, enum.Enum):
    PLAIN = "plain"
    TWICE = "twice"

def make(n, mode: str):
    kind = Mode(mode)

    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(n, threads=32) as bx:
            if kind is Mode.TWICE:
                B[bx] = A[bx] * 2
            else:
                B[bx] = A[bx]
    return kernel
"""


def test_members_of_an_enumeration_of_texts_are_its_texts(tmp_path: Path) -> None:
    file = written(tmp_path, MODES)
    program = is_read_back(file)
    assert "meta_is(mode, value=twice)" in program_text(program)
    with pytest.raises(KirError, match=r"KIR-F402.*no value of 'Mode'"):
        TileLangFrontend().instantiate(file, "kernel", Binding(kernel="kernel", sizes=["n"], metas={"mode": "thrice"}))


NESTED = """
def first(xs, low, flag):
    for x in xs:
        if flag:
            if x > low:
                return x
    return 0

def make(n, flag: bool, low: int = 2):
    if flag:
        shift = 1
        if n > 4:
            return None
    else:
        shift = 2
    chosen = first([1, 2, 3, 4], low, flag)

    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(n, threads=32) as bx:
            B[bx] = A[bx] * 10 + chosen + shift
    return kernel
"""


@pytest.mark.parametrize(("flag", "low", "added"), [(True, 2, 4.0), (True, 9, 1.0), (False, 2, 2.0)])
def test_what_stands_behind_nested_returns_is_followed(tmp_path: Path, flag: bool, low: int, added: float) -> None:
    file = written(tmp_path, NESTED)
    out = execute(file, {"A": np.ones(3, np.float32)}, {"flag": flag, "low": low}, sizes=["n"], facts=["n >= 1", "n <= 4"])
    assert out["B"].tolist() == [10 + added] * 3


MANY = """
def make(n, {flags}):
    @T.prim_func
    def kernel({tensors}, B: T.Tensor((n,), "float32")):
        with T.Kernel(n, threads=32) as bx:
            B[bx] = 1.0
    return kernel
"""


@pytest.mark.parametrize(("count", "sides"), [(1, 2), (3, 8), (4, 1)])
def test_a_function_that_is_more_kernels_than_are_told_apart_stays_text(tmp_path: Path, count: int, sides: int) -> None:
    flags = ", ".join(f"f{k}: bool" for k in range(count))
    tensors = ", ".join(f'A{k}: T.Tensor((n, 4) if f{k} else (n,), "float32")' for k in range(count))
    file = written(tmp_path, MANY.replace("{flags}", flags).replace("{tensors}", tensors))
    found = TileLangFrontend().sides(file, "kernel")
    assert len(found) == sides
    assert [bool(opaque(p)) for _, p in found] == [sides == 1] * sides


WORDS = """
def widened(x):
    kind = str(x.dtype)
    return T.cast(x, "float32") if kind.startswith(("float", "bfloat")) and not kind.endswith(("32", "64")) else x

def make(n):
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float16"), C: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(n, threads=32) as bx:
            B[bx] = widened(A[bx]) + widened(C[bx])
    return kernel
"""


def test_a_dtype_as_a_text(tmp_path: Path) -> None:
    text = program_text(is_read_back(written(tmp_path, WORDS)))
    assert "cast(x, f32) + x_1" in text
    open_ = WORDS.replace("def make(n):", "def make(n, dtype):").replace('A: T.Tensor((n,), "float16")', "A: T.Tensor((n,), dtype)")
    assert any("'str' of these values" in x for x in opaque(read(written(tmp_path, open_))))
