"""What came of cards where they were used: outcomes in SQLite, the cards that they change, and each change kept so that it can be undone."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from kir.base.dataclass import dataclass
from kir.base.store import EvidenceTable
from kir.learning.cards.card import Card, Entry, card_text, parse_card
from kir.learning.cards.library import CardStore, Library

FILE = "outcomes.sqlite"
LEAST_USES = 5
"""Uses by which a card is judged."""
HELPED = 0.25
"""The share of its uses in which a card must help to stay; below, it is retired."""
Outcome = Literal["helped", "neutral", "hurt", "failed"]
"""Kept and faster; kept, no change that can be told; slower; or refused by the gate."""


@dataclass(frozen=True)
class Change:
    """A card that tending changed: as it was, as it is (None: merged into another), and why, in figures."""

    before: Card
    after: Card | None
    why: str


def ledger(store: Path) -> Path:
    """The file of a folder of cards in which its outcomes are kept."""
    return store / FILE


def used(table: EvidenceTable, card: str, kernel: str, outcome: Outcome, speedup: float | None = None, basis: str = "forecast") -> None:
    """Record what came of a card on a kernel; it is on disk when this returns."""
    table.add("outcome", card, outcome, {"kernel": kernel, **({"speedup": speedup, "basis": basis} if speedup is not None else {})})


def tallies(table: EvidenceTable) -> Mapping[str, Mapping[str, int]]:
    """How often each outcome was recorded of each card."""
    out: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in table.find(kind="outcome"):
        out[row.subject][row.verdict] += 1
    return out


def changes(cards: Sequence[Card], tally: Mapping[str, Mapping[str, int]]) -> tuple[Change, ...]:
    """What outcomes and a look over all cards ask for: a card that failed or hurt in most uses is deprecated, one that hardly ever helped is
    retired, and of two that say the same the one from fewer kernels goes into the other."""
    out, kept = list[Change](), dict[str, Card]()
    for card in sorted(cards, key=lambda c: (-c.evidence.kernels, c.name)):
        same = f"{card.carrier.model_dump_json()} {card.anchor.node}"
        if same in kept:
            out.append(Change(card, None, f"says the same as {kept[same].name}, which {kept[same].evidence.kernels} kernels bear out (this: "
                                          f"{card.evidence.kernels})"))
            continue
        kept[same] = card
        seen = tally.get(card.name, {})
        total, bad = sum(seen.values()), seen.get("hurt", 0) + seen.get("failed", 0)
        if total < LEAST_USES or card.state not in ("admitted", "deprecated"):
            continue
        if 2 * bad > total and card.state != "deprecated":
            out.append(_moved(card, "deprecated", f"{bad} of {total} uses failed or made it slower"))
        elif seen.get("helped", 0) < HELPED * total and 2 * bad <= total:
            out.append(_moved(card, "retired", f"it helped in {seen.get('helped', 0)} of {total} uses"))
    return tuple(out)


def _moved(card: Card, state: Literal["deprecated", "retired"], why: str) -> Change:
    made = card.model_copy(update={"state": state, "why": why, "log": (*card.log, Entry(what="state", outcome=f"{card.state} -> {state}: {why}"))})
    return Change(card, made, why)


def tend(library: Library, store: CardStore) -> tuple[Change, ...]:
    """Carry out what outcomes ask for in a folder of cards; what was there before is kept in its ledger."""
    with EvidenceTable(ledger(store.root)) as table:
        own = [each.card for each in library.found if each.path.parent == store.root]
        made = changes(own, tallies(table))
        for each in made:
            table.add("change", each.before.name, "merged" if each.after is None else each.after.state, {"text": card_text(each.before), "why": each.why})
        for each in made:
            if each.after is None:
                (store.root / f"{each.before.name}.md").unlink(missing_ok=True)
            else:
                store.put(each.after)
    return made


def undo(store: CardStore) -> tuple[Card, ...]:
    """Put back every card as it was before it was tended; the cards that were put back. Outcomes stay."""
    back: dict[str, Card] = {}
    with EvidenceTable(ledger(store.root)) as table:
        undone = {int(row.record["row"]) for row in table.find(kind="undone")}
        rows = [row for row in table.find(kind="change") if row.id not in undone]
        for row in rows:
            back.setdefault(row.subject, parse_card(str(row.record["text"]), f"{FILE}, row {row.id}"))  # the oldest is what was there first
        for card in back.values():
            store.put(card)
        for row in rows:
            table.add("undone", row.subject, "", {"row": row.id})
    return tuple(back.values())
