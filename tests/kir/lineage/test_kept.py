"""Outcomes that are kept are those that were found, and any change of what decides them finds nothing."""
from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kir.gate.cases import Case, ProblemCase, problem_tests, relative_tests
from kir.gate.correctness import Mode, Outcome, in_turn
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.lineage import judge, kept
from kir.lineage.judge import Copies, CpuJudge, judge_on
from kir.lineage.kept import KeptOutcomes
from kir.lineage.records.record import Header
from kir.problem import load_problem

Plan = list[tuple[Case, Mode]]


def plan(p: Program) -> Plan:
    cases = [c for c in problem_tests(p, load_problem("softmax"), {}).cases if isinstance(c, ProblemCase)]
    return [(cases[0], "fast"), (cases[1], "check")]


@pytest.fixture
def program() -> Program:
    return load_problem("softmax").naive


def never(program: Program, plan: Sequence[tuple[Case, Mode]]) -> Generator[Outcome, None, None]:
    assert not plan, "interpreted again"
    yield from ()


def test_the_second_time_nothing_is_interpreted(program: Program, tmp_path: Path) -> None:
    cases = plan(program)
    first = list(KeptOutcomes(tmp_path).runner(program, cases))
    again = list(KeptOutcomes(tmp_path, by=never).runner(program, plan(program)))
    assert again == first == list(in_turn(program, cases))


def test_another_program_input_judge_or_source_finds_nothing(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, cases = KeptOutcomes(tmp_path), plan(program)
    first = cases[0][0]
    assert isinstance(first, ProblemCase)
    keys = {store.key(program, cases), store.key(program, cases[:1]), store.key(program, [(cases[0][0], "check"), cases[1]]),
            store.key(parse_program(program_text(program), "elsewhere.kir"), cases)}
    other = replace(first, inputs={k: v + v.dtype.type(1) for k, v in first.inputs.items()})
    keys.add(store.key(program, [(other, "fast"), cases[1]]))
    judged = replace(first, problem=load_problem("rmsnorm"))
    keys.add(store.key(program, [(judged, "fast"), cases[1]]))
    monkeypatch.setattr(kept, "_source", lambda: "another gate")
    keys.add(store.key(program, cases))
    assert len(keys) == 7 and None not in keys


def test_a_walk_without_a_problem_keeps_too(program: Program, tmp_path: Path) -> None:
    cases: Plan = [(c, "fast") for c in relative_tests(program, program).cases[:1]]
    assert list(KeptOutcomes(tmp_path).runner(program, cases)) == list(KeptOutcomes(tmp_path, by=never).runner(program, cases))


def test_what_was_not_gone_through_is_not_kept(program: Program, tmp_path: Path) -> None:
    outcomes = KeptOutcomes(tmp_path).runner(program, plan(program))
    next(outcomes)
    outcomes.close()
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("text", ["", "[]", "{", '[{"run": 1}, {}]'])
def test_a_spoiled_file_is_as_good_as_none(program: Program, tmp_path: Path, text: str) -> None:
    cases = plan(program)
    first = list(KeptOutcomes(tmp_path).runner(program, cases))
    (file,) = tmp_path.rglob("*.json")
    file.write_text(text)
    assert list(KeptOutcomes(tmp_path).runner(program, cases)) == first


SCALED = """kir 1
program scaled
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (i: N) threads 1
  Y[i] = X[i] * 2.0
"""


def test_copies_of_the_process_judge_as_it_does_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(judge, "may_be_copied", lambda: True)
    monkeypatch.setattr(judge, "kept_folder", lambda: tmp_path)
    right, wrong = (parse_program(SCALED.replace("2.0", by), "p.kir") for by in ("2.0", "3.0"))
    header = Header(expert="scaled", source="", surface="kir", problem="", gate="cpu", targets=(), budget={}, tools={})
    alone, copies = CpuJudge.of(header, right), Copies(1)
    with judge_on("cpu", header, right, copies) as beside:
        monkeypatch.setattr(judge, "correctness", None)  # nothing is judged here
        said = [beside.correct(each, lambda: False) for each in (right, wrong)]
        monkeypatch.undo()
        assert said == [replace(alone, kept=tmp_path / "own").correct(each, lambda: False) for each in (right, wrong)] and [s.ok for s in said] == [True, False]
        copies.close()
        assert beside.correct(right, lambda: False).ok, "without one it is done here"
