"""Views of other elements seen through: the same values, inside the view and outside of it, and outside of what it views."""
from __future__ import annotations

import numpy as np
import pytest

from kir.analysis.tiles.seen_through import gathered, seen_through
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.rules.verify import check
from kir.ir.visit import statements
from kir.surface import backend

SHIFTED = """kir 1
program shifted
  size R: i32
  in X: f32[R, 8]
  out Y: f32[R, 32]
  out Z: f32[R, 32]
kernel main grid (i: ceildiv(R, 4)) threads 32
  view global V(r, c): f32[R, 24] at X[r + c // 8 - 1, c % 8] fill 0.0
  shared S: f32[4, 32]
  copy load(V[i * 4 +: 4, 0 +: 32] else 0.0 clip) -> S
  Y[i * 4 +: 4, 0 +: 32] = S clip
  for k in 0..32
    Z[i * 4 +: 4, k] = load(V[i * 4 +: 4, k] else 0.0 clip) clip
"""
"""Columns 24 to 31 are outside the view, though what they would be read of is not."""


def test_what_is_read_through_a_view_is_the_same() -> None:
    program = parse_program(SHIFTED)
    made = seen_through(program)
    check(made)
    assert not any(isinstance(x, n.Copy) for x in statements(made.kernels[0].body)) and seen_through(made) is made
    inputs = {"X": np.arange(1, 41, dtype=np.float32).reshape(5, 8)}
    before, after = (run(p, inputs, {"R": 5}, mode="check") for p in (program, made))
    assert not after.errors and (after.outputs["Y"] == before.outputs["Y"]).all() and (after.outputs["Z"] == before.outputs["Z"]).all()
    assert not before.outputs["Y"][:, 24:].any() and before.outputs["Y"][1, 8:16].tolist() == inputs["X"][1].tolist()


@pytest.mark.parametrize("surface", ["cuda", "triton"])
def test_surfaces_without_such_views_say_it(surface: str) -> None:
    text = SHIFTED if surface == "cuda" else SHIFTED.replace("  shared S: f32[4, 32]\n  copy load(V[i * 4 +: 4, 0 +: 32] else 0.0 clip) -> S\n", "").replace(
        "= S clip", "= load(V[i * 4 +: 4, 0 +: 32] else 0.0 clip) clip")
    emitted = backend(surface).emit(parse_program(text)).text
    assert "< 24" in emitted  # inside the view


def test_another_value_outside_the_view_is_kept_as_it_is() -> None:
    program = parse_program(SHIFTED.replace("else 0.0 clip) -> S", "else 7.0 clip) -> S"))
    view, _, copy = program.kernels[0].body[:3]
    assert isinstance(view, n.View) and isinstance(copy, n.Copy) and copy in seen_through(program).kernels[0].body
    with pytest.raises(ValueError, match="gives another value"):
        gathered(view, copy.src)
