"""Cards by row of the catalogue, and why those that are not admitted are not."""
from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.skills.given import Given, side_by_side
from kir.base.diagnostic import KirError
from kir.base.registry import registry
from kir.ir.parser import parse_program
from kir.learning.cards.card import FAMILY, Card, Entry
from kir.learning.evidence.walked import Transition
from kir.learning.induce.trials import LEAST_SHARE, LEAST_TRIALS, fault
from kir.rewrite import pass_class
from kir.rewrite.catalog import summary
from kir.surface import backend

PUBLIC = Path(__file__).parents[1] / "data" / "klineage.toml"
SURFACES = ("cuda", "tilelang", "triton")
USES_SAID = 12
"""Uses of a card, the smallest programs first, that are written on each surface."""


def coverage(given: Given) -> str:
    """Cards by row of the catalogue."""
    said: dict[str, set[str]] = defaultdict(set)
    for name, surface in side_by_side(_said_on, [card.name for card in given.admitted], given):
        said[name].add(surface)
    rows: dict[int, list[str]] = defaultdict(list)
    for entry in registry("kir.passes"):
        for row in summary(entry).catalogue:
            rows[row].append(entry.name)
    by_pass: dict[str, list[Card]] = defaultdict(list)
    for card in given.cards:
        for name in card.passes:
            by_pass[name].append(card)
    public = {int(row): names for row, names in tomllib.loads(PUBLIC.read_text(encoding="utf-8"))["rows"].items()}
    lines = ["| row | intents | passes | cards | admitted | most kernels | written on | KLineage's cards |",
             "| ---: | --- | --- | ---: | ---: | ---: | --- | --- |"]
    covered = 0
    for row, names in sorted(rows.items()):
        cards = {card.name: card for name in names for card in by_pass[name]}
        good = [card for card in cards.values() if card.state == "admitted"]
        covered += bool(good)
        intents = sorted({pass_class(name).intent for name in names if pass_class(name).intent})
        surfaces = sorted({s for card in good for s in said[card.name]})
        lines.append(f"| {row} | {', '.join(intents)} | {', '.join(sorted(names))} | {len(cards)} | {len(good)} | "
                     f"{max((card.evidence.kernels for card in cards.values()), default=0)} | {', '.join(surfaces)} | {', '.join(public.get(row, ()))} |")
    lines += [f"| {row} | (no pass) | | 0 | 0 | 0 | | {', '.join(names)} |" for row, names in sorted(public.items()) if row not in rows]
    kinds = len({each for card in given.admitted for each in card.intent.split(" + ")})
    admitted, states = given.admitted, Counter(card.state for card in given.cards)
    of = [f"{len(given.cards)} cards: {', '.join(f'{n} {s}' for s, n in states.most_common())}.",
          f"The admitted ones are of {kinds} intents and {covered} of the {len(rows)} rows that have passes.",
          f"{sum(card.evidence.kernels >= 3 for card in admitted)} of them are lifted from three kernels or more, "
          f"{sum({*SURFACES} <= {*card.scope.surfaces} for card in admitted)} from kernels of all three surfaces; of {sum(len(x) == 3 for x in said.values())} "
          "a use can be written on all three, the program before it and the one after; "
          f"{sum(card.carrier.kind == 'composite' for card in admitted)} are composites; "
          f"{sum(any(p.category == FAMILY for p in card.preconditions) for card in admitted)} are admitted for their own families alone."]
    named = sum(map(len, public.values()))
    with_card = sum(len(names) for row, names in public.items() if any(by_pass[name] for name in rows.get(row, ())))
    of.append(f"Of the public cards of KLineage {named} are named here, beside the row whose mechanism their name says; {with_card} are in a row with a card "
              f"of ours, {sum(len(names) for row, names in public.items() if row in rows)} in a row with a pass.")
    return "\n".join(["# Skills by intent", "", "Which optimizations have a skill, and from how many kernels and surfaces.", "",
                      "A row is one of the catalogue of intents; `kir passes` names the rows of each pass.", "", *of, "", *lines, ""])


def _said_on(name: str, given: Given) -> list[tuple[str, str]]:
    """The surfaces on which the programs before and after some use of a card can be written."""
    card = next(c for c in given.cards if c.name == name)
    by_kernel: dict[str, list[Transition]] = defaultdict(list)
    walks = {walk.kernel: walk for walk in given.walks}
    for use in card.evidence.uses:
        by_kernel[use.kernel] += [t for t in walks[use.kernel].transitions if t.number == use.transition] if use.kernel in walks else []
    pairs = [(walks[kernel].programs[some[0].before_text], walks[kernel].programs[some[-1].after_text]) for kernel, some in by_kernel.items() if some]
    found: dict[str, None] = {}
    for before, after in sorted(pairs, key=lambda pair: (len(pair[0]), pair))[:USES_SAID]:
        for surface in SURFACES:
            with suppress(KirError):
                if surface not in found and not any(list(backend(surface).accepts(parse_program(text))) for text in (before, after)):
                    found[surface] = None
    return [(name, surface) for surface in found]


def why(given: Given) -> str:
    """For each card that is not admitted what its trials lack, and how often each cause is met."""
    rows, causes = [], Counter[str]()
    for card in given.cards:
        if card.state == "admitted":
            continue
        trials = [entry for entry in card.log if entry.what == "trial"]
        won, lost = sum(bool(t.skill) for t in trials), sum(bool(t.without) for t in trials)
        cause = _cause(card, trials, won, lost)
        causes[cause] += 1
        rows.append((cause, f"| `{card.name}` | {card.evidence.kernels} | {', '.join(card.scope.packages)} | {', '.join(card.scope.families)} | "
                     f"{won} of {len(trials)} | {lost} | {cause} |"))
    return "\n".join(["# Why cards are not admitted", "", "What the cards lack that are hypotheses still.", "",
                      f"{len(rows)} of {len(given.cards)} cards. A card needs {LEAST_TRIALS} trials on kernels of another "
                      "package or family, two thirds of which succeed, and more than without it.", "", "| cause | cards |", "| --- | ---: |",
                      *(f"| {cause} | {count} |" for cause, count in causes.most_common()), "",
                      "| card | kernels | packages | families | succeeded | without it | cause |", "| --- | ---: | --- | --- | ---: | ---: | --- |",
                      *(row for _, row in sorted(rows)), ""])


def _cause(card: Card, trials: Sequence[Entry], won: int, lost: int) -> str:
    if card.state == "negative":
        return "known not to help"
    if len(trials) < LEAST_TRIALS:
        return "too few kernels elsewhere at which it applies"
    if won >= LEAST_SHARE * len(trials):
        return "as much is found without it"
    failed = Counter(fault(t) for t in trials if not t.skill)
    return failed.most_common(1)[0][0]
