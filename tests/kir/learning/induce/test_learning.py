"""From lineages to skills: the compact form, what is unified and related, what comes together, and a card put to use."""
from __future__ import annotations

import errno
import lzma
import math
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kir.base.diagnostic import KirError, UsageError
from kir.base.store import EvidenceTable
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.cards.card import Card, Entry, Move, Parameter, Relation, Spread
from kir.learning.cards.facts import facts_at, holds, relations, solved
from kir.learning.cards.library import CardStore, Library
from kir.learning.cards.search import COLUMNS, WEIGHTS, Index, Query, Rank, by_words, rank_of, search
from kir.learning.cards.use import Application, NearMiss, _worth, applications, looked, materialized
from kir.learning.corpus.lineages import Job, Row
from kir.learning.evidence import forwards as forwards_
from kir.learning.evidence import walked as walked_
from kir.learning.evidence import walks as walks_
from kir.learning.evidence.archive import read_archive, write_archive
from kir.learning.evidence.forwards import forward, forwards, wrong
from kir.learning.evidence.ledger import LEAST_USES, ledger, tend, undo, used
from kir.learning.evidence.walked import Transition, Walked, walked
from kir.learning.evidence.walks import asked, experts, finished
from kir.learning.forecast import Forecast, Pair
from kir.learning.induce import build as build_
from kir.learning.induce.build import build, write_cards
from kir.learning.induce.composites import MOST_GAP, together
from kir.learning.induce.hypotheses import Hypothesis, hypotheses, joined_name
from kir.learning.induce.prose import _where, told
from kir.learning.induce.rank import learned, seen
from kir.learning.induce.relate import related
from kir.learning.induce.transfers import _contained, _in_words_of, _likeness, led, parts, problems, said_by, simplest, starts, transferred
from kir.learning.induce.trials import decided, held_out, tried
from kir.learning.induce.unify import shown, term, unified
from kir.learning.induce.uses import distinct, uses
from kir.learning.tune.space import find_space
from kir.lineage.records.folder import Folder
from kir.passes.loops.unroll import Unroll
from kir.problem import load_problem
from kir.rewrite import Context, Found, Pipeline, Place, run
from kir.rewrite.edit import Path as Path_
from tests.kir.learning.cards.test_card import a_card

LINEAGES = Path(__file__).parents[4] / "skills" / "lineages"
NAIVE = """kir 1
program copy
  in X: f32[4, 1024]
  out Y: f32[4, 1024]
kernel main grid (i: 4) threads 1
  @j for j in 0..1024
    Y[i, j] = X[i, j]
"""


def test_walked_kernels_read_back_and_the_same_content_gives_the_same_file(walks: Sequence[Walked], tmp_path: Path) -> None:
    first = write_archive(tmp_path / "a", walks)
    again = write_archive(tmp_path / "b", reversed(walks))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert sorted(read_archive(tmp_path / "a"), key=lambda w: w.key) == sorted(walks, key=lambda w: w.key)
    for each in walks:
        for transition, before, after in each.chain():
            assert (content_hash(before), content_hash(after)) == (transition.before, transition.after)


def test_evidence_that_is_cut_off_or_changed_is_one_error(walks: Sequence[Walked], tmp_path: Path) -> None:
    path = write_archive(tmp_path, walks[:1])[0]
    data = path.read_bytes()
    path.write_bytes(data[:len(data) // 2])
    with pytest.raises(KirError) as cut:
        list(read_archive(tmp_path))
    path.write_bytes(lzma.compress(lzma.decompress(data).replace(b"kir.walked/1", b"kir.walked/9")))
    with pytest.raises(KirError) as newer:
        list(read_archive(tmp_path))
    path.write_bytes(lzma.compress(lzma.decompress(data).replace(b'"family"', b'"famly"')))
    with pytest.raises(KirError) as changed:
        list(read_archive(tmp_path))
    assert [e.value.diagnostics[0].id for e in (cut, newer, changed)] == ["KIR-S051"] * 3
    assert "kir.walked/9" in str(newer.value) and "did you mean 'family'" in str(changed.value)


def test_a_full_disk_leaves_the_last_good_evidence(walks: Sequence[Walked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_archive(tmp_path, walks[:1])[0]
    kept = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
        patched.setattr(os, "fsync", full)
        write_archive(tmp_path, walks)
    assert path.read_bytes() == kept and not list(tmp_path.glob(".*partial"))


def test_a_lineage_whose_programs_are_gone_is_one_error(tmp_path: Path) -> None:
    shutil.copytree(LINEAGES / "softmax_tilelang", tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone" / "store")
    with pytest.raises(KirError) as caught:
        walked(Folder(tmp_path / "gone").read(), Folder(tmp_path / "gone"))
    assert caught.value.diagnostics[0].id in ("KIR-S001", "KIR-S002")


def test_what_is_learned_from_is_named_by_words(tmp_path: Path) -> None:
    assert len(asked([str(LINEAGES)]).lineages) >= 13 and asked([str(LINEAGES / "softmax_tilelang")]).lineages == (LINEAGES / "softmax_tilelang",)
    assert {job.place.rpartition("/")[2] for job in experts()} >= {"gemm_sm90.kir", "gdn.kir", "softmax.cu::softmax"}
    with pytest.raises(UsageError) as caught:
        asked(["no_such_package"])
    assert caught.value.diagnostics[0].id == "KIR-S050"


def test_a_walk_along_a_pipeline_is_evidence_as_any_other() -> None:
    rows, rule, attention = finished([LINEAGES / "topk_rows", LINEAGES / "gdn_d128_triton", LINEAGES / "fmha_sm90"])
    assert (rows.kernel, rows.package, rows.family, rows.ended) == ("pipelines/topk_rows", "experts", "sorting", "naive")
    assert rule.family == "recurrence" and attention.binding.splitlines() == ["keys = 64", "rows = 128", "stages = 2"]
    assert len(attention.transitions) == 46 and sum(each.realized for each in attention.transitions) == 41


def test_a_stored_pipeline_is_a_walk_forwards_up_to_its_first_wrong_program(monkeypatch: pytest.MonkeyPatch) -> None:
    space = find_space("gemm_tilelang")
    made = forward(space)
    assert made.ended == "naive" and made.package == "experts" and made.family == "matmul" and len(made.transitions) == 11
    assert all(t.before == content_hash(before) and t.after == content_hash(after) for t, before, after in made.chain())
    last = made.programs[made.transitions[0].after_text]
    for everywhere in (True, False):
        assert wrong(last, "gemm", everywhere) == "" and wrong(last.replace("acc + ", "acc - "), "gemm", everywhere), "the oracle of the problem judges"
    bad = made.programs[made.transitions[4].after_text]
    monkeypatch.setattr(forwards_, "wrong", lambda text, problem, everywhere: "off by one" if text == bad else "")
    monkeypatch.setattr(forwards_, "ProcessPoolExecutor", lambda workers: ThreadPoolExecutor(workers))
    (cut,) = forwards([space])
    assert len(cut.transitions) == 4 and cut.reason == "off by one"
    asked_for: list[str] = []

    def right(text: str, problem: str, everywhere: bool) -> str:
        asked_for.append(text)
        return ""
    monkeypatch.setattr(forwards_, "wrong", right)
    (whole,) = forwards([space], known=[cut])
    assert whole == made and asked_for == [made.programs[t.after_text] for t in made.transitions[4:]], "what is known is not judged again"
    (late,) = forwards([space], known=[cut], within=1e-9)
    assert late.transitions == cut.transitions and late.reason == "not judged in the time"


def test_a_plan_leads_another_kernel_to_a_state_and_what_follows_judges_the_skill(found: dict[str, Hypothesis]) -> None:
    walk = forward(find_space("gemm_tilelang"))
    card = next(each.card for each in hypotheses((walk,), uses((walk,))) if each.card.name == "tile.kernel")
    prefix, whole = parts(card, walk)
    rest = tuple(step for step in whole if step.name != "tile")
    assert [step.name for step in prefix] == ["multi-threaded-block"] and len(whole) == len(walk.transitions) - 1 and len(rest) == len(whole) - 2
    first = next(led(card, (walk,)))
    assert first.walked.package == "torch" and first.walked.problem != "gemm" and (first.rest, first.whole, first.plan) == (rest, whole, walk.kernel)
    assert {each.package for each in problems({"gemm"}) if each.problem == "gemm"} == {"experts"}, "what an expert is known of is no other package's"
    assert applications(card, first.before)


def test_places_are_unified_to_what_they_have_in_common() -> None:
    one, two = (parse_program(NAIVE.replace("X[i, j]\n", f"{value}\n")).kernels[0].body[0] for value in ("X[i, j] + X[i, j]", "X[i, j] + 2.0"))
    assert shown(unified([term(one), term(one)])) == shown(term(one))
    assert shown(unified([term(one), term(two)])).count("?") == 1
    same = unified([("f", "1", "1"), ("f", "2", "2")])
    assert same == ("f", "?1", "?1"), "the same name where the same things differ"


def test_relations_are_judged_and_solved() -> None:
    assert holds("extent * itemsize == 128", {"extent": 64, "itemsize": 2}) is True
    assert holds("extent * itemsize == 128", {"extent": 64}) is None
    assert holds("trips % factor == 0", {"trips": 12, "factor": 5}) is False
    assert solved("extent * itemsize == 128", "extent", {"itemsize": 4}) == 32
    assert solved("extent == 2 * k", "extent", {"k": 16}) == 32 and solved("k % extent == 0", "extent", {"k": 16}) is None
    for text in relations(("p", "q"), ("extent0", "itemsize", "threads")):
        holds(text, {})


def test_a_relation_is_found_where_it_holds_and_chance_would_not_do() -> None:
    rows = [(f"k{n}", {"extent": 128 // size}, {"itemsize": size, "threads": 128}) for n, size in enumerate((1, 2, 4, 8, 2, 4))]
    assert [each.text for each in related(rows, ())][:1] == ["extent * itemsize == 128"]
    assert not related([(k, {"extent": 64}, {"itemsize": 2, "threads": 128}) for k, _, _ in rows], ()), "what never varies teaches no relation"
    assert not related(rows[:2], ()), "two kernels are too few"


def test_steps_that_come_together_are_found_and_others_are_not() -> None:
    chains = {f"k{n}": ["tile", "stage", "swizzle", "ldmatrix", "unroll"] for n in range(4)} | {f"m{n}": ["tile", "unroll"] for n in range(8)}
    assert [each.items for each in together(chains)] == [("stage", "swizzle", "ldmatrix")]
    assert not together({"a": ["x", "y"], "b": ["x", "y"]}), "two kernels are too few"
    both = [*(["wgmma", "tma", "ring", "turns"],) * 3, *(["wgmma", "tma", "ring"],) * 3, *([f"other{k}"] for k in range(3))]
    found = together({str(k): run for k, run in enumerate(both)})
    assert [(each.items, each.support) for each in found] == [(("wgmma", "tma", "ring"), 6)], "what half of them do as well is no part of it"
    assert joined_name(["tile", "mma"], "for", []) == "tile-mma.for" and joined_name(["tile", "mma"], "for", ["tile-mma.for"]) == "tile-mma.for.2"
    assert joined_name(["cooperative-consumers"] * 4, "mma", []) == "cooperative-consumers-to-cooperative-consumers.4.mma"


@given(st.lists(st.permutations("abcdef").flatmap(lambda run: st.integers(0, 6).map(lambda most: "".join(run)[:most])), min_size=3, max_size=9))
def test_a_sequence_has_all_kernels_of_each_that_is_merged_into_it(runs: list[str]) -> None:
    sequences = {str(k): [*run] for k, run in enumerate(runs)}
    found = together(sequences)
    for each in found:
        assert all(is_part(each.items, sequences[kernel]) for kernel in each.kernels)
        assert not any(is_part(each.items, other.items) and {*each.kernels} <= {*other.kernels} for other in found if other != each)
    steps = {name: [kernel for kernel, run in sequences.items() if name in run] for name in "abcdef"}
    for a, b in ((a, b) for a in steps for b in steps if a != b):
        both = [kernel for kernel, run in sequences.items() if a in run and b in run and 0 < run.index(b) - run.index(a) <= MOST_GAP + 1]
        if len(both) >= max(3, 0.75 * len({*steps[a], *steps[b]})) and len(both) * len(runs) >= 1.5 * len(steps[a]) * len(steps[b]):
            assert any(is_part((a, b), each.items) and {*both} <= {*each.kernels} for each in found), "two steps that belong together are in a sequence"


def is_part(short: Sequence[str], long: Sequence[str]) -> bool:
    rest = iter(long)
    return all(item in rest for item in short)


def test_uses_of_several_kernels_and_surfaces_become_one_card(found: dict[str, Hypothesis]) -> None:
    card = found["partition-rows.for"].card
    assert card.evidence.kernels == 4 and card.scope.surfaces == ("tilelang", "triton") and set(card.scope.families) >= {"norm", "softmax"}
    assert card.state == "hypothesis" and card.effect.forecast["sm_90a"].uses == len(card.evidence.uses)
    threads = found["multi-threaded-block.kernel"].card.carrier.steps[0].parameters[0]
    assert (threads.name, threads.role, threads.low, threads.high) == ("threads", "chosen", 256, 256)
    rejected = sum(len(each.rejected) for each in finished([LINEAGES / "rmsnorm_tilelang"]))
    assert rejected == 2, "steps that the walk turned down are kept"


def test_a_card_restores_the_state_that_it_came_from(found: dict[str, Hypothesis]) -> None:
    each = found["partition-rows.for"]
    for use in each.uses:
        made = {content_hash(run(use.before, Pipeline(a.steps)).program) for a in applications(each.card, use.before)}
        assert use.transition.after in made


def test_trials_are_held_on_kernels_that_the_card_was_not_made_from(found: dict[str, Hypothesis]) -> None:
    each = found["partition-rows.for"]
    assert all(use.walked.package != each.uses[0].walked.package for use in held_out(each.uses, each.uses[0].walked))
    trials = tried(each.lift, each.uses)
    assert len(trials) == 4 and all(entry.skill and entry.basis == "forecast" for entry in trials)
    card = decided(each.card, trials)
    assert card.state == "admitted" and card.why.startswith("4 of 4 held-out trials succeeded")
    assert decided(each.card, trials[:2]).state == "hypothesis"
    assert decided(each.card, [t.model_copy(update={"skill": False}) for t in trials]).state == "hypothesis"
    assert decided(each.card, [t.model_copy(update={"without": True}) for t in trials]).state == "hypothesis", "no better than without it"
    idle = each.card.model_copy(update={"effect": each.card.effect.model_copy(update={"realized": 0, "forecast": {}})})
    assert decided(idle, trials).state == "negative"


class Says:
    """A forecaster of one speedup, whatever it is asked."""

    name = "says"

    def __init__(self, speedup: float) -> None:
        self.forecast = Forecast((0.1, 0.5, 0.9), (math.log(0.9 * speedup), math.log(speedup), math.log(1.1 * speedup)))

    def __call__(self, pair: Pair) -> Forecast:
        assert content_hash(pair.before) != content_hash(pair.after)
        return self.forecast


def test_a_skill_of_few_kernels_is_tried_where_no_expert_used_it(walks: Sequence[Walked]) -> None:
    own = tuple(each for each in walks if each.family == "softmax")
    card = next(each.card for each in hypotheses(own, uses(distinct(own))) if each.card.name == "multi-threaded-block.kernel")
    found = tuple(starts(card, walks))
    assert {each.walked.family for each in found} == {"norm", "copy"}, "its own family and package are left out"
    assert all(said_by(each.before, each.surface) == each.surface and applications(card, each.before) for each in found)
    faster, same = transferred(card, walks, Says(1.5)), transferred(card, walks, Says(1.0))
    assert [entry.kernel for entry in faster] == [each.walked.kernel for each in found]
    assert all(entry.skill and entry.without and entry.basis == "forecast" and entry.speedup == (1.5, 1.35, 1.65) for entry in faster)
    assert not any(entry.skill or entry.without for entry in same), "what changes nothing does not succeed, with the skill or without"
    assert decided(card, transferred(card, walks[:0], Says(1.5))).state == "hypothesis"


def test_no_trial_follows_where_so_many_failed_that_a_skill_is_not_admitted(walks: Sequence[Walked]) -> None:
    own = tuple(each for each in walks if each.family == "softmax")
    card = next(each.card for each in hypotheses(own, uses(distinct(own))) if each.card.name == "multi-threaded-block.kernel")
    norm = next(each for each in walks if each.family == "norm")
    many = [norm.model_copy(update={"kernel": f"other:{k}", "package": "other"}) for k in range(9)]
    assert len(transferred(card, many, Says(1.0))) == 3 and len(transferred(card, many, Says(1.5))) == 6


def test_a_plan_is_taken_on_the_kernels_most_like_its_own_first(walks: Sequence[Walked]) -> None:
    contents = {each.family: _contained(simplest(each)) for each in walks}
    assert all(_likeness(each, each) == 1.0 for each in contents.values())
    assert _likeness(contents["softmax"], contents["norm"]) > _likeness(contents["softmax"], contents["copy"]) > 0
    mine = parse_program("kir 1\nprogram mine\n  size P: i32\n  size Q: i32\n  size L: i32\n  size R: i32\n  in X: f16[L, P, R]\n  in Y: f16[L, R, Q]\n"
                         "  out Z: f16[L, P, Q]\nkernel go grid (c: Q, r: P, b: L) threads 1\n  register s: f32 = 0.0\n  for t in 0..R\n"
                         "    s = s + cast(X[b, r, t], f32) * cast(Y[b, t, c], f32)\n  Z[b, r, c] = cast(s, f16)\n")
    words = _in_words_of(load_problem("gemm").naive, mine).program
    assert [axis.name for axis in words.kernels[0].grid] == [*(axis.name for axis in load_problem("gemm").naive.kernels[0].grid), "b"], \
        "axes are named and put in order by what they index, a batch last"
    home = load_problem("gemm").naive
    whole = parse_program(program_text(home).replace("kernel main", "  fact K % 8 == 0\nkernel main", 1))
    assert whole.facts and _in_words_of(whole, mine).program.facts == whole.facts, "under the facts that its plan asks for"
    product, convolution, norm = (_contained(load_problem(name).naive) for name in ("gemm", "conv2d", "layernorm"))
    assert _likeness(product, convolution) > _likeness(product, norm), "a sum of products is told from a sum"


def test_a_library_made_side_by_side_is_that_of_one_process(walks: Sequence[Walked], monkeypatch: pytest.MonkeyPatch) -> None:
    some = [each for each in walks if "softmax_row" in each.kernel]
    monkeypatch.setattr(walked_, "LEAST_AHEAD", 0)
    monkeypatch.setattr(walked_, "_PROGRAMS", {})
    monkeypatch.setattr(build_, "transferred", lambda card, walks, forecaster: (Entry(what="trial", outcome=f"{card.name} {len(walks)}"),))
    assert build(some, workers=2) == build(some)


def test_an_equality_of_most_kernels_gives_values_but_none_that_was_never_seen() -> None:
    rows = [(f"k{n}", {"extent": 1 << n, "other": 7}, {"power": 1 << n, "extent0": 3 * n}) for n in range(3, 9)] + [("k9", {"extent": 0}, {"power": 512})]
    (mostly,) = related(rows, ())
    assert (mostly.text, mostly.kernels, mostly.of) == ("extent == power", 6, 7)
    without = [(f"g{n}", {"extent": 64, "other": 7}, {"extent0": 3 * n}) for n in range(20)]
    assert related([*rows, *without], ()) == (mostly,), "kernels that do not have the fact say nothing of it"
    assert not related([*rows, *without, *((f"h{n}", p, f) for n, (_, p, f) in enumerate(without))], ()), "few kernels have the fact"
    assert not related([(k, {"extent": 8 if n % 2 else 1 << n}, f) for n, (k, _, f) in enumerate(rows)], ())
    program = parse_program(NAIVE)
    assert facts_at(program, ("main", 0))["power"] == 1024 and "power" not in facts_at(parse_program(NAIVE.replace("1024", "N").replace(
        "  out", "  size N: i32\n  out")), ("main", 0))
    card = a_card()
    soft = card.model_copy(update={"carrier": card.carrier.model_copy(update={"relations": (Relation(text="factor == power", kernels=3, of=4, chance=0.01),)})})
    assert {each.steps[0].options["factor"] for each in applications(soft, program) if not each.varied} <= set(card.carrier.steps[0].parameters[0].values)


def test_an_equality_is_taken_from_other_forms_of_a_step_that_are_not_held_out() -> None:
    def masked(n: int, fill: str, package: str) -> Walked:
        before = parse_program(NAIVE.replace("4, 1024", f"4, {n}").replace("0..1024", f"0..{n}"))
        options = {"extent": 1 << n.bit_length(), "fill": fill}
        step = {"pass": "mask-tail", "options": options, "at": "main/j", "path": ["main", 0]}
        made = run(before, Pipeline.parse(f"mask-tail{{extent={options['extent']} fill={fill}}}@main/j")).program
        texts = program_text(before), program_text(made)
        one = Transition(number=0, intent="mask", step=step, before=content_hash(before), after=content_hash(made), before_text=texts[0], after_text=texts[1])
        return Walked(kernel=f"{package}:{fill}{n}", package=package, family=package, ended="naive", programs={x: x for x in texts}, transitions=(one,))

    low = [masked(n, "lowest", package) for n, package in ((9, "a"), (33, "b"))]
    some = [*low, *(masked(n, "highest", "c") for n in (5, 17, 65, 129))]
    card = {each.card.name: each for each in hypotheses(some, uses(some))}["mask-tail.lowest.for"]
    assert ("extent == power", 6) in [(each.text, each.kernels) for each in card.card.carrier.relations], "two kernels say nothing of it by themselves"
    assert not card.lift(card.uses, lambda use: use.walked.package != "c").carrier.relations, "what is held out is not looked at"


def test_what_is_drawn_is_tried_by_what_it_saves() -> None:
    program = parse_program(NAIVE.replace("= X[i, j]\n", "= exp(X[i, j]) + (X[i, 0] + 1.0) * exp(X[i, j])\n"))
    drawn = a_card(anchor=a_card().anchor.model_copy(update={"node": "store"}), carrier=a_card().carrier.model_copy(update={"steps": (Move(
        step="reuse-operand", parameters=(Parameter(name="value", role="drawn", values=("binary", "call", "load")),)),)}))
    texts = [text for _, text in _worth(drawn, drawn.carrier.steps[0].parameters[0], program)]
    assert texts[:2] == ["exp(X[i, j])", "exp(X[i, j]) + (X[i, 0] + 1.0) * exp(X[i, j])"], "what is computed twice, then all that is stored"
    twice = parse_program(NAIVE.replace("= X[i, j]\n", "= exp(X[i, j])\n    Y[i, 0] = exp(X[i, j])\n"))
    pairs = list(_worth(drawn, drawn.carrier.steps[0].parameters[0], twice))
    assert pairs[0] == (("main", 0, "body", 0), "exp(X[i, j])") and pairs[-1][0] == ("main", 0, "body", 1), "each text once, then at its other places"


def test_near_misses_name_the_condition_that_fails() -> None:
    program = parse_program(NAIVE)
    odd = a_card(carrier=a_card().carrier.model_copy(update={"steps": (a_card().carrier.steps[0].model_copy(update={"parameters": (
        a_card().carrier.steps[0].parameters[0].model_copy(update={"values": (3,), "low": 3, "high": 3}),)}),)}))
    (near,) = looked(odd, program)
    assert isinstance(near, NearMiss) and near.anchor == "main/j" and near.conditions[0].startswith("KIR-P520: ")
    with pytest.raises(KirError) as caught:
        materialized(odd, program)
    assert caught.value.diagnostics[0].id == "KIR-S025" and "KIR-P520" in str(caught.value)
    asks = a_card(scope=a_card().scope.model_copy(update={"requires": ("mma",)}))
    (lacking,) = looked(asks, program)
    assert isinstance(lacking, NearMiss) and lacking.conditions == ("lacks mma",)
    gone = a_card(carrier=a_card().carrier.model_copy(update={"steps": (Move(step="of-a-plugin-that-is-gone"),)}))
    (said,) = looked(gone, program)
    assert isinstance(said, NearMiss) and said.conditions == ("needs the pass 'of-a-plugin-that-is-gone', which is not installed",)


def test_a_card_is_applied_at_every_place_with_parameters_in_its_range() -> None:
    two = parse_program(NAIVE + "  @l for l in 0..1024\n    Y[i, l] = X[i, l] * 2.0\n")
    done = materialized(a_card(), two)
    assert sorted(step.at for step in done.steps) == ["main/j", "main/l"] and all(step.options["factor"] == 2 for step in done.steps)
    assert [step.at for step in materialized(a_card(), two, at="main/l").steps] == ["main/l"]


def test_a_relation_gives_a_parameter_that_was_never_seen() -> None:
    program = parse_program(NAIVE)
    facts = facts_at(program, ("main", 0))
    assert facts["trips"] == 1024
    related_ = a_card(carrier=a_card().carrier.model_copy(update={"relations": (Relation(text="factor * 128 == trips", kernels=3, chance=0.01),)}))
    first = applications(related_, program)[0]
    assert first.steps[0].options["factor"] == 8


def test_what_no_kernel_varied_is_varied_last(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Switched(Unroll):
        whole: bool = False

        def match(self, program: Program, path: Path_, node: Place) -> Found:
            return super().match(program, path, node) if self.whole else None
    plain, doubled = applications(a_card(), parse_program(NAIVE))
    assert not plain.varied and plain.steps[0].options == {"factor": 2} and "none with" not in plain.reason
    assert doubled.varied and not doubled.steps[0].options and "none with this parameter" in doubled.reason, "4, the pass's own"
    assert len(materialized(a_card(), parse_program(NAIVE)).steps) == 1, "what was carried out is not carried out again otherwise"
    monkeypatch.setattr("kir.learning.cards.use.pass_class", lambda name: Switched)
    (turned,) = applications(a_card(), parse_program(NAIVE))
    assert turned.steps[0].options == {"factor": 2, "whole": True} and not turned.varied, "where nothing else fits, a switch is turned"


def test_a_composite_of_which_a_part_is_there_applies_the_rest(found: dict[str, Hypothesis]) -> None:
    parts = [found[name].card for name in ("multi-threaded-block.kernel", "partition-rows.for")]
    both = parts[0].model_copy(update={"name": "both", "carrier": parts[0].carrier.model_copy(update={
        "kind": "composite", "steps": tuple(p.carrier.steps[0] for p in parts), "relations": ()})})
    use = found["partition-rows.for"].uses[0]
    (rest,) = applications(both, use.before)
    assert [step.name for step in rest.steps] == ["partition-rows"] and "multi-threaded-block is there already" in rest.reason


def test_a_composite_repeats_a_step_that_the_next_one_wants_at_more_places_and_varies_the_last() -> None:
    program = parse_program("kir 1\nprogram product\n  in A: f16[64, 64]\n  in B: f16[64, 64]\n  out C: f32[64, 64]\nkernel main grid (i: 1) threads 128\n"
                            "  shared As: f16[64, 64]\n  shared Bs: f16[64, 64]\n  fragment acc: f32[64, 64] = 0.0\n  copy A -> As\n  copy B -> Bs\n"
                            "  @dot mma acc += As * Bs\n  C = acc\n")
    swizzle = Move(step="swizzle-shared", parameters=(Parameter(name="align", role="chosen", values=(1024,), kernels=(2,)),))
    card = a_card(anchor=a_card().anchor.model_copy(update={"node": "alloc"}), carrier=a_card().carrier.model_copy(update={
        "kind": "composite", "steps": (swizzle, Move(step="wgmma")), "relations": ()}))
    first = applications(card, program, Context(target("sm_90a")))[0]
    assert [(step.name, step.at) for step in first.steps] == [("swizzle-shared", "main/As"), ("swizzle-shared", "main/Bs"), ("wgmma", "main/dot")]
    assert run(program, Pipeline(first.steps), context=Context(target("sm_90a"))).program != program
    shared = parse_program(NAIVE.replace("threads 1\n", "threads 1\n  @l for l in 0..1024\n    Y[i, l] = X[i, l] * 3.0\n"))
    unroll = a_card().carrier.steps[0]
    both = a_card(carrier=a_card().carrier.model_copy(update={"kind": "composite", "steps": (Move(step="multi-threaded-block"), unroll), "relations": ()}),
                  anchor=a_card().anchor.model_copy(update={"node": "kernel"}))
    found_ = applications(both, shared)
    assert {each.steps[-1].at for each in found_} == {"main/j", "main/l"}, "the step at the end is offered at each of its places"


def test_search_explains_hits_and_near_misses(found: dict[str, Hypothesis]) -> None:
    cards = [each.card for each in found.values()]
    use = found["partition-rows.for"].uses[0]
    hits = search(cards, use.before, target("sm_90a"), "triton")
    names = [hit.card.name for hit in hits if hit.applications]
    assert "partition-rows.for" in names
    hit = next(hit for hit in hits if hit.card.name == "partition-rows.for")
    assert "surface: verified on triton" in hit.reasons and "platform: verified on sm_90a" in hit.reasons
    assert all(isinstance(each, Application) for each in hit.applications)
    assert all(hit.near for hit in hits if not hit.applications)
    twin = hit.card.model_copy(update={"name": "twin.for"})
    together = next(each for each in search([*cards, twin], use.before, target("sm_90a"), "triton") if each.card.name == "partition-rows.for")
    assert [each.card.name for each in together.also] == ["twin.for"] and together.also[0].applications, "cards of the same steps are one hit"


def test_words_find_cards_and_what_is_blocked_comes_last() -> None:
    cards = [a_card(), a_card("tile.kernel", title="tile at a whole kernel", intent="tile", prose="# Tile\n\nBlocks of rows and columns.\n")]
    assert [hit.card.name for hit in by_words(cards, "columns of a block, blocks")][:1] == ["tile.kernel"]
    assert by_words(cards, "zzz") == () and by_words([], "tile") == ()
    asks = a_card("wants.mma", scope=a_card().scope.model_copy(update={"requires": ("mma",)}))
    index = Index.of([asks, a_card()])
    assert [number for number, _ in index.best(Query(frozenset(), frozenset({"for"})))] == [1, 0]
    newer = Query(frozenset(), frozenset(), target="sm_90a")
    older = a_card(scope=a_card().scope.model_copy(update={"platforms": ("sm_80",)}))
    assert Index.of([older]).columns(newer)[0, 3] == 0.5, "a newer platform has all that an older one has"
    assert Index.of([a_card()]).columns(Query(frozenset(), frozenset(), target="sm_80"))[0, 3] == 0.0


def test_the_same_evidence_gives_the_same_cards(walks: Sequence[Walked], tmp_path: Path) -> None:
    some = [each for each in walks if "softmax_row" in each.kernel]
    first, again = (write_cards(tmp_path / name, build(some, trials=False)) for name in "ab")
    assert [p.name for p in first] == [p.name for p in again] and all(p.read_bytes() == (tmp_path / "b" / p.name).read_bytes() for p in first)
    shown_ = (tmp_path / "a" / "partition-rows.for.md").read_text()
    for heading in ("## When it is right", "## When it pays", "## What can go wrong", "## Before and after", "## How it is known"):
        assert heading in shown_
    assert "KIR-P471" in shown_
    for surface in ("CUDA", "Triton"):
        assert f"\nIn {surface}:\n\n```diff\n" in shown_, "the code that a surface writes before and after"
    assert "TileLang cannot say the program after it" in shown_
    write_cards(tmp_path / "a", ())
    assert not list((tmp_path / "a").glob("*.md"))


def test_outcomes_change_cards_and_can_be_undone(tmp_path: Path) -> None:
    store = CardStore(tmp_path)
    good, bad, idle = (a_card(name, state="admitted", intent=name, title=name, anchor=a_card().anchor.model_copy(update={"node": name}))
                       for name in ("good", "bad", "idle"))
    twin = bad.model_copy(update={"name": "twin", "evidence": bad.evidence.model_copy(update={"kernels": 1})})
    for card in (good, bad, idle, twin):
        store.put(card)
    with EvidenceTable(ledger(tmp_path)) as table:
        for n in range(LEAST_USES):
            used(table, "good", f"k{n}", "helped", 1.2)
            used(table, "bad", f"k{n}", "failed")
            used(table, "idle", f"k{n}", "neutral")
    tend(Library((store,)), store)
    states = {card.name: card.state for card in Library((store,)).cards}
    assert states == {"good": "admitted", "bad": "deprecated", "idle": "retired"}
    assert "5 of 5 uses failed" in Library((store,)).card("bad").card.why
    assert {card.name for card in undo(store)} == {"bad", "idle", "twin"}
    assert {card.name: card.state for card in Library((store,)).cards} == dict.fromkeys(("good", "bad", "idle", "twin"), "admitted")
    assert undo(store) == ()


def test_the_target_decides_what_the_hardware_has() -> None:
    wide = a_card("vectorize", carrier=a_card().carrier, anchor=a_card().anchor)
    assert applications(wide, parse_program(NAIVE), Context(target("sm_80")))


def test_a_card_of_a_pass_that_is_not_registered_has_no_use() -> None:
    gone: Card = a_card(carrier=a_card().carrier.model_copy(update={"steps": (a_card().carrier.steps[0].model_copy(update={"step": "no-such-pass"}),)}))
    assert applications(gone, parse_program(NAIVE)) == ()


def test_a_killed_run_loses_nothing_that_was_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job(f"no_such:ops/k{n}.py::k{n}", None, f"k{n}") for n in range(3)]
    asked_for: list[str] = []

    def result(job: Job, folder: Path, seconds: float, fresh: bool) -> Row:
        asked_for.append(job.name)
        if job.name == "k1" and asked_for.count("k1") == 1:
            raise KeyboardInterrupt
        return {"said": {"ended": "left" if not seconds else "failed", "reason": "it is not there"}}
    monkeypatch.setattr(walks_, "walked_result", result)
    monkeypatch.setattr(walks_, "KEPT_EVERY", 0.0)
    with pytest.raises(KeyboardInterrupt):
        walks_.walk(jobs, tmp_path / "walks", tmp_path / "evidence", seconds=1.0, workers=1)
    kept = list(read_archive(tmp_path / "evidence"))
    assert [each.kernel.rpartition("::")[2] for each in kept] in (["k0"], ["k0", "k2"])
    found = walks_.walk(jobs, tmp_path / "walks", tmp_path / "evidence", seconds=1.0, workers=2, known=kept)
    assert [each.kernel.rpartition("::")[2] for each in found] == ["k0", "k1", "k2"] and list(found) == list(read_archive(tmp_path / "evidence"))
    assert {each.ended for each in found} == {"failed"} and not uses(found)
    naive = [each.model_copy(update={"ended": "naive"}) for each in found[:1]]
    asked_for[:] = ["k1"]
    again = walks_.walk(jobs, tmp_path / "new", tmp_path / "again", seconds=1.0, workers=1, known=naive)
    assert asked_for == ["k1", "k1", "k2"] and [each.ended for each in again] == ["naive", "failed", "failed"], "what is known is not walked again"
    assert walks_.walk(jobs[:1], tmp_path / "anew", tmp_path / "anew", seconds=1.0, workers=1, known=naive, fresh=True)[0].ended == "failed"
    late = walks_.walk(jobs[:1], tmp_path / "other", tmp_path / "late", seconds=1.0, workers=1, within=1e-9)
    assert [each.ended for each in late] == ["left"]


def test_an_order_is_learned_where_there_are_states_enough(found: dict[str, Hypothesis], walks: Sequence[Walked], tmp_path: Path) -> None:
    cards = [each.card.model_copy(update={"state": "admitted"}) for each in found.values()]
    states = seen(cards, walks)
    unused = cards[0].model_copy(update={"name": "unused", "evidence": cards[0].evidence.model_copy(update={"uses": ()})})
    beside = seen([*cards, unused], walks)
    assert any(each.used[0] for each in beside) and not any(each.used[-1] for each in beside), "of two cards of one pass each learns from its own uses"
    first = learned(cards, states)
    assert set(first.weights) == set(COLUMNS) and first == learned(cards, states) and min(first.weights.values()) >= 0
    assert first.weights["words"] == WEIGHTS["words"] and first.weights["place"] != WEIGHTS["place"] and learned([], ()) == Rank()

    def first_ones(rank: Rank) -> int:
        """Of the cards that are used from a state on, those among as many that come first of those that apply, in all states."""
        index = Index.of(cards, rank)
        orders = [(each, [number for number, _ in index.best(each.query, len(cards)) if each.applies[number]]) for each in states]
        return sum(each.used[number] for each, order in orders for number in order[:sum(each.used)])
    assert all(held or not used for each in states for held, used in zip(each.applies, each.used, strict=True))
    assert seen(cards, walks, workers=2) == states and first.least > Rank().least
    assert first_ones(first) > first_ones(Rank()) and first_ones(first) > first_ones(Rank(first.weights)), "weights and states both teach"
    write_cards(tmp_path / "made", cards, walks)
    assert rank_of(tmp_path / "made") == first
    many = learned(cards, [replace(each, file=f"file {k}") for k, each in enumerate(states)])
    assert first.at("norm") == first.at("attention") == (first.weights, first.least) and many.at("norm") == (many.weights, many.least)
    assert many.at("attention") == (many.elsewhere, many.least_elsewhere) != many.at("norm"), "a family of which nothing is known"
    build_._write_rank(tmp_path / "made", many)
    assert rank_of(tmp_path / "made") == many
    for wrong_ in ("nonsense", "[]", '{"weights": {}}'):
        (tmp_path / "made" / "rank.json").write_text(wrong_)
        assert rank_of(tmp_path / "made") == Rank(), "what cannot be read teaches nothing"


def test_a_card_says_in_how_many_uses_it_gains_and_loses(found: dict[str, Hypothesis]) -> None:
    each = found["multi-threaded-block.kernel"]
    uses_ = [replace(use, transition=use.transition.model_copy(update={"speedups": {"sm_90a": ratio}}))
             for use, ratio in zip(each.uses, (1.5, 1.0, 0.9, 2.0), strict=False)]
    seen = {"sm_90a": Spread(median=1.0, low=1.0, high=1.0, uses=4)}
    made = each.card.model_copy(update={"effect": each.card.effect.model_copy(update={"forecast": seen, "measured": {}})})
    said = " ".join(" ".join(_where(made, uses_)).split())
    assert said.startswith("On sm_90a it is forecast to gain 2 % or more in 2 of 4 uses, most in `") and f"`{uses_[3].kernel}` (2 times as fast)" in said
    assert "and to lose as much in 1." in said
    assert not list(_where(made, uses_[:2])), "of few uses nothing is told"
    far = replace(uses_[3], transition=uses_[3].transition.model_copy(update={"speedups": {"sm_90a": 100.0}}))
    assert "(100 times as fast, far from the next one's 1.5)" in " ".join(" ".join(_where(made, [*uses_[:3], far])).split())


def test_each_sentence_of_a_card_says_what_the_card_holds(found: dict[str, Hypothesis]) -> None:
    each = found["multi-threaded-block.kernel"]
    failed = [Entry(what="trial", kernel=f"k{n}", outcome=f"lifted from 3 other kernels: {how}", skill=won, without=False)
              for n, (how, won) in enumerate([("no place", False), ("other programs in 1 try", False), ("no place", False), ("a step", True)])]
    relations = (Relation(text="trips % 4 == 0", kernels=4, chance=0.01), Relation(text="threads == k", kernels=3, of=4, chance=0.02))
    made = each.card.model_copy(update={
        "title": "tma load, at a copy", "log": tuple(failed), "state": "hypothesis", "carrier": each.card.carrier.model_copy(update={"relations": relations}),
        "risk": each.card.risk.model_copy(update={"numerics": "bitwise, reassociated(k)"}),
        "effect": each.card.effect.model_copy(update={"compared": 5, "realized": 0, "measured": {"H200": Spread(median=1.5, low=1.5, high=1.5, uses=1)},
                                                     "predicted": {"registers": Spread(median=-1, low=-1, high=-1, uses=1)}})})
    said = told(made, each.uses)
    assert said.startswith("# TMA load, at a copy\n")
    flat = " ".join(said.split())
    for sentence in ("1 of 4 trials succeeded, each on a kernel whose package or family it had not seen (without it 0)",
                     "measured to make a kernel 1.5 times as fast (H200, in its one use)",
                     "`trips` is a multiple of 4 in every use, in 4 kernels (chance 1 %).", "`threads == k` in 3 of 4 kernels (chance 2 %).",
                     "that as many places of this kind, drawn at random, would have it in common or, for what names a parameter, that the kernels would",
                     "`threads` of the CTA.",
                     "`trips` is the number of iterations", "In none of the 5 uses that were compiled before and after it did the machine code change",
                     "Measured on H200: 1.5 times as fast, in one use.", "- The step itself predicts 1 fewer register a thread.",
                     "The result may differ in its last bits: terms are added in another order (k).",
                     "On 3 of the 4 kernels on which it was tried it did not succeed: no place found (twice) and another place or other parameters"):
        assert sentence in flat, sentence
