"""From naive by admitted skills alone: which steps of an expert's they make, and where the program that they make is as fast."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from benchmarks.skills.given import Given, Rows, share, side_by_side
from benchmarks.skills.retrieval import ARMS, first, ranked
from kir.base.diagnostic import KirError
from kir.hardware.target import Target, target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.learning.cards.use import Application, applicable
from kir.learning.evidence.walked import Transition, Walked
from kir.learning.forecast import Analytic, Pair
from kir.learning.induce.transfers import FAULTS
from kir.learning.induce.trials import AS_FAST, sizes_of, told
from kir.learning.optimize.lift import lifted
from kir.learning.optimize.plan import Plan
from kir.rewrite import Context, Pipeline, Step, pass_class, run, sites
from kir.rewrite.residue import NOTHING

TARGET = "sm_90a"
WITHOUT = "without cards"


def round_trips(given: Given) -> str:
    """The table."""
    given = ranked(given)
    walks = [w for w in given.walks if w.ended == "naive"][:given.most]
    found = side_by_side(_tripped, [w.key for w in walks], given)
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
            "A step counts for an arm if a card that makes it is among the first five that apply, in the order of that arm. *without cards*: each pass with "
            "its own defaults at the expert's place, as a search that knows no lineage would offer it.", "",
            "| arm | steps | lineages whole |", "| --- | ---: | ---: |", *(f"| {arm} | {made[arm]} | {trips[arm]} |" for arm in arms)]
    rows = [f"| `{kernel}` | {family} | {count} | {ours} | {'whole' if ours == count else 'as fast' if as_fast else 'no'} | {by_arm['all facets']} | "
            f"{by_arm[WITHOUT]} |" for kernel, family, count, ours, as_fast, by_arm in found]
    return "\n".join(["# Round trips by admitted skills alone", "", *head, "",
                      "| kernel | family | steps | by admitted cards | comes back | by the first five | without cards |",
                      "| --- | --- | ---: | ---: | --- | ---: | ---: |", *rows, ""])


def _tripped(key: str, given: Given) -> Rows:
    """Of one lineage: how many steps it has, how many admitted cards make, whether those alone give a program as fast, and by arm how many are made."""
    walk = next(w for w in given.walks if w.key == key)
    context, ours, by_arm = Context(target(walk.targets[-1])), list[Step](), Counter[str]()
    for transition, before, _ in walk.chain():
        offers = {card.name: found for card in given.admitted if (found := list(applicable(card, before, context)))}
        by = {name for name, found in offers.items() if makes(found, before, transition, context)}
        step = Step.from_json(transition.step)
        ours += [replace(step, residue=NOTHING, path=None, hash="")] if by else []
        for arm in ARMS if by else ():
            by_arm[arm] += not by.isdisjoint(first(given, walk, before, arm, offers))
        plain = {f"{site.params}@{step.at}" for site in sites(pass_class(step.name).with_options({}), before) if site.path == step.path}
        by_arm[WITHOUT] += told(step) in plain
    count = len(walk.transitions)
    return [(walk.kernel, walk.family, count, len(ours), len(ours) < count and _as_fast(walk, ours, context.target or target(TARGET)), by_arm)]


def _as_fast(walk: Walked, steps: list[Step], aim: Target) -> bool:
    """Whether some steps, each where it applies, lead from the naive program to one that is forecast as fast as the expert."""
    expert = walk.program(walk.transitions[-1].after_text)
    with suppress(*FAULTS):
        made = lifted(walk.program(walk.transitions[0].before_text), Plan(walk.kernel, tuple(steps)), Context(aim)).program
        return Analytic()(Pair(expert, made, sizes_of(walk, made), aim, surface=walk.surface or "cuda")).median >= AS_FAST
    return False


def makes(found: Iterable[Application], before: Program, transition: Transition, context: Context) -> bool:
    """Whether one of a card's applications takes the expert's step, or gives its program."""
    wanted, others = told(Step.from_json(transition.step)), list[Application]()
    for each in found:
        if any(told(step) == wanted for step in each.steps):
            return True
        others.append(each)
    for each in others:
        with suppress(KirError):
            if transition.name in each.card.passes and content_hash(run(before, Pipeline(each.steps), context=context).program) == transition.after:
                return True
    return False
