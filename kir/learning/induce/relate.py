"""Relations between parameters and facts that held in every use, and would hardly have by chance."""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import comb, prod

from kir.learning.cards.card import Relation
from kir.learning.cards.facts import Facts, holds, relations, words_of

LEAST_KERNELS = 3
MOST_CHANCE = 0.05
MOST_KEPT = 4
MOSTLY = 0.6
"""The share of kernels in which an equality that gives a parameter must hold to be of use where it does not hold in all: of those that have its facts."""
SOME = 0.2
"""The share of kernels that must have a fact for it to be asked about."""
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
    facts = tuple(sorted(set.intersection(*(set(f) for _, _, f in some)) | _frequent(some)))
    out: list[Relation] = []
    together = [dict(each) for each in dict.fromkeys(tuple(sorted({**f, **p}.items())) for _, p, f in rows)]
    apart = [(dict(each), count) for each, count in Counter(tuple(sorted(f.items())) for f in background).items()]
    for text in relations(parameters, facts):
        if not all(holds(text, values) for values in together):
            if " == " in text and " * " not in text and text.split()[0] in parameters and (mostly := _mostly(text, rows)) is not None:
                out.append(mostly)
            continue
        free = any(word in parameters for word in text.split())
        chance = _by_others(text, some) if free else _by_background(text, len(some), apart)
        if chance <= MOST_CHANCE:
            out.append(Relation(text=text, kernels=len(some), chance=float(f"{chance:.2g}")))
    return _strongest(out)


def _frequent(some: Sequence[Row]) -> set[str]:
    """The facts that not only a few kernels have."""
    return {name for name in set().union(*(f for _, _, f in some)) if sum(name in f for _, _, f in some) >= max(LEAST_KERNELS, SOME * len(some))}


def _mostly(text: str, rows: Sequence[Row]) -> Relation | None:
    """An equality that holds in every use of most kernels that have its facts, where as many would hardly by chance; else None."""
    by_kernel: dict[str, list[Row]] = {}
    for row in rows:
        if holds(text, {**row[2], **row[1]}) is not None:
            by_kernel.setdefault(row[0], []).append(row)
    held = sum(all(holds(text, {**f, **p}) for _, p, f in some) for some in by_kernel.values())
    if held < LEAST_KERNELS or held < MOSTLY * len(by_kernel):
        return None
    firsts = [some[0] for some in by_kernel.values()]
    once = sum(_shares(text, firsts)) / len(firsts) ** 2
    chance = sum(comb(len(firsts), k) * once ** k * (1 - once) ** (len(firsts) - k) for k in range(held, len(firsts) + 1))
    return Relation(text=text, kernels=held, of=len(firsts), chance=float(f"{chance:.2g}")) if chance <= MOST_CHANCE else None


def _by_others(text: str, some: Sequence[Row]) -> float:
    """The probability that it holds in each kernel with a parameter drawn from all kernels'."""
    return prod(count / len(some) for count in _shares(text, some))


def _shares(text: str, some: Sequence[Row]) -> list[int]:
    """For each row of how many rows the parameters hold with its facts. What has the same numbers is asked once."""
    words = words_of(text)
    others = Counter(tuple(p.get(w) for w in words) for _, p, _ in some)
    asked: dict[tuple[int | None, ...], int] = {}
    for _, _, f in some:
        own = tuple(f.get(w) for w in words)
        if own not in asked:
            asked[own] = sum(count for other, count in others.items()
                             if holds(text, {w: v for w, x, y in zip(words, own, other, strict=True) if (v := x if y is None else y) is not None}))
    return [asked[tuple(f.get(w) for w in words)] for _, _, f in some]


def _by_background(text: str, kernels: int, background: Sequence[tuple[Facts, int]]) -> float:
    judged = [(found, count) for each, count in background if (found := holds(text, each)) is not None]
    of = sum(count for _, count in judged)
    return 1.0 if of < kernels else ((sum(count for found, count in judged if found) + 1) / (of + 1)) ** kernels


def _strongest(found: Sequence[Relation]) -> tuple[Relation, ...]:
    """One relation for each pair of sides, the strongest of those that say much the same; the unlikeliest first."""
    kept: dict[frozenset[str], Relation] = {}
    for each in found:  # equalities come before divisibilities
        names = frozenset(word for word in each.text.replace("%", " ").split() if word.isidentifier())
        if names not in kept:
            kept[names] = each
    return tuple(sorted(kept.values(), key=lambda each: (each.chance, each.text))[:MOST_KEPT])
