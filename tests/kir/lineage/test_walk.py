"""The backward walk: order, rejection, speculation, budget, and what it records."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kir.base.working import late
from kir.lineage.order import Declared, peel_ranks
from kir.lineage.walk import Budget
from tests.kir.lineage.toy import ToyEngine, ToyJudge, finished, names, walked


def test_the_walk_ends_in_naive_and_stores_the_way_forward(tmp_path: Path) -> None:
    outcome = walked(tmp_path, ToyEngine(), ToyJudge())
    assert outcome.outcome.ended == "naive"
    assert names(outcome.final) == []
    assert [step.backward for step in outcome.steps] == ["unset-a@main", "unset-b@main", "unset-c@main"]
    assert outcome.outcome.pipeline == "set-c{value=3}@main; set-b{value=2}@main; set-a{value=1}@main"
    assert outcome.outcome.realized == 3
    assert outcome.outcome.residue_bytes == 9
    assert [step.after.measure for step in outcome.steps if step.after] == [(2, 7), (1, 7), (0, 7)]


def test_a_step_that_the_gate_refuses_is_recorded_and_tried_again_later(tmp_path: Path) -> None:
    judge = ToyJudge(rule=lambda there: "a" in there or "b" not in there)
    outcome = walked(tmp_path, ToyEngine(), judge)
    assert [(step.backward, step.status, step.stage) for step in outcome.steps] == [
        ("unset-a@main", "rejected", "correctness"),
        ("unset-b@main", "accepted", "applied"),
        ("unset-c@main", "accepted", "applied"),
        ("unset-a@main", "accepted", "applied"),
    ]
    assert outcome.steps[0].reason == "the outputs differ"
    assert outcome.outcome.ended == "naive"


def test_a_refused_pass_names_what_is_left(tmp_path: Path) -> None:
    outcome = walked(tmp_path, ToyEngine(refused="b"), ToyJudge())
    assert outcome.outcome.ended == "stuck"
    assert [each.message for each in outcome.outcome.violations] == ["b is set"]
    refusal = outcome.steps[-1]
    assert (refusal.status, refusal.stage, refusal.backward) == ("rejected", "precondition", "unset-b@main")
    assert "KIR-P999" in refusal.reason


def test_a_step_that_the_compiler_undoes_stays_but_is_not_counted(tmp_path: Path) -> None:
    outcome = walked(tmp_path, ToyEngine(), ToyJudge(ignored="b"))
    assert len(outcome.steps) == 3
    assert outcome.outcome.realized == 2
    kept = {step.backward: step.realization for step in outcome.steps}
    assert kept["unset-b@main"] is not None and not kept["unset-b@main"].realized


class Growing(ToyEngine):
    def measure(self, program: object) -> tuple[int, ...]:
        return (1,)


def test_a_step_that_does_not_decrease_the_measure_is_rejected(tmp_path: Path) -> None:
    judge = ToyJudge()
    outcome = walked(tmp_path, Growing(), judge)
    assert outcome.outcome.ended == "stuck"
    assert {step.stage for step in outcome.steps} == {"measure"}
    assert judge.calls == ["abc"]


def test_a_state_that_the_gate_had_no_time_for_is_not_refused(tmp_path: Path) -> None:
    def until_late(there: list[str]) -> bool:
        while there != ["a", "b", "c"] and not late():
            pass
        return there == ["a", "b", "c"]
    outcome = walked(tmp_path, ToyEngine(), ToyJudge(rule=until_late), budget=Budget(seconds=0.2), workers=2)
    assert (outcome.outcome.ended, outcome.steps) == ("budget", [])
    assert "0.2 s" in outcome.outcome.reason
    assert walked(tmp_path, ToyEngine(), ToyJudge()).outcome.ended == "naive", "the same walk goes on"


@pytest.mark.parametrize("budget", [Budget(steps=2), Budget(attempts=2)])
def test_the_budget_ends_the_walk(tmp_path: Path, budget: Budget) -> None:
    outcome = walked(tmp_path, ToyEngine(), ToyJudge(), budget=budget, workers=2)
    assert outcome.outcome.ended == "budget"
    assert len(outcome.steps) == 2
    assert [each.message for each in outcome.outcome.violations] == ["c is set"]


@settings(max_examples=40, deadline=None)
@given(
    order=st.permutations("abc"),
    bad=st.frozensets(st.sampled_from(["a", "b", "c", "ab", "ac", "bc", ""])),
    refused=st.sampled_from(["", "a", "b"]),
)
def test_judging_ahead_gives_the_same_lineage(tmp_path_factory: pytest.TempPathFactory, order: list[str], bad: frozenset[str], refused: str) -> None:
    made = []
    for workers in (1, 2, 3):
        folder = tmp_path_factory.mktemp("walk")
        judge = ToyJudge(rule=lambda there: "".join(there) not in bad)
        made.append(finished(folder, walked(folder, ToyEngine(order, refused), judge, workers=workers)))
    assert made[0] == made[1] == made[2]


@settings(max_examples=20, deadline=None)
@given(bad=st.frozensets(st.sampled_from(["a", "b", "ab", "ac", "bc"])), kill=st.integers(0, 4))
def test_a_killed_walk_is_taken_up_and_gives_the_same_lineage(tmp_path_factory: pytest.TempPathFactory, bad: frozenset[str], kill: int) -> None:
    whole, part = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("part")

    def rule(there: list[str]) -> bool:
        return "".join(there) not in bad

    reference = finished(whole, walked(whole, ToyEngine(), ToyJudge(rule)))
    lines = (whole / "journal.jsonl").read_bytes().splitlines(keepends=True)
    walked(part, ToyEngine(), ToyJudge(rule))
    cut = min(1 + kill, len(lines))
    (part / "journal.jsonl").write_bytes(b"".join(lines[:cut]) + b'{"index": 9, "half a li')
    assert finished(part, walked(part, ToyEngine(), ToyJudge(rule))) == reference


def test_what_came_last_is_peeled_first() -> None:
    ranks = peel_ranks(
        [
            Declared("stage-shared", requires=("tile",), provides=("shared",)),
            Declared("tile", provides=("tile@main",)),
            Declared("pipeline", requires=("shared",), provides=("pipelined",)),
            Declared("multi-threaded-block", conflicts=("tile",)),
            Declared("unroll"),
        ]
    )
    assert ranks["pipeline"] < ranks["stage-shared"] < ranks["tile"] < ranks["multi-threaded-block"]


def test_a_cycle_of_requirements_is_no_obstacle() -> None:
    ranks = peel_ranks([Declared("x", ("b",), ("a",)), Declared("y", ("a",), ("b",)), Declared("z", ("a",), ())])
    assert ranks["x"] == ranks["y"] > ranks["z"]
