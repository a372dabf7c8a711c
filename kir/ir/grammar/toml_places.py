"""Where the keys and values of a TOML text stand. `tomllib` reads a text and forgets its places; these are worked out only when something is to be
said of one, of a text that it has read before."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache

from kir.base.dataclass import dataclass

Steps = tuple[str | int, ...]
"""Keys and numbers of elements from the top of a file: `("tensors", "X", "shape", 1)`."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"(?:[ \t\r\n\ufeff]|#[^\n]*)*")
_TEXT = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:\\.|[^"\\])*"|' + r"'[^']*'", re.DOTALL)
_SCALAR = re.compile(r"[^,\]}#\r\n]+")


@dataclass(frozen=True)
class Span:
    """Character offsets: those of a key (of an element, its own), and those of its value."""

    key: tuple[int, int]
    value: tuple[int, int]


@lru_cache(maxsize=4)
def places(text: str) -> dict[Steps, Span]:
    """The span of each key, table and element of a valid TOML text."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.found: dict[Steps, Span] = {}
        self.rows: dict[Steps, int] = {}

    def read(self) -> dict[Steps, Span]:
        table: Steps = ()
        self.blank()
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self.header()
            else:
                self.pair(table)
            self.blank()
        return self.found

    def blank(self) -> None:
        found = _BLANK.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def header(self) -> Steps:
        """A line `[a.b]` or `[[a.b]]`: the table that follows."""
        begun, several = self.at, self.text.startswith("[[", self.at)
        self.at += 2 if several else 1
        words, _ = self.key()
        out: Steps = ()
        for i, word in enumerate(words):
            out = (*out, word)
            if several and i == len(words) - 1:
                self.rows[out] = self.rows.get(out, -1) + 1
            if out in self.rows:
                out = (*out, self.rows[out])
        self.blank()
        self.at += 2 if several else 1
        self.found.setdefault(out, Span((begun, self.at), (begun, self.at)))
        return out

    def key(self) -> tuple[list[str], tuple[int, int]]:
        """A dotted key: its words, and the span of the last."""
        words: list[str] = []
        while True:
            self.blank()
            begun = self.at
            quoted = _TEXT.match(self.text, self.at) or _BARE.match(self.text, self.at)
            assert quoted is not None, f"no key at {self.at}"
            self.at = quoted.end()
            words.append(_word(quoted[0]))
            span = (begun, self.at)
            self.blank()
            if not self.text.startswith(".", self.at):
                return words, span
            self.at += 1

    def pair(self, table: Steps) -> None:
        words, span = self.key()
        self.blank()
        self.at += 1  # the equals sign
        self.value((*table, *words), span)

    def value(self, steps: Steps, key: tuple[int, int] | None) -> None:
        self.blank()
        begun = self.at
        if self.text[begun] == "[":
            self.at += 1
            self.items(steps, "]")
        elif self.text[begun] == "{":
            self.at += 1
            self.items(steps, "}")
        elif quoted := _TEXT.match(self.text, begun):
            self.at = quoted.end()
        else:
            plain = _SCALAR.match(self.text, begun)
            assert plain is not None, f"no value at {begun}"
            self.at = begun + len(plain[0].rstrip())
        self.found[steps] = Span(key or (begun, self.at), (begun, self.at))

    def items(self, steps: Steps, end: str) -> None:
        """What stands between brackets, after the first."""
        number = 0
        self.blank()
        while self.text[self.at] != end:
            if end == "]":
                self.value((*steps, number), None)
                number += 1
            else:
                self.pair(steps)
            self.blank()
            if self.text[self.at] == ",":
                self.at += 1
                self.blank()
        self.at += 1


def _word(text: str) -> str:
    """A key as it is meant."""
    return str(tomllib.loads(f"x = {text}")["x"]) if text[0] in "\"'" else text
