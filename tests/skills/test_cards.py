"""The shipped library: every card is whole, rests on evidence that ships, and is in the state that its trials give it."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.learning.cards.card import FAMILY, card_text, parse_card
from kir.learning.cards.library import CardStore, Library
from kir.learning.cards.search import RANK, Rank, rank_of
from kir.learning.evidence.archive import read_archive, shipped
from kir.learning.evidence.walked import Walked
from kir.learning.induce.transfers import families
from kir.learning.induce.trials import decided
from kir.learning.induce.uses import SHORT, distinct
from kir.rewrite import pass_class
from kir.rewrite.base import parameter_types

CARDS = Path(__file__).parents[2] / "skills" / "cards"


@pytest.fixture(scope="module")
def library() -> Library:
    return Library((CardStore(CARDS, writable=False),))


def test_every_card_reads_back_to_its_file(library: Library) -> None:
    assert library.faults == () and len(library.admitted) >= 10
    for each in library.found:
        text = each.path.read_text(encoding="utf-8")
        assert card_text(parse_card(text, str(each.path))) == text


@pytest.fixture(scope="module")
def walks() -> tuple[Walked, ...]:
    return tuple(read_archive(shipped()))


def test_every_use_of_a_card_is_in_the_shipped_evidence_and_every_step_of_the_evidence_in_a_card(library: Library, walks: tuple[Walked, ...]) -> None:
    known = {(t.before[:SHORT], t.after[:SHORT]) for walk in walks for t in walk.transitions}
    for card in library.cards:
        assert card.evidence.uses and {(use.before, use.after) for use in card.evidence.uses} <= known
    used = {(use.kernel, use.transition, use.before) for card in library.cards for use in card.evidence.uses}
    steps = {(walk.kernel, t.number, t.before[:SHORT]) for walk in distinct(walks) for t in walk.transitions}
    assert not steps - used, "evidence came after the cards were learned: `kir learn`"


def test_a_state_follows_from_the_trials_in_the_log(library: Library, walks: tuple[Walked, ...]) -> None:
    of = families(walks)
    for card in library.cards:
        trials = [entry for entry in card.log if entry.what == "trial"]
        bare = card.model_copy(update={"log": tuple(entry for entry in card.log if entry.what != "trial"),
                                       "preconditions": tuple(p for p in card.preconditions if p.category != FAMILY)})
        made = decided(bare, trials, of)
        assert (made.state, made.why, made.preconditions) == (card.state, card.why, card.preconditions)


def test_steps_and_parameters_of_cards_are_those_of_passes(library: Library) -> None:
    for card in library.cards:
        for move in card.carrier.steps:
            assert {each.name for each in move.parameters} <= set(parameter_types(pass_class(move.step)))


def test_the_order_of_hits_was_learned(library: Library) -> None:
    assert (CARDS / RANK).is_file() and rank_of(CARDS) != Rank() and set(rank_of(CARDS).states) == {card.name for card in library.admitted}
