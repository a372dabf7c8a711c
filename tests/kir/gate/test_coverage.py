"""Sizes solved from a program's structure: what is foreseen is reached, and what only a second tile shows is refused."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kir.gate import gate_cpu
from kir.gate.cases import ProblemCase, problem_plan, problem_tests, relative_tests, tensor_names
from kir.gate.claims.elsewhere import elsewhere
from kir.gate.correctness import check
from kir.gate.covered import _bits, covered
from kir.gate.goals import Goal, predicted, promised
from kir.gate.gpu.relative import program_problem
from kir.gate.inputs.places import Places, places
from kir.gate.inputs.sets import size_sets
from kir.gate.shapes import of_problem, of_programs
from kir.interp import run
from kir.interp.state.coverage import MORE, ONE, TWO
from kir.ir.build import const
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import expr_text, program_text
from kir.ir.types import I32
from kir.problem import Problem, load_problem, problem_names
from kir.problem.draws import generator
from kir.rewrite import run as rewritten
from tests.programs import EXPERTS, SHIPPED, SKILLS, parsed

PROGRAMS = {**{name: (EXPERTS / e["file"], e["problem"]) for name, e in SHIPPED.items()},
            **{f"naive {p}": (file, p) for p in problem_names() if (file := SKILLS / "problems" / p / "naive.kir").is_file()}}
TRIPS_APART = ("fmha_sm90", "fmha_causal_sm90", "fmha_d128_causal_sm90")
"""Programs whose producer makes one trip more than its consumers: no size gives both loops their second trip, so they need a size more."""
QUICK = [name for name in PROGRAMS if name not in ("gemm_sm90_lanes", "gemm_sm90_persistent", "gemm_sm80_lanes", "fmha_sm90")]


def _read(name: str) -> tuple[Program, Problem]:
    file, problem = PROGRAMS[name]
    return parsed(file), load_problem(problem)


@pytest.mark.parametrize("name", QUICK)
def test_what_is_foreseen_is_reached(name: str) -> None:
    """A law: every goal that is sure at some sizes is reached by a run at these sizes."""
    program, problem = _read(name)
    tests = problem_tests(program, problem, {})
    wanted = {p.name for p in program.params}
    done: set[str] = set()
    space = of_problem(program, problem, tensor_names(program, problem, {}))
    for case in tests.cases:
        assert isinstance(case, ProblemCase)
        if case.shape in done or len(done) == 3:
            continue
        done.add(case.shape)
        scalars = {k: v for k, v in case.scalars.items() if k in wanted}
        with np.errstate(all="ignore"):
            reached = {Goal(*bit) for bit in _bits(program, run(program, case.arrays, scalars, cover=True).reached)}
        found = predicted(program, [space.own(dict(case.sizes))])
        assert {g for g, where in found.reached.items() if where[0] and g.kind != "choice"} <= reached


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_solved_sizes_reach_all_that_sizes_bring_about(name: str) -> None:
    program, problem = _read(name)
    plan = problem_plan(program, problem, {})
    assert plan is not None and 1 <= len(plan.shapes) <= (8 if name in TRIPS_APART else 7)
    space = of_problem(program, problem, tensor_names(program, problem, {}))
    found = predicted(program, [space.own(dict(at)) for at in plan.shapes])
    reached = {g for g, where in found.reached.items() if where.any()}
    assert not {g for g in plan.reachable - reached if g.kind != "grid" and g.bit in (TWO, MORE)}
    assert len(plan.reachable - reached) <= 2
    assert space.allowed(plan.shapes).all()


SCAN = """kir 1
program scan
  size M: i32
  size N: i32
  in X: f32[M, N]
  out Y: f32[M, N]
kernel main grid (row: M) threads 256
  fragment carry: f32[1] = 0.0
  for c in 0..ceildiv(N, 1024)
    let x = load(X[row, c * 1024 +: 1024] else 0.0:f32 clip)
    let sums = scan(x, axis=0, op=sum)
    Y[row, c * 1024 +: 1024] = CARRY + sums clip
    carry[0] = carry[0] + reduce(x, axis=0, op=sum)
"""
ONLINE = """kir 1
program softmax
  size M: i32
  size N: i32
  in X: f16[M, N]
  out Y: f16[M, N]
kernel main grid (row: M) threads 256
  fragment top: f32[1] = -inf
  fragment total: f32[1] = 0.0
  for k in 0..ceildiv(N, 256)
    let x = cast(load(X[row, k * 256 +: 256] else -inf:f16 clip), f32)
    let best = max(reduce(x, axis=0, op=max), top[0])
    let part = reduce(exp(x - best), axis=0, op=sum)
    total[0] = RESCALED + part
    top[0] = best
  for k_1 in 0..ceildiv(N, 256)
    Y[row, k_1 * 256 +: 256] = cast(exp(cast(load(X[row, k_1 * 256 +: 256] else 0.0:f16 clip), f32) - top[0]) / total[0], f16) clip
"""
PAIRS = {"scan": (SCAN, "CARRY", "carry[0]", "0.0"), "softmax": (ONLINE, "RESCALED", "total[0] * exp(top[0] - best)", "total[0]")}


@pytest.mark.parametrize("problem", list(PAIRS))
def test_what_only_a_second_tile_shows_is_refused(problem: str) -> None:
    text, hole, right, wrong = PAIRS[problem]
    good, bad = (parse_program(text.replace(hole, each), problem) for each in (right, wrong))
    known = load_problem(problem)
    accepted = check(good, problem_tests(good, known, {}), problem)
    assert accepted.ok, accepted.reason
    assert accepted.coverage is not None and not accepted.coverage.missing and not accepted.coverage.single
    assert not check(bad, problem_tests(bad, known, {}), problem).ok
    assert not check(bad, relative_tests(bad, good), problem, relative=True).ok
    assert check(good, relative_tests(good, good), problem, relative=True).ok


def test_a_state_of_a_walk_is_tried_where_its_expert_has_tiles() -> None:
    """The simpler program has no tile of 1,024: alone it would be tried at few columns."""
    naive, expert = load_problem("scan").naive, parse_program(SCAN.replace("CARRY", "carry[0]"), "expert")
    alone, beside = (problem_plan(naive, load_problem("scan"), {}, also) for also in ((), (expert,)))
    assert alone is not None and beside is not None
    assert max(s["N"] for s in alone.shapes) < 1024 < max(s["N"] for s in beside.shapes)


def test_a_loop_that_never_runs_again_is_refused_by_name() -> None:
    good = parse_program(SCAN.replace("CARRY", "carry[0]"), "scan")
    plan = problem_plan(good, load_problem("scan"), {})
    assert plan is not None
    found = covered(good, plan, {("loop", "main/c"): ONE})
    (refusal,) = found.refusals()
    assert refusal.id == "KIR-G112" and "main/c" in refusal.message
    assert "loop main/c: two trips" in found.missing and any(d.id == "KIR-G113" for d in found.warnings())
    assert not covered(good, plan, {("loop", "main/c"): ONE | TWO}).refusals()


def test_further_cases_are_drawn_where_a_loop_has_not_run_twice() -> None:
    good, bad = (parse_program(SCAN.replace("CARRY", each), "scan") for each in ("carry[0]", "0.0"))
    every = problem_tests(good, load_problem("scan"), {})
    short, long = ([c for c in every.cases if (c.sizes["N"] > 1024) is far] for far in (False, True))
    few = replace(every, cases=tuple(short), checked=tuple(short[:1]), further=lambda: iter(()))
    assert "KIR-G112" in check(good, few, "scan").reason
    more = replace(few, further=lambda: iter(long))
    assert check(good, more, "scan").ok and not check(bad, more, "scan").ok


def test_the_second_trip_is_run_however_long_it_takes() -> None:
    """A tile of 65,536 columns under a serial loop over them: slow, and still run twice."""
    wide = parse_program(SCAN.replace("CARRY", "carry[0]").replace("1024", "65536"), "scan")
    plan = problem_plan(wide, load_problem("scan"), {})
    assert plan is not None and max(s["N"] for s in plan.shapes) > 65536


def test_facts_that_no_size_satisfies_leave_nothing_to_test() -> None:
    program = parse_program(SCAN.replace("CARRY", "carry[0]").replace("  in X", "  fact N % 7 == 0\n  fact N < 7\n  in X", 1), "scan")
    record = check(program, problem_tests(program, load_problem("scan"), {}), "scan")
    assert not record.ok and "no shape" in record.reason


def test_sizes_meet_divisors_that_the_facts_ask_for() -> None:
    program = parse_program(SCAN.replace("CARRY", "carry[0]").replace("  in X", "  fact N % 1009 == 0\n  in X", 1), "scan")
    plan = problem_plan(program, load_problem("scan"), {})
    assert plan is not None and all(s["N"] % 1009 == 0 for s in plan.shapes) and max(s["N"] for s in plan.shapes) > 1024


def test_a_loop_whose_trips_data_decide_is_judged_by_what_it_did() -> None:
    text = """kir 1
program count
  size N: i32
  in X: i32[N]
  out Y: i32[N]
kernel main grid (i: N) threads 1
  register total: i32 = 0
  @inner for j in 0..X[i] // 200
    total = total + j
  Y[i] = total
"""
    program = parse_program(text, "count")
    record = check(program, relative_tests(program, program), "itself", relative=True)
    assert not record.ok and "main/inner" in record.reason, "its inputs are below 400, so it never runs twice"


ASSUMING = """kir 1
program p
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: ceildiv(N, 32)) threads 32
  for t in 0..32 parallel thread
    assume(N % 12 == 0)
    Y[b * 32 + t] = load(X[b * 32 + t] else 0.0 clip) clip
"""


def test_what_every_cta_assumes_of_sizes_chooses_them_and_a_candidate_s_own_word_does_not() -> None:
    assuming, plain = parse_program(ASSUMING), parse_program(ASSUMING.replace("    assume(N % 12 == 0)\n", ""))
    left = parse_program(ASSUMING.replace("    assume(", "    if b > 3\n      return\n    assume("))
    assert len(promised(assuming)) == 1 and not promised(left), "not what some CTAs never come to"
    assert all(sizes["N"] % 12 == 0 for sizes in size_sets(assuming)) and any(sizes["N"] % 12 for sizes in size_sets(plain))
    strided = parse_program("kir 1\nprogram p\n  size L: i32\n  size N: i32\n  in X: f32[L]\n  out Y: f32[N]\n  fact L >= N\n"
                            "kernel main grid (i: N) threads 1\n  Y[i] = X[i]\n")
    assert size_sets(strided)[0] == {"L": 4, "N": 4}, "what a stride steps over comes before the stride"
    pool = [{"N": 12}, {"N": 13}]
    assert list(of_programs(plain, assuming).allowed(pool)) == [True, False], "the reference promises it"
    assert list(of_programs(assuming, plain).allowed(pool)) == [True, True], "the candidate cannot excuse itself"


@pytest.mark.parametrize("fact", ["S >= M", "M <= S"])
def test_what_lies_between_strided_rows_is_nobodys(fact: str) -> None:
    """A kernel that writes rows of M at a stride of at least M is right by itself: checked cases keep a stride that the first has no larger than it must be."""
    p = parse_program(f"""kir 1
program rows
  size B: i32
  size M: i32
  size S: i32
  fact B >= 1
  fact M >= 1
  fact M % 16 == 0
  fact {fact}
  in X: f32[B, M]
  out Y: f32[S * B]
kernel main grid (row: B) threads 32
  for j in 0..ceildiv(M, 64)
    for t in 0..64
      if j * 64 + t < M
        Y[row * S + j * 64 + t] = X[row, j * 64 + t] * 2.0
""")
    tests = relative_tests(p, p)
    assert len(tests.checked) > 2 and any(c.sizes["S"] > c.sizes["M"] for c in tests.cases)
    assert check(p, tests, "itself", relative=True).ok


def test_a_case_in_which_the_stages_of_a_ring_are_used_again_is_checked() -> None:
    """An arrival too many in the first round lets a stage be filled while it is read, which values alone do not show."""
    program = parsed(EXPERTS / "gemm" / "gemm_sm90_lanes.kir")
    assert any(c.sizes["K"] > 4 * 64 for c in problem_tests(program, load_problem("gemm"), {}).checked)


@pytest.mark.parametrize(("value", "ulps", "right"), [("cast(cast(X[i] * 3.0, f16), f32)", 1, True), ("cast(cast(X[i] * 3.0, f16), f32)", 4, False),
                                                      ("X[i] * 3.0", 1, False)])
def test_what_a_program_rounds_before_it_stores_it_is_judged_by_that_rounding(value: str, ulps: int, right: bool) -> None:
    """A last place of f16 in f32 is what a device's own exponential may turn; of a program that does not round it is a fault."""
    program = parse_program(f"kir 1\nprogram p\n  size N: i32\n  in X: f32[N]\n  out Y: f32[N]\nkernel main grid (i: N) threads 1\n  Y[i] = {value}\n", "p")
    problem = program_problem(program, program)
    at = problem.shapes[-1]
    x = np.random.default_rng(0).standard_normal(at.sizes["N"]).astype(np.float32)
    exact = (x * np.float32(3.0)).astype(np.float16) if "f16" in value else x * np.float32(3.0)
    off = np.where(np.arange(len(x)) % 2, 1, -1) * ulps * np.spacing(np.abs(exact).astype(np.float16)).astype(np.float32)
    assert problem.compare({"Y": (exact.astype(np.float32) + off).astype(np.float32)}, {"X": x}, at).ok == right


ROWS = """kir 1
program rows
  size M: i32
  size N: i32
  in X: f32[M, N]
  out Y: f32[M]
  fact N >= 1
kernel main grid (row: M) threads 1
  register total: f32 = 0.0
  @sum for j in 0..N
    total = total + X[row, j]
  Y[row] = total
"""


@pytest.mark.parametrize(("columns", "runs"), [(16, "main"), (20, "main_otherwise")])
def test_two_versions_of_a_kernel_are_told_apart_though_a_pass_lets_them_share_what_they_do(columns: int, runs: str) -> None:
    made = rewritten(parse_program(ROWS), "version-kernel{sizes=[N] divisor=8}@main").program
    assert made.kernels[0].body[1] is made.kernels[1].body[1]
    x = np.ones((3, columns), np.float32)
    found = run(made, {"X": x}, {}, cover=True)
    assert [anchor for kind, anchor in found.reached if kind == "loop"] == [f"{runs}/sum"] and found.outputs["Y"].tolist() == [columns] * 3
    again = run(parse_program(program_text(made)), {"X": x}, {}, cover=True)
    assert again.reached == found.reached


def test_a_number_of_a_kernel_that_is_its_own_problem_is_drawn() -> None:
    """What every test holds at one value: there is no reference file to ask, and the kernel itself says what is right."""
    text = "kir 1\nprogram p\n  size N: i32\n  in X: f32[N]\n  scalar eps: f32\n  out Y: f32[N]\nkernel main grid (i: N) threads 1\n  Y[i] = X[i] + {}\n"
    right, fixed = (parse_program(text.format(value), "p") for value in ("eps", "0.5"))
    problem = program_problem(right, right)
    for program, said in ((right, []), (fixed, ["KIR-G143"])):
        names, at = tensor_names(program, problem, {}), problem.shapes[0]
        case = ProblemCase(problem, at, "normal", 0, problem.inputs(at, 0), names)
        assert [d.id for d in elsewhere(program, problem, names, [case], lambda _: "")] == said


STORED_BY = """
kir 1
program kept
  size T: i32
  size P: i32
  in X: f32[T, 8]
  in at: i64[T]
  inout C: f32[P, 8]
  fact T >= 1
  fact P >= 1
kernel main grid (t: T) threads 1
  let p = at[t]
  if p >= 0:i64
    for j in 0..8
      C[p, j] = X[t, j]
"""


def test_numbers_by_which_places_are_stored_are_all_different() -> None:
    """A cache that is filled by slots is judged at slots that are none alike, which is said; what leaves out the skipped ones, or stores elsewhere, is
    refused there."""
    expert = parse_program(STORED_BY)
    assert places(expert)["at"].apart and not places(parse_program(STORED_BY.replace("C[p, j] = X[t, j]", "atomic_add(&C[p, j], X[t, j])")))["at"].apart
    paged = STORED_BY.replace("size P: i32", "size P: i32\n  size W: i32\n  fact W >= 1").replace("C: f32[P, 8]", "C: f32[P, W * 8]")
    paged = paged.replace("C[p, j]", "C[p // cast(W, i64), cast(p % cast(W, i64), i32) * 8 + j]")
    pages = places(parse_program(paged))["at"]
    assert pages.apart and [expr_text(e) for e in pages.below] == ["cast(P, i64) * cast(W, i64)"]
    right = gate_cpu(expert, None, "kir", (), against=expert)
    assert right.accepted and right.correctness is not None and "KIR-G145" in {x.id for x in right.correctness.weak}
    for old, new in (("p >= 0:i64", "p >= 1:i64"), ("C[p, j] = X[t, j]", "C[p, j] = X[0, j]"), ("0..8", "0..7")):
        assert not gate_cpu(parse_program(STORED_BY.replace(old, new)), None, "kir", (), against=expert).accepted, new


def test_ways_of_a_function_are_its_arguments_and_ask_for_no_sizes() -> None:
    p = parse_program("kir 1\nprogram p\n  size n: i32\n  in X: f32[n]\n  out Y: f32[n]\n  fact n >= 1\nfunction half(x: f32, k: i32) -> f32\n"
                      "  return select(k == 3, 0.0, x / 2.0)\nkernel main grid (i: n) threads 1\n  Y[i] = half(X[i], i)\n")
    assert check(p, relative_tests(p, p), "itself", relative=True).ok


def test_a_table_of_many_offsets_has_one_long_part_in_every_other_drawing() -> None:
    """Of fifty rows a loop with a step of 32 has to go round a second time in one, which no row does where each begins anywhere."""
    table = Places((const(100),), skips=False, counts=False, rises=True)
    drawn = [table.drawn((51,), {}, I32, generator("offsets", str(turn)), turn) for turn in range(8)]
    longest = [int(np.diff(of).max()) for of in drawn if of is not None]
    assert len(longest) == 8 and min(longest[::2]) > 32 and all(0 < x <= 99 for x in longest), longest


@pytest.mark.parametrize("threads", [32, 1024])
def test_the_threads_of_a_cta_are_counted_in_what_a_run_takes_at_most(threads: int) -> None:
    text = f"""kir 1
program p
  size M: i32
  out Y: f32[M, {threads}]
kernel main grid (row: M) threads {threads}
  for t in 0..{threads} parallel thread
    Y[row, t] = 1.0
"""
    few, many = predicted(parse_program(text), [{"M": 1 << 10}, {"M": 1 << 20}]).most
    assert many - few > (1 << 20) * threads * 0.5e-9
