"""Names for what the lines of a kernel say more than once: places along an axis, masks, offsets. Lines hold marks until they are known."""
from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from kir.ir.names import unlike

from ..tiles.marks import ATOM_ENDS, MARK, Mark, Marks

Line = tuple[str, tuple[int | str, ...] | None]
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_GIVEN = re.compile(r"\s*([A-Za-z_][\w, ]*?) = |\s*for (\w+) in ")
INDENT = 4
"""Columns of a block."""
AGAIN = 2
"""Places of a text from which on it has a name."""


def named(lines: Sequence[Line], marks: Marks, taken: Collection[str], first: int) -> list[Line]:
    """The lines of a kernel's body without marks: what is said once stands where it was, what is said more often has a line and a name, right behind the last
    line that gives a name in it a value (behind the `first` lines of all where none does). `taken` are the names that are there."""
    out, used = list(lines), set(taken)
    for kind in ("mask", "offset", "place"):  # the larger before what they are made of
        out = _of_kind(out, marks, kind, used, first)
    return out


def _of_kind(lines: list[Line], marks: Marks, kind: str, used: set[str], first: int) -> list[Line]:
    found: dict[tuple[str, int], list[int]] = {}
    for number, (text, _) in enumerate(lines):
        for match in MARK.finditer(text):
            mark = marks[match[0]]
            if mark.kind == kind:
                found.setdefault((match[0], max(first, _home(lines, number, _words(marks.whole(mark.text))))), []).append(number)
    before: dict[int, list[Line]] = {}
    replaced: dict[int, dict[str, str]] = {}
    for (key, home), numbers in found.items():
        mark = marks[key]
        if len(numbers) < AGAIN:
            continue
        name = unlike(mark.hint, used)
        used.add(name)
        depth = _depth(lines[home][0])
        before.setdefault(home, []).append((f"{' ' * depth}{name} = {mark.text}", None))
        for number in numbers:
            replaced.setdefault(number, {})[key] = name
    out = list[Line]()
    for number, (text, path) in enumerate(lines):
        out += before.get(number, [])
        out.append((_filled(text, marks, kind, replaced.get(number, {})), path))
    return out


def _filled(text: str, marks: Marks, kind: str, names: dict[str, str]) -> str:
    """A line with the marks of a kind as names, or as what they stand for, in parentheses where what is beside them binds more."""
    def said(match: re.Match[str]) -> str:
        mark: Mark = marks[match[0]]
        if mark.kind != kind:
            return match[0]
        if match[0] in names:
            return names[match[0]]
        behind = text[match.end():match.end() + 3]
        return f"({mark.text})" if not mark.atom and behind.startswith(ATOM_ENDS) else mark.text
    return MARK.sub(said, text)


def _home(lines: Sequence[Line], number: int, words: frozenset[str]) -> int:
    """The number of the line before which a text of these words, said in a line, may have its own."""
    depth = _depth(lines[number][0])
    for k in range(number - 1, -1, -1):
        text = lines[k][0]
        if _depth(text) > depth:
            continue
        given = _GIVEN.match(text)
        if given is not None and not words.isdisjoint(_WORD.findall(given[1] or given[2])):
            return k + 1
        depth = min(depth, _depth(text))
    return 0


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text))


def _depth(text: str) -> int:
    return len(text) - len(text.lstrip(" "))
