"""What came of cards where they were used: outcomes in SQLite, the cards that they change, and each change kept so that it can be undone."""
from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from kir.base.dataclass import dataclass
from kir.base.diagnostic import usage
from kir.base.store import EvidenceTable, Log
from kir.learning.cards.card import Card, Entry, card_text, parse_card
from kir.learning.cards.library import CardStore, Library

FILE = "outcomes.sqlite"
LEAST_USES = 5
"""Uses by which a card is judged."""
TOLD = 1.02
"""The forecast speedup from which a card is said to have helped, and its inverse from which it hurt."""
BY_CARD = "card "
"""How the plans of a search begin that are a card's."""
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


def of_search(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, tuple[Outcome, float]]:
    """What a log of `kir optimize` shows of each card that it tried: refused where every program made by it that went to the gate was, else by the best that
    it was forecast to bring, beside the program that the search began with. A card that was left out before anything was made of it is not among them."""
    made: dict[str, list[tuple[str, float]]] = defaultdict(list)
    gated, seen = dict[str, bool](), set[tuple[str, str]]()
    for row in rows:
        if row.get("event") == "plan" and str(row["plan"]).startswith(BY_CARD) and (row["plan"], row["start"]) not in seen:
            seen.add((row["plan"], row["start"]))  # a second time it goes on from what another plan made
            made[str(row["plan"]).removeprefix(BY_CARD).partition(" ")[0]].append((str(row["candidate"]), float(row["speedup"])))
        elif row.get("event") == "gate":
            gated[str(row["candidate"])] = bool(row["accepted"])
    out: dict[str, tuple[Outcome, float]] = {}
    for card, tries in made.items():
        right = [speedup for key, speedup in tries if gated.get(key, True)]
        best = max(right, default=0.0)
        out[card] = "failed" if not right else "helped" if best >= TOLD else "hurt" if best <= 1 / TOLD else "neutral", best
    return out


def record(table: EvidenceTable, log: Path, cards: Sequence[Card]) -> int:
    """Record what a log of `kir optimize` shows of some cards, once for each log; how many outcomes that were. That one brought nothing counts against it only
    if it says that it gains by itself: others make way for what follows. Raises UsageError KIR-S050 for a file that is none, and KirError as `Log.records`."""
    rows = list(Log(log).records())
    if not rows or rows[0].get("event") != "begin":
        raise usage("KIR-S050", f"{log} is no log of a search", needs="a log that was written", attempt="kir optimize FILE --log search.jsonl")
    name = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
    if table.find(kind="log", subject=name):
        return 0
    begun, by_itself = rows[0], {card.name: any(spread.median >= TOLD for spread in card.effect.forecast.values()) for card in cards}
    found = {name: row for name, row in of_search(rows).items() if name in by_itself and (row[0] in ("helped", "failed") or by_itself[name])}
    for card, (outcome, speedup) in found.items():
        used(table, card, str(begun.get("problem") or str(begun.get("program", ""))[:16]), outcome, speedup or None)
    table.add("log", name, "", {"outcomes": len(found)})
    return len(found)


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
