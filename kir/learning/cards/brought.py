"""What a card that was found for a program is forecast to bring there: carried out at its places, each beside the program as it is."""
from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest

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
    """A hit and, of its applications that were forecast, the one that promises most; None where none could be, or no time was left (`late`)."""

    hit: Hit
    best: Application | None = None
    forecast: Forecast | None = None
    late: bool = False


def brought(hits: Sequence[Hit], program: Program, sizes: Mapping[str, int], device: Target, ask: Forecaster, surface: str = "cuda",
            seconds: float = 6.0) -> tuple[Brought, ...]:
    """Every hit with what it is forecast to bring, in so many seconds, the first application of each before further ones: those that pay come first, the
    fastest before others, then those of which that is not sure, then those that do not pay; within these two, hits stay in the order in which they were found.
    Those without a forecast are among the unsure."""
    ends = time.monotonic() + seconds
    found = [Brought(hit) for hit in hits]
    for turn in zip_longest(*map(_uses, hits)):
        for k, use in enumerate(turn):
            if use is not None and time.monotonic() <= ends:
                found[k] = _better(found[k], use, program, sizes, device, ask, surface)
            elif use is not None and found[k].forecast is None:
                found[k] = replace(found[k], late=True)
    return tuple(sorted(found, key=_order))


def _order(each: Brought) -> tuple[int, float]:
    pays = each.forecast.pays if each.forecast is not None else "unsure"
    return ORDER[pays], -each.forecast.median if each.forecast is not None and pays == "yes" else 0.0


def _better(best: Brought, use: Application, program: Program, sizes: Mapping[str, int], device: Target, ask: Forecaster, surface: str) -> Brought:
    """A hit with one more of its applications forecast."""
    with suppress(KirError):
        after = run(program, Pipeline(use.steps), context=Context(device)).program
        made = ask(Pair(program, after, sizes, device, "; ".join(map(str, use.steps)), surface))
        if best.forecast is None or made.median * (1 - made.fails) > best.forecast.median * (1 - best.forecast.fails):
            return Brought(best.hit, use, made)
    return best


def _uses(hit: Hit) -> Iterator[Application]:
    """Applications in turn: the hit's first, then the first of each card beside it, then the hit's others; at most `MOST`."""
    if not hit.applications:
        return
    rest = [each.applications[0] for each in hit.also if each.applications] + list(hit.applications[1:])
    yield from [hit.applications[0], *rest][:MOST]


__all__ = ["Brought", "brought"]
