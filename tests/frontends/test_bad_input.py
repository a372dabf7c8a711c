"""Files that are no kernels, or not whole: each is refused by name or kept as text, in time, and nothing is taken for what it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.frontends.tilelang.frontend import TileLangFrontend
from kir.frontends.triton.frontend import TritonFrontend
from tests.frontends.reading import opaque

TRITON = """import triton
import triton.language as tl
{before}
@triton.jit
def kernel(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(y + i, {value})
"""
TILELANG = """import tilelang
import tilelang.language as T
{before}
def make(n):
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
            for i in T.Parallel(32):
                B[bx * 32 + i] = {value}
    return kernel
"""


@pytest.mark.parametrize(("reader", "text", "tail"), [(TritonFrontend, TRITON, "tl.store(y + i"), (TileLangFrontend, TILELANG, "B[bx * 32 +")])
def test_half_a_file(tmp_path: Path, reader: type[TritonFrontend] | type[TileLangFrontend], text: str, tail: str) -> None:
    file = tmp_path / "half.py"
    whole = text.format(before="", value="0.0")
    file.write_text(whole[: whole.index(tail) + len(tail)])
    with pytest.raises(KirError, match="KIR-F002"):
        reader().parse(file, "kernel")


@pytest.mark.parametrize("value", ["(" * 3000 + "1" + ")" * 3000, "not " * 20000 + "1", "-" * 700 + "1", "lambda: " * 5000 + "1", "1" + " + 1" * 400])
def test_a_text_nested_too_deeply(tmp_path: Path, value: str) -> None:
    file = tmp_path / "deep.py"
    file.write_text(TRITON.format(before=f"WIDE = {value}", value="WIDE"))
    with pytest.raises(KirError, match=r"KIR-F002.*nested"):
        TritonFrontend().parse(file, "kernel")


@pytest.mark.parametrize("count", [20, 100])
def test_long_sums_and_branches_are_read(tmp_path: Path, count: int) -> None:
    file = tmp_path / "long.py"
    branches = "".join(f"elif SIZE == {i}:\n    WIDE = {i}.0\n" for i in range(count))
    file.write_text(TRITON.format(before=f"SIZE = 1{' + 1' * count}\nif SIZE == 0:\n    WIDE = 0.0\n{branches}else:\n    WIDE = 4.0", value="WIDE"))
    assert not any("F002" in s for s in opaque(TritonFrontend().parse(file, "kernel")))


@pytest.mark.parametrize(("reader", "text"), [(TritonFrontend, TRITON), (TileLangFrontend, TILELANG)])
@pytest.mark.parametrize("before", ["from loop import WIDE", "from loop import *\nfrom again import WIDE"])
def test_a_module_that_imports_itself(tmp_path: Path, reader: type[TritonFrontend] | type[TileLangFrontend], text: str, before: str) -> None:
    file = tmp_path / "loop.py"
    file.write_text(text.format(before=before, value="WIDE"))
    (tmp_path / "again.py").write_text("from loop import WIDE\n")
    program = reader().parse(file, "kernel")
    assert any("WIDE" in s for s in opaque(program))


def test_a_decorator_of_another_package(tmp_path: Path) -> None:
    file = tmp_path / "other.py"
    called = TRITON.format(before="import elsewhere\n\n@elsewhere.rewritten\n@triton.jit\ndef twice(v):\n    return v * 2\n", value="twice(v)")
    file.write_text(called)
    program = TritonFrontend().parse(file, "kernel")
    assert any("'twice' has a decorator that may replace it" in s for s in opaque(program))
