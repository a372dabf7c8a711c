"""Planted states: are the cards found that an expert uses from there on?"""
from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import median

from benchmarks.skills.given import Given, side_by_side
from benchmarks.skills.round_trips import makes
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.learning.cards.library import CardStore, Library, library
from kir.learning.cards.search import MOST_LOOKED, Index, Query, Rank
from kir.learning.cards.use import applicable
from kir.learning.evidence.walked import Walked, parsed_ahead
from kir.learning.induce.rank import learned, seen
from kir.learning.induce.trials import told
from kir.rewrite import Context, Step

SYNTHETIC = 100_000
TOP = 5

def retrieval(given: Given) -> str:
    """Precision and recall at five on planted states; the time to search many cards, and to load the library."""
    load = _loaded(given)
    (seconds, *_), = side_by_side(_timed, (0,), replace(given, workers=2, within=0.0))  # a process of its own: what searches words may bring threads
    parsed_ahead((w.programs[t.before_text] for w in given.walks for t in w.transitions), given.workers)
    states = seen(given.admitted, given.walks)
    families = sorted({each.family for each in states})
    given = replace(given, states=states)
    given = replace(given, ranks=dict(zip(families, (rank for rank, in side_by_side(_ranked, families, given)), strict=False)))
    scores: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    cases = [(w.key, k) for w in given.walks if w.family in given.ranks for k in range(len(w.transitions))]
    random.Random(given.seed).shuffle(cases)
    for arm, *row in side_by_side(_retrieved, cases[:given.most], given):
        scores[arm].append(tuple(row))
    rows = [f"| {arm} | {len(s)} | {' | '.join(f'{sum(column) / len(s):.2f}' for column in zip(*s, strict=True))} |" for arm, s in scores.items() if s]
    return "\n".join(["# Retrieval", "", "A planted state is a program of a lineage with the steps after it undone; relevant are the admitted cards that make "
                      f"a step which the expert has from there on. Precision at {TOP} is of the first {TOP} that apply (few are relevant: the most that it can "
                      "be stands beside it), precision at R of as many as are relevant. The order of cards is learned without the family of the state's "
                      "kernel; *usual order*: "
                      "without anything learned. States are taken in an order that the seed decides, those without a relevant card left out.", "",
                      "| arm | states | precision at 5 | at most | precision at R, at most 5 | recall at 5 |",
                      "| --- | ---: | ---: | ---: | ---: | ---: |", *rows, "",
                      f"{SYNTHETIC:,} synthetic cards are searched by facets, state and words in {1000 * seconds:.1f} ms (median of 9); the library of "
                      f"{len(given.cards)} cards is loaded in {1000 * load:.0f} ms.", ""])


def _ranked(family: str, given: Given) -> list[tuple[Rank]]:
    return [(learned(given.admitted, [each for each in given.states if each.family != family]),)]


def _retrieved(case: tuple[str, int], given: Given) -> list[tuple[str, float, float, float, float]]:
    """For each arm its precision at five, the most that it can be there, its precision at R, and recall, at one state; nothing where no card is relevant."""
    walk, before, offers, relevant = offered(case, given)
    if not relevant:
        return []
    rank, query = given.ranks[walk.family], Query.of(before, target(walk.targets[-1]), walk.surface)
    facets = ("case", "surface", "platform", "prior")
    scope = replace(query, features=frozenset(), places=frozenset())
    arms = {"all facets": _first(given, query, rank, offers), "no scope": _first(given, query, _without(rank, facets), offers),
            "usual order": _first(given, query, Rank(), offers), "no state": _first(given, scope, Rank(rank.weights), {c.name for c in given.admitted})}
    out, many = [], min(TOP, len(relevant))
    for arm, top in arms.items():
        hits = len(relevant & set(top))
        out.append((arm, hits / max(1, len(top)), many / max(1, len(top)), len(relevant & set(top[:many])) / many, hits / many))
    return out


def offered(case: tuple[str, int], given: Given) -> tuple[Walked, Program, set[str], set[str]]:
    """A state of a walk (by its key, and the number of the step after it): the walk, the program, the names of the admitted cards that apply, and of those
    that make a step which the expert has from there on, or its next program."""
    walk = next(w for w in given.walks if w.key == case[0])
    later = walk.transitions[case[1]:]
    before, context = walk.program(later[0].before_text), Context(target(walk.targets[-1]))
    wanted = {told(Step.from_json(t.step)) for t in later}
    offers, relevant = set[str](), set[str]()
    for card in given.admitted:
        applications = list(applicable(card, before, context))
        if applications:
            offers.add(card.name)
        if any(told(step) in wanted for each in applications for step in each.steps) or (
                later[0].name in card.passes and makes(card, before, later[0], applications)):
            relevant.add(card.name)
    return walk, before, offers, relevant


def _without(rank: Rank, facets: Sequence[str]) -> Rank:
    return Rank({name: 0.0 if name in facets else value for name, value in rank.weights.items()}, rank.states)


def _first(given: Given, query: Query, rank: Rank, offers: Collection[str]) -> list[str]:
    """The first cards in the order of `search`, of those that apply."""
    order = Index.of(given.admitted, rank).best(query, max(TOP, MOST_LOOKED))
    return [name for name in (given.admitted[k].name for k, _ in order) if name in offers][:TOP]


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
