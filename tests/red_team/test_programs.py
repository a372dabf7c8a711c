"""Cheats that the IR can say, refused for the right reason by what needs no device; and honest programs that pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from kir.gate import gate_cpu
from kir.gate.gpu.checks import held_out
from kir.hardware.target import target
from kir.ir.parser import parse_program
from kir.problem import load_problem

from .exploits import HEAD, PROBLEMS, PROGRAMS, Exploit
from .honest import HONEST, Honest
from .pairs import RIGHT, WRONG, Changed

HELD_OUT = [e for e in PROGRAMS if "held-out" in e.words]


@pytest.mark.parametrize("exploit", [e for e in PROGRAMS if e not in HELD_OUT], ids=lambda e: e.name)
def test_a_cheating_program_is_refused(exploit: Exploit) -> None:
    from kir.base.diagnostic import KirError

    problem = load_problem(PROBLEMS / "scaled_rows")
    targets = [] if exploit.stage == "correctness" else [target("sm_90a")]  # what is refused for its values need not be compiled
    try:
        verdict = gate_cpu(parse_program(exploit.text, "cheat.kir"), problem, "kir", targets)
    except KirError as refused:
        assert exploit.stage == "compile" and any(w in str(refused) for w in exploit.words), str(refused)
        return
    assert not verdict.accepted and verdict.stage == exploit.stage, verdict.reason
    assert any(w in verdict.reason for w in exploit.words), verdict.reason


@pytest.mark.parametrize("exploit", [e for e in PROGRAMS if e.alone], ids=lambda e: e.name)
def test_what_a_device_alone_cannot_tell_is_right_at_all_that_a_device_is_asked(exploit: Exploit) -> None:
    """So it is left to the interpreter, which refuses it above."""
    import random

    from kir.gate.gpu.checks import planned
    from kir.interp import run

    problem, program = load_problem(PROBLEMS / "scaled_rows"), parse_program(exploit.text, "cheat.kir")
    for i, each in enumerate(planned(problem, program, random.Random(7))):
        inputs = problem.inputs(each.shape, each.seed, each.distribution)
        poison = {"Y": problem.inputs(each.shape, i, "positive")["X"]}
        outputs = run(program, {**{k: v.copy() for k, v in inputs.items()}, **poison}, dict(problem.scalars(each.shape))).outputs
        assert problem.compare(outputs, inputs, each.shape).ok


def test_hard_coded_sizes_are_refused_beside_the_listed_ones_and_fail_at_drawn_ones() -> None:
    import random

    from kir.interp import run

    (exploit,) = HELD_OUT
    problem = load_problem(PROBLEMS / "scaled_rows")
    program = parse_program(exploit.text, "cheat.kir")
    verdict = gate_cpu(program, problem, "kir", [])
    assert not verdict.accepted and "the oracle says" in verdict.reason and verdict.correctness is not None
    listed = [dict(s.sizes) for s in problem.shapes]
    assert all(r.ok for r in verdict.correctness.runs if dict(r.sizes) in listed), "the listed shapes alone do not find it"
    drawn = held_out(problem, program, random.Random(5))
    assert len(drawn) == 2
    for s in drawn:
        inputs = problem.inputs(s, 3)
        assert not problem.compare(run(program, inputs, dict(problem.scalars(s))).outputs, inputs, s).ok


@pytest.mark.parametrize("honest", [h for h in HONEST if h.problem in ("scaled_rows", "in_place", "histogram", "narrowed")], ids=lambda h: h.name)
def test_an_honest_program_passes(honest: Honest) -> None:
    program, problem, _ = honest.loaded()
    verdict = gate_cpu(program, problem, "kir", [])
    assert verdict.accepted, verdict.reason


def test_an_output_may_be_used_before_it_holds_the_answer() -> None:
    """A frontend calls a tensor that is read and written `inout`; the problem calls it an output, and gives nothing there."""
    parts = """  for k in 0..N
    Y[i, 0] = select(k == 0, X[i, 0], Y[i, 0] + X[i, k])
  let sum = Y[i, 0]
  for j in 0..N
    Y[i, j] = X[i, j] * W[j] + sum
"""
    text = HEAD.format(threads=1).replace("out Y", "inout Y") + parts
    verdict = gate_cpu(parse_program(text, "scratch.kir"), load_problem(PROBLEMS / "scaled_rows"), "kir", [])
    assert verdict.accepted, verdict.reason


def _changed(case: Changed) -> tuple[bool, str]:
    verdict = gate_cpu(case.program, load_problem(case.problem) if case.problem else None, "kir", [], against=None if case.problem else case.against)
    return verdict.accepted, verdict.reason


BY_SOURCE: list[Changed] = sorted((*WRONG, *RIGHT), key=lambda c: c.of)


@pytest.mark.parametrize("case", BY_SOURCE, ids=lambda c: f"{c.of}: {c.name}")
def test_what_few_inputs_and_sizes_show_is_refused_and_what_looks_like_it_is_accepted(case: Changed) -> None:
    """Those of one program come one after another: what it makes of the inputs is worked out once."""
    accepted, reason = _changed(case)
    assert accepted == (case in RIGHT) and (accepted or case.words in reason), reason


ROWS = """kir 1
program transpose
  size M: i32
  size N: i32
  in X: f32[M, N]
  out Y: f32[N, M]
kernel main grid (i: 1, j: {extent}) threads 1
  for r in 0..M
    Y[j, r] = X[r, j]{more}
"""


@pytest.mark.parametrize(("more", "reason"), [("", ""), (" + 0.0", "is 0.0, the oracle says -0.0")])
def test_signs_of_zeros_follow_the_oracle_where_nothing_is_rounded(more: str, reason: str) -> None:
    verdict = gate_cpu(parse_program(ROWS.format(extent="N", more=more), "rows.kir"), load_problem("transpose"), "kir", [])
    assert verdict.accepted is not bool(reason) and reason in verdict.reason


def test_a_grid_that_cannot_be_launched_is_shown_with_its_sizes() -> None:
    import kir

    found = kir.prove(parse_program(ROWS.format(extent="N", more=""), "rows.kir")).findings
    assert [(f.status, f.what, dict(f.sizes)) for f in found if "launched" in f.what] == [
        ("refuted", "N CTAs along 'j' can be launched, at most 65,535", {"N": 65536})]
    assert not [f for f in kir.prove(parse_program(ROWS.format(extent="min(N, 64)", more=""), "rows.kir")).findings if "launched" in f.what]
    product = ROWS.format(extent="ceildiv(M * N, 8)", more="")
    (large,) = [f for f in kir.prove(parse_program(product, "rows.kir")).findings if "launched" in f.what]
    assert large.status == "refuted" and -(-large.sizes["M"] * large.sizes["N"] // 8) > 65535
    first = product.replace("i: 1, j: ceildiv(M * N, 8)", "j: ceildiv(M * N, 8)")
    assert not [f for f in kir.prove(parse_program(first, "rows.kir")).findings if "launched" in f.what]


def test_every_honest_kernel_has_its_files() -> None:
    assert len(HONEST) >= 25
    for each in HONEST:
        if not each.zoo:
            program, problem, _ = each.loaded()
            assert problem.shapes_for(program)
    assert Path(PROBLEMS).is_dir()
