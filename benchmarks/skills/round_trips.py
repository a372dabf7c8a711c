"""From naive by admitted skills alone: which steps of an expert's they make, and where the program that they make is as fast."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from benchmarks.skills.given import Given, Rows, share, side_by_side
from benchmarks.skills.retrieval import ARMS, TOP, hits, ranked
from benchmarks.skills.states import State, seen, states, walk_of
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.learning.cards.card import Card
from kir.learning.cards.search import skill
from kir.learning.cards.use import NAMING, applicable
from kir.learning.evidence.walked import Walked
from kir.learning.forecast import Analytic, Pair
from kir.learning.induce.settled import settled_hash
from kir.learning.induce.transfers import FAULTS
from kir.learning.induce.trials import AS_FAST, TRIES, sizes_of
from kir.learning.optimize.lift import LEAST_LIKE, alike, names_things
from kir.rewrite import Context, Pipeline, Step, run
from kir.rewrite.options import Option

TARGET = "sm_90a"
WITHOUT = "without cards"
@dataclass(frozen=True)
class Way:
    """What a step that is taken instead of an expert's must share with it: its numbers, the texts that name things of a kernel, its place."""

    numbers: bool = False
    texts: bool = False
    place: bool = False


WAYS = (Way(), Way(numbers=True), Way(texts=True), Way(numbers=True, texts=True), Way(place=True))
MOST_ALIKE = 64
"""Applications of a card that are asked how like a step they are."""


def round_trips(given: Given) -> str:
    """The table."""
    walks = [w for w in given.walks if w.ended == "naive"][:given.most]
    looked = states([(w.key, k) for w in walks for k in range(len(w.transitions))], given)
    given = given if given.ranks else ranked(given, looked.values(), by_files=False)
    whole_ones = [[looked.get((w.key, k)) for k in range(len(w.transitions))] for w in walks]
    found = side_by_side(_tripped, [each for each in whole_ones if each and None not in each], replace(given, within=0.0))
    arms = (*ARMS, WITHOUT)
    steps = sum(row[2] for row in found)
    whole, fast = sum(row[3] == row[2] for row in found), sum(row[3] < row[2] and row[4] >= AS_FAST for row in found)
    made = Counter[str]()
    trips = Counter[str]()
    for _, _, count, _, _, by_arm in found:
        for arm in arms:
            made[arm] += by_arm[arm]
            trips[arm] += by_arm[arm] == count
    head = [f"{len(found)} lineages that end naive. An admitted card makes {share(sum(row[3] for row in found), steps)} of their steps (pass, parameters "
            f"and place of the expert's, or its program but for where values are named). {whole} lineages come back to their expert's program; {fast} more to "
            f"one that is forecast as fast ({AS_FAST} of its speed or more): {share(whole + fast, len(found))} come back. There cards alone are applied to the "
            "naive program, one after the other: where none makes the expert's step, the application of a card of that pass that is most like it; where there "
            f"is none, nothing. Of {len(WAYS)} ways the fastest counts: any that is like it, or only one with its numbers, with its texts, with both, or at "
            "its place.", "",
            "A step counts for an arm if a card that makes it is among the first five hits that apply, in the order of that arm. *without cards*: each pass "
            "with its own defaults at the expert's place, as a search that knows no lineage would offer it.", "",
            "| arm | steps | lineages whole |", "| --- | ---: | ---: |", *(f"| {arm} | {made[arm]} | {trips[arm]} |" for arm in arms)]
    rows = [f"| `{kernel}` | {family} | {count} | {ours} | {_comes_back(count, ours, ratio)} | {by_arm['all facets']} | {by_arm[WITHOUT]} |"
            for kernel, family, count, ours, ratio, by_arm in found]
    return "\n".join(["# Round trips by admitted skills alone", "", *head, "",
                      "| kernel | family | steps | by admitted cards | comes back, or how fast beside the expert | by the first five | without cards |",
                      "| --- | --- | ---: | ---: | --- | ---: | ---: |", *rows, ""])


def _comes_back(count: int, ours: int, ratio: float) -> str:
    return "whole" if ours == count else "as fast" if ratio >= AS_FAST else f"{ratio:.2f}" if ratio else "no"


def _tripped(chain: Sequence[State], given: Given) -> Rows:
    """Of one lineage: how many steps it has, how many admitted cards make, how fast what cards alone come to is forecast beside the expert, and by arm how
    many steps are made."""
    walk = walk_of(given, chain[0].case[0])
    by_arm, called = Counter[str](), {card.name: skill(card) for card in given.admitted}
    for state in chain:
        if state.makes:
            about = seen(state, given)
            by_arm.update({arm: not {called[name] for name in state.makes}.isdisjoint(hits(given, about, state, arm)[0][:TOP]) for arm in ARMS})
        by_arm[WITHOUT] += state.plain
    count, made = len(chain), sum(bool(state.makes) for state in chain)
    return [(walk.kernel, walk.family, count, made, 1.0 if made == count else _beside(walk, chain, given), by_arm)]


def _beside(walk: Walked, chain: Sequence[State], given: Given) -> float:
    """How many times as fast as the expert's the program is forecast that admitted cards alone make of the naive one; 0 where no forecast is made."""
    aim = target(walk.targets[-1] if walk.targets else TARGET)
    expert, best = walk.program(walk.transitions[-1].after_text), 0.0
    for way in WAYS:
        with suppress(*FAULTS):
            made = made_by_cards(walk, chain, given, Context(aim), way)
            best = max(best, Analytic()(Pair(expert, made, sizes_of(walk, made), aim, surface=walk.surface or "cuda")).median)
    return best


def made_by_cards(walk: Walked, chain: Sequence[State], given: Given, context: Context, way: Way) -> Program:
    """The program to which admitted cards alone lead from the naive one along a lineage: at each step the expert's next program where a card makes it; else
    what that of their applications makes that is most like the step, of those that are as the `way` says. A step for which no card has one is left out."""
    by_pass: dict[str, list[Card]] = {}
    for card in given.admitted:
        if len(card.passes) == 1:
            by_pass.setdefault(card.passes[0], []).append(card)
    now, on = walk.program(walk.transitions[0].before_text), True
    for state, transition in zip(chain, walk.transitions, strict=True):
        if on and state.makes:
            now = walk.program(transition.after_text)
            continue
        made = _most_alike(by_pass.get(transition.name, ()), now, Step.from_json(transition.step), context, way)
        now, on = made or now, made is not None and settled_hash(made) == settled_hash(walk.program(transition.after_text))
        now = walk.program(transition.after_text) if on else now
    return now


def _most_alike(cards: Sequence[Card], now: Program, step: Step, context: Context, way: Way) -> Program | None:
    """What the application of a card makes whose parameters and place are most like those of a step, of the first few of each."""
    found = [each.steps[0] for card in cards for each in islice(applicable(card, now, context), MOST_ALIKE)]
    same = {k: v for k, v in step.options.items() if k != NAMING and (way.texts if names_things(v) else way.numbers or not isinstance(v, int))}
    some = [s for s in found if all(s.options.get(k) == v for k, v in same.items()) and (s.at == step.at or not way.place)]
    far = {id(s): _unlike(s, step) for s in some}
    for each in sorted((s for s in some if max(far[id(s)]) <= 1 - LEAST_LIKE), key=lambda s: (sum(far[id(s)][1:]), far[id(s)][0]))[:TRIES]:
        with suppress(*FAULTS):
            return run(now, Pipeline((each,)), context=context).program
    return None


def _unlike(one: Step, step: Step) -> tuple[float, ...]:
    """How far one step is from another: its place, then each of the parameters, those that name things of a kernel by their texts."""
    def apart(a: Option | None, b: Option) -> float:
        return 0.0 if a == b else 1.0 - alike(str(a), str(b)) if names_things(b) else 0.5
    place = 0.0 if one.at == step.at else (1.0 - alike(one.at, step.at)) * (1 - LEAST_LIKE)
    return (place, *(apart(one.options.get(k), v) for k, v in step.options.items() if k != NAMING))
