"""One spelling for tiles of a scalar, for fragments that are filled at once, and for axes of extent 1."""
from __future__ import annotations

import pytest

from kir.analysis.normal.normal_form import normalize
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import program_text

HEAD = """kir 1
program p
  in X: f32[8, 64]
  out Y: f32[8, 64]
kernel main grid (i: 1) threads 32
"""


def body(text: str) -> str:
    made = program_text(normalize(parse_program(HEAD + text)))
    assert normalize(parse_program(made)) == parse_program(made)
    return made.partition("threads 32\n")[2]


def test_a_fragment_that_is_filled_with_one_number_is_declared_with_it() -> None:
    assert body("""  fragment acc: f32[64]
  let zero = broadcast(0.0, 64)
  acc = zero
  for k in 0..8
    acc = acc + X[k, 0 +: 64]
  Y[0, 0 +: 64] = acc + zero
""").startswith("  fragment acc: f32[64] = 0.0\n  for k in 0..8\n")
    filled = "  fragment acc: f32[64]\n{between}  acc = broadcast(0.0, 64)\n  Y[0, 0 +: 64] = acc\n"
    assert body(filled.format(between="  Y[1, 0] = X[0, 0]\n")).startswith("  fragment acc: f32[64] = 0.0\n  Y[1, 0]")
    for between in ("  Y[1, 0] = acc[0]\n", '  opaque cuda reads * writes Y because "a call" text "f(Y);"\n'):
        assert body(filled.format(between=between)).startswith("  fragment acc: f32[64]\n")


def test_a_reduction_does_not_keep_its_axis_and_no_place_has_one_of_one_element() -> None:
    assert body("""  let s = reduce(X[0 +: 8, 0 +: 64], axis=1, keep=true, op=sum)
  Y[expand(iota(8), axis=1), i] = s where expand(iota(8), axis=1) < 5
  let t = X[0 +: 8, 0 +: 64] - s
  Y[0 +: 8, 0 +: 64] = t * t
""") == """  let s = reduce(X, axis=1, op=sum)
  Y[0 +: 8, i] = s where iota(8) < 5
  let t = X - expand(s, axis=1)
  Y = t * t
"""
    assert "reduce(X[i, 0 +: 64], axis=0, keep=true, op=sum)" in body("  Y[i, 0 +: 1] = reduce(X[i, 0 +: 64], axis=0, keep=true, op=sum)\n")


def test_a_tile_of_one_scalar_is_named_as_the_scalar() -> None:
    assert "let x = X[0, 0] * 2.0\n" in body("  let x = broadcast(X[0, 0] * 2.0, 64)\n  Y[0, 0 +: 64] = x * x\n")


def test_axes_of_extent_1_do_not_take_a_tile_apart() -> None:
    text = body("""  let s = expand(reduce(X[0 +: 8, 0 +: 64], axis=1, op=sum), axis=1)
  Y[0 +: 8, 0 +: 64] = pick(s, expand(iota(8), axis=1), 0) * 2.0 + X[0 +: 8, 0 +: 64]
""")
    assert "pick" not in text and "s * 2.0" in text
    text = body("""  for j in 0..8
    let x = X[j, 0 +: 64] * 2.0
    let z = abs(pick(broadcast(x, 1, 64), 0, iota(64)))
    Y[j, 0 +: 64] = z * x
""")
    assert "let z = abs(x)\n" in text, "what is picked of a tile that is no name is that of its elements"


def test_a_loop_downwards_counts_its_steps() -> None:
    made = body("  for j in 7..-1 step -2\n    Y[j, 0] = X[j, 1]\n  for k in 2..-3 step -4\n    Y[k + 2, 1] = X[0, 0]\n")
    assert "for j_tile in 0..4\n    Y[j_tile * -2 + 7, 0] = X[j_tile * -2 + 7, 1]\n" in made and "step" not in made
    assert "for k_tile in 0..2\n" in made


def test_a_name_outlives_text_that_may_write_what_it_names() -> None:
    """What is not understood may write the register: the name holds the value from before."""
    for writes in ("r", "*"):
        text = f'  register r: f32 = X[0, 0]\n  let a = r\n  opaque cuda reads * writes {writes} because "a call" text "f(r);"\n  Y[0, 0] = a\n'
        assert "let a = r\n" in body(text) and "Y[0, 0] = a\n" in body(text)
    assert "Y[0, 0] = r\n" in body('  register r: f32 = X[0, 0]\n  let a = r\n  opaque cuda reads * writes Y because "a call" text "f(Y);"\n  Y[0, 0] = a\n')


DOWN = """kir 1
program p
  size S: i32
  out Y: i32[9]
{fact}kernel main grid (i: 1) threads 1
  for k in 8..0 step S
    Y[k] = k
"""


@pytest.mark.parametrize(("fact", "stays"), [("", True), ("  fact S <= -1\n", True), ("  fact S >= 1\n", False)])
def test_a_loop_from_above_its_end_runs_unless_it_counts_up(fact: str, stays: bool) -> None:
    """With a step that is known when it runs, it may count down: only one that surely counts up runs never."""
    (kernel,) = normalize(parse_program(DOWN.format(fact=fact))).kernels
    assert any(isinstance(s, n.For) for s in kernel.body) is stays
