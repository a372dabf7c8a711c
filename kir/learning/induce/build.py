"""The library that evidence makes: hypotheses, their trials, and the cards as files; the same evidence gives the same files."""
from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from kir.base.store import write_atomic
from kir.learning.cards.card import Card
from kir.learning.cards.library import CardStore
from kir.learning.cards.search import RANK
from kir.learning.evidence.walked import Walked, parsed_ahead
from kir.learning.forecast import Analytic
from kir.learning.induce.hypotheses import Hypothesis, hypotheses
from kir.learning.induce.prose import told
from kir.learning.induce.rank import learned, seen
from kir.learning.induce.transfers import transferred
from kir.learning.induce.trials import LEAST_TRIALS, decided, tried
from kir.learning.induce.uses import distinct, uses


def build(walks: Sequence[Walked], workers: int = 1, trials: bool = True, advance: Callable[[str], None] = lambda text: None) -> tuple[Card, ...]:
    """The cards of walked kernels, in order of name. Programs are parsed and trials run side by side in so many processes."""
    some = distinct(walks)
    parsed_ahead((each.programs[key] for each in some for key in _read(each)), workers)
    found = hypotheses(some, uses(some))
    if workers < 2 or not trials:
        return tuple(_told(_finished(each, some if trials else ()), advance) for each in found)
    context = multiprocessing.get_context("fork")  # the evidence is inherited, not sent
    order = sorted(range(len(found)), key=lambda k: (len(found[k].uses), found[k].card.name))  # what few kernels use is tried on others: that takes longest
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(found, some)) as pool:
        made = [_told(card, advance) for card in pool.map(_at, order)]
    return tuple(sorted(made, key=lambda card: card.name))


def _read(each: Walked) -> Iterator[str]:
    """The keys of the programs of a walk that cards are made of."""
    yield from (key for t in each.transitions for key in (t.before_text, t.after_text))
    yield from (r.program_text for r in each.rejected if r.program_text in each.programs)


def _told(card: Card, advance: Callable[[str], None]) -> Card:
    advance(card.name)
    return card


_FOUND: list[Hypothesis] = []
_WALKS: list[Walked] = []
"""What a process of the pool works on; filled once when it begins."""


def _begin(found: Sequence[Hypothesis], walks: Sequence[Walked]) -> None:
    _FOUND[:], _WALKS[:] = found, walks


def _at(number: int) -> Card:
    return _finished(_FOUND[number], _WALKS)


def _finished(each: Hypothesis, walks: Sequence[Walked]) -> Card:
    """The card with its trials on some walks (none: no trial): on kernels that use it, and where these are too few on others."""
    card = each.card
    if walks:
        trials = tried(each.lift, each.uses, each.composite)
        card = decided(card, trials if len(trials) >= LEAST_TRIALS else (*trials, *transferred(card, walks, Analytic())))
    return card.model_copy(update={"prose": told(card, each.uses)})


def write_cards(folder: Path, cards: Sequence[Card], walks: Sequence[Walked] = (), workers: int = 1) -> tuple[Path, ...]:
    """Write cards, one file each, and the order that their uses teach; files of cards that are no more are removed."""
    store = CardStore(folder)
    kept = {store.put(card) for card in cards}
    for path in set(store.files()) - kept:
        path.unlink()
    admitted = [card for card in cards if card.state == "admitted"]
    rank = learned(admitted, seen(admitted, distinct(walks), workers))
    write_atomic(folder / RANK, json.dumps({"least": rank.least, "weights": rank.weights, "states": rank.states}, indent=1, sort_keys=True) + "\n")
    return tuple(sorted(kept))
