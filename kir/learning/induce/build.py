"""The library that evidence makes: hypotheses, their trials, and the cards as files; the same evidence gives the same files."""
from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import kir
from kir.base.diagnostic import KirError, usage
from kir.base.store import write_atomic
from kir.learning.cards.card import Card, card_text, read_card
from kir.learning.cards.library import CardStore, Library
from kir.learning.cards.search import RANK, Rank, rank_of
from kir.learning.evidence.answers import remember
from kir.learning.evidence.walked import Walked, parsed_ahead
from kir.learning.forecast import Analytic
from kir.learning.induce.hypotheses import Hypothesis, hypotheses
from kir.learning.induce.prose import told
from kir.learning.induce.rank import SELDOM, learned, seen
from kir.learning.induce.transfers import families, transferred
from kir.learning.induce.trials import LEAST_TRIALS, decided, tried
from kir.learning.induce.uses import distinct, uses

NO_CODE = ("docs", "faces", "skills/bindings", "skills/cards", "skills/evidence", "skills/lineages", "skills/packages")
"""Folders that no card of given evidence depends on."""
NO_TRIAL = (*NO_CODE, "learning/induce/prose.py", "learning/induce/excerpt.py", "learning/induce/mechanism.py")
"""The same, and what only tells a card: a trial does not depend on it."""


def build(walks: Sequence[Walked], workers: int = 1, trials: bool = True, advance: Callable[[str], None] = lambda text: None,
          kept: Path | None = None, only: Collection[str] = ()) -> tuple[Card, ...]:
    """The cards of walked kernels, in order of name. Programs are parsed and trials run side by side in so many processes. A card is `kept` in a folder as
    soon as it was tried, and taken from there by the same code on the same evidence: a killed run is taken up again, and where only the telling of cards
    changed, they are told anew from the trials that were kept. `only` cards of some names are made, each as it is in the whole library. Raises UsageError
    KIR-S050 for a name that the evidence makes no card of."""
    some = distinct(walks)
    parsed_ahead((each.programs[key] for each in some for key in _read(each)), workers)
    remember(some)
    found = [each for each in hypotheses(some, uses(some)) if not only or each.card.name in only]
    if missing := sorted({*only} - {each.card.name for each in found}):
        raise usage("KIR-S050", f"the evidence makes no card called '{missing[0]}'", needs="the name of a card that it makes")
    if not trials:
        return tuple(_told(_finished(each, ()), advance) for each in found)
    of = (_key(code(), some), _key(code(NO_TRIAL), some)) if kept is not None else ("", "")
    if workers < 2:
        return tuple(_told(_tried(each, some, kept, of), advance) for each in found)
    context = multiprocessing.get_context("fork")  # the evidence is inherited, not sent
    order = sorted(range(len(found)), key=lambda k: (len(found[k].uses), found[k].card.name))  # what few kernels use is tried on others: that takes longest
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(found, some, kept, of)) as pool:
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
_KEPT: list[tuple[Path | None, tuple[str, str]]] = []
"""What a process of the pool works on; filled once when it begins."""


def _begin(found: Sequence[Hypothesis], walks: Sequence[Walked], kept: Path | None, of: tuple[str, str]) -> None:
    _FOUND[:], _WALKS[:], _KEPT[:] = found, walks, [(kept, of)]


def _at(number: int) -> Card:
    return _tried(_FOUND[number], _WALKS, *_KEPT[0])


def _tried(each: Hypothesis, walks: Sequence[Walked], kept: Path | None, of: tuple[str, str]) -> Card:
    """The finished card, the one that is kept where code and evidence are as they were; told anew where only the telling is by other code."""
    if kept is None:
        return _finished(each, walks)
    told_, trials = (kept / hashlib.sha256(f"{key} {card_text(each.card)}".encode()).hexdigest()[:16] / f"{each.card.name}.md" for key in of)
    with suppress(KirError):
        return read_card(told_)
    card = None
    with suppress(KirError):
        card = _told_of(read_card(trials), each)
    card = card or _finished(each, walks)
    for place in dict.fromkeys((trials, told_)):
        write_atomic(place, card_text(card))
    return card


def _key(by: str, walks: Sequence[Walked]) -> str:
    return hashlib.sha256(f"{by} {' '.join(sorted(each.digest for each in walks))}".encode()).hexdigest()


def code(without: Collection[str] = NO_CODE) -> str:
    """A digest of what cards are made by: KIR's source, without what people see of it, and the data that it forecasts by."""
    home, total = Path(kir.__file__).parent, hashlib.sha256()
    for folder, inner, files in os.walk(home, followlinks=True):
        def is_part(name: str, folder: str = folder) -> bool:
            return name != "__pycache__" and Path(folder, name).relative_to(home).as_posix() not in without
        inner[:] = sorted(filter(is_part, inner))
        for name in sorted(filter(is_part, files)):
            total.update(f"{Path(folder, name).relative_to(home)} {hashlib.sha256(Path(folder, name).read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def _finished(each: Hypothesis, walks: Sequence[Walked]) -> Card:
    """The card with its trials on some walks (none: no trial): on kernels that use it, and where these are too few on others."""
    card = each.card
    if walks:
        try:
            card = _judged(each, walks)
        except Exception as fault:  # a defect of KIR in what was run: the other cards are made, and this one says so
            why = f"a trial of it raised {type(fault).__name__}, a defect of KIR; nothing is known of it"
            card = card.model_copy(update={"state": "hypothesis", "why": why})
    return _told_of(card, each)


def _judged(each: Hypothesis, walks: Sequence[Walked]) -> Card:
    """The card with its trials, and the state that follows from them."""
    trials = tried(each.lift, each.uses, each.composite)
    more = transferred(each.card, walks, Analytic()) if len(trials) < LEAST_TRIALS else ()
    return decided(each.card, (*trials, *more), families(walks) if more else None)


def _told_of(card: Card, each: Hypothesis) -> Card:
    return card.model_copy(update={"prose": told(card, each.uses)})


def write_cards(folder: Path, cards: Sequence[Card], walks: Sequence[Walked] = (), workers: int = 1, whole: bool = True) -> tuple[Path, ...]:
    """Write cards, one file each, and the order that their uses teach; files of cards that are no more are removed. Of a library that is not `whole` the others
    stay, and so does the order: of a card that it does not know it is as of one that was seen too seldom."""
    store = CardStore(folder)
    kept = {store.put(card) for card in cards}
    if not whole:
        known, every = rank_of(folder), Library((store,)).admitted
        if known != Rank():
            _write_rank(folder, replace(known, states={card.name: known.states.get(card.name, (SELDOM, {})) for card in every}))
        return tuple(sorted(kept))
    for path in set(store.files()) - kept:
        path.unlink()
    admitted = [card for card in cards if card.state == "admitted"]
    _write_rank(folder, learned(admitted, seen(admitted, distinct(walks), workers), workers=workers))
    return tuple(sorted(kept))


def _write_rank(folder: Path, rank: Rank) -> None:
    write_atomic(folder / RANK, json.dumps({**vars(rank), "families": sorted(rank.families)}, indent=1, sort_keys=True) + "\n")
