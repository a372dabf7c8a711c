"""Marks in emitted text for what a writer may name later: where along an axis a tile lies, which of it is there, how far from a pointer it is."""
from __future__ import annotations

import re
from dataclasses import field
from typing import Literal

from kir.base.dataclass import dataclass

MARK = re.compile("\ue000(\\d+)\ue001")
"""A mark: a number between two characters that no source has."""
ATOM_ENDS = ("[", " * ")
"""What stands behind a text that needs parentheses there, unless it is a name, a call or in parentheses already."""
Kind = Literal["mask", "offset", "place"]


@dataclass(frozen=True)
class Mark:
    """`text` may hold marks itself; `atom` is whether it needs no parentheses anywhere, `hint` the name that it would have."""

    text: str
    kind: Kind
    hint: str
    atom: bool


@dataclass
class Marks:
    """The marks of one kernel."""

    held: dict[tuple[str, Kind], str] = field(default_factory=dict)
    known: dict[str, Mark] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Mark:
        return self.known[key]

    def of(self, text: str, kind: Kind, hint: str, atom: bool = False) -> str:
        """The mark of a text: what it was called first is what it is called. A name needs none."""
        if text.isidentifier():
            return text
        if (text, kind) not in self.held:
            self.held[text, kind] = key = f"\ue000{len(self.held)}\ue001"
            self.known[key] = Mark(text, kind, hint, atom)
        return self.held[text, kind]

    def whole(self, text: str) -> str:
        """A text without marks."""
        while MARK.search(text):
            text = MARK.sub(lambda m: self.known[m[0]].text, text)
        return text
