"""Indices are checked in the width in which the source computes them, of which the normal form leaves no trace."""
from __future__ import annotations

from pathlib import Path

import pytest

import kir
from kir.gate.proved.verdict import Proved

SCALE = """
#include <cuda_runtime.h>
__global__ void scale(const float* x, float* y, int m, int n) {
  int row = blockIdx.x;
  for (int k = threadIdx.x; k < n; k += 256) { PLACE; y[p] = x[p] * 2.f; }
}
void run(const float* x, float* y, int m, int n) { scale<<<m, 256>>>(x, y, m, n); }
"""


def checked(folder: Path, place: str) -> Proved:
    """The kernel as a file with its launch, proved."""
    file = folder / "scale.cu"
    file.write_text(SCALE.replace("PLACE", place))
    return kir.prove(str(file), 0)


@pytest.mark.parametrize("place", ["int p = row * n + k", "long long p = row * n + k", "size_t p = (unsigned)(row * n + k)"])
def test_an_offset_that_is_computed_in_32_bits_is_shown_to_overflow(tmp_path: Path, place: str) -> None:
    """It was proved for all sizes: the normal form has a row and a column, neither of which overflows."""
    done = checked(tmp_path, place)
    assert done.verdict == "proved" and done.status("overflow") == "refuted"
    (found,) = (f for f in done.findings if f.kind == "overflow")
    assert found.sizes["block_x"] * found.sizes["n"] + found.sizes["n"] > 2**31 and found.origin is not None and found.origin.line == 5


@pytest.mark.parametrize("place", ["long long p = (long long)row * n + k", "size_t p = (size_t)row * n + k"])
def test_an_offset_in_64_bits_fits_whatever_the_tensor_has_of_elements(tmp_path: Path, place: str) -> None:
    """The extent of the tensor, which KIR takes to be m * n, is no number that the kernel computes."""
    done = checked(tmp_path, place)
    assert done.verdict == "proved" and done.status("overflow") == "proved"


def test_a_program_that_is_given_alone_is_what_is_checked(tmp_path: Path) -> None:
    """The normal form is exact; a kernel after a step is no longer what was written."""
    checked(tmp_path, "int p = row * n + k")
    held = kir.read(str(tmp_path / "scale.cu"))
    assert held.written is not None and kir.prove(held, 0).status("overflow") == "refuted"
    assert kir.prove(held.program, 0).status("overflow") == "proved"
