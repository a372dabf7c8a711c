"""What a card that was found for a program is forecast to bring there: carried out at its places, each beside the program as it is."""
from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.hardware.target import Target
from kir.ir.nodes import Program
from kir.learning.cards.search import Hit
from kir.learning.cards.use import Application
from kir.learning.forecast import Forecast, Forecaster, Pair
from kir.rewrite import Context, Pipeline, run

MOST = 5
"""Applications of one hit that are forecast: at its places, with its parameters and those of the cards beside it."""
ORDER = {"yes": 0, "unsure": 1, "no": 2}


@dataclass(frozen=True)
class Brought:
    """A hit and, of its applications that were forecast, the one that promises most; None where none could be, or no time was left."""

    hit: Hit
    best: Application | None = None
    forecast: Forecast | None = None


def brought(hits: Sequence[Hit], program: Program, sizes: Mapping[str, int], device: Target, ask: Forecaster, surface: str = "cuda",
            seconds: float = 6.0) -> tuple[Brought, ...]:
    """Every hit with what it is forecast to bring, at most so many seconds: those that pay come first, then those of which that is not sure, then those that
    do not pay; within these, hits stay in the order in which they were found. Those without a forecast are among the unsure."""
    ends = time.monotonic() + seconds
    found = [_best(hit, program, sizes, device, ask, surface, ends) for hit in hits]
    return tuple(sorted(found, key=lambda each: ORDER[each.forecast.pays if each.forecast is not None else "unsure"]))


def _best(hit: Hit, program: Program, sizes: Mapping[str, int], device: Target, ask: Forecaster, surface: str, ends: float) -> Brought:
    best = Brought(hit)
    for use in _uses(hit):
        if time.monotonic() > ends:
            break
        try:
            after = run(program, Pipeline(use.steps), context=Context(device)).program
            made = ask(Pair(program, after, sizes, device, "; ".join(map(str, use.steps)), surface))
        except KirError:
            continue
        if best.forecast is None or made.median * (1 - made.fails) > best.forecast.median * (1 - best.forecast.fails):
            best = Brought(hit, use, made)
    return best


def _uses(hit: Hit) -> Iterator[Application]:
    """Applications in turn: the hit's first, then the first of each card beside it, then the hit's others; at most `MOST`."""
    if not hit.applications:
        return
    rest = [each.applications[0] for each in hit.also if each.applications] + list(hit.applications[1:])
    yield from [hit.applications[0], *rest][:MOST]


__all__ = ["Brought", "brought"]
