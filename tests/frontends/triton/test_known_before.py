"""What a kernel's compiler knows before the run: texts that are put together, sizes, how memory is reached."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.ir.bindings.specialize import specialize
from kir.ir.visit import statements, walk
from tests.frontends.reading import opaque
from tests.frontends.triton.reading import execute, read, written_back

TEXTS = """
WIDTH = 32
OP = f"add{'.'}f{WIDTH:d}"

@triton.jit
def asm(x, STEP: tl.constexpr):
    word: tl.constexpr = "mul" if STEP == 1 else "add"
    return tl.inline_asm_elementwise(f"{{\\n .reg .f32 t;\\n {OP} t, $1, $1; " f"{word}.f32 $0, t, $1;\\n}}", "=f,f", [x], tl.float32, True, 1)

@triton.jit
def kernel(x, y, B: tl.constexpr, STEP: tl.constexpr):
    at = tl.arange(0, B)
    tl.static_assert(B > 0, f"B is {B:>4} {x}")
    tl.store(y + at, asm(tl.load(x + at), STEP))
"""


@pytest.mark.parametrize(("step", "expected"), [(1, lambda x: 2 * x * x), (2, lambda x: 3 * x)])
def test_texts_of_f_strings_are_put_together(tmp_path: Path, step: int, expected: object) -> None:
    x = np.arange(8, dtype=np.float32)
    out = execute(tmp_path, TEXTS, {"x": x, "y": np.zeros(8, np.float32)}, metas={"B": 8, "STEP": step})
    assert callable(expected)
    np.testing.assert_array_equal(out["y"], expected(x))
    written_back(tmp_path, TEXTS)


@pytest.mark.parametrize("text", ['f"{STEP}"', 'f"{WIDTH:04}"', 'f"{x}"'])
def test_a_text_of_what_is_not_known_is_no_text(tmp_path: Path, text: str) -> None:
    source = TEXTS.replace("return tl.inline_asm_elementwise(", f"return tl.inline_asm_elementwise({text} ")
    assert "an f-string over values that are not known" in opaque(read(tmp_path, source))


def test_a_text_that_is_not_known_equals_nothing(tmp_path: Path) -> None:
    source = '\n@triton.jit\ndef kernel(y, B: tl.constexpr, MODE: tl.constexpr):\n    if MODE == f"a{B}":\n        tl.store(y, 1.0)\n'
    assert opaque(read(tmp_path, source))


HELPERS = """
@triton.jit
def sums(x_ptr, at, N_AT, B: tl.constexpr):
    total = tl.zeros([N_AT], dtype=tl.float32)
    for k in range(0, B):
        total += tl.load(x_ptr + at + k)
    return total

@triton.jit
def halves(x):
    return tl.sum(tl.reshape(x, [2, 4]), axis=0)

@triton.jit
def steps(x, i: tl.constexpr, n: tl.constexpr):
    shape: tl.constexpr = [2**i, 2, 2 ** (n - i - 1)]
    return tl.reshape(tl.sum(tl.reshape(x, shape), axis=1), [2 ** (n - 1)])

@triton.jit
def kernel(x, y, B: tl.constexpr):
    n: tl.constexpr = tl.standard._log2(B)
    tl.store(y + tl.arange(0, B // 2), steps(tl.load(x + tl.arange(0, B)), 1, n))
"""


def test_what_a_shape_is_made_of_is_known_before(tmp_path: Path) -> None:
    assert 'N_AT: "constexpr[int]"' in written_back(tmp_path, HELPERS, "sums")
    assert '"tile[' in written_back(tmp_path, HELPERS, "halves")
    assert "tl.cast(" not in written_back(tmp_path, HELPERS, "steps")  # a conversion would be a value of the run, and no extent


def test_sizes_are_worked_out_of_a_logarithm(tmp_path: Path) -> None:
    x = np.arange(16, dtype=np.float32)
    out = execute(tmp_path, HELPERS, {"x": x, "y": np.zeros(8, np.float32)}, metas={"B": 16})
    np.testing.assert_array_equal(out["y"], x.reshape(2, 2, 4).sum(1).ravel())
    assert "tl.standard._log2(B)" in written_back(tmp_path, HELPERS)


REACHED = """
@triton.jit
def get(p, how=None, still=False):
    return tl.load(p, cache_modifier=how, volatile=still)

@triton.jit
def count(p, v, order=None, where=None):
    return tl.atomic_add(p, v, sem=order, scope=where)

@triton.jit
def kernel(x, y, B: tl.constexpr, STILL: tl.constexpr, WHERE: tl.constexpr = "gpu"):
    at = tl.arange(0, B)
    tl.atomic_add(y + at, tl.load(x + at, volatile=STILL), scope=WHERE)
"""


def test_how_memory_is_reached_is_known_before(tmp_path: Path) -> None:
    text = written_back(tmp_path, REACHED, "get")
    assert 'how: "constexpr[str]"' in text and "volatile=True" in text  # two loads, of which the setting takes one
    text = written_back(tmp_path, REACHED, "count")
    assert "sem=order" in text and "scope=where" in text
    assert opaque(read(tmp_path, REACHED.replace("volatile=still", "volatile=still + 1"), "get"))


@pytest.mark.parametrize("still", [True, False])
def test_a_setting_decides_a_scope_and_whether_a_load_is_volatile(tmp_path: Path, still: bool) -> None:
    def made(where: str) -> n.Program:
        tensors = {k: Tensor(shape=[8], dtype="f32") for k in "xy"}
        return specialize(read(tmp_path, REACHED), Binding(recorded=True, grid=[1], metas={"B": 8, "STILL": still, "WHERE": where}, tensors=tensors))
    nodes = [x for k in made("sys").kernels for s in statements(k.body) for x in walk(s)]
    assert {dict(x.attrs)["scope"] for x in nodes if isinstance(x, n.Call) and x.fn == "atomic_add"} == {"sys"}
    assert {x.cache for x in nodes if isinstance(x, n.Load) and x.at.buffer.name == "x"} == {"volatile" if still else ""}
    with pytest.raises(KirError, match="the scope of an atomic is meant"):
        made("warp")


GUARDED = """
from host import current_platform

if current_platform.is_rocm():
    LIMIT = 3
    OTHER = 5
else:
    OTHER = 7

@triton.jit
def kernel(y):
    tl.store(y, LIMIT + OTHER)
"""


def test_a_name_of_a_branch_that_is_not_taken_is_there_for_what_uses_it(tmp_path: Path) -> None:
    out = execute(tmp_path, GUARDED, {"y": np.zeros(1, np.float32)})
    assert out["y"] == 10  # nothing else defines the first; the second is as the machine has it
    assert opaque(read(tmp_path, GUARDED.replace("    LIMIT = 3\n", "")))


SMALL = """
@triton.jit
def two(x):
    return x + 1, x * 2, x * 3

@triton.jit
def one(x, y, B: tl.constexpr):
    a, b = two(tl.load(x + tl.arange(0, B)))
    tl.store(y + tl.arange(0, B), tl.math.max(a, tl.math.min(b, 4.0)))

@triton.jit
def moved(x, y, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    tl.store(y + (v > 2), v, mask=v == 3)

@triton.jit
def wide(x, y, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    m = tl.cat(v[None, :], v[None, :] * v[None, :], dim=1)
    tl.store(y + tl.arange(0, 2 * B), tl.sum(m, axis=0))

@triton.jit
def fenced(x):
    tl.store(x, 1.0)
    tl.inline_asm_elementwise("mov.u32 $0, 0x0; fence.sc.sys;", args=(), dtype=(tl.int32,), is_pure=False, pack=1, constraints="=r")
    tl.store(x + 1, 2.0)
"""


def test_values_beyond_the_names_are_left_and_numbers_compared(tmp_path: Path) -> None:
    x = np.arange(8, dtype=np.float32)
    out = execute(tmp_path, SMALL, {"x": x, "y": np.zeros(8, np.float32)}, metas={"B": 8}, kernel="one")
    np.testing.assert_array_equal(out["y"], np.maximum(x + 1, np.minimum(2 * x, 4)))
    assert "3 values for 4 names" in opaque(read(tmp_path, SMALL.replace("a, b = two", "a, b, c, d = two"), "one"))
    assert opaque(read(tmp_path, SMALL.replace("tl.math.max(a", "tl.max(a"), "one"))  # of `tl` it reduces


def test_a_pointer_moves_by_a_truth(tmp_path: Path) -> None:
    x = np.arange(4, dtype=np.float32)
    out = execute(tmp_path, SMALL, {"x": x, "y": np.zeros(2, np.float32)}, metas={"B": 4}, kernel="moved")
    np.testing.assert_array_equal(out["y"], [0, 3])
    assert "a pointer moved by a f32" in opaque(read(tmp_path, SMALL.replace("(v > 2)", "v * 1.5").replace("tl.load(x + tl.arange(0, B))", "tl.load(x + "
                                                                             "tl.arange(0, B)).to(tl.float32)"), "moved"))


def test_tiles_are_put_together_along_an_axis(tmp_path: Path) -> None:
    x = np.arange(4, dtype=np.float32)
    out = execute(tmp_path, SMALL, {"x": x, "y": np.zeros(8, np.float32)}, metas={"B": 4}, kernel="wide")
    np.testing.assert_array_equal(out["y"], [*x, *(x * x)])
    written_back(tmp_path, SMALL, "wide")
    assert opaque(read(tmp_path, SMALL.replace("dim=1", "dim=2"), "wide"))


def test_a_fence_of_an_asm_is_written_back(tmp_path: Path) -> None:
    assert "fence.sc.sys" in written_back(tmp_path, SMALL, "fenced")
    assert opaque(read(tmp_path, SMALL.replace("mov.u32 $0, 0x0; fence.sc.sys;", "mov.u32 $0, %tid.x; fence.sc.sys;"), "fenced"))
