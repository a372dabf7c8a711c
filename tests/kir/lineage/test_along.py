"""Walks along a pipeline: what it made is undone step by step to the program that it began with, and nothing is passed over."""
from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kir.lineage.run
from kir.base.diagnostic import KirError
from kir.faces.api.pipelines import Stored, stored
from kir.faces.report.written import write_so_far
from kir.ir.nodes import Program
from kir.lineage.along import AlongEngine
from kir.lineage.engine import PassEngine
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Header, Lineage
from kir.lineage.replay import replay
from kir.lineage.run import STILL, walk_back
from kir.lineage.walk import Budget, Judgement
from kir.problem import load_problem
from kir.rewrite import run
from tests.kir.lineage.paper_judge import PaperJudge


@cache
def made(name: str) -> Stored:
    return stored(name)


def header(of: Stored) -> Header:
    return Header(expert=of.name, source=of.source, surface=of.surface, problem=of.problem, targets=("sm_90a",))


def walked(of: Stored, folder: Path, judge: Any = None) -> Lineage:
    asked = header(of)
    return walk_back(of.trace.program, asked, AlongEngine.along(asked, of.trace), judge or PaperJudge(), Folder(folder), Budget(), workers=1)


class Refusing(PaperJudge):
    """A gate that refuses one program."""

    def __init__(self, wrong: Program) -> None:
        super().__init__()
        self.wrong = wrong

    def gate(self, program: Program) -> Judgement:
        self.refuse = program == self.wrong
        return super().gate(program)


def test_a_long_walk_says_what_it_has_found_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kir.lineage.run, "FIRST_STORY", 0.0)
    of, found, folder = made("gemm_sm80"), list[Lineage](), Folder(tmp_path)
    asked = header(of)
    engine = AlongEngine.along(asked, of.trace)
    for budget in (Budget(steps=4, seconds=600), Budget(steps=4)):  # a budget of seconds is an end of its own
        walk_back(of.trace.program, asked, engine, PaperJudge(), folder, budget, workers=1, fresh=True, so_far=found.append)
        assert bool(found) == (not budget.seconds)
    assert len(found[0].accepted) == 1 and found[0].outcome.ended == "budget" and len(found[0].states) == 2
    write_so_far(found[0], folder)
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "walked back 1 step" in report and STILL in report


@pytest.mark.parametrize("name", ["gemm_sm80", "conv2d_sm90", "fmha_causal_tilelang", "gdn_d128_triton"])
def test_every_step_of_a_pipeline_is_a_transition_to_the_letter(name: str, tmp_path: Path) -> None:
    of = made(name)
    lineage, folder = walked(of, tmp_path), Folder(tmp_path)
    assert lineage.outcome.ended == "naive" and not lineage.rejected
    assert [step.witness["pass"] for _, step in lineage.transitions()] == [each.record.step.name for each in of.trace.steps]
    assert folder.program(lineage.states[-1]) == of.trace.base and not sum(step.residue_bytes for step in lineage.accepted)
    done = replay(lineage, folder, PassEngine.of(lineage.header))
    assert done.ok and done.expert == of.trace.program and all(each.exact for each in done.transitions)
    for step in lineage.accepted:
        assert all(c.verdict == "proved" for c in step.conditions if c.kind == "validity"), step.forward
    assert run(of.trace.base, lineage.outcome.pipeline).program == of.trace.program


def test_a_state_that_is_naive_on_the_way_does_not_end_the_walk(tmp_path: Path) -> None:
    of = made("fmha_even_triton")
    engine = AlongEngine.along(header(of), of.trace)
    assert not engine.violations(of.trace.steps[0].after)
    assert len(walked(of, tmp_path).accepted) == len(of.trace.steps)


def test_a_state_that_the_gate_refuses_is_said_and_not_passed_over(tmp_path: Path) -> None:
    of = made("fmha_causal_tilelang")
    wrong = of.trace.steps[7]
    lineage = walked(of, tmp_path, Refusing(wrong.before))
    assert lineage.outcome.ended == "stuck" and len(lineage.accepted) == len(of.trace.steps) - 8
    assert [step.stage for step in lineage.rejected] == ["correctness"]
    assert f"~{wrong.witness.params}" in lineage.outcome.reason and "Y[0, 0] is wrong" in lineage.outcome.reason


def test_a_step_that_leads_to_what_no_compiler_is_given_is_said(tmp_path: Path) -> None:
    of = made("fmha_d128_tilelang")
    lineage = walked(of, tmp_path)
    assert lineage.outcome.ended == "stuck" and lineage.rejected[-1].backward.startswith("~mma")
    assert "mma is not undone here" in lineage.outcome.reason


@pytest.mark.parametrize(("pipeline", "why"), [("tile{extent=64}@main; ~tile@main", "undoes a pass"), ("tile{extent=64}@main force", "was forced")])
def test_a_pipeline_with_another_kind_of_step_is_refused(pipeline: str, why: str) -> None:
    done = run(load_problem("softmax").naive, pipeline)
    with pytest.raises(KirError, match="KIR-S032") as refused:
        AlongEngine.along(Header(expert="e", source="e", surface="kir", problem="softmax"), done)
    assert why in refused.value.diagnostics[0].message


def test_parameters_may_be_fixed_and_a_pipeline_without_holes_needs_a_problem(tmp_path: Path) -> None:
    of = stored("fmha_sm90", wanted={"rows": "128"})
    assert "extent=128" in str(of.trace.steps[7].record.step) and of.fixed == "rows = 128\n"
    file = tmp_path / "own.pipeline"
    file.write_text("tile{extent=64}@main")
    of = stored(str(file), "softmax")
    assert (of.name, of.problem, len(of.trace.steps)) == ("own", "softmax", 1)
