"""The fast mode's shortcut for loops that fold whole numbers gives what the loop gives."""
from __future__ import annotations

import numpy as np
import pytest

from kir.interp import run
from kir.interp.folding import folded
from kir.ir import nodes as n
from kir.ir.parser import parse_program

TEXT = """kir 1
program p
  size M: i32
  in X: i32[M, 40]
  out Y: i32[M, 40]
kernel main grid (row: M) threads 1
  register kept: i32[40]
  for i in 0..40
    kept[i] = X[row, i]
  for j in 0..40
    register acc: i32 = {start}
    for u in 0..40 - j
      acc = {fold}
    Y[row, j] = acc
"""


def inner(p: n.Program) -> n.For:
    outer = p.kernels[0].body[-1]
    assert isinstance(outer, n.For) and isinstance(outer.body[1], n.For)
    return outer.body[1]


@pytest.mark.parametrize(("start", "fold"), [("0", "acc + kept[j + u] * 3"), ("7", "max(acc, kept[j + u])"), ("7", "min(kept[j + u], acc)"),
                                             ("0", "acc + kept[u] * kept[39 - u]")])
def test_both_modes_agree(start: str, fold: str) -> None:
    p = parse_program(TEXT.format(start=start, fold=fold), "p.kir")
    assert folded(inner(p), 0, 20, 1) is not None
    x = np.random.default_rng(0).integers(-(1 << 31), 1 << 31, (3, 40)).astype(np.int32)
    fast, checked = run(p, {"X": x}, {"M": 3}), run(p, {"X": x}, {"M": 3}, mode="check")
    assert np.array_equal(fast.outputs["Y"], checked.outputs["Y"])


@pytest.mark.parametrize("fold", ["acc + X[row, u]", "acc + acc", "acc * kept[u]", "u"])
def test_other_loops_take_no_shortcut(fold: str) -> None:
    assert folded(inner(parse_program(TEXT.format(start="0", fold=fold), "p.kir")), 0, 20, 1) is None
