"""Indices are checked in the width in which the source computes them, of which the normal form leaves no trace."""
from __future__ import annotations

from pathlib import Path

import pytest

import kir
from kir.base.diagnostic import KirError
from kir.gate.proved.verdict import Proved
from kir.gate.proved.widths import require_wide, with_widths_said
from kir.gate.verdict import CompileRecord, CorrectnessRecord, Verdict

SCALE = """
#include <cuda_runtime.h>
__global__ void scale(const float* x, float* y, int m, int n) {
  int row = blockIdx.x;
  for (int k = threadIdx.x; k < n; k += 256) { PLACE; y[p] = x[p] * 2.f; }
}
void run(const float* x, float* y, int m, int n) { assert(n <= 1 << 30); scale<<<m, 256>>>(x, y, m, n); }
"""


def checked(folder: Path, place: str) -> Proved:
    """The kernel as a file with its launch, proved."""
    file = folder / "scale.cu"
    file.write_text(SCALE.replace("PLACE; y[p] = x[p]" if "y[" in place else "PLACE", place))
    return kir.prove(str(file), 0)


@pytest.mark.parametrize("place", ["int p = row * n + k", "long long p = row * n + k", "size_t p = (unsigned)(row * n + k)",
                                   "y[row * n + k] = x[row * n + k]"])
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


@pytest.mark.parametrize(("test", "step", "fits"), [("", "k += 256", False), ("assert(n % 256 == 0); ", "k += 256", True), ("", "k += 1", True)])
def test_what_a_loop_counts_to_behind_its_last_trip_is_an_index_too(tmp_path: Path, test: str, step: str, fits: bool) -> None:
    """At 2^31 - 1 columns `k` is negative then, which is below `n`, and the loop goes on: no trip of the loop that is read has that."""
    file = tmp_path / "scale.cu"
    file.write_text(SCALE.replace("assert(n <= 1 << 30); ", test).replace("k += 256", step).replace("PLACE", WIDE))
    done = kir.prove(str(file), 0)
    assert done.verdict == "proved" and done.status("overflow") == ("proved" if fits else "refuted")


WIDE, NARROW = "long long p = (long long)row * n + k", "int p = row * n + k"


@pytest.mark.parametrize(("place", "beside", "id"), [(NARROW, WIDE, "KIR-G147"), (WIDE, NARROW, ""), (NARROW, NARROW, "KIR-G136"), (WIDE, WIDE, "")])
def test_an_index_of_32_bits_is_refused_beside_one_of_64_and_else_said(tmp_path: Path, place: str, beside: str, id: str) -> None:
    """Both have one normal form, and the same values at all sizes that can be run."""
    for name, text in (("a", place), ("b", beside)):
        (tmp_path / f"{name}.cu").write_text(SCALE.replace("PLACE", text))
    mine, other = (kir.read(str(tmp_path / f"{name}.cu")) for name in "ab")
    if id == "KIR-G147":
        with pytest.raises(KirError, match="fits its 32 bits, but not at n = ") as refused:
            kir.judge(mine, against=other, targets=())
        assert refused.value.diagnostics[0].id == id
        return
    require_wide(mine.written, other.written)
    said = with_widths_said(Verdict(True, "profile", "", "", "", CompileRecord("cuda", True), CorrectnessRecord("", True)), mine.written).correctness
    assert said is not None and [d.id for d in said.weak] == ([id] if id else [])
    assert all("fits its 32 bits, but not at" in d.message and d.severity == "warning" for d in said.weak)


def test_a_reference_for_small_sizes_alone_asks_for_no_width(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text(SCALE.replace("PLACE", NARROW))
    (tmp_path / "b.cu").write_text(SCALE.replace("PLACE", WIDE).replace("{ assert(n <= 1 << 30); scale<<<", "{ if (m > 1000 || n > 1000) return; scale<<<"))
    require_wide(*(kir.read(str(tmp_path / f"{name}.cu")).written for name in "ab"))


def test_a_program_that_is_given_alone_is_what_is_checked(tmp_path: Path) -> None:
    """The normal form is exact; a kernel after a step is no longer what was written."""
    checked(tmp_path, "int p = row * n + k")
    held = kir.read(str(tmp_path / "scale.cu"))
    assert held.written is not None and kir.prove(held, 0).status("overflow") == "refuted"
    assert kir.prove(held.program, 0).status("overflow") == "proved"
