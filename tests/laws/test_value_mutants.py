"""Mutants that compute the wrong thing: each rule finds the places it should on a small program, what it makes is well formed and computes something else by
a run in float64, and the gate refuses a fixed sample. All of them: `python -m benchmarks.checks.value_mutants`, for docs/tables/mutants.md."""
from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.checks.mutants_page import PAGE, TITLE, Row, share, values, with_values
from benchmarks.checks.value_mutants import Subject, subjects, verdict
from kir.gate.cases import tensor_names
from kir.gate.mutants import RULES, Mutant, candidates, mutants, put, sites, spread
from kir.gate.mutants.truth import Trial, apart, arranged, problem_trials, relative_trials, told
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.problem import load_problem
from kir.problem.problem import widened

ONLINE = """kir 1
program online
  size M: i32
  size N: i32
  scalar eps: f32
  in X: f32[M, N]
  out Y: f32[M]
  fact N >= 1
kernel main grid (row: M) threads 32
  shared ring: f32[2, 32]
  fragment top: f32 = -inf
  fragment total: f32 = 0.0
  for k in 0..ceildiv(N, 32)
    ring[k % 2, 0 +: 32] = load(X[row, k * 32 +: 32] else -inf clip)
    let x = ring[k % 2, 0 +: 32]
    let best = max(top, reduce(x, axis=0, op=max))
    total = total * exp(top - best) + reduce(exp(x - best), axis=0, op=sum)
    top = best
  Y[row] = top + log(total + eps) * 0.125
"""
FOUND = {
    "rescale-dropped": ["main/k/store(dst=total): the factor of the carried value is dropped from `mul`"],
    "carry-dropped": ["main/k/x: `ring` of the trip before is 0.0", "main/k/best: `top` of the trip before is -inf",
                      "main/k/store(dst=total): `total` of the trip before is 0.0", "main/k/store(dst=total): `top` of the trip before is -inf"],
    "initial-value": ["main/top: `top` begins with 0.0 instead of -inf", "main/top: `top` begins with inf instead of -inf",
                      "main/total: `total` begins with 1.0 instead of 0.0"],
    "accumulate-assigned": ["main/k/best: what was there is left out of `max`", "main/k/store(dst=total): what was there is left out of `add`"],
    "accumulate-narrowed": ["main/k/store(dst=total): `total` is rounded to f16 at each step", "main/k/store(dst=top): `top` is rounded to f16 at each step"],
    "update-lost": ["main/k/store(dst=total): `total` is not brought up to date", "main/k/store(dst=top): `top` is not brought up to date"],
    "fill-changed": ["main/k/store(dst=ring): the fill is 0.0 instead of -inf"],
    "loop-ends-early": ["main/k: `k` ends one trip early"],
    "loop-begins-late": ["main/k: `k` begins one trip late"],
    "reduction-short": ["main/k/best: the last of 32 is left out of `reduce max`", "main/k/store(dst=total): the last of 32 is left out of `reduce sum`"],
    "stage-shifted": ["main/k/store(dst=ring): the next stage of `ring`", "main/k/x: the next stage of `ring`"],
    "index-shifted": ["main/k/store(dst=ring): axis 0 of `X` is one on", "main/k/x: axis 0 of `ring` is one on"],
    "neighbor-taken": ["main/k/store(dst=ring): `X` of the next `row`"],
    "infinity-sign": ["main/top: -inf becomes inf", "main/k/store(dst=ring): -inf becomes inf"],
    "epsilon-changed": ["main/store(dst=Y): the epsilon is dropped", "main/store(dst=Y): the epsilon is 10 times as large",
                        "main/store(dst=Y): the epsilon is 100 times as large"],
    "operands-swapped": ["main/k/store(dst=total): the operands of `sub` are exchanged"] * 2,
    "extreme-swapped": ["main/k/best: `max` becomes `min`", "main/k/best: `reduce max` becomes `min`", "main/k/store(dst=total): `reduce sum` becomes `max`"],
    "factor-dropped": ["main/k/store(dst=total): the second operand of `mul` is left out", "main/k/store(dst=total): the first operand of `mul` is left out",
                       "main/store(dst=Y): the second operand of `mul` is left out"],
    "scale-changed": ["main/store(dst=Y): the factor 0.125 is squared", "main/store(dst=Y): the factor 0.125 is larger by 1/32"],
    "function-changed": [*["main/k/store(dst=total): `exp` becomes `exp2`", "main/k/store(dst=total): `exp` is left out"] * 2,
                         "main/store(dst=Y): `log` becomes `log2`", "main/store(dst=Y): `log` is left out"],
    "value-narrowed": ["main/k/x: `x` is rounded to f16", "main/k/best: `best` is rounded to f16"],
}
OTHERS = """kir 1
program others
  in X: f16[8, 8]
  in W: f16[8, 8]
  out Y: f32[8, 8]
  out Z: f32[8, 8]
kernel main grid (c: 1) threads 64
  for t in 0..64 parallel thread
    let i = t // 8
    let j = t % 8
    let p = cast(X[i, j], f32) * cast(W[i, j], f32)
    let q = select(i < j & p > 0.5, p + 0.5, 0.0)
    let r = load(W[j, i] where i <= j else 0.0:f16)
    Y[i, j] = -q
    Z[i, j] = cast(r, f32)
"""
FOUND_OTHERS = {
    "cast-moved": ["main/t/p: `mul` is done in f16"],
    "choice-swapped": ["main/t/q: the two values are exchanged"],
    "condition-dropped": ["main/t/q: the first value is always taken", *["main/t/q: one part of the condition is left out"] * 2],
    "constant-changed": ["main/t/q: the constant 0.5 is larger by 1/64"],
    "edge-moved": ["main/t/q: `lt` becomes `le`", "main/t/q: `gt` becomes `ge`", "main/t/r: `le` becomes `lt`"],
    "bound-moved": ["main/t/q: the bound is one less", "main/t/r: the bound is one less"],
    "mask-dropped": ["main/t/r: the mask is left out"],
    "term-dropped": ["main/t/q: the second operand of `add` is left out", "main/t/q: `add` becomes `sub`", "main/t/store(dst=Y): the sign is left out"],
}


def found(text: str, rule: str) -> list[str]:
    program = parse_program(text)
    return [f"{m.anchor}: {m.how}" for m in candidates(program, [r for r in RULES if r.name == rule])]


@pytest.mark.parametrize("rule", FOUND)
def test_a_rule_finds_its_places(rule: str) -> None:
    assert found(ONLINE, rule) == FOUND[rule]


@pytest.mark.parametrize("rule", FOUND_OTHERS)
def test_a_rule_finds_its_places_in_scalar_code(rule: str) -> None:
    assert found(OTHERS, rule) == FOUND_OTHERS[rule]


def test_every_rule_is_tried_and_says_what_it_does() -> None:
    tried = {*FOUND, *FOUND_OTHERS}
    assert {r.name for r in RULES} - tried == {"index-transposed", "direction-reversed"}
    assert all(r.doc.endswith(".") for r in RULES)
    scan = ONLINE.replace("reduce(exp(x - best), axis=0, op=sum)", "reduce(scan(exp(x - best), axis=0, op=sum), axis=0, op=max)")
    assert found(scan, "direction-reversed") == ["main/k/store(dst=total): `scan` runs the other way"]
    assert found(OTHERS, "index-transposed") == ["main/t/p: the last indices of `X` are exchanged", "main/t/p: the last indices of `W` are exchanged",
                                                 "main/t/r: the last indices of `W` are exchanged"]


def test_a_mutant_is_well_formed_another_program_and_one_change_away() -> None:
    program = parse_program(ONLINE)
    made = list(mutants(program))
    assert len(made) > 40
    assert len({content_hash(m.program) for m in made if m.program is not None} - {content_hash(program)}) == len(made)
    for m in made:
        assert m.program is not None and not verify(m.program)
        assert parse_program(program_text(m.program)) == m.program
    for site in sites(program):
        assert put(program, site.address, site.node) == program


def test_one_of_two_equal_terms_is_changed() -> None:
    program = parse_program(ONLINE.replace("total * exp(top - best)", "total * exp(x[0]) * exp(x[0])").replace("x[0]", "eps"))
    made = [m.program for m in mutants(program, [r for r in RULES if r.name == "function-changed"]) if "exp2" in m.how]
    texts = [program_text(p) for p in made if p is not None]
    assert sum("exp2(eps) * exp(eps)" in t for t in texts) == sum("exp(eps) * exp2(eps)" in t for t in texts) == 1


def test_a_sample_is_the_same_each_time_and_takes_every_rule_in_turn() -> None:
    program = parse_program(ONLINE)
    names = [m.name for m in spread(program, 30)]
    assert names == [m.name for m in spread(program, 30)] and names[:10] == [m.name for m in spread(program, 10)]
    assert {m.rule for m in spread(program, 30)} == {m.rule for m in mutants(program)}


def subject(name: str) -> Subject:
    return next(s for s in subjects() if s.name == name)


def trials_of(program: n.Program, problem: str) -> list[Trial]:
    known = load_problem(problem)
    return list(problem_trials(program, known, tensor_names(program, known, {})))


def named(program: n.Program, words: str) -> Mutant:
    return next(m for m in mutants(program) if words in m.name)


def test_what_a_run_in_float64_tells_apart_and_what_not() -> None:
    program = subject("softmax.kir").program
    trials = trials_of(program, "softmax")
    assert max(t.at.sizes["N"] for t in trials if t.at is not None) > 10 * max(s.sizes["N"] for s in load_problem("softmax").shapes if "timed" not in s.tags)
    assert all(apart(t, t.made)[0] <= 1 / 4 for t in trials)
    lost = named(program, "`max` becomes `min`").program
    low = named(program, "`top` begins with 0.0").program
    same = named(program, "condition-dropped main/thread_loop/if#0").program
    assert lost is not None and told(lost, trials[:1]).factor > 100
    assert low is not None and not told(low, trials[:1]).trial and told(low, trials[1:]).factor > 100
    assert same is not None and not told(same, trials).trial


def test_what_does_not_end_or_cannot_be_run_is_told_apart() -> None:
    program = parse_program("""kir 1
program turns
  in X: f32[4]
  out Y: f32[4]
kernel main grid (c: 1) threads 1
  register i: i32 = 0
  while i < 4
    Y[i] = X[i] * 3.0
    i = i + 1
""")
    trials = list(relative_trials(program, [{}]))
    assert len(trials) == 20 and all(t.exact["Y"].dtype == "float64" for t in trials)
    without = next(m.program for m in candidates(program) if m.rule == "update-lost")
    assert without is not None and told(without, trials).why.startswith("does not end")
    fewer = parse_program(program_text(program).replace("[4]", "[3]").replace("i < 4", "i < 3"))
    assert told(fewer, trials).why.startswith("cannot be run")
    wide = widened(program).params[0].of
    assert isinstance(wide, n.Buffer) and wide.dtype.name == "f64"


def test_inputs_in_another_order_are_the_same_values() -> None:
    a = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float16)
    up, down = arranged(a, "rising"), arranged(a, "falling")
    assert (np.sort(a, axis=1) == up).all() and (up[:, ::-1] == down).all() and arranged(a, "drawn") is a
    assert arranged(np.arange(5), "falling").tolist() == [0, 1, 2, 3, 4]


REFUSED = {
    "scan.cu": ("carry-dropped", "initial-value", "accumulate-assigned", "update-lost", "fill-changed", "loop-ends-early", "index-shifted"),
    "softmax/tilelang.py": ("fill-changed", "infinity-sign", "operands-swapped", "extreme-swapped", "factor-dropped", "function-changed"),
    "fmha/tilelang.py": ("rescale-dropped", "carry-dropped", "scale-changed"),
    "gemm/triton.py": ("initial-value", "accumulate-assigned", "loop-begins-late"),
    "beside/softmax_online.kir": ("rescale-dropped", "function-changed", "update-lost", "loop-begins-late"),
    "rmsnorm/naive.kir": ("epsilon-changed", "cast-moved", "accumulate-narrowed"),
}
"""Programs and rules whose first mutant (`spread`) the gate refuses."""


@pytest.mark.parametrize("name", REFUSED)
def test_the_gate_accepts_the_original_and_refuses_its_mutants(name: str) -> None:
    of = subject(name)
    assert verdict(of.program, of.program, of.problem).ok
    for rule in REFUSED[name]:
        (made,) = spread(of.program, 1, [r for r in RULES if r.name == rule])
        assert made.program is not None and not verdict(made.program, of.program, of.problem).ok, made.name


def row(rule: str, trial: str, ok: bool, **more: object) -> Row:
    return Row("p.kir", "expert", rule, "main/x", "a | b", {"trial": trial, "factor": 2e300, "seconds": 0}, {"ok": ok, "worst": 0.5, "seconds": 0, **more},
               {"cause": "tame inputs", "bound": 3.0})


def test_the_page_counts_what_is_told_apart_and_names_what_is_not_refused() -> None:
    rows = [row("carry-dropped", "large", False), row("carry-dropped", "large", True), row("edge-moved", "", True), row("edge-moved", "", False),
            row("mask-dropped", "large", True, broken="it took more than 60 seconds")]
    text = values(rows)
    assert "| p.kir | 5 | 2 | 1 | 2 |" in text and "| carry-dropped | 2 | 2 | 1 | 0 |" in text and "| edge-moved | 2 | 0 | 0 | 2 |" in text
    assert "| p.kir | carry-dropped | `main/x` | a \\| b | large | inf | 3 | tame inputs |" in text
    assert "- p.kir: it took more than 60 seconds (1 mutant)" in text
    assert share(rows) == share(rows, True) == 0.5 and share([]) == 1.0
    within = {"cause": "within the bound", "bound": 0.5}
    allowed = [replace(r, cause=within) if r.is_told and not r.is_refused else r for r in rows]
    assert share(allowed) == 0.5 and share(allowed, True) == 1.0
    for mine, honest in ((0.6, 1.0), (0.8, 0.5)):  # an honest program errs by 0.7: what errs by more may be refused
        beside = [replace(r, cause={**r.cause, "beside": {"gate": 0.5, "honest": [0.7, "x"], "made": [["m", mine, 0.1, "x"]]}}) for r in allowed]
        assert share(beside, refusable=True) == honest and share(beside) == 0.5
    assert "1 are within the bound that is stated for them, and 0 are wrong and accepted" in values(allowed)
    assert all(f"- `{r.name}`: " in text for r in RULES)
    page = with_values("# First\n\nkept\n", rows)
    assert page.startswith("# First\n\nkept\n\n" + TITLE) and with_values(page, rows) == page


def test_the_page_has_both_kinds() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.index("## gemm_sm90") < page.index(TITLE) < page.index("## By program")
    figures = re.search(r"(\d+) mutants of (\d+) programs by (\d+) rules: (\d+) are told apart", page)
    assert figures is not None and int(figures[4]) >= 300 and int(figures[3]) == len(RULES)
