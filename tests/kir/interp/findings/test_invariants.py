"""Index arithmetic that loops leave as it is: known while a loop runs, and never longer."""
from __future__ import annotations

import numpy as np
import pytest

from kir.interp import run
from kir.interp.evaluation.loop_invariants import invariants
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import expr_text
from kir.ir.visit import statements

PROGRAM = """kir 1
program p
  size N: i32
  in X: f32[6, 64]
  out Y: f32[6, 64]
kernel main grid (g: 2) threads 1
  for i in 0..3
    for j in 0..8
      for k in 0..8
        let at = (i * 8 + k) % 7
        if (g * 3 + i) % 2 == 0
          Y[g * 3 + i, j * 8 + k] = X[g * 3 + i, (N + i * 5) % 64] + X[(g * 3 + i + N) % 6, j * 8 + at]
        else
          Y[g * 3 + i, j * 8 + k] = X[g * 3 + i, j * 8 + k] * 2.0
    Y[g * 3 + i, 63] = Y[g * 3 + i, 62] + 1.0
"""


def test_only_integers_of_names_from_outside_are_kept() -> None:
    loops = [s for s in statements(parse_program(PROGRAM).kernels[0].body) if isinstance(s, n.For)]
    inner = {expr_text(e) for e in invariants(loops[2])}
    assert {"g * 3 + i", "j * 8"} <= inner and not any("k" in text or "at" in text for text in inner)
    assert all("i" not in text for text in map(expr_text, invariants(loops[0])))


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_what_is_kept_in_a_loop_is_worked_out_again_in_the_next(mode: str) -> None:
    x = np.arange(6 * 64, dtype=np.float32).reshape(6, 64)
    wanted = np.zeros_like(x)
    for row in range(6):
        i = row % 3
        for j in range(8):
            for k in range(8):
                c = j * 8 + k
                other = x[row, (9 + i * 5) % 64] + x[(row + 9) % 6, j * 8 + (i * 8 + k) % 7]
                wanted[row, c] = other if row % 2 == 0 else x[row, c] * 2
        wanted[row, 63] = wanted[row, 62] + 1
    found = run(parse_program(PROGRAM), {"X": x}, {"N": 9}, mode="check" if mode == "check" else "fast")
    assert np.array_equal(found.outputs["Y"], wanted) and not found.errors
