"""The order of hits, learned from the evidence: at each state of each lineage, the cards that the expert used from there on, against the others."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kir.hardware.target import target
from kir.learning.cards.card import Card
from kir.learning.cards.search import COLUMNS, WEIGHTS, Index, Query
from kir.learning.evidence.walked import Walked

ROUNDS = 400
RATE = 0.5
KEPT = 0.02
"""How strongly weights are drawn back to those that are used before any are learned (the prior of the regression)."""
LEAST = 20
"""States from which weights are learned."""


def learned(cards: Sequence[Card], walks: Sequence[Walked]) -> Mapping[str, float]:
    """Weights of `COLUMNS` by logistic regression, none below 0; the usual ones where there are too few states. Words are not asked for in a
    lineage, so that their weight stays."""
    admitted = [card for card in cards if card.state == "admitted"]
    index = Index.of(admitted)
    rows, labels, states = [], [], 0
    for walk in walks if admitted else ():
        aim = target(walk.targets[-1]) if walk.targets else None
        for k, transition in enumerate(walk.transitions):
            later = {(t.name, w.node) for t in walk.transitions[k:] for w in (card.anchor for card in admitted if t.name in card.passes)}
            query = Query.of(walk.program(transition.before_text), aim, walk.surface)
            used = np.array([any((step, card.anchor.node) in later for step in card.passes) for card in admitted])
            if used.any() and not used.all():
                rows.append(index.columns(query))
                labels.append(used)
                states += 1
    if states < LEAST:
        return dict(WEIGHTS)
    x, y = np.concatenate(rows), np.concatenate(labels).astype(np.float64)
    return {name: float(f"{value:.3g}") for name, value in zip(COLUMNS, _fitted(x, y), strict=True)}


def _fitted(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    start = np.array([WEIGHTS[name] for name in COLUMNS])
    free = np.array([name != "words" for name in COLUMNS])
    weights, bias = start.copy(), -float(start.sum()) / 2
    share = np.where(y > 0, 0.5 / max(y.sum(), 1.0), 0.5 / max((1 - y).sum(), 1.0))
    for _ in range(ROUNDS):
        seen = 1 / (1 + np.exp(-np.clip(x @ weights + bias, -30, 30)))
        error = (seen - y) * share
        weights = np.maximum(0.0, weights - RATE * np.where(free, x.T @ error + KEPT * (weights - start), 0.0))
        bias -= RATE * float(error.sum())
    return weights
