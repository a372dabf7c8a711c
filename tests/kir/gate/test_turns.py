"""Inputs at which a program decides otherwise, which no draw would hit: wrong programs that the gate accepted without them, and right ones beside."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kir.gate import gate_cpu
from kir.gate.cases import problem_tests
from kir.gate.claims.flow import Flow
from kir.gate.claims.searched import special_cases
from kir.gate.claims.ways import possible, ways
from kir.gate.inputs.extremes import extremes
from kir.gate.inputs.turns import turning
from kir.ir.nodes import Program, Select
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.problem import load_problem
from kir.problem.draws import generator, placed


def floats(value: str) -> Program:
    return parse_program(f"""kir 1
program p
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: ceildiv(N, 64)) threads 64
  for t in 0..64 parallel thread
    if b * 64 + t < N
      let x = X[b * 64 + t]
      Y[b * 64 + t] = {value}
""")


def whole(value: str) -> Program:
    return parse_program(f"""kir 1
program p
  size N: i32
  in X: i32[N]
  in Z: i32[N]
  out Y: i32[N]
kernel main grid (b: ceildiv(N, 64)) threads 64
  for t in 0..64 parallel thread
    if b * 64 + t < N
      let x = X[b * 64 + t]
      let z = Z[b * 64 + t]
      Y[b * 64 + t] = {value}
""")


def tiles(value: str) -> Program:
    return parse_program(f"""kir 1
program p
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: ceildiv(N, 64)) threads 64
  let x = load(X[b * 64 +: 64] else 0.0 clip)
  Y[b * 64 +: 64] = {value} clip
""")


def sums(value: str) -> Program:
    return parse_program(f"""kir 1
program p
  size N: i32
  in X: i32[N, 9]
  out Y: i64[N]
kernel main grid (b: N) threads 1
  register s: i64 = 0:i64
  for k in 0..9
    let x = X[b, k]
    s = s + {value}
  Y[b] = s
""")


def sums_of_floats(value: str) -> Program:
    text = "kir 1\nprogram p\n  size N: i32\n  in X: f32[N, 9]\n  out Y: f32[N]\nkernel main grid (b: N) threads 1\n  register s: f32 = 0.0\n  for k in 0..9\n"
    return parse_program(f"{text}    let x = X[b, k]\n    s = s + {value}\n  Y[b] = s\n")


FLOATS = [
    ("x * 2.0", "select(b * 64 + t > 0 & x + X[0] == 1.25, 0.0, x * 2.0)", "select(x + X[0] == 1.25, x + x, x * 2.0)"),
    ("x * 2.0", "select(cast(x, i32, bits) == 1078530011, 0.0, x * 2.0)", "x + x"),
    ("x * 2.0", "select(x * 7.0 == 21.0, 0.0, x * 2.0)", "select(x * 7.0 == 21.0, 6.0, x * 2.0)"),
    ("x * 2.0", "select(x > 11.5 & x < 11.625, 0.0, x * 2.0)", "select(x > 11.5 & x < 11.625, x + x, x * 2.0)"),
    ("x * 2.0", "select(x == floor(x) & trem(cast(x, i32), 1000) == 777, 0.0, x * 2.0)", "select(x == floor(x), x + x, x * 2.0)"),
    ("round_even(x)", "round_away(x)", "select(x == floor(x), x, round_even(x))"),
    ("round_even(x)", "floor(x + 0.5)", "round_even(x + 0.0)")]
WHOLE = [
    ("select(x < z, 1, 0)", "select(x - z < 0, 1, 0)", "select(cast(x, i64) - cast(z, i64) < 0:i64, 1, 0)"),
    ("select(x < z, 1, 0)", "select(cast(x, f32) < cast(z, f32), 1, 0)", "select(z > x, 1, 0)"),
    ("cast((cast(x, i64) + cast(z, i64)) // 2:i64, i32)", "(x + z) // 2", "cast((cast(z, i64) + cast(x, i64)) // 2:i64, i32)")]


@pytest.mark.parametrize(("made", "right", "wrong", "other"), [*((floats, *x) for x in FLOATS), *((whole, *x) for x in WHOLE),
                                                               (tiles, *FLOATS[2]), (tiles, *FLOATS[5]),
                                                               (sums_of_floats, "x", "select(abs(x) > 1e-20, x, 0.0)", "select(abs(x) > 1e-20, x, x * 1.0)"),
                                                               *((sums, "cast(x, i64) * cast(x, i64)", wrong, "cast(abs(x), i64) * cast(abs(x), i64)")
                                                                 for wrong in ("cast(x * x, i64)", "cast(cast(x, f32) * cast(x, f32), i64)",
                                                                               "cast(cast(x, i16), i64) * cast(x, i64)"))])
def test_what_is_wrong_at_few_values_is_refused_and_what_is_right_there_is_not(made: object, right: str, wrong: str, other: str) -> None:
    assert callable(made)
    against = made(right)
    refused = gate_cpu(made(wrong), None, "kir", [], against=against)
    assert not refused.accepted and refused.stage == "correctness", wrong
    accepted = gate_cpu(made(other), None, "kir", [], against=against)
    assert accepted.accepted, accepted.reason


def test_values_are_those_on_both_sides_of_a_turn_and_between_two() -> None:
    found = turning(floats("select(x > 11.5 & x < 11.625, 0.0, x)"))["X"]
    assert {11.5, 11.625} <= set(found) and any(11.5 < v < 11.625 for v in found) and any(v > 11.625 for v in found)
    assert turning(floats("max(x, 0.0)")) == {}, "usual draws do both"
    assert turning(floats("x * 0.5")) == {}


@pytest.mark.parametrize(("value", "told"), [
    ("select(x < z, x, z)", True), ("x // 4", True), ("mulhi(x, z)", True), ("cast(cast(x, i64) * cast(z, i64) >> 31:i64, i32)", True),
    ("x + z", False), ("x * 3", False), ("x // z", False), ("-x", False), ("x << 1", False)])
def test_whole_numbers_at_the_ends_are_drawn_where_the_reference_says_something_of_them(value: str, told: bool) -> None:
    assert bool(extremes(whole(value))) == told


def test_numbers_that_name_places_are_not_drawn_at_the_ends() -> None:
    found = whole("x")
    text = """kir 1
program p
  size N: i32
  in I: i32[N]
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: N) threads 1
  Y[b] = X[I[b]]
"""
    assert extremes(found) and not extremes(parse_program(text))


def test_values_stand_in_one_place_of_tensors_of_one_size() -> None:
    arrays: dict[str, NDArray[Any]] = {"X": np.zeros(400, np.int32), "Z": np.zeros(400, np.int32), "W": np.zeros(7, np.int8)}
    made = placed("X=5;7,Z=5;7,W=300;9", arrays, generator("places"))
    assert (arrays["X"] == 0).all() and ((made["X"] != 0) == (made["Z"] != 0)).all()
    assert {(int(a), int(b)) for a, b in zip(made["X"], made["Z"], strict=True)} == {(0, 0), (5, 7), (7, 5), (5, 5), (7, 7)}
    assert set(made["W"].tolist()) <= {0, 9}, "what a dtype cannot hold is not drawn"


@pytest.mark.parametrize(("again", "asked"), [("k > 0", False), ("k > 1", True), ("counts[0] > 0", True)])
def test_a_way_that_the_branch_around_it_excludes_is_asked_of_no_test(again: str, asked: bool) -> None:
    """Data may bring about whatever no condition around excludes: a loop that is cut short where there is nothing, in a branch that is taken where there is."""
    program = parse_program(f"""kir 1
program p
  size M: i32
  in X: f32[M, 64]
  in counts: i32[M]
  out Y: f32[M]
kernel main grid (i: M) threads 1
  let k = counts[i]
  register total: f32 = 0.0
  if k > 0
    for j in 0..select({again}, 64, 1)
      total = total + X[i, j]
  Y[i] = total
""")
    flow = Flow(program)
    (other,) = [way for way in ways(program, flow) if isinstance(way.node, Select) and not way.holds]
    assert possible(program, flow, other) == asked


def test_inputs_of_one_value_come_at_a_size_at_which_data_lie_below_it() -> None:
    """A loop over what a sequence has, cut off at the longest: at sizes of 1, where a kernel's structure had the first case, no length is below, and a right
    kernel was refused for a way that no test took (KIR-G134)."""
    problem = load_problem("fmha_varlen")
    cases = sorted(problem_tests(problem.naive, problem, {}).cases, key=lambda case: case.sizes["L"])
    assert cases[0].sizes["L"] == 1
    assert any(case.sizes["L"] > max(1, int(case.arrays["lengths"].max())) for case in special_cases(problem, cases))
    assert any(1 < length < case.sizes["L"] for case in cases if case.distribution == "short" for length in case.arrays["lengths"])


@pytest.mark.parametrize(("was", "made", "right"), [
    ("max(length, 1)", "max(length, 0)", True), ("max(length, 1)", "max(length, 2)", False), ("i < length,", "i < length - 1,", False),
    ("i < length,", "i < length - select(h == H - 1 & H > 1, 1, 0),", False), ("= lengths[b]", "= select(lengths[b] > 17, lengths[b] - 1, lengths[b])", False)])
def test_lengths_end_within_the_sizes(was: str, made: str, right: bool) -> None:
    """Lengths were drawn up to 600, where the sizes solved from a kernel are 3: wrong ends of sequences were accepted, and a right kernel that treats one
    without a key otherwise was refused."""
    problem = load_problem("fmha_varlen")
    text = program_text(problem.naive)
    assert was in text and problem.ranges == {"lengths": (-1, 600)}
    assert gate_cpu(parse_program(text.replace(was, made)), problem, "kir", []).accepted == right


SIZED = """kir 1
program p
  size M: i32
  size N: i32
  fact M >= 1
  fact N >= 1
  in X: f32[M, N]
  out Y: f32[M, N]
kernel main grid (m: M) threads 32
  for t in 0..32 parallel thread
    for k in 0..ceildiv(N, 32)
      if k * 32 + t < N
        let x = X[m, k * 32 + t]
        Y[m, k * 32 + t] = {value}
"""


@pytest.mark.parametrize("where", ["N == 777 & m == 3", "M == 37 & N == 41", "M * N == 5040", "N * N == 1369", "M == N + 5", "N == 777 & x > 0.5"])
def test_a_way_that_sizes_decide_together_is_taken(where: str) -> None:
    """A value is wrong at few sizes, which no size by itself leads to; what is right there is accepted."""
    against = parse_program(SIZED.format(value="x * 2.0"))
    wrong, right = (parse_program(SIZED.format(value=f"select({where}, {there}, x * 2.0)")) for there in ("0.0", "x + x"))
    refused = gate_cpu(wrong, None, "kir", [], against=against)
    assert not refused.accepted and refused.stage == "correctness"
    assert gate_cpu(right, None, "kir", [], against=against).accepted


SCALARS = """kir 1
program p
  size N: i32
  scalar alpha: f32
  scalar flag: i32
  fact N >= 1
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: ceildiv(N, 64)) threads 64
  for t in 0..64 parallel thread
    if b * 64 + t < N
      let x = X[b * 64 + t]
      Y[b * 64 + t] = {value}
"""


@pytest.mark.parametrize("wrong", ["select(flag != 0, x * 0.5, x + 0.5)", "x * alpha", "select(flag == 1, x * alpha, x + alpha)",
                                   "select(alpha < 0.0, 0.0, select(flag != 0, x * alpha, x + alpha))"])
def test_a_scalar_that_is_left_out_shows_at_other_values(wrong: str) -> None:
    """All of these were accepted: a factor was 0.5 and a flag 1 in every test."""
    against = parse_program(SCALARS.format(value="select(flag != 0, x * alpha, x + alpha)"))
    assert not gate_cpu(parse_program(SCALARS.format(value=wrong)), None, "kir", [], against=against).accepted
    right = SCALARS.format(value="select(flag == 0, alpha + x, alpha * x)")
    assert gate_cpu(parse_program(right), None, "kir", [], against=against).accepted


def test_facts_about_scalars_hold_at_all_values() -> None:
    """A program that says that its flag is set is not asked what it does without."""
    against = SCALARS.replace("  fact N >= 1\n", "  fact N >= 1\n  fact flag >= 1\n").format(value="select(flag != 0, x * alpha, x + alpha)")
    alone = SCALARS.format(value="x * alpha")
    assert gate_cpu(parse_program(alone), None, "kir", [], against=parse_program(against)).accepted


SOFTMAX = """kir 1
program p
  size M: i32
  size N: i32
  fact M >= 1
  fact N >= 1
  in X: f32[M, N]
  out Y: f32[M, N]
kernel main grid (m: M) threads 1
  register top: f32 = {first}
  register s: f32 = 0.0
  for k in 0..N
    top = max(top, X[m, k])
  for j in 0..N
    s = s + exp(X[m, j] - top)
  for i in 0..N
    Y[m, i] = exp(X[m, i] - top) / s
"""


def test_a_largest_that_begins_at_zero_is_wrong_far_below() -> None:
    """The same over the reals, and zero by zero in floats."""
    against = parse_program(SOFTMAX.format(first="X[m, 0]"))
    assert not gate_cpu(parse_program(SOFTMAX.format(first="0.0")), None, "kir", [], against=against).accepted
    assert gate_cpu(parse_program(SOFTMAX.format(first="-1.0e30")), None, "kir", [], against=against).accepted


@pytest.mark.parametrize(("value", "of", "said"), [
    ("max(x, 0.5)", "select(x < 0.5, 0.5, x)", "with NaN among the inputs Y["), ("x + x", "x * 2.0", ""),
    ("select(x == x * 0.5 & x > 1.0, 0.0, x * 2.0)", "x * 2.0", "with infinities among the inputs Y["),
    ("select(x == x, max(x, 0.5), 0.5)", "max(x, 0.5)", ""), ("min(x * 2.0, 1.0e30)", "x * 2.0", "with ")])
def test_what_is_not_finite_is_a_warning(value: str, of: str, said: str) -> None:
    """It refuses nothing, and nothing was said of it."""
    found = gate_cpu(floats(value), None, "kir", [], against=floats(of), algebra=True)
    assert found.accepted and found.correctness is not None
    assert [d.message.startswith(said) and d.id == "KIR-G144" for d in found.correctness.weak] == [True] * (1 + ("e30" in value)) * bool(said)


@pytest.mark.parametrize(("value", "kind"), [("select(x != x, 0.0, x * 2.0)", "NaN"), ("select(isinf(x), 0.0, x * 2.0)", "infinities"),
                                             ("select(x > -inf, x * 2.0, -1.0)", "NaN")])
def test_what_is_not_finite_is_not_asked_for_and_dropped(value: str, kind: str) -> None:
    """Where each value of an element gives another result, and those that are no numbers are left out."""
    found = gate_cpu(floats(value), None, "kir", [], against=floats("x * 2.0"))
    assert not found.accepted and found.reason.startswith(f"KIR-G149: with {kind} among the elements of X ")


def test_sizes_that_a_program_alone_does_not_take_are_said() -> None:
    """Facts of its own, and CTAs along an axis that a launch takes no more of; nothing of those that the other program has too."""
    text = """kir 1
program p
  size M: i32
  size N: i32
  in X: f32[M, N]
  out Y: f32[M, N]
{}kernel main grid ({}) threads 32
  for j in 0..N
    Y[row, j] = X[row, j] * 2.0
"""
    against = parse_program(text.format("  fact M >= 1\n", "row: M"))
    for facts, grid, said in (("  fact M >= 1\n", "row: M", []), ("  fact M >= 2\n  fact N % 4 == 0\n", "row: M", ["M >= 2", "N % 4 == 0"]),
                              ("  fact M >= 1\n", "q: 1, row: M", ["row"]), ("  fact M >= 1\n  fact M <= 65535\n", "q: 1, row: M", ["M <= 65535"])):
        found = gate_cpu(parse_program(text.format(facts, grid)), None, "kir", [], against=against, algebra=True)
        assert found.accepted and found.correctness is not None and [d.subject for d in found.correctness.weak if d.id == "KIR-G150"] == said


def test_a_way_of_the_reference_that_no_size_takes_is_taken() -> None:
    """A number that only chooses is a size of the one and nothing of the other, whose sizes are all above zero."""
    text = SCALARS.replace("  scalar flag: i32\n", "  size flag: i32\n").format(value="select(flag != 0, max(x, 0.0), x * alpha)")
    against = parse_program(text)
    wrong = SCALARS.format(value="max(x, 0.0)")
    refused = gate_cpu(parse_program(wrong), None, "kir", [], against=against)
    assert not refused.accepted and refused.correctness is not None and refused.correctness.runs[-1].sizes["flag"] == 0
    assert gate_cpu(parse_program(text.replace("flag != 0, max(x, 0.0), x * alpha", "flag == 0, alpha * x, max(x, 0.0)")), None, "kir", [],
                    against=against).accepted
