"""Guarded steps: both versions travel, the launch chooses, and the step comes undone like any other."""
from __future__ import annotations

import pytest

from kir.base.diagnostic import KirError
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.rewrite import Trace, apply, pass_class, run, sites
from kir.rewrite.meaning import difference, interpreted

BASE = parse_program("""kir 1
program scale
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: 1) threads 1
  @loop for i in 0..N
    Y[i] = X[i] * 2.0
""")


def test_a_guarded_step_keeps_both_versions_and_the_launch_chooses() -> None:
    trace = run(BASE, "unroll{factor=2}@main/loop guard KIR-P520")
    assert dict(trace.steps[0].record.verdicts)["KIR-P520"].kind == "guarded"
    assert program_text(trace.program).endswith("""plan
  dispatch
    when N % 2 == 0
      launch main
    else
      launch main_otherwise
""")
    for size in (6, 7, 1):
        assert difference(interpreted(BASE, {"N": size}), interpreted(trace.program, {"N": size})) == ""


def test_a_guarded_step_is_undone_and_restored() -> None:
    trace = run(BASE, "unroll{factor=2}@main/loop guard KIR-P520")
    back = run(trace.program, "~unroll{factor=2}@main/loop")
    assert back.program == BASE
    assert back.then(back.steps[0].back).program == trace.program
    assert Trace(trace.program).then(trace.steps[0].back).program == BASE
    assert trace.replay().program == trace.program


def test_only_what_the_host_knows_can_be_guarded() -> None:
    inner = parse_program(program_text(BASE).replace("grid (b: 1)", "grid (b: N)").replace("0..N", "0..b"))
    with pytest.raises(KirError) as caught:
        run(inner, "unroll{factor=2}@main/loop guard KIR-P520")
    assert caught.value.diagnostics[0].id == "KIR-P520"


GUARDED = """kir 1
program p
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: 1) threads 1
  for i in 0..N
    let x = X[i] + 1.0
    Y[i] = x * x
kernel main_otherwise grid (b: 1) threads 1
  for i in 0..N
    Y[i] = (X[i] + 1.0) * (X[i] + 1.0)
plan
  dispatch
    when N % 8 == 0
      launch main
    else
      launch main_otherwise
"""


def test_a_guard_of_another_step_stays() -> None:
    """Random programs 8607, 20029: the step was offered with the guard taken away too, which it would not write, and refused."""
    guarded = parse_program(GUARDED, "p.kir")
    found = [s for s in sites(pass_class("reuse-operand").with_options({}), guarded, "backward") if s.path[0] == "main"]
    assert found
    done = apply(guarded, found[0].params, found[0], "backward")
    assert done.program.plan == guarded.plan and "let x" not in program_text(done.program)
    assert difference(interpreted(guarded, {"N": 16}), interpreted(done.program, {"N": 16})) == ""
