"""Objects that Triton passes by their parts: aggregates with functions of their own, and named tuples."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kir.frontends.triton.frontend import TritonFrontend
from tests.frontends.reading import opaque
from tests.frontends.triton.reading import execute, read, written_back

SOURCE = """
from typing import NamedTuple
from triton.language.core import _aggregate as aggregate

@aggregate
class Place:
    row: tl.tensor
    BLOCK: tl.constexpr

    @triton.constexpr_function
    def __init__(self, row, BLOCK):
        self.row = row
        self.BLOCK = tl.constexpr(BLOCK)

    @triton.jit
    def columns(self):
        return tl.arange(0, self.BLOCK)

@aggregate
class Matrix:
    ptr: tl.tensor
    width: tl.tensor

    @triton.constexpr_function
    def __init__(self, ptr, width):
        self.ptr = ptr
        self.width = width

    @triton.jit
    def at(self, place):
        return self.ptr + place.row * self.width + place.columns(), place.columns() < self.width

    @triton.jit
    def load(self, place):
        at, mask = self.at(place)
        return tl.load(at, mask=mask, other=0.0)

    @triton.jit
    def store(self, place, value, scale=None):
        at, mask = self.at(place)
        if scale is not None:
            value = scale.of(value)
        tl.store(at, value, mask=mask)

@aggregate
class Scale:
    by: tl.tensor

    @triton.constexpr_function
    def __init__(self, by):
        self.by = by

    @staticmethod
    @triton.jit
    def read(ptr):
        return Scale(tl.load(ptr))

    @triton.jit
    def of(self, value):
        return value * self.by

class Sizes(NamedTuple):
    rows: tl.tensor
    width: tl.tensor
    step: tl.constexpr = 1

@triton.jit
def kernel(x, y, s, rows, width, SCALED: tl.constexpr, BLOCK: tl.constexpr):
    sizes = Sizes(rows, width)
    a, b = Matrix(x, sizes.width), Matrix(y, width=sizes.width)
    scale = Scale.read(s) if SCALED else None
    place = Place(tl.program_id(0), BLOCK)
    for row in range(0, sizes.rows, sizes.step):
        place = Place(row, BLOCK)
        b.store(place, a.load(place) + 1.0, scale=scale)
"""


def test_aggregates_and_named_tuples(tmp_path: Path) -> None:
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    given: dict[str, np.ndarray] = {"x": x.ravel(), "y": np.zeros(15, np.float32), "s": np.full(1, 3, np.float32)}
    for scaled, by in ((True, 3), (False, 1)):
        out = execute(tmp_path, SOURCE, given, metas={"BLOCK": 8, "SCALED": scaled}, scalars={"rows": 3, "width": 5})
        np.testing.assert_array_equal(out["y"].reshape(3, 5), (x + 1) * np.float32(by))
    text = written_back(tmp_path, SOURCE)
    assert "class" not in text and 'BLOCK: "constexpr[int]"' in text
    # What needs an object is no kernel of its own: it is read where it is called.
    source = tmp_path / "source.py"
    assert [k.name for k in TritonFrontend().kernels(source)] == ["kernel"] and [k.name for k in TritonFrontend().helpers(source)] == ["read"]


def test_objects_that_are_not_understood(tmp_path: Path) -> None:
    begins = "at, mask = self.at(place)\n        if"
    for old, new, why in (("a.load(place)", "a.found(place)", "attribute 'found' of an object of Matrix"),
                          ("Sizes(rows, width)", "Sizes(rows)", "lacks its argument 'width'"),
                          ("Sizes(rows, width)", "Sizes(rows, width, 1, 2)", "arguments of 'Sizes' do not fit"),
                          (begins, f"self.ptr = self.ptr + 1\n        {begins}", "an assignment to something that is no name")):
        assert any(why in s for s in opaque(read(tmp_path, SOURCE.replace(old, new, 1)))), why
