"""From naive by admitted skills alone."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from benchmarks.skills.given import Given, side_by_side
from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.learning.cards.card import Card
from kir.learning.cards.use import Application, applicable
from kir.learning.evidence.walked import Transition
from kir.learning.induce.trials import told
from kir.rewrite import Context, Pipeline, Step, pass_class, run, sites


def round_trips(given: Given) -> str:
    """Which transitions of each lineage that ends naive an admitted card makes, from the naive end on."""
    rows = []
    whole = Counter[str]()
    walks = [w for w in given.walks if w.ended == "naive"][:given.most]
    for kernel, family, steps, ours, free in side_by_side(_tripped, [w.key for w in walks], given):
        rows.append(f"| `{kernel}` | {family} | {steps} | {ours} | {free} |")
        whole["whole"] += ours == steps
        whole["steps"] += steps
        whole["ours"] += ours
        whole["free"] += free
    head = [f"{len(rows)} lineages that end naive. An admitted card makes {whole['ours']} of their {whole['steps']} steps (pass, parameters and place of the "
            f"expert's, or its program); {whole['whole']} lineages are made whole. Without lineage fields (each pass with its own defaults, as a search that "
            f"knows no cards would offer it) {whole['free']} steps are made."]
    return "\n".join(["# Round trips by admitted skills alone", "", *head, "", "| kernel | family | steps | by admitted cards | without cards |",
                      "| --- | --- | ---: | ---: | ---: |", *rows, ""])


def _tripped(key: str, given: Given) -> list[tuple[str, str, int, int, int]]:
    walk = next(w for w in given.walks if w.key == key)
    ours = free = 0
    for transition, before, _ in walk.chain():
        cards = [c for c in given.admitted if transition.name in c.passes]
        ours += any(makes(card, before, transition) for card in cards)
        step = Step.from_json(transition.step)
        plain = {f"{site.params}@{step.at}" for site in sites(pass_class(step.name).with_options({}), before) if site.path == step.path}
        free += told(step) in plain
    return [(walk.kernel, walk.family, len(walk.transitions), ours, free)]


def makes(card: Card, before: Program, transition: Transition, applications: Iterable[Application] | None = None) -> bool:
    wanted, others = told(Step.from_json(transition.step)), list[Application]()
    for each in applicable(card, before, Context(target("sm_90a"))) if applications is None else applications:
        if any(told(step) == wanted for step in each.steps):
            return True
        others.append(each)
    for each in others:
        with suppress(KirError):
            if content_hash(run(before, Pipeline(each.steps)).program) == transition.after:
                return True
    return False
