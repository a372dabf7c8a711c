"""Rows that Triton has no function for are written as inline PTX, others as libdevice's, and read back as the same rows."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.base.instructions import by_spelling
from kir.ir.parser import parse_program
from kir.surface import backend
from tests.round_trips import TRITON

OWN = {f"{row}_approx(x)": f"libdevice.fast_{row}f(" for row in ("log2", "sin", "cos")}
"""Those that libdevice has a function for."""
ROWS = (*OWN, "tanh_approx(x)", "log2_approx(x, subnormal=true)", "exp2_approx(x, subnormal=true)", "rsqrt_approx(x)", "rcp_approx(x)",
        "add_rounded(x, x, rounding=rz)", "fma_rounded(x, x, x, ftz=true, rounding=ru)", "to_tf32(x, rounding=rna)")


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_inline_asm_and_back(tmp_path: Path, row: str) -> None:
    p = parse_program(f"""kir 1
program p
  size M: i32
  in X: f32[M, 16]
  out Y: f32[M, 16]
kernel main grid (b: M) threads 128
  grid_dependency_wait()
  let x = X[b, 0 +: 16]
  Y[b, 0 +: 16] = {row}
""")
    assert OWN.get(row, "tl.inline_asm_elementwise(") in backend("triton").emit(p).text
    TRITON.holds(p, tmp_path)


@pytest.mark.triton
def test_each_function_of_libdevice_that_is_written_is_there() -> None:
    from triton.language.extra.cuda import libdevice

    words = [word.removeprefix("libdevice.") for word in by_spelling("triton") if word.startswith("libdevice.")]
    assert len(words) > 20 and [word for word in words if not hasattr(libdevice, word)] == []
