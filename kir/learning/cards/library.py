"""Where cards are kept and found: folders given, the user's own, and the library that ships with KIR.

The shipped library is read-only. The user's own folder is searched before it, and a card there hides the shipped one of the same name.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import resources
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, did_you_mean, error, usage
from kir.base.store import write_atomic
from kir.hardware.target import Target
from kir.ir.nodes import Program
from kir.learning.cards.card import Card, card_text, read_card
from kir.learning.cards.search import RANK, Hit, Rank, rank_of, search


@dataclass(frozen=True)
class CardStore:
    """A folder of cards: `NAME.md`, each its own skill."""

    root: Path
    writable: bool = True

    def files(self) -> Iterator[Path]:
        """The card files, in order of name; none when the folder does not exist."""
        yield from sorted(self.root.glob("*.md")) if self.root.is_dir() else ()

    def put(self, card: Card) -> Path:
        """Write a card under its name; raises KIR-S022 for a store that is read-only."""
        if not self.writable:
            raise error("KIR-S022", f"{self.root} is the library that ships with KIR and is not written to", attempt="--library DIR")
        path = self.root / f"{card.name}.md"
        write_atomic(path, card_text(card))
        return path


@dataclass(frozen=True)
class Found:
    """A card and the file it was read from."""

    card: Card
    path: Path


@dataclass(frozen=True)
class Library:
    """Shelves in the order in which they are searched. What is no card is left out, and is among the `faults`."""

    stores: tuple[CardStore, ...]

    @cached_property
    def _read(self) -> tuple[tuple[Found, ...], tuple[Diagnostic, ...]]:
        found: dict[str, Found] = {}
        faults: list[Diagnostic] = []
        for store in self.stores:
            for path in store.files():
                try:
                    card = read_card(path)
                except KirError as fault:
                    faults += fault.diagnostics
                    continue
                found.setdefault(card.name, Found(card, path))
        return tuple(found[name] for name in sorted(found)), tuple(faults)

    @property
    def found(self) -> tuple[Found, ...]:
        """All cards by name, with their files; those of earlier stores hide later ones."""
        return self._read[0]

    @property
    def faults(self) -> tuple[Diagnostic, ...]:
        """What is wrong with the files that are no cards."""
        return self._read[1]

    @property
    def cards(self) -> tuple[Card, ...]:
        """All cards by name."""
        return tuple(each.card for each in self.found)

    @property
    def admitted(self) -> tuple[Card, ...]:
        """The cards that held-out trials have admitted, by name."""
        return tuple(each for each in self.cards if each.state == "admitted")

    def search(self, program: Program, target: Target | None = None, surface: str = "", words: str = "", most: int = 10) -> tuple[Hit, ...]:
        """The admitted cards for a program, best first, as `kir.learning.cards.search.search` finds them."""
        return search(self.admitted, program, target, surface, words, most, self.rank)

    @cached_property
    def rank(self) -> Rank:
        """What recorded outcomes teach of the order: of the first store with an order that was learned."""
        return next((rank_of(store.root) for store in self.stores if (store.root / RANK).is_file()), Rank())

    def card(self, name: str) -> Found:
        """The card called `name`, or the one in the file of that path.

        Raises UsageError KIR-S021 when there is none, with the nearest names, and KIR-S020 for a file that is no card.
        """
        if name.endswith(".md") and Path(name).is_file():
            return Found(read_card(Path(name)), Path(name))
        for store in self.stores:
            if (path := store.root / f"{name}.md").is_file():
                return Found(read_card(path), path)
        hint = did_you_mean(name, [each.name for each in self.cards])
        same = tuple(each.name for each in self.cards if name == each.intent or name in each.passes)
        notes = (f"cards of that intent or pass: {', '.join(same[:8])}{', ..' if len(same) > 8 else ''}",) if same else ()
        raise usage("KIR-S021", f"there is no card '{name}'{f'; {hint}' if hint else ''}", attempt="kir skills list", notes=notes)

    def without(self, names: Sequence[str]) -> Library:
        """The same library as if some cards were not there: an ablation."""
        made = Library(self.stores)
        made.__dict__["_read"] = (tuple(each for each in self.found if each.card.name not in names), self.faults)
        return made


def library(folders: Sequence[Path] = ()) -> Library:
    """The library: the folders given, the user's own, and what ships with KIR."""
    import platformdirs

    own = Path(platformdirs.user_data_dir("kir")) / "cards"
    shipped = Path(str(resources.files("kir.skills") / "cards"))
    return Library((*(CardStore(each) for each in folders), CardStore(own), CardStore(shipped, writable=False)))
