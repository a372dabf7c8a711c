"""From naive by admitted skills alone: which steps of an expert's they make, and where the program that they make is as fast."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from benchmarks.skills.given import Given, Rows, share, side_by_side
from benchmarks.skills.retrieval import ARMS, TOP, hits, ranked
from benchmarks.skills.states import State, seen, states, walk_of
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.learning.cards.card import Card
from kir.learning.cards.search import begins
from kir.learning.cards.use import NAMING, applicable, is_of
from kir.learning.evidence.walked import Walked
from kir.learning.forecast import Analytic, Pair
from kir.learning.induce.settled import settled_hash
from kir.learning.induce.transfers import said_by
from kir.learning.induce.trials import AS_FAST, FAULTS, TRIES, carried_out, sizes_of
from kir.learning.optimize.lift import LEAST_LIKE, alike, lifted, names_things
from kir.learning.optimize.plan import Plan
from kir.rewrite import Context, Pipeline, Step, run
from kir.rewrite.options import Option
from kir.rewrite.residue import NOTHING

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
ROUNDS, PLACES, GAIN, MOST_OTHERS = 8, 3, 1.002, 6
"""Cards that are added at the end, one after the other; places of each card that are looked at; what one must be forecast to bring; and other lineages whose
steps are taken."""


def round_trips(given: Given) -> str:
    """The table."""
    walks = [w for w in given.walks if w.ended == "naive" and not w.reason][:given.most]  # one that has a reason was not judged to its end
    looked = states([(w.key, k) for w in walks for k in range(len(w.transitions))], given)
    given = given if given.ranks else ranked(given, looked.values(), by_files=False)
    chains = [[looked[w.key, k] for k in range(len(w.transitions)) if (w.key, k) in looked] for w in walks]
    chains = [chain for w, chain in zip(walks, chains, strict=True) if chain and len(chain) == len(w.transitions)]
    found = side_by_side(_tripped, chains, replace(given, within=0.0))
    arms = (*ARMS, WITHOUT)
    steps = sum(row[2] for row in found)
    whole, fast = sum(row[3] == row[2] for row in found), sum(row[3] < row[2] and row[4] >= AS_FAST for row in found)
    made = Counter[str]()
    trips = Counter[str]()
    for _, _, count, _, _, by_arm, _ in found:
        for arm in arms:
            made[arm] += by_arm[arm]
            trips[arm] += by_arm[arm] == count
    head = [f"{len(found)} lineages that end naive. An admitted card makes {share(sum(row[3] for row in found), steps)} of their steps (pass, parameters "
            f"and place of the expert's, or its program but for where values are named). {whole} lineages come back to their expert's program; {fast} more to "
            f"one that is forecast as fast ({AS_FAST} of its speed or more): {share(whole + fast, len(found))} come back. There cards alone are applied to the "
            "naive program, one after the other: where none makes the expert's step, the application of a card of that pass that is most like it; where there "
            f"is none, nothing. Of {len(WAYS)} ways the fastest counts: any that is like it, or only one with its numbers, with its texts, with both, or at "
            "its place. Where none is as fast, the lineage's steps are taken that are in an admitted card's ranges, each lifted to what stands there, as "
            f"`kir optimize` does with plans, then those of at most {MOST_OTHERS} other lineages from the same naive program; and to the best of these at most "
            f"{ROUNDS} cards are added, each time the one that is forecast to bring most. A program counts that a surface says, its own before others.", "",
            "A step counts for an arm if a card that makes it is among the first five hits that apply, in the order of that arm. *without cards*: each pass "
            "with its own defaults at the expert's place, as a search that knows no lineage would offer it.", "",
            "| arm | steps | lineages whole |", "| --- | ---: | ---: |", *(f"| {arm} | {made[arm]} | {trips[arm]} |" for arm in arms)]
    rows = [f"| `{kernel}` | {family} | {count} | {ours} | {_comes_back(count, ours, ratio)} | {by_arm['all facets']} | {by_arm[WITHOUT]} |"
            for kernel, family, count, ours, ratio, by_arm, _ in found]
    lost = [f"- `{row[0]}`: {row[6]}." for row in found if row[3] < row[2] and row[4] < AS_FAST]
    lost = ["", "Those that do not come back, the steps that no admitted card makes there, and what their own cards lack:", "", *lost] if lost else []
    return "\n".join(["# Round trips by admitted skills alone", "", "How far admitted cards alone lead from naive programs back to the experts'.", "",
                      *head, *lost, "",
                      "| kernel | family | steps | by admitted cards | comes back, or how fast beside the expert | by the first five | without cards |",
                      "| --- | --- | ---: | ---: | --- | ---: | ---: |", *rows, ""])


def _lost(walk: Walked, chain: Sequence[State], given: Given) -> str:
    """Which steps of a lineage no admitted card makes, each with what its own cards lack."""
    out = []
    for state, t in zip(chain, walk.transitions, strict=True):
        if not state.makes:
            own = [card for card in given.cards if any((use.kernel, use.transition) == (walk.kernel, t.number) for use in card.evidence.uses)
                   and len(card.passes) == 1]
            why = "; ".join(dict.fromkeys(card.why if card.state != "admitted" else f"`{card.name}` is admitted, and offers it otherwise" for card in own))
            out.append(f"{t.number} `{t.name}` ({why or 'no card has it'})")
    return ", ".join(out)


def _comes_back(count: int, ours: int, ratio: float) -> str:
    return "whole" if ours == count else "as fast" if ratio >= AS_FAST else f"{ratio:.2f}" if ratio else "no"


def _tripped(chain: Sequence[State], given: Given) -> Rows:
    """Of one lineage: how many steps it has, how many admitted cards make, how fast what cards alone come to is forecast beside the expert, and by arm how
    many steps are made; what is said of those that no card makes."""
    walk = walk_of(given, chain[0].case[0])
    by_arm, called = Counter[str](), {card.name: begins(card) for card in given.admitted}
    for state in chain:
        if state.makes:
            about = seen(state, given)
            by_arm.update({arm: not {called[name] for name in state.makes}.isdisjoint(hits(given, about, state, arm)[0][:TOP]) for arm in ARMS})
        by_arm[WITHOUT] += state.plain
    count, made = len(chain), sum(bool(state.makes) for state in chain)
    return [(walk.kernel, walk.family, count, made, 1.0 if made == count else _beside(walk, chain, given), by_arm, _lost(walk, chain, given))]


def _beside(walk: Walked, chain: Sequence[State], given: Given) -> float:
    """How many times as fast as the expert's the program is forecast that admitted cards alone make of the naive one; 0 where no forecast is made."""
    aim = target(walk.targets[-1] if walk.targets else TARGET)
    context, expert = Context(aim), walk.program(walk.transitions[-1].after_text)
    sizes = sizes_of(walk, expert)  # of all that a program takes, those that the expert is for

    def fast(made: Program) -> float:
        surface = said_by(made, walk.surface or "cuda")
        return Analytic()(Pair(expert, made, sizes, aim, surface=surface)).median if surface else 0.0
    best, now = 0.0, None
    for make in _ways(walk, chain, given, context):
        with suppress(*FAULTS):
            made = make()
            best, now = max((best, now), (fast(made), made), key=lambda row: row[0])
        if best >= AS_FAST:
            return best
    for _ in range(ROUNDS):
        if now is None:
            break
        better = max(_one_more(now, given, context, fast), key=lambda row: row[0], default=(0.0, now))
        if better[0] <= GAIN * best:
            break
        best, now = better
        if best >= AS_FAST:
            break
    return best


def _ways(walk: Walked, chain: Sequence[State], given: Given, context: Context) -> Iterator[Callable[[], Program]]:
    """What may make a program of the naive one by admitted cards alone: the lineage's steps, each lifted; each like a step of the lineage; the steps of other
    lineages from the same naive program, those of its surface first."""
    yield partial(lifted_by_cards, walk, walk, given, context)
    yield from (partial(made_by_cards, walk, chain, given, context, way) for way in WAYS)
    first = settled_hash(walk.program(walk.transitions[0].before_text))
    others = [each for each in given.walks if each.problem == walk.problem and each.transitions and each.key != walk.key and each.ended == walk.ended
              and settled_hash(each.program(each.transitions[0].before_text)) == first]
    others.sort(key=lambda each: (each.surface != walk.surface, -len(each.transitions), each.key))
    yield from (partial(lifted_by_cards, walk, other, given, context) for other in others[:MOST_OTHERS])


def _one_more(now: Program, given: Given, context: Context, fast: Callable[[Program], float]) -> Iterator[tuple[float, Program]]:
    """What each admitted card makes of a program at its first places, each with how fast it is forecast."""
    for card in given.admitted:
        with suppress(*FAULTS):
            for made, _ in carried_out(islice(applicable(card, now, context), PLACES), now, context):
                yield fast(made), made


def lifted_by_cards(walk: Walked, plan: Walked, given: Given, context: Context) -> Program:
    """The program to which those steps of a lineage lead from the naive one of a walk that are in an admitted card's ranges, each lifted to what stands there:
    where a step before it is left out, its place and the texts that name things of the kernel are others."""
    steps = [replace(Step.from_json(t.step), residue=NOTHING, path=None, hash="") for t in plan.transitions]
    cards = [card for card in given.admitted if len(card.passes) == 1]
    ours = tuple(step for step in steps if any(is_of(card, step) for card in cards))
    came = lifted(walk.program(walk.transitions[0].before_text), Plan(plan.kernel, ours), context, most_left=len(ours))
    if not all(any(is_of(card, step) for card in cards) for step in came.steps):
        raise ValueError("a step became one that no admitted card has")
    return came.program


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
