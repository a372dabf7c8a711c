"""Programs that do their work up to a size alone, and rows whose mean is large against their spread: refused, though few tests reach there, beside programs
that look like them and are right."""
from __future__ import annotations

import pytest

from kir.gate import gate_cpu
from kir.gate.cases import relative_tests
from kir.gate.claims import unshown
from kir.gate.goals import predicted
from kir.gate.inputs.offsets import centered, offsets
from kir.gate.shapes import LONGEST, constants, of_programs, solved
from kir.ir.nodes import Program
from kir.ir.parser import parse_program

ROWS = """kir 1
program rows
  size M: i32
  size N: i32
  in X: f32[M, N]
  out Y: f32[M, N]
kernel main grid (i: M) threads 1
"""
EACH = """  for j in 0..N
    Y[i, j] = X[i, j] * 2.0
"""
SUM = """kir 1
program p
  size K: i32
  in X: f32[K]
  out Y: f32[1]
  fact K >= 1
kernel main grid (g: 1) threads 1
  register s: f32 = 0.0
  for j in 0..K
    s = s + X[j]
  Y[0] = {}
"""


def _within(cond: str) -> str:
    return ROWS + f"  if {cond}\n" + EACH.replace("  for", "    for").replace("    Y", "      Y")


def _said(text: str, against: str) -> str:
    verdict = gate_cpu(parse_program(text, "p.kir"), None, "kir", [], against=parse_program(against, "q.kir"))
    return "" if verdict.accepted else verdict.reason


# ------------------------------------------------------------------------------------------------------------------- far sizes
CAPPED = {
    "a product of sizes": _within("M * N <= 50000000"),
    "bits of a size": _within("(M >> 21) == 0"),
    "a size as a float": _within("cast(M, f32) < 6000000.0"),
    "wider than a size": _within("cast(M, i64) * cast(N, i64) < 4294967296:i64"),
    "a grid": (ROWS + EACH).replace("(i: M)", "(i: min(M, 5000000))"),
    "a grid of fours": ROWS.replace("(i: M)", "(b: min(ceildiv(M, 4), 1400000))") + "  for q in 0..4\n    let i = b * 4 + q\n    if i < M\n"
                       + EACH.replace("  for", "      for").replace("    Y", "        Y"),
    "a loop": (ROWS + EACH).replace("0..N", "0..min(N, 6000000)"),
    "rounds of CTAs": ROWS.replace("(i: M)", "(b: min(M, 64))") + "  for i in b..min(M, 5000000) step 64\n"
                      + EACH.replace("  for", "    for").replace("    Y", "      Y"),
    "powers of two": (ROWS + EACH).replace("0..N", "0..N - select((N > 64) & ((N & (N - 1)) == 0), 1, 0)"),
    "one CTA of one grid": (ROWS + EACH).replace("0..N", "0..N - select((i == 5) & (M - i == 9) & (N == 31), 1, 0)"),
    "one size": (ROWS + EACH).replace("0..N", "0..N - select(N == 5999999, 1, 0)")}


@pytest.mark.parametrize("name", CAPPED)
def test_work_that_ends_at_a_size_is_refused_where_no_test_gets_there(name: str) -> None:
    said = _said(CAPPED[name], ROWS + EACH)
    assert said.startswith(("KIR-G134", "KIR-G146")) or "the reference program says" in said  # or it is run there, and wrong


EACH_ALONE = "kir 1\nprogram e\n  size N: i32\n  in X: f32[N]\n  out Y: f32[N]\nkernel main grid (i: N) threads 1\n  Y[i] = X[i] * 2.0\n"
AT = """kir 1
program e
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: ceildiv(N, 64)) threads 64
  for t in 0..64 parallel thread
    let i = b * 64 + t
"""
PLACED = AT + """    let q = {place}
    if i < N
      Y[i] = X[q] * 2.0
"""
TILED = """kir 1
program e
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: ceildiv(N, 64)) threads 64
  let i = iota(64) + b * 64
  let x = load(X[i] where i < N else 0.0)
  Y[i] = x * 2.0 where {mask}
"""
HELD = """kir 1
program e
  size M: i32
  size K: i32
  in X: f32[M, K, 64]
  out Y: f32[M, 64]
{memory}kernel main grid (i: M) threads 64
{shared}  for t in 0..64 parallel thread
    register sum: f32 = 0.0
    for k in 0..K
      {at}[t] = X[i, k, t]
      {wait}barrier()
      sum = sum + {at}[63 - t]
      barrier()
    Y[i, t] = sum
"""
PLAIN = HELD.format(memory="", shared="  shared s: f32[1, 64]\n", at="s[0, ", wait="").replace("[0, [", "[0, ")
PARTS = HELD.format(memory="  workspace S: f32[{many}, 64]\n", shared="", at="S[{part}, ", wait="").replace(", [", ", ")
TURNED = {
    "a mask of a tile": (TILED.format(mask="(i < N) & (i < 5000000)"), ""),
    "a mask written the other way": (TILED.format(mask="~((i >= N) | (i >= 5000000))"), ""),
    "a mask by the lesser of two": (TILED.format(mask="i < min(N, 5000000)"), TILED.format(mask="i < min(N, b * 64 + 64)")),
    "a mask by bits": (TILED.format(mask="(i < N) & (i // 4194304 == 0)"), ""),
    "a rest": (PLACED.format(place="i % 16777215"), PLACED.format(place="(i // 100000) * 100000 + i % 100000")),
    "the lower bits": (PLACED.format(place="i & 16777215"), PLACED.format(place="(i >> 16) * 65536 + (i & 65535)")),
    "a barrier": (PLAIN.replace("      barrier()\n      sum", "      if k != 100000\n        barrier()\n      sum"),
                  PLAIN.replace("      barrier()\n      sum", "      if k < 100000\n        barrier()\n      else\n        barrier()\n      sum")),
    "memory that CTAs share after many": (PARTS.format(part="i % 65536", many=65536), PARTS.format(part="i", many="M")),
    "memory for fewer": (EACH_ALONE.replace("kernel", "  workspace S: f32[8388608]\nkernel").replace("Y[i] = X[i] * 2.0",
                         "S[i] = X[i] * 2.0\n  Y[i] = S[i]"), "")}


@pytest.mark.parametrize("name", TURNED)
def test_what_turns_at_a_number_that_no_test_comes_to_is_judged_with_a_small_one(name: str) -> None:
    """No branch is left out, or what it leaves out is a barrier; threads meet only beyond the number. Beside it what asks the same, and is right."""
    wrong, right = TURNED[name]
    own = EACH_ALONE if "X: f32[N]" in wrong else PLAIN
    against = parse_program(own, "q.kir")
    said = [gate_cpu(parse_program(text, "p.kir"), None, "kir", [], against=against, hazards=True) for text in (wrong, right) if text]
    assert not said[0].accepted and said[0].reason.startswith("KIR-G148" if "fewer" in name else ("KIR-G134", "KIR-G146")), said[0].reason
    assert all(v.accepted and v.correctness is not None and v.correctness.hazards is not None for v in said[1:]), said[-1].reason


def test_the_rest_of_a_division_is_a_size_to_try_however_it_is_written() -> None:
    for rest in ("N & 65535", "N & 196607", "N - (N >> 16 << 16)", "N % 65536"):
        assert 65536 in constants((parse_program((ROWS + EACH).replace("0..N", f"0..({rest})")),))
    assert _said((ROWS + EACH).replace("0..N", "0..(N - (N >> 10 << 10))"), ROWS + EACH)


STRIDED = """kir 1
program e
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: min(ceildiv(N, 256), {most})) threads 256
  for t in 0..256 parallel thread
    for i in b * 256 + t..N step {step}
      Y[i] = X[i] * 2.0
"""


TILES = STRIDED[:STRIDED.index("  for t")] + """  for i in b..ceildiv(N, 256) step {step}
    Y[i * 256 +: 256] = load(X[i * 256 +: 256] else 0.0 clip) * 2.0 clip
"""


@pytest.mark.parametrize(("text", "most", "step", "right"), [
    (STRIDED, 65536, "min(ceildiv(N, 256), 65536) * 256", True), (STRIDED, 65536, "65536 * 256 + 256", False),
    (TILES, 66, "min(ceildiv(N, 256), 66)", True), (TILES, 66, "66 + 1", False)])
def test_a_grid_that_is_cut_off_is_right_where_its_ctas_go_on(text: str, most: int, step: str, right: bool) -> None:
    """Also one of tiles of 256, which is an extent that no other number can stand for, and as many CTAs as a device has SMs."""
    said = _said(text.format(most=most, step=step), EACH_ALONE)
    assert (said == "") == right and (right or said.startswith("KIR-G134: no test has a grid along 'b'") or "is nan, the reference program says" in said)


@pytest.mark.parametrize(("given", "refused"), [("select(K < 1000000, s, 0.0)", True), ("select(K < 1000000, s, s + 0.0)", False)])
@pytest.mark.parametrize("whole", [True, False])
def test_where_tests_were_left_out_a_way_is_tried_or_taken_by_force(given: str, refused: bool, whole: bool) -> None:
    program, against = (parse_program(SUM.format(x)) for x in (given, "s"))
    assert ("KIR-G134" in {d.id for d in unshown(program, against, relative_tests(program, against).cases, {}, whole)}) == refused


def test_sizes_at_which_what_it_is_compared_with_does_not_end_are_not_run() -> None:
    """The program does nothing there, and takes no time; a kernel of 128 threads a row has 250 million of them."""
    lanes = ROWS.replace("threads 1", "threads 128") + "  for t in 0..128 parallel thread\n    for j in t..N step 128\n      let x = X[i, j]\n" \
        "      Y[i, j] = x * x * x + x * x + x + 1.0\n"
    against = parse_program(lanes)
    program = parse_program(lanes.replace("  for t", "  if M <= 2000000\n   for t").replace("    for j", "     for j").replace("      ", "       "))
    plan = solved(program, of_programs(program, against), (against,))
    assert plan is not None and all(float(predicted(p, [at]).most[0]) <= LONGEST for at in (*plan.shapes, *plan.far, *plan.edges) for p in (program, against))


# -------------------------------------------------------------------------------------------------------------- far from zero
NORM = """kir 1
program norm
  size M: i32
  size N: i32
  in X: {t}[M, N]
  out Y: {t}[M, N]
kernel main grid (row: M) threads 1
  register total: f32 = 0.0
  register squares: f32 = 0.0
  for j in 0..N
    total = total + cast(X[row, j], f32){more}
  let mean = total / cast(N, f32)
{second}  let r = rsqrt({spread} + 1e-5)
  for j2 in 0..N
    Y[row, j2] = cast((cast(X[row, j2], f32) - mean) * r, {t})
"""


def _norm(dtype: str, passes: int, first: str = "N") -> Program:
    square = "    squares = squares + {x} * {x}\n"
    text = NORM.format(t=dtype, more="\n" + square.format(x="cast(X[row, j], f32)").rstrip() if passes == 1 else "",
                       second="" if passes == 1 else "  for j1 in 0..N\n" + square.format(x="(cast(X[row, j1], f32) - mean)"),
                       spread="squares / cast(N, f32)" + (" - mean * mean" if passes == 1 else ""))
    text = text.replace("in 0..N\n    total", f"in 0..{first}\n    total")
    return parse_program(text.replace("cast(X[row, j], f32)", "X[row, j]").replace("cast(X[row, j1], f32)", "X[row, j1]").replace(
        "cast(X[row, j2], f32)", "X[row, j2]").replace("* r, f32)", "* r)").replace("= cast(((", "= ((").replace("cast((X", "((X") if dtype == "f32" else text)


@pytest.mark.parametrize(("dtype", "program", "against", "right"), [
    ("f16", 1, 2, False), ("f32", 1, 2, False), ("bf16", 1, 2, True), ("f16", 2, 1, True), ("f16", 1, 1, True), ("f32", 2, 2, True)])
def test_one_pass_beside_two_is_refused_where_the_dtype_tells_them_apart(dtype: str, program: int, against: int, right: bool) -> None:
    """A bf16 that is 64 times its spread from zero is the farthest that has a spread, and f32 takes E[x^2] - mean^2 well enough there."""
    verdict = gate_cpu(_norm(dtype, program), None, "kir", [], against=_norm(dtype, against))
    assert verdict.accepted == right, verdict.reason


def test_rows_far_from_zero_are_for_what_takes_a_sum_from_what_it_added() -> None:
    assert centered(_norm("f16", 1)) == centered(_norm("f16", 2)) == {"X"}
    assert offsets(_norm("f16", 2), _norm("f16", 1))[0] == "offset X=512.0" and offsets(_norm("bf16", 2))[0] == "offset X=64.0"
    softmax = ROWS + "  register top: f32 = -inf\n  for k in 0..N\n    top = max(top, X[i, k])\n  register s: f32 = 0.0\n  for q in 0..N\n" \
        "    s = s + exp(X[i, q] - top)\n  for j in 0..N\n    Y[i, j] = exp(X[i, j] - top) / s\n"
    assert not offsets(parse_program(softmax), parse_program(ROWS + EACH))
