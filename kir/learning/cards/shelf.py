"""Where cards are kept and found: the library that ships with KIR, the user's own, and a folder given.

The shipped library is read-only. The user's own folder is searched first, and a card there hides the shipped one of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, did_you_mean, error, usage
from kir.base.store import write_atomic
from kir.learning.cards.card import Card, card_text, read_card
from kir.learning.cards.lift import cards_of
from kir.lineage.records.folder import lineage_names, opened, shipped_lineages


@dataclass(frozen=True)
class Shelf:
    """A folder of cards: ``NAME.md``, each its own skill."""

    root: Path
    writable: bool = True

    def files(self) -> Iterator[Path]:
        """The card files, in order of name; none when the folder does not exist."""
        yield from sorted(self.root.glob("*.md")) if self.root.is_dir() else ()

    def put(self, card: Card) -> Path:
        """Write a card under its name; raises KIR-S022 for a shelf that is read-only."""
        if not self.writable:
            raise error("KIR-S022", f"{self.root} is the library that ships with KIR and is not written to")
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
    """Shelves in the order in which they are searched."""

    shelves: tuple[Shelf, ...]
    lineages: tuple[Path, ...] = ()
    """Folders of lineages whose steps are cards too, where no shelf has one of the name."""

    def cards(self) -> tuple[tuple[Found, ...], tuple[Diagnostic, ...]]:
        """All cards by name, those of earlier shelves hiding later ones; and what is wrong with the files that are no cards."""
        found: dict[str, Found] = {}
        faults: list[Diagnostic] = []
        for shelf in self.shelves:
            for path in shelf.files():
                try:
                    card = read_card(path)
                except KirError as fault:
                    faults += fault.diagnostics
                    continue
                found.setdefault(card.name, Found(card, path))
        for each in self.lifted():
            found.setdefault(each.card.name, each)
        return tuple(found[name] for name in sorted(found)), tuple(faults)

    def lifted(self) -> Iterator[Found]:
        """The steps of the lineages as cards; where two lineages have one of the same name, the surface is added to the later one's."""
        taken: set[str] = set()
        for root in self.lineages:
            folder = opened(root)
            lineage = folder.read()
            for card in cards_of(lineage, folder):
                name = card.name if card.name not in taken else f"{card.name}-{lineage.header.surface}"
                taken.add(name)
                yield Found(card if name == card.name else card.model_copy(update={"name": name}), folder.file)

    def card(self, name: str) -> Found:
        """The card called ``name``, or the one in the file of that path.

        Raises :class:`UsageError` (KIR-S021) when there is none, with the nearest names, and KIR-S020 for a file that is no card.
        """
        if name.endswith(".md") and Path(name).is_file():
            return Found(read_card(Path(name)), Path(name))
        for shelf in self.shelves:
            if (path := shelf.root / f"{name}.md").is_file():
                return Found(read_card(path), path)
        cards, _ = self.cards()
        lifted = next((each for each in cards if each.card.name == name), None)
        if lifted is not None:
            return lifted
        hint = did_you_mean(name, [each.card.name for each in cards])
        same = tuple(each.card.name for each in cards if name in (each.card.intent, each.card.carrier.text.partition("@")[0].partition("{")[0]))
        notes = (f"cards of that intent or pass: {', '.join(same[:8])}{', ..' if len(same) > 8 else ''}",) if same else ()
        raise usage("KIR-S021", f"there is no card '{name}'{f'; {hint}' if hint else ''}", attempt="kir skills list", notes=notes)


def library(folders: Sequence[Path] = ()) -> Library:
    """The library: the folders given, the user's own, and what ships with KIR: its cards, and the steps of its lineages."""
    import platformdirs

    own = Path(platformdirs.user_data_dir("kir")) / "cards"
    shipped = Path(str(resources.files("kir.skills") / "cards"))
    walked = tuple(shipped_lineages() / name for name in lineage_names())
    return Library((*(Shelf(each) for each in folders), Shelf(own), Shelf(shipped, writable=False)), walked)
