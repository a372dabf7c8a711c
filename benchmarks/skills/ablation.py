"""What the library would be without each of its cards: the experts' steps that no other card makes."""
from __future__ import annotations

import random

from benchmarks.skills.given import Given, Rows, share, side_by_side
from kir.learning.cards.card import Card
from kir.learning.induce.ablation import ablated

MOST_KERNELS = 3
"""Kernels that a row names."""


def ablation(given: Given) -> str:
    """The table, a row an admitted card."""
    drawn = random.Random(given.seed).sample(given.admitted, min(given.most, len(given.admitted)))
    cards = sorted(drawn, key=lambda card: (-len(card.evidence.uses), card.name))  # what has most uses takes longest
    rows = sorted(side_by_side(_ablated, cards, given))
    which = "each of them" if len(rows) == len(given.admitted) else f"each of {len(rows)} of them, drawn by the seed"
    made, lost = sum(row[2] for row in rows), sum(row[5] for row in rows)
    needed = sum(bool(row[5]) for row in rows)
    return "\n".join([
        "# Without a card", "", "Which cards the library cannot do without.", "",
        f"What the library of {len(given.admitted)} admitted cards loses without {which}, as `kir skills ablate CARD` says it: at each of the card's "
        "uses the program before the step is given to the card, to every other admitted card that has a step of the same pass, and to the pass with its own "
        "defaults, each with as many tries as in a trial. "
        "*lost* are steps (pass, parameters and place of the expert's, or its program but for where values are named) that only this card makes. Uses of a "
        "card of several steps count at each of its steps; it makes those from which all its steps follow. The uses are those that a card was lifted from: "
        "what it does on kernels that it was not made from is [when a card is right](skills-when.md).", "",
        f"{share(needed, len(rows))} of the cards make a step that nothing else makes; {share(lost, made)} of the steps that cards make are made by one alone.",
        "",
        "| card | uses | it makes | others make | only its pass's defaults | lost | of kernels |", "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
        *(f"| `{name}` | {uses} | {own} | {shared} | {plain} | {gone} | {kernels} |" for name, uses, own, shared, plain, gone, kernels in rows), ""])


def _ablated(card: Card, given: Given) -> Rows:
    made = ablated(card, given.admitted, given.walks)
    named = ", ".join(f"`{each}`" for each in made.kernels[:MOST_KERNELS])
    more = len(made.kernels) - MOST_KERNELS
    return [(card.name, made.uses, made.made, made.shared, made.plain, len(made.lost), f"{named}{f' and {more} more' if more > 0 else ''}")]
