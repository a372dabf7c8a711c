"""What a program may give by right: operands of products in tf32 rounded or cut off and nothing coarser, and a function for its approximation, not the other
way round."""
from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kir.gate import gate_cpu
from kir.gate.cases import RelativeCase, expected_of, relative_cases
from kir.gate.gpu.conformance import declared, difference
from kir.gate.inputs.close import beyond
from kir.gate.inputs.scaled import held_back
from kir.gate.operands import exactly, otherwise
from kir.interp import run
from kir.interp.numerics import rounding
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.types import F32

TEXT = """kir 1
program p
  in A: f32[16, 512]
  in B: f32[512, 16]
  out C: f32[16, 16]
kernel main grid (i: 1) threads 128
  fragment acc: f32[16, 16] = 0.0
  mma acc += {a} * {b} precision {precision}
  C = acc
"""


def program(precision: str, a: str = "A", b: str = "B") -> Program:
    return parse_program(TEXT.format(precision=precision, a=a, b=b), "p.kir")


@pytest.fixture(scope="module")
def case() -> RelativeCase:
    random = np.random.default_rng(5)
    inputs = {"A": np.abs(random.standard_normal((16, 512))).astype(np.float32), "B": np.abs(random.standard_normal((512, 16))).astype(np.float32)}
    expected, also = expected_of(program("tf32"), inputs, {})
    return RelativeCase("s", {}, 0, inputs, {}, expected, also=also)


def test_a_product_whose_operands_are_cut_off_is_right_and_a_coarser_one_is_not(case: RelativeCase) -> None:
    def judged(p: Program) -> bool:
        return case.compare(run(p, case.arrays).outputs).ok
    cut = otherwise(program("tf32"))
    assert cut is not None and judged(cut) and judged(program("tf32"))
    assert not RelativeCase("s", {}, 0, case.inputs, {}, case.expected).compare(run(cut, case.arrays).outputs).ok, "cutting off drifts over a long sum"
    assert not judged(program("ieee", "cast(cast(A, bf16), f32)", "cast(cast(B, bf16), f32)"))
    assert not judged(program("ieee", "(A * 1.004)"))


def test_what_has_no_such_product_has_one_reading(case: RelativeCase) -> None:
    assert otherwise(program("ieee")) is None
    assert expected_of(program("ieee"), case.inputs, {})[1] is None


ELEMENTS = """kir 1
program p
  in A: f32[512]
  out C: f32[512]
kernel main grid (i: 512) threads 1
  C[i] = A[i] * {fn}(A[i])
"""


@pytest.mark.parametrize(("fn", "scale"), [("tanh", 1.0), ("sin", 300.0), ("cos", 300.0)])
def test_an_approximation_is_as_wrong_as_its_instruction_may_be(fn: str, scale: float) -> None:
    """The function is right where the approximation was asked for; the approximation is wrong where the function was."""
    full, coarse = (parse_program(ELEMENTS.format(fn=name), "p.kir") for name in (fn, f"{fn}_approx"))
    inputs = {"A": (scale * np.random.default_rng(7).standard_normal(512)).astype(np.float32)}
    for asked, right in ((full, [full]), (coarse, [full, coarse])):
        expected, also = expected_of(asked, inputs, {})
        case = RelativeCase("s", {}, 0, inputs, {}, expected, also=also)
        assert [case.compare(run(p, case.arrays).outputs).ok for p in (full, coarse)] == [p in right for p in (full, coarse)]
    both = [{c.distribution for c in relative_cases(p, p)} for p in (full, coarse)]
    assert both[1] >= both[0] >= {"positive", "tiny"}, "an approximation is tried on as many kinds of inputs as its function"


SMALL = """kir 1
program p
  size N: i32
  in A: f32[N]
  out C: f32[N]
kernel main grid (i: N) threads 1
  C[i] = {value}
"""


@pytest.mark.parametrize(("asked", "given", "right"), [
    ("exp(A[i])", "select(exp(A[i]) < 0.0001, 0.0, exp(A[i]))", False), ("exp(A[i])", "exp2(A[i] * 1.4426950408889634)", True),
    ("1.0 / (1.0 + exp(-A[i]))", "select(A[i] < -11.0, 0.0, 1.0 / (1.0 + exp(-A[i])))", False),
    ("1.0 / (1.0 + exp(-A[i]))", "rcp_approx(1.0 + exp2_approx(A[i] * -1.4426950408889634))", True),
    ("A[i] * 3.0 - 2.0 * A[i]", "A[i]", True), ("A[i] * A[i] - 1.0", "(A[i] - 1.0) * (A[i] + 1.0)", True)])
def test_what_is_small_beside_others_is_right_too_where_the_reference_is(asked: str, given: str, right: bool) -> None:
    against, program = (parse_program(SMALL.format(value=value), "p.kir") for value in (asked, given))
    assert all(case.compare(run(program, dict(case.arrays), {**case.scalars}).outputs).ok for case in relative_cases(program, against)) == right


@pytest.mark.parametrize(("body", "right"), [
    ("for i in 0..4096\n    s = s + A[4095 - i]", True), ("for i in 0..4095\n    s = s + A[i + 1]", False),
    ("for i in 0..4096\n    s = s + A[i] * 1.05", False), ("s = 0.0103", False)])
def test_a_sum_that_nearly_cancels_is_as_well_known_as_its_terms(body: str, right: bool) -> None:
    """Its one element is so small that its own magnitude says nothing of how far another order of the terms may lead."""
    text = "kir 1\nprogram p\n  in A: f32[4096]\n  out C: f32[1]\nkernel main grid (g: 1) threads 1\n  register s: f32 = 0.0\n  {}\n  C[0] = s\n"
    against, program = (parse_program(text.format(x), "p.kir") for x in ("for i in 0..4096\n    s = s + A[i]", body))
    a = np.random.default_rng(3).standard_normal(4096).astype(np.float32)
    a[1:] -= (a.astype(np.float64).sum() - 1e-2) / 4095
    inputs = {"A": a}
    case = RelativeCase("s", {}, 0, inputs, {}, expected_of(against, inputs, {})[0], exactly=partial(exactly, against, inputs, {}))
    assert case.compare(run(program, dict(case.arrays), {}).outputs).ok == right


COLUMNS = """kir 1
program p
  size M: i32
  in A: f32[M, 66]
  out C: f32[66]
  fact M >= 1
  fact M <= {most}
kernel main grid (b: 2) threads 128
{body}
"""
ONE_BY_ONE = """  fragment acc: f32[64] = 0.0
  for r in 0..M
    acc = acc + {load}
  C[b * 64 +: 64] = acc clip"""


@pytest.mark.parametrize(("rows", "times", "rounds", "right"), [
    (8192, "", False, True), (8192, "", True, False), (8192, " * 1.001", False, False), (1020, "", False, False)])
def test_what_is_nearer_to_the_true_sum_is_right_unless_rounding_is_meant(rows: int, times: str, rounds: bool, right: bool) -> None:
    """A sum of 8,192 one after another is off by more than its bound where its terms nearly cancel; a rounding on the way is part of what is computed; and
    the first 1,020 rows are not all of them, though one shape more is needed to see it."""
    load, most = "load(A[r, b * 64 +: 64] else 0.0 clip)", rows + 4 if rows < 8192 else rows
    whole = f"  C[b * 64 +: 64] = reduce(load(A[0 +: {rows}, b * 64 +: 64] else 0.0 clip), axis=0, op=sum){times} clip"
    against, program = (parse_program(COLUMNS.format(body=text, most=most), "p.kir") for text in (
        ONE_BY_ONE.format(load=f"cast(cast({load}, bf16), f32)" if rounds else load), whole))
    assert all(case.compare(run(program, dict(case.arrays), {**case.scalars}).outputs).ok for case in relative_cases(program, against)) == right


@pytest.mark.parametrize("fn", rounding.APPROXIMATE)
def test_approximations_err_within_their_bounds_and_are_exact_on_request(fn: str) -> None:
    how = declared()[fn]
    low, high = how["domain"]
    drawn = np.random.default_rng(3).uniform(max(low, -50.0), min(high, 50.0), 4096)
    x = np.concatenate([np.array([low, 0.5, 1.0, 2.0, high]), drawn]).astype(np.float32)
    operands = (x, x[::-1].copy())[: 2 if fn == "div_approx" else 1]
    near = rounding.apply(fn, F32, operands, {})
    with rounding.exact():
        best = rounding.apply(fn, F32, operands, {})
    rounded = {**how, "ulp": how.get("ulp", 0) + 0.5, "abs": 1.1 * how.get("abs", 0.0)}
    assert difference(near, best, {})[0] > 0.0 and difference(near, best, rounded)[0] <= rounded["ulp"]
    if fn in ("tanh_approx", "sin_approx", "cos_approx"):
        assert np.array_equal(rounding.apply(fn, F32, (-x,), {}), near if fn == "cos_approx" else -near), "it has the symmetry of the function"


def test_the_true_value_is_right_on_its_side_and_a_second_reading_on_the_other() -> None:
    got, exact, also, true = (np.array(row) for row in ([0.95, 1.1, 1.1, 3.0], [1.0, 1.0, 1.0, np.inf], [1.2, 1.2, 1.05, 1.0], [0.9, 0.9, 1.3, 1.0]))
    assert beyond(got, exact, also, true).tolist() == [0.9, 1.2, 1.3, np.inf]
    assert beyond(got, exact, None, true) == pytest.approx([0.8, 0.8, 1.6, np.inf])  # no farther from it than the reference is: a sum of sums, say


@pytest.mark.parametrize(("value", "right"), [("x", True), ("x + 0.00015", False), ("x + 4096.0 + 0.0003 - 4096.0", False)])
def test_what_a_reference_loses_hides_nothing_that_is_wrong_in_all_elements(value: str, right: bool) -> None:
    """A reference may be off by 2.4e-4 in one element: in another it is not, and what is off there by less than that is found."""
    text = "kir 1\nprogram p\n  size N: i32\n  in X: f32[N]\n  out Y: f32[N]\nkernel main grid (i: N) threads 1\n  let x = X[i]\n  Y[i] = {}\n"
    made, against = (parse_program(text.format(v)) for v in (value, "x + 4096.0 - 4096.0"))
    assert gate_cpu(made, None, "kir", [], against=against).accepted == right


@pytest.mark.parametrize(("most", "by"), [(1e30, 1.0), (1e38, 0.125), (1e39, 0.015625), (1e41, 1.0), (np.inf, 1.0)])
def test_inputs_that_a_program_runs_away_with_are_taken_smaller(most: float, by: float) -> None:
    """By two steps at most; of what is then still not finite the usual inputs are left."""
    def made(arrays: dict[str, Any]) -> SimpleNamespace:
        with np.errstate(over="ignore"):
            return SimpleNamespace(outputs={"Y": np.float32(10) * (arrays["X"] * most).astype(np.float32), "N": np.array([1])})
    given: dict[str, Any] = {"X": np.ones(3), "I": np.ones(3, np.int32)}
    arrays, result = held_back(made, given, ["X"], made(given))
    assert arrays["X"].tolist() == [by] * 3 and arrays["I"] is given["I"] and np.isfinite(result.outputs["Y"]).all() == (most < 1e41)
    assert held_back(made, given, [], made(given))[0] is given, "whole numbers are left as they are"
