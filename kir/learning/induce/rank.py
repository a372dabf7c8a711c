"""The order of hits, learned from the evidence: at each state of each lineage, the cards that the expert used from there on, against the others."""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import count
from typing import Any

import numpy as np

from kir.base.dataclass import dataclass
from kir.hardware.target import target
from kir.learning.cards.card import Card
from kir.learning.cards.search import COLUMNS, WEIGHTS, Index, Query, Rank
from kir.learning.evidence.walked import Walked
from kir.learning.induce.uses import SHORT

ROUNDS = 400
RATE = 0.5
KEPT = 0.02
"""How strongly weights are drawn back to those that are used before any are learned (the prior of the regression)."""
LEAST = 20
"""States from which an order is learned."""
MOST = 1500
"""States that are looked at, evenly spread over all."""


@dataclass(frozen=True)
class Seen:
    """A state of a lineage: what is asked at it, and which of some cards the expert used from there on."""

    query: Query
    used: tuple[bool, ...] = field(repr=False)
    family: str = ""


def seen(cards: Sequence[Card], walks: Sequence[Walked]) -> tuple[Seen, ...]:
    """States from which on some of the cards are used, and some are not: the uses that a card was lifted from, so that of two cards of one pass each
    learns from its own."""
    out = []
    numbers, every = count(), -(-sum(len(walk.transitions) for walk in walks) // MOST) or 1
    own = [{(use.kernel, use.transition, use.before) for use in card.evidence.uses} for card in cards]
    for walk in walks if cards else ():
        aim = target(walk.targets[-1]) if walk.targets else None
        steps = [(walk.kernel, t.number, t.before[:SHORT]) for t in walk.transitions]
        for k, transition in enumerate(walk.transitions):
            if next(numbers) % every:
                continue
            used = tuple(not some.isdisjoint(steps[k:]) for some in own)
            if any(used) and not all(used):
                out.append(Seen(Query.of(walk.program(transition.before_text), aim, walk.surface), used, walk.family))
    return tuple(out)


def learned(cards: Sequence[Card], states: Sequence[Seen]) -> Rank:
    """The order of cards by states: what each feature adds to the log odds of a card (naive Bayes, its sum divided by the root of the number of features,
    which depend on one another), then the weights by logistic regression, none below 0. The usual order where there are too few states. Words are
    not asked for in a lineage, so that their weight stays."""
    if len(states) < LEAST:
        return Rank()
    found = _odds(cards, states)
    index = Index.of(cards, Rank(states=found))
    x, y = np.concatenate([index.columns(each.query) for each in states]), np.concatenate([each.used for each in states]).astype(np.float64)
    return Rank({name: float(f"{value:.3g}") for name, value in zip(COLUMNS, _fitted(x, y), strict=True)}, found)


def _odds(cards: Sequence[Card], states: Sequence[Seen]) -> Mapping[str, tuple[float, Mapping[str, float]]]:
    names = sorted({name for each in states for name in each.query.state})
    had = Counter(name for each in states for name in each.query.state)
    out = {}
    for k, card in enumerate(cards):
        some = [each for each in states if each.used[k]]
        own = Counter(name for each in some for name in each.query.state)
        bias, added = math.log((len(some) + 1) / (len(states) - len(some) + 1)), dict[str, float]()
        for name in names:
            there = (own[name] + 1) / (len(some) + 2)
            other = (had[name] - own[name] + 1) / (len(states) - len(some) + 2)
            bias += math.log((1 - there) / (1 - other)) / math.sqrt(len(names))
            added[name] = float(f"{(math.log(there / other) - math.log((1 - there) / (1 - other))) / math.sqrt(len(names)):.3g}")
        out[card.name] = (float(f"{bias:.3g}"), added)
    return out


def _fitted(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    start = np.array([WEIGHTS[name] for name in COLUMNS])
    free = np.array([name != "words" for name in COLUMNS])
    weights, bias = start.copy(), -float(start.sum()) / 2
    share = np.where(y > 0, 0.5 / max(y.sum(), 1.0), 0.5 / max((1 - y).sum(), 1.0))
    for _ in range(ROUNDS):
        said = 1 / (1 + np.exp(-np.clip(x @ weights + bias, -30, 30)))
        error = (said - y) * share
        weights = np.maximum(0.0, weights - RATE * np.where(free, x.T @ error + KEPT * (weights - start), 0.0))
        bias -= RATE * float(error.sum())
    return weights
