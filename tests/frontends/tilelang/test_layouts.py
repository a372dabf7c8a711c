"""Layouts as TileLang gives them: by name for shared memory, by functions for fragments."""

from __future__ import annotations

from pathlib import Path

import pytest

from kir.analysis.tiles.fragments import Digit, spread
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.layouts.layout import rules
from kir.ir.types import F32
from kir.ir.visit import statements
from tests.frontends.tilelang.reading import bound, read, written

KERNEL = """
def factory(rows=8, width=64, dtype="float16"):
    def owner(i, j):
        at = i * width + j
        return {thread}, {slot}
    @T.prim_func
    def kernel(x: T.Tensor((rows, width), dtype), y: T.Tensor((rows, width), dtype)):
        with T.Kernel(1, threads=32) as _:
            f = T.alloc_fragment((rows, width), dtype)
            s = T.alloc_shared((rows, width), dtype)
            T.annotate_layout({{s: tilelang.layout.make_swizzled_layout(s), f: T.Fragment((rows, width), forward_fn=owner)}})
            T.copy(x, s)
            T.copy(s, f)
            T.copy(f, y)
    return kernel
"""


def layouts(file: Path, **metas: int | str) -> dict[str, n.Layout | None]:
    made = bound(file, Binding(metas=dict(metas)))
    return {s.buffer.name: s.buffer.layout for s in statements(made.kernels[0].body) if isinstance(s, n.Alloc)}


def test_a_function_deals_a_fragment_by_digits(tmp_path: Path) -> None:
    file = written(tmp_path, KERNEL.format(thread="at // 4 % 32", slot="at % 4 + at // 128 * 4"))
    found = layouts(file)["f"]
    assert found is not None
    made = spread(found, (8, 64), F32)
    assert made.threads == (Digit(16, 1, 4), Digit(2, 0, 1))
    assert made.slots == (Digit(4, 1, 1), Digit(4, 0, 2))


@pytest.mark.parametrize(("thread", "slot"), [("at % 32", "0"), ("(at + i) % 32", "at // 32"), ("at % 32 ^ (i % 2)", "at // 32")])
def test_what_is_no_digits_stays_open(tmp_path: Path, thread: str, slot: str) -> None:
    assert layouts(written(tmp_path, KERNEL.format(thread=thread, slot=slot)))["f"] is None


def test_swizzled_rows_of_one_pattern(tmp_path: Path) -> None:
    file = written(tmp_path, KERNEL.format(thread="at % 32", slot="at // 32"))
    for width, bits in ((64, 3), (32, 2), (16, 1)):
        assert layouts(file, width=width)["s"] == n.Layout("swizzle", (bits, 4, 3))
    assert layouts(file, width=128)["s"] is None
    assert all(s.buffer.layout is None for s in statements(read(file).kernels[0].body) if isinstance(s, n.Alloc))


@pytest.mark.parametrize("args", [
    ((4,), (0,), (1,)), ((4,), (0, 1), (1,), (2,), (0,), (4,)), ((4,), (2,), (1,), (2,), (0,), (4,)), ((0,), (0,), (1,), (2,), (0,), (4,))])
def test_a_spread_that_is_none_is_refused(args: tuple[tuple[int, ...], ...]) -> None:
    assert [d.id for d in rules(n.Layout("spread", args), 2)] == ["KIR-L002"]
