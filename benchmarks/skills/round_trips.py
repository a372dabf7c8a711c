"""From naive by admitted skills alone: which steps of an expert's they make, and where the program that they make is as fast."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from benchmarks.skills.given import Given, Rows, share, side_by_side
from benchmarks.skills.retrieval import ARMS, first, ranked
from benchmarks.skills.states import State, seen, states, walk_of
from kir.hardware.target import Target, target
from kir.learning.cards.search import skill
from kir.learning.evidence.walked import Walked
from kir.learning.forecast import Analytic, Pair
from kir.learning.induce.transfers import FAULTS
from kir.learning.induce.trials import AS_FAST, sizes_of
from kir.learning.optimize.lift import lifted
from kir.learning.optimize.plan import Plan
from kir.rewrite import Context, Step
from kir.rewrite.residue import NOTHING

TARGET = "sm_90a"
WITHOUT = "without cards"


def round_trips(given: Given) -> str:
    """The table."""
    walks = [w for w in given.walks if w.ended == "naive"][:given.most]
    looked = states([(w.key, k) for w in walks for k in range(len(w.transitions))], given)
    given = ranked(given, looked.values(), by_files=False)
    whole_ones = [[looked.get((w.key, k)) for k in range(len(w.transitions))] for w in walks]
    found = side_by_side(_tripped, [each for each in whole_ones if each and None not in each], replace(given, within=0.0))
    arms = (*ARMS, WITHOUT)
    steps = sum(row[2] for row in found)
    whole, fast = sum(row[3] == row[2] for row in found), sum(row[4] for row in found)
    made = Counter[str]()
    trips = Counter[str]()
    for _, _, count, _, _, by_arm in found:
        for arm in arms:
            made[arm] += by_arm[arm]
            trips[arm] += by_arm[arm] == count
    head = [f"{len(found)} lineages that end naive. An admitted card makes {share(sum(row[3] for row in found), steps)} of their steps (pass, parameters "
            f"and place of the expert's, or its program). {whole} lineages come back to their expert's program; in {fast} more the steps that cards make, "
            f"taken alone from the naive program, lead to one that is forecast as fast: {share(whole + fast, len(found))} come back.", "",
            "A step counts for an arm if a card that makes it is among the first five hits that apply, in the order of that arm. *without cards*: each pass "
            "with its own defaults at the expert's place, as a search that knows no lineage would offer it.", "",
            "| arm | steps | lineages whole |", "| --- | ---: | ---: |", *(f"| {arm} | {made[arm]} | {trips[arm]} |" for arm in arms)]
    rows = [f"| `{kernel}` | {family} | {count} | {ours} | {'whole' if ours == count else 'as fast' if as_fast else 'no'} | {by_arm['all facets']} | "
            f"{by_arm[WITHOUT]} |" for kernel, family, count, ours, as_fast, by_arm in found]
    return "\n".join(["# Round trips by admitted skills alone", "", *head, "",
                      "| kernel | family | steps | by admitted cards | comes back | by the first five | without cards |",
                      "| --- | --- | ---: | ---: | --- | ---: | ---: |", *rows, ""])


def _tripped(chain: Sequence[State], given: Given) -> Rows:
    """Of one lineage: how many steps it has, how many admitted cards make, whether those alone give a program as fast, and by arm how many are made."""
    walk = walk_of(given, chain[0].case[0])
    ours, by_arm, called = list[Step](), Counter[str](), {card.name: skill(card) for card in given.admitted}
    for state, transition in zip(chain, walk.transitions, strict=True):
        step = Step.from_json(transition.step)
        ours += [replace(step, residue=NOTHING, path=None, hash="")] if state.makes else []
        if state.makes:
            about = seen(state, given)
            by_arm.update({arm: not {called[name] for name in state.makes}.isdisjoint(first(given, about, state, arm)) for arm in ARMS})
        by_arm[WITHOUT] += state.plain
    count, aim = len(chain), target(walk.targets[-1]) if walk.targets else target(TARGET)
    return [(walk.kernel, walk.family, count, len(ours), len(ours) < count and _as_fast(walk, ours, aim), by_arm)]


def _as_fast(walk: Walked, steps: list[Step], aim: Target) -> bool:
    """Whether some steps, each where it applies, lead from the naive program to one that is forecast as fast as the expert."""
    expert = walk.program(walk.transitions[-1].after_text)
    with suppress(*FAULTS):
        made = lifted(walk.program(walk.transitions[0].before_text), Plan(walk.kernel, tuple(steps)), Context(aim)).program
        return Analytic()(Pair(expert, made, sizes_of(walk, made), aim, surface=walk.surface or "cuda")).median >= AS_FAST
    return False
