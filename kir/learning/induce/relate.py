"""Relations between parameters and facts that held in every use, and would hardly have by chance."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from kir.learning.cards.card import Relation
from kir.learning.cards.facts import Facts, holds, relations

LEAST_KERNELS = 3
MOST_CHANCE = 0.05
MOST_KEPT = 4
Row = tuple[str, Mapping[str, int], Facts]
"""A use: its kernel, its whole-number parameters, the facts at its place."""


def related(rows: Sequence[Row], background: Sequence[Facts]) -> tuple[Relation, ...]:
    """The relations that held in all rows, least likely by chance first. `background` are facts of places of the same kind that other steps act at.

    The chance of a relation with a parameter is that of its holding in every kernel if each had one of the others' parameters; of one among facts
    alone, if its places were drawn from the background. One row a kernel counts, the first."""
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(row[0], row)
    some = list(first.values())
    if len(some) < LEAST_KERNELS:
        return ()
    parameters = tuple(sorted(set.intersection(*(set(p) for _, p, _ in some))))
    facts = tuple(sorted(set.intersection(*(set(f) for _, _, f in some))))
    out: list[Relation] = []
    for text in relations(parameters, facts):
        if not all(holds(text, {**f, **p}) for _, p, f in rows):
            continue
        free = any(word in parameters for word in text.split())
        chance = _by_others(text, some) if free else _by_background(text, len(some), background)
        if chance <= MOST_CHANCE:
            out.append(Relation(text=text, kernels=len(some), chance=float(f"{chance:.2g}")))
    return _strongest(out)


def _by_others(text: str, some: Sequence[Row]) -> float:
    """The probability that it holds in each kernel with a parameter drawn from all kernels'."""
    return prod(sum(bool(holds(text, {**f, **other})) for _, other, _ in some) / len(some) for _, _, f in some)


def _by_background(text: str, kernels: int, background: Sequence[Facts]) -> float:
    judged = [found for each in background if (found := holds(text, each)) is not None]
    return 1.0 if len(judged) < kernels else ((sum(judged) + 1) / (len(judged) + 1)) ** kernels


def _strongest(found: Sequence[Relation]) -> tuple[Relation, ...]:
    """One relation for each pair of sides, the strongest of those that say much the same; the unlikeliest first."""
    kept: dict[frozenset[str], Relation] = {}
    for each in found:  # equalities come before divisibilities
        names = frozenset(word for word in each.text.replace("%", " ").split() if word.isidentifier())
        if names not in kept:
            kept[names] = each
    return tuple(sorted(kept.values(), key=lambda each: (each.chance, each.text))[:MOST_KEPT])
