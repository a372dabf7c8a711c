"""The fast mode's shortcut for loops that fold whole numbers gives what the loop gives."""
from __future__ import annotations

import numpy as np
import pytest

from kir.interp import run
from kir.interp.evaluation.loop_folding import folded, spread
from kir.interp.state.coverage import MORE
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


SPREAD = """kir 1
program p
  size M: i32
  in X: f32[M, 6, 8]
  out Y: f32[M, 6, 8]
kernel main grid (row: M) threads 1
  register kept: f32[6, 8] = 0.0
  for k in 0..3
    for i in 0..6
      for j in 1..8 step 2
        {store}
  for i1 in 0..6
    for j1 in 0..8
      Y[row, i1, j1] = kept[i1, j1]
"""


def nest(store: str) -> tuple[n.Program, n.For]:
    p = parse_program(SPREAD.format(store=store), "p.kir")
    outer = p.kernels[0].body[1]
    assert isinstance(outer, n.For) and isinstance(outer.body[0], n.For)
    return p, outer.body[0]


@pytest.mark.parametrize("store", ["kept[i, j] = kept[i, j] * 0.5 + X[row, i, j - k + 1]", "kept[5 - i, j] = X[row, k, i] where j < i",
                                   "kept[i, j] = select(i == k, 1.0, cast(j, f32))"])
def test_a_nest_of_one_store_is_a_tile_in_both_modes(store: str) -> None:
    p, loop = nest(store)
    made = spread(loop, 0, 6, 1)
    assert made is not None
    x = np.random.default_rng(1).normal(size=(3, 6, 8)).astype(np.float32)
    fast, checked = run(p, {"X": x}, {"M": 3}), run(p, {"X": x}, {"M": 3}, mode="check")
    wanted = np.zeros((3, 6, 8), np.float32)
    for k in range(3):
        for i in range(6):
            for j in range(1, 8, 2):
                if "5 - i" in store:
                    wanted[:, 5 - i, j] = x[:, k, i] if j < i else wanted[:, 5 - i, j]
                elif "select" in store:
                    wanted[:, i, j] = 1.0 if i == k else j
                elif j - k + 1 < 8:
                    wanted[:, i, j] = wanted[:, i, j] * np.float32(0.5) + x[:, i, j - k + 1]
    if "- k" in store:
        assert any(f.kind == "bounds" for f in checked.findings)
    else:
        assert not checked.findings and np.array_equal(fast.outputs["Y"], wanted) and np.array_equal(checked.outputs["Y"], wanted)


def test_loops_inside_a_shortcut_count_as_run() -> None:
    """The tile of a nest reaches what its loops reach, in either mode: a gate refuses a loop that no test ran twice."""
    p, _ = nest("kept[i, j] = kept[i, j] + X[row, i, j]")
    x = np.zeros((3, 6, 8), np.float32)
    for mode in ("fast", "check"):
        reached = run(p, {"X": x}, {"M": 3}, mode=mode, cover=True, compiles=False).reached
        assert {reached["loop", f"main/{name}"] for name in ("k", "k/i", "k/i/j")} == {MORE} and reached["trips", "main/k/i/j"] == 4


@pytest.mark.parametrize("store", ["kept[i, j] = kept[i, j - 1]", "kept[i, 0] = X[row, i, j]", "kept[j % 6, j] = 1.0", "Y[row, i, j] = 1.0"])
def test_iterations_that_depend_on_one_another_take_no_shortcut(store: str) -> None:
    assert spread(nest(store)[1], 0, 6, 1) is None
