"""Figures of the library: places where a card is right, and states of lineages, are looked at once."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.skills import given as given_
from benchmarks.skills import states as states_
from benchmarks.skills import when
from benchmarks.skills.ablation import ablation
from benchmarks.skills.given import Given, Rows
from benchmarks.skills.retrieval import _idle, _judged, _kin, _unaware
from benchmarks.skills.round_trips import Way, _unlike, made_by_cards
from benchmarks.skills.stale import ANOTHER, stale
from kir.ir.canonical import content_hash
from kir.learning.cards.card import Move
from kir.learning.evidence.walked import Walked
from kir.learning.induce.ablation import ablated
from kir.learning.induce.hypotheses import Hypothesis
from kir.rewrite import Context, Step


def test_places_are_looked_at_by_program_and_what_was_run_is_not_run_again(found: dict[str, Hypothesis], walks: Sequence[Walked], tmp_path: Path,
                                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [found[name].lift([use for use in found[name].uses if "softmax_row" not in use.kernel]).model_copy(update={"state": "admitted"})
             for name in ("partition-rows.for", "tree-reduction.alloc")]
    some = [each for each in walks if "softmax_row" in each.kernel]
    asked_ = Given(tuple(cards), tuple(some), 2, 1, 0, None, kept=tmp_path / "kept.jsonl")
    first = when.when(asked_)
    assert "100.0 %" in first and "| applies |" in first and (tmp_path / "kept.jsonl").read_text().count("\n")
    with (tmp_path / "kept.jsonl").open("a") as file:
        file.write('["cut of')

    def again(*about: object) -> str:
        raise AssertionError("it is known")
    monkeypatch.setattr(when, "_run", again)
    when._known.cache_clear()
    assert when.when(asked_) == first


def test_states_are_looked_at_once_and_a_defect_that_one_shows_ends_no_run(found: dict[str, Hypothesis], walks: Sequence[Walked], tmp_path: Path,
                                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    card = found["partition-rows.for"].card.model_copy(update={"state": "admitted"})
    walk = next(each for each in walks if any(t.name == "partition-rows" for t in each.transitions))
    cases = [(walk.key, k) for k in range(len(walk.transitions))]
    asked_ = Given((card,), (walk,), 9, 1, 0, None, kept=tmp_path / "kept.jsonl")
    first = states_.states(cases, asked_)
    at = next(k for k, t in enumerate(walk.transitions) if t.name == "partition-rows")
    assert list(first) == cases and first[walk.key, at].makes == first[walk.key, at].relevant == {card.name}
    other = card.model_copy(update={"carrier": card.carrier.model_copy(update={"steps": (Move(step="unroll"),)})})

    def fails(case: tuple[str, int], about: Given) -> Rows:
        raise ValueError("what was looked at is not looked at again")
    monkeypatch.setattr(states_, "_looked", fails)
    monkeypatch.setattr(given_, "RAISED", [])
    assert states_.states(cases, asked_) == first and not given_.RAISED
    assert states_.states(cases, replace(asked_, cards=(card, other))) == {} and len(given_.RAISED) == len(cases), "other cards: nothing is known of them"


def test_a_trip_takes_what_cards_make_and_where_none_does_what_is_most_like_the_step(found: dict[str, Hypothesis], walks: Sequence[Walked]) -> None:
    walk = next(each for each in walks if "softmax_row" in each.kernel and each.surface == "tilelang")
    nothing: frozenset[str] = frozenset()

    def trip(makes: bool, way: Way, *names: str) -> str:
        cards = tuple(found[name].card.model_copy(update={"state": "admitted"}) for name in names)
        chain = [states_.State((walk.key, k), nothing, nothing, nothing, frozenset(names) if makes else nothing, False) for k in range(len(walk.transitions))]
        return content_hash(made_by_cards(walk, chain, Given(cards, (walk,), 9, 1, 0, None), Context(), way))
    naive, expert = walk.program(walk.transitions[0].before_text), walk.program(walk.transitions[-1].after_text)
    assert trip(True, Way(), "partition-rows.for") == content_hash(expert), "each step is made"
    assert trip(False, Way()) == content_hash(naive), "without cards nothing is done"
    own = Way(numbers=True, texts=True)
    assert trip(False, own, "multi-threaded-block.kernel") not in (content_hash(naive), content_hash(expert)), "its own steps are taken, the others left out"
    assert trip(False, Way(place=True), "multi-threaded-block.kernel") == trip(False, own, "multi-threaded-block.kernel"), "at the expert's place"


def test_without_a_card_the_steps_are_lost_that_nothing_else_makes(found: dict[str, Hypothesis], walks: Sequence[Walked]) -> None:
    card = found["partition-rows.for"].card.model_copy(update={"state": "admitted"})
    twin = card.model_copy(update={"name": "twin.for"})
    alone, beside = ablated(card, (card,), walks), ablated(card, (card, twin), walks)
    assert alone.uses == alone.made == len(card.evidence.uses) == alone.plain + len(alone.lost) and not alone.others
    assert beside.shared == beside.made and beside.others == {"twin.for": beside.made}
    assert not beside.lost and not beside.plain, "of two of a kind neither is missed"
    (open_,) = card.carrier.steps
    drawn = card.model_copy(update={"carrier": card.carrier.model_copy(update={"steps": (open_.model_copy(update={"step": "unroll"}),)})})
    assert ablated(drawn, (), walks).made == 0, "what it does not make it does not lose"
    assert ablated(card, (), walks[:0]).uses == 0
    lost = found["tree-reduction.alloc"].card.model_copy(update={"state": "admitted"})
    page = ablation(Given((card, lost), tuple(walks), 9, 1, 0, None))
    assert f"| `partition-rows.for` | {alone.uses} | {alone.made} | 0 | {alone.plain} | {len(alone.lost)} |" in page and "| `tree-reduction.alloc` |" in page


def test_hits_are_judged_and_those_that_change_no_time_are_told_apart() -> None:
    assert _judged({"a", "b"}, ["a", "x"], ["a", "x", "b"]) == (2, 0.5, 0.5, 0.5) and _judged({"a"}, [], ["a"]) == (0, 0.0, 0.0, 1.0)
    assert _idle({"named": (1.0, 0.995), "timed": (1.0, 1.03), "slower": (0.9,)}) == {"named"}, "of several cards of one hit none may change anything"


def test_a_card_that_is_held_out_knows_nothing_of_the_families_that_are(found: dict[str, Hypothesis]) -> None:
    card = found["partition-rows.for"].card.model_copy(update={"state": "admitted"})
    families = {use.family for use in card.evidence.uses}
    given = Given((card,), (), 9, 1, 0, None)
    for part in {_kin(each) for each in families}:
        (without,) = _unaware(given, part)
        gone = {each for each in families if _kin(each) == part}
        assert not gone & {*without.scope.families} and {*without.scope.families} == families - gone, "its scope says nothing of them"
        assert without.evidence.kernels < card.evidence.kernels and not any(use.family in gone for use in without.evidence.uses)
    assert _unaware(given, "families, part 0") == (card,), "of another part nothing is left out"


def test_of_steps_like_an_experts_that_of_the_same_place_and_texts_is_most_like_it() -> None:
    step = Step("retain-tile", {"value": "load(X[i * 128 +: 128])", "until": 0}, at="main/k/q")
    same, there, other = (Step("retain-tile", {"value": value, "until": 0}, at=at) for value, at in
                          (("load(X[i * 128 +: 128])", "main/k/q"), ("load(X[128 - i * 128 +: 128])", "main/k/q"), ("f", "main/k/z")))
    assert sum(_unlike(same, step)) == 0 < sum(_unlike(there, step)) < sum(_unlike(other, step))


def test_walks_that_todays_code_would_not_take_so_are_named(walks: Sequence[Walked]) -> None:
    walk = next(each for each in walks if "softmax_row" in each.kernel and each.surface == "tilelang")
    first, second = walk.transitions[:2]
    gone = first.model_copy(update={"step": {k: v for k, v in first.step.items() if k not in ("path", "hash")} | {"at": "nowhere"}})
    other = second.model_copy(update={"after_text": second.before_text})
    assert stale(Given((), (walk,), 9, 1, 0, None)).startswith("0 of 1 walks")
    said = stale(Given((), (walk.model_copy(update={"transitions": (gone, other, *walk.transitions[2:])}),), 9, 1, 0, None))
    assert said.startswith("1 of 1 walks") and f"step {first.number}, {first.name}: KIR-" in said and f"step {second.number}, {second.name}: {ANOTHER}" in said
