"""The order of hits, learned from the evidence: at each state of each lineage, of the cards that apply, those that the expert used from there on against
the others."""
from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import field, replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from kir.base.dataclass import dataclass
from kir.hardware.target import target
from kir.learning.cards.card import Card, Use
from kir.learning.cards.search import COLUMNS, LISTED, WEIGHTS, Index, Query, Rank, begins, skill
from kir.learning.cards.use import applicable
from kir.learning.evidence.walked import Walked
from kir.learning.induce.trials import UNKNOWN
from kir.learning.induce.uses import SHORT
from kir.rewrite import Context

ROUNDS = 400
RATE = 0.5
KEPT = 0.02
"""How strongly weights are drawn back to those that are used before any are learned (the prior of the regression)."""
DRAWN, NEWTON, NEAR = 3.0, 8, 1e-3
"""How strongly what a feature adds to a card's log odds is drawn to nothing, and steps of Newton's method that find it: so many, or until one is so small."""
LEAST_SEEN, LEAST_ADDED = 8, 0.01
"""A feature that fewer states have, or lack, teaches nothing; and what adds less is left out."""
MOST_TELLING = 400
"""Features that a card's log odds are learned from, those that tell most by themselves."""
LEAST = 20
"""States from which an order is learned."""
LEAST_FILES = 20
"""Files of kernels from which the weights are learned on those that are held out: of fewer each part has too much."""
LEAST_APPLIED = 5
"""States at which a skill applies from which its own log odds are learned; of others they are those of the mean of all skills."""
SELDOM = 0.0
"""Those of a card of which, or of all, nothing is known: as often used where it applies as not, which is what skills are in the mean."""
PARTS = 5
"""Parts of the files that are held out in turn where the weights and the score from which a card is likely are looked for."""
FAMILY_PARTS = 2
"""Parts of the families. Of one family in many parts relatives are among the rest, which a kernel of a new family has not."""
MOST = 3000
"""States that are looked at, evenly spread over all."""


@dataclass(frozen=True)
class Seen:
    """A state of a lineage: what is asked at it, which of some cards apply there, and which of these the expert used from there on; the kernel's family, and
    the file that it is of."""

    query: Query
    applies: tuple[bool, ...] = field(repr=False)
    used: tuple[bool, ...] = field(repr=False)
    family: str = ""
    file: str = ""


def seen(cards: Sequence[Card], walks: Sequence[Walked], workers: int = 1) -> tuple[Seen, ...]:
    """States at which some of the cards apply that are used from there on, and some that are not: the uses that a card was lifted from, so that of two cards of
    one pass each learns from its own."""
    if not cards:
        return ()
    numbers, every = count(), -(-sum(len(walk.transitions) for walk in walks) // MOST) or 1
    asked = [(w, k) for w, walk in enumerate(walks) for k in range(len(walk.transitions)) if not next(numbers) % every]
    if workers < 2:
        found = [_seen(cards, walks[w], k) for w, k in asked]
    else:
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork"), initializer=_begin, initargs=(cards, walks)) as pool:
            found = list(pool.map(_at, asked, chunksize=4))
    return tuple(each for each in found if any(each.used) and each.used != each.applies)


_CARDS: list[Card] = []
_WALKS: list[Walked] = []
"""What a process of the pool works on; filled once when it begins."""


def _begin(cards: Sequence[Card], walks: Sequence[Walked]) -> None:
    _CARDS[:], _WALKS[:] = cards, walks


def _at(asked: tuple[int, int]) -> Seen:
    return _seen(_CARDS, _WALKS[asked[0]], asked[1])


def _seen(cards: Sequence[Card], walk: Walked, k: int) -> Seen:
    aim = target(walk.targets[-1]) if walk.targets else None
    program = walk.program(walk.transitions[k].before_text)
    steps = {(walk.kernel, t.number, t.before[:SHORT]) for t in walk.transitions[k:]}
    applies = tuple(next(applicable(card, program, Context(aim)), None) is not None for card in cards)
    used = tuple(held and not steps.isdisjoint((use.kernel, use.transition, use.before) for use in card.evidence.uses)
                 for card, held in zip(cards, applies, strict=True))
    query = replace(Query.of(program, aim, walk.surface), applies=frozenset(card.name for card, held in zip(cards, applies, strict=True) if held))
    return Seen(query, applies, used, walk.family, walk.kernel.partition("::")[0])


def learned(cards: Sequence[Card], states: Sequence[Seen], held_out: int = PARTS, workers: int = 1) -> Rank:
    """The order of cards by states: what each feature adds to the log odds that a card which applies is used (a logistic regression for the cards of the
    same steps), then the weights by another one over all cards, none below 0. The usual order where there are too few states. Words are not asked for in
    a lineage, so that their weight stays. The weights, and the score from which a card is likely, are those by which states come out best of whose files (or,
    for kernels of other families, of whose families) neither the odds nor what the cards say of themselves know: what is known is told apart better than what
    comes will be. Skills are learned side by side in so many threads."""
    if len(states) < LEAST:
        return Rank()
    found = _odds(cards, states, workers)
    others = _rows(cards, states, min(held_out, FAMILY_PARTS), lambda each: each.family, lambda use: use.family, workers)
    if len({each.file for each in states}) < LEAST_FILES or not others:
        weights, least = _weighed(cards, list(zip(states, _columns(cards, states, found), strict=True)))
        return Rank(weights, found, _least(_scored(cards, weights, others)) if others else least)
    weights, least = _weighed(cards, _rows(cards, states, held_out, lambda each: each.file, lambda use: use.kernel.partition("::")[0], workers))
    elsewhere, least_elsewhere = _weighed(cards, others)
    return Rank(weights, found, least, elsewhere, least_elsewhere, frozenset({each.query.case for each in states} - UNKNOWN))


Row = tuple[Seen, np.ndarray[Any, Any]]
"""A state, and the columns of all cards there."""


def _rows(cards: Sequence[Card], states: Sequence[Seen], held_out: int, of_state: Callable[[Seen], str], of_use: Callable[[Use], str],
          workers: int) -> list[Row]:
    """The states in so many parts (of families, or of files), each with the columns that the cards have there without a part's uses and states."""
    by_size = sorted({of_state(each) for each in states}, key=lambda name: (-sum(of_state(each) == name for each in states), name))
    out = list[Row]()
    for k in range(held_out if len(by_size) > 1 else 0):
        part = set(by_size[k::held_out])
        rest, own = ([each for each in states if (of_state(each) in part) == within] for within in (False, True))
        if len(rest) >= LEAST:
            out += zip(own, _columns([outside(card, partial(_is_of, of_use, part)) for card in cards], own, _odds(cards, rest, workers)), strict=True)
    return out


def _is_of(of_use: Callable[[Use], str], part: set[str], use: Use) -> bool:
    return of_use(use) in part


def _weighed(cards: Sequence[Card], rows: Sequence[Row]) -> tuple[dict[str, float], float]:
    """The weights that tell used cards from others in some states, and the score from which a card is likely there."""
    held = [np.array(each.applies) for each, _ in rows]
    x = np.concatenate([columns[own] for (_, columns), own in zip(rows, held, strict=True)])
    y = np.concatenate([np.array(each.used)[own] for (each, _), own in zip(rows, held, strict=True)]).astype(np.float64)
    weights = {name: float(f"{value:.3g}") for name, value in zip(COLUMNS, _fitted(x, y), strict=True)}
    return weights, _least(_scored(cards, weights, rows))


def outside(card: Card, within: Callable[[Use], bool]) -> Card:
    """A card as it speaks for itself without some of its uses (those of a family): the scope, the number of kernels and the trials that the others give it."""
    uses = [use for use in card.evidence.uses if not within(use)]
    if len(uses) == len(card.evidence.uses):
        return card
    gone = {use.kernel for use in card.evidence.uses} - {use.kernel for use in uses}
    scope = card.scope.model_copy(update={"families": tuple(sorted({use.family for use in uses})), "surfaces": tuple(sorted({use.surface for use in uses})),
                                          "platforms": card.scope.platforms if uses else ()})
    evidence = card.evidence.model_copy(update={"kernels": len({use.kernel for use in uses}), "uses": tuple(uses)})
    return card.model_copy(update={"scope": scope, "evidence": evidence, "log": tuple(entry for entry in card.log if entry.kernel not in gone)})


def _columns(cards: Sequence[Card], states: Sequence[Seen], found: Mapping[str, tuple[float, Mapping[str, float]]]) -> Iterator[np.ndarray[Any, Any]]:
    """The columns of each state, with what states say."""
    index = Index.of(cards)
    names = sorted({name for _, added in found.values() for name in added})
    at = {name: k for k, name in enumerate(names)}
    added = np.zeros((len(names), len(cards)))
    for k, card in enumerate(cards):
        own = found[card.name][1]
        added[[at[name] for name in own], k] = list(own.values())
    said = np.array([found[card.name][0] for card in cards]) + _has(states, names) @ added
    for each, row in zip(states, said, strict=True):
        made = index.columns(each.query)
        made[:, COLUMNS.index("state")] = row
        yield made


def _has(states: Sequence[Seen], names: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Which states have which features; one row a state."""
    at = {name: k for k, name in enumerate(names)}
    out = np.zeros((len(states), len(names)))
    for row, each in enumerate(states):
        out[row, [at[name] for name in each.query.state if name in at]] = 1.0
    return out


def _scored(cards: Sequence[Card], weights: Mapping[str, float], rows: Iterable[Row]) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Of each state the scores of the hits that it has (cards that begin with the same step are one, and the best of them counts), and which were used."""
    by, names = np.array([weights[name] for name in COLUMNS]), [begins(card) for card in cards]
    out = []
    for each, columns in rows:
        scores, best, used = columns @ by, dict[str, float](), dict[str, bool]()
        for name, applies, was, score in zip(names, each.applies, each.used, scores, strict=True):
            if applies:
                best[name], used[name] = max(score, best.get(name, score)), was or used.get(name, False)
        out.append((np.array([*best.values()]), np.array([*used.values()])))
    return out


def _least(rows: Sequence[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]) -> float:
    """The score from which a card is listed for which the poorer of precision and recall of what is listed is highest."""
    def poorer(least: float) -> float:
        precision, recall = list[float](), list[float]()
        for scores, used in rows:
            first = np.argsort(-scores, kind="stable")[:LISTED]
            first = first[[k == 0 or scores[each] >= least for k, each in enumerate(first)]]
            hits = int(used[first].sum())
            precision.append(hits / len(first))
            recall.append(hits / min(LISTED, int(used.sum())))
        return min(sum(precision), sum(recall))
    every = np.concatenate([scores for scores, _ in rows])
    return float(f"{max(np.quantile(every, np.linspace(0, 1, 41)), key=poorer):.3g}")


def _odds(cards: Sequence[Card], states: Sequence[Seen], workers: int) -> Mapping[str, tuple[float, Mapping[str, float]]]:
    """Of each card what states say of it: of all cards of its steps together, since what is named in a store and in a value is named for one reason."""
    counts = Counter(name for each in states for name in each.query.state)
    names = sorted(name for name, count in counts.items() if LEAST_SEEN <= count <= len(states) - LEAST_SEEN)
    has = _has(states, names)
    applies, used = np.array([each.applies for each in states]), np.array([each.used for each in states])
    together: dict[str, list[int]] = {}
    for k, card in enumerate(cards):
        together.setdefault(skill(card), []).append(k)
    seldom = _in_the_mean([(np.asarray(applies[:, some].any(axis=1)), np.asarray(used[:, some].any(axis=1))) for some in together.values()])

    def of_skill(some: Sequence[int]) -> tuple[float, Mapping[str, float]]:
        own = applies[:, some].any(axis=1)
        if own.sum() < LEAST_APPLIED:
            return seldom, {}
        x, y = has[own], np.asarray(used[own][:, some].any(axis=1), np.float64)
        telling = _telling(x, y)
        added, bias = _regression(x[:, telling], y)
        return float(f"{bias:.3g}"), {names[n]: float(f"{value:.3g}") for n, value in zip(telling, added, strict=True) if abs(value) >= LEAST_ADDED}
    with ThreadPoolExecutor(workers) as pool:
        out = {cards[k].name: found for some, found in zip(together.values(), pool.map(of_skill, together.values()), strict=True) for k in some}
    return {card.name: out[card.name] for card in cards}


def _in_the_mean(skills: Sequence[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]) -> float:
    """The log odds that a skill is used where it applies, by the mean of skills that apply somewhere: what is told of one that hardly any state shows. Steps
    that few kernels have are mostly the last of a plan, and used where they apply; to leave them last missed more than it spared."""
    shares = [(uses.sum() + 0.5) / (own.sum() + 1) for own, uses in skills if own.any()]
    mean = float(np.mean(shares)) if shares else 0.5
    return float(f"{np.log(mean / (1 - mean)):.3g}") if shares else SELDOM


def _telling(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The features, by number, that by themselves tell most of whether a card is used (the score test of each), at most so many."""
    share = x.mean(axis=0)
    spread = np.sqrt(share * (1 - share) * len(x))
    found = np.abs(x.T @ (y - y.mean())) / np.where(spread > 0, spread, np.inf)
    return np.sort(np.argsort(-found, kind="stable")[:MOST_TELLING])


def _regression(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], float]:
    """Weights and bias of a logistic regression with a quadratic penalty, by Newton's method."""
    wide = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    weights, drawn = np.zeros(wide.shape[1]), np.array([DRAWN] * x.shape[1] + [DRAWN / 10])
    for _ in range(NEWTON):
        said = 1 / (1 + np.exp(-np.clip(wide @ weights, -30, 30)))
        curved = (wide * (said * (1 - said))[:, None]).T @ wide + np.diag(drawn)
        step = np.linalg.solve(curved, wide.T @ (said - y) + drawn * weights)
        weights = weights - step
        if np.abs(step).max() < NEAR:
            break
    return weights[:-1], float(weights[-1])


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
