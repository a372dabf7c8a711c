"""Probes of passes: what is offered applies, what is refused is forced and seen, and what was seen is shown again from its record."""
from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.learning.probes.around import boundary, defects, probe, risks
from kir.learning.probes.attempts import attempt
from kir.learning.probes.draws import drawn
from kir.learning.probes.record import Probe, read_probe, replay, store
from kir.learning.probes.sampling import forced, probed, sampled, states
from kir.learning.probes.subjects import Subject, subjects
from kir.learning.probes.trials import Trials
from kir.problem import load_problem
from kir.rewrite.driver import forward_site
from kir.rewrite.pipelines.pipeline import find_site, run
from kir.rewrite.pipelines.text import Pipeline
from kir.rewrite.registry import pass_class

SM_80 = target("sm_80")


@cache
def naive(name: str) -> Subject:
    problem = load_problem(name)
    return Subject(f"naive {name}", problem.naive, problem, SM_80)


def tried(name: str, step: str) -> Probe:
    """A step on a naive program, tried at its one site."""
    subject = naive(name)
    _, site = find_site(subject.program, Pipeline.parse(step).steps[0])
    return attempt(subject.program, site, subject.problem, SM_80)


def test_the_programs_are_of_all_problems_and_three_surfaces() -> None:
    found = [s.name for s in subjects()]
    assert len(found) == len(set(found)) > 40
    assert {name.split()[0] for name in found} == {"naive", "kir", "cuda", "triton", "tilelang"}


def test_draws_are_the_same_each_time_and_have_values_that_parameters_take() -> None:
    program = naive("gemm").program
    for cls in probed():
        first, again = list(drawn(cls, program, 3, 5)), list(drawn(cls, program, 3, 5))
        assert first == again and first[0] == cls.with_options({})
        assert all(cls.with_options(item.options()) == item for item in first)


@pytest.mark.parametrize("name", ["rmsnorm", "transpose", "topk"])
def test_what_is_offered_applies(name: str) -> None:
    tally, refused = sampled(naive(name), count=2)
    assert tally.faults == [] and tally.offered == tally.applied and tally.offered.total() > 10
    assert tally.matched.total() == tally.offered.total() + tally.refused.total() + tally.near.total()
    assert len(refused) == tally.refused.total() and sum(tally.reasons.values()) == tally.near.total()


def test_states_are_reached_by_steps_that_apply() -> None:
    first, *others = states(naive("transpose"), 6, 2)
    assert first.program == naive("transpose").program and len(others) >= 1
    assert all(s.program != first.program and s.problem is first.problem for s in others)


@pytest.mark.parametrize(("step", "standing", "by"), [
    ("unroll{factor=3}@main/k_loop", "by size", "checker"),
    ("mask-tail{extent=16}@main/k_loop", "by size", "values"),
    ("specialize-tail@main/k_loop", "by size", "checker"),
    ("multi-threaded-block{threads=2048}@main", "hardware", "verifier")])
def test_what_is_refused_is_seen_to_be_wrong(step: str, standing: str, by: str) -> None:
    found = tried("gemm", step)
    assert (found.status, found.standing, found.outcome, found.by) == ("refused", standing, "wrong", by)
    assert found.is_counterexample and not found.is_defect


def test_a_witness_at_which_a_size_is_zero_is_tried() -> None:
    assert tried("gemm", "specialize-tail@main/k_loop").sizes == {"M": 2, "N": 2, "K": 0}


def test_a_pass_that_says_it_changes_no_bit_is_held_to_that() -> None:
    subject = naive("scan")
    trials = Trials(subject.program, subject.problem, SM_80)
    other = run(subject.program, "compensated-sum@main/scan_loop").program
    assert trials.of(other, numerics="reassociated(sum)").outcome == "right"
    assert trials.of(other, numerics="bitwise").by == "bits"


def test_nothing_is_run_at_sizes_of_a_gigabyte() -> None:
    subject = naive("scan")
    trials, (name, *others) = Trials(subject.program, subject.problem, SM_80), [p.name for p in subject.program.params if p.role == "size"]
    assert not list(trials._without_problem(subject.program, [{name: 1 << 30, **dict.fromkeys(others, 2)}]))
    assert list(trials._without_problem(subject.program, [{name: 3, **dict.fromkeys(others, 2)}]))


def test_a_step_that_does_not_match_is_a_miss() -> None:
    (found,) = probe(naive("gemm").program, "unroll{factor=1}@main/k_loop", naive("gemm").problem, SM_80, pairs=0, most=0)
    assert (found.status, found.outcome) == ("miss", "not run") and found.reason == "it does not apply at main/k_loop"
    assert "KIR-R004" in replay(found).said


@pytest.mark.parametrize("step", ["unroll{factor=3}@main/k_loop", "specialize-tail@main/k_loop"])
def test_a_record_is_shown_again(step: str, tmp_path: Path) -> None:
    found = tried("gemm", step)
    path = store(found, tmp_path)
    again = read_probe(path.read_text(encoding="utf-8"), str(path))
    seen = replay(again)
    assert again == found and store(again, tmp_path) == path
    assert (seen.outcome, seen.by, seen.said, dict(seen.sizes)) == (found.outcome, found.by, found.said, found.sizes)


@pytest.mark.parametrize("change", [{"more": 1}, {"schema": "kir.probe/2"}, {"status": "perhaps"}, {"hash": None}])
def test_a_text_that_is_no_record_is_refused(change: dict[str, object]) -> None:
    value = {**json.loads(tried("gemm", "unroll{factor=3}@main/k_loop").text()), **change}
    with pytest.raises(KirError) as refused:
        read_probe(json.dumps(value))
    assert [d.id for d in refused.value.diagnostics] == ["KIR-U101"]


def test_a_record_of_another_program_is_not_shown_again() -> None:
    found = tried("gemm", "unroll{factor=3}@main/k_loop")
    other = found.model_copy(update={"program": found.program.replace("acc +", "2.0 * acc +")})
    with pytest.raises(KirError) as refused:
        replay(other)
    assert refused.value.diagnostics[0].id == "KIR-U102"


def test_where_validity_ends_is_found() -> None:
    subject = naive("transpose")
    tiled = run(subject.program, "tile{axis=0 extent=8}@main").program
    kernel = naive("gemm")
    found = probe(kernel.program, "unroll{factor=4}@main/k_loop", kernel.problem, SM_80, pairs=2)
    ended = {p.varied[0]: word for word, p in boundary(found)}
    assert ended["shape: K is a multiple of 64"] == "refused, wrong -> applies, right"
    assert defects(found) == () and len(risks(found)) > 10 and {v.split(":")[0] for p in found for v in p.varied} >= {
        "shape", "dtype", "alignment", "stride", "target", "state"}
    assert any(len(p.varied) == 2 for p in found)
    assert probe(tiled, "tile{axis=0 extent=8}@main", subject.problem, SM_80, pairs=0, most=0)[0].status == "miss"


def test_a_pass_that_declares_too_little_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cls = pass_class("unroll")
    monkeypatch.setattr(cls, "preconditions", ())
    kernel = naive("gemm")
    found = defects(probe(kernel.program, "unroll{factor=4}@main/k_loop", kernel.problem, SM_80, pairs=0, most=3))
    assert found and all(p.status == "applies" and p.by == "checker" for p in found)


def test_forced_sites_are_counted_by_what_refuses_them() -> None:
    subject = naive("rmsnorm")
    item = pass_class("mask-tail").with_options({"extent": 4})
    refused = [(site, ("KIR-P540",)) for site in item.sites(subject.program)]
    assert len(refused) > 1 and len(list(forced(subject, refused, most=1))) == 1


def test_a_forced_step_never_leaves_the_probe() -> None:
    """A refused step is refused as before once it has been forced here."""
    subject = naive("gemm")
    tried("gemm", "unroll{factor=3}@main/k_loop")
    site = forward_site(subject.program, pass_class("unroll").with_options({"factor": 3}), ("main", 1))
    assert site.params.preconditions
    with pytest.raises(KirError):
        run(subject.program, "unroll{factor=3}@main/k_loop")
