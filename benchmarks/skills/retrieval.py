"""Planted states: are the cards found that an expert uses from there on?"""
from __future__ import annotations

import hashlib
import random
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from benchmarks.skills.given import Given, Rows, side_by_side
from benchmarks.skills.states import State, seen, states, walk_of
from kir.hardware.target import target
from kir.learning.cards.card import Card
from kir.learning.cards.library import CardStore, Library, library
from kir.learning.cards.search import Index, Query, Rank, begins
from kir.learning.cards.use import materialized
from kir.learning.forecast import Analytic, Pair
from kir.learning.induce.rank import Seen, learned, outside
from kir.learning.induce.transfers import FASTER
from kir.learning.induce.trials import FAULTS, sizes_of
from kir.rewrite import Context

SYNTHETIC = 100_000
TOP = 5

ARMS = ("all facets", "no scope", "usual order", "no state", "text only")
KNOWN, PARTS, HELD_OUT = "all facets, family seen", 5, 3
"""The arm whose order was learned from all states but those of kernels in a part of the files: other kernels of the family are known, as to a user's kernel;
parts; and the parts of the rest that are held out where it is learned from which score on a card is likely."""
APART = "the same, each card a hit of its own"
NEAREST = "the same, by the states that are most alike"
TWICE = (KNOWN, "all facets")
GAIN, TIMED, MOVED = ": right too where it is forecast to gain", ": of what is forecast to change the time there", 1.01
"""Arms of which there are two rows more: with hits right that the expert did not use and that are forecast to gain, and without the hits that are forecast to
leave the kernel there as fast as it is, within so much."""
ALIKE, PRIOR = 20, 0.3
"""Of the arm that lets states vote: the power of what two have in common by which one counts, and how much all together count beside them."""
LOOKING = 0.4
"""Of the time that is given, the part in which states are looked at; what is looked at is learned from and asked in the rest."""
FACETS = ("case", "surface", "platform", "prior")


def retrieval(given: Given) -> str:
    """Precision and recall at five on planted states; the time to search many cards, and to load the library."""
    quick = speed(given)
    cases = [(w.key, k) for w in given.walks for k in range(len(w.transitions))]
    random.Random(given.seed).shuffle(cases)
    found = states(cases[:given.most], replace(given, within=LOOKING * given.within))
    given = given if given.ranks else ranked(given, found.values())
    scores: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for arm, *row in side_by_side(_retrieved, [state for state in found.values() if state.relevant], given):
        scores[arm].append(tuple(row))
    rows = [f"| {arm} | {len(s)} | {' | '.join(f'{sum(column) / len(s):.2f}' for column in zip(*s, strict=True))} |" for arm, s in scores.items() if s]
    said = [
        "A planted state is a program of a lineage with the steps after it undone; relevant are the admitted cards that apply there and that the expert used "
        "from there on: a step of the expert's is among the uses that the card was lifted from, or the card makes it, or its next program. Cards that "
        f"begin with the same step are one hit, as in `kir skills search`, but in *{APART}*. In *{NEAREST}* the states "
        "that share most features with the kernel's vote, and hits are listed that more than half of the votes speak for. Of the first "
        f"{TOP} hits that apply those are listed that recorded outcomes speak for (at least one). The order of cards, and whether outcomes speak for one, is "
        f"learned without a fifth of the families, that of the state's kernel among them, and the cards' own scope and trials are without them; in *{KNOWN}* "
        "without a fifth of all files, the kernel's among them. "
        f"It is learned from the {len(given.seen)} states that were looked at. Precision is of those listed, recall of the relevant ones, at most "
        f"{TOP}; precision at R is of as many as are relevant. *right too where it is forecast to gain*: what is listed and was not used counts as right "
        f"where it is forecast to be {100 * FASTER - 100:.0f} % faster or more, carried out wherever it applies. *of what is forecast to change the time "
        f"there*: without the hits, used or not, that are forecast to leave the kernel there as fast as it is, within {100 * MOVED - 100:.0f} %: they name "
        "values, choose spellings or make way, and whether an expert names a value is mostly how the text was written. *usual order*: without anything "
        "learned; *text only*: by the words of the kernel's name and family. States are taken in an order that the seed decides, those without a relevant "
        "card left out."]
    return "\n".join(["# Retrieval", "", "How often a search of the library lists what an expert used.", "", *said, "",
                      f"| arm | states | listed | precision | recall | precision at R, at most {TOP} |",
                      "| --- | ---: | ---: | ---: | ---: | ---: |", *rows, "",
                      quick, ""])


def speed(given: Given) -> str:
    """How long a search of many synthetic cards takes, and loading the library."""
    load = _loaded(given)
    (seconds, *_), = side_by_side(_timed, (0,), replace(given, workers=2, within=0.0))  # a process of its own: what searches words may bring threads
    return (f"{SYNTHETIC:,} synthetic cards are searched by facets, state and words in {1000 * seconds:.1f} ms (median of 9); the library of "
            f"{len(given.cards)} cards is loaded in {1000 * load:.0f} ms.")


def ranked(given: Given, found: Iterable[State], by_files: bool = True) -> Given:
    """With the orders of cards that are learned from states without each part of the families, and `by_files` without each part of the files."""
    given = replace(given, seen=tuple(each for each, in side_by_side(_seen, list(found), replace(given, within=0.0))))
    parts = {part_of(each.file) for each in given.seen if by_files}
    without = sorted({_kin(each.family) for each in given.seen} | parts)
    return replace(given, ranks=dict(zip(without, (rank for rank, in side_by_side(_ranked, without, replace(given, within=0.0))), strict=True)))


def _seen(state: State, given: Given) -> Rows:
    return [(seen(state, given),)]


def part_of(file: str) -> str:
    """The part of the files (or families) that one is in, by its hash."""
    return f"part {int(hashlib.sha256(file.encode()).hexdigest(), 16) % PARTS + 1}"


def _kin(family: str) -> str:
    """The part of the families that one is in."""
    return f"families, {part_of(family)}"


def _ranked(without: str, given: Given) -> Rows:
    some = [each for each in given.seen if any(each.used) and each.used != each.applies and without not in (_kin(each.family), part_of(each.file))]
    return [(learned(_unaware(given, without), some, HELD_OUT),)]


def _unaware(given: Given, part: str) -> tuple[Card, ...]:
    """The cards as they speak for themselves without a part of the families, or of the files."""
    return tuple(outside(card, lambda use: part in (_kin(use.family), part_of(use.kernel.partition("::")[0]))) for card in given.admitted)


def _retrieved(state: State, given: Given) -> Rows:
    """For each arm how many are listed, precision, recall and precision at R, at one state."""
    query, called = seen(state, given), {card.name: begins(card) for card in given.admitted}
    out: Rows = []
    brings = _brings(state, given)
    idle = _idle(brings)
    for arm in (KNOWN, APART, NEAREST, *ARMS):
        relevant = state.relevant if arm == APART else {called[name] for name in state.relevant}
        order, listed = hits(given, query, state, arm)
        top = order[:listed]
        out.append((arm, *_judged(relevant, top, order)))
        if arm in TWICE:
            also = {name for name in top if max(brings.get(name, ()), default=0.0) >= FASTER}
            out.append((arm + GAIN, len(top), len((relevant | also) & set(top)) / max(1, len(top)), *_judged(relevant, top, order)[2:]))
        if arm in TWICE and relevant - idle:
            order, listed = hits(given, query, state, arm, idle)
            out.append((arm + TIMED, *_judged(relevant - idle, order[:listed], order)))
    return out


def _judged(relevant: set[str] | frozenset[str], top: list[str], order: list[str]) -> tuple[float, ...]:
    """How many are listed, precision, recall, and precision at as many as are relevant."""
    right, many = len(relevant & set(top)), min(TOP, len(relevant))
    return len(top), right / max(1, len(top)), right / many, len(relevant & set(order[:many])) / many


def _idle(brings: Mapping[str, Sequence[float]]) -> set[str]:
    """The hits all of whose cards are forecast to change nothing."""
    return {name for name, ratios in brings.items() if all(1 / MOVED < ratio < MOVED for ratio in ratios)}


def _brings(state: State, given: Given) -> Mapping[str, Sequence[float]]:
    """What the cards that apply at a state, carried out wherever each does, are forecast to bring there, by what the hits are called."""
    walk, found = walk_of(given, state.case[0]), dict[str, list[float]]()
    before, aim = walk.program(walk.transitions[state.case[1]].before_text), target(walk.targets[-1])
    for card in given.admitted:
        if card.name in state.offers:
            with suppress(*FAULTS):
                made = materialized(card, before, Context(aim)).program
                ratio = Analytic()(Pair(before, made, sizes_of(walk, made), aim, surface=walk.surface or "cuda")).median
                found.setdefault(begins(card), []).append(ratio)
    return found


def hits(given: Given, about: Seen, state: State, arm: str, but: Collection[str] = ()) -> tuple[list[str], int]:
    """The hits in the order of `search`, of those that apply (without a state, of all), by what their cards have in common, all `but` some; and how many of the
    first five outcomes speak for, at least one."""
    part, offers, query = part_of(about.file), state.offers, about.query
    without = {KNOWN: part, APART: part}.get(arm, _kin(about.family))
    rank = given.ranks.get(without, Rank())
    match arm:
        case "no scope":
            known, others = ({name: 0.0 if name in FACETS else value for name, value in some.items()} for some in (rank.weights, rank.elsewhere))
            rank = replace(rank, weights=known, elsewhere=others)
        case "usual order":
            rank = Rank()
        case "no state":
            query, rank, offers = replace(query, features=frozenset(), places=frozenset()), replace(rank, states={}), frozenset(c.name for c in given.admitted)
        case "text only":
            words = " ".join((about.family, *re.findall(r"[a-z0-9]+", state.case[0].partition("|")[0].rpartition("::")[2].lower())))
            rank = Rank({name: float(name == "words") for name in rank.weights})
            query, offers = Query(frozenset(), frozenset(), words=words), frozenset(c.name for c in given.admitted)
    least, scored = rank.at(query.case)[1], list[tuple[int, float]]()
    if arm == NEAREST:
        least, scored = 0.5, _voted(given, about, part)
    else:
        index = _indices.get((arm, without))
        if index is None or index.rank != rank or [c.name for c in index.cards] != [c.name for c in given.admitted]:
            index = _indices[arm, without] = Index.of(_unaware(given, without), rank)  # what it works out on first use serves all its states
        scored = index.best(query, len(given.admitted))
    found = dict[str, float]()
    for k, score in scored:
        card = given.admitted[k]
        if card.name in offers and begins(card) not in but:
            found.setdefault(card.name if arm == APART else begins(card), score)
    return list(found), sum(k == 0 or score >= least for k, score in enumerate([*found.values()][:TOP]))


def _voted(given: Given, about: Seen, part: str) -> list[tuple[int, float]]:
    """The cards by the share of the votes of other files' states, each of which counts by the features that it shares with this one."""
    if part not in _votes:
        some = [each for each in given.seen if part_of(each.file) != part]
        if not some:
            return []
        names = {name: k for k, name in enumerate(sorted({name for each in some for name in each.query.state}))}
        has = np.zeros((len(some), len(names)), np.float32)
        for row, each in enumerate(some):
            has[row, [names[name] for name in each.query.state]] = 1.0
        _votes[part] = names, has, np.array([each.applies for each in some], np.float32), np.array([each.used for each in some], np.float32)
    names, has, applies, used = _votes[part]
    own = about.query.state
    both = has[:, [names[name] for name in own if name in names]].sum(axis=1)
    alike = (both / (has.sum(axis=1) + len(own) - both)) ** ALIKE
    share = (alike @ used + PRIOR * used.mean(axis=0)) / (alike @ applies + PRIOR * applies.mean(axis=0) + 1e-9)
    return [(int(k), float(share[k])) for k in np.argsort(-share, kind="stable")]


_votes: dict[str, tuple[dict[str, int], np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]] = {}
_indices: dict[tuple[str, str], Index] = {}


def _timed(_: int, given: Given) -> list[tuple[float]]:
    return [(_searched(given),)]


def _searched(given: Given) -> float:
    pick = random.Random(given.seed)
    some = list(given.cards)
    drawn = [some[pick.randrange(len(some))] for _ in range(SYNTHETIC)]
    cards = [card.model_copy(update={"name": f"c{n}"}) for n, card in enumerate(drawn)]
    known = Library((CardStore(given.folder),)).rank if given.folder else library().rank
    states = {card.name: known.states[old.name] for card, old in zip(cards, drawn, strict=True) if old.name in known.states}
    index = Index.of(cards, Rank(known.weights, states))
    query = Query(frozenset({"shared", "mma", "threads"}), frozenset({"for", "mma", "kernel"}), "matmul", "cuda", "sm_90a", "stage a tile in shared memory")
    index.best(query)
    times = []
    for _ in range(9):
        begun = time.perf_counter()
        index.best(query)
        times.append(time.perf_counter() - begun)
    return median(times)


def _loaded(given: Given) -> float:
    begun = time.perf_counter()
    found = Library((CardStore(given.folder),)) if given.folder else library()
    assert len(found.cards) == len(given.cards)
    return time.perf_counter() - begun
