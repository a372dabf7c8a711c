"""Sentences of a card's prose."""
from __future__ import annotations

from kir.learning.cards.card import Relation
from kir.learning.induce.prose import _chance, _telling


def test_chances_are_said_as_people_say_them_and_what_follows_from_another_relation_is_left_out() -> None:
    assert [_chance(each) for each in (0.038, 0.00038, 2e-16)] == ["4 %", "1 in 3,000", "less than 1 in a million"]
    texts = ("threads % 128 == 0", "threads * itemsize % 128 == 0", "threads * itemsize % 256 == 0", "k * itemsize % 64 == 0", "k % 64 == 0")
    some = [Relation(text=text, kernels=5, of=7 if text == texts[-1] else 0, chance=0.01) for text in texts]
    assert _telling(some) == [some[0], *some[2:]], "what most kernels keep says nothing of what all keep"
